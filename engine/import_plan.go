package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// eventsPerCommit bounds one write of an import.
const eventsPerCommit = 1000

// history is what an import needs of an instance that is here already.
type history struct {
	inst record.Instance
	// keys are the idempotency scopes of its events, hashes theirs, of what was removed,
	// and of the events that they are said to come from.
	keys, hashes map[string]bool
	checkpoints  map[string]bool
	cut          bool            // its beginning was removed
	began        record.Kind     // the kind of its first event that is left
	native       bool            // its last revision was not imported
	extra        json.RawMessage // what the instance's file held, as it was imported last
	// versions are those that it ever had, and scrub removes what they call sensitive.
	versions map[int]*workflow.Definition
	scrub    func(string) string
}

func (e *Engine) historyOf(ctx context.Context, id string) (history, error) {
	h := history{keys: map[string]bool{}, hashes: map[string]bool{}, checkpoints: map[string]bool{}}
	inst, err := e.cfg.Store.Load(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return h, nil
	case err != nil:
		return h, storeError("load the instance", err)
	}
	h.inst = inst
	var docs []json.RawMessage
	versions := map[int]bool{inst.Version: true}
	for ev, err := range e.cfg.Store.Events(ctx, store.EventQuery{Instance: id}) {
		if err != nil {
			return h, storeError("read the history", err)
		}
		if ev.Seq > inst.Seq {
			break // it was recorded after the instance was loaded
		}
		if h.began == "" {
			h.began, h.cut = ev.Kind, ev.Seq > 1
		}
		h.hashes[ev.Hash], versions[ev.Version] = true, true
		docs = append(docs, documentsOf([]record.Event{ev})...)
		if ev.Key != nil {
			h.keys[ev.Key.Scope] = true
		}
		if ev.Checkpoint != nil {
			h.checkpoints[ev.Checkpoint.ID] = true
		}
		if ev.Truncation != nil {
			h.cut, h.hashes[ev.Truncation.Hash] = true, true
		}
		if ev.Kind.Revises() {
			h.native = ev.Kind != record.Imported && ev.Kind != record.Reconciled
		}
		if extra := extraPart(ev.Import, "instance"); extra != nil {
			h.extra = extra
		}
		for said := saidOf(extraPart(ev.Import, "line")); said != nil; said = said.Origin {
			h.hashes[said.Hash] = true
		}
	}
	h.versions = map[int]*workflow.Definition{}
	for v := range versions {
		l, err := e.definition(ctx, inst.Workflow, v)
		if err != nil {
			return h, err
		}
		h.versions[v] = l.def
	}
	h.scrub = scrubberOf(h.versions, append(docs, inst.Context))
	return h, nil
}

// said is what a line of an export says of its event.
type said struct {
	Kind   record.Kind     `json:"kind"`
	Hash   string          `json:"hash"`
	Import json.RawMessage `json:"import"`
	Origin *said           `json:"origin"`
}

// saidOf reads it from what an imported line keeps, nil when it says nothing.
func saidOf(extra json.RawMessage) *said {
	var out struct {
		Gavel *said `json:"gavel"`
	}
	if len(extra) == 0 || json.Unmarshal(extra, &out) != nil {
		return nil
	}
	return out.Gavel
}

// brought reports whether it says that the event was imported: then it stays as it is.
// Everything else that it says was not seen here.
func (s *said) brought() bool {
	return s != nil && (s.Kind == record.Imported || s.Kind == record.Reconciled || s.Kind == record.Checkpointed && len(s.Import) > 0)
}

// step is a draft of an event with what it leads to, but for the context: a log of a
// megabyte would be gigabytes of those.
type step struct {
	ev    record.Event
	line  int
	state string
	// checkpoints name the revision that the step leads to.
	checkpoints []record.Event
}

// plan is what is to be appended to one instance. It is pure.
type plan struct {
	im   *importing
	in   ImportInstance
	l    loaded
	here history
	out  *InstanceImport

	steps   []step
	base    step            // where the steps begin
	at      step            // where the last step led to
	context json.RawMessage // what it led to
	bytes   int             // of what the steps change
	time    time.Time
	nth     map[int]int // of each line by its number: see scope
	spots   spots
	// restored are the checkpoints by their ids.
	restored map[string]*ImportCheckpoint
	// backs are the first steps that do not count, by the last one of those: see uncount.
	backs map[int]int
}

// make plans the steps, or says why the instance is refused.
func (pl *plan) make(ctx context.Context) (reason string, err error) {
	here := pl.here
	pl.base = step{state: here.inst.State}
	pl.base.ev.Status = here.inst.Status
	pl.at, pl.context, pl.time = pl.base, here.inst.Context, here.inst.UpdatedAt
	lines, reason := pl.unknown()
	if reason != "" {
		return reason, nil
	}
	if err := pl.look(lines); err != nil {
		return "", err
	}
	if here.inst.Seq > 0 {
		if here.inst.DefinitionHash != pl.l.stored.Hash && len(lines) > 0 {
			return "it is here with another version of its definition, and the log goes on; import it into another store", nil
		}
	} else if err := pl.begin(lines); err != nil {
		return "", err
	}
	for _, line := range lines {
		if err := ctx.Err(); err != nil {
			return "", storeError("read the history", err)
		}
		if reason, err := pl.follow(line); reason != "" || err != nil {
			return reason, err
		}
	}
	pl.settle()
	if err := pl.reconcile(len(lines) > 0); err != nil {
		return "", err
	}
	pl.place()
	if err := pl.keepFile(); err != nil {
		return "", err
	}
	return pl.check()
}

// keepFile keeps what the instance's file holds beside its fields, and its times where
// the events have others.
func (pl *plan) keepFile() error {
	if len(pl.steps) == 0 {
		return nil
	}
	extra, err := fieldsOf(pl.in.Extra)
	if err != nil {
		return internal("read an instance", err)
	}
	first, last := pl.here.inst.CreatedAt, pl.lastTime()
	if pl.here.inst.Seq == 0 {
		first = pl.steps[0].ev.Time
	}
	if t := pl.in.CreatedAt; !t.IsZero() && !t.Equal(first) {
		extra["createdAt"] = timeText(t)
	}
	if t := pl.in.UpdatedAt; !t.IsZero() && !t.Equal(last) {
		extra["updatedAt"] = timeText(t)
	}
	if doc := object(extra); string(doc) != string(pl.here.extra) {
		withExtra(pl.steps[0].ev.Import, "instance", doc)
	}
	return nil
}

// lastTime is the time of the last event, steps and checkpoints.
func (pl *plan) lastTime() time.Time {
	at := pl.steps[len(pl.steps)-1]
	if n := len(at.checkpoints); n > 0 {
		return at.checkpoints[n-1].Time
	}
	return at.ev.Time
}

// unknown are the lines that are not here yet; a sentence says why they cannot be told.
func (pl *plan) unknown() ([]ImportLine, string) {
	lines, here := pl.in.Lines, pl.here
	if here.inst.Seq == 0 {
		return lines, ""
	}
	last, missing := -1, 0
	for i, line := range lines {
		if here.keys[pl.scope(line)] || slices.ContainsFunc(line.EventHashes, func(hash string) bool { return here.hashes[hash] }) {
			missing += i - last - 1
			last = i
		}
	}
	if here.cut && last < 0 && pl.arrived() {
		return nil, ""
	}
	rest := lines[last+1:]
	switch {
	case here.inst.Workflow != pl.in.Workflow,
		len(lines) > 0 && last < 0 && !here.cut,
		len(lines) == 0 && here.began == record.Started:
		return nil, "the id is taken: the instance here did not come from this log"
	case len(rest) > 0 && last < 0 && here.cut:
		return nil, "its beginning was removed here, so nothing tells whether the log is the same"
	case len(rest) > 0 && (here.native || len(here.inst.Facts.Reviews) > 0):
		return nil, fmt.Sprintf("it went on here after it was imported, and in the folder too, from line %d of %s on; the two cannot be joined", rest[0].Number, pl.in.Log)
	}
	if missing > 0 && !here.cut {
		remark(&pl.out.Differences, "%s: %s before line %d are not the ones that were imported", pl.in.Log, count(missing, "line", "lines"), lines[last].Number)
	}
	return rest, ""
}

// arrived reports whether the instance here is where the folder says it is.
func (pl *plan) arrived() bool {
	same, err := pl.same(pl.here.inst.Context, pl.in.Context)
	return err == nil && same && pl.here.inst.Workflow == pl.in.Workflow && pl.here.inst.State == pl.in.State
}

// scope is the idempotency scope of a line: its bytes, and the how manieth of the same
// bytes it is in its log. It is nobody's, so that whoever imports a line again finds it.
func (pl *plan) scope(line ImportLine) string {
	if pl.nth == nil {
		pl.nth = make(map[int]int, len(pl.in.Lines))
		seen := map[string]int{}
		for _, l := range pl.in.Lines {
			seen[l.Hash]++
			pl.nth[l.Number] = seen[l.Hash]
		}
	}
	return digest("gavel/key/v1", "", string(RightImport), pl.in.ID, fmt.Sprintf("import:%s:%d", line.Hash, pl.nth[line.Number]))
}

// event is the frame of an imported event.
func (pl *plan) event(kind record.Kind, line int, hash string) record.Event {
	return record.Event{
		Kind: kind, Instance: pl.in.ID, Time: pl.time, Principal: pl.im.req.Owner, Role: string(RoleAgent),
		Workflow: pl.l.stored.Name, Version: pl.l.stored.Version, DefinitionHash: pl.l.stored.Hash,
		Import: &record.Import{
			Source: pl.im.req.Source, Line: line, SourceHash: hash, Counts: pl.im.req.Counts && kind == record.Imported,
			By: pl.im.p.ID, At: pl.im.at,
		},
	}
}

// add appends an event that leads to a state and a context.
func (pl *plan) add(ev record.Event, context json.RawMessage) error {
	ev.From = pl.at.state
	pl.at, pl.context = step{ev: ev, line: ev.Import.Line, state: ev.To}, context
	pl.steps = append(pl.steps, pl.at)
	pl.time = ev.Time
	return pl.spot(len(pl.steps) - 1)
}

// begin writes what stands in no line: how the instance was started, when the log does
// not say it. What no line of the log sets must have been there from the start.
func (pl *plan) begin(lines []ImportLine) error {
	pl.time = pl.im.at
	created := pl.believable(pl.in.CreatedAt, time.Time{})
	for _, line := range lines {
		if t := pl.believable(line.Time, time.Time{}); !t.IsZero() {
			pl.time = t
			break
		}
	}
	if !created.IsZero() && created.Before(pl.time) {
		pl.time = created
	}
	if len(lines) > 0 && lines[0].From == "" {
		if lines[0].From = pl.origin(lines[0]); lines[0].From == "" {
			return nil
		}
	}
	state, context, from := pl.in.State, pl.in.Context, pl.in.File
	if len(lines) > 0 {
		state = lines[0].From
		var err error
		if context, from, err = pl.unset(lines); err != nil {
			return internal("read a context", err)
		}
	}
	ev := pl.event(record.Imported, 0, pl.in.Hash)
	ev.To, ev.Status, ev.Patch = state, pl.status("", state), orEmptyObject(context)
	if len(lines) == 0 && pl.in.Cancelled {
		ev.Status = record.Cancelled
	}
	if err := pl.add(ev, ev.Patch); err != nil {
		return err
	}
	if len(lines) > 0 && string(ev.Patch) != "{}" {
		remark(&pl.out.Notes, "the log does not say how it was started: its start context is what no line sets, from %s (%s)", from, keysOf(ev.Patch))
	}
	if len(lines) == 0 {
		remark(&pl.out.Notes, "there is no history, only where it stands")
	}
	return nil
}

// reconcile makes up for a difference between the history and the file that says where
// the instance stands. What went on here says more than the file.
func (pl *plan) reconcile(grown bool) error {
	if pl.here.inst.Seq > 0 && !grown && (pl.here.native || len(pl.here.inst.Facts.Reviews) > 0) {
		return nil
	}
	same, err := pl.same(pl.context, pl.in.Context)
	if err != nil {
		return err
	}
	cancelled := pl.at.ev.Status == record.Cancelled
	if pl.at.state == pl.in.State && same && cancelled == pl.in.Cancelled {
		return nil
	}
	what := "the history"
	if len(pl.in.Lines) > 0 {
		what = pl.in.Log
	}
	if pl.at.state != pl.in.State {
		remark(&pl.out.Differences, "%s ends in %q, %s says %q; the latter holds", what, pl.at.state, pl.in.File, pl.in.State)
	}
	if !same {
		patch, err := difference(pl.context, orEmptyObject(pl.in.Context))
		if err != nil {
			return internal("compare contexts", err)
		}
		remark(&pl.out.Differences, "%s leads to another context than %s says (%s); the latter holds", what, pl.in.File, keysOf(patch))
	}
	if cancelled != pl.in.Cancelled {
		remark(&pl.out.Differences, "%s and %s do not agree on whether it was cancelled; the latter holds", what, pl.in.File)
	}
	ev := pl.event(record.Reconciled, 0, pl.in.Hash)
	if t := pl.believable(pl.in.UpdatedAt, pl.time); !t.IsZero() {
		ev.Time = t
	}
	ev.To, ev.Status, ev.Patch = pl.in.State, pl.status("", pl.in.State), orEmptyObject(pl.in.Context)
	if pl.in.Cancelled {
		ev.Status = record.Cancelled
	}
	return pl.add(ev, ev.Patch)
}

// unset is what no line sets, of the first context that is told, and where that is.
func (pl *plan) unset(lines []ImportLine) (context json.RawMessage, from string, err error) {
	context, from = pl.in.Context, pl.in.File
	told := slices.IndexFunc(lines, func(l ImportLine) bool { return l.Context != nil })
	if told >= 0 {
		context, from = lines[told].Context, fmt.Sprintf("%s:%d", pl.in.Log, lines[told].Number)
		lines = lines[:told+1]
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
	return object(fields), from, nil
}

// origin is where the first line of a log goes from that does not tell it, "" for a
// start: a line that changes nothing stays where it is, and what can be done first is
// done in the first state.
func (pl *plan) origin(line ImportLine) string {
	initial := pl.l.def.InitialState
	if still(line.Kind) {
		return cmp.Or(line.To, initial)
	}
	first := pl.l.def.States[initial].Transitions[line.Action]
	if first != nil && slices.ContainsFunc(first.Routes, func(r workflow.Route) bool { return r.Target == line.To || line.To == "" }) {
		return initial
	}
	return ""
}
