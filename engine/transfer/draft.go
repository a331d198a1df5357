package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// importDraft is the history of one instance while its events are made. Only the last
// context is held: a log of a megabyte can lead through gigabytes of contexts.
type importDraft struct {
	im     *importer
	in     Instance
	def    version
	events []record.Event
	inst   record.Instance // the fold of events
	time   time.Time       // of the last event
	bytes  int             // of patches
	// waiting are the checkpoints without an event so far, oldest first.
	waiting     []*waitingCheckpoint
	checkpoints map[string]Checkpoint
	canonical   string // the present context, "" when not computed
	out         InstanceReport
}

// waitingCheckpoint is a checkpoint with its time, if that can be.
type waitingCheckpoint struct {
	Checkpoint
	made time.Time
}

// draftInstance makes the events of an instance, or says why it is refused.
func draftInstance(ctx context.Context, im *importer, in Instance, l version) (*importDraft, error) {
	d := &importDraft{im: im, in: in, def: l, checkpoints: map[string]Checkpoint{}}
	if in.Torn {
		d.addNote("%s ends in an incomplete line, which was skipped", in.Log)
	}
	d.sortCheckpoints()
	back := -1 // the last line that goes back: what was visited before it does not count
	for i, line := range in.Lines {
		if goesBack(line) {
			back = i
		}
	}
	if err := d.addStart(back < 0); err != nil {
		return nil, err
	}
	for i, line := range in.Lines {
		if err := ctx.Err(); err != nil {
			return nil, engine.StoreError("read the history", err)
		}
		if err := d.addLine(line, i >= back); err != nil {
			return nil, err
		}
	}
	for _, add := range []func() error{d.addLastCheckpoints, d.reconcile, d.addLastCheckpoints} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	for _, cp := range d.waiting {
		d.leaveOut(cp.Checkpoint)
	}
	if !im.req.Counts && d.inst.Status == record.Running && len(l.def.MustPassThrough) > 0 {
		d.addNote("the definition has states that must be passed through, and imported visits do not count (--counts)")
	}
	return d, nil
}

func (d *importDraft) report() InstanceReport {
	out := d.out
	out.File, out.ID, out.Workflow, out.Version, out.State = d.in.File, d.inst.ID, d.inst.Workflow, d.inst.Version, d.inst.State
	out.Status, out.Events = Imported, len(d.events)
	return out
}

// maxRemarks bounds the differences, and the notes, of one instance.
const maxRemarks = 20

func (d *importDraft) addNote(format string, args ...any) { addRemark(&d.out.Notes, format, args...) }

func (d *importDraft) addDifference(format string, args ...any) {
	addRemark(&d.out.Differences, format, args...)
}

func addRemark(list *[]string, format string, args ...any) {
	switch len(*list) {
	case maxRemarks:
		*list = append(*list, "and more of the kind")
	case maxRemarks + 1:
	default:
		*list = append(*list, fmt.Sprintf(format, args...))
	}
}

func goesBack(line Line) bool {
	return line.CheckpointID != "" || line.Action == "rollback" || line.Kind == record.RolledBack || line.Kind == record.Undone
}

// changesNothing reports whether a line is of an event that leaves state and context alone.
func changesNothing(line Line) bool { return line.Kind != "" && !line.Kind.Revises() }

// addStart adds an event for the start if the log does not have it. What no line of the log
// sets must have been in the context from the start.
func (d *importDraft) addStart(counts bool) error {
	d.time = d.im.at
	for _, line := range d.in.Lines {
		if t := d.believableTime(line.Time, time.Time{}); !t.IsZero() {
			d.time = t
			break
		}
	}
	if created := d.believableTime(d.in.CreatedAt, time.Time{}); !created.IsZero() && created.Before(d.time) {
		d.time = created
	}
	ev := d.newEvent(record.Imported, 0, d.in.Hash, counts)
	if len(d.in.Lines) == 0 {
		d.addNote("there is no history, only the present state")
		ev.To, ev.Patch, ev.Status = d.in.State, orEmptyObject(d.in.Context), d.statusIn(d.in.Cancelled, d.in.State)
		return d.sealEvent(ev, d.in.File)
	}
	first := d.in.Lines[0]
	ev.To = cmp.Or(first.From, d.originOf(first))
	if ev.To == "" {
		return nil
	}
	from, err := "", error(nil)
	if ev.Patch, from, err = d.startContext(); err != nil {
		return engine.InternalError("read a context", err)
	}
	if string(ev.Patch) != "{}" {
		d.addNote("the log does not say how it was started: its start context is what no line sets, from %s (%s)", from, keysOf(ev.Patch))
	}
	ev.Status = d.statusIn(false, ev.To)
	return d.sealEvent(ev, d.in.File)
}

// originOf is the state that a first line without a from leaves, "" for a start.
func (d *importDraft) originOf(line Line) string {
	initial := d.def.def.InitialState
	if changesNothing(line) {
		return cmp.Or(line.To, initial)
	}
	if t := d.findTransition(initial, line.Action); t != nil && (line.To == "" || leadsTo(t, line.To)) {
		return initial
	}
	return ""
}

func (d *importDraft) findTransition(state, action string) *workflow.Transition {
	if s, known := d.def.def.States[state]; known {
		return s.Transitions[action]
	}
	return nil
}

func leadsTo(t *workflow.Transition, state string) bool {
	return slices.ContainsFunc(t.Routes, func(r workflow.Route) bool { return r.Target == state })
}

// startContext is what no line sets of the first whole context in the files, and its place.
func (d *importDraft) startContext() (context json.RawMessage, from string, err error) {
	lines, context, from := d.in.Lines, d.in.Context, d.in.File
	if i := slices.IndexFunc(lines, func(l Line) bool { return l.Context != nil }); i >= 0 {
		context, from = lines[i].Context, fmt.Sprintf("%s:%d", d.in.Log, lines[i].Number)
		lines = lines[:i+1]
	}
	fields, err := fieldsOf(context)
	if err != nil {
		return nil, "", err
	}
	for _, line := range lines {
		data, err := fieldsOf(line.Data)
		if err != nil {
			return nil, "", err
		}
		for key := range data {
			delete(fields, key)
		}
	}
	return encodeObject(fields), from, nil
}

func (d *importDraft) addLine(line Line, counts bool) error {
	at := fmt.Sprintf("%s:%d", d.in.Log, line.Number)
	after := d.time
	if len(d.events) == 0 {
		after = time.Time{} // it may be before the creation that the file names
	}
	own := d.believableTime(line.Time, after)
	if err := d.addCheckpoints(own); err != nil {
		return err
	}
	kind := record.Imported
	if line.Kind == record.Reconciled {
		kind = record.Reconciled
	}
	ev := d.newEvent(kind, line.Number, line.Hash, counts)
	ev.Action = line.Action
	extra, err := fieldsOf(line.Extra)
	if err != nil {
		return engine.InternalError("read a line", err)
	}
	switch {
	case !own.IsZero():
		ev.Time = own
	case !line.Time.IsZero():
		extra["timestamp"] = timeText(line.Time)
		d.addNote("%s: its time is before that of the previous line, or in the future; it gets %s", at, formatTime(ev.Time))
	}
	if line.From != "" && d.inst.State != "" && line.From != d.inst.State && !changesNothing(line) {
		extra["from"] = quoteJSON(line.From)
		d.addDifference("%s: it starts from %q, but the previous line led to %q", at, line.From, d.inst.State)
	}
	addExtra(ev.Import, "line", encodeObject(extra))
	if err := d.setTarget(&ev, line, at); err != nil {
		return err
	}
	return d.sealEvent(ev, at)
}

// setTarget sets where a line leads to: To, Status, Patch and Freezes.
func (d *importDraft) setTarget(ev *record.Event, line Line, at string) error {
	cancelled := line.Status == record.Cancelled
	if changesNothing(line) {
		if d.inst.Seq == 0 {
			return newRefusal("%s: nothing can come before a start", at)
		}
		ev.To, ev.Status = d.inst.State, d.statusIn(cancelled, d.inst.State)
		return nil
	}
	whole := line.Context
	ev.To, ev.Patch = line.To, line.Data
	if cp, known := d.checkpoints[line.CheckpointID]; known {
		ev.To = cmp.Or(ev.To, cp.State)
		if whole == nil && line.Data == nil && line.Kind == "" { // an export says what changed
			whole = cp.Context
		}
	}
	t := d.findTransition(d.inst.State, line.Action)
	if ev.To == "" && t != nil && !t.Conditional() {
		ev.To = t.Routes[0].Target
	}
	if ev.To == "" {
		return newRefusal("%s: neither the line nor the definition names the state that it led to", at)
	}
	ev.Status = d.statusIn(cancelled, ev.To)
	if ev.Kind == record.Reconciled {
		ev.Patch = orEmptyObject(line.Data)
		return nil
	}
	if whole != nil {
		var err error
		if ev.Patch, err = patchTo(d.inst.Context, whole, line.Data); err != nil {
			return engine.InternalError("read a line", err)
		}
	}
	if t != nil {
		ev.Freezes = t.Freezes
	}
	return nil
}

// reconcile adds an event where the history does not lead to what the instance's file says.
func (d *importDraft) reconcile() error {
	same := canonicalText(orEmptyObject(d.inst.Context)) == canonicalText(orEmptyObject(d.in.Context))
	cancelled := d.inst.Status == record.Cancelled
	if d.inst.State == d.in.State && same && cancelled == d.in.Cancelled {
		return nil
	}
	if d.inst.State != d.in.State {
		d.addDifference("%s ends in %q, but %s says %q; the latter is used", d.in.Log, d.inst.State, d.in.File, d.in.State)
	}
	if !same {
		patch, err := patchTo(d.inst.Context, orEmptyObject(d.in.Context), nil)
		if err != nil {
			return engine.InternalError("compare contexts", err)
		}
		d.addDifference("%s leads to another context than %s has (%s); the latter is used", d.in.Log, d.in.File, keysOf(patch))
	}
	if cancelled != d.in.Cancelled {
		d.addDifference("%s and %s disagree on whether it was cancelled; the latter is used", d.in.Log, d.in.File)
	}
	ev := d.newEvent(record.Reconciled, 0, d.in.Hash, false)
	if t := d.believableTime(d.in.UpdatedAt, d.time); !t.IsZero() {
		ev.Time = t
	}
	ev.To, ev.Patch, ev.Status = d.in.State, orEmptyObject(d.in.Context), d.statusIn(d.in.Cancelled, d.in.State)
	return d.sealEvent(ev, d.in.File)
}

// sortCheckpoints prepares the checkpoints, and leaves out those that no event can name.
func (d *importDraft) sortCheckpoints() {
	for _, cp := range d.in.Checkpoints {
		_, taken := d.checkpoints[cp.ID]
		_, known := d.def.def.States[cp.State]
		switch {
		case !isKeptID(cp.ID):
			d.addDifference("%s: the id %.80q of the checkpoint cannot be kept; it is left out", cp.File, cp.ID)
			continue
		case taken:
			d.addDifference("%s: there is another checkpoint %s; this one is left out", cp.File, cp.ID)
			continue
		case known:
			w := &waitingCheckpoint{cp, d.believableTime(cp.Time, time.Time{})}
			if cp.Context != nil {
				w.Context = json.RawMessage(canonicalText(cp.Context))
			}
			d.waiting = append(d.waiting, w)
		default:
			d.leaveOut(cp)
		}
		d.checkpoints[cp.ID] = cp
	}
	slices.SortStableFunc(d.waiting, func(a, b *waitingCheckpoint) int {
		return cmp.Or(a.made.Compare(b.made), strings.Compare(a.ID, b.ID))
	})
}

// addCheckpoints adds the checkpoints that were made before next, the time of the next line,
// if they have the present state and context. Others wait: the log may lack their step. A
// zero time is unknown.
func (d *importDraft) addCheckpoints(next time.Time) error {
	if len(d.events) == 0 {
		return nil
	}
	waiting := d.waiting
	d.waiting = d.waiting[:0]
	for i, cp := range waiting {
		switch {
		case !next.IsZero() && cp.made.After(next):
			d.waiting = append(d.waiting, waiting[i:]...)
			return nil
		case !d.isAt(cp):
			d.waiting = append(d.waiting, cp)
		default:
			if err := d.addCheckpoint(cp.Checkpoint); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *importDraft) addLastCheckpoints() error { return d.addCheckpoints(time.Time{}) }

func (d *importDraft) isAt(cp *waitingCheckpoint) bool {
	if cp.State != d.inst.State || cp.Context == nil {
		return cp.State == d.inst.State
	}
	if d.canonical == "" {
		d.canonical = canonicalText(orEmptyObject(d.inst.Context))
	}
	return string(cp.Context) == d.canonical
}

func (d *importDraft) addCheckpoint(cp Checkpoint) error {
	ev := d.newEvent(record.Checkpointed, 0, cp.Hash, false)
	extra, err := fieldsOf(cp.Extra)
	if err != nil {
		return engine.InternalError("read a checkpoint", err)
	}
	if t := d.believableTime(cp.Time, ev.Time); !t.IsZero() {
		ev.Time = t
	} else if !cp.Time.IsZero() {
		extra["timestamp"] = timeText(cp.Time)
	}
	addExtra(ev.Import, "checkpoint", encodeObject(extra))
	ev.Checkpoint = &record.Checkpoint{ID: cp.ID, Description: cp.Description, Metadata: cp.Metadata}
	d.out.Checkpoints++
	return d.sealEvent(ev, cp.File)
}

func (d *importDraft) leaveOut(cp Checkpoint) {
	d.addDifference("%s: from the time of the checkpoint on, the history never was in %.80q with its context; it is left out", cp.File, cp.State)
}

// newEvent is an event of the import, of the time of the one before.
func (d *importDraft) newEvent(kind record.Kind, line int, hash string, counts bool) record.Event {
	s, req := d.def.stored, d.im.req
	return record.Event{
		Kind: kind, Instance: d.in.ID, Time: d.time, Principal: req.Owner, Role: string(engine.RoleAgent),
		Workflow: s.Name, Version: s.Version, DefinitionHash: s.Hash,
		Import: &record.Import{
			Source: req.Source, Line: line, SourceHash: hash, Counts: counts && req.Counts && kind == record.Imported,
			By: d.im.p.ID, At: d.im.at,
		},
	}
}

// sealEvent adds an event; at is its place for messages. The first event keeps what the
// instance's file has beside its fields.
func (d *importDraft) sealEvent(ev record.Event, at string) error {
	if len(d.events) == 0 {
		extra, err := fieldsOf(d.in.Extra)
		if err != nil {
			return engine.InternalError("read an instance", err)
		}
		for name, t := range map[string]time.Time{"createdAt": d.in.CreatedAt, "updatedAt": d.in.UpdatedAt} {
			if !t.IsZero() {
				extra[name] = timeText(t)
			}
		}
		addExtra(ev.Import, "instance", encodeObject(extra))
	}
	sealed, next, err := record.Seal(d.inst, ev, nil)
	switch {
	case errors.Is(err, record.ErrTooLarge):
		return newRefusal("%s: %v", at, err)
	case err != nil:
		return engine.InternalError("seal an imported event", err)
	}
	if d.bytes += len(ev.Patch) + len(ev.Import.Extra); d.bytes > MaxBytes {
		return newRefusal("%s: the lines up to this one change more than %d bytes together; that is the limit for one instance", at, MaxBytes)
	}
	d.events, d.inst, d.time, d.canonical = append(d.events, sealed), next, sealed.Time, ""
	return nil
}

// believableTime is a time that an event can have: not in the future, and not before another.
func (d *importDraft) believableTime(t, after time.Time) time.Time {
	if t.IsZero() || t.Year() < 1970 || t.After(d.im.at) || t.Before(after) {
		return time.Time{}
	}
	return t.UTC()
}

func (d *importDraft) statusIn(cancelled bool, state string) record.Status {
	if cancelled {
		return record.Cancelled
	}
	if s, known := d.def.def.States[state]; known && s.Final {
		return record.Complete
	}
	return record.Running
}

// patchTo is the patch that turns one context into another and then sets data.
func patchTo(from, to, data json.RawMessage) (json.RawMessage, error) {
	patch, err := diffContexts(from, to)
	if err != nil {
		return nil, err
	}
	fields, err := fieldsOf(patch)
	if err != nil {
		return nil, err
	}
	set, err := fieldsOf(data)
	if err != nil {
		return nil, err
	}
	maps.Copy(fields, set)
	return encodeObject(fields), nil
}

// addExtra puts a part into what an imported event keeps; an empty one changes nothing.
func addExtra(into *record.Import, part string, value json.RawMessage) {
	if len(value) == 0 || string(value) == "{}" {
		return
	}
	fields, err := fieldsOf(into.Extra)
	if err != nil {
		return
	}
	fields[part] = value
	into.Extra = encodeObject(fields)
}

// keysOf names the members of an object, for messages: their values may be sensitive.
func keysOf(doc json.RawMessage) string {
	fields, err := fieldsOf(doc)
	if err != nil {
		return ""
	}
	keys := slices.Sorted(maps.Keys(fields))
	more := ""
	if len(keys) > 5 {
		more = fmt.Sprintf(", and %d more", len(keys)-5)
		keys = keys[:5]
	}
	for i, key := range keys {
		keys[i] = fmt.Sprintf("%.40q", key)
	}
	return strings.Join(keys, ", ") + more
}
