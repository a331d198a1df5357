//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// noon is the base time of the lessons in these tests.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newRefusal returns the lesson of a refusal, minutes after noon.
func newRefusal(guard, identity string, minutes int) *store.Lesson {
	return &store.Lesson{
		Guard: guard, Identity: identity, Principal: "agent:" + guard, Workflow: "w", Action: "go",
		At: noon.Add(time.Duration(minutes) * time.Minute), Refused: true, Opinion: json.RawMessage(fmt.Sprintf(`{"at":%d}`, minutes)),
	}
}

// commitLesson commits a lesson with a new event of the instance.
func commitLesson(t *testing.T, s store.Store, id string, l *store.Lesson) {
	c := Advance(t, loadInstance(t, s, id), "reviewing", `{}`)
	c.Lesson = l
	mustCommit(t, s, c)
}

func wantRefusals(t *testing.T, s store.Store, guard string, since time.Time, want int) {
	t.Helper()
	if got, _, err := s.Refusals(t.Context(), guard, "", since); err != nil || got != want {
		t.Errorf("%d refusals of %s since %v, %v; want %d", got, guard, since, err, want)
	}
}

func wantOpinion(t *testing.T, s store.Store, identity string, since time.Time, want string) {
	t.Helper()
	_, got, err := s.Refusals(t.Context(), "", identity, since)
	if err != nil || string(got) != want {
		t.Errorf("the opinion of %s is %s, %v; want %s", identity, got, err, want)
	}
}

// A binding refusal is found by its own key and is not counted.
func boundRefusals(t *testing.T, _ Driver, s store.Store) {
	mustCommit(t, s, Start(t, ID(1), `{}`))
	for i, guard := range []string{"a", "b"} {
		l := newRefusal(guard, "case "+guard, i)
		l.Bound = "bound " + guard
		commitLesson(t, s, ID(1), l)
	}
	none := newRefusal("c", "case c", 2)
	none.Bound, none.Opinion = "bound c", nil
	commitLesson(t, s, ID(1), none)
	wantRefusals(t, s, "a", noon, 1)
	wantRefusals(t, s, "", noon, 0) // bound refusals are not counted
	wantOpinion(t, s, "case a", noon, `{"at":0}`)
	wantOpinion(t, s, "bound a", noon, `{"at":0}`)
	wantOpinion(t, s, "bound b", noon, `{"at":1}`)
	wantOpinion(t, s, "bound c", noon, "")
	wantOpinion(t, s, "bound a", noon.Add(time.Minute), "")
	// An approval deletes both, including a refusal of another principal.
	commitLesson(t, s, ID(1), &store.Lesson{Guard: "another", Bound: "bound a", At: noon.Add(3 * time.Minute), Cleared: true})
	wantOpinion(t, s, "bound a", noon, "")
	wantOpinion(t, s, "case a", noon, `{"at":0}`)
	if n, err := s.ClearRefusals(t.Context(), store.RefusalQuery{Principal: "agent:b"}); err != nil || n != 1 {
		t.Errorf("%d forgotten, %v; want 1", n, err)
	}
	wantOpinion(t, s, "bound b", noon, "")
}

func testRefusals(t *testing.T, _ Driver, s store.Store) {
	mustCommit(t, s, Start(t, ID(1), `{}`))
	wantRefusals(t, s, "a", noon, 0)
	wantOpinion(t, s, "case", noon, "")
	for minute, guard := range []string{"a", "a", "b", "a"} {
		commitLesson(t, s, ID(1), newRefusal(guard, "case", minute))
	}
	noOpinion := newRefusal("a", "case", 4)
	noOpinion.Opinion = nil
	commitLesson(t, s, ID(1), noOpinion)
	commitLesson(t, s, ID(1), nil)

	wantRefusals(t, s, "a", noon, 4)
	wantRefusals(t, s, "a", noon.Add(time.Minute), 3)
	wantRefusals(t, s, "a", noon.Add(5*time.Minute), 0)
	wantRefusals(t, s, "b", noon, 1)
	wantOpinion(t, s, "case", noon, `{"at":3}`) // the newest stored opinion
	wantOpinion(t, s, "case", noon.Add(3*time.Minute), `{"at":3}`)
	wantOpinion(t, s, "case", noon.Add(4*time.Minute), "")
	wantOpinion(t, s, "other", noon, "")

	commitLesson(t, s, ID(1), &store.Lesson{Guard: "a", Identity: "case", At: noon.Add(6 * time.Minute), Cleared: true})
	wantRefusals(t, s, "a", noon, 0)
	wantRefusals(t, s, "b", noon, 1)
	wantOpinion(t, s, "case", noon, `{"at":2}`) // that of b
}

// A commit that loses a race writes no lesson, so that the count equals the number of recorded refusals.
func refusalsAreAtomic(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	const tries = 8
	commits := make([]store.Commit, tries)
	for i := range commits {
		commits[i] = Advance(t, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, i))
		commits[i].Lesson = newRefusal("a", "case", i)
	}
	onlyOne(t, tries, store.ErrConflict, func(i int) error { return s.Commit(t.Context(), commits[i]) })
	wantRefusals(t, s, "a", noon, 1)
}

func refusalsAreCleared(t *testing.T, _ Driver, s store.Store) {
	mustCommit(t, s, Start(t, ID(1), `{}`))
	clear := func(q store.RefusalQuery, want int) {
		t.Helper()
		if n, err := s.ClearRefusals(t.Context(), q); err != nil || n != want {
			t.Errorf("%+v cleared %d, %v; want %d", q, n, err, want)
		}
	}
	for i, guard := range []string{"a", "a", "b", "c"} {
		commitLesson(t, s, ID(1), newRefusal(guard, "case-"+guard, i))
	}
	clear(store.RefusalQuery{Principal: "nobody"}, 0)
	clear(store.RefusalQuery{Principal: "agent:a", Workflow: "other"}, 0)
	clear(store.RefusalQuery{Principal: "agent:a", Workflow: "w", Action: "go"}, 2)
	wantRefusals(t, s, "a", noon, 0)
	wantOpinion(t, s, "case-a", noon, "")
	wantRefusals(t, s, "b", noon, 1)
	clear(store.RefusalQuery{Workflow: "w"}, 2)
	wantRefusals(t, s, "c", noon, 0)

	// For an instance, the refusals that share a guard with its own are included. No opinion on the same case remains
	// to answer it; bound refusals of others stay.
	of := func(instance, guard, identity string, minutes int) {
		l := newRefusal(guard, identity, minutes)
		l.Instance, l.Bound = instance, "bound "+instance
		commitLesson(t, s, ID(1), l)
	}
	of("i", "short i", "case", 1)
	of("k", "short k", "case", 2)
	of("i", "long", "long case", 3)
	of("k", "long", "long case", 4)
	of("k", "other", "other case", 5)
	clear(store.RefusalQuery{Instance: "none"}, 0)
	clear(store.RefusalQuery{Instance: "i", Action: "other"}, 0)
	clear(store.RefusalQuery{Instance: "i"}, 3)
	for guard, want := range map[string]int{"short i": 0, "short k": 1, "long": 0, "other": 1} {
		wantRefusals(t, s, guard, noon, want)
	}
	for identity, want := range map[string]string{"case": "", "long case": "", "other case": `{"at":5}`, "bound i": "", "bound k": `{"at":5}`} {
		wantOpinion(t, s, identity, noon, want)
	}
}

// Refusals that are older than any window are eventually deleted.
func refusalsGrowOld(t *testing.T, _ Driver, s store.Store) {
	mustCommit(t, s, Start(t, ID(1), `{}`))
	for i := range 5 {
		commitLesson(t, s, ID(1), newRefusal("old", "case", i))
	}
	late := newRefusal("new", "case", 0)
	late.At = noon.Add(store.MaxRefusalAge + time.Hour)
	commitLesson(t, s, ID(1), late)
	wantRefusals(t, s, "old", noon.Add(-time.Hour), 0)
	wantRefusals(t, s, "new", noon, 1)
}

func refusalsReopened(t *testing.T, s store.Store) func(store.Store) {
	mustCommit(t, s, Start(t, ID(1), `{}`))
	commitLesson(t, s, ID(1), newRefusal("a", "case", 1))
	return func(s store.Store) {
		wantRefusals(t, s, "a", noon, 1)
		wantOpinion(t, s, "case", noon, `{"at":1}`)
	}
}

// All processes count the refusals of each process.
func refusalsBeside(t *testing.T, d Driver, s store.Store) {
	other := d.Beside(t, s)
	defer closeStore(t, other)
	const each = 6
	stores := []store.Store{s, other}
	commits := make([][]store.Commit, len(stores))
	for i := range stores {
		inst := mustCommit(t, s, Start(t, ID(i), `{}`))
		for n := range each {
			c := Advance(t, inst, "reviewing", `{}`)
			c.Lesson = newRefusal("a", "case", n)
			commits[i] = append(commits[i], c)
			inst = c.Next
		}
	}
	atOnce(len(stores), func(i int) { commitAll(t, stores[i], commits[i]) })
	for _, db := range stores {
		wantRefusals(t, db, "a", noon, len(stores)*each)
		wantOpinion(t, db, "case", noon, fmt.Sprintf(`{"at":%d}`, each-1))
	}
	if n, err := other.ClearRefusals(t.Context(), store.RefusalQuery{Workflow: "w"}); err != nil || n != len(stores)*each {
		t.Errorf("cleared %d, %v", n, err)
	}
	wantRefusals(t, s, "a", noon, 0)
}

// A write that fails halfway writes no lesson and clears none.
func refusalsOfAFailedWrite(t *testing.T, d Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	commitLesson(t, s, ID(1), newRefusal("a", "case", 0))
	d.Poison(t, s, "poisoned")
	inst = loadInstance(t, s, inst.ID)
	for _, l := range []*store.Lesson{
		newRefusal("a", "case", 1),
		{Guard: "a", Identity: "case", At: noon.Add(2 * time.Minute), Cleared: true},
	} {
		c := Refuse(t, inst, "poisoned")
		c.Lesson = l
		if err := s.Commit(t.Context(), c); err == nil {
			t.Error("the poisoned write went through")
		}
		wantRefusals(t, s, "a", noon, 1)
		wantOpinion(t, s, "case", noon, `{"at":0}`)
	}
}

// The replay of a commit is rejected and counts nothing again.
func refusalsOfAReplay(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	c := Refuse(t, inst, "go", WithKey("k"))
	c.Lesson = newRefusal("a", "case", 0)
	inst = mustCommit(t, s, c)
	wantError(t, "the same commit", s.Commit(t.Context(), c), store.ErrKeyTaken)
	again := Refuse(t, inst, "go", WithKey("k"))
	again.Lesson = newRefusal("a", "case", 1)
	wantError(t, "the key with a fresh event", s.Commit(t.Context(), again), store.ErrKeyTaken)
	wantRefusals(t, s, "a", noon, 1)
}
