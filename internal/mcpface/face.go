package mcpface

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Config is what a Face is made of. Engine and Logger are required, and Principal to
// serve stdio.
type Config struct {
	Engine    operation.Engine
	Principal engine.Principal // who the client is over stdio; over HTTP each request says
	ToolNames ToolNames        // Auto when empty
	Version   string           // of the program, for serverInfo
	Logger    *slog.Logger
	// MaxLine bounds one message from the client in bytes; 0 is DefaultMaxLine.
	MaxLine int
	// MaxInFlight bounds the requests that wait for an answer over stdio; 0 is
	// DefaultMaxInFlight.
	MaxInFlight int
	// HTTP bounds what callers of Handler may hold at once.
	HTTP Limits
	// StillValid is asked, as often as Limits.Alive, about the credential that an open
	// stream was opened with; the stream ends when it is false. nil: it is valid until it
	// expires.
	StillValid func(context.Context, auth.Identity) bool
	// Reviews offers the tools and resources of reviews.
	Reviews bool
	// Elicit puts a parked move to a person through the client, when that can show
	// forms and the transition is not of high risk. The engine must allow it too.
	Elicit bool
	// ElicitTimeout is how long such a form waits; 0 is 2 minutes.
	ElicitTimeout time.Duration
	// Settle is how long a new subscription is quiet, so that the client hears first that
	// it is subscribed; 0 is half a second.
	Settle time.Duration
}

// defaultElicitTimeout is how long a person has for a form.
const defaultElicitTimeout = 2 * time.Minute

func (c Config) withDefaults() Config {
	if c.ToolNames == "" {
		c.ToolNames = Auto
	}
	if c.MaxLine == 0 {
		c.MaxLine = DefaultMaxLine
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = DefaultMaxInFlight
	}
	if c.ElicitTimeout == 0 {
		c.ElicitTimeout = defaultElicitTimeout
	}
	if c.Settle == 0 {
		c.Settle = defaultSettle
	}
	c.HTTP = c.HTTP.withDefaults()
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Engine == nil || c.Logger == nil {
		errs = append(errs, errors.New("mcpface: config needs Engine and Logger"))
	}
	if !c.ToolNames.known() {
		errs = append(errs, fmt.Errorf("mcpface: no style of tool names %q (auto, dotted, underscore)", c.ToolNames))
	}
	if c.MaxLine < 1024 || c.MaxInFlight < 1 || c.MaxInFlight > mostInFlight {
		errs = append(errs, fmt.Errorf("mcpface: MaxLine is at least 1024 and MaxInFlight 1 to %d", mostInFlight))
	}
	if c.ElicitTimeout < 0 || c.Settle < 0 {
		errs = append(errs, errors.New("mcpface: ElicitTimeout and Settle are positive"))
	}
	if c.Elicit && !c.Reviews {
		errs = append(errs, errors.New("mcpface: Elicit is a way to decide reviews, so it needs Reviews"))
	}
	return errors.Join(append(errs, c.HTTP.validate())...)
}

// Face serves one engine: to one client over stdio, or to many over HTTP.
type Face struct {
	cfg      Config
	server   *server.MCPServer
	tools    catalog
	tickets  *tickets
	rewriter *strings.Replacer // of tool names in texts
	// At the end: how long requests in flight may still be answered, and how long
	// they may take to notice that they were cancelled.
	grace, linger time.Duration
}

// New returns a Face with every tool, resource and prompt registered.
func New(cfg Config) (*Face, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	f := &Face{cfg: cfg, tools: newCatalog(cfg.Reviews), tickets: newTickets(cfg.ElicitTimeout), grace: grace, linger: linger}
	f.rewriter = f.tools.rewriter()
	told := instructions
	if cfg.Reviews {
		told += reviewInstructions
	}
	f.server = server.NewMCPServer("gavel", cfg.Version,
		server.WithTitle("gavel"),
		server.WithInstructions(told),
		server.WithToolCapabilities(false),
		server.WithResourceCapabilities(true, false),
		server.WithPromptCapabilities(false),
		server.WithCompletions(),
		server.WithPromptCompletionProvider(completer{f}),
		server.WithResourceCompletionProvider(completer{f}),
		server.WithHooks(f.hooks()),
	)
	for _, op := range f.tools.tools {
		f.server.AddTool(declare(op), f.handler(op))
	}
	f.addResources()
	f.addPrompt()
	return f, nil
}

// instructions are what a client may put before its model.
const instructions = `gavel holds your process as a state machine. Start an instance with workflow.start, look at nextActions, and perform one of them with workflow.advance; every advance is judged before it happens.
A refused advance says what is missing: mend exactly that and try again, or choose another action. Only the state that an answer shows is true: never report a step as done that was not approved.
workflow.judge.validate asks whether an action would pass, without moving.`

// reviewInstructions are added where a person can be asked.
const reviewInstructions = `
An ESCALATED advance has not happened: it waits for a person as a review. Tell your user its id and look again with workflow.status or workflow.review.list; do not send the same data again, and do not decide it yourself. Other legal actions are possible meanwhile, but they void the review.`

func (f *Face) hooks() *server.Hooks {
	h := &server.Hooks{}
	h.AddAfterInitialize(func(ctx context.Context, _ any, req *mcp.InitializeRequest, result *mcp.InitializeResult) {
		if s := sessionOf(ctx); s != nil {
			name := req.Params.ClientInfo.Name
			s.dotless.Store(refusesDots(name) || s.remote && name == "")
			s.forms.Store(hasForms(&req.Params.Capabilities))
		}
		result.Instructions = f.styled(ctx, result.Instructions)
	})
	h.AddAfterDiscover(func(ctx context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		result.Instructions = f.styled(ctx, result.Instructions)
	})
	h.AddAfterListTools(f.listTools)
	h.AddBeforeCallTool(func(_ context.Context, _ any, req *mcp.CallToolRequest) {
		req.Params.Name = f.tools.canonical(req.Params.Name)
	})
	f.watchHooks(h)
	return h
}

// listTools leaves out what the caller's role is not told of, and puts names into the
// client's style.
func (f *Face) listTools(ctx context.Context, _ any, _ *mcp.ListToolsRequest, result *mcp.ListToolsResult) {
	told := f.tools.listed(callerOf(ctx).Role)
	listed := make([]mcp.Tool, 0, len(result.Tools))
	for _, t := range result.Tools {
		if !slices.Contains(told, t.Name) {
			continue
		}
		if f.underscores(ctx) {
			t.Name = underscored(t.Name)
		}
		listed = append(listed, t)
	}
	result.Tools = listed
}
