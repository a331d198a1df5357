package console

import (
	"context"
	_ "embed"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
)

//go:embed assets/takeback.html
var takeBackTemplates string

// takeBack is an operation that ends an instance or restores an earlier revision of it. Its page first shows what the
// operation would do.
type takeBack struct {
	Name, Title, Verb string
	Right             engine.Right
}

var takeBacks = []takeBack{
	{"cancel", "Cancel an instance", "Cancel it", engine.RightCancel},
	{"undo", "Undo the last move", "Undo it", engine.RightUndo},
	{"redo", "Redo the last undone move", "Redo it", engine.RightRedo},
	{"rollback", "Roll back to a checkpoint", "Roll back", engine.RightRollback},
}

// plan is what an operation would do.
type plan struct {
	takeBack

	Now        engine.StatusResult
	To         *engine.StatusResult // what would be restored; nil for a cancel
	Checkpoint engine.CheckpointResult
	Changed    []Change
	// TakenBack and MadeAgain are moves, newest first; Calls were made since and stay made.
	TakenBack, MadeAgain []record.Event
	Calls                []record.Event
	IsPartial            bool   // older moves and calls are not listed
	Problem              string // why it is not possible
}

// PageTitle implements titled.
func (p plan) PageTitle() string { return p.Title }

func takeBackPages() (pages []module.Page) {
	for _, t := range takeBacks {
		pages = append(pages, module.Page{
			Path: "instances/{id}/" + t.Name, Title: t.Title, Place: module.Nowhere, Needs: t.Right,
			Templates: decisionParts + takeBackTemplates, Regions: []string{"plan", "confirm"},
			Load: func(ctx context.Context, v module.Visit) (any, error) {
				return makePlan(ctx, v, t)
			},
			Follow:  followInstance,
			Actions: map[string]func(context.Context, module.Visit) (string, string, error){"confirm": t.perform},
		})
	}
	return pages
}

// makePlan returns what an operation would do now.
func makePlan(ctx context.Context, v module.Visit, t takeBack) (p plan, err error) {
	p.takeBack = t
	if p.Now, err = ask(ctx, v, operation.Status, operation.StatusRequest{ID: v.Path("id")}); err != nil {
		return p, err
	}
	if p.Now.Status == record.Cancelled {
		p.Problem = "It has ended already. A cancelled instance never runs again."
		return p, nil
	}
	target, reaches := int64(0), func(h record.UndoHistory) bool { _, found := h.LastMove(); return found }
	switch t.Name {
	case "cancel":
		if p.Now.Status != record.Running {
			p.Problem = "It has ended already."
		}
		return p, nil
	case "redo":
		reaches = func(h record.UndoHistory) bool { _, found := h.LastUndone(); return found }
	case "rollback":
		made, err := ask(ctx, v, operation.ListCheckpoints, operation.IDRequest{ID: p.Now.ID})
		at := slices.IndexFunc(made.Checkpoints, func(c engine.CheckpointResult) bool { return c.CheckpointID == v.Values.Get("checkpoint") })
		if err == nil && at < 0 {
			err = &engine.Error{Code: engine.CodeUnknownCheckpoint, Message: "There is no such checkpoint.", Hint: "The page of the instance lists its checkpoints."}
		}
		if err != nil {
			return p, err
		}
		p.Checkpoint = made.Checkpoints[at]
		target = p.Checkpoint.Revision
		reaches = func(h record.UndoHistory) bool { return h.FirstRevision() > 0 && h.FirstRevision() <= target }
	}
	events, history, err := readMoves(ctx, v, p.Now, reaches)
	if err != nil {
		return p, err
	}
	if t.Name != "rollback" {
		move, found := history.LastMove()
		target = move.Before
		if t.Name == "redo" {
			move, found = history.LastUndone()
			target = move.Event.Revision
		}
		if !found {
			p.Problem = "There is no move to " + t.Name + ". A migration, a removed beginning or a very long history can be the reason."
			return p, nil
		}
	}
	then, err := ask(ctx, v, operation.Status, operation.StatusRequest{ID: p.Now.ID, When: engine.When{Revision: target}})
	if err != nil {
		return p, err
	}
	p.To, p.Changed = &then, compareJSON(p.Now.Context, then.Context)
	return p, p.compare(events, history, target)
}

// compare lists the moves between the present revision and the restored one, and the calls since.
func (p *plan) compare(events []record.Event, history record.UndoHistory, target int64) error {
	until, err := record.ReadUndoHistory(yieldEvents(events, target))
	if err != nil {
		return err //nolint:wrapcheck // a defect of the record
	}
	here, there := history.MovesBetween(history.FirstRevision()), until.MovesBetween(until.FirstRevision())
	p.TakenBack, p.MadeAgain = subtractMoves(here, there), subtractMoves(there, here)
	p.IsPartial = history.IsIncomplete() || target < history.FirstRevision()
	settled := map[string]record.CallOutcome{}
	for _, e := range slices.Backward(events) {
		switch {
		case e.Kind == record.Settled:
			settled[e.Call.ID] = e.Call.Outcome
		case e.Kind == record.Called && e.Revision >= target && settled[e.Call.ID] != record.CallNotSent:
			p.Calls = append(p.Calls, e)
		}
	}
	return nil
}

// subtractMoves returns the moves of one list that another lacks.
func subtractMoves(moves, others []record.Move) (left []record.Event) {
	for _, m := range moves {
		if !slices.ContainsFunc(others, func(o record.Move) bool { return o.Event.Seq == m.Event.Seq }) {
			left = append(left, m.Event)
		}
	}
	return left
}

// readMoves reads the newest events, as many as are needed until enough reports true. The engine looks back as far.
func readMoves(ctx context.Context, v module.Visit, at engine.StatusResult, enough func(record.UndoHistory) bool) (events []record.Event, history record.UndoHistory, err error) {
	for _, reach := range []int64{200, 2_000, 10_000} {
		events = nil
		for req := (engine.HistoryRequest{ID: at.ID, AfterSeq: max(0, at.Seq-reach), Limit: 1000}); ; {
			page, err := ask(ctx, v, operation.Timeline, req)
			if err != nil {
				return nil, history, err
			}
			for _, e := range page.Events {
				if e.Seq <= at.Seq {
					events = append(events, eventOf(e))
				}
			}
			if req.AfterSeq = page.NextAfter; req.AfterSeq == 0 || req.AfterSeq >= at.Seq {
				break
			}
		}
		if history, err = record.ReadUndoHistory(yieldEvents(events, at.Revision)); err != nil || at.Seq <= reach || enough(history) {
			break
		}
	}
	return events, history, err //nolint:wrapcheck // a defect of the record
}

// eventOf returns the part of an event that undoing needs.
func eventOf(e engine.TimelineEntry) record.Event {
	ev := record.Event{Seq: e.Seq, Revision: e.Revision, Kind: e.Kind, Time: e.Time, Principal: e.Principal, Action: e.Action, From: e.From, To: e.To}
	if e.Restores > 0 {
		ev.Rollback = &record.Rollback{Restores: e.Restores, CheckpointID: e.CheckpointID}
	}
	if e.CallID != "" || e.Tool != "" {
		ev.Call = &record.Call{ID: e.CallID, Gate: e.Tool, Outcome: e.CallOutcome}
	}
	if e.ReviewID != "" {
		ev.Review = &record.Review{ID: e.ReviewID}
	}
	return ev
}

// yieldEvents iterates over the events up to a revision.
func yieldEvents(events []record.Event, revision int64) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for _, e := range events {
			if e.Revision <= revision && !yield(e, nil) {
				return
			}
		}
	}
}

// perform does what the page has shown: if the instance has changed since, the engine answers with a conflict.
func (t takeBack) perform(ctx context.Context, v module.Visit) (next, message string, err error) {
	id, key, seen := v.Path("id"), formKey(v, t.Name+" "+v.Path("id")), readNumber(v, "revision")
	var done engine.MovedResult
	switch t.Name {
	case "cancel":
		done, err = ask(ctx, v, operation.Cancel, engine.CancelRequest{ID: id, Reason: strings.TrimSpace(v.Values.Get("reason")), Key: key, ExpectedRevision: &seen})
	case "undo":
		done, err = ask(ctx, v, operation.Undo, engine.UndoRequest{ID: id, Key: key, ExpectedRevision: &seen})
	case "redo":
		done, err = ask(ctx, v, operation.Redo, engine.UndoRequest{ID: id, Key: key, ExpectedRevision: &seen})
	case "rollback":
		done, err = ask(ctx, v, operation.Rollback, engine.RollbackRequest{ID: id, CheckpointID: v.Values.Get("checkpoint"), Key: key, ExpectedRevision: &seen})
	}
	return "instances/" + url.PathEscape(id), done.Message, err
}
