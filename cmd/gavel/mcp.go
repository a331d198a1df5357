package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcpface"
	"github.com/gavel-mcp/gavel/validators/script"
)

type mcpCmd struct {
	Definitions []string `name:"definitions" placeholder:"GLOB" help:"Load these workflow definitions as the operator's: a file, a folder or a pattern. Repeatable."`
	Role        string   `name:"role" enum:"agent,reviewer,operator,auditor" default:"agent" placeholder:"ROLE" help:"What the client may do: agent, reviewer, operator or auditor. Default: agent."`
	Principal   string   `name:"principal" placeholder:"ID" help:"Who the client is, for the record. Default: local: and the role."`
	ToolNames   string   `name:"tool-names" enum:"auto,dotted,underscore" default:"auto" placeholder:"STYLE" help:"How tools are listed: dotted, underscore, or auto, by client, the default. Calls are accepted in both styles."`
	storeFlag
	modelFlags
}

// Help shows examples.
func (mcpCmd) Help() string {
	return `Stdin and stdout belong to the protocol; messages go to stderr. The server ends
when its stdin does, or with SIGINT or SIGTERM. Several servers may use one store.
A script that killed its worker again and again is quarantined; SIGHUP lets every
such script run again, and so does a new start.

Definitions that are loaded here belong to the operator: a client with the role
agent can use and tighten them, and cannot change or roll back what they guard.

A model judges where definitions ask for one (useLLM) and LLM_JUDGE_MODEL names it;
LLM_BASE_URL and LLM_API_KEY say where it is. gavel judge doctor tries the settings.

Examples:

    gavel mcp --definitions 'flows/*.json'
    gavel mcp --store /var/lib/gavel/gavel.db --definitions /etc/gavel/flows
    gavel mcp --store memory --role operator

In a client's configuration:

    {"mcpServers": {"gavel": {"command": "gavel",
      "args": ["mcp", "--definitions", "/home/me/flows"]}}}`
}

// closeLimit bounds what comes after the last answer, so that all of it stays
// within a second. What was acknowledged is durable already: a store that is slow
// to close loses nothing.
const closeLimit = 250 * time.Millisecond

// Run serves until stdin ends or ctx does.
func (c *mcpCmd) Run(ctx context.Context, con *console) error {
	signal.Ignore(syscall.SIGPIPE) // a client that is gone must not end the process in mid-write
	principal, err := c.principal()
	if err != nil {
		return err
	}
	model, err := c.modelFlags.open(con.log)
	if err != nil {
		return err
	}
	path, err := c.storePath(con.log, true)
	if err != nil {
		return errors.Join(err, model.Close())
	}
	sys, err := openSystem(ctx, con.log, path, model)
	if err != nil {
		return errors.Join(err, model.Close())
	}
	if err = c.serve(ctx, con, sys, principal); ctx.Err() != nil {
		err = nil // told to stop, perhaps in the middle of the start
	}
	return errors.Join(err, closeInTime(con.log, sys.Close))
}

func (c *mcpCmd) principal() (engine.Principal, error) {
	p := engine.Principal{ID: c.Principal, Role: engine.Role(c.Role)}
	if p.ID == "" {
		p.ID = "local:" + c.Role
	}
	if len(p.ID) > 200 || clean(p.ID) != p.ID {
		return p, misused("", "--principal is a name of at most 200 bytes without control characters")
	}
	return p, nil
}

func (c *mcpCmd) serve(ctx context.Context, con *console, sys *system, principal engine.Principal) error {
	if err := loadDefinitions(ctx, con.log, sys.engine, c.Definitions); err != nil {
		return err
	}
	if sys.model == nil {
		if err := warnNoModel(ctx, con.log, sys.store); err != nil {
			return err
		}
	}
	face, err := mcpface.New(mcpface.Config{
		Engine: sys.engine, Principal: principal, ToolNames: mcpface.ToolNames(c.ToolNames),
		Version: readBuild().Version, Logger: con.log,
	})
	if err != nil {
		return misused("", "cannot set up the server: %w", err)
	}
	defer forgiveOnHangup(con.log, sys.pool)()
	con.log.Info("serving MCP", "store", sys.path, "principal", principal.ID, "role", string(principal.Role), "models", strings.Join(sys.model.names(), ", "))
	if err := face.ServeStdio(ctx, con.stdin, con.rawOut); err != nil && !errors.Is(err, context.Canceled) {
		return unclear("", "the connection failed: %w", err)
	}
	return nil
}

// forgiveOnHangup lets every quarantined script run again whenever the operator
// sends SIGHUP. The returned function ends that.
func forgiveOnHangup(log *slog.Logger, pool *script.Pool) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range hangups {
			pool.ResetQuarantine("")
			log.Warn("quarantined scripts may run again", "cause", "SIGHUP")
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-ended
	}
}

// warnNoModel says once that definitions ask a model that nobody configured.
func warnNoModel(ctx context.Context, log *slog.Logger, store engine.Store) error {
	stored, err := store.Definitions(ctx)
	if err != nil {
		return unclear("", "cannot read the store: %w", err)
	}
	var asking []string
	for _, d := range stored {
		if bytes.Contains(d.Document, []byte(`"useLLM":true`)) { // documents are compact JSON
			asking = append(asking, d.Name)
		}
	}
	if len(asking) > 0 {
		log.Warn("workflows ask for a model's judgement and no model is configured",
			"workflows", strings.Join(asking, ", "), "effect", "such moves are decided as onJudgeUnavailable says",
			"hint", "set LLM_JUDGE_MODEL, LLM_BASE_URL and LLM_API_KEY; gavel judge doctor tries them")
	}
	return nil
}

// closeInTime calls a close function and stops waiting for it after closeLimit.
func closeInTime(log *slog.Logger, closing func() error) error {
	done := make(chan error, 1)
	go func() { done <- closing() }()
	select {
	case err := <-done:
		if err != nil {
			return unclear("", "the store did not close well: %w", err)
		}
	case <-time.After(closeLimit):
		log.Warn("ended without waiting for the store to close; what was acknowledged is on disk", "waited", closeLimit)
	}
	return nil
}
