package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Engine is what the operations ask; *engine.Engine implements it, and a client of one.
type Engine interface {
	Define(context.Context, engine.Principal, engine.DefineRequest) (engine.DefineResult, error)
	List(context.Context, engine.Principal) ([]engine.DefinitionSummary, error)
	DescribeAt(context.Context, engine.Principal, engine.DescribeRequest) (engine.DefinitionView, error)
	ConfigureJudge(context.Context, engine.Principal, engine.JudgeConfigRequest) (engine.JudgeConfigResult, error)
	Diagram(context.Context, engine.Principal, engine.DiagramRequest) (engine.DiagramResult, error)
	Start(context.Context, engine.Principal, engine.StartRequest) (engine.StartResult, error)
	Advance(context.Context, engine.Principal, engine.AdvanceRequest) (engine.AdvanceResult, error)
	Validate(context.Context, engine.Principal, engine.AdvanceRequest) (engine.ValidateResult, error)
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
	StatusAt(ctx context.Context, p engine.Principal, id string, w engine.When) (engine.StatusResult, error)
	CanExecute(ctx context.Context, p engine.Principal, id string, states []string) (engine.CanExecuteResult, error)
	Cancel(context.Context, engine.Principal, engine.CancelRequest) (engine.CancelResult, error)
	Undo(context.Context, engine.Principal, engine.UndoRequest) (engine.UndoResult, error)
	Redo(context.Context, engine.Principal, engine.UndoRequest) (engine.UndoResult, error)
	Checkpoint(context.Context, engine.Principal, engine.CheckpointRequest) (engine.CheckpointResult, error)
	ListCheckpoints(ctx context.Context, p engine.Principal, id string) (engine.CheckpointsResult, error)
	Rollback(context.Context, engine.Principal, engine.RollbackRequest) (engine.RollbackResult, error)
	Instances(context.Context, engine.Principal, engine.InstancesRequest) (engine.InstancesResult, error)
	History(context.Context, engine.Principal, engine.HistoryRequest) (engine.HistoryResult, error)
	Timeline(context.Context, engine.Principal, engine.HistoryRequest) (engine.TimelineResult, error)
	Decisions(context.Context, engine.Principal, engine.DecisionsRequest) (engine.DecisionsResult, error)
	Tail(context.Context, engine.Principal, engine.TailRequest) (engine.TailResult, error)
	Decide(context.Context, engine.Principal, engine.DecideRequest) (engine.DecideResult, error)
	Statistics(context.Context, engine.Principal, engine.StatisticsRequest) (engine.StatisticsResult, error)
	Reviews(context.Context, engine.Principal, engine.ReviewsRequest) (engine.ReviewsResult, error)
	Review(ctx context.Context, p engine.Principal, id string) (engine.ReviewView, error)
	Resolve(context.Context, engine.Principal, engine.ResolveRequest) (engine.ResolveResult, error)
}

// LocalEngine is an Engine whose events streams can follow.
type LocalEngine interface {
	Engine
	Feed() *engine.Feed
}

// Source is a source of evidence that an operator configured.
type Source struct {
	// Name is what definitions call it.
	Name string `json:"name"`
	// Kind is how it is asked, for example command or http.
	Kind string `json:"kind"`
	// Description is what the operator says of it.
	Description string `json:"description,omitempty"`
	// ReadOnly says that asking it changes nothing.
	ReadOnly bool `json:"readOnly"`
}

// Config is what a Handler is made of. Engine and Logger are required.
type Config struct {
	Engine LocalEngine
	Logger *slog.Logger
	// Sources lists the sources of evidence; nil when there are none.
	Sources func() []Source
	// MaxBody bounds a request's body in bytes; 0 is 1 MiB.
	MaxBody int64
	// Heartbeat is how often a quiet stream says that it still is there; 0 is 15 seconds.
	Heartbeat time.Duration
	// WriteTimeout is how long a reader of a stream may take for what it was sent before
	// it is dropped; 0 is 10 seconds.
	WriteTimeout time.Duration
	// StreamLife is how long a stream may live before its reader has to come back, with its
	// credential; 0 is 15 minutes.
	StreamLife time.Duration
	// MaxStreams bounds the streams of one principal; 0 is 8.
	MaxStreams int
	// MaxAllStreams bounds the streams of all principals; 0 is 256.
	MaxAllStreams int
}

func (c Config) withDefaults() Config {
	defaultTo(&c.MaxBody, 1<<20)
	defaultTo(&c.Heartbeat, 15*time.Second)
	defaultTo(&c.WriteTimeout, 10*time.Second)
	defaultTo(&c.StreamLife, 15*time.Minute)
	defaultTo(&c.MaxStreams, 8)
	defaultTo(&c.MaxAllStreams, 256)
	if c.Sources == nil {
		c.Sources = func() []Source { return nil }
	}
	return c
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	var errs []error
	if c.Engine == nil || c.Logger == nil {
		errs = append(errs, errors.New("httpapi: config needs Engine and Logger"))
	}
	if c.MaxBody < 1024 || c.MaxStreams < 1 || c.MaxAllStreams < 1 {
		errs = append(errs, errors.New("httpapi: MaxBody is at least 1024, MaxStreams and MaxAllStreams are at least 1"))
	}
	if c.Heartbeat < time.Millisecond || c.WriteTimeout < time.Millisecond || c.StreamLife < time.Millisecond {
		errs = append(errs, errors.New("httpapi: Heartbeat, WriteTimeout and StreamLife are at least a millisecond"))
	}
	return errors.Join(errs...)
}
