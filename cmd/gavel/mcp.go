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

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/script"
)

// toolFlags configure which tools MCP clients see, and how they are answered.
type toolFlags struct {
	ToolNames     string `name:"tool-names" enum:"auto,dotted,underscore" default:"auto" placeholder:"STYLE" help:"How tools are listed: dotted, underscore, or auto, by client, the default. Calls are accepted in both styles."`
	Toolset       string `name:"toolset" enum:"core,seed,all" default:"all" placeholder:"SET" help:"Which tools are offered: core (list, describe, start, advance, status, judge.validate), seed (the eleven of the Generic DFA server) or all, the default."`
	OutputSchemas bool   `name:"output-schemas" help:"List each tool with the schema of its answers, and answer with structured content next to the text."`
}

func (f *toolFlags) tools() gavel.Tools {
	return gavel.Tools{Names: f.ToolNames, Set: f.Toolset, OutputSchemas: f.OutputSchemas}
}

// reviewFlags configure whether moves wait for a person, and who may ask that person.
type reviewFlags struct {
	Reviews bool `name:"reviews" default:"true" negatable:"" help:"Let moves that need a person wait for one; reviewers decide them with gavel review, over MCP or over REST. --no-reviews refuses such moves. Default: on."`
	Elicit  bool `name:"elicit" help:"Let the agent's own client ask its user too. Never for moves of high risk; recorded as human_via_client."`
}

func (f reviewFlags) checkReviews() error {
	if f.Elicit && !f.Reviews {
		return term.UsageErrorf("drop --no-reviews", "--elicit is a way to decide reviews, and without reviews there are none")
	}
	return nil
}

type mcpCmd struct {
	Definitions []string `name:"definitions" placeholder:"GLOB" help:"Load these workflow definitions as the operator's: a file, a folder or a pattern. Repeatable."`
	Role        string   `name:"role" enum:"agent,reviewer,operator,auditor" default:"agent" placeholder:"ROLE" help:"What the client may do: agent, reviewer, operator or auditor. Default: agent."`
	Principal   string   `name:"principal" placeholder:"ID" help:"Who the client is, for the record: a name without a colon, except behind local:. Default: local: and the role."`
	reviewFlags
	toolFlags
	systemFlags
}

// closeLimit limits the shutdown after the last answer, so that it takes less than a second if requests end when they
// are cancelled. Acknowledged writes are already durable: a store that closes slowly loses nothing.
const closeLimit = 250 * time.Millisecond

func (c *mcpCmd) Run(ctx context.Context, con *console) error {
	outliveClient()
	hideSecrets()
	principal, err := agentPrincipal(c.Role, c.Principal)
	if err != nil {
		return err
	}
	sys, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	if err = c.serve(ctx, con, sys, principal); ctx.Err() != nil {
		err = nil // stopped by a signal, perhaps during startup
	}
	sys.Extensions().Close() // before the limit: connections to other servers get seconds to save their state
	return errors.Join(err, closeInTime(con.log, sys.Close))
}

func (c *mcpCmd) open(ctx context.Context, con *console) (*system, error) {
	if err := c.checkReviews(); err != nil {
		return nil, err
	}
	if c.Store == gavel.Memory && c.Reviews && !c.Elicit {
		con.log.Info("reviews of a store in memory cannot be decided: no other process sees it", "hint", "give --store a file, or refuse such moves with --no-reviews")
	}
	return c.openEquipped(ctx, con, equipment{serves: true, reviews: c.Reviews, clientReviews: c.Elicit})
}

func checkPrincipal(id string) error {
	if id == "" || len(id) > 200 || term.Clean(id) != id {
		return term.UsageErrorf("", "--principal is a name of at most 200 bytes without control characters")
	}
	return nil
}

// checkAgent is checkPrincipal for a local client. It also rejects ids that a token or an issuer could have: runs of
// chains for such a principal would need that token or issuer to continue.
func checkAgent(id string) error {
	if err := checkPrincipal(id); err != nil {
		return err
	}
	if of, _, has := strings.Cut(id, ":"); has && of != "local" {
		return term.UsageErrorf("give --principal "+term.ShellWord(strings.ReplaceAll(id, ":", "-")),
			"--principal %q has the form of a token's or an issuer's principal (%s:...), so that runs of chains would need that token or issuer; only local: may precede a colon", id, of)
	}
	return nil
}

func (c *mcpCmd) serve(ctx context.Context, con *console, sys *system, principal engine.Principal) error {
	if err := loadInForce(ctx, con, vetted{sys.Engine, sys.Extensions()}, c.Definitions); err != nil {
		return err
	}
	useTokens(sys, sys.Tokens)
	if err := module.BadConfig(sys.Check(ctx)); err != nil {
		return err
	}
	if err := warnMissing(ctx, con.log, sys); err != nil {
		return err
	}
	defer c.watch(ctx, con.log, sys)()
	if c.Reviews {
		defer watchReviews(ctx, con.log, sys.Engine)()
	}
	services, err := openServices(ctx, con.log, sys, c.Config)
	if err != nil {
		return err
	}
	defer services.run(ctx)()
	defer sys.Extensions().Run(ctx)()
	defer forgiveOnHangup(con.log, sys.Pool)()
	configured := newConfigWatch(con.log, c.Config, services.watch(sys.Extensions())...)
	defer runEvery(ctx, lookEvery, lookEvery, func(ctx context.Context) { configured.look(ctx, false) })()
	con.log.Info("serving MCP", "store", sys.place.String(), "principal", principal.ID, "role", string(principal.Role),
		"version", readBuild().Version, "definitions", strings.Join(c.Definitions, ", "), "models", strings.Join(sys.model.names(), ", "))
	defer func() { con.log.Info("ended", "store", sys.place.String()) }()
	if err := sys.ServeStdio(ctx, c.tools(), principal, con.stdin, con.rawOut); err != nil && !errors.Is(err, context.Canceled) {
		return term.UnknownErrorf("", "the connection failed: %w", err)
	}
	return nil
}

// outliveClient prevents a client that has gone away from ending the process in the middle of a write. It handles
// SIGPIPE instead of ignoring it: commands that fetch evidence would inherit an ignored signal, and would write
// different output here than under gavel review.
func outliveClient() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // the channel is never read, so further signals are dropped
}

// forgiveOnHangup lets every quarantined script run again when the operator sends SIGHUP. The returned function stops
// that.
func forgiveOnHangup(log *slog.Logger, pool *script.Pool) (stop func()) {
	return onHangup(func() {
		pool.ResetQuarantine("")
		log.Warn("quarantined scripts may run again", "cause", "SIGHUP")
	})
}

// onHangup calls f at each SIGHUP until the returned function is called, which waits for it.
func onHangup(f func()) (stop func()) {
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(ended)
		for range hangups {
			f()
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-ended
	}
}

// warnMissing logs once what definitions require and the configuration lacks.
func warnMissing(ctx context.Context, log *slog.Logger, sys *system) error {
	stored, err := sys.Store.Definitions(ctx)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the store: %w", err)
	}
	var judged, fetching []string
	for _, newest := range stored {
		d, err := sys.Store.Definition(ctx, newest.Name, newest.Version)
		if err != nil {
			return term.UnknownErrorf("", "cannot read the store: %w", err)
		}
		// Documents are compact JSON.
		if bytes.Contains(d.Document, []byte(`"useLLM":true`)) {
			judged = append(judged, d.Name)
		}
		if bytes.Contains(d.Document, []byte(`"evidence":[{`)) {
			fetching = append(fetching, d.Name)
		}
		if sys.model != nil && bytes.Contains(d.Document, []byte(`"cascade":[{`)) {
			if parsed, err := workflow.Parse(d.Name, d.Document); err == nil {
				sys.model.flags.warnIdleStages(log, sys.model.calibrations, parsed)
			}
		}
	}
	if sys.model == nil && len(judged) > 0 {
		log.Warn("workflows ask for a model's judgement and no model is configured",
			"workflows", strings.Join(judged, ", "), "effect", "such moves are decided as onJudgeUnavailable says",
			"hint", "set LLM_JUDGE_MODEL, LLM_BASE_URL and LLM_API_KEY; gavel judge doctor tries them")
	}
	if sys.sources == nil && len(fetching) > 0 {
		log.Warn("workflows ask for evidence and no source of evidence is configured",
			"workflows", strings.Join(fetching, ", "), "effect", "required evidence is missing, and such moves are decided as onEvidenceMissing says",
			"hint", "declare the sources in a file and give it with --config; gavel evidence tries them")
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
			return term.UnknownErrorf("", "the store did not close well: %w", err)
		}
	case <-time.After(closeLimit):
		log.Debug("ended without waiting for the store to close; what was acknowledged is on disk", "waited", closeLimit)
	}
	return nil
}
