package storecopy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/store/rows"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/modules/postgres"
	"github.com/gavel-mcp/gavel/internal/modules/postgres/storecopy"
	"github.com/gavel-mcp/gavel/internal/pgtest"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func TestMain(m *testing.M) {
	worker.Main(workflow.AnswerLintRequest)
	storetest.UseMemory()
	storetest.SampleProperties(8)
	code := m.Run()
	pgtest.StopShared()
	os.Exit(code)
}

// opened is implemented by the stores of both drivers.
type opened interface {
	store.Store
	OpenView(ctx context.Context) (rows.View, error)
}

// newStore is an unfinished store of either driver.
type newStore interface {
	rows.Writer
	Finish(ctx context.Context) error
	Close() error
}

// place is the location of a store, which may not exist yet.
type place struct {
	name   string
	open   func() (opened, error)
	create func() (newStore, error)
}

func sqliteAt(path string) place {
	return place{
		"sqlite",
		func() (opened, error) { return sqlite.Open(context.Background(), sqlite.Config{Path: path}) },
		func() (newStore, error) { return sqlite.Create(context.Background(), path) },
	}
}

func postgresAt(server *pgtest.Server, schema string) place {
	cfg := postgres.Config{URL: server.Fast, Schema: schema}
	return place{
		"postgres",
		func() (opened, error) { return postgres.Open(context.Background(), cfg) },
		func() (newStore, error) { return postgres.Create(context.Background(), cfg) },
	}
}

func mustOpen(t testing.TB, p place) opened {
	t.Helper()
	s, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeAll(t testing.TB, all ...interface{ Close() error }) {
	t.Helper()
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func viewOf(s opened) func(context.Context) (rows.View, error) { return s.OpenView }

func noProgress(string, int64) {}

// dump returns every row of a store.
func dump(t testing.TB, s opened) map[string][]rows.Row {
	t.Helper()
	view, err := s.OpenView(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, view)
	all := map[string][]rows.Row{}
	for _, table := range rows.Tables {
		for row, err := range view.Rows(context.Background(), table) {
			if err != nil {
				t.Fatal(err)
			}
			all[table.Name] = append(all[table.Name], row)
		}
	}
	return all
}

func requireSame(t testing.TB, got, want map[string][]rows.Row) {
	t.Helper()
	for _, table := range rows.Tables {
		if !slices.EqualFunc(got[table.Name], want[table.Name], rows.Row.Equal) {
			t.Fatalf("%s:\n got %v\nwant %v", table.Name, got[table.Name], want[table.Name])
		}
	}
}

func requireSameRows(t testing.TB, a, b opened, want bool) {
	t.Helper()
	ctx := context.Background()
	viewA, errA := a.OpenView(ctx)
	viewB, errB := b.OpenView(ctx)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, viewA, viewB)
	if _, err := storecopy.Compare(ctx, viewA, viewB, noProgress); err != nil && !errors.Is(err, storecopy.ErrDifferent) || (err == nil) != want {
		t.Fatal(err)
	}
}

// history writes random operations to a store through the engine.
type history struct {
	*engine.Engine
	*audit.Auditor
	db  store.Store
	now time.Time
	ids []string
	n   int
}

var (
	agent    = engine.Principal{ID: "ada\x00lovelace", Role: engine.RoleAgent}
	operator = engine.Principal{ID: "op", Role: engine.RoleOperator}
	reviewer = engine.Principal{ID: "rev", Role: engine.RoleReviewer}
)

const flow = `{"name":"flow","initialState":"a","retention":{"events":"30d"},"sensitive":["/secret"],"states":{
	"a":{"transitions":{"go":{"target":"b","requiredFields":["x"]},"stay":"a"}},
	"b":{"transitions":{"back":"a","ask":{"target":"c","requireAssurance":"human"},"end":"c"}},
	"c":{"final":true,"outcome":"success"}}}`

var signer = func() *record.Signer {
	s, err := record.GenerateSigner("test")
	if err != nil {
		panic(err)
	}
	return s
}()

func newHistory(t testing.TB, db store.Store) *history {
	t.Helper()
	h := &history{db: db, now: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	h.Engine = enginetest.New(t, judge.Config{}, func(cfg *engine.Config) {
		cfg.Store, cfg.ReviewPath = db, true
		cfg.Now = func() time.Time { h.now = h.now.Add(time.Millisecond); return h.now }
	})
	var err error
	if h.Auditor, err = audit.New(audit.Config{Engine: h.Engine, Store: db, Signer: signer}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Define(context.Background(), operator, engine.DefineRequest{Source: "test", Document: []byte(flow)}); err != nil {
		t.Fatal(err)
	}
	return h
}

// step performs one operation. Operations that the engine refuses count as well.
func (h *history) step(rt *rapid.T) {
	ctx := context.Background()
	id := ""
	if len(h.ids) > 0 {
		id = rapid.SampledFrom(h.ids).Draw(rt, "id")
	}
	h.n++
	key := ""
	if rapid.Bool().Draw(rt, "with key") {
		key = fmt.Sprintf("key-%d", h.n)
	}
	what := rapid.SampledFrom([]string{"start", "start", "advance", "advance", "advance", "validate", "checkpoint", "rollback", "resolve", "configure", "redefine", "lesson", "count", "cursor", "data key", "anchor", "retain"}).Draw(rt, "what")
	if id == "" {
		what = "start"
	}
	switch what {
	case "start":
		r, err := h.Start(ctx, agent, engine.StartRequest{Type: "flow", Key: key, Subject: rapid.SampledFrom([]string{"", "it", "that\x00one"}).Draw(rt, "subject"), Context: json.RawMessage(`{"secret":"s3"}`)})
		if err == nil && r.ID != "" {
			h.ids = append(h.ids, r.ID)
		}
	case "advance":
		_, _ = h.Advance(ctx, agent, engine.AdvanceRequest{
			ID: id, Key: key, Action: rapid.SampledFrom([]string{"go", "go", "stay", "back", "ask", "end", "fly"}).Draw(rt, "action"),
			Data: document.ReadTrusted([]byte(rapid.SampledFrom([]string{`{}`, `{"x":1}`, `{"x":"ä\u0000","secret":"t"}`}).Draw(rt, "data"))),
		})
	case "validate":
		_, _ = h.Validate(ctx, agent, engine.AdvanceRequest{ID: id, Action: "go"})
	case "checkpoint":
		_, _ = h.Checkpoint(ctx, agent, engine.CheckpointRequest{ID: id})
	case "rollback":
		_, _ = h.Rollback(ctx, operator, engine.RollbackRequest{ID: id})
	case "resolve":
		list, err := h.Reviews(ctx, reviewer, engine.ReviewsRequest{})
		if err == nil && len(list.Reviews) > 0 {
			_, _ = h.Resolve(ctx, reviewer, engine.ResolveRequest{ID: list.Reviews[0].ID, Decision: judge.Approve, Reason: "It is fine."})
		}
	case "configure":
		_, _ = h.ConfigureJudge(ctx, operator, engine.JudgeConfigRequest{Name: "flow", Settings: workflow.JudgeSettings{StrictMode: new(h.n%2 == 0)}})
	case "redefine":
		_, _ = h.Define(ctx, operator, engine.DefineRequest{Source: "test", Document: []byte(strings.Replace(flow, `"30d"`, fmt.Sprintf(`"%dd"`, h.n%20+1), 1))})
	case "lesson":
		if err := h.db.Commit(ctx, store.Commit{Lesson: &store.Lesson{
			Guard: "g\x00", Identity: fmt.Sprint("i", h.n%3), Principal: "p", Workflow: "flow", Action: "go", At: h.now,
			Refused: true, Opinion: json.RawMessage(`{"outcome":"rejected"}`),
		}}); err != nil {
			rt.Fatal(err)
		}
	case "count":
		if _, err := h.db.Count(ctx, store.Addition{Name: fmt.Sprint("c\x00", h.n%4), Add: 1, Lifetime: time.Hour}); err != nil {
			rt.Fatal(err)
		}
	case "cursor":
		_ = h.db.MoveCursor(ctx, store.Cursor{Name: "c\x00", Position: int64(h.n), Filter: "f"}, store.NoCursor, nil)
		_ = h.db.MoveCursor(ctx, store.Cursor{Name: fmt.Sprint("c", h.n), Position: int64(h.n)}, store.NoCursor, nil)
	case "data key":
		k := store.DataKey{Instance: id, Number: 1, Wrapped: []byte("sealed\x00"), Under: "key", MadeAt: h.now}
		if err := h.db.PutDataKey(ctx, k, nil); errors.Is(err, store.ErrConflict) {
			destroyed := k
			destroyed.Wrapped, destroyed.DestroyedAt = nil, h.now
			_ = h.db.PutDataKey(ctx, destroyed, &k)
		}
	case "anchor":
		if _, err := h.Anchor(ctx, operator); err != nil {
			rt.Fatal(err)
		}
	case "retain":
		h.now = h.now.Add(31 * 24 * time.Hour)
		if _, err := h.Retain(ctx, operator, audit.RetainRequest{}); err != nil {
			rt.Fatal(err)
		}
	}
}

func (h *history) verify(t testing.TB) {
	t.Helper()
	if _, err := h.Anchor(context.Background(), operator); err != nil {
		t.Fatal(err)
	}
	r, err := h.Verify(context.Background(), operator, audit.VerifyRequest{Keys: []*record.Verifier{signer.Verifier()}})
	if err != nil || !r.Clean() {
		t.Fatalf("%+v, %v", r, err)
	}
}

// dying is a store whose process dies after this many transactions.
type dying struct {
	newStore
	left int
}

var errDead = errors.New("killed")

func (d *dying) Replace(ctx context.Context, t rows.Table, remove, add []rows.Row) error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return d.newStore.Replace(ctx, t, remove, add)
}

// A copy has the same rows, verifies, and can be continued like the original. This holds for any contents, and for
// any changes between two attempts that die at any point.
func TestCopiesAreTheSame(t *testing.T) {
	t.Cleanup(storecopy.SetBatchRows(3))
	server := pgtest.Shared(t)
	dir, run := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		schema := func(n int) string { return fmt.Sprintf("copy_%d_%d_%d", os.Getpid(), run, n) }
		file := func(n int) string { return filepath.Join(dir, fmt.Sprintf("%d-%d.db", run, n)) }
		places := []place{sqliteAt(file(0)), postgresAt(server, schema(0)), postgresAt(server, schema(1)), sqliteAt(file(1)), sqliteAt(file(2))}
		defer server.Exec(t, `DROP SCHEMA IF EXISTS `+schema(0)+` CASCADE; DROP SCHEMA IF EXISTS `+schema(1)+` CASCADE`)
		first := mustOpen(t, places[0])
		h := newHistory(t, first)
		grow := func(label string) {
			for range rapid.IntRange(0, 25).Draw(rt, label) {
				h.step(rt)
			}
		}
		grow("history")
		from := first
		for i, p := range places[1:] {
			for attempt := rapid.IntRange(0, 2).Draw(rt, "deaths"); attempt > 0; attempt-- {
				to, err := p.create()
				if err != nil {
					rt.Fatal(err)
				}
				if _, err := storecopy.Copy(rt.Context(), viewOf(from), &dying{to, rapid.IntRange(0, 8).Draw(rt, "transactions")}, noProgress); err != nil && !errors.Is(err, errDead) {
					rt.Fatal(err)
				}
				closeAll(t, to)
				if i < 2 {
					if _, err := p.open(); !errors.Is(err, driver.ErrUnfinished) {
						rt.Fatalf("an unfinished copy opens: %v", err)
					}
				}
				if i == 0 {
					grow("meanwhile")
				}
			}
			to, err := p.create()
			if err != nil {
				rt.Fatal(err)
			}
			report, err := storecopy.Copy(rt.Context(), viewOf(from), to, noProgress)
			if err != nil || report.Rows["definitions"] == 0 {
				rt.Fatal(report, err)
			}
			if err := to.Finish(rt.Context()); err != nil {
				rt.Fatal(err)
			}
			copied := mustOpen(t, p)
			requireSame(t, dump(t, copied), dump(t, first))
			requireSameRows(t, copied, first, true)
			if from != first {
				closeAll(t, from)
			}
			from = copied
		}
		// The last copy can be continued, and so can the first.
		closeAll(t, from)
		for _, p := range []place{places[1], places[4]} {
			s := mustOpen(t, p)
			last, err := s.LastPosition(rt.Context())
			if want, wantErr := first.LastPosition(rt.Context()); err != nil || wantErr != nil || last != want {
				rt.Fatalf("the last position is %d, not %d (%v, %v)", last, want, err, wantErr)
			}
			next := newHistory(t, s)
			next.ids, next.n, next.now = h.ids, h.n+1000, h.now
			for range 5 {
				next.step(rt)
			}
			next.verify(t) // it adds an anchor
			requireSameRows(t, s, first, false)
			closeAll(t, s)
		}
		h.verify(t)
		closeAll(t, first)
	})
}

// moving is a store that is written to before each view of it.
type moving struct {
	opened
	move func()
}

func (m moving) view(ctx context.Context) (rows.View, error) {
	m.move()
	return m.OpenView(ctx)
}

func TestCopyOfChangingStore(t *testing.T) {
	dir := t.TempDir()
	from := mustOpen(t, sqliteAt(filepath.Join(dir, "from.db")))
	defer closeAll(t, from)
	h := newHistory(t, from)
	to, err := sqliteAt(filepath.Join(dir, "to.db")).create()
	if err != nil {
		t.Fatal(err)
	}
	start := func() {
		if _, err := h.Start(t.Context(), agent, engine.StartRequest{Type: "flow"}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := storecopy.Copy(t.Context(), moving{from, start}.view, to, noProgress)
	if !errors.Is(err, storecopy.ErrMoving) || r.Passes != 3 {
		t.Fatalf("a store that moves all the time: %+v, %v", r, err)
	}
	first := true
	r, err = storecopy.Copy(t.Context(), moving{from, func() {
		if first {
			start()
		}
		first = false
	}}.view, to, noProgress)
	if err != nil || r.Passes != 2 || r.Written != 3 { // an instance, its context and its event
		t.Fatalf("one that stops: %+v, %v", r, err)
	}
	if err := to.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A view shows the state at one moment, whatever is committed while its tables are read.
func TestViewIsConsistent(t *testing.T) {
	server := pgtest.Shared(t)
	schema := fmt.Sprintf("view_%d", os.Getpid())
	t.Cleanup(func() { server.Exec(t, `DROP SCHEMA IF EXISTS `+schema+` CASCADE`) })
	for _, p := range []place{sqliteAt(filepath.Join(t.TempDir(), "view.db")), postgresAt(server, schema)} {
		t.Run(p.name, func(t *testing.T) {
			s := mustOpen(t, p)
			defer closeAll(t, s)
			h := newHistory(t, s)
			view, err := s.OpenView(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(t, view)
			if _, err := h.Start(t.Context(), agent, engine.StartRequest{Type: "flow"}); err != nil {
				t.Fatal(err)
			}
			for _, table := range rows.Tables {
				if n := count(t, view.Rows(t.Context(), table)); n > 0 && table.Name != "definitions" {
					t.Errorf("%d rows of %s came later", n, table.Name)
				}
			}
		})
	}
}

func count(t *testing.T, list iter.Seq2[rows.Row, error]) (n int) {
	t.Helper()
	for _, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// Copies to targets that are already in use fail.
func TestOccupiedTargetIsRejected(t *testing.T) {
	server := pgtest.Shared(t)
	ctx := t.Context()
	name := func(what string) string {
		schema := fmt.Sprintf("taken_%s_%d", what, os.Getpid())
		t.Cleanup(func() { server.Exec(t, `DROP SCHEMA IF EXISTS `+schema+` CASCADE`) })
		return schema
	}
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		at   place
		make func(t *testing.T, p place)
		want error // nil means that the copy succeeds
	}{
		{"a new schema", postgresAt(server, name("new")), func(*testing.T, place) {}, nil},
		{"a store without rows", postgresAt(server, name("empty")), func(t *testing.T, p place) { closeAll(t, mustOpen(t, p)) }, nil},
		{"a store", postgresAt(server, name("store")), func(t *testing.T, p place) {
			s := mustOpen(t, p)
			newHistory(t, s)
			closeAll(t, s)
		}, driver.ErrNotEmpty},
		{"a copy in progress", postgresAt(server, name("busy")), func(t *testing.T, p place) {
			n, err := p.create()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeAll(t, n) })
		}, driver.ErrCopying},
		{"another program's tables", postgresAt(server, name("other")), func(t *testing.T, _ place) {
			server.Exec(t, fmt.Sprintf(`CREATE SCHEMA taken_other_%[1]d; CREATE TABLE taken_other_%[1]d.t ()`, os.Getpid()))
		}, postgres.ErrForeignTables},
		{"another schema", postgresAt(server, name("newer")), func(t *testing.T, _ place) {
			server.Exec(t, fmt.Sprintf(`CREATE SCHEMA taken_newer_%[1]d; COMMENT ON SCHEMA taken_newer_%[1]d IS 'gavel store, schema 9999'`, os.Getpid()))
		}, store.ErrOtherSchema},
		{"a new file", sqliteAt(filepath.Join(dir, "new.db")), func(*testing.T, place) {}, nil},
		{"a file", sqliteAt(filepath.Join(dir, "there.db")), func(t *testing.T, p place) { closeAll(t, mustOpen(t, p)) }, sqlite.ErrExists},
		{"a file that is no store", sqliteAt(filepath.Join(dir, "text.db")), func(t *testing.T, _ place) {
			if err := os.WriteFile(filepath.Join(dir, "text.db.copying"), []byte(strings.Repeat("text", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, sqlite.ErrNotAStore},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.make(t, c.at)
			n, err := c.at.create()
			if !errors.Is(err, c.want) || err == nil && c.want != nil {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err != nil {
				return
			}
			if err := n.Finish(ctx); err != nil {
				t.Fatal(err)
			}
			closeAll(t, mustOpen(t, c.at))
		})
	}
}

// BenchmarkCopy copies 5000 instances with 10 events each. Every pass reads both stores.
func BenchmarkCopy(b *testing.B) {
	const instances, events = 5000, 10
	server := pgtest.Shared(b)
	dir := b.TempDir()
	first := mustOpen(b, sqliteAt(filepath.Join(dir, "first.db")))
	b.Cleanup(func() { closeAll(b, first) })
	var writers sync.WaitGroup
	for w := range 50 {
		writers.Go(func() {
			for i := w; i < instances; i += 50 {
				c := storetest.Start(b, storetest.ID(i), `{"n":0}`)
				for n := range events {
					if err := first.Commit(b.Context(), c); err != nil {
						b.Error(err)
						return
					}
					c = storetest.Advance(b, c.Next, "draft", fmt.Sprintf(`{"n":%d}`, n))
				}
			}
		})
	}
	writers.Wait()
	schema := fmt.Sprintf("bench_%d", os.Getpid())
	b.Cleanup(func() { server.Exec(b, `DROP SCHEMA IF EXISTS `+schema+` CASCADE`) })
	n := 0
	copyTo := func(b *testing.B, from store.Store, at func() place) {
		b.Helper()
		for b.Loop() {
			to, err := at().create()
			if err != nil {
				b.Fatal(err)
			}
			r, err := storecopy.Copy(b.Context(), from.(opened).OpenView, to, noProgress)
			if err != nil || r.Rows["events"] != instances*events {
				b.Fatal(r, err)
			}
			if err := to.Finish(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(instances*events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	}
	b.Run("sqlite-postgres", func(b *testing.B) {
		copyTo(b, first, func() place {
			server.Exec(b, `DROP SCHEMA IF EXISTS `+schema+` CASCADE`)
			return postgresAt(server, schema)
		})
	})
	b.Run("postgres-sqlite", func(b *testing.B) {
		from := mustOpen(b, postgresAt(server, schema))
		defer closeAll(b, from)
		copyTo(b, from, func() place {
			n++
			return sqliteAt(filepath.Join(dir, fmt.Sprint(n, ".db")))
		})
	})
}
