package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/pgtest"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

const canaryFlow = `{"name":"kept","initialState":"a","retention":{"events":"30d"},"sensitive":["/token","/customer/ssn","/list/*/pin","/whole","/evidence/e/token"],"states":{
	"a":{"transitions":{
		"note":"a",
		"fail":{"target":"a","validator":"(data, context) => ({valid: false, confidence: 1, reason: 'saw ' + data.token + ' and ' + context.token})"},
		"ask":{"target":"b","requireAssurance":"human","evidence":[{"name":"e","source":"s","arguments":{"who":"/token"}}]}}},
	"b":{"transitions":{"back":"a","end":"c"}},
	"c":{"final":true,"outcome":"success"}}}`

// canary is in every sensitive value of the tests, and nowhere else.
const canary = "canary-7731"

const canaries = `{"token":"` + canary + `-token","customer":{"ssn":"` + canary + `-ssn","name":"n"},"list":[{"pin":"` + canary + `-pin"}],"whole":{"` + canary + `-name":["` + canary + `-deep"]}}`

// plantCanaries puts the canary into everything that is recorded about an instance.
func plantCanaries(t *testing.T, b *bench) (id, waiting string) {
	t.Helper()
	b.define(operator, canaryFlow)
	s, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "kept", Context: json.RawMessage(canaries), Key: "once"})
	if err != nil {
		t.Fatal(err)
	}
	id = s.ID
	b.refused(agent, id, "fail", `{"token":"`+canary+`-other"}`, judge.CodeValidatorRejected)
	b.moved(agent, id, "note", canaries, "a")
	if _, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "fail", Data: document.ReadTrusted([]byte(canaries))}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id, Description: "as " + canary + "-token", Metadata: json.RawMessage(canaries)}); err != nil {
		t.Fatal(err)
	}
	review := b.parked(agent, id, "ask", canaries)
	if r, err := b.resolve(rita, review.ID, judge.Approve); err != nil || !r.Applied {
		t.Fatalf("%+v, %v", r, err)
	}
	b.undo(operator, id, "a")
	b.redo(operator, id, "b")
	b.moved(agent, id, "back", `{"customer":null}`, "a")
	return id, b.parked(agent, id, "ask", canaries).ID
}

func newCanaryBench(t *testing.T, db store.Store, more ...func(*engine.Config)) *bench {
	t.Helper()
	found := `{"token":"` + canary + `-fetched","ok":true}`
	return newBenchWith(t, db, source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) { return content(found), nil }), func(c *engine.Config) {
		c.ReviewPath = true
		for _, change := range more {
			change(c)
		}
	})
}

// exported returns the content of an export.
func exported(t *testing.T, b *bench) string {
	t.Helper()
	all, err := exportInstances(t.Context(), b, operator, "", "kept")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, one := range all {
		for _, document := range slices.Concat([]json.RawMessage{one.State}, one.Lines, one.Checkpoints) {
			text.Write(document)
		}
	}
	return text.String()
}

// exportInstances exports one instance, or those of a workflow; nil if the module transfer is not linked.
var exportInstances func(ctx context.Context, b *bench, p engine.Principal, instance, workflow string) ([]exportedInstance, error)

type exportedInstance struct {
	ID          string
	State       json.RawMessage
	Lines       []json.RawMessage
	Checkpoints []json.RawMessage
}

// holdsCanary returns the files below a folder that hold the canary.
func holdsCanary(t *testing.T, folder string) (found []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(canary)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("%d files in %s: %v", files, folder, err)
	}
	return found
}

// Neither the store nor an export holds a byte of a sensitive value. Signatures and hashes stay valid
// after the values are destroyed.
func TestSealedValuesAtRest(t *testing.T) {
	signer, err := record.GenerateSigner("test")
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, db store.Store, folder string, alsoLook func(t *testing.T)) {
		b := newCanaryBench(t, db).signedBy(signer)
		id, waiting := plantCanaries(t, b)
		if got := string(b.opened(id).Context); !strings.Contains(got, canary+"-token") || !strings.Contains(got, canary+"-deep") {
			t.Errorf("what people see: %s", got)
		}
		if a, err := b.Anchor(t.Context(), operator); err != nil || !a.Written {
			t.Fatalf("%+v, %v", a, err)
		}
		sound := func(when string) {
			t.Helper()
			v, err := b.Verify(t.Context(), operator, audit.VerifyRequest{})
			if err != nil || len(v.Problems) > 0 {
				t.Errorf("%s: %+v, %v", when, v, err)
			}
			if exportInstances == nil {
				return
			}
			if text := exported(t, b); strings.Contains(text, canary) || !strings.Contains(text, id) {
				t.Errorf("%s: the export: %s", when, text)
			}
			if found := holdsCanary(t, folder); len(found) > 0 {
				t.Errorf("%s: the canary is in %v", when, found)
			}
			alsoLook(t)
		}
		sound("before")
		if n, err := b.ShredInstance(t.Context(), operator, id); err != nil || n != 1 {
			t.Fatalf("%d, %v", n, err)
		}
		sound("after")
		afterShred(t, b, id, waiting)
		sound("at the end")
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		folder := t.TempDir()
		db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(folder, "gavel.db")})
		if err != nil {
			t.Fatal(err)
		}
		check(t, db, folder, func(*testing.T) {})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := pgtest.New(t)
		db, err := driver.Open(t.Context(), driver.Config{Address: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		check(t, db, server.Folder(), func(t *testing.T) {
			server.Exec(t, "CHECKPOINT")
			dump, err := exec.Command("pg_dump", server.URL).Output() //nolint:gosec // the test's own server
			if err != nil || bytes.Contains(dump, []byte(canary)) || !bytes.Contains(dump, []byte("events")) {
				t.Errorf("pg_dump: %d bytes, with the canary: %v, %v", len(dump), bytes.Contains(dump, []byte(canary)), err)
			}
		})
	})
}

// afterShred checks the rest of an instance whose values were destroyed.
func afterShred(t *testing.T, b *bench, id, waiting string) {
	t.Helper()
	status, err := b.Status(t.Context(), agent, id)
	if err != nil || !strings.Contains(string(status.Context), `"token":"[destroyed]"`) || strings.Contains(string(status.Context), "sealed") {
		t.Errorf("status: %s, %v", status.Context, err)
	}
	if seen, err := b.Status(t.Context(), auditor, id); err != nil || !strings.Contains(string(seen.Context), `"whole":"[destroyed]"`) {
		t.Errorf("status for an auditor: %s, %v", seen.Context, err)
	}
	decisions, next := 0, int64(0) // pages end early on a slow machine
	for more := true; more; {
		h, err := b.History(t.Context(), auditor, engine.HistoryRequest{ID: id, AfterSeq: next})
		if err != nil {
			t.Fatal(err)
		}
		decisions, next = decisions+h.Count, h.NextAfter
		more = next != 0
	}
	if decisions < 8 {
		t.Errorf("%d decisions", decisions)
	}
	if exportInstances != nil && !strings.Contains(exported(t, b), `"token":"[destroyed]"`) {
		t.Error("the export does not say that values were destroyed")
	}
	before := b.load(id).Seq
	_, advanced := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "note", Data: document.ReadTrusted([]byte(`{}`))})
	_, undone := b.Undo(t.Context(), operator, engine.UndoRequest{ID: id})
	_, validated := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "note", Data: document.ReadTrusted([]byte(`{}`))})
	_, rotated := b.RotateKey(t.Context(), operator, id)
	for what, err := range map[string]error{"advance": advanced, "undo": undone, "validate": validated, "rotate": rotated} {
		if engine.CodeOf(err) != engine.CodeValuesDestroyed {
			t.Errorf("%s: %v", what, err)
		}
	}
	if now := b.load(id).Seq; now != before {
		t.Errorf("%d events were recorded", now-before)
	}
	if r, err := b.resolve(rita, waiting, judge.Approve); err != nil || r.Applied || r.Review.Status != record.ReviewStale {
		t.Errorf("the review: %+v, %v", r, err)
	}
	if r, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "kept", Context: json.RawMessage(canaries), Key: "once"}); err != nil || !r.Replayed || r.ID != id {
		t.Errorf("the same start again: %+v, %v", r, err)
	}
	if _, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: id}); err != nil {
		t.Errorf("cancel: %v", err)
	}
}

// A store from before sealing keeps its plain values, and seals new ones.
func TestSealingBeginsWithTheNextEvent(t *testing.T) {
	t.Parallel()
	db := memory.New()
	old := newCanaryBench(t, db, func(c *engine.Config) { c.ValueKey = nil })
	old.define(operator, canaryFlow)
	id := old.start(agent, "kept", canaries).ID
	old.moved(agent, id, "note", `{"token":"`+canary+`-second"}`, "a")
	review := old.parked(agent, id, "ask", canaries)
	b := newBenchWith(t, noClose{db}, source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
		return content(`{"token":"` + canary + `-fetched","ok":true}`), nil
	}), func(c *engine.Config) { c.ReviewPath = true })
	b.pass(old.now.Sub(b.now))
	if keys, err := b.ListKeys(t.Context(), operator, ""); err != nil || len(keys) != 1 || keys[0].PlainEvents != 2 || len(keys[0].Keys) > 0 {
		t.Errorf("%+v, %v", keys, err)
	}
	if r, err := b.resolve(rita, review.ID, judge.Approve); err != nil || !r.Applied {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := string(b.load(id).Context); strings.Contains(got, canary) {
		t.Errorf("kept: %s", got)
	}
	b.undo(operator, id, "a")
	if got := string(b.load(id).Context); !strings.Contains(got, canary) {
		t.Errorf("what was in force before: %s", got)
	}
	b.verify(id)
	keys, err := b.ListKeys(t.Context(), operator, id)
	if err != nil || len(keys) != 1 || keys[0].PlainEvents != 2 || len(keys[0].Keys) != 1 {
		t.Errorf("%+v, %v", keys, err)
	}
	// An engine without a key works with plain values and fails on sealed ones.
	if _, err := old.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "note", Data: document.ReadTrusted([]byte(canaries))}); err != nil {
		t.Errorf("an older version: %v", err)
	}
	b.moved(agent, id, "note", canaries, "a")
	if _, err := old.Status(t.Context(), agent, id); engine.CodeOf(err) != engine.CodeValuesUnreadable {
		t.Errorf("without the key: %v", err)
	}
}

// noClose is a store that the test closes elsewhere.
type noClose struct{ *memory.Store }

func (noClose) Close() error { return nil }

// A review that is raised keeps its data as they were sealed. One whose values were destroyed is raised
// like any other.
func TestRaisedReviewOfSealedValues(t *testing.T) {
	t.Parallel()
	b := newCanaryBench(t, memory.New())
	b.define(operator, strings.Replace(canaryFlow, `"requireAssurance":"human",`, `"requireAssurance":"human","review":{"expiresAfter":"1h","onExpire":"raise"},`, 1))
	id, other := b.start(agent, "kept", canaries).ID, b.start(agent, "kept", canaries).ID
	review := b.parked(agent, id, "ask", canaries)
	b.parked(agent, other, "ask", canaries)
	if _, err := b.ShredInstance(t.Context(), operator, other); err != nil {
		t.Fatal(err)
	}
	b.pass(2 * time.Hour)
	if n, err := b.ExpireReviews(t.Context()); n != 2 || err != nil {
		t.Fatalf("%d raised, %v", n, err)
	}
	row, err := store.FindReview(t.Context(), b.store, review.ID)
	if err != nil || strings.Contains(string(row.Data), canary) {
		t.Errorf("%s, %v", row.Data, err)
	}
	if r, err := b.resolve(rita, review.ID, judge.Approve); err != nil || !r.Applied {
		t.Errorf("%+v, %v", r, err)
	}
	if got := string(b.opened(id).Context); !strings.Contains(got, canary+"-token") || strings.Contains(got, workflow.SealedForm) {
		t.Errorf("%s", got)
	}
}

// Input from a caller is never treated as a sealed value.
func TestSealedValuesAreRefusedAsInput(t *testing.T) {
	t.Parallel()
	b := newCanaryBench(t, memory.New())
	b.define(operator, canaryFlow)
	id := b.start(agent, "kept", canaries).ID
	stolen := b.load(id).Context // even a caller's own
	for _, doc := range []string{string(stolen), `{"open":"gavel:sealed:x"}`, `{"deep":[{"a":"\u0067avel:sealed:1:1:1:AAAA"}]}`, `{"token":"gavel:sealed:"}`} {
		_, started := b.Start(t.Context(), agent, engine.StartRequest{Type: "kept", Context: json.RawMessage(doc)})
		_, moved := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "note", Data: document.ReadTrusted([]byte(doc))})
		for _, err := range []error{started, moved} {
			if engine.CodeOf(err) != engine.CodeInvalidData || !strings.Contains(err.Error(), "only gavel writes") {
				t.Errorf("%s: %v", doc, err)
			}
		}
	}
	b.moved(agent, id, "note", `{"open":"see gavel:sealed:1 in the manual","token":"[destroyed]"}`, "a")
	if got := b.opened(id); !strings.Contains(string(got.Context), "see gavel:sealed:1") || got.IsDestroyed() {
		t.Errorf("%s", got.Context)
	}
}

// Rows that were assembled by hand are refused.
func TestSealedValuesOfAnotherRow(t *testing.T) {
	t.Parallel()
	b := newCanaryBench(t, memory.New())
	b.define(operator, canaryFlow)
	mine := b.start(agent, "kept", canaries).ID
	theirs := b.start(agent, "kept", canaries).ID
	b.moved(agent, theirs, "note", `{"open":1}`, "a")
	e := newCanaryBench(t, swapped{noClose{b.store.(*memory.Store)}, mine, theirs})
	if _, err := e.Status(t.Context(), agent, mine); engine.CodeOf(err) != engine.CodeValuesUnreadable || strings.Contains(err.Error(), canary) {
		t.Errorf("status: %v", err)
	}
	if _, err := e.Advance(t.Context(), agent, engine.AdvanceRequest{ID: mine, Action: "note", Data: document.ReadTrusted([]byte(`{}`))}); engine.CodeOf(err) != engine.CodeValuesUnreadable {
		t.Errorf("advance: %v", err)
	}
	if e.Values().Refused() != 2 {
		t.Errorf("%d were counted", e.Values().Refused())
	}
}

// swapped returns one instance with the context of another.
type swapped struct {
	noClose
	id, from string
}

func (s swapped) Load(ctx context.Context, id string) (record.Instance, error) {
	inst, err := s.Store.Load(ctx, id)
	if id == s.id && err == nil {
		other, err := s.Store.Load(ctx, s.from)
		inst.Context = other.Context
		return inst, err
	}
	return inst, err
}

// Rotation under load loses nothing.
func TestRotateUnderLoad(t *testing.T) {
	t.Parallel()
	b := newCanaryBench(t, memory.New())
	b.define(operator, canaryFlow)
	id := b.start(agent, "kept", canaries).ID
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				if _, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "note", Data: document.ReadTrusted([]byte(canaries))}); err != nil {
					t.Errorf("advance: %v", err)
				}
			}
		})
	}
	all.Go(func() {
		for range 10 {
			if _, err := b.RotateKey(t.Context(), operator, id); err != nil {
				t.Errorf("rotate: %v", err)
			}
		}
	})
	all.Wait()
	b.verify(id)
	if got := string(b.opened(id).Context); got != canaries {
		t.Errorf("%s", got)
	}
	if keys, err := b.ListKeys(t.Context(), operator, id); err != nil || len(keys) != 1 || len(keys[0].Keys) != 11 {
		t.Errorf("%+v, %v", keys, err)
	}
	for _, ev := range b.events(id) {
		if opened, _, err := b.Values().OpenEvent(t.Context(), ev); err != nil || !strings.Contains(string(opened.Patch), canary) || strings.Contains(string(ev.Patch), canary) {
			t.Fatalf("event %d: %s, %v", ev.Seq, opened.Patch, err)
		}
	}
}
