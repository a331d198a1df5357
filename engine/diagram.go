package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// DiagramRequest draws a definition, or an instance's definition with its current state and path marked.
type DiagramRequest struct {
	Name string // a workflow type, or
	ID   string // an instance
	// Version is a version of the workflow Name; 0 is the newest.
	Version int
	// Format is "mermaid" (default), "dot", "svg", or "text" for a few lines about the present state.
	Format string
	// Since, if not zero, marks the transitions of the workflow Name with the decisions that were made from this time
	// on and that the caller may see. Only svg shows them.
	Since time.Time
}

// DiagramResult answers a DiagramRequest.
type DiagramResult struct {
	Name    string `json:"name"`
	Format  string `json:"format"`
	Diagram string `json:"diagram"`
	// Partial reports that marks are missing: the instance's path and refusals are those of its newest events, or
	// decisions about further transitions were not counted.
	Partial bool `json:"partial,omitempty"`
}

// markedEvents are the numbers of newest events of an instance that a drawing reads: fewer if they are large.
var markedEvents = []int64{1000, 100, 10}

// Diagram draws a definition, or an instance's definition with its state and path marked.
func (e *Engine) Diagram(ctx context.Context, p Principal, req DiagramRequest) (DiagramResult, error) {
	if err := Authorize(p, RightRead); err != nil {
		return DiagramResult{}, err
	}
	if (req.Name == "") == (req.ID == "") {
		return DiagramResult{}, &Error{Code: CodeInvalidArgument, Message: "Give either name or id.", Hint: "name draws a workflow, id an instance with its path."}
	}
	if req.ID != "" && (req.Version != 0 || !req.Since.IsZero()) {
		return DiagramResult{}, &Error{Code: CodeInvalidArgument, Message: "version and since belong to name, not to id.", Hint: "An instance is drawn in its own version, with its own path."}
	}
	var marks workflow.Marks
	var l definition
	var err error
	out := DiagramResult{Format: req.Format}
	if req.ID != "" {
		l, marks, out.Partial, err = e.markInstance(ctx, p, req)
	} else if l, err = e.loadNamed(ctx, p, req.Name, req.Version); err == nil && !req.Since.IsZero() {
		marks.Traffic, out.Partial, err = e.countTraffic(ctx, p, req)
	}
	if err != nil {
		return DiagramResult{}, err
	}
	out.Name = l.stored.Name
	var b strings.Builder
	switch req.Format {
	case "", "mermaid":
		out.Format = "mermaid"
		err = l.def.WriteMermaid(&b, marks)
	case "dot":
		err = l.def.WriteDOT(&b, marks)
	case "svg":
		err = l.def.WriteSVG(&b, marks)
	case "text":
		err = l.def.WriteText(&b, marks)
	default:
		return DiagramResult{}, &Error{Code: CodeInvalidArgument, Path: "/format", Message: fmt.Sprintf("There is no diagram format %q.", req.Format), Hint: "Formats: mermaid, dot, svg, text."}
	}
	if err != nil {
		return DiagramResult{}, InternalError("draw the diagram", err)
	}
	out.Diagram = b.String()
	return out, nil
}

// countTraffic counts the decisions about a workflow by transition.
func (e *Engine) countTraffic(ctx context.Context, p Principal, req DiagramRequest) ([]workflow.Traffic, bool, error) {
	counted, err := e.Statistics(ctx, p, StatisticsRequest{Workflow: req.Name, Since: req.Since})
	if err != nil {
		return nil, false, err
	}
	var out []workflow.Traffic
	for _, t := range counted.Transitions {
		out = append(out, workflow.Traffic{State: t.State, Action: t.Action, Asked: t.Decisions, Refused: t.Rejected})
	}
	return out, counted.NotShown > 0, nil
}

// markInstance returns the definition of an instance, and its marks. Path and refusals are read only for the formats
// that show them.
func (e *Engine) markInstance(ctx context.Context, p Principal, req DiagramRequest) (definition, workflow.Marks, bool, error) {
	inst, err := e.loadInstance(ctx, p, req.ID)
	if err != nil {
		return definition{}, workflow.Marks{}, false, err
	}
	marks := workflow.Marks{Current: inst.State, Visited: inst.Facts.Visited}
	if req.Format != "svg" && req.Format != "text" {
		return inst.definition, marks, false, nil
	}
	marks.Next = inst.positionWithoutActions().NextActions
	ctx, read, err := e.BeginBulkRead(ctx, p)
	if err != nil {
		return definition{}, marks, false, err
	}
	defer read.End()
	var line record.UndoHistory
	var refused map[workflow.Move]int
	partial := false
	for _, reach := range markedEvents {
		read.bytes = 0
		refused = map[workflow.Move]int{}
		full, after := false, max(0, inst.Seq-reach)
		events := e.cfg.Store.Events(ctx, store.EventQuery{Instance: inst.ID, AfterSeq: after, MaxRevision: inst.Revision})
		line, err = record.ReadUndoHistory(withYieldUntil(ctx, read, events, func(ev record.Event) bool {
			if d := ev.Decision; d != nil && d.Outcome == judge.Reject && ev.Kind != record.Prechecked {
				refused[workflow.Move{From: ev.From, Action: ev.Action}]++
			}
			read.add(len(ev.Body()))
			full = read.isFull()
			return !full
		}))
		if err != nil {
			return definition{}, marks, false, err
		}
		if partial = full || after > 0; !full {
			break
		}
	}
	moves := line.MovesBetween(0)
	for _, m := range slices.Backward(moves) {
		marks.Path = append(marks.Path, workflow.Move{From: m.Event.From, Action: m.Event.Action, To: m.Event.To})
	}
	for _, state := range inst.def.StateNames {
		for _, action := range inst.def.States[state].Actions {
			if n := refused[workflow.Move{From: state, Action: action}]; n > 0 {
				marks.Refusals = append(marks.Refusals, workflow.Refusals{State: state, Action: action, Count: n})
			}
		}
	}
	return inst.definition, marks, partial, nil
}

// withYieldUntil iterates over the events of one instance, with yields to other work, while more returns true.
func withYieldUntil(ctx context.Context, read *BulkRead, events iter.Seq2[record.Event, error], more func(record.Event) bool) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for ev, err := range withYield(ctx, read, "read the history", events) {
			if !yield(ev, err) || err != nil || !more(ev) {
				return
			}
		}
	}
}
