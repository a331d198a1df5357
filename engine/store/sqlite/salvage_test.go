package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// specimen returns a store with all kinds of content, created once: many small histories, long ones, contexts of many
// pages, a history without its beginning, and one under review.
var specimen = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "specimen")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "gavel.db")
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		panic(err)
	}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same store each time
	commit := func(c store.Commit) record.Instance {
		if err := s.Commit(context.Background(), c); err != nil {
			panic(err)
		}
		return c.Next
	}
	at := make([]record.Instance, 60)
	var floors []record.Instance
	for n := range at {
		at[n] = commit(storetest.Start(orphan{}, storetest.ID(n), `{"title":"a"}`))
	}
	for range 700 {
		n := rng.IntN(len(at))
		switch rng.IntN(8) {
		case 0:
			at[n] = commit(storetest.Refuse(orphan{}, at[n], "submit"))
		case 1:
			at[n] = commit(storetest.CheckpointOf(orphan{}, at[n]))
		case 2:
			at[n] = commit(storetest.Advance(orphan{}, at[n], "reviewing", fmt.Sprintf(`{"big":%q}`, strings.Repeat("x", rng.IntN(9000)))))
		default:
			at[n] = commit(storetest.Advance(orphan{}, at[n], "reviewing", fmt.Sprintf(`{"n":%d}`, rng.IntN(100)), storetest.WithKey(fmt.Sprint(n, at[n].Seq))))
		}
		if n == 7 {
			floors = append(floors, at[n])
		}
	}
	floor := floors[len(floors)/2]
	c := storetest.Truncate(orphan{}, at[7], floor)
	if err := s.Commit(context.Background(), c); err != nil {
		panic(err)
	}
	// This one fills separate pages, which are not reused when it is removed.
	gone := commit(storetest.Start(orphan{}, storetest.ID(len(at)), `{}`))
	for range 20 {
		gone = commit(storetest.Advance(orphan{}, gone, "reviewing", fmt.Sprintf(`{"big":%q}`, strings.Repeat("y", 1500))))
	}
	last := commit(storetest.Advance(orphan{}, gone, "draft", `{"big":null}`))
	c = storetest.Truncate(orphan{}, last, gone)
	if err := s.Commit(context.Background(), c); err != nil {
		panic(err)
	}
	review := storetest.Review(9, at[9])
	c = storetest.Escalate(orphan{}, at[9], "to-approved", review.ID)
	review.Instance, review.Seq, review.Revision = at[9].ID, c.Next.Seq, c.Next.Revision
	c.Reviews = []store.Review{review}
	commit(c)
	if err := s.Close(); err != nil {
		panic(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return whole
})

// salvageOnly skips a test under the race detector. There it takes many times as long and shows nothing, because a
// salvage uses a single goroutine. TestSalvageOfAWholeStore always runs.
func salvageOnly(t *testing.T) {
	t.Helper()
	if storetest.RaceDetector {
		t.Skip("a salvage is one goroutine")
	}
}

const page = 4096

// harmed writes the specimen to a file after applying harm to its bytes.
func harmed(t testing.TB, harm func([]byte) []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gavel.db")
	if err := os.WriteFile(path, harm(bytes.Clone(specimen())), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// saved salvages a file and opens the result.
func saved(t testing.TB, path string) (sqlite.Salvaged, *sqlite.Store) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "saved.db")
	r, err := sqlite.Salvage(t.Context(), path, out)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("the damaged file was written to: %v", err)
	}
	for _, name := range names(t, out) {
		if name != "saved.db" {
			t.Fatalf("left behind: %s", name)
		}
	}
	s := openAt(t, out)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, s
}

// keep returns the contents of the store before it was damaged.
func keep(t testing.TB) (instances map[string]record.Instance, events map[string]record.Event) {
	t.Helper()
	path := harmed(t, func(b []byte) []byte { return b })
	s := openAt(t, path)
	defer s.Close()
	instances, events = map[string]record.Instance{}, map[string]record.Event{}
	for inst, err := range s.Instances(t.Context(), store.InstanceQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		instances[inst.ID] = inst
		for e, err := range s.Events(t.Context(), store.EventQuery{Instance: inst.ID}) {
			if err != nil {
				t.Fatal(err)
			}
			events[e.Hash] = e
		}
	}
	return instances, events
}

func TestSalvageOfAWholeStore(t *testing.T) {
	t.Parallel()
	instances, events := keep(t)
	r, s := saved(t, harmed(t, func(b []byte) []byte { return b }))
	if !r.Whole() || int(r.Contents.Instances) != len(instances) || int(r.Contents.Events) != len(events) {
		t.Errorf("got %+v", r)
	}
	if _, err := sqlite.Inspect(t.Context(), s.Path()); err != nil {
		t.Error(err)
	}
	for id, want := range instances {
		if got, err := s.Load(t.Context(), id); err != nil || got.Head != want.Head || !bytes.Equal(got.Context, want.Context) {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
}

// TestSalvageOfRandomDamage damages pages at random:
//
//   - Nothing panics.
//   - Every event that can be read individually is saved, unless its row is reported as damaged or it follows a gap.
//   - Nothing is saved that did not exist.
//   - The result verifies, except for the reported gaps.
func TestSalvageOfRandomDamage(t *testing.T) {
	salvageOnly(t)
	instances, events := keep(t)
	harms := map[string]func(*rand.Rand, []byte) []byte{
		"flipped bytes": func(rng *rand.Rand, b []byte) []byte {
			for range 1 + rng.IntN(20) {
				b[page+rng.IntN(len(b)-page)] ^= byte(1 + rng.IntN(255))
			}
			return b
		},
		"zeroed pages": func(rng *rand.Rand, b []byte) []byte {
			for range 1 + rng.IntN(6) {
				p := 1 + rng.IntN(len(b)/page-1)
				clear(b[p*page : (p+1)*page])
			}
			return b
		},
		"pages of noise": func(rng *rand.Rand, b []byte) []byte {
			for range 1 + rng.IntN(3) {
				p := 1 + rng.IntN(len(b)/page-1)
				for i := range page {
					b[p*page+i] = byte(rng.IntN(256))
				}
			}
			return b
		},
		"a cut file": func(rng *rand.Rand, b []byte) []byte { return b[:page*10+rng.IntN(len(b)-page*10)] },
		"a page in two places": func(rng *rand.Rand, b []byte) []byte {
			from, to := 1+rng.IntN(len(b)/page-1), 1+rng.IntN(len(b)/page-1)
			copy(b[to*page:(to+1)*page], b[from*page:(from+1)*page])
			return b
		},
	}
	seeds := uint64(1)
	if storetest.Long() {
		seeds = 5
	}
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // repeatable
				path := harmed(t, func(b []byte) []byte { return harm(rng, b) })
				if !hasTables(t, path) {
					continue
				}
				r, s := saved(t, path)
				honest(t, fmt.Sprint("seed ", seed), r, s, instances, events)
				kept, is := hashes(t, s), map[string]int64{}
				for id, d := range instancesOf(r) {
					is[id] = d.Is
				}
				for hash, pos := range readableEvents(t, path, events) {
					e := events[hash]
					named := slices.ContainsFunc(r.Lost, func(l sqlite.Loss) bool { // a damaged row, because of a column other than the body
						return l.Table == "events" && l.Why != "cannot be read" && slices.Contains(l.Ranges, sqlite.Range{From: pos, To: pos})
					})
					if last, damaged := is[e.Instance]; !kept[hash] && !named && (!damaged || e.Seq <= last) { // events after that follow a gap
						t.Fatalf("seed %d: event %d of %s can be read and was not saved", seed, e.Seq, e.Instance)
					}
				}
			}
		})
	}
}

// openDamaged opens a copy of a damaged file as far as SQLite can read it.
func openDamaged(t *testing.T, path string) *sql.DB {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+copied+"?_pragma=writable_schema(ON)&_pragma=cell_size_check(ON)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	return db
}

// hasTables reports whether the list of tables can be read; without it there is nothing to compare with.
func hasTables(t *testing.T, path string) bool {
	t.Helper()
	db := openDamaged(t, path)
	defer db.Close()
	var tables int
	return db.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE name IN ('instances', 'events')`).Scan(&tables) == nil && tables > 0
}

// honest fails the test if a result or a store claims something that did not exist.
func honest(t *testing.T, what string, r sqlite.Salvaged, s *sqlite.Store, instances map[string]record.Instance, events map[string]record.Event) {
	t.Helper()
	told, tables := instancesOf(r), tablesOf(r)
	count := 0
	for inst, err := range s.Instances(t.Context(), store.InstanceQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if instances[inst.ID].ID == "" {
			t.Fatalf("%s: an instance that never was: %+v", what, inst)
		}
		d, damaged := told[inst.ID]
		if !damaged && inst.Head != instances[inst.ID].Head {
			t.Fatalf("%s: %s is at event %d, and nothing is said of it", what, inst.ID, inst.Seq)
		}
		if damaged && d.Is != inst.Seq {
			t.Fatalf("%s: %s is at event %d, it is said to be at %d", what, inst.ID, inst.Seq, d.Is)
		}
		if !strings.Contains(d.Why, unproven) && inst.Seq == instances[inst.ID].Seq && !bytes.Equal(inst.Context, instances[inst.ID].Context) {
			t.Fatalf("%s: the context of %s is another one", what, inst.ID)
		}
		count += gapsOnly(t, what, s, inst, d.Ranges, events)
	}
	if int64(count) != r.Contents.Events {
		t.Fatalf("%s: %d events are there, %d are said to be", what, count, r.Contents.Events)
	}
	kept, gone := hashes(t, s), map[string]bool{}
	for id := range instances {
		if _, err := s.Load(t.Context(), id); errors.Is(err, store.ErrNotFound) && told[id].Instance == "" {
			if len(tables) == 0 {
				t.Fatalf("%s: %s is gone without a word", what, id)
			}
			gone[id] = true // nothing readable names it
		}
	}
	for hash, e := range events {
		if kept[hash] || gone[e.Instance] {
			continue
		}
		d, damaged := told[e.Instance]
		unknown := damaged && e.Seq > d.Was && slices.ContainsFunc(tables, func(l sqlite.Loss) bool { return l.Table == "events" && l.Why == "cannot be read" })
		if !isIn(d.Ranges, e.Seq) && !unknown {
			t.Fatalf("%s: event %d of %s is lost, and nothing is said of it: %+v", what, e.Seq, e.Instance, d)
		}
	}
}

const unproven = "no events confirm its state"

// instancesOf returns the damaged instances of a result, keyed by id.
func instancesOf(r sqlite.Salvaged) map[string]sqlite.Loss {
	out := map[string]sqlite.Loss{}
	for _, l := range r.Lost {
		if l.Instance != "" {
			out[l.Instance] = l
		}
	}
	return out
}

// tablesOf returns the losses of tables in a result.
func tablesOf(r sqlite.Salvaged) []sqlite.Loss {
	return slices.DeleteFunc(slices.Clone(r.Lost), func(l sqlite.Loss) bool { return l.Table == "" })
}

func isIn(ranges []sqlite.Range, n int64) bool {
	return slices.ContainsFunc(ranges, func(r sqlite.Range) bool { return r.From <= n && n <= r.To })
}

// gapsOnly verifies a history except for the reported gaps, and counts its events.
func gapsOnly(t *testing.T, what string, s *sqlite.Store, inst record.Instance, missing []sqlite.Range, events map[string]record.Event) (n int) {
	t.Helper()
	lost := func(seq int64) bool { return isIn(missing, seq) }
	var before record.Event
	for e, err := range s.Events(t.Context(), store.EventQuery{Instance: inst.ID}) {
		if err != nil {
			t.Fatalf("%s: %s: %v", what, inst.ID, err)
		}
		n++
		if !bytes.Equal(events[e.Hash].Body(), e.Body()) || record.VerifyEvent(e) != nil {
			t.Fatalf("%s: event %d of %s is not what was written", what, e.Seq, inst.ID)
		}
		if before.Seq > 0 && !lost(e.Seq-1) && (e.Seq != before.Seq+1 || e.PrevHash != before.Hash) {
			t.Fatalf("%s: event %d of %s follows %d, and no gap is named (%v)", what, e.Seq, inst.ID, before.Seq, missing)
		}
		before = e
	}
	if before.Hash != inst.Head && !lost(inst.Seq) {
		t.Fatalf("%s: %s is at event %d, its history ends at %d, and no gap is named (%v)", what, inst.ID, inst.Seq, before.Seq, missing)
	}
	return n
}

// hashes returns the hashes of all events of a store.
func hashes(t *testing.T, s *sqlite.Store) map[string]bool {
	t.Helper()
	rows, err := s.ReaderDB().Query(`SELECT hash FROM events`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]bool{}
	for rows.Next() {
		var hash []byte
		if err := rows.Scan(&hash); err != nil {
			t.Fatal(err)
		}
		out[hex.EncodeToString(hash)] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// readableEvents returns the events that can be read individually from a damaged file: their keys by hash.
func readableEvents(t *testing.T, path string, events map[string]record.Event) map[string]int64 {
	t.Helper()
	db := openDamaged(t, path)
	defer db.Close()
	one, err := db.Prepare(`SELECT prev_hash, hash, body FROM events WHERE pos = ?`)
	if err != nil {
		return nil // its tables are unreadable
	}
	defer one.Close()
	keys := map[string]int64{}
	for pos := range int64(900) {
		var prev, hash, body []byte
		if one.QueryRow(pos).Scan(&prev, &hash, &body) != nil {
			continue
		}
		name := hex.EncodeToString(hash)
		if e := events[name]; bytes.Equal(e.Body(), body) && e.PrevHash == hex.EncodeToString(prev) && len(body) > 0 {
			keys[name] = pos
		}
	}
	return keys
}

// schemaPages returns the pages of the list of tables.
func schemaPages(t *testing.T, path string) (pages []int) {
	t.Helper()
	db := raw(t, path)
	defer db.Close()
	rows, err := db.Query(`SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		pages = append(pages, n)
	}
	if err := rows.Err(); err != nil || len(pages) < 2 {
		t.Fatalf("the list of tables is on pages %v, %v", pages, err)
	}
	return pages
}

// Any page of the list of tables may be lost, in a backup as in a store: this program knows its contents.
func TestSalvageWithoutTheListOfTables(t *testing.T) {
	storetest.SkipUnlessLong(t)
	salvageOnly(t)
	instances, events := keep(t)
	store := harmed(t, func(b []byte) []byte { return b })
	backup := filepath.Join(t.TempDir(), "backup.db")
	if _, err := sqlite.Copy(t.Context(), store, backup, false); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{store, backup} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range schemaPages(t, path) {
			r, s := saved(t, harmed(t, func([]byte) []byte {
				b := bytes.Clone(whole)
				clear(b[(n-1)*page : n*page])
				return b
			}))
			what := fmt.Sprintf("%s without page %d", filepath.Base(path), n)
			honest(t, what, r, s, instances, events)
			if r.Whole() || int(r.Contents.Instances) != len(instances) || int(r.Contents.Events) != len(events) {
				t.Errorf("%s: %d instances, %d events, lost %+v", what, r.Contents.Instances, r.Contents.Events, r.Lost)
			}
		}
	}
}

// A file that is truncated loses what was at its end.
func TestSalvageOfAFileWithoutItsLastPage(t *testing.T) {
	salvageOnly(t)
	instances, events := keep(t)
	path := harmed(t, func(b []byte) []byte { return b[:len(b)-page] })
	r, s := saved(t, path)
	honest(t, "cut", r, s, instances, events)
	if lost := len(events) - int(r.Contents.Events); r.Whole() || lost > 40 {
		t.Errorf("%d of %d events are lost: %+v", lost, len(events), r.Lost)
	}
}

// Closing a store adds no tables, such as statistics, at the end of its file.
func TestCloseAddsNoTables(t *testing.T) {
	db := raw(t, harmed(t, func(b []byte) []byte { return b }))
	defer db.Close()
	var added int
	if err := db.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE name LIKE 'sqlite_stat%'`).Scan(&added); err != nil || added > 0 {
		t.Errorf("%d tables of statistics, %v", added, err)
	}
}

// A file without any contents of a store is not a store.
func TestSalvageOfNothing(t *testing.T) {
	path := harmed(t, func(b []byte) []byte { clear(b); return b })
	out := filepath.Join(t.TempDir(), "saved.db")
	r, err := sqlite.Salvage(t.Context(), path, out)
	if !errors.Is(err, sqlite.ErrCorrupt) && !errors.Is(err, sqlite.ErrNotAStore) {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
}

// Inner pages are lost. Rows that are no longer reachable are reported, as keys and as events of instances. Nothing
// that was removed comes back.
func TestSalvageReportsUnreachablePages(t *testing.T) {
	storetest.SkipUnlessLong(t)
	salvageOnly(t)
	t.Parallel()
	instances, events := keep(t)
	path := harmed(t, func(b []byte) []byte { return b })
	for _, n := range innerPages(t, path) {
		r, s := saved(t, harmed(t, func(b []byte) []byte {
			clear(b[(n-1)*page : n*page])
			return b
		}))
		honest(t, fmt.Sprint("without page ", n), r, s, instances, events)
		if tables := tablesOf(r); r.Whole() || len(tables) == 0 || tables[0].Why != "cannot be read" || len(tables[0].Ranges) == 0 {
			t.Errorf("without page %d nothing is lost: %+v", n, r)
		}
	}
}

// eventPages returns the numbers of two consecutive pages of events, after skipping this many.
func eventPages(t *testing.T, behind int) (first, second int) {
	t.Helper()
	db := raw(t, harmed(t, func(b []byte) []byte { return b }))
	defer db.Close()
	if err := db.QueryRow(`SELECT min(pageno), max(pageno) FROM (SELECT pageno FROM dbstat
		WHERE name = 'events' AND pagetype = 'leaf' ORDER BY path LIMIT 2 OFFSET ?)`, behind).Scan(&first, &second); err != nil {
		t.Fatal(err)
	}
	return first, second
}

// A page with the content of the previous one is readable, but its own rows are lost.
func TestSalvageNamesACopiedPage(t *testing.T) {
	salvageOnly(t)
	t.Parallel()
	instances, events := keep(t)
	first, second := eventPages(t, 20)
	r, s := saved(t, harmed(t, func(b []byte) []byte {
		copy(b[(second-1)*page:second*page], b[(first-1)*page:first*page])
		return b
	}))
	honest(t, "copied", r, s, instances, events)
	if tables := tablesOf(r); len(tables) != 1 || tables[0].Table != "events" || len(tables[0].Ranges) == 0 {
		t.Errorf("got %+v", tables)
	}
}

// Two swapped pages can be read without an error, each row once. The only sign is that rows are out of order, which
// is reported; no row is lost.
func TestSalvageNamesSwappedPages(t *testing.T) {
	salvageOnly(t)
	t.Parallel()
	instances, events := keep(t)
	first, second := eventPages(t, 20)
	r, s := saved(t, harmed(t, func(b []byte) []byte {
		one := bytes.Clone(b[(first-1)*page : first*page])
		copy(b[(first-1)*page:first*page], b[(second-1)*page:second*page])
		copy(b[(second-1)*page:second*page], one)
		return b
	}))
	honest(t, "swapped", r, s, instances, events)
	if tables := tablesOf(r); len(tables) != 1 || tables[0].Table != "events" || !strings.Contains(tables[0].Why, "out of order") || len(tables[0].Ranges) == 0 {
		t.Errorf("got %+v", tables)
	}
	if int(r.Contents.Events) != len(events) || len(instancesOf(r)) != 0 {
		t.Errorf("%d of %d events are saved, lost: %+v", r.Contents.Events, len(events), r.Lost)
	}
}

// Events that were deliberately removed from a history may remain on a readable page. They do not come back.
func TestSalvageLeavesOutRemovedEvents(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openAt(t, path)
	commit := func(c store.Commit) record.Instance {
		t.Helper()
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c.Next
	}
	at := commit(storetest.Start(t, storetest.ID(1), `{"title":"removed"}`))
	for i := range 3 {
		at = commit(storetest.Advance(t, at, "reviewing", fmt.Sprintf(`{"n":%d}`, i)))
	}
	floor := at
	at = commit(storetest.Advance(t, at, "reviewing", `{"n":9}`))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, path, `CREATE TABLE kept AS SELECT * FROM events`)
	s = openAt(t, path)
	at = commit(storetest.Truncate(t, at, floor))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, path, fmt.Sprintf(`INSERT INTO events SELECT * FROM kept WHERE seq <= %d`, floor.Seq))
	change(t, path, `DROP TABLE kept`)
	r, out := saved(t, path)
	var seqs []int64
	for e, err := range out.Events(t.Context(), store.EventQuery{Instance: at.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, e.Seq)
	}
	if want := []int64{floor.Seq + 1, floor.Seq + 2}; !slices.Equal(seqs, want) || !r.Whole() || r.Contents.Events != 2 {
		t.Errorf("events %v, want %v; %+v", seqs, want, r)
	}
}

// A page with the content of a much later one ends every range that includes it. Everything between the two is still
// read.
func TestSalvageReadsPastGap(t *testing.T) {
	salvageOnly(t)
	t.Parallel()
	_, events := keep(t)
	db := raw(t, harmed(t, func(b []byte) []byte { return b }))
	defer db.Close()
	for _, distance := range []int{60, 59, 57, 30} { // a range that ends within the late page's keys is the hardest
		t.Run(fmt.Sprint(distance), func(t *testing.T) { checkPastGap(t, db, events, distance) })
	}
}

func checkPastGap(t *testing.T, db *sql.DB, events map[string]record.Event, distance int) {
	t.Helper()
	var early, late int
	if err := db.QueryRow(`SELECT first_value(pageno) OVER (ORDER BY path), last_value(pageno) OVER (ORDER BY path ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
		FROM (SELECT pageno, path FROM dbstat WHERE name = 'events' AND pagetype = 'leaf' ORDER BY path LIMIT ? OFFSET 5) LIMIT 1`, distance).Scan(&early, &late); err != nil {
		t.Fatal(err)
	}
	leaping := harmed(t, func(b []byte) []byte {
		copy(b[(early-1)*page:early*page], b[(late-1)*page:late*page])
		return b
	})
	r, s := saved(t, leaping)
	kept, readable := hashes(t, s), readableEvents(t, leaping, events)
	for hash, pos := range readable {
		if !kept[hash] {
			t.Errorf("the event at %d can be read and was not saved", pos)
		}
	}
	if r.Whole() || len(readable) < len(events)*9/10 || len(tablesOf(r)) == 0 {
		t.Errorf("%d of %d events can be read, lost: %+v", len(readable), len(events), r.Lost)
	}
}

// innerPages returns the inner pages of events and of the tables that are rebuilt from them: all of them in a long
// run, else one per table.
func innerPages(t *testing.T, path string) (inner []int) {
	t.Helper()
	db := raw(t, path)
	defer db.Close()
	query := `SELECT name, min(pageno) FROM dbstat WHERE pagetype = 'internal' AND name IN ('events', 'instances', 'contexts') GROUP BY name`
	if storetest.Long() {
		query += `, pageno`
	}
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	of := map[string]bool{}
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		of[name] = true
		inner = append(inner, n)
	}
	if err := rows.Err(); err != nil || !of["events"] || !of["instances"] {
		t.Fatalf("inner pages of %v, %v", of, err)
	}
	return inner
}

func TestSalvageRebuildsInstances(t *testing.T) {
	salvageOnly(t)
	t.Parallel()
	instances, events := keep(t)
	path := harmed(t, func(b []byte) []byte { return b })
	id := func(n int) string { return fmt.Sprintf(`(SELECT n FROM instances WHERE id = '%s')`, storetest.ID(n)) }
	for _, harm := range []string{
		`DELETE FROM contexts WHERE n = ` + id(1),
		`DELETE FROM contexts WHERE n = ` + id(7),           // its beginning was removed
		`DELETE FROM events WHERE seq = 4 AND n = ` + id(2), // a gap; the row is present
		`DELETE FROM events WHERE seq = 4 AND n = ` + id(3), // a gap,
		`DELETE FROM snapshots WHERE n = ` + id(3),          // no snapshot after it,
		`DELETE FROM contexts WHERE n = ` + id(3),           // and no context
		`UPDATE instances SET state = 'approved' WHERE id = '` + storetest.ID(4) + `'`,
		`DELETE FROM reviews`,
		`DELETE FROM events WHERE seq = 1 AND n = ` + id(5), // nothing to fold from
		`DELETE FROM snapshots WHERE n = ` + id(5),
		`DELETE FROM instances WHERE id = '` + storetest.ID(5) + `'`,
		`DELETE FROM instances WHERE id = '` + storetest.ID(6) + `'`,
	} {
		change(t, path, harm)
	}
	r, s := saved(t, path)
	honest(t, "rebuilt", r, s, instances, events)
	want := map[string]string{}
	last := func(n int) int64 { return instances[storetest.ID(n)].Seq }
	want[storetest.ID(1)] = fmt.Sprintf("[] was %d is %d rebuilt", last(1), last(1))
	want[storetest.ID(7)] = fmt.Sprintf("[] was %d is %d rebuilt", last(7), last(7))
	want[storetest.ID(2)] = fmt.Sprintf("[{4 4}] was %d is %d unproven", last(2), last(2))
	want[storetest.ID(3)] = fmt.Sprintf("[{4 %d}] was %d is 3 rebuilt", last(3), last(3))
	want[storetest.ID(4)] = fmt.Sprintf("[] was %d is %d rebuilt", last(4), last(4))
	want[storetest.ID(5)] = fmt.Sprintf("[{1 %d}] was %d is 0", last(5), last(5))
	want[storetest.ID(9)] = fmt.Sprintf("[] was %d is %d review", last(9), last(9))
	want[storetest.ID(6)] = fmt.Sprintf("[] was %d is %d rebuilt", last(6), last(6))
	for id, d := range instancesOf(r) {
		got := fmt.Sprintf("%v was %d is %d", d.Ranges, d.Was, d.Is)
		if strings.Contains(d.Why, "rebuilt from its events") {
			got += " rebuilt"
		}
		if strings.Contains(d.Why, unproven) {
			got += " unproven"
		}
		if strings.Contains(d.Why, "review "+storetest.Review(9, instances[id]).ID+" is lost") {
			got += " review"
		}
		if got != want[id] {
			t.Errorf("%s: got %q (%s), want %q", id, got, d.Why, want[id])
		}
		if gone := d.Why == "could not be rebuilt"; gone != (d.Is == 0) {
			t.Errorf("%s: %s", id, d.Why)
		}
		delete(want, id)
	}
	if len(want) != 0 {
		t.Errorf("nothing is said of %v", want)
	}
	for _, n := range []int{1, 4, 6, 7} {
		if got, err := s.Load(t.Context(), storetest.ID(n)); err != nil || got.State != instances[got.ID].State || !bytes.Equal(got.Context, instances[got.ID].Context) {
			t.Errorf("%d: %+v, %v", n, got, err)
		}
	}
}

func TestSalvageReadsTheLog(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	for n := range 5 {
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(n), `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	damaged := filepath.Join(t.TempDir(), "gavel.db") // as a crash would leave it
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(damaged+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r, _ := saved(t, damaged); r.Contents.Events != 5 || !r.Whole() {
		t.Errorf("got %+v", r)
	}
}

func TestSalvageRefuses(t *testing.T) {
	dir := t.TempDir()
	noise := filepath.Join(dir, "noise")
	if err := os.WriteFile(noise, bytes.Repeat([]byte("noise"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	db := harmed(t, func(b []byte) []byte { return b })
	for name, tt := range map[string]struct {
		path, out string
		want      error
	}{
		"no file":         {filepath.Join(dir, "none"), filepath.Join(dir, "out"), fs.ErrNotExist},
		"its own place":   {db, db, sqlite.ErrExists},
		"a file is there": {db, noise, sqlite.ErrExists},
		"a few bytes":     {noise, filepath.Join(dir, "out"), sqlite.ErrNotAStore},
	} {
		if _, err := sqlite.Salvage(t.Context(), tt.path, tt.out); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if got := names(t, noise); len(got) != 1 {
		t.Errorf("left behind: %q", got)
	}
}

// Every table is either saved or derived from saved ones.
func TestSalvageKnowsEveryTable(t *testing.T) {
	s := openAt(t, newPath(t))
	defer s.Close()
	derived := []string{"decision_times", "decision_index", "counters", "leases"} // or useless in a new store
	rows, err := s.ReaderDB().Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'decision_terms%'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(sqlite.SalvagedTables, name) && !slices.Contains(derived, name) {
			t.Errorf("the table %s is neither saved nor known to be derived", name)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
