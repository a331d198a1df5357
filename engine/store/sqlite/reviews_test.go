package sqlite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// parked returns a store at a new path with an instance and n reviews of it.
func parked(t *testing.T, n int) (*sqlite.Store, record.Instance) {
	t.Helper()
	s := openAt(t, newPath(t))
	c := storetest.Start(t, storetest.ID(1), `{}`)
	for i := range n {
		r := storetest.Review(i, c.Next)
		r.Instance = storetest.ID(i / 2)
		r.Priority = []record.Priority{record.PriorityNormal, record.PriorityUrgent}[i%2]
		if i%20 != 0 { // most are closed, as in an old store
			r.Status, r.Data = record.ReviewResolved, nil
		}
		c.Reviews = append(c.Reviews, r)
	}
	if err := s.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return s, c.Next
}

// Every list uses an index in its order. It reads its results and nothing before its cursor, both in an empty store
// and in a full one with known statistics.
func TestReviewPlans(t *testing.T) {
	full, _ := parked(t, 400)
	defer full.Close()
	if _, err := full.WriterConn().ExecContext(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	path := full.Path()
	analysed := openAt(t, path) // with connections that read the statistics
	defer analysed.Close()
	empty := openAt(t, newPath(t))
	defer empty.Close()
	after := &store.ReviewCursor{Rank: 1, ID: storetest.ReviewID(7)}
	tests := map[string]struct {
		q    store.ReviewQuery
		want string
	}{
		"all":                      {store.ReviewQuery{}, "SCAN r USING INDEX reviews_place"},
		"status":                   {store.ReviewQuery{Status: record.ReviewOpen}, "SEARCH r USING INDEX reviews_status (status=?)"},
		"principal":                {store.ReviewQuery{Principal: "p"}, "SEARCH r USING INDEX reviews_principal (principal=?)"},
		"principal and status":     {store.ReviewQuery{Principal: "p", Status: record.ReviewOpen}, "SEARCH r USING INDEX reviews_principal_status (principal=? AND status=?)"},
		"instance":                 {store.ReviewQuery{Instance: "i"}, "SEARCH r USING INDEX reviews_instance (instance=?)"},
		"instance and status":      {store.ReviewQuery{Instance: "i", Status: record.ReviewOpen}, "SEARCH r USING INDEX reviews_instance (instance=?)"},
		"workflow":                 {store.ReviewQuery{Workflow: "w"}, "SCAN r USING INDEX reviews_place"},
		"workflow and status":      {store.ReviewQuery{Workflow: "w", Status: record.ReviewOpen}, "SEARCH r USING INDEX reviews_status (status=?)"},
		"everything but the place": {store.ReviewQuery{Instance: "i", Workflow: "w", Principal: "p", Status: record.ReviewOpen}, "SEARCH r USING INDEX reviews_instance (instance=?)"},
	}
	for name, s := range map[string]*sqlite.Store{"empty": empty, "full": analysed} {
		for what, tt := range tests {
			for _, q := range []store.ReviewQuery{tt.q, behind(tt.q, after, 0), behind(tt.q, after, 5), behind(tt.q, nil, 5)} {
				want := tt.want
				if q.After != nil {
					want = seeking(want)
				}
				if got := strings.Join(plan(t, s, sqlite.ReviewsQuery(q)), "; "); got != want {
					t.Errorf("%s, %s, %+v: %s, want %s", name, what, q, got, want)
				}
			}
		}
	}
}

func behind(q store.ReviewQuery, after *store.ReviewCursor, limit int) store.ReviewQuery {
	q.After, q.Limit = after, limit
	return q
}

// seeking returns the plan of a list that starts after a cursor: it seeks directly to it.
func seeking(plan string) string {
	const place = "(place,id)>(?,?)"
	if front, ok := strings.CutSuffix(plan, ")"); ok {
		return front + " AND " + place + ")"
	}
	return strings.Replace(plan, "SCAN", "SEARCH", 1) + " (" + place + ")"
}

// An unreadable row is reported with its id, alone and in lists. If it were omitted, no one would know that a client
// waits for it.
func TestUnreadableReview(t *testing.T) {
	s, _ := parked(t, 3)
	defer s.Close()
	id := storetest.ReviewID(0) // the last in lists, except for the other one with normal priority
	db := raw(t, s.Path())
	defer db.Close()
	for name, body := range map[string]string{
		"torn": `{"id":`, "of another form": `{"id":7}`, "another review": `{"id":"rev-other"}`, "empty": ``,
	} {
		run(t, db, fmt.Sprintf(`UPDATE reviews SET body = CAST('%s' AS BLOB) WHERE id = '%s'`, body, id))
		_, err := store.FindReview(t.Context(), s, id)
		if !errors.Is(err, sqlite.ErrCorrupt) || !strings.Contains(err.Error(), id) {
			t.Errorf("%s: got %v, want ErrCorrupt with %s", name, err, id)
		}
		for _, q := range []store.ReviewQuery{{}, {Status: record.ReviewOpen}} {
			var told error
			for r, err := range s.Reviews(t.Context(), q) {
				if told != nil {
					t.Errorf("%s, %+v: %s comes behind the error", name, q, r.ID)
				}
				told = err
			}
			if !errors.Is(told, sqlite.ErrCorrupt) || !strings.Contains(told.Error(), id) {
				t.Errorf("%s, %+v: got %v, want ErrCorrupt with %s", name, q, told, id)
			}
		}
		if _, err := store.FindReview(t.Context(), s, storetest.ReviewID(2)); err != nil {
			t.Errorf("%s: another review: %v", name, err)
		}
	}
}

// If a review cannot be written, its events are not written either.
func TestReviewFailsItsCommit(t *testing.T) {
	s, inst := parked(t, 1)
	defer s.Close()
	db := raw(t, s.Path())
	defer db.Close()
	run(t, db, `CREATE TRIGGER poison BEFORE INSERT ON reviews WHEN NEW.principal = 'poison' BEGIN SELECT RAISE(ABORT, 'poisoned'); END`)
	c := storetest.Advance(t, inst, "reviewing", `{"x":1}`, storetest.WithKey("k"))
	c.Snapshot = true
	bad := storetest.Review(2, inst)
	bad.Principal = "poison"
	c.Reviews = []store.Review{storetest.Review(1, inst), bad}
	if err := s.Commit(t.Context(), c); err == nil || !strings.Contains(err.Error(), "poisoned") {
		t.Fatalf("got %v, want the trigger's", err)
	}
	if got, err := s.Load(t.Context(), inst.ID); err != nil || got.Head != inst.Head {
		t.Errorf("the instance is at event %d, %v", got.Seq, err)
	}
	_, first := store.FindReview(t.Context(), s, storetest.ReviewID(1))
	_, key := s.ByKey(t.Context(), c.Events[0].Key.Scope)
	for what, err := range map[string]error{"the review before it": first, "the key": key} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", what, err)
		}
	}
	c.Reviews = c.Reviews[:1]
	if err := s.Commit(t.Context(), c); err != nil {
		t.Errorf("without the bad one: %v", err)
	}
}

// Data of an open review is no longer stored anywhere in its row once the review is closed.
func TestEndedReviewKeepsNoData(t *testing.T) {
	s, inst := parked(t, 0)
	defer s.Close()
	const secret = "4111-1111"
	r := storetest.Review(1, inst)
	r.Data = []byte(`{"card":"` + secret + `"}`)
	db := raw(t, s.Path())
	defer db.Close()
	holding := func() (data, body int) {
		const query = `SELECT sum(instr(coalesce(data, ''), ?1) > 0), sum(instr(body, ?1) > 0) FROM reviews`
		if err := db.QueryRow(query, []byte(secret)).Scan(&data, &body); err != nil {
			t.Fatal(err)
		}
		return data, body
	}
	for _, want := range []int{1, 0} {
		c := storetest.Refuse(t, inst, "approve")
		c.Reviews = []store.Review{r}
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if data, body := holding(); data != want || body != 0 {
			t.Errorf("%s: %d rows hold the data, %d bodies do; want %d and 0", r.Status, data, body, want)
		}
		inst = c.Next
		r.Status, r.Data = record.ReviewResolved, nil
	}
}
