package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// world is a source of evidence that a test changes.
type world struct {
	content string
	failure judge.EvidenceFailure
	calls   int
}

func (w *world) Fetch(context.Context, judge.EvidenceRequest, bool) (judge.FetchResult, error) {
	w.calls++
	if w.failure != "" {
		return judge.FetchResult{Failure: w.failure, Detail: "The source is down."}, nil
	}
	return judge.FetchResult{Content: json.RawMessage(w.content)}, nil
}

// watchedFlow asks a person, and fetches evidence first.
const watchedFlow = `{"name":"watched","initialState":"a","states":{
	"a":{"transitions":{
		"go":{"target":"b","requireAssurance":"human","review":{"expiresAfter":"1h"},"evidence":[{"name":"e","source":"s","maxAge":"10m"}]},
		"also":{"target":"b","requireAssurance":"human"},
		"note":"a"}},
	"b":{"transitions":{"back":"a"}}}}`

// seen is the content of a review when it was opened.
type seen struct {
	action, data, context, evidence string
	revision                        int64
	seenAt                          time.Time
	watched                         bool
}

// In any order of operations, an approved move is exactly the one that was shown: at that revision and, if
// the evidence is fetched again, with the same evidence.
func TestReviewNeverAppliesToOtherData(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{content: `{"v":0}`}
		b := newBenchWith(t, memory.New(), w, func(c *engine.Config) { c.ReviewPath = true })
		b.define(operator, watchedFlow)
		id := b.start(agent, "watched", `{}`).ID
		shown := map[string]seen{}
		var checkpoints []string
		var order []string
		data := rapid.SampledFrom([]string{`{}`, `{"x":1}`, `{"x":2}`, `{"y":null}`})
		ask := func(action, doc string) {
			before := b.load(id)
			at := b.now
			r, err := b.Advance(context.Background(), agent, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(doc))})
			if err != nil {
				rt.Fatal(err)
			}
			if r.Review == nil {
				return
			}
			old, known := shown[r.Review.ID]
			now := seen{action: action, data: doc, context: string(before.Context), evidence: w.content, revision: before.Revision, seenAt: at, watched: action == "go"}
			switch {
			case !known:
				shown[r.Review.ID] = now
				order = append(order, r.Review.ID)
			case old.action != now.action || old.data != now.data || old.context != now.context,
				old.revision != now.revision && r.Decision.Code != judge.CodeReviewRejected, // a rejection holds for later revisions
				r.Decision.Code == judge.CodeReviewRejected && now.watched && old.evidence != now.evidence:
				rt.Fatalf("the review of %+v was returned for %+v", old, now)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) {
				ask(rapid.SampledFrom([]string{"go", "also"}).Draw(rt, "action"), data.Draw(rt, "data"))
			},
			"note":      func(rt *rapid.T) { ask("note", data.Draw(rt, "data")) },
			"back":      func(*rapid.T) { ask("back", `{}`) },
			"the world": func(rt *rapid.T) { w.content = fmt.Sprintf(`{"v":%d}`, rapid.IntRange(0, 2).Draw(rt, "v")) },
			"fails": func(rt *rapid.T) {
				w.failure = rapid.SampledFrom([]judge.EvidenceFailure{"", "", judge.FailureTimeout}).Draw(rt, "failure")
			},
			"time": func(rt *rapid.T) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.now = b.now.Add(time.Duration(rapid.IntRange(-70, 70).Draw(rt, "minutes")) * time.Minute)
			},
			"sweep": func(rt *rapid.T) {
				if _, err := b.ExpireReviews(context.Background()); err != nil {
					rt.Fatal(err)
				}
			},
			"checkpoint": func(rt *rapid.T) {
				cp, err := b.Checkpoint(context.Background(), agent, engine.CheckpointRequest{ID: id})
				if err != nil {
					rt.Fatal(err)
				}
				checkpoints = append(checkpoints, cp.CheckpointID)
			},
			"rollback": func(rt *rapid.T) {
				if len(checkpoints) == 0 {
					return
				}
				if _, err := b.Rollback(context.Background(), operator, engine.RollbackRequest{ID: id, CheckpointID: rapid.SampledFrom(checkpoints).Draw(rt, "checkpoint")}); err != nil {
					rt.Fatal(err)
				}
			},
			"redefine": func(*rapid.T) {
				b.define(operator, watchedFlow[:len(watchedFlow)-1]+fmt.Sprintf(`,"comment":"%d"}`, len(shown)))
			},
			"resolve": func(rt *rapid.T) {
				if len(order) == 0 {
					return
				}
				review := rapid.SampledFrom(order).Draw(rt, "review")
				how := rapid.SampledFrom([]judge.Outcome{judge.Approve, judge.Approve, judge.Reject}).Draw(rt, "how")
				before, was := b.load(id), b.review(review)
				r, err := b.Resolve(context.Background(), rita, engine.ResolveRequest{ID: review, Decision: how, Reason: "looked"})
				if engine.CodeOf(err) == engine.CodeUnavailable && w.failure != "" && b.review(review).Status == record.ReviewOpen {
					return
				}
				if err != nil {
					wantCode(t, err, engine.CodeReviewClosed)
					return
				}
				applied(rt, shown[review], before, was, r, w, b)
			},
			"": func(rt *rapid.T) {
				inst := b.load(id)
				actions := map[string]bool{}
				for _, open := range inst.Facts.Reviews {
					if actions[open.Action] || b.review(open.ID).Status != record.ReviewOpen || b.review(open.ID).Data == nil {
						rt.Fatalf("open: %+v", inst.Facts.Reviews)
					}
					actions[open.Action] = true
				}
			},
		})
		b.verify(id)
	})
}

// applied checks a successful resolution.
func applied(rt *rapid.T, was seen, before record.Instance, row store.Review, r engine.ResolveResult, w *world, b *bench) {
	if row.Status != record.ReviewOpen {
		rt.Fatalf("a review that is %s was resolved", row.Status)
	}
	if !r.Applied {
		return
	}
	events := b.events(before.ID)
	moved := events[len(events)-1]
	young := b.now.Sub(was.seenAt) <= 10*time.Minute+time.Second && !b.now.Before(was.seenAt)
	switch {
	case moved.Kind != record.Advanced || moved.Action != was.action || string(moved.Patch) != was.data && string(moved.Decision.Data) != was.data:
		rt.Fatalf("shown was %+v, applied %s with %s", was, moved.Action, moved.Patch)
	case before.Revision != was.revision || string(before.Context) != was.context:
		rt.Fatalf("shown was revision %d with %s, applied to %d with %s", was.revision, was.context, before.Revision, before.Context)
	case was.watched && !young && (w.failure != "" || w.content != was.evidence):
		rt.Fatalf("shown was %s, and the world is %s %s", was.evidence, w.content, w.failure)
	case !row.ExpiresAt.IsZero() && b.now.After(row.ExpiresAt.Add(time.Second)):
		rt.Fatalf("expired at %v, resolved at %v", row.ExpiresAt, b.now)
	}
}
