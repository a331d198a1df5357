package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// importDraft is the history of one instance while its events are made. Only the last
// context is held: a log of a megabyte can lead through gigabytes of contexts.
type importDraft struct {
	im          *importer
	in          Instance
	def         version
	events      []record.Event
	inst        record.Instance // the fold of events
	time        time.Time       // of the last event
	bytes       int             // of patches
	checkpoints map[string]Checkpoint
	// differences and notes are those of the report.
	differences, notes []string
}

// draftInstance makes the events of an instance, or says why it is refused.
func draftInstance(ctx context.Context, im *importer, in Instance, v version) (*importDraft, error) {
	in.Context = orEmptyObject(in.Context)
	d := &importDraft{im: im, in: in, def: v, checkpoints: map[string]Checkpoint{}}
	if in.Torn {
		d.addNote("%s ends in an incomplete line, which was skipped", in.Log)
	}
	back := -1 // the last line that goes back: what was visited before it does not count
	for i, line := range in.Lines {
		if goesBack(line) {
			back = i
		}
	}
	if err := d.addStart(back < 0); err != nil {
		return nil, err
	}
	places := d.placeCheckpoints()
	for i, line := range in.Lines {
		if err := ctx.Err(); err != nil {
			return nil, engine.StoreError("read the history", err)
		}
		strays, err := d.addCheckpoints(places[i])
		if err != nil {
			return nil, err
		}
		d.leaveOut(strays)
		if err := d.addLine(line, i >= back); err != nil {
			return nil, err
		}
	}
	strays, err := d.addCheckpoints(places[len(in.Lines)])
	if err == nil {
		err = d.reconcile()
	}
	if err == nil {
		strays, err = d.addCheckpoints(strays)
	}
	if err != nil {
		return nil, err
	}
	d.leaveOut(strays)
	if !im.req.Counts && d.inst.Status == record.Running && len(v.def.MustPassThrough) > 0 {
		d.addNote("the definition has states that must be passed through, and imported visits do not count (--counts)")
	}
	return d, nil
}

func (d *importDraft) report() InstanceReport {
	out := InstanceReport{
		File: d.in.File, ID: d.inst.ID, Workflow: d.inst.Workflow, Version: d.inst.Version, State: d.inst.State,
		Status: Imported, Events: len(d.events), Notes: slices.Concat(d.differences, d.notes),
	}
	if len(d.differences) > 0 {
		out.Status = Differs
	}
	for _, ev := range d.events {
		if ev.Kind == record.Checkpointed {
			out.Checkpoints++
		}
	}
	if more := len(out.Notes) - maxNotes; more > 0 {
		out.Notes = append(out.Notes[:maxNotes], fmt.Sprintf("and %d more", more))
	}
	return out
}

// maxNotes bounds the notes of one instance, of which the differences come first.
const maxNotes = 40

func (d *importDraft) addNote(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

func (d *importDraft) addDifference(format string, args ...any) {
	d.differences = append(d.differences, fmt.Sprintf(format, args...))
}

func goesBack(line Line) bool {
	return line.CheckpointID != "" && line.Kind != record.Checkpointed || line.Action == "rollback" || line.Kind == record.RolledBack || line.Kind == record.Undone
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
		ev.To, ev.Patch, ev.Status = d.in.State, d.in.Context, d.statusIn(d.in.Cancelled, d.in.State)
		return d.sealEvent(ev, d.in.File, "", nil)
	}
	first := d.in.Lines[0]
	if ev.To = cmp.Or(first.From, d.originOf(first)); ev.To == "" {
		return nil
	}
	context, lines := d.in.Context, d.in.Lines
	if i := slices.IndexFunc(lines, func(l Line) bool { return l.Context != nil }); i >= 0 {
		context, lines = lines[i].Context, lines[:i+1] // the oldest one that is known whole
	}
	fields, err := fieldsOf(context)
	for _, line := range lines {
		var data map[string]json.RawMessage
		if err == nil {
			data, err = fieldsOf(line.Data)
		}
		for key := range data {
			delete(fields, key)
		}
	}
	if err != nil {
		return engine.InternalError("read a context", err)
	}
	if len(fields) > 0 {
		d.addNote("the log does not say how it was started: its start context is what no line sets (%s)", keysOf(fields))
	}
	ev.Patch, ev.Status = encodeObject(fields), d.statusIn(false, ev.To)
	return d.sealEvent(ev, d.in.File, "", nil)
}

// originOf is the state that a first line without a from leaves, "" for a start.
func (d *importDraft) originOf(line Line) string {
	initial := d.def.def.InitialState
	if changesNothing(line) {
		return cmp.Or(line.To, initial)
	}
	leadsThere := func(r workflow.Route) bool { return line.To == "" || r.Target == line.To }
	if t := d.findTransition(initial, line.Action); t != nil && slices.ContainsFunc(t.Routes, leadsThere) {
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

func (d *importDraft) addLine(line Line, counts bool) error {
	at := fmt.Sprintf("%s:%d", d.in.Log, line.Number)
	after := d.time
	if len(d.events) == 0 {
		after = time.Time{} // it may be before the creation that the file names
	}
	kind := record.Imported
	if line.Kind == record.Reconciled {
		kind = record.Reconciled
	}
	ev := d.newEvent(kind, line.Number, line.Hash, counts)
	ev.Action = line.Action
	extra := keepExtra(line.Extra)
	if own := d.believableTime(line.Time, after); !own.IsZero() {
		ev.Time = own
	} else if !line.Time.IsZero() {
		extra["timestamp"] = timeText(line.Time)
		d.addNote("%s: its time is before that of the previous line, or in the future; it gets %s", at, formatTime(ev.Time))
	}
	if line.From != "" && d.inst.State != "" && line.From != d.inst.State && !changesNothing(line) {
		extra["from"] = quoteJSON(line.From)
		d.addDifference("%s: it starts from %q, but the previous line led to %q", at, line.From, d.inst.State)
	}
	if err := d.setTarget(&ev, line, at); err != nil {
		return err
	}
	return d.sealEvent(ev, at, "line", extra)
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
		patch, err := patchTo(d.inst.Context, whole)
		set, err2 := fieldsOf(line.Data)
		if err := cmp.Or(err, err2); err != nil {
			return engine.InternalError("read a line", err)
		}
		maps.Copy(patch, set)
		ev.Patch = encodeObject(patch)
	}
	if t != nil {
		ev.Freezes = t.Freezes
	}
	return nil
}

// reconcile adds an event where the history does not lead to what the instance's file says.
func (d *importDraft) reconcile() error {
	patch, err := patchTo(orEmptyObject(d.inst.Context), d.in.Context)
	if err != nil {
		return engine.InternalError("compare contexts", err)
	}
	var differ []string
	if d.inst.State != d.in.State {
		differ = append(differ, fmt.Sprintf("the state (%q, not %q)", d.in.State, d.inst.State))
	}
	if len(patch) > 0 {
		differ = append(differ, fmt.Sprintf("the context (%s)", keysOf(patch)))
	}
	if (d.inst.Status == record.Cancelled) != d.in.Cancelled {
		differ = append(differ, "whether it was cancelled")
	}
	if len(differ) == 0 {
		return nil
	}
	d.addDifference("%s does not lead to what %s says, which is used: %s", d.in.Log, d.in.File, strings.Join(differ, ", "))
	ev := d.newEvent(record.Reconciled, 0, d.in.Hash, false)
	if t := d.believableTime(d.in.UpdatedAt, d.time); !t.IsZero() {
		ev.Time = t
	}
	ev.To, ev.Patch, ev.Status = d.in.State, d.in.Context, d.statusIn(d.in.Cancelled, d.in.State)
	return d.sealEvent(ev, d.in.File, "", nil)
}

// placeCheckpoints says which checkpoints come before which line: in a gavel export by its
// order, else by their times, else behind the line that names them, else at the end.
func (d *importDraft) placeCheckpoints() map[int][]Checkpoint {
	lines := d.in.Lines
	times, seqs, naming := make([]time.Time, len(lines)), make([]int64, len(lines)), map[string]int{}
	var last time.Time
	var seq int64
	for i, line := range lines {
		if t := d.believableTime(line.Time, last); !t.IsZero() {
			last = t
		}
		seq = max(seq, line.Seq)
		times[i], seqs[i] = last, seq
		if _, named := naming[line.CheckpointID]; !named {
			naming[line.CheckpointID] = i + 1
		}
	}
	slices.SortStableFunc(d.in.Checkpoints, func(a, b Checkpoint) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), a.Time.Compare(b.Time), strings.Compare(a.ID, b.ID))
	})
	places := map[int][]Checkpoint{}
	for _, cp := range d.in.Checkpoints {
		if !isKeptID(cp.ID) {
			d.addDifference("%s: the checkpoint is left out: its id %.80q cannot be kept", cp.File, cp.ID)
			continue
		}
		if _, taken := d.checkpoints[cp.ID]; taken {
			d.addDifference("%s: the checkpoint is left out: there is another %s", cp.File, cp.ID)
			continue
		}
		d.checkpoints[cp.ID] = cp
		place, named := naming[cp.ID]
		switch {
		case cp.Seq > 0 && seq > 0:
			place = sort.Search(len(lines), func(i int) bool { return seqs[i] > cp.Seq })
		case !d.believableTime(cp.Time, time.Time{}).IsZero():
			place = sort.Search(len(lines), func(i int) bool { return times[i].After(cp.Time) })
		case !named:
			place = len(lines)
		}
		if len(d.events) == 0 {
			place = max(place, 1)
		}
		places[place] = append(places[place], cp)
	}
	return places
}

// addCheckpoints adds the checkpoints that have the present state and context, and returns
// the others.
func (d *importDraft) addCheckpoints(all []Checkpoint) (strays []Checkpoint, err error) {
	present := ""
	for _, cp := range all {
		if present == "" && cp.State == d.inst.State && cp.Context != nil {
			present = canonicalText(orEmptyObject(d.inst.Context))
		}
		if cp.State != d.inst.State || cp.Context != nil && canonicalText(cp.Context) != present {
			strays = append(strays, cp)
			continue
		}
		ev := d.newEvent(record.Checkpointed, 0, cp.Hash, false)
		extra := keepExtra(cp.Extra)
		if t := d.believableTime(cp.Time, ev.Time); !t.IsZero() {
			ev.Time = t
		} else if !cp.Time.IsZero() {
			extra["timestamp"] = timeText(cp.Time)
		}
		ev.Checkpoint = &record.Checkpoint{ID: cp.ID, Description: cp.Description, Metadata: cp.Metadata}
		if err := d.sealEvent(ev, cp.File, "checkpoint", extra); err != nil {
			return nil, err
		}
	}
	return strays, nil
}

func (d *importDraft) leaveOut(strays []Checkpoint) {
	for _, cp := range strays {
		d.addDifference("%s: the checkpoint is left out: the history was not in %.80q with its context then", cp.File, cp.State)
	}
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

// sealEvent adds an event; at is its place for messages. It keeps extra as a part of its
// import, and the first event what the instance's file has beside its fields.
func (d *importDraft) sealEvent(ev record.Event, at, part string, extra Extra) error {
	parts := Extra{}
	if len(extra) > 0 {
		parts[part] = encodeObject(extra)
	}
	if len(d.events) == 0 {
		about := keepExtra(d.in.Extra)
		for name, t := range map[string]time.Time{"createdAt": d.in.CreatedAt, "updatedAt": d.in.UpdatedAt} {
			if !t.IsZero() {
				about[name] = timeText(t)
			}
		}
		if len(about) > 0 {
			parts["instance"] = encodeObject(about)
		}
	}
	if len(parts) > 0 {
		ev.Import.Extra = encodeObject(parts)
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
	d.events, d.inst, d.time = append(d.events, sealed), next, sealed.Time
	return nil
}

// keepExtra is a copy to add to.
func keepExtra(extra Extra) Extra {
	out := maps.Clone(extra)
	if out == nil {
		out = Extra{}
	}
	return out
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

// keysOf names the members of an object, for messages: their values may be sensitive.
func keysOf(fields map[string]json.RawMessage) string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if len(keys) == 5 {
			keys = append(keys, fmt.Sprintf("and %d more", len(fields)-5))
			break
		}
		keys = append(keys, fmt.Sprintf("%.40q", key))
	}
	return strings.Join(keys, ", ")
}
