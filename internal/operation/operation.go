// Package operation is the table of what gavel can be asked: for each operation its
// id, its words, what it takes and answers, the right it needs, and how it runs. The MCP
// tools, the REST routes with their OpenAPI document, the client of a server and the
// reference pages come from it. CONTRIBUTING.md shows how to add one.
//
// It promises that a request is read the same way whichever face it comes through: an
// unknown name, a value of another type and a missing part are refused, each with the
// same words, and documents keep the digits that their numbers were written with.
//
// It must never decide about rights or rules: the engine does. Only the faces and the
// program import it.
package operation

import (
	"context"
	"reflect"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// Engine is what operations and faces ask; *engine.Engine implements it. No other package
// declares one.
type Engine interface {
	Define(context.Context, engine.Principal, engine.DefineRequest) (engine.DefineResult, error)
	List(context.Context, engine.Principal) ([]engine.DefinitionSummary, error)
	DescribeAt(context.Context, engine.Principal, engine.DescribeRequest) (engine.DefinitionView, error)
	ConfigureJudge(context.Context, engine.Principal, engine.JudgeConfigRequest) (engine.JudgeConfigResult, error)
	Diagram(context.Context, engine.Principal, engine.DiagramRequest) (engine.DiagramResult, error)
	Start(context.Context, engine.Principal, engine.StartRequest) (engine.StartResult, error)
	Advance(context.Context, engine.Principal, engine.AdvanceRequest) (engine.AdvanceResult, error)
	Validate(context.Context, engine.Principal, engine.AdvanceRequest) (engine.ValidateResult, error)
	Decide(context.Context, engine.Principal, engine.DecideRequest) (engine.DecideResult, error)
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
	Statistics(context.Context, engine.Principal, engine.StatisticsRequest) (engine.StatisticsResult, error)
	Tail(context.Context, engine.Principal, engine.TailRequest) (engine.TailResult, error)
	Reviews(context.Context, engine.Principal, engine.ReviewsRequest) (engine.ReviewsResult, error)
	Review(ctx context.Context, p engine.Principal, id string) (engine.ReviewView, error)
	Resolve(context.Context, engine.Principal, engine.ResolveRequest) (engine.ResolveResult, error)
	Feed() *engine.Feed
}

// Call is what an operation runs with. It is a Caller that performs operations here.
type Call struct {
	Engine Engine
	Caller auth.Identity
	// Channel says how a person's word came, where the request does not.
	Channel record.Channel
	// Sources lists the sources of evidence; nil when there are none.
	Sources func() []Source
}

// Caller performs operations: with an engine (Call), or at a server (the REST client).
type Caller interface {
	// Ask performs an operation. req is a pointer to its request; the answer is its result.
	Ask(ctx context.Context, op Any, req any) (any, error)
}

// Ask performs the operation with the engine.
func (c Call) Ask(ctx context.Context, op Any, req any) (any, error) { return op.perform(ctx, c, req) }

// Operation is one entry of the table: what is asked as Req is answered as Res. Entries
// are made with add.
type Operation[Req, Res any] struct {
	About
	// run asks the engine.
	run func(ctx context.Context, c Call, req Req) (Res, error)
	// say tells a result in one line, and whether it is a refusal; nil for the result's
	// own Message and Progress.
	say func(Res) (line string, refused bool)
	// show is what a tool answers with; nil for the result as it is.
	show func(Res) any
	// location is where what was created can be read, "" when nothing was.
	location func(Res) string
}

// Any is an Operation whatever its types.
type Any interface {
	// Info says what the operation is.
	Info() *About
	// Types are those of request and result.
	Types() (req, res reflect.Type)
	// Shown is a value of the type that the tool answers with.
	Shown() any
	// Answer is what the tool answers for a result: one line, the content, and whether it
	// is a refusal.
	Answer(res any) (line string, content any, refused bool)
	// Location is where what was created can be read, "" when nothing was.
	Location(res any) string
	perform(ctx context.Context, c Call, req any) (any, error)
}

// Do performs the operation at a caller.
func (o *Operation[Req, Res]) Do(ctx context.Context, at Caller, req Req) (Res, error) {
	out, err := at.Ask(ctx, o, &req)
	res, _ := out.(Res)
	return res, err //nolint:wrapcheck // an *engine.Error
}

// Info says what the operation is.
func (o *Operation[Req, Res]) Info() *About { return &o.About }

// Types are those of request and result.
func (o *Operation[Req, Res]) Types() (req, res reflect.Type) {
	return reflect.TypeFor[Req](), reflect.TypeFor[Res]()
}

// Shown is a value of the type that the tool answers with.
func (o *Operation[Req, Res]) Shown() any { return o.content(*new(Res)) }

func (o *Operation[Req, Res]) content(res Res) any {
	if o.show == nil {
		return res
	}
	return o.show(res)
}

// Answer is what the tool answers for a result.
func (o *Operation[Req, Res]) Answer(out any) (line string, content any, refused bool) {
	res := out.(Res) //nolint:forcetypeassert // perform returned it
	if o.say == nil {
		return sayMessage(res), o.content(res), false
	}
	line, refused = o.say(res)
	return line, o.content(res), refused
}

// Location is where what was created can be read.
func (o *Operation[Req, Res]) Location(out any) string {
	if o.location == nil {
		return ""
	}
	return o.location(out.(Res)) //nolint:forcetypeassert // perform returned it
}

func (o *Operation[Req, Res]) perform(ctx context.Context, c Call, req any) (any, error) {
	return o.run(ctx, c, *req.(*Req)) //nolint:forcetypeassert // the binder made it
}

// with is a run that is one method of the engine.
func with[Req, Res any](method func(Engine, context.Context, engine.Principal, Req) (Res, error)) func(context.Context, Call, Req) (Res, error) {
	return func(ctx context.Context, c Call, req Req) (Res, error) {
		return method(c.Engine, ctx, c.Caller.Principal, req)
	}
}

var table []Any

// All are the operations.
func All() []Any { return table }

// add puts an operation into the table. A mistake in it is one of this program, met by
// its first test.
func add[Req, Res any](o Operation[Req, Res]) *Operation[Req, Res] {
	o.About.resolve(reflect.TypeFor[Req]())
	table = append(table, &o)
	return &o
}
