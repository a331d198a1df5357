// Package operation is the table of what gavel can be asked: for each operation its
// id, its words, what it takes and answers, the right it needs, and how it runs. The MCP
// tools, the REST routes with their OpenAPI document, the client of a server, commands and the
// reference pages come from it. CONTRIBUTING.md shows how to add one.
//
// It promises that a request is read the same way whichever face it comes through: an
// unknown name, a value of another type and a missing part are refused, each with the
// same words, and documents keep the digits that their numbers were written with.
//
// It must never decide about rights or rules: the engine does. Only the faces, what exposes
// workflows as tools, and the program import it.
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
	// Sources returns the evidence sources; nil if there are none.
	Sources func() []Source
	// Services are what operations of modules ask, by Operation.Service.
	Services map[string]any
}

// Caller performs operations: with an engine (Call), or at a server (the REST client).
type Caller interface {
	// Ask performs an operation. req is a pointer to its request; the answer is its result.
	Ask(ctx context.Context, op *Operation, req any) (any, error)
}

// Ask performs the operation with the engine. Only the end of ctx answers CodeCancelled: what ended for another
// reason, such as a lease that was lost or a process that was stopped, is CodeUnavailable.
func (c Call) Ask(ctx context.Context, op *Operation, req any) (any, error) {
	res, err := op.run(ctx, c, req)
	if engine.CodeOf(err) == engine.CodeCancelled && ctx.Err() == nil {
		err = &engine.Error{
			Code: engine.CodeUnavailable, Message: "The server stopped working on the request before it had an answer.",
			Hint: "Check the status, then try again.", Err: err,
		}
	}
	return res, err
}

// Typed is an operation whose types are known: what is asked as Req is answered as Res.
type Typed[Req, Res any] struct{ *Operation }

// Do performs the operation at a caller.
func (o Typed[Req, Res]) Do(ctx context.Context, at Caller, req Req) (Res, error) {
	out, err := at.Ask(ctx, o.Operation, &req)
	res, _ := out.(Res)
	return res, err //nolint:wrapcheck // an *engine.Error
}

// Operation is one entry of the table. Entries are made with Add.
type Operation struct {
	// ID names it in logs and, where it has one route, in the OpenAPI document.
	ID string
	// Group is the chapter of the reference that it is in.
	Group string
	// Title is a few words, Description a sentence or two for a reader who has to choose.
	Title, Description string
	// Right is what a caller needs; "" when everybody may ask.
	Right engine.Right
	// Service is what a module's operation asks; it is offered where Call.Services has it. "" is the engine.
	Service string
	// Fields are what the request says.
	Fields []Field
	// Document says that the request is a document: the fields are its parts.
	Document bool
	// Tool is how MCP clients see it; without a name they do not.
	Tool Tool
	// Routes are where it is in the REST API.
	Routes []Route

	// Refused says that a result is a tool error: what was asked for did not happen.
	Refused func(res any) bool
	// Show is what a tool answers with; nil for the result as it is.
	Show func(res any) any
	// Watch returns what somebody who waits for the answer hears of meanwhile, asked again and again: a message,
	// another one where something happened. nil: nothing.
	Watch func(c Call, req any) func(context.Context) (message string, err error)
	// Location is where what was created can be read, "" when nothing was.
	Location func(res any) string

	// Request and Result are their types.
	Request, Result reflect.Type
	run             func(ctx context.Context, c Call, req any) (any, error)
	arguments       []*Field // what the tool takes
}

// Tool is an operation as MCP clients see it.
type Tool struct {
	Name string
	// Note follows the description of the operation.
	Note                              string
	ReadOnly, Destructive, Idempotent bool
	// Restricted says that only callers with the right see the tool.
	Restricted bool
	// Or is the id of an operation of the same tool: it runs when a field is given that
	// only it has.
	Or string
	// OrPrefix begins the words on its fields; OrFirst lists them first.
	OrPrefix string
	OrFirst  bool
	// Without names what Show leaves out of the result.
	Without []string
}

// Route is where an operation is in the REST API.
type Route struct {
	// At is method and path: "GET /v1/instances/{id}".
	At string
	// ID, Title and Description are those of the operation when empty. Note follows the
	// description.
	ID, Title, Description, Note string
	// Without names fields that it does not take.
	Without []string
	// Created says that success can be 201, with a Location; YAML that the body may also
	// be application/yaml; Events that the answer is also available as text/event-stream;
	// Tagged that it carries an ETag that begins with the revision.
	Created, YAML, Events, Tagged bool

	// Method and Path are what At says.
	Method, Path string
	fields       map[Place][]*Field
}

var table []*Operation

// All are the operations.
func All() []*Operation { return table }

// Add puts an operation into the table. A mistake in it is one of this program, met by
// its first test.
func Add[Req, Res any](o Operation, run func(ctx context.Context, c Call, req Req) (Res, error)) Typed[Req, Res] {
	o.Request, o.Result = reflect.TypeFor[Req](), reflect.TypeFor[Res]()
	o.run = func(ctx context.Context, c Call, req any) (any, error) {
		return run(ctx, c, *req.(*Req)) //nolint:forcetypeassert // NewRequest made it
	}
	o.add()
	return Typed[Req, Res]{&o}
}

// add is what Add does for all types: what is generic is compiled for each.
func (o *Operation) add() {
	if o.Show == nil {
		o.Show = func(res any) any { return res }
	}
	o.resolve()
	table = append(table, o)
}

// callEngine is a run that is one method of the engine.
func callEngine[Req, Res any](method func(Engine, context.Context, engine.Principal, Req) (Res, error)) func(context.Context, Call, Req) (Res, error) {
	return func(ctx context.Context, c Call, req Req) (Res, error) {
		return method(c.Engine, ctx, c.Caller.Principal, req)
	}
}

// Adapt is a function of a result whose type the table does not know.
func Adapt[Res, T any](f func(Res) T) func(any) T {
	return func(res any) T { return f(res.(Res)) } //nolint:forcetypeassert // run returned it
}

// NewRequest is a pointer to an empty request.
func (o *Operation) NewRequest() any { return reflect.New(o.Request).Interface() }
