package demo

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

func init() {
	module.Register(module.Module{
		Name: "demo",
		Commands: []module.Command{{
			Name: "demo", Group: "start", Help: "Watch an agent drive a judged workflow on a real server.",
			First: "see an agent being judged, in seconds",
			New:   func() any { return &command{} }, Unconfigured: true,
		}},
		Processes: map[string]module.Process{
			testsCommand: func(ctx context.Context, _ []string, _ io.Reader, out io.Writer) int {
				return runTests(ctx, projectFile, out)
			},
			infraCommand: func(ctx context.Context, _ []string, in io.Reader, out io.Writer) int {
				return serveInfra(ctx, in, out)
			},
			shopCommand: serveShop,
		},
	})
}

// command implements gavel demo.
type command struct {
	Part  string `arg:"" name:"part" optional:"" enum:"workflow,evidence,gateway,chain,console" default:"workflow" help:"What to watch: workflow (the default), evidence, gateway, chain or console."`
	Keep  bool   `name:"keep" help:"Keep the store, and print how to inspect it."`
	JSON  bool   `name:"json" help:"Print the exchange as JSON."`
	Store string `name:"store" env:"GAVEL_DEMO_STORE" placeholder:"PATH" help:"Create the store at this path, and keep it. It must not exist yet."`
}

func (command) Help() string {
	return `The demo starts the real server (gavel mcp) on a fresh store and drives it over
MCP as an agent would. A document is to be reviewed. The agent leaves out the
required fields, then sends a comment that is too short, and is refused with
reasons. Then it does it properly, and rolls back. In the second act a model judges
the approval too; then that model is slow, garbled and dead. The model is a script
that listens on this machine, so that the demo needs no key and no network;
everything else is real.

In gavel demo evidence the agent claims that all tests pass. The gate runs them itself,
sees one fail, and refuses. The agent finds other words, then fixes the file. Then the
tests hang, and at last the program that runs them is gone.

In gavel demo gateway the agent reaches another MCP server through gavel. The state of a workflow
decides which of its tools may be called. A skipped step is refused, and an error blocks. Failing tests
prevent the deployment whatever the agent says, and a tool that changes disappears.

In gavel demo chain an agent starts steps across three servers. gavel is killed while one of them takes
a payment, and continues in that step. A person reports the outcome of the payment, and it is made once.

gavel demo console fills a store with what an hour of three workflows leaves, and opens it in gavel's
console. It prints the address, and runs until Ctrl+C.

The demo checks every answer, and fails if one is unexpected.

Examples:

    gavel demo
    gavel demo evidence
    gavel demo gateway
    gavel demo chain
    gavel demo console
    gavel demo --keep         # then look at what was recorded
    gavel demo --json | jq '.decisions[] | {action, outcome, decidedBy}'

Exit codes: 0 all as it should be, 1 an unexpected answer, 3 no server.`
}

const demoTimeout = time.Minute

func (c *command) Run(ctx context.Context, con *cli.Console) error {
	for _, name := range plays[c.Part].needs {
		if !module.IsRegistered(name) {
			return term.UsageErrorf("watch another part", "this gavel is built without the module %s, which the demo %s needs", name, c.Part)
		}
	}
	ofModule := module.FindDemo(c.Part)
	if ofModule != nil && c.JSON {
		return term.UsageErrorf("leave out --json", "the demo %s has no exchange to print", c.Part)
	}
	path, cleanup, err := c.makeStorePath()
	if err != nil {
		return err
	}
	if ofModule != nil {
		return errors.Join(ofModule(ctx, module.Demo{Store: path, In: con.In, Out: con.Out, Err: con.Err, Log: con.Log}), cleanup())
	}
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	return errors.Join(Play(ctx, Options{
		Part: c.Part, Store: path, Kept: c.Keep || c.Store != "", JSON: c.JSON, Version: cli.ReadBuild().Version,
		Env: cli.WithoutSettings(os.Environ()), Out: con.Out, Tables: cli.HistoryTables,
	}), cleanup())
}

func (c *command) makeStorePath() (path string, cleanup func() error, err error) {
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
	return filepath.Join(dir, "gavel.db"), cleanup, nil
}
