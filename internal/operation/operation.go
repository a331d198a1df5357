// Package operation is the table of all operations of gavel: for each its id, its texts, its request and result, the
// right that it needs, and how it runs. The MCP tools, the REST routes with their OpenAPI document, the client of a
// server, commands and the reference pages are derived from it. CONTRIBUTING.md shows how to add an operation.
//
// It promises that a request is read in the same way through every face (MCP, REST, the command line):
//   - Unknown names, values of the wrong type and missing parts are rejected, with the same message everywhere.
//   - Numbers in documents keep their digits.
//
// It must never decide about rights or rules: the engine does. Only the faces, the package that exposes workflows as
// tools, and the program may import it.
package operation

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// Engine is the interface that operations and faces use; *engine.Engine implements it. No other package declares such
// an interface.
type Engine interface {
	Define(context.Context, engine.Principal, engine.DefineRequest) (engine.DefineResult, error)
	List(context.Context, engine.Principal) ([]engine.DefinitionSummary, error)
	DescribeAt(context.Context, engine.Principal, engine.DescribeRequest) (engine.DefinitionView, error)
	ConfigureJudge(context.Context, engine.Principal, engine.JudgeConfigRequest) (engine.JudgeConfigResult, error)
	ClearRefusals(context.Context, engine.Principal, engine.ClearRefusalsRequest) (engine.ClearRefusalsResult, error)
	Diagram(context.Context, engine.Principal, engine.DiagramRequest) (engine.DiagramResult, error)
	Start(context.Context, engine.Principal, engine.StartRequest) (engine.StartResult, error)
	Advance(context.Context, engine.Principal, engine.AdvanceRequest) (engine.AdvanceResult, error)
	Validate(context.Context, engine.Principal, engine.AdvanceRequest) (engine.ValidateResult, error)
	Decide(context.Context, engine.Principal, engine.DecideRequest) (engine.DecideResult, error)
	StatusAt(ctx context.Context, p engine.Principal, id string, w engine.When) (engine.StatusResult, error)
	CanExecute(context.Context, engine.Principal, engine.CanExecuteRequest) (engine.CanExecuteResult, error)
	Cancel(context.Context, engine.Principal, engine.CancelRequest) (engine.MovedResult, error)
	ReleaseSubject(context.Context, engine.Principal, engine.ReleaseRequest) (engine.MovedResult, error)
	Undo(context.Context, engine.Principal, engine.UndoRequest) (engine.MovedResult, error)
	Redo(context.Context, engine.Principal, engine.UndoRequest) (engine.MovedResult, error)
	Checkpoint(context.Context, engine.Principal, engine.CheckpointRequest) (engine.CheckpointResult, error)
	ListCheckpoints(ctx context.Context, p engine.Principal, id string) (engine.CheckpointsResult, error)
	Rollback(context.Context, engine.Principal, engine.RollbackRequest) (engine.MovedResult, error)
	AddTranscript(context.Context, engine.Principal, engine.TranscriptRequest) (engine.TranscriptResult, error)
	Instances(context.Context, engine.Principal, engine.InstancesRequest) (engine.InstancesResult, error)
	History(context.Context, engine.Principal, engine.HistoryRequest) (engine.HistoryResult, error)
	Timeline(context.Context, engine.Principal, engine.HistoryRequest) (engine.TimelineResult, error)
	Decisions(context.Context, engine.Principal, engine.DecisionsRequest) (engine.DecisionsResult, error)
	Statistics(context.Context, engine.Principal, engine.StatisticsRequest) (engine.StatisticsResult, error)
	Tail(context.Context, engine.Principal, engine.TailRequest) (engine.TailResult, error)
	Reviews(context.Context, engine.Principal, engine.ReviewsRequest) (engine.ReviewsResult, error)
	Review(ctx context.Context, p engine.Principal, id string) (engine.ReviewView, error)
	Resolve(context.Context, engine.Principal, engine.ResolveRequest) (engine.ResolveResult, error)
	MaskCopies(ctx context.Context, ev record.Event, docs ...*json.RawMessage) error
	Feed() *engine.Feed
}

// Call holds everything that an operation runs with. It is a Caller that performs operations in this process.
type Call struct {
	Engine Engine
	Caller auth.Identity
	// Channel is how a person's decision arrived, unless the request names a channel.
	Channel record.Channel
	// Sources returns the evidence sources; nil if there are none.
	Sources func() []Source
	// Services holds the services that operations of modules use, by Operation.Service.
	Services map[string]any
}

// Caller performs operations: with an engine (Call), or on a server (the REST client).
type Caller interface {
	// Ask performs an operation. req is a pointer to its request; the result has the operation's result type.
	Ask(ctx context.Context, op *Operation, req any) (any, error)
}

// Ask performs the operation with the engine. It returns CodeCancelled only if ctx has ended. Other cancellations,
// such as a lost lease or a stopped process, become CodeUnavailable.
func (c Call) Ask(ctx context.Context, op *Operation, req any) (any, error) {
	res, err := op.run(ctx, c, req)
	if engine.CodeOf(err) == engine.CodeCancelled && ctx.Err() == nil {
		err = &engine.Error{
			Code: engine.CodeUnavailable, Message: "The server stopped before it answered the request.",
			Hint: "Check the status, then try again.", Err: err,
		}
	}
	return res, err
}

// Typed is an operation with a known request type Req and result type Res.
type Typed[Req, Res any] struct{ *Operation }

// Do performs the operation with a caller.
func (t Typed[Req, Res]) Do(ctx context.Context, at Caller, req Req) (Res, error) {
	out, err := at.Ask(ctx, t.Operation, &req)
	res, _ := out.(Res)
	return res, err //nolint:wrapcheck // an *engine.Error
}

// Operation is one entry of the table. Use Add to create entries.
type Operation struct {
	// ID names the operation in logs and, if it has one route, in the OpenAPI document.
	ID string
	// Group is the chapter of the reference that lists the operation.
	Group string
	// Title is a few words; Description is one or two sentences that help a reader choose.
	Title, Description string
	// Right is the right that callers need; "" means none.
	Right engine.Right
	// Service is the service that a module's operation uses; the operation is offered if Call.Services has it. "" is
	// the engine.
	Service string
	// Fields are the fields of the request.
	Fields []Field
	// Document reports that the request is a document whose parts are the fields.
	Document bool
	// Tool describes the MCP tool; without a name there is none.
	Tool Tool
	// Routes are the routes in the REST API.
	Routes []Route

	// Refused reports whether a result is a tool error: the requested action did not happen.
	Refused func(res any) bool
	// Show converts a result into the answer of the tool; nil answers with the unchanged result.
	Show func(res any) any
	// Watch returns a function that is called repeatedly while the operation runs. It returns a progress message,
	// which changes when something has happened. nil means no progress.
	Watch func(c Call, req any) func(context.Context) (message string, err error)
	// Location returns where a created object can be read, "" if nothing was created.
	Location func(res any) string

	// Request and Result are the request and result types.
	Request, Result reflect.Type
	run             func(ctx context.Context, c Call, req any) (any, error)
	arguments       []*Field // of the tool
}

// Tool is the MCP tool of an operation.
type Tool struct {
	Name string
	// Note is appended to the description of the operation.
	Note                              string
	ReadOnly, Destructive, Idempotent bool
	// Restricted reports that only callers with the right see the tool.
	Restricted bool
	// Or is the id of a second operation of the tool. It runs if the caller gives a field that only it has.
	Or string
	// OrPrefix begins the help of its fields; OrFirst lists them first.
	OrPrefix string
	OrFirst  bool
	// Without names the fields that Show omits from the result.
	Without []string
}

// Route is a route of an operation in the REST API.
type Route struct {
	// At is the method and path, such as "GET /v1/instances/{id}".
	At string
	// ID, Title and Description default to those of the operation. Note is appended to the description.
	ID, Title, Description, Note string
	// Without names fields that the route does not take.
	Without []string
	// Created reports that success can be 201, with a Location. YAML reports that the body may also be
	// application/yaml, Events that the response is also available as text/event-stream, and Tagged that it has an
	// ETag that begins with the revision.
	Created, YAML, Events, Tagged bool

	// Method and Path are the parts of At.
	Method, Path string
	fields       map[ParameterLocation][]*Field
}

var table []*Operation

// All returns all operations.
func All() []*Operation { return table }

// Add adds an operation to the table. It panics if the operation is wrong, which the first test finds.
func Add[Req, Res any](o Operation, run func(ctx context.Context, c Call, req Req) (Res, error)) Typed[Req, Res] {
	o.Request, o.Result = reflect.TypeFor[Req](), reflect.TypeFor[Res]()
	o.run = func(ctx context.Context, c Call, req any) (any, error) {
		return run(ctx, c, *req.(*Req)) //nolint:forcetypeassert // NewRequest made it
	}
	o.add()
	return Typed[Req, Res]{&o}
}

// add is the part of Add that does not depend on type parameters; generic code is compiled for each type.
func (o *Operation) add() {
	if o.Show == nil {
		o.Show = func(res any) any { return res }
	}
	o.resolve()
	table = append(table, o)
}

// callEngine returns a run function that calls one method of the engine.
func callEngine[Req, Res any](method func(Engine, context.Context, engine.Principal, Req) (Res, error)) func(context.Context, Call, Req) (Res, error) {
	return func(ctx context.Context, c Call, req Req) (Res, error) {
		return method(c.Engine, ctx, c.Caller.Principal, req)
	}
}

// Adapt converts a function of a concrete result type for use in the table.
func Adapt[Res, T any](f func(Res) T) func(any) T {
	return func(res any) T { return f(res.(Res)) } //nolint:forcetypeassert // run returned it
}

// NewRequest returns a pointer to an empty request.
func (o *Operation) NewRequest() any { return reflect.New(o.Request).Interface() }
