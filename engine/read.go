package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// Status returns the position and context of an instance.
func (e *Engine) Status(ctx context.Context, p Principal, id string) (StatusResult, error) {
	return e.StatusAt(ctx, p, id, When{})
}

func (e *Engine) currentStatus(ctx context.Context, inst instance) (StatusResult, error) {
	doc, err := inst.visibleContext()
	if err != nil {
		return StatusResult{}, err
	}
	reviews, err := e.newView(inst.by).withInstance(inst).renderReviews(ctx, inst.Instance)
	if err == nil {
		reviews, err = e.appendRejections(ctx, inst, reviews)
	}
	if err != nil {
		return StatusResult{}, err
	}
	pos := inst.position()
	for i := range pos.Next {
		pos.Next[i].Description = inst.def.ActionDescription(pos.State, pos.Next[i].Action)
	}
	return StatusResult{
		Position: pos, Context: doc, Owner: inst.Owner, Visited: append([]string{}, inst.Facts.Visited...),
		CreatedAt: inst.CreatedAt, UpdatedAt: inst.UpdatedAt, Warnings: warnMissingModels(e.cfg.Models, inst.def, inst.overlays),
		Reviews: reviews, Calls: summarizeCalls(inst.Instance),
	}, nil
}

func warnMissingModels(models []string, d *workflow.Definition, overlays []workflow.Overlay) []string {
	const then = "onJudgeUnavailable decides the moves that need it."
	asked := d.RequiredModels(overlays)
	if len(asked) > 0 && len(models) == 0 {
		return []string{"This workflow needs a model, but none is configured: " + then}
	}
	var out []string
	for _, name := range asked {
		if name != "" && !slices.Contains(models, name) {
			out = append(out, fmt.Sprintf("This workflow needs the model %.80q, which is not configured: %s", name, then))
		}
	}
	return out
}

// CanExecute reports whether an instance is in one of the given states and not cancelled, and whether the
// caller may request an action there. Use it before calling a tool that belongs to those states. It judges
// nothing.
func (e *Engine) CanExecute(ctx context.Context, p Principal, req CanExecuteRequest) (CanExecuteResult, error) {
	inst, err := e.loadForRead(ctx, p, req.ID)
	if err != nil {
		return CanExecuteResult{}, err
	}
	if len(req.States) == 0 && req.Action == "" {
		return CanExecuteResult{}, MissingField("states", "One or more states of the workflow, or give an action.")
	}
	for i, s := range req.States {
		if _, ok := inst.def.States[s]; !ok {
			return CanExecuteResult{}, unknownState(fmt.Sprintf("/states/%d", i), s, inst.def)
		}
	}
	out := CanExecuteResult{Position: inst.position(), Required: req.States}
	var illegal []validators.Finding
	if req.Action != "" {
		var states []string
		illegal, states = inst.def.CheckLegality(workflow.CaseInput{
			State: inst.State, Action: req.Action, Ended: describeEnd(inst.Instance), Facts: inst.Facts, Principal: p.ID, Role: string(p.Role),
		})
		if len(req.States) == 0 {
			out.Required = append([]string{}, states...)
		}
	}
	switch {
	case inst.Status == record.Cancelled:
		out.Reason = "The instance was cancelled."
	case inst.takenOver:
		out.Reason = fmt.Sprintf("The instance has version %d of %q, an agent's version of a name that an operator now owns.", inst.Version, inst.Workflow)
	case len(req.States) > 0 && !slices.Contains(req.States, inst.State):
		out.Reason = fmt.Sprintf("The instance is in %q; this needs %s.", inst.State, strings.Join(req.States, " or "))
	case len(illegal) > 0:
		out.Reason = strings.TrimSpace(illegal[0].Message + " " + illegal[0].Hint)
	case req.Action != "":
		out.Allowed, out.Reason = true, fmt.Sprintf("The instance is in %q and allows %q.", inst.State, req.Action)
	default:
		out.Allowed, out.Reason = true, fmt.Sprintf("The instance is in %q.", inst.State)
	}
	return out, nil
}

func unknownState(path, name string, d *workflow.Definition) error {
	return newError(CodeInvalidArgument, path, "The workflow %q has no state %q%s", d.Name, name, suggestNearest(name, d.StateNames)).
		withHint("Its states: " + strings.Join(d.StateNames, ", ") + ".")
}

// decisionKinds are the kinds of events that carry a decision.
var decisionKinds = []record.Kind{record.Started, record.Advanced, record.Refused, record.Prechecked, record.Escalated, record.Reviewed}

// Page sizes of History and Instances.
const (
	defaultHistoryPage   = 100
	maxHistoryPage       = 1000
	defaultInstancesPage = 50
	maxInstancesPage     = 500
)

// History returns the decisions of an instance, oldest first, with pre-checks flagged. For all callers,
// values that either the version at that time or the present version marks as sensitive are masked in data
// and removed from texts.
func (e *Engine) History(ctx context.Context, p Principal, req HistoryRequest) (HistoryResult, error) {
	past, err := showPast(ctx, e, p, req, decisionKinds, func(ctx context.Context, show *view, ev record.Event) (HistoryEntry, error) {
		return show.renderEntry(ctx, ev)
	})
	if err != nil {
		return HistoryResult{}, err
	}
	return HistoryResult{Instance: req.ID, Decisions: past.shown, Count: len(past.shown), Total: past.total, NextAfter: past.next}, nil
}

// ReadWholeHistory returns everything that History returns page by page, for callers who know that it is
// short. On a busy machine pages end early, however few decisions there are.
func ReadWholeHistory(ctx context.Context, e *Engine, p Principal, id string) (all []HistoryEntry, _ error) {
	for req := (HistoryRequest{ID: id, Limit: maxHistoryPage}); ; {
		page, err := e.History(ctx, p, req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Decisions...)
		if req.AfterSeq = page.NextAfter; req.AfterSeq == 0 {
			return all, nil
		}
	}
}

// pastPage is a page of an instance's past.
type pastPage[V any] struct {
	shown []V
	total *int  // of all pages; nil if it was not counted
	next  int64 // seq after which the next page begins, 0 at the end
}

// showPast returns a page of an instance's past: of all events, or of those with decisions if kinds are
// given.
func showPast[V any](ctx context.Context, e *Engine, p Principal, req HistoryRequest, kinds []record.Kind,
	render func(context.Context, *view, record.Event) (V, error),
) (out pastPage[V], _ error) {
	inst, err := e.loadForRead(ctx, p, req.ID)
	if err != nil {
		return out, err
	}
	limit, err := pageSize(req.Limit, defaultHistoryPage, maxHistoryPage)
	if err != nil {
		return out, err
	}
	ctx, read, err := e.BeginBulkRead(ctx, p)
	if err != nil {
		return out, err
	}
	defer read.End()
	until, err := e.foldPast(ctx, inst.Instance, req.Until)
	if err != nil {
		return out, err
	}
	past := func(after int64) iter.Seq2[store.PlacedEvent, error] {
		return func(yield func(store.PlacedEvent, error) bool) {
			q := store.EventQuery{Instance: inst.ID, AfterSeq: after, Kinds: kinds, MaxRevision: until.Revision}
			if kinds == nil {
				q.Limit = limit + 1
			}
			for ev, err := range e.cfg.Store.Events(ctx, q) {
				if err == nil && kinds != nil && ev.Decision == nil {
					continue // a review that ended without a decision
				}
				if err == nil && ev.Seq > until.Seq || !yield(store.PlacedEvent{Event: ev}, err) {
					return
				}
			}
		}
	}
	page, more, err := read.collectEvents(ctx, "read the history", past(req.AfterSeq), limit)
	if err != nil {
		return out, err
	}
	show := e.newView(p).withInstance(inst)
	out.shown, err = showEvents(ctx, read, page, func(ev store.PlacedEvent) (V, error) { return render(ctx, show, ev.Event) })
	if err != nil {
		return out, err
	}
	if n := len(out.shown); more || n < len(page) {
		out.next = page[n-1].Event.Seq
	}
	if !more && req.AfterSeq == 0 {
		n := len(page)
		out.total = &n
	} else if kinds != nil {
		out.total, err = read.countEvents(ctx, "read the history", past(0))
	}
	return out, err
}

// opinionsFor returns the opinions of a decision as the caller may see them. Only roles that see all instances
// learn how a model is configured. Criteria and samples are hidden from principals judged by another
// principal's definition: a caller that knows the rubric can write data to please it. Visible fields are
// listed, so that a new field stays hidden until it is added here.
func opinionsFor(p Principal, s store.Definition, opinions []judge.Opinion) []judge.Opinion {
	if opinions == nil {
		return nil
	}
	out := slices.Clone(opinions)
	for i, op := range opinions {
		if op.Model == nil || seesAll(p.Role) {
			continue
		}
		a := op.Model
		shown := judge.ModelRecord{
			Model: a.Model, PromptID: a.PromptID, PromptDigest: a.PromptDigest, Lenient: a.Lenient, Failure: a.Failure,
			Calls: a.Calls, Reasked: a.Reasked, CacheHit: a.CacheHit, Shared: a.Shared, Reused: a.Reused, Refusals: a.Refusals,
		}
		if canGovern(p, s) {
			shown.Criteria, shown.CriteriaDigest, shown.Stated = a.Criteria, a.CriteriaDigest, a.Stated
			shown.Calibration, shown.Uncalibrated = a.Calibration, a.Uncalibrated
			shown.Samples, shown.Agreeing = a.Samples, a.Agreeing
		}
		out[i].Model = &shown
	}
	return out
}

// Instances lists the instances that the caller may see, newest first.
func (e *Engine) Instances(ctx context.Context, p Principal, req InstancesRequest) (InstancesResult, error) {
	ctx, read, err := e.beginList(ctx, p, req.Limit, defaultInstancesPage, maxInstancesPage)
	if err != nil {
		return InstancesResult{}, err
	}
	defer read.End()
	switch req.Status {
	case "", record.Running, record.Complete, record.Cancelled:
	default:
		return InstancesResult{}, &Error{Code: CodeInvalidArgument, Path: "/status", Message: fmt.Sprintf("There is no status %q.", req.Status), Hint: "Statuses: running, complete, cancelled."}
	}
	q := store.InstanceQuery{State: req.State, Status: req.Status, BeforeID: req.Cursor, Limit: read.limit + 1}
	if p.Workflows != "" {
		q.Limit = 0 // the store returns instances out of scope, which are skipped below
	}
	out := InstancesResult{Instances: []InstanceSummary{}}
	versions := map[definitionKey]definition{}
	looked := ""
	list := func(of listPart) iter.Seq2[record.Instance, error] {
		q := q
		q.Workflow, q.Owner = of.workflow, of.owner
		return e.cfg.Store.Instances(ctx, q)
	}
	for inst, err := range withYield(ctx, read.BulkRead, "list the instances", mergeParts(read.sight.listParts(req.Workflow, ""), list, newestFirst)) {
		if err != nil {
			return InstancesResult{}, err
		}
		if len(out.Instances) == read.limit || looked != "" && read.isFull() {
			out.NextCursor = looked
			break
		}
		looked = inst.ID
		read.add(len(inst.Context))
		if !p.InScope(inst.Workflow) {
			continue
		}
		l, known := versions[definitionKey{inst.Workflow, inst.Version}]
		if !known {
			if l, err = e.loadPinned(ctx, inst); err != nil {
				return InstancesResult{}, err
			}
			versions[definitionKey{inst.Workflow, inst.Version}] = l
		}
		out.Instances = append(out.Instances, InstanceSummary{
			Position: instance{Instance: inst, definition: l, by: p}.positionWithoutActions(), Owner: inst.Owner, CreatedAt: inst.CreatedAt, UpdatedAt: inst.UpdatedAt,
		})
	}
	out.Count = len(out.Instances)
	return out, nil
}

func pageSize(asked, usual, most int) (int, error) {
	switch {
	case asked < 0:
		return 0, &Error{Code: CodeInvalidArgument, Path: "/limit", Message: "The limit is 1 or more.", Hint: "Leave it out for the default."}
	case asked == 0:
		return usual, nil
	case asked > most:
		return 0, &Error{Code: CodeInvalidArgument, Path: "/limit", Message: fmt.Sprintf("The limit is at most %d.", most), Hint: "Read page by page."}
	}
	return asked, nil
}
