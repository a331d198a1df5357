package portable

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// draft is the history of one instance while its events are made. It holds only the last context,
// because a log of a megabyte can lead through gigabytes of contexts.
type draft struct {
	im *importer
	in Instance
	version
	events         []record.Event
	inst           record.Instance       // the fold of events
	time           time.Time             // of the last event
	bytes          int                   // of patches
	checkpoints    map[string]Checkpoint // by id
	pending        []Checkpoint          // checkpoints that were not reached yet, in order
	recorded       int                   // number of checkpoints that have an event
	notes          []string
	hasDifferences bool
}

const maxNotes = 40

func (d *draft) fillReport(out *InstanceReport) {
	out.Workflow, out.Version, out.Events, out.Checkpoints, out.Notes, out.Status = d.stored.Name, d.stored.Version, len(d.events), d.recorded, d.notes, Imported
	if d.hasDifferences {
		out.Status = Differs
	}
	if more := len(d.notes) - maxNotes; more > 0 {
		out.Notes = append(d.notes[:maxNotes], fmt.Sprintf("and %d more", more))
	}
}

func (d *draft) addNote(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// addDifference adds a note about something that cannot be imported unchanged.
func (d *draft) addDifference(format string, args ...any) {
	d.hasDifferences = true
	d.addNote(format, args...)
}

func (d *draft) addHistory(ctx context.Context) error {
	if d.in.Torn {
		d.addNote("%s ends in an incomplete line, which was skipped", d.in.Log)
	}
	d.sortCheckpoints()
	d.time = d.im.at
	back := -1 // the last rollback or undo: visits before it do not count
	for i, line := range d.in.Lines {
		if line.Action == "rollback" || line.Kind == record.RolledBack || line.Kind == record.Undone {
			back = i
		}
		if !line.Time.IsZero() && line.Time.Before(d.time) {
			d.time = line.Time
		}
	}
	if created := d.in.CreatedAt; !created.IsZero() && created.Before(d.time) {
		d.time = created
	}
	if len(d.in.Lines) == 0 || d.in.Lines[0].From != "" {
		if err := d.addStart(back < 0); err != nil {
			return err
		}
	}
	for i, line := range d.in.Lines {
		if err := ctx.Err(); err != nil {
			return engine.StoreError("read the history", err)
		}
		if err := d.addCheckpoints(&line); err != nil {
			return err
		}
		if err := d.addLine(line, i >= back); err != nil {
			return err
		}
	}
	if err := d.addCheckpoints(&Line{Time: d.in.UpdatedAt}); err != nil {
		return err
	}
	if err := d.reconcile(); err != nil {
		return err
	}
	d.noteCalls()
	if !d.im.req.Counts && d.inst.Status == record.Running && len(d.def.MustPassThrough) > 0 {
		d.addNote("the definition has states that must be passed through, and imported visits do not count (--counts)")
	}
	return d.addCheckpoints(nil)
}

// noteCalls adds notes about the calls in a gavel export. Unsettled calls are not awaited after the import, and
// earlier calls of a gate are not counted.
func (d *draft) noteCalls() {
	var gates, unsettled []string
	gateOf := map[string]string{}
	for _, line := range d.in.Lines {
		c := line.Call
		if c == nil || line.Kind != record.Called && line.Kind != record.Settled {
			continue
		}
		if gateOf[c.ID] = c.Gate; !slices.Contains(gates, c.Gate) {
			gates = append(gates, c.Gate)
		}
		unsettled = slices.DeleteFunc(unsettled, func(open string) bool { return open == c.ID })
		if line.Kind == record.Called || c.Outcome == record.CallUnknown {
			unsettled = append(unsettled, c.ID)
		}
	}
	for _, id := range unsettled {
		d.addNote("the call %.80q of %.80q was not settled, and this store does not track it: find out whether it happened before calling the tool again", id, gateOf[id])
	}
	if len(gates) > 0 {
		d.addNote("calls made before the import do not count toward maxCalls (%.200q)", strings.Join(gates, ", "))
	}
}

// addStart adds an event for a start that is missing from the log. Fields that no line sets must have
// been in the context from the start.
func (d *draft) addStart(counts bool) error {
	state, cancelled, context := d.in.State, d.in.Cancelled, membersOf(d.in.Context)
	for i, line := range d.in.Lines {
		if i == 0 {
			state, cancelled = line.From, false
		}
		for name := range document.ReadTrusted(line.Data).Members() {
			delete(context, name.Text())
		}
	}
	if len(d.in.Lines) == 0 {
		d.addNote("no history, only the present state")
	} else if len(context) > 0 {
		d.addNote("the log has no start: the start context holds the fields that no line sets (%s)", nameMembers(context))
	}
	ev := record.Event{Kind: record.Imported, To: state, Status: d.statusIn(state, cancelled), Patch: encodeObject(context)}
	return d.addEvent(ev, source{at: d.in.File, hash: d.in.Hash, counts: counts})
}

func (d *draft) addLine(line Line, counts bool) error {
	from := source{
		at: fmt.Sprintf("%s:%d", d.in.Log, line.Number), line: line.Number, hash: line.Hash, time: line.Time, counts: counts, kind: line.Kind, call: line.Call,
	}
	if line.To == "" {
		return fmt.Errorf("%s: the resulting state is missing", from.at)
	}
	ev := record.Event{Kind: record.Imported, Action: line.Action, To: line.To, Status: d.statusIn(line.To, line.Cancelled), Patch: line.Data}
	if line.From != "" && line.From != d.inst.State && d.inst.Seq > 0 {
		d.addDifference("%s: it starts from %q, but the previous line led to %q", from.at, line.From, d.inst.State)
	}
	context := line.Context
	if cp, known := d.checkpoints[line.CheckpointID]; known && context == nil && line.Data == nil && line.Kind == "" { // an export has the changes itself
		context = cp.Context
	}
	switch {
	case line.Kind == record.Reconciled && d.inst.Seq > 0:
		ev.Kind, from.counts = record.Reconciled, false // its data are the whole context
	case context != nil:
		patch := diffContexts(d.inst.Context, context)
		maps.Copy(patch, membersOf(line.Data))
		ev.Patch = encodeObject(patch)
	}
	if state := d.def.States[d.inst.State]; state != nil && (line.Kind == "" || line.Kind.Revises()) {
		if t := state.Transitions[line.Action]; t != nil {
			ev.Freezes = t.Freezes
		}
	}
	return d.addEvent(ev, from)
}

// reconcile adds an event if the history does not lead to the content of the instance's file.
func (d *draft) reconcile() error {
	var differ []string
	if d.inst.State != d.in.State {
		differ = append(differ, fmt.Sprintf("the state (%q, not %q)", d.in.State, d.inst.State))
	}
	if patch := diffContexts(d.inst.Context, d.in.Context); len(patch) > 0 {
		differ = append(differ, fmt.Sprintf("the context (%s)", nameMembers(patch)))
	}
	if (d.inst.Status == record.Cancelled) != d.in.Cancelled {
		differ = append(differ, "whether it was cancelled")
	}
	if len(differ) == 0 {
		return nil
	}
	d.addDifference("%s does not lead to the content of %s, which is used: %s", d.in.Log, d.in.File, strings.Join(differ, ", "))
	ev := record.Event{Kind: record.Reconciled, To: d.in.State, Status: d.statusIn(d.in.State, d.in.Cancelled), Patch: d.in.Context}
	return d.addEvent(ev, source{at: d.in.File, hash: d.in.Hash, time: d.clampTime(d.in.UpdatedAt)})
}

// sortCheckpoints sorts the checkpoints into the order in which they were made; those without a
// time come last.
func (d *draft) sortCheckpoints() {
	for _, cp := range d.in.Checkpoints {
		if _, taken := d.checkpoints[cp.ID]; taken || !isKeepableID(cp.ID) {
			d.addDifference("%s: the checkpoint is left out: its id %.80q is taken or invalid", cp.File, cp.ID)
			continue
		}
		d.checkpoints[cp.ID] = cp
		d.pending = append(d.pending, cp)
	}
	slices.SortFunc(d.pending, func(a, b Checkpoint) int {
		if a.Time.IsZero() != b.Time.IsZero() && a.Seq == b.Seq {
			return b.Time.Compare(a.Time) // without a time: last
		}
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), a.Time.Compare(b.Time), strings.Compare(a.ID, b.ID))
	})
}

func (d *draft) isBefore(cp Checkpoint, line Line) bool {
	if cp.Seq > 0 && line.Seq > 0 {
		return cp.Seq < line.Seq
	}
	return !cp.Time.IsZero() && cp.Time.Before(d.clampTime(line.Time))
}

// addCheckpoints adds the waiting checkpoints that were made before a line (nil for all checkpoints), and
// leaves out those that contradict the history.
func (d *draft) addCheckpoints(line *Line) error {
	for len(d.pending) > 0 && len(d.events) > 0 {
		cp := d.pending[0]
		if line != nil && !d.isBefore(cp, *line) {
			break
		}
		d.pending = d.pending[1:]
		if cp.State != d.inst.State || cp.Context != nil && len(diffContexts(d.inst.Context, cp.Context)) > 0 {
			d.addDifference("%s: the checkpoint is left out: the history was not in %.80q with its context at that time", cp.File, cp.State)
			continue
		}
		ev := record.Event{Kind: record.Checkpointed, Checkpoint: &record.Checkpoint{ID: cp.ID, Description: cp.Description, Metadata: cp.Metadata}}
		if err := d.addEvent(ev, source{at: cp.File, hash: cp.Hash, time: cp.Time}); err != nil {
			return err
		}
		d.recorded++
	}
	return nil
}

// clampTime returns t if an event can have that time. If t is in the future or before the last event,
// it returns the time of the last event.
func (d *draft) clampTime(t time.Time) time.Time {
	if t.IsZero() || t.Before(d.time) || t.After(d.im.at) {
		return d.time
	}
	return t
}

type source struct {
	at     string // for messages
	line   int    // 0 if it was not in a log
	hash   string
	time   time.Time // zero when unknown
	counts bool      // if the operator lets visits count
	kind   record.Kind
	call   *record.Call
}

// addEvent completes an event and adds it.
func (d *draft) addEvent(ev record.Event, from source) error {
	ev.Instance, ev.Principal, ev.Role, ev.Time = d.in.ID, d.im.req.Owner, string(engine.RoleAgent), d.clampTime(from.time)
	ev.Workflow, ev.Version, ev.DefinitionHash = d.stored.Name, max(d.stored.Version, 1), d.stored.Hash
	ev.Import = &record.Import{
		Source: d.im.req.Source, Line: from.line, SourceHash: from.hash, By: d.im.p.ID, At: d.im.at, Counts: from.counts && d.im.req.Counts, Kind: from.kind, Call: from.call,
	}
	if err := checkForms(ev); err != nil {
		return fmt.Errorf("%s: %w", from.at, err)
	}
	sealed, next, err := record.Seal(d.inst, ev, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", from.at, err)
	}
	if n, most := len(next.Context), engine.DefaultLimits().Context; n > most {
		return fmt.Errorf("%s: %w: a context of %d bytes; the limit is %d", from.at, record.ErrTooLarge, n, most)
	}
	if d.bytes += len(ev.Patch); d.bytes > MaxBytes {
		return fmt.Errorf("%s: the changes up to this line exceed the limit of %d bytes for one instance", from.at, MaxBytes)
	}
	d.events, d.inst, d.time = append(d.events, sealed), next, sealed.Time
	return nil
}

// checkForms rejects text that would be mistaken for a sealed value.
func checkForms(ev record.Event) error {
	docs := []json.RawMessage{ev.Patch}
	if ev.Checkpoint != nil {
		docs = append(docs, ev.Checkpoint.Metadata)
	}
	for _, doc := range docs {
		if pointer, ok := workflow.FindSealedForm(document.ReadTrusted(doc)); ok {
			return fmt.Errorf("the text at %s begins with %q, which only gavel writes", pointer, workflow.SealedForm)
		}
	}
	return nil
}

// sealValues makes the events again with their sensitive values sealed.
func (d *draft) sealValues(ctx context.Context) error {
	keys := d.im.e.Values()
	if keys == nil || len(d.def.Sensitive) == 0 {
		return nil
	}
	events, inst := make([]record.Event, len(d.events)), record.Instance{}
	for i, ev := range d.events {
		ev, err := keys.SealEvent(ctx, d.def, inst, ev)
		if err != nil {
			return engine.StoreError("read the key of the sensitive values", err)
		}
		if events[i], inst, err = record.Seal(inst, ev, nil); err != nil {
			return err
		}
	}
	d.events, d.inst = events, inst
	return nil
}

func (d *draft) statusIn(state string, cancelled bool) record.Status {
	if cancelled {
		return record.Cancelled
	}
	if s, known := d.def.States[state]; known && s.Final {
		return record.Complete
	}
	return record.Running
}
