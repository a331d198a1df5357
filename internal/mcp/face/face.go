// Package face implements gavel's own tools, resources and prompt for MCP clients: it binds tool calls to operations,
// calls the engine, and encodes the results. internal/mcp/wire implements the protocol.
//
// It promises:
//   - The structured content of an answer conforms to the tool's declared schema.
//   - A refused or parked move is a tool error with the whole position.
//   - If an operator allowed it, a move that waits for a person is put to a person through the client. Only an answer
//     that explicitly chose to approve exactly this question, in time and once, approves it.
//
// It must never:
//   - decide about rights or rules;
//   - show the text of an unknown error;
//   - treat a person's silence, or an unclear answer, as an approval.
package face

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Config configures a Face. Engine and Logger are required; Principal is required to serve stdio.
type Config struct {
	Engine    operation.Engine
	Principal engine.Principal // the client over stdio; over HTTP each request identifies its caller
	ToolNames ToolNames        // "" is Auto
	Toolset   Toolset          // "" is AllTools
	// OutputSchemas lists each tool with the schema of its answers. The protocol then requires structured content in
	// the answers.
	OutputSchemas bool
	Version       string // of the program, for serverInfo
	Logger        *slog.Logger
	// Services are those of operation.Call. Tools whose service is missing are not offered.
	Services map[string]any
	// Extras are tools that are not in the table; nil for none.
	Extras operation.Extras
	// Foreign, Limits and StillValid are as in wire.Config.
	Foreign    wire.Foreign
	Limits     wire.Limits
	StillValid func(context.Context, auth.Identity) bool
	// Reviews enables the tools and resources of reviews.
	Reviews bool
	// Elicit asks a person about a parked move through the client, if the client can show forms and the transition is
	// not high-risk. The engine must allow it too.
	Elicit bool
	// ElicitTimeout limits how long such a form waits; 0 is 2 minutes.
	ElicitTimeout time.Duration
	// States seals the forms that clients carry; if nil, they become invalid when the Face ends.
	States *clientstate.States
}

func (c Config) validate() error {
	var errs []error
	if c.Engine == nil || c.Logger == nil {
		errs = append(errs, errors.New("config needs Engine and Logger"))
	}
	if !c.ToolNames.isKnown() {
		errs = append(errs, fmt.Errorf("unknown style of tool names %q (auto, dotted, underscore)", c.ToolNames))
	}
	if !c.Toolset.isKnown() {
		errs = append(errs, fmt.Errorf("unknown toolset %q (core, seed, all)", c.Toolset))
	}
	if c.ElicitTimeout < 0 {
		errs = append(errs, errors.New("ElicitTimeout is negative"))
	}
	if c.Elicit && !c.Reviews {
		errs = append(errs, errors.New("the setting Elicit needs Reviews"))
	}
	return errors.Join(errs...)
}

// Face serves one engine: to one client over stdio, or to many over HTTP.
type Face struct {
	cfg          Config
	wire         *wire.Wire
	tools        catalog
	elicitations elicitations
	rewriter     *strings.Replacer // of tool names in texts
}

// New returns a Face with every tool, resource and prompt registered.
func New(cfg Config) (*Face, error) {
	cfg.ToolNames, cfg.ElicitTimeout = cmp.Or(cfg.ToolNames, Auto), cmp.Or(cfg.ElicitTimeout, 2*time.Minute)
	cfg.Toolset = cmp.Or(cfg.Toolset, AllTools)
	if cfg.States == nil {
		cfg.States = clientstate.New()
	}
	f := &Face{cfg: cfg, tools: newCatalog(cfg), elicitations: elicitations{cfg.States, cfg.ElicitTimeout}}
	f.rewriter = f.tools.rewriter()
	told := instructions
	if cfg.Reviews {
		told += fmt.Sprintf(reviewInstructions, f.statusTools())
	}
	protocol := wire.Config{
		Info: mcp.Implementation{Name: "gavel", Title: "gavel", Version: cfg.Version},
		Options: []server.ServerOption{
			server.WithInstructions(told),
			server.WithToolCapabilities(cfg.Foreign != nil || cfg.Extras != nil),
			server.WithResourceCapabilities(true, cfg.Foreign != nil),
			server.WithPromptCapabilities(cfg.Foreign != nil),
			server.WithCompletions(),
			server.WithPromptCompletionProvider(completer{f}),
			server.WithResourceCompletionProvider(completer{f}),
		},
		Tools: f, Foreign: cfg.Foreign, Resources: f, Logger: cfg.Logger, Limits: cfg.Limits, StillValid: cfg.StillValid,
	}
	protocol.Hooks.AddAfterInitialize(func(ctx context.Context, _ any, _ *mcp.InitializeRequest, result *mcp.InitializeResult) {
		result.Instructions = f.styleNames(ctx, result.Instructions)
	})
	protocol.Hooks.AddAfterDiscover(func(ctx context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		result.Instructions = f.styleNames(ctx, result.Instructions)
	})
	var err error
	f.wire, err = wire.New(protocol)
	if err := errors.Join(cfg.validate(), err); err != nil {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	f.addResources()
	f.addPrompt()
	return f, nil
}

// ServeStdio serves one client as the configuration's Principal; see wire.
func (f *Face) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	return f.wire.ServeStdio(ctx, f.cfg.Principal, in, out) //nolint:wrapcheck // the error is complete
}

// Handler returns a handler that serves the face over HTTP. Call Close when done with it.
func (f *Face) Handler() *wire.Endpoint { return f.wire.Handler() }

// instructions are text that a client may show its model.
const instructions = `gavel holds your process as a state machine. Start an instance with workflow.start and perform one of nextActions with workflow.advance; next says which fields data must bring, and whether evidence, a model or a person is involved. Every advance is judged before it happens.
A refused advance says what is missing: fix exactly that and try again, or choose another action. Only the state that an answer shows is true: never report a step as done that was not approved.
workflow.judge.validate asks whether an action would pass, without moving.`

// reviewInstructions are appended if a person can be asked.
const reviewInstructions = `
An advance whose outcome is escalate has not happened: it waits for a person as a review. Tell your user its id and look again with %s; do not send the same data again, and do not decide it yourself. Other legal actions are possible meanwhile, but they void the review.`

// callerOf returns the principal that a request acts for.
func callerOf(ctx context.Context) engine.Principal { return wire.CallerOf(ctx) }
