package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/validators/document"
)

func anchorBench(t testing.TB, db store.Store, key audit.Signer) *bench {
	t.Helper()
	b := newBenchOn(t, db).signedBy(key)
	b.define(operator, ledgerWorkflow)
	return b
}

func (b *bench) anchor() audit.AnchorResult {
	b.t.Helper()
	a, err := b.Anchor(b.t.Context(), operator)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func TestAnchorsCoverChangedInstances(t *testing.T) {
	key := newSigner(t)
	b := anchorBench(t, memory.New(), key)
	zero := b.anchor()
	if !zero.Written || zero.Number != 1 || zero.Instances != 0 || zero.Events != 0 {
		t.Errorf("a definition: %+v", zero)
	}
	if a := b.anchor(); a.Written || a.Number != 1 {
		t.Errorf("nothing has happened: %+v", a)
	}
	first := b.start(agent, "ledger", `{}`).ID
	b.start(agent, "ledger", `{}`)
	one := b.anchor()
	if !one.Written || one.Number != 2 || one.Instances != 2 || one.Events != 2 {
		t.Errorf("the first: %+v", one)
	}
	if again := b.anchor(); again.Written || again.Number != 2 || again.Note != one.Note {
		t.Errorf("nothing has happened since: %+v", again)
	}
	b.advance(agent, first, "go", `{"why":"x"}`)
	b.advance(agent, first, "back", `{}`)
	two := b.anchor()
	if two.Number != 3 || two.Instances != 1 || two.Events != 4 {
		t.Errorf("the second: %+v", two)
	}
	text, err := record.OpenNote(two.Note, key.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	said, err := record.ParseAnchor(text)
	if err != nil || said.Size != 4 || said.Number != 3 || said.Previous != record.HashNote(one.Note) || said.Origin != "gavel-test" || !said.Time.Equal(two.At) {
		t.Errorf("%+v, %v", said, err)
	}
	var notes []string
	for a, err := range b.Anchors(t.Context(), auditor, 0) {
		if err != nil {
			t.Fatal(err)
		}
		notes = append(notes, a.Note)
	}
	if !slices.Equal(notes, []string{zero.Note, one.Note, two.Note}) {
		t.Errorf("listed: %q", notes)
	}
}

func TestAnchorNeedsAKeyAndAnOperator(t *testing.T) {
	b := anchorBench(t, memory.New(), nil)
	b.start(agent, "ledger", `{}`)
	_, err := b.Anchor(t.Context(), operator)
	var e *engine.Error
	if !errors.As(err, &e) || e.Code != engine.CodeUnavailable || !strings.Contains(e.Hint, "--anchor-key") {
		t.Errorf("without a key: %v", err)
	}
	for _, p := range []engine.Principal{agent, reviewer, auditor, {}} {
		if _, err := b.Anchor(t.Context(), p); engine.CodeOf(err) != engine.CodeForbidden {
			t.Errorf("%s anchors: %v", p.Role, err)
		}
		_, err := b.Verify(t.Context(), p, audit.VerifyRequest{})
		if allowed := p.Role == engine.RoleAuditor; allowed != (err == nil) {
			t.Errorf("%s verifies: %v", p.Role, err)
		}
	}
	for _, err := range b.Anchors(t.Context(), agent, 0) {
		if engine.CodeOf(err) != engine.CodeForbidden {
			t.Errorf("an agent lists anchors: %v", err)
		}
	}
}

// Several processes may anchor one store: every anchor is written once.
func TestAnchorsOfSeveralProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gavel.db")
	key := newSigner(t)
	l := &ledger{path: path, key: key}
	a, _ := l.open(t, path)
	b, _ := l.open(t, path)
	a.define(operator, ledgerWorkflow)
	var wg sync.WaitGroup
	for i, one := range []*bench{a, b} {
		wg.Go(func() {
			for range 10 {
				id, err := one.Start(t.Context(), agent, engine.StartRequest{Type: "ledger"})
				if err != nil {
					t.Errorf("process %d: start: %v", i, err)
					return
				}
				if _, err := one.Anchor(t.Context(), operator); err != nil && engine.CodeOf(err) != engine.CodeBusy {
					t.Errorf("process %d, %s: %v", i, id.ID, err)
				}
			}
		})
	}
	wg.Wait()
	a.anchor()
	r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{key.Verifier()}})
	if err != nil || !r.Clean() || r.Instances != 20 || r.Unanchored != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// overtakenAnchors lets another process anchor first.
type overtakenAnchors struct {
	lapsing
	first func()
}

func (s *overtakenAnchors) AddAnchor(ctx context.Context, a store.Anchor) error {
	if first := s.first; first != nil {
		s.first = nil
		first()
	}
	return s.Store.AddAnchor(ctx, a)
}

// A process that slept past the end of its lease writes no anchor. Later it continues from the anchor of
// the process that was faster.
func TestAnchorContinuesFromTheFirstWriter(t *testing.T) {
	db, key := &overtakenAnchors{lapsing: lapsing{Store: memory.New()}}, newSigner(t)
	b := anchorBench(t, db, key)
	other := newBenchOn(t, db.Store).signedBy(key)
	b.start(agent, "ledger", `{}`)
	db.first = func() {
		db.lapse(t)
		other.anchor()
		b.start(agent, "ledger", `{}`)
	}
	_, err := b.Anchor(t.Context(), operator)
	wantCode(t, err, engine.CodeBusy)
	if a := b.anchor(); !a.Written || a.Number != 2 || a.Instances != 1 {
		t.Errorf("%+v", a)
	}
	r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{key.Verifier()}})
	if err != nil || !r.Clean() || r.Anchors != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Even with the key, an anchor cannot be replaced if another anchor names it.
func TestVerifyFollowsTheAnchors(t *testing.T) {
	key := newSigner(t)
	for name, change := range map[string]func(*record.Anchor){
		"nothing":                func(*record.Anchor) {},
		"another anchor before":  func(a *record.Anchor) { a.Previous = record.HashNote("x") },
		"none before":            func(a *record.Anchor) { a.Previous = "" },
		"another number":         func(a *record.Anchor) { a.Number = 3 },
		"another time":           func(a *record.Anchor) { a.Time = a.Time.Add(1) },
		"another root":           func(a *record.Anchor) { a.Root[0]++ },
		"more leaves than there": func(a *record.Anchor) { a.Size++ },
	} {
		db := memory.New()
		b := anchorBench(t, db, key)
		b.start(agent, "ledger", `{}`)
		one := b.anchor()
		first, err := store.First(db.Anchors(t.Context(), store.LastAnchor), "an anchor")
		if err != nil {
			t.Fatal(err)
		}
		tree, _, err := record.DecodeHeads(first.Heads)
		if err != nil {
			t.Fatal(err)
		}
		said := record.Anchor{
			Origin: key.Name(), Size: tree.Size(), Root: tree.Root(), Number: 2, Previous: record.HashNote(one.Note), Time: one.At, Events: one.Events,
		}
		change(&said)
		note, err := key.Sign(said.Text())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.AddAnchor(t.Context(), store.Anchor{Number: 2, At: one.At, Note: note, Heads: record.EncodeHeads(tree, nil)}); err != nil {
			t.Fatal(err)
		}
		r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{key.Verifier()}})
		if err != nil || r.Clean() != (name == "nothing") {
			t.Errorf("%s: %+v, %v", name, r.Problems, err)
		}
		for _, p := range r.Problems {
			if p.Kind != audit.BreakAnchor || p.Anchor != 2 {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

// An anchor never continues from a damaged one.
func TestAnchorRefusesADamagedOne(t *testing.T) {
	db := memory.New()
	b := anchorBench(t, db, newSigner(t))
	b.start(agent, "ledger", `{}`)
	if err := db.AddAnchor(t.Context(), store.Anchor{Number: 1, Note: "nothing\n", Heads: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	_, err := b.Anchor(t.Context(), operator)
	var e *engine.Error
	if !errors.As(err, &e) || e.Code != engine.CodeUnavailable || !strings.Contains(e.Hint, "gavel verify") {
		t.Errorf("got %v", err)
	}
}

func TestVerifyHonoursKeysAndInstance(t *testing.T) {
	key := newSigner(t)
	b := anchorBench(t, memory.New(), key)
	id := b.start(agent, "ledger", `{}`).ID
	b.start(agent, "ledger", `{}`)
	b.anchor()
	b.advance(agent, id, "go", `{"why":"x"}`)
	var told int64
	r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Jobs: 3, Progress: func(instances, _ int64) { told = instances }})
	if err != nil || !r.Clean() || r.Signed || r.Instances != 2 || r.Events != 3 || r.Anchors != 1 || r.Unanchored != 1 || r.AnchoredAt == nil {
		t.Errorf("without keys: %+v, %v", r, err)
	}
	if told == 0 {
		t.Error("no progress was told")
	}
	r, err = b.Verify(t.Context(), auditor, audit.VerifyRequest{Instance: id, Keys: []*record.Verifier{key.Verifier()}})
	if err != nil || !r.Clean() || !r.Signed || r.Instances != 1 || r.Events != 2 {
		t.Errorf("one instance: %+v, %v", r, err)
	}
	if _, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Instance: "wf-none"}); engine.CodeOf(err) != engine.CodeUnknownInstance {
		t.Errorf("none: %v", err)
	}
	r, err = b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{newSigner(t).Verifier()}})
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Kind != audit.BreakAnchor || r.Problems[0].Anchor != 1 {
		t.Errorf("with another key: %+v, %v", r, err)
	}
	r, err = b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{newSigner(t).Verifier(), key.Verifier()}})
	if err != nil || !r.Clean() {
		t.Errorf("with an old key and a new one: %+v, %v", r, err)
	}
	r, err = b.Verify(t.Context(), auditor, audit.VerifyRequest{Published: []string{"nonsense"}})
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Kind != audit.BreakAnchor {
		t.Errorf("a published note that is none: %+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Verify(ctx, auditor, audit.VerifyRequest{}); engine.CodeOf(err) != engine.CodeCancelled {
		t.Errorf("cancelled: %v", err)
	}
}

// Writes during a verification are not reported as a break.
func TestVerifyUnderWrites(t *testing.T) {
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "gavel.db")})
	if err != nil {
		t.Fatal(err)
	}
	key := newSigner(t)
	b := anchorBench(t, db, key)
	var ids []string
	for range 4 {
		ids = append(ids, b.start(agent, "ledger", `{}`).ID)
	}
	b.anchor() // a verification with a key expects an anchor
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			id, action := ids[i%len(ids)], []string{"go", "back"}[i/len(ids)%2]
			if _, err := b.Advance(context.Background(), agent, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(`{"why":"x"}`))}); err != nil {
				t.Errorf("advance: %v", err)
				return
			}
			if i%20 == 0 {
				if _, err := b.Anchor(context.Background(), operator); err != nil {
					t.Errorf("anchor: %v", err)
				}
			}
		}
	}()
	times := 5 // each takes longer because of the writes in between
	if storetest.Long() {
		times = 15
	}
	for range times {
		r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{key.Verifier()}})
		if err != nil || !r.Clean() {
			t.Errorf("%+v, %v", r.Problems, err)
			break
		}
	}
	close(stop)
	<-ended
}

// Random operations on instances, in any order and with any number of anchors, leave a store that
// verifies. So do removals of the beginning of histories.
func TestRandomHistoriesVerifyClean(t *testing.T) {
	key := newSigner(t)
	t.Run("memory", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) { writeAndVerify(t, rt, memory.New(), key) })
	})
	t.Run("sqlite", func(t *testing.T) {
		runs := 0
		rapid.Check(t, func(rt *rapid.T) {
			if runs++; runs <= 10 { // every write waits for the disk
				writeAndVerify(t, rt, openSQLite(t), key)
			}
		})
	})
}

func writeAndVerify(t *testing.T, rt *rapid.T, db store.Store, key *record.Signer) {
	t.Helper()
	b := anchorBench(t, db, key)
	w := &writer{bench: b, rt: rt, key: key}
	var published []string
	w.start()
	rt.Repeat(map[string]func(*rapid.T){
		"start":      func(*rapid.T) { w.start() },
		"advance":    func(*rapid.T) { w.advance() },
		"checkpoint": func(*rapid.T) { w.checkpoint() },
		"rollback":   func(*rapid.T) { w.rollback() },
		"shorten":    func(*rapid.T) { w.shorten() },
		"anchor": func(*rapid.T) {
			if a := b.anchor(); a.Written {
				published = append(published, a.Note)
			}
		},
	})
	var events int64
	for _, id := range w.ids {
		events += w.left(id)
	}
	var req audit.VerifyRequest
	if len(published) > 0 {
		req.Published, req.Keys = published, []*record.Verifier{key.Verifier()}
	}
	r, err := b.Verify(t.Context(), auditor, req)
	if err != nil || !r.Clean() || r.Events != events || r.Instances != int64(len(w.ids)) || r.Published != len(published) {
		rt.Fatalf("%d events of %d instances: %+v, %v", events, len(w.ids), r, err)
	}
}

func openSQLite(t *testing.T) store.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "gavel.db")})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// writer performs random operations on instances.
type writer struct {
	*bench
	rt          *rapid.T
	key         *record.Signer
	ids         []string
	checkpoints [][2]string
}

func (w *writer) one() string { return rapid.SampledFrom(w.ids).Draw(w.rt, "instance") }

func (w *writer) start() { w.ids = append(w.ids, w.bench.start(agent, "ledger", `{"title":"x"}`).ID) }

func (w *writer) advance() {
	_, err := w.Advance(context.Background(), agent, engine.AdvanceRequest{
		ID: w.one(), Action: rapid.SampledFrom([]string{"go", "back", "end", "fly"}).Draw(w.rt, "action"),
		Data: document.ReadTrusted([]byte(rapid.SampledFrom([]string{`{}`, `{"why":"<a>"}`, `{"why":null,"n":1.50}`}).Draw(w.rt, "data"))),
	})
	if err != nil {
		w.rt.Fatal(err)
	}
}

func (w *writer) checkpoint() {
	id := w.one()
	if cp, err := w.Checkpoint(context.Background(), agent, engine.CheckpointRequest{ID: id}); err == nil {
		w.checkpoints = append(w.checkpoints, [2]string{id, cp.CheckpointID})
	}
}

func (w *writer) rollback() {
	if len(w.checkpoints) == 0 {
		w.rt.Skip("no checkpoint yet")
	}
	cp := rapid.SampledFrom(w.checkpoints).Draw(w.rt, "checkpoint")
	// It is not an error here if the checkpoint was removed with the beginning of its history.
	_, err := w.Rollback(context.Background(), operator, engine.RollbackRequest{ID: cp[0], CheckpointID: cp[1]})
	if err != nil && engine.CodeOf(err) != engine.CodeUnknownCheckpoint {
		w.rt.Fatal(err)
	}
}

// shorten removes the beginning of a history to which no later event returns.
func (w *writer) shorten() {
	ctx := context.Background()
	inst := w.load(w.one())
	var events []record.Event
	for e, err := range w.store.Events(ctx, store.EventQuery{Instance: inst.ID}) {
		if err != nil {
			w.rt.Fatal(err)
		}
		if e.Rollback != nil || e.Checkpoint != nil {
			w.rt.Skip("it goes back")
		}
		events = append(events, e)
	}
	if events[0].Seq != 1 || len(events) < 2 {
		w.rt.Skip("short already")
	}
	upTo := rapid.IntRange(1, len(events)-1).Draw(w.rt, "upTo")
	if w.at(inst.ID, int64(upTo)).Revision == inst.Revision {
		w.rt.Skip("a checkpoint would take the place of what the rest begins with")
	}
	sealed, next := shortened(w.t, w.bench, inst, int64(upTo), w.key)
	floor := w.at(inst.ID, int64(upTo))
	if err := w.store.Commit(ctx, store.Commit{Expect: inst.Seq, Events: sealed, Next: next, Floor: &floor}); err != nil {
		w.rt.Fatal(err)
	}
}

// left returns how many events of an instance are stored.
func (w *writer) left(id string) (n int64) {
	for _, err := range w.store.Events(context.Background(), store.EventQuery{Instance: id}) {
		if err != nil {
			w.rt.Fatal(fmt.Errorf("count: %w", err))
		}
		n++
	}
	return n
}

// With a key and no anchor, verification fails: anyone who can write the store could delete all anchors
// and recompute every hash.
func TestVerifyWithAKeyAndNoAnchor(t *testing.T) {
	t.Parallel()
	key := newSigner(t)
	b := anchorBench(t, memory.New(), key)
	b.define(operator, simple)
	b.start(agent, "simple", `{}`)
	req := audit.VerifyRequest{Keys: []*record.Verifier{key.Verifier()}}
	r, err := b.Verify(t.Context(), auditor, req)
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Kind != audit.BreakAnchor || r.Signed {
		t.Errorf("%+v, %v", r, err)
	}
	b.anchor()
	if r, err = b.Verify(t.Context(), auditor, req); err != nil || !r.Clean() || !r.Signed {
		t.Errorf("%+v, %v", r, err)
	}
}

// An empty list of published anchors is a problem: it could hide that an older store was restored.
func TestVerifyAgainstNothingPublished(t *testing.T) {
	t.Parallel()
	b := anchorBench(t, memory.New(), newSigner(t))
	b.start(agent, "ledger", `{}`)
	b.anchor()
	r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Published: []string{}})
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Kind != audit.BreakAnchor || r.Published != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
