package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/script"
)

// toolFlags configure which tools MCP clients see, and how they are answered.
type toolFlags struct {
	ToolNames     string `name:"tool-names" enum:"auto,dotted,underscore" default:"auto" placeholder:"STYLE" help:"The style of tool names: auto (the default, depends on the client), dotted or underscore. Calls are accepted in both styles."`
	Toolset       string `name:"toolset" enum:"core,seed,all" default:"all" placeholder:"SET" help:"The tools to offer: all (the default), core (list, describe, start, advance, status, judge.validate) or seed (the eleven tools of the Generic DFA server)."`
	OutputSchemas bool   `name:"output-schemas" help:"List each tool with its output schema, and return structured content in addition to text."`
}

func (f *toolFlags) tools() gavel.Tools {
	return gavel.Tools{Names: f.ToolNames, Set: f.Toolset, OutputSchemas: f.OutputSchemas}
}

// reviewFlags configure whether moves wait for a person, and who may ask that person.
type reviewFlags struct {
	Reviews bool `name:"reviews" default:"true" negatable:"" help:"Let moves that need a person wait for a reviewer. Reviewers decide them with gavel review, over MCP or over REST. --no-reviews refuses such moves. Default: on."`
	Elicit  bool `name:"elicit" help:"Let the agent's client ask its user as well. Never for moves of high risk; recorded as human_via_client."`
}

func (f reviewFlags) checkReviews() error {
	if f.Elicit && !f.Reviews {
		return term.UsageErrorf("drop --no-reviews", "--elicit lets a client decide reviews, and --no-reviews disables them")
	}
	return nil
}

// MCPCommand serves one MCP client over stdio.
type MCPCommand struct {
	Definitions []string `name:"definitions" placeholder:"GLOB" help:"Load these workflow definitions as the operator's: a file, a folder or a pattern. Repeatable."`
	Role        string   `name:"role" enum:"agent,reviewer,operator,auditor" default:"agent" placeholder:"ROLE" help:"The role of the client: agent (the default), reviewer, operator or auditor."`
	Principal   string   `name:"principal" placeholder:"ID" help:"The client's name in the record, without a colon except in the prefix local:. Default: local: and the role."`
	reviewFlags
	toolFlags
	cli.SystemFlags
}

// Run serves until stdin or ctx ends.
func (c *MCPCommand) Run(ctx context.Context, con *cli.Console) error {
	ignoreClientExit()
	cli.HideSecrets()
	principal, err := cli.AgentPrincipal(c.Role, c.Principal)
	if err != nil {
		return err
	}
	sys, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	if isDevice(con.In) && con.Err.IsTerminal() {
		con.Err.Printf("waiting for an MCP client on standard input; gavel init configures one. Ctrl-D ends this.\n")
	}
	if err = c.serve(ctx, con, sys, principal); ctx.Err() != nil {
		err = nil // stopped by a signal, perhaps during startup
	}
	sys.Extensions().Close() // before CloseInTime: connections to other servers may take seconds to save their state
	return errors.Join(err, cli.CloseInTime(con.Log, sys.Close))
}

func (c *MCPCommand) open(ctx context.Context, con *cli.Console) (*cli.System, error) {
	if err := c.checkReviews(); err != nil {
		return nil, err
	}
	if c.Store == gavel.Memory && c.Reviews && !c.Elicit {
		con.Log.Info("reviews cannot be decided: no other process can open a store in memory", "hint", "set --store to a file, or refuse such moves with --no-reviews")
	}
	return c.OpenEquipped(ctx, con, cli.SystemOptions{Serves: true, Reviews: c.Reviews, ClientReviews: c.Elicit})
}

func (c *MCPCommand) serve(ctx context.Context, con *cli.Console, sys *cli.System, principal engine.Principal) error {
	if err := cli.LoadCurrentDefinitions(ctx, con, vettedDefiner{sys.Engine, sys.Extensions()}, c.Definitions); err != nil {
		return err
	}
	useTokens(sys, sys.Tokens)
	if err := module.ConfigError(sys.Check(ctx)); err != nil {
		return err
	}
	if err := warnMissing(ctx, con.Log, sys); err != nil {
		return err
	}
	defer c.Watch(ctx, con.Log, sys)()
	if c.Reviews {
		defer watchReviews(ctx, con.Log, sys.Engine)()
	}
	services, err := openServices(ctx, con.Log, sys, c.Config, "")
	if err != nil {
		return err
	}
	defer services.run(ctx)()
	defer sys.Extensions().Run(ctx)()
	defer resetQuarantineOnHangup(con.Log, sys.Pool)()
	configured := NewConfigWatch(con.Log, c.Config, services.Watch(sys.Extensions())...)
	defer cli.RunEvery(ctx, pollInterval, pollInterval, func(ctx context.Context) { configured.Look(ctx, false) })()
	con.Log.Info("serving MCP", "store", sys.Location.String(), "principal", principal.ID, "role", string(principal.Role),
		"version", cli.ReadBuild().Version, "definitions", strings.Join(c.Definitions, ", "), "models", strings.Join(sys.Model.ListNames(), ", "))
	defer func() { con.Log.Info("ended", "store", sys.Location.String()) }()
	if err := sys.ServeStdio(ctx, c.tools(), principal, con.In, con.RawOut); err != nil && !errors.Is(err, context.Canceled) {
		return term.UnknownErrorf("", "the connection failed: %w", err)
	}
	return nil
}

// ignoreClientExit prevents a client that has gone away from ending the process in the middle of a write. It handles
// SIGPIPE instead of ignoring it: commands that fetch evidence would inherit an ignored signal, and would write
// different output here than under gavel review.
func ignoreClientExit() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // the channel is never read, so further signals are dropped
}

// resetQuarantineOnHangup lets every quarantined script run again when the operator sends SIGHUP. The returned function stops
// that.
func resetQuarantineOnHangup(log *slog.Logger, pool *script.Pool) (stop func()) {
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
func warnMissing(ctx context.Context, log *slog.Logger, sys *cli.System) error {
	missing, err := cli.FindMissing(ctx, sys)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the store: %w", err)
	}
	if len(missing.Model) > 0 {
		log.Warn("workflows need a model's judgement, but no model is configured",
			"workflows", strings.Join(missing.Model, ", "), "effect", "onJudgeUnavailable decides such moves",
			"hint", "set LLM_JUDGE_MODEL, LLM_BASE_URL and LLM_API_KEY, and test them with gavel judge doctor")
	}
	if len(missing.Sources) > 0 {
		log.Warn("workflows need evidence, but no source of evidence is configured",
			"workflows", strings.Join(missing.Sources, ", "), "effect", "required evidence is missing, and onEvidenceMissing decides such moves",
			"hint", "declare the sources in a file, give it with --config, and test them with gavel evidence")
	}
	return nil
}

// isDevice reports whether nothing but a terminal or another device is connected to an input.
func isDevice(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
