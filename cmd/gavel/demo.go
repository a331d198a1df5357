package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
)

type demoCmd struct {
	Part  string `arg:"" name:"part" optional:"" enum:"workflow,evidence" default:"workflow" help:"What to watch: workflow (the default), or evidence."`
	Keep  bool   `name:"keep" help:"Keep the store and say how to look at it."`
	JSON  bool   `name:"json" help:"Print the exchange as JSON."`
	Store string `name:"store" env:"GAVEL_DEMO_STORE" placeholder:"PATH" help:"Make the store here, and keep it. It must not exist yet."`
}

// Help says what is seen.
func (demoCmd) Help() string {
	return `The demo starts the real server (gavel mcp) on a fresh store and drives it over
MCP as an agent would: a document is to be reviewed, the agent tries to get by
without the required fields and with a comment that is too short, is refused with
reasons, does it properly, and rolls back. In the second act a model judges the
approval too; then that model is slow, garbled and dead. The model is a script that
listens on this machine, so that the demo needs no key and no network; everything
else is real.

In gavel demo evidence the agent claims that all tests pass. The gate runs them itself,
sees one fail, and refuses; the agent finds other words, then mends the file; then the
tests hang, and then the program that runs them is gone.

The demo checks every answer, and fails when one is not as it should be.

Examples:

    gavel demo
    gavel demo evidence
    gavel demo --keep         # then look at what was recorded
    gavel demo --json | jq '.decisions[] | {action, outcome, decidedBy}'

Exit codes: 0 all as it should be, 1 an unexpected answer, 3 no server.`
}

// demoTimeout bounds the whole demo, which takes a few seconds.
const demoTimeout = time.Minute

// stage is what a demo moves beside the agent.
type stage interface {
	moody
	// settings are what the server is started with.
	settings() (arguments, environment []string)
	close() error
}

// Run plays the demo and prints its transcript.
func (c *demoCmd) Run(ctx context.Context, con *console) error {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	path, cleanup, err := c.freshStore()
	if err != nil {
		return err
	}
	what, set, err := c.part(ctx)
	if err != nil {
		return errors.Join(err, cleanup())
	}
	defer set.close() //nolint:errcheck // a demo that went well has closed it
	arguments, environment := set.settings()
	agent, err := startServer(ctx, path, arguments, environment)
	if err != nil {
		return errors.Join(err, cleanup())
	}
	t := &transcript{con: con, quiet: c.JSON, Store: path, Server: agent.server}
	t.begin(what.headline)
	err = what.run(ctx, agent, set, t)
	if cerr := agent.close(); err == nil && cerr != nil {
		err = fmt.Errorf("the server did not end well: %w", cerr)
	}
	if err != nil {
		err = errors.Join(t.fail(err, agent.log.String()), cleanup())
		return err
	}
	if err := t.end(c.kept()); err != nil {
		return err
	}
	return errors.Join(set.close(), cleanup())
}

// part is what is played, and where.
func (c *demoCmd) part(ctx context.Context) (play, stage, error) {
	if c.Part == "evidence" {
		w, err := openWorkshop()
		return evidencePlay, w, err
	}
	model, err := startModel(ctx)
	return workflowPlay, model, err
}

func (c *demoCmd) kept() bool { return c.Keep || c.Store != "" }

// freshStore is where the demo's store goes, and how to get rid of it.
func (c *demoCmd) freshStore() (path string, cleanup func() error, err error) {
	if c.Store != "" {
		if _, err := os.Lstat(c.Store); err == nil {
			return "", nil, term.UsageErrorf("give a path that does not exist yet", "the demo needs a fresh store, and %s exists", c.Store)
		}
		return c.Store, func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "gavel-demo-")
	if err != nil {
		return "", nil, term.UnknownErrorf("", "cannot make a folder for the demo: %w", err)
	}
	cleanup = func() error { return os.RemoveAll(dir) }
	if c.Keep {
		cleanup = func() error { return nil }
	}
	return filepath.Join(dir, storeFile), cleanup, nil
}

// transcript is what the demo prints: line by line for people, or whole as JSON.
type transcript struct {
	con   *console
	quiet bool

	OK        bool             `json:"ok"`
	Error     string           `json:"error,omitempty"`
	Server    serverInfo       `json:"server"`
	Store     string           `json:"store"`
	Exchange  []exchange       `json:"exchange"`
	Decisions []map[string]any `json:"decisions"`

	instance string
}

// exchange is one call with its answer.
type exchange struct {
	Say       string          `json:"say"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	IsError   bool            `json:"isError"`
	Text      string          `json:"text"`
	Answer    json.RawMessage `json:"answer,omitempty"`
}
