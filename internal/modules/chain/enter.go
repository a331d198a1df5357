package chain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// EntryCursor is the name of a cursor in the log. Up to its position, no entered state has a chain left to
// start.
const EntryCursor = "chains:entries"

// jobEntries is the name of a job that only one process of a store does at a time.
const jobEntries = "chain entries"

const (
	// maxEntries limits the entries that are being started or retried. At the limit, no more are read.
	maxEntries = 1000
	// entryPatience is how long starting the run of an entry is retried.
	entryPatience = 10 * time.Minute
)

// EntryRun returns the id of the run of an entry. It is derived from the instance and revision, so an entry
// has only one run, no matter how often or by which process it is started.
func EntryRun(instance string, revision int64) string {
	id := entryPrefix + instance + "-" + strconv.FormatInt(revision, 10)
	if runID.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return entryPrefix + hex.EncodeToString(sum[:])
}

// entryPrefix is the reserved prefix of the run ids of entries.
const entryPrefix = "enter-"

// fillEntry returns the input of the run of an entry. A key whose value is a single unresolved reference is
// omitted, so that the chain's own default applies.
func fillEntry(e Entry, d *Definition) (json.RawMessage, error) {
	t, err := parseEntryInput(e.OnEnter.Input, nil)
	if err == nil {
		err = checkExposed(t, e.Sensitive, d)
	}
	if err != nil {
		return nil, err
	}
	values := map[string]any{
		"context": decodeJSON(e.Context),
		"instance": map[string]any{
			"id": e.Instance, "workflow": e.Workflow, "state": e.State, "revision": json.Number(strconv.FormatInt(e.Revision, 10)),
			"owner": e.Owner, "subject": e.Subject,
		},
	}
	find := func(r reference) (any, error) { return walkPath(values, r, 0) }
	out := map[string]any{}
	for i, key := range t.keys {
		v, err := t.values[i].fill(find)
		if _, missing := errors.AsType[*missingError](err); missing {
			if _, one := t.values[i].(whole); one {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the input %s of the chain %q: %w", quoteName(key), e.OnEnter.Chain, err)
		}
		out[key] = v
	}
	return document.Marshal(out)
}

// entryNames lists the names with which references in an entry's input may begin.
var entryNames = map[string][]string{"context": nil, "instance": {"id", "workflow", "state", "revision", "owner", "subject"}}

// parseEntryInput parses the input of an entry. If set, report gets each reference that can never be
// resolved.
func parseEntryInput(raw json.RawMessage, report func(error)) (objectOf, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return objectOf{}, nil
	}
	n, err := document.Parse("input.json", raw, document.Limits{Bytes: workflow.MaxDefinition})
	if err != nil {
		return objectOf{}, fmt.Errorf("the input of a chain is not JSON: %w", err)
	}
	var wrong error
	t, ok := parseTemplate(n, func(_ *document.Node, err error) { wrong = err }).(objectOf)
	switch {
	case wrong != nil:
		return objectOf{}, wrong
	case !ok:
		return objectOf{}, errors.New("the input of a chain must be an object")
	}
	t.visit(func(r reference) {
		names, known := entryNames[r.segments[0]]
		if report != nil && (!known || names != nil && (len(r.segments) != 2 || !slices.Contains(names, r.segments[1]))) {
			report(fmt.Errorf("unknown reference {{%s}}: use {{context.KEY}}, or {{instance.id}}, workflow, state, revision, owner or subject", r.text))
		}
	}, nil)
	return t, nil
}

// checkExposed rejects an entry input that takes a value which the workflow declares sensitive and the
// chain does not: the run would record and show the value in plain text.
func checkExposed(input objectOf, sensitive []string, d *Definition) error {
	for i, key := range input.keys {
		pointer := document.PointerOf("input", key)
		if slices.ContainsFunc(d.Sensitive, func(p string) bool { return p == string(pointer) || p == "/input/*" }) {
			continue
		}
		var exposed error
		input.values[i].visit(func(r reference) {
			at := slices.IndexFunc(sensitive, func(p string) bool {
				return r.segments[0] == "context" && overlapsPointer(r.segments[1:], document.Pointer(p))
			})
			if at >= 0 {
				exposed = fmt.Errorf("{{%s}} passes the chain %q a sensitive value, %s of the workflow; list %s in the chain's sensitive", r.text, d.Name, sensitive[at], pointer)
			}
		}, nil)

		if exposed != nil {
			return exposed
		}
	}
	return nil
}

// overlapsPointer reports whether path is at, above or below a place that a sensitive pointer names.
func overlapsPointer(path []string, pointer document.Pointer) bool {
	for token := range pointer.Tokens() {
		if len(path) == 0 {
			return true
		}
		if token != "*" && strings.TrimLeft(token, "0") != strings.TrimLeft(path[0], "0") { // an index may have leading zeros
			return false
		}
		path = path[1:]
	}
	return true
}

// EntryStarter starts the runs of entries; *Service implements it. Starting the same entry again starts no
// second run.
type EntryStarter interface {
	StartEntry(ctx context.Context, p engine.Principal, e Entry) error
}

// Entries starts the chains of entered states, from the log.
type Entries struct {
	EntryLog
	Cursors store.Cursors
	// ActsFor returns the principal that the run of an entry acts for: the owner of the instance, with its
	// current rights. It fails if the owner has none.
	ActsFor func(ctx context.Context, e Entry) (engine.Principal, error)
	Log     *slog.Logger
}

// pendingEntry is an entry whose run may not have started yet.
type pendingEntry struct {
	Entry
	since time.Time
}

// entryTerm is one term of a process as the leader that starts runs.
type entryTerm struct {
	*Entries
	runs    EntryStarter
	moved   int64 // the cursor's position
	read    int64 // the log position that was read last
	pending []pendingEntry
}

// RunEntries starts the runs of entries whenever this process is the leader, until ctx ends. The next
// leader begins at the cursor again, but an entry still gets only one run.
func (s *Entries) RunEntries(ctx context.Context, runs EntryStarter) {
	warn := func(err error) {
		s.Log.WarnContext(ctx, "cannot start the chains of workflow states; trying again", "cause", err)
	}
	lead(ctx, s.Engine, jobEntries, warn, func(ctx context.Context) error {
		p := &entryTerm{Entries: s, runs: runs}
		at, err := p.findPosition(ctx)
		if err != nil {
			return err
		}
		p.moved, p.read = at, at
		for ctx.Err() == nil {
			if err := p.startNew(ctx); err != nil {
				return err
			}
			_, _ = pause(ctx, nil, storePoll)
		}
		return nil
	})
}

// findPosition returns the position of the cursor. A missing cursor is created at the end of the log. In
// that case, the only earlier entries whose chains are started are those that instances still wait for.
func (p *entryTerm) findPosition(ctx context.Context) (int64, error) {
	all, err := p.Cursors.Cursors(ctx)
	if err != nil {
		return 0, engine.StoreError("find the cursor", err)
	}
	if at := slices.IndexFunc(all, func(c store.Cursor) bool { return c.Name == EntryCursor }); at >= 0 {
		return all[at].Position, nil
	}
	last, err := p.Store.LastPosition(ctx)
	if err == nil {
		err = p.startAwaited(ctx, last)
	}
	if err == nil {
		err = p.Cursors.MoveCursor(ctx, store.Cursor{Name: EntryCursor, Position: last}, store.NoCursor, store.LeaseOf(ctx))
	}
	if err != nil {
		return 0, engine.StoreError("make the cursor", err)
	}
	return last, nil
}

// startAwaited starts the chains that instances have been waiting for since before the cursor existed.
func (p *entryTerm) startAwaited(ctx context.Context, last int64) error {
	for at := int64(0); at < last; {
		found, _, upTo, err := p.List(ctx, at, maxEntries)
		if err != nil {
			return err
		}
		for _, e := range found {
			if !e.OnEnter.Wait || e.Position > last {
				continue
			}
			now, err := p.FindAwaited(ctx, e.Instance)
			if err != nil {
				return err
			}
			since := p.Engine.Now()
			for started := now == nil || now.Revision != e.Revision; !started; {
				if started, err = p.start(ctx, pendingEntry{e, since}); err != nil {
					return err
				}
				if !started {
					_, _ = pause(ctx, nil, storePoll)
				}
			}
		}
		at = upTo
	}
	return nil
}

// CancelEntry frees an instance that waits for a chain that never ran, as if the chain had failed. It
// returns the name of the chain. by must be an operator.
func CancelEntry(ctx context.Context, l EntryLog, by engine.Principal, instance string) (chain string, err error) {
	entry, err := l.FindAwaited(ctx, instance)
	switch {
	case err != nil:
		return "", err
	case entry == nil:
		return "", &engine.Error{Code: engine.CodeConflict, Message: fmt.Sprintf("The instance %s does not wait for a chain that never ran.", instance), Hint: "To end a run that has begun, use gavel chain cancel RUN."}
	}
	return entry.OnEnter.Chain, settleEntry(ctx, l.Engine, by, EntryRun(entry.Instance, entry.Revision), *entry, false)
}

// startNew reads new entries, starts those it can, and moves the cursor.
func (p *entryTerm) startNew(ctx context.Context) error {
	if room := maxEntries - len(p.pending); room > 0 {
		found, damaged, upTo, err := p.List(ctx, p.read, room)
		if err != nil {
			return err
		}
		for _, err := range damaged {
			p.Log.WarnContext(ctx, "cannot read a state that starts a chain; its chain will not run", "cause", err)
		}
		for _, e := range found {
			p.pending = append(p.pending, pendingEntry{e, p.Engine.Now()})
		}
		p.read = upTo
	}
	var left []pendingEntry
	for _, e := range p.pending {
		started, err := p.start(ctx, e)
		switch {
		case err != nil:
			return err
		case !started:
			left = append(left, e)
		case len(left) == 0: // move it right away, so that a process that is soon killed still makes progress
			if err := p.moveCursor(ctx, e.Position); err != nil {
				return err
			}
		}
	}
	p.pending = left
	if len(left) > 0 {
		return p.moveCursor(ctx, left[0].Position-1)
	}
	return p.moveCursor(ctx, p.read)
}

func (p *entryTerm) moveCursor(ctx context.Context, to int64) error {
	if to <= p.moved {
		return nil
	}
	if err := p.Cursors.MoveCursor(ctx, store.Cursor{Name: EntryCursor, Position: to}, p.moved, store.LeaseOf(ctx)); err != nil {
		return engine.StoreError("move the cursor", err)
	}
	p.moved = to
	return nil
}

// start starts the run of an entry; false means try again later. An entry whose chain cannot start counts
// as failed.
func (p *entryTerm) start(ctx context.Context, e pendingEntry) (started bool, err error) {
	who, err := p.ActsFor(ctx, e.Entry)
	if err == nil {
		if err = p.runs.StartEntry(ctx, who, e.Entry); err == nil {
			return true, nil
		}
		if ctx.Err() != nil || errors.Is(err, store.ErrLeaseLost) {
			return false, err
		}
		if !isFinal(err) && p.Engine.Now().Sub(e.since) < entryPatience {
			return false, nil
		}
	} else {
		who = engine.Principal{ID: e.Owner, Role: engine.RoleAgent}
	}
	p.Log.WarnContext(ctx, "the chain of a state did not start", "chain", e.OnEnter.Chain, "instance", e.Instance, "revision", e.Revision, "cause", err)
	err = settleEntry(ctx, p.Engine, who, EntryRun(e.Instance, e.Revision), e.Entry, false)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil, errors.Is(err, store.ErrLeaseLost):
		return false, err
	case isTemporary(err):
		return false, nil
	}
	p.Log.WarnContext(ctx, "cannot move an instance whose chain did not start", "instance", e.Instance, "cause", err)
	return true, nil
}
