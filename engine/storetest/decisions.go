//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

var decisionPromises = []promise{
	{"decisions", testDecisions, always},
	{"decisions by several conditions", decisionsCombined, always},
	{"decisions page by page under writes", decisionsWalk, always},
	{"decisions by text", decisionsText, always},
	{"decisions are counted", decisionsCounted, always},
	{"decisions of reviews", decisionsOfReviews, always},
	{"decisions of a truncated history", decisionsOfWhatIsLeft, always},
	{"decisions for a caller that cancelled", decisionsCancelled, always},
	{"decisions outlive the process", outlives(decisionsReopened), reopen},
	{"decisions of two stores on one set of data", decisionsBeside, beside},
}

func findDecisions(t testing.TB, s store.Store, q store.DecisionQuery) []store.PlacedEvent {
	t.Helper()
	return collect(t, s.Decisions(t.Context(), q))
}

// positions returns the positions of events, to compare lists of them.
func positions(events []store.PlacedEvent) (all []int64) {
	for _, e := range events {
		all = append(all, e.Position)
	}
	return all
}

// known is an event as the test created it, with the owner of its instance.
type known struct {
	event record.Event
	owner string
}

func (k known) String() string { return fmt.Sprintf("%s #%d", k.event.Instance, k.event.Seq) }

// matchesNaively is a simple implementation of a query, independent of the drivers' matcher. It compares the words of
// texts as they are; each is one word of vocabulary.
func matchesNaively(k known, q store.DecisionQuery) bool {
	e, d := k.event, k.event.Decision
	if d == nil {
		return false
	}
	unequal := func(want, have string) bool { return want != "" && want != have }
	if unequal(q.Workflow, e.Workflow) || unequal(q.Instance, e.Instance) || unequal(q.Owner, k.owner) ||
		unequal(q.Principal, e.Principal) || unequal(q.Action, e.Action) || unequal(string(q.Outcome), string(d.Outcome)) ||
		unequal(string(q.DecidedBy), string(d.DecidedBy)) || unequal(string(q.Assurance), string(d.Assurance)) || unequal(q.Code, d.Code) {
		return false
	}
	if q.Degraded != nil && *q.Degraded != d.Degraded || q.MinConfidence != nil && *q.MinConfidence > d.Confidence ||
		q.MaxConfidence != nil && *q.MaxConfidence < d.Confidence {
		return false
	}
	if !q.Since.IsZero() && q.Since.After(e.Time) || !q.Until.IsZero() && !q.Until.After(e.Time) {
		return false
	}
	if len(q.Kinds) > 0 && !slices.Contains(q.Kinds, e.Kind) {
		return false
	}
	said := strings.Fields(d.Reasoning)
	for _, f := range d.Findings {
		said = append(said, strings.Fields(f.Message)...)
	}
	for w := range strings.FieldsSeq(q.Text) {
		if !slices.Contains(said, w) {
			return false
		}
	}
	return true
}

// wantDecisions compares the results of a query with matchesNaively over all events in commit order.
func wantDecisions(t testing.TB, s store.Store, all []known, q store.DecisionQuery) {
	t.Helper()
	var want, got []string
	for _, k := range slices.Backward(all) {
		if matchesNaively(k, q) && (q.Limit == 0 || len(want) < q.Limit) {
			want = append(want, k.String())
		}
	}
	last := int64(0)
	written := make(map[string]record.Event, len(all))
	for _, k := range all {
		written[k.String()] = k.event
	}
	for _, h := range findDecisions(t, s, q) {
		got = append(got, fmt.Sprintf("%s #%d", h.Event.Instance, h.Event.Seq))
		if last != 0 && h.Position >= last || h.Position < 1 {
			t.Fatalf("decisions %+v: position %d after %d", q, h.Position, last)
		}
		last = h.Position
		if e, ok := written[got[len(got)-1]]; ok {
			sameEvent(t, h.Event, e)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("decisions %+v:\n got %v\nwant %v", q, got, want)
	}
}

// The values of the generated decisions. Each word of the vocabulary is one word, however texts are split.
var (
	vocabulary = []string{"missing", "zoe", "拒", "🦊", "5", "αβγ", "naive", "weiß"}
	workflows  = []string{"doc", "release", "Ärger"}
	principals = []string{"local:agent", "ada@example.org", `"quoted" OR 1`, "日本"}
	actions    = []string{"submit", "approve", "to AND fro"}
	outcomes   = namesOf(store.DecisionQuery{}.Outcome, "approve", "reject", "escalate")
	layers     = namesOf(store.DecisionQuery{}.DecidedBy, "fields", "script", "model")
	assurances = namesOf(store.DecisionQuery{}.Assurance, "none", "structural", "validators")
	codes      = []string{"schema", "no_route"}
)

// indexing is a number of events larger than a store leaves unindexed.
const indexing = 320

// sampleSize returns n in a long run, and otherwise just enough events to make an indexing store index.
func sampleSize(n int) int {
	if Long() {
		return n
	}
	return min(n, indexing)
}

// growJudged writes n events of several instances, which differ in every field that can be queried.
func growJudged(t testing.TB, s store.Store, n int) []known {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same every time
	return writeJudged(t, s, random, 0, n)
}

func writeJudged(t testing.TB, s store.Store, random *rand.Rand, first, n int) []known {
	t.Helper()
	var all []known
	var running []record.Instance
	for i := range n {
		if len(running) < 5 || random.IntN(20) == 0 {
			inst := mustCommit(t, s, judgedStart(t, random, first+i))
			running = append(running, inst)
			all = append(all, known{lastEvent(t, s, inst), inst.Owner})
			continue
		}
		at := random.IntN(len(running))
		inst := running[at]
		e := record.Event{Kind: record.Refused, Action: pickRandom(random, actions), Principal: pickRandom(random, principals), Decision: judgedDecision(random, false)}
		switch random.IntN(6) {
		case 0:
			e.Kind = record.Prechecked
		case 1:
			e.Kind, e.To, e.Patch, e.Decision = record.Advanced, "draft", json.RawMessage(`{"n":1}`), judgedDecision(random, true)
		case 2:
			e = record.Event{Kind: record.Checkpointed, Checkpoint: &record.Checkpoint{ID: fmt.Sprint("cp-", i)}} // no decision
		}
		e.Time = Epoch.Add(time.Duration(first+i)*time.Second - time.Duration(random.IntN(5))*time.Minute) // clocks jump
		running[at] = mustCommit(t, s, Next(t, inst, e))
		all = append(all, known{lastEvent(t, s, running[at]), inst.Owner})
	}
	return all
}

func judgedStart(t testing.TB, random *rand.Rand, n int) store.Commit {
	t.Helper()
	return Next(t, record.Instance{}, record.Event{
		Kind: record.Started, Instance: ID(1000 + n), Workflow: pickRandom(random, workflows), Version: 1, DefinitionHash: "sha256:" + hexOf("doc"),
		To: "draft", Patch: json.RawMessage(`{}`), Decision: judgedDecision(random, true), Principal: pickRandom(random, principals),
		Time: Epoch.Add(time.Duration(n) * time.Second),
	})
}

func judgedDecision(random *rand.Rand, applied bool) *record.Decision {
	d := newDecision(applied)
	d.DecidedBy, d.Assurance = pickRandom(random, layers), pickRandom(random, assurances)
	d.Confidence = float64(random.IntN(101)) / 100
	d.Degraded = random.IntN(4) == 0
	d.Reasoning = pickRandom(random, vocabulary) + " " + pickRandom(random, vocabulary)
	d.Findings = nil
	if !applied {
		d.Code = pickRandom(random, codes)
		decodeFixture(fmt.Sprintf(`[{"message": %q}]`, pickRandom(random, vocabulary)), &d.Findings)
	}
	return d
}

func pickRandom[T any](random *rand.Rand, of []T) T { return of[random.IntN(len(of))] }

func lastEvent(t testing.TB, s store.Store, inst record.Instance) record.Event {
	t.Helper()
	events := listEvents(t, s, store.EventQuery{Instance: inst.ID, AfterSeq: inst.Seq - 1})
	return events[len(events)-1]
}

func ptr[T any](v T) *T { return &v }

// singleFilters returns queries with one condition each.
func singleFilters(all []known) []store.DecisionQuery {
	inst := all[len(all)/2].event.Instance
	out := []store.DecisionQuery{
		{},
		{Limit: 1},
		{Limit: 7},
		{Instance: inst},
		{Instance: inst, Limit: 2},
		{Instance: "wf-none"},
		{Workflow: "none"},
		{Degraded: ptr(true)},
		{Degraded: ptr(false)},
		{MinConfidence: ptr(0.5)},
		{MaxConfidence: ptr(0.5)},
		{MinConfidence: ptr(0.51), MaxConfidence: ptr(0.53)},
		{MinConfidence: ptr(1.0)},
		{MaxConfidence: ptr(0.0)},
		{MinConfidence: ptr(0.9), MaxConfidence: ptr(0.1)},
		{Code: "schema"},
		{Kinds: []record.Kind{record.Refused}},
		{Kinds: []record.Kind{record.Prechecked, record.Started}},
		{Kinds: []record.Kind{record.Checkpointed}},
		{Since: all[len(all)/3].event.Time},
		{Until: all[len(all)/3].event.Time},
		{Since: all[len(all)/3].event.Time, Until: all[len(all)/2].event.Time},
		{Since: Epoch.AddDate(500, 0, 0)},
		{Until: Epoch.AddDate(-500, 0, 0)},
		{Since: Epoch.AddDate(-500, 0, 0), Until: Epoch.AddDate(500, 0, 0)},
	}
	for i := range principals {
		out = append(out, store.DecisionQuery{Principal: principals[i]}, store.DecisionQuery{Owner: principals[i]})
	}
	for i := range 3 {
		out = append(out, store.DecisionQuery{Workflow: workflows[i]}, store.DecisionQuery{Action: actions[i]},
			store.DecisionQuery{Outcome: outcomes[i]}, store.DecisionQuery{DecidedBy: layers[i]}, store.DecisionQuery{Assurance: assurances[i]})
	}
	for _, w := range vocabulary {
		out = append(out, store.DecisionQuery{Text: w}, store.DecisionQuery{Text: w + " missing"})
	}
	if Long() {
		return out
	}
	var some []store.DecisionQuery
	for third := range slices.Chunk(out, 3) {
		some = append(some, third[0])
	}
	return some
}

func testDecisions(t *testing.T, _ Driver, s store.Store) {
	wantDecisions(t, s, nil, store.DecisionQuery{})
	all := growJudged(t, s, sampleSize(900))
	for _, q := range singleFilters(all) {
		wantDecisions(t, s, all, q)
	}
}

// drawSome draws one of names, or "", which weighs as much as three names.
func drawSome[T ~string](r *rapid.T, what string, names []T) T {
	return rapid.SampledFrom(append([]T{"", "", ""}, names...)).Draw(r, what)
}

// decisionsCombined queries generated combinations of filters.
func decisionsCombined(t *testing.T, _ Driver, s store.Store) {
	all := growJudged(t, s, sampleSize(700))
	rapid.Check(t, func(r *rapid.T) {
		q := store.DecisionQuery{
			Workflow: drawSome(r, "workflow", workflows), Owner: drawSome(r, "owner", principals), Principal: drawSome(r, "principal", principals),
			Action: drawSome(r, "action", actions), Outcome: drawSome(r, "outcome", outcomes[:2]), DecidedBy: drawSome(r, "layer", layers),
			Text: drawSome(r, "text", vocabulary), Code: drawSome(r, "code", codes), Limit: rapid.SampledFrom([]int{0, 1, 10}).Draw(r, "limit"),
		}
		if rapid.Bool().Draw(r, "of one instance") {
			q.Instance = rapid.SampledFrom(all).Draw(r, "instance").event.Instance
		}
		if rapid.Bool().Draw(r, "by confidence") {
			q.MinConfidence = ptr(rapid.Float64Range(0, 1).Draw(r, "least"))
			q.MaxConfidence = ptr(rapid.Float64Range(0, 1).Draw(r, "most"))
		}
		if rapid.Bool().Draw(r, "by time") {
			q.Since = rapid.SampledFrom(all).Draw(r, "since").event.Time
		}
		if rapid.Bool().Draw(r, "up to a time") {
			q.Until = rapid.SampledFrom(all).Draw(r, "until").event.Time
		}
		if rapid.IntRange(0, 3).Draw(r, "degraded") == 0 {
			q.Degraded = ptr(true)
		}
		wantDecisions(t, s, all, q)
	})
}

// decisionsLooked ends searches wherever they report progress. Continued from there, they must find everything
// exactly once.
func decisionsLooked(t *testing.T, _ Driver, s store.Store) {
	growJudged(t, s, sampleSize(600))
	for _, q := range []store.DecisionQuery{{}, {Outcome: "reject"}, {Text: "missing"}, {Instance: ID(1)}} {
		want := findDecisions(t, s, q)
		var got []store.PlacedEvent
		for page, ended := q, false; !ended; {
			ended = true
			page.OnScan = func(position int64) bool {
				if page.Before != 0 && position >= page.Before {
					t.Fatalf("looked from %d, below %d", position, page.Before)
				}
				page.Before, ended = position, false
				return false
			}
			got = append(got, findDecisions(t, s, page)...)
		}
		if !slices.Equal(positions(got), positions(want)) {
			t.Errorf("%+v: found %v, want %v", q, positions(got), positions(want))
		}
	}
}

// decisionsWalk reads page by page during writes. Every decision that was present at the beginning must appear once,
// in order.
func decisionsWalk(t *testing.T, _ Driver, s store.Store) {
	growJudged(t, s, sampleSize(600))
	for round, q := range []store.DecisionQuery{{}, {Outcome: "reject"}, {Text: "missing"}, {Since: Epoch.Add(time.Minute)}} {
		want := positions(findDecisions(t, s, q))
		random := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // the same every time
		commits := make([]store.Commit, 300)
		for i := range commits {
			commits[i] = judgedStart(t, random, 1_000_000*(round+1)+i)
		}
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, c := range commits {
				if stop.Load() {
					return
				}
				if err := s.Commit(t.Context(), c); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		newest := want[0]
		var got []int64
		page := q
		page.Limit = 37
		for {
			hits := positions(findDecisions(t, s, page))
			got = append(got, slices.DeleteFunc(slices.Clone(hits), func(at int64) bool { return at > newest })...)
			if len(hits) < page.Limit {
				break
			}
			page.Before = hits[len(hits)-1]
		}
		stop.Store(true)
		<-done
		if !slices.Equal(got, want) {
			t.Errorf("%+v: the walk gave %d decisions, the whole has %d, or in another order", q, len(got), len(want))
		}
	}
}
