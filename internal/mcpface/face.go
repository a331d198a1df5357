package mcpface

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
)

// Engine is what the face asks; *engine.Engine implements it.
type Engine interface {
	Define(context.Context, engine.Principal, engine.DefineRequest) (engine.DefineResult, error)
	List(context.Context, engine.Principal) ([]engine.DefinitionSummary, error)
	Describe(ctx context.Context, p engine.Principal, name string, version int) (engine.DefinitionView, error)
	Start(context.Context, engine.Principal, engine.StartRequest) (engine.StartResult, error)
	Advance(context.Context, engine.Principal, engine.AdvanceRequest) (engine.AdvanceResult, error)
	Validate(context.Context, engine.Principal, engine.AdvanceRequest) (engine.ValidateResult, error)
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
	Cancel(context.Context, engine.Principal, engine.CancelRequest) (engine.CancelResult, error)
	Checkpoint(context.Context, engine.Principal, engine.CheckpointRequest) (engine.CheckpointResult, error)
	Rollback(context.Context, engine.Principal, engine.RollbackRequest) (engine.RollbackResult, error)
	ListCheckpoints(ctx context.Context, p engine.Principal, id string) (engine.CheckpointsResult, error)
	ConfigureJudge(context.Context, engine.Principal, engine.JudgeConfigRequest) (engine.JudgeConfigResult, error)
	History(context.Context, engine.Principal, engine.HistoryRequest) (engine.HistoryResult, error)
	Instances(context.Context, engine.Principal, engine.InstancesRequest) (engine.InstancesResult, error)
	CanExecute(ctx context.Context, p engine.Principal, id string, states []string) (engine.CanExecuteResult, error)
	Diagram(context.Context, engine.Principal, engine.DiagramRequest) (engine.DiagramResult, error)
}

// Config is what a Face is made of. Engine, Principal and Logger are required.
type Config struct {
	Engine    Engine
	Principal engine.Principal // who the client is
	ToolNames ToolNames        // Auto when empty
	Version   string           // of the program, for serverInfo
	Logger    *slog.Logger
	// MaxLine bounds one message on stdin in bytes; 0 is DefaultMaxLine.
	MaxLine int
	// MaxInFlight bounds the requests that wait for an answer; 0 is DefaultMaxInFlight.
	MaxInFlight int
}

// Face serves one engine to one client.
type Face struct {
	cfg    Config
	server *server.MCPServer
	// dotless is true once the client turned out to refuse dots in names.
	dotless  atomic.Bool
	rewriter *strings.Replacer // of tool names in texts
	// At the end: how long requests in flight may still be answered, and how long
	// they may take to notice that they were cancelled.
	grace, linger time.Duration
}

// New returns a Face with every tool, resource and prompt registered.
func New(cfg Config) (*Face, error) {
	if cfg.ToolNames == "" {
		cfg.ToolNames = Auto
	}
	if cfg.MaxLine == 0 {
		cfg.MaxLine = DefaultMaxLine
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	var errs []error
	if cfg.Engine == nil || cfg.Logger == nil || cfg.Principal.ID == "" {
		errs = append(errs, errors.New("mcpface: config needs Engine, Logger and Principal"))
	}
	if !cfg.ToolNames.known() {
		errs = append(errs, fmt.Errorf("mcpface: no style of tool names %q (auto, dotted, underscore)", cfg.ToolNames))
	}
	if cfg.MaxLine < 1024 || cfg.MaxInFlight < 1 || cfg.MaxInFlight > mostInFlight {
		errs = append(errs, fmt.Errorf("mcpface: MaxLine is at least 1024 and MaxInFlight 1 to %d", mostInFlight))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	f := &Face{cfg: cfg, rewriter: nameRewriter(), grace: grace, linger: linger}
	f.server = server.NewMCPServer("gavel", cfg.Version,
		server.WithTitle("gavel"),
		server.WithInstructions(instructions),
		server.WithToolCapabilities(false),
		server.WithResourceCapabilities(false, false),
		server.WithPromptCapabilities(false),
		server.WithCompletions(),
		server.WithPromptCompletionProvider(completer{f}),
		server.WithResourceCompletionProvider(completer{f}),
		server.WithHooks(f.hooks()),
	)
	for _, t := range tools {
		f.server.AddTool(t.declare(), f.handler(t))
	}
	f.addResources()
	f.addPrompt()
	return f, nil
}

// instructions are what a client may put before its model.
const instructions = `gavel holds your process as a state machine. Start an instance with workflow.start, look at nextActions, and perform one of them with workflow.advance; every advance is judged before it happens.
A refused advance says what is missing: mend exactly that and try again, or choose another action. Only the state that an answer shows is true: never report a step as done that was not approved.
workflow.judge.validate asks whether an action would pass, without moving.`

func (f *Face) hooks() *server.Hooks {
	h := &server.Hooks{}
	h.AddAfterInitialize(func(ctx context.Context, _ any, req *mcp.InitializeRequest, result *mcp.InitializeResult) {
		f.dotless.Store(refusesDots(req.Params.ClientInfo.Name))
		result.Instructions = f.styled(ctx, result.Instructions)
	})
	h.AddAfterDiscover(func(ctx context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		result.Instructions = f.styled(ctx, result.Instructions)
	})
	h.AddAfterListTools(func(ctx context.Context, _ any, _ *mcp.ListToolsRequest, result *mcp.ListToolsResult) {
		if !f.underscores(ctx) {
			return
		}
		listed := make([]mcp.Tool, len(result.Tools))
		for i, t := range result.Tools {
			t.Name = underscored(t.Name)
			listed[i] = t
		}
		result.Tools = listed
	})
	h.AddBeforeCallTool(func(_ context.Context, _ any, req *mcp.CallToolRequest) {
		req.Params.Name = canonicalName(req.Params.Name)
	})
	return h
}
