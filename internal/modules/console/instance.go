package console

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

//go:embed assets/instance.html
var instanceTemplates string

// Limits of the pages of instances.
const (
	listedInstances  = 50
	timelineLength   = 50
	shownCheckpoints = 20
)

// instancesData is what the list of instances shows.
type instancesData struct {
	Filter   engine.InstancesRequest
	Found    engine.InstancesResult
	Statuses []record.Status
	// Newest and More are the addresses of the first and the next page.
	Newest, More string
}

func instancesPage() module.Page {
	return module.Page{
		Path: "instances", Title: "Instances", Place: module.InMenu, Order: 30, Needs: engine.RightRead,
		Templates: instanceTemplates, Regions: []string{"filter", "instances"},
		Load:   func(ctx context.Context, v module.Visit) (any, error) { return loadInstances(ctx, v) },
		Follow: func(v module.Visit) engine.TailRequest { return engine.TailRequest{Workflow: v.Values.Get("workflow")} },
	}
}

func loadInstances(ctx context.Context, v module.Visit) (d instancesData, err error) {
	d.Statuses = []record.Status{record.Running, record.Complete, record.Cancelled}
	d.Filter = engine.InstancesRequest{
		Workflow: v.Values.Get("workflow"), State: v.Values.Get("state"), Status: record.Status(v.Values.Get("status")),
		Cursor: v.Values.Get("cursor"), Limit: listedInstances,
	}
	d.Found, err = ask(ctx, v, operation.Instances, d.Filter)
	q := url.Values{}
	for _, name := range []string{"workflow", "state", "status"} {
		if value := v.Values.Get(name); value != "" {
			q.Set(name, value)
		}
	}
	d.Newest = base + "instances?" + q.Encode()
	if d.Found.NextCursor != "" {
		q.Set("cursor", d.Found.NextCursor)
		d.More = base + "instances?" + q.Encode()
	}
	return d, err
}

// instanceData is what the page of an instance shows.
type instanceData struct {
	engine.StatusResult

	Diagram template.HTML // "" if there is none
	Partial bool          // the diagram lacks older marks
	Timeline
	snapshot

	// CanUndo and CanRedo report that the page leads to these operations.
	CanUndo, CanRedo bool
	Checkpoints      []engine.CheckpointResult
	MoreCheckpoints  int
	Bars             []bar
}

// PageTitle implements titled.
func (d instanceData) PageTitle() string { return d.Workflow + " " + shortenID(d.ID) }

func instancePage() module.Page {
	return module.Page{
		Path: "instances/{id}", Title: "Instance", Place: module.Nowhere, Needs: engine.RightRead,
		Templates: decisionParts + instanceTemplates, Regions: []string{"instance", "diagram", "timeline", "side"},
		Load:   func(ctx context.Context, v module.Visit) (any, error) { return loadInstance(ctx, v) },
		Follow: followInstance,
		Files: map[string]func(context.Context, module.Visit) (module.File, error){
			"context.json": func(ctx context.Context, v module.Visit) (module.File, error) {
				revision := readNumber(v, "revision")
				s, err := ask(ctx, v, operation.Status, operation.StatusRequest{ID: v.Path("id"), When: engine.When{Revision: revision}})
				return jsonFile(fmt.Sprintf("%s-context-%d.json", s.ID, s.Revision), s.Context), err
			},
			"timeline.json": func(ctx context.Context, v module.Visit) (module.File, error) {
				s, err := ask(ctx, v, operation.Status, operation.StatusRequest{ID: v.Path("id")})
				if err != nil {
					return module.File{}, err
				}
				t, err := readTimeline(ctx, v, s.ID, readNumber(v, "before"), s.Seq)
				return documentFile(s.ID+"-timeline.json", t.Entries), err
			},
		},
	}
}

func followInstance(v module.Visit) engine.TailRequest {
	return engine.TailRequest{Instance: v.Path("id")}
}

func loadInstance(ctx context.Context, v module.Visit) (d instanceData, err error) {
	id := v.Path("id")
	if d.StatusResult, err = ask(ctx, v, operation.Status, operation.StatusRequest{ID: id}); err != nil {
		return d, err
	}
	if drawn, err := ask(ctx, v, operation.Diagram, engine.DiagramRequest{ID: id, Format: "svg"}); err == nil {
		d.Diagram, d.Partial = template.HTML(drawn.Diagram), drawn.Partial //nolint:gosec // our own drawing, which escapes its labels
	}
	if d.Timeline, err = readTimeline(ctx, v, id, readNumber(v, "before"), d.Seq); err != nil {
		return d, err
	}
	d.Bars = drawBars(d.Entries)
	if d.snapshot, err = readSnapshot(ctx, v, d.StatusResult, readNumber(v, "revision")); err != nil {
		return d, err
	}
	made, err := ask(ctx, v, operation.ListCheckpoints, operation.IDRequest{ID: id})
	d.Checkpoints = made.Checkpoints[:min(len(made.Checkpoints), shownCheckpoints)]
	d.MoreCheckpoints = len(made.Checkpoints) - len(d.Checkpoints)
	if err == nil && d.Status != record.Cancelled && engine.Authorize(v.Call.Caller.Principal, engine.RightUndo) == nil {
		err = d.findTakeBacks(ctx, v)
	}
	return d, err
}

// findTakeBacks finds out whether a move can be undone or made again. The newest events that have either decide it.
func (d *instanceData) findTakeBacks(ctx context.Context, v module.Visit) error {
	_, history, err := readMoves(ctx, v, d.StatusResult, func(h record.UndoHistory) bool {
		_, isDone := h.LastMove()
		_, isUndone := h.LastUndone()
		return isDone || isUndone
	})
	_, d.CanUndo = history.LastMove()
	_, d.CanRedo = history.LastUndone()
	return err
}

// Timeline is a page of an instance's events, newest first.
type Timeline struct {
	Entries []entry
	// Older and Newer are the seq before which the neighbouring pages begin; 0 if there is none.
	Older, Newer int64
	// Kept counts the events of the whole history that were not removed.
	Kept int64
	// Removed reports that the page begins where the history was removed.
	Removed bool
}

// entry is an event, with its decision if it has one.
type entry struct {
	engine.TimelineEntry

	Verdict *engine.HistoryEntry `json:"decision,omitempty"`
}

// readTimeline returns the events before a seq, or the newest ones if it is 0; last is the seq of the newest one.
func readTimeline(ctx context.Context, v module.Visit, id string, before, last int64) (t Timeline, err error) {
	newest := last
	if before > 0 {
		newest = min(before-1, last)
	}
	begin, err := ask(ctx, v, operation.Timeline, engine.HistoryRequest{ID: id, Limit: 1})
	if err != nil {
		return t, err
	}
	first := last + 1 // of the kept events
	if len(begin.Events) > 0 {
		first = begin.Events[0].Seq
	}
	oldest := max(first, newest-timelineLength+1)
	decided := map[int64]*engine.HistoryEntry{}
	for req := (engine.HistoryRequest{ID: id, AfterSeq: oldest - 1, Limit: timelineLength}); ; {
		page, err := ask(ctx, v, operation.Timeline, req)
		if err != nil {
			return t, err
		}
		for _, e := range page.Events {
			if e.Seq <= newest {
				t.Entries = append(t.Entries, entry{TimelineEntry: e})
			}
		}
		if req.AfterSeq = page.NextAfter; req.AfterSeq == 0 || req.AfterSeq >= newest {
			break
		}
	}
	for req := (engine.HistoryRequest{ID: id, AfterSeq: oldest - 1, Limit: timelineLength}); ; {
		page, err := ask(ctx, v, operation.History, req)
		if err != nil {
			return t, err
		}
		for _, d := range page.Decisions {
			decided[d.Seq] = &d
		}
		if req.AfterSeq = page.NextAfter; req.AfterSeq == 0 || req.AfterSeq >= newest {
			break
		}
	}
	slices.Reverse(t.Entries)
	for i := range t.Entries {
		t.Entries[i].Verdict = decided[t.Entries[i].Seq]
	}
	t.Kept = max(0, last-first+1)
	if oldest > first {
		t.Older = oldest
	}
	t.Removed = t.Older == 0 && first > 1
	if newest < last {
		t.Newer = newest + timelineLength + 1
	}
	return t, nil
}

// Word says what happened, Class how it is shown.
func (e entry) Word() string  { return cmp.Or(eventWords[e.Kind][1], string(e.Kind)) }
func (e entry) Class() string { return eventWords[e.Kind][0] }

// Text is what was said about it.
func (e entry) Text() string {
	if e.Verdict != nil && e.Kind != record.Reviewed {
		return operation.DescribeRefusal(e.Verdict.Decision)
	}
	return e.Reason
}

// eventWords are the class and the words of each kind of event.
var eventWords = map[record.Kind][2]string{
	record.Started: {"accent", "started"}, record.Advanced: {"yes", "moved"}, record.Refused: {"no", "refused"},
	record.Prechecked: {"", "asked beforehand"}, record.Escalated: {"wait", "sent to a person"}, record.Reviewed: {"accent", "review ended"},
	record.Checkpointed: {"", "checkpoint"}, record.RolledBack: {"wait", "rolled back"}, record.KindCancelled: {"no", "cancelled"},
	record.Undone: {"wait", "undone"}, record.Redone: {"yes", "made again"}, record.Migrated: {"", "migrated"}, record.Imported: {"", "imported"},
	record.Reconciled: {"", "reconciled"}, record.Called: {"accent", "call begun"}, record.Settled: {"", "call ended"},
	record.Heard: {"", "the user said"}, record.Released: {"", "subject released"}, record.Truncated: {"wait", "history removed"},
}

// bar is a call, a hook's use of a tool or a step of a run, as a part of the time that the page covers.
type bar struct {
	Seq        int64
	Tool       string
	Class      string // of its outcome
	Outcome    string
	At         time.Time
	Took       document.Milliseconds
	Start, End float64 // in percent
}

// Width is at least what can be seen.
func (b bar) Width() float64 { return max(b.End-b.Start, 1) }

// drawBars returns the calls that begin in a page of the timeline, oldest first.
func drawBars(newestFirst []entry) (bars []bar) {
	at := map[string]int{}
	for _, e := range slices.Backward(newestFirst) {
		i, begun := at[e.CallID]
		switch {
		case e.Kind == record.Called && !begun:
			at[e.CallID] = len(bars)
			bars = append(bars, bar{Seq: e.Seq, Tool: e.Tool, Class: "wait", Outcome: "open", At: e.Time, Took: document.Milliseconds(now().Sub(e.Time))})
		case e.Kind == record.Settled && begun:
			b := &bars[i]
			b.Took, b.Outcome, b.Class = document.Milliseconds(e.Time.Sub(b.At)), string(e.CallOutcome), "no"
			switch e.CallOutcome {
			case engine.CallOK:
				b.Class = "yes"
			case engine.CallUnknown:
				b.Class = "wait"
			case engine.CallError, engine.CallNotSent:
			}
		}
	}
	if len(bars) == 0 {
		return nil
	}
	first, last := bars[0].At, bars[0].At
	for _, b := range bars {
		if end := b.At.Add(b.Took.Duration()); end.After(last) {
			last = end
		}
	}
	whole := max(float64(last.Sub(first)), 1)
	for i := range bars {
		b := &bars[i]
		b.Start = min(99, 100*float64(b.At.Sub(first))/whole)
		b.End = 100 * float64(b.At.Add(b.Took.Duration()).Sub(first)) / whole
	}
	return bars
}

// snapshot is the context of an instance at one revision.
type snapshot struct {
	// At is the revision shown; Earlier and Later are its neighbours, 0 for none.
	At, Earlier, Later int64
	Then               engine.StatusResult
	// Changed is what the revision changed. HasBefore reports that the revision before it is known.
	Changed   []Change
	HasBefore bool
	Problem   string // why the revision cannot be shown
}

// readSnapshot reads a revision, or the present one if it is 0.
func readSnapshot(ctx context.Context, v module.Visit, present engine.StatusResult, revision int64) (s snapshot, err error) {
	s.At, s.Then = cmp.Or(revision, present.Revision), present
	if s.At != present.Revision {
		s.Then, err = ask(ctx, v, operation.Status, operation.StatusRequest{ID: present.ID, When: engine.When{Revision: s.At}})
		if code := engine.CodeOf(err); code == engine.CodeUnknownRevision || code == engine.CodeInvalidArgument {
			explained, _ := operation.Explain(err)
			s.Problem, s.At = explained.Message+" "+explained.Hint, min(max(s.At, 1), present.Revision)
			return s, nil
		}
		if err != nil {
			return s, err
		}
	}
	if s.At < present.Revision {
		s.Later = s.At + 1
	}
	if s.At <= 1 {
		return s, nil
	}
	s.Earlier = s.At - 1
	before, err := ask(ctx, v, operation.Status, operation.StatusRequest{ID: present.ID, When: engine.When{Revision: s.Earlier}})
	if engine.CodeOf(err) == engine.CodeUnknownRevision {
		s.Earlier = 0
		return s, nil
	}
	s.Changed, s.HasBefore = compareJSON(before.Context, s.Then.Context), err == nil
	return s, err
}

// readNumber returns a number of the address or form; 0 if it has none.
func readNumber(v module.Visit, name string) int64 {
	n, err := strconv.ParseInt(v.Values.Get(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// jsonFile is a download of a document.
func jsonFile(name string, raw json.RawMessage) module.File {
	return module.File{Name: name, Type: "application/json", Content: []byte(indentJSON(raw))}
}

// documentFile is a download of an answer.
func documentFile(name string, answer any) module.File {
	raw, err := json.Marshal(answer)
	if err != nil {
		raw = []byte("null") // no answer of an operation fails
	}
	return jsonFile(name, raw)
}
