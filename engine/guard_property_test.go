package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
)

// trimEvidence is a refusal as the test remembers it.
type trimEvidence struct {
	guard, note string
	question    string // the instance and its question, by which a refusal binds the fallback
	at          time.Time
	instance    string
	principal   string
	// Whether it answers the same case, and binds the fallback.
	reusable, binds bool
}

// guarded is a second, simplest possible implementation of the loop guard.
type guarded struct {
	j    *judged
	kept []trimEvidence
	open map[string]string // by principal: an instance that has not moved
	// asked makes each idempotency key unique.
	asked int
}

// notes are the texts of the walks; the values are the same texts without punctuation and case.
var notes = map[string]string{
	"did it": "didit", "Did it!": "didit", "did... IT": "didit",
	"replaced the pump" + report: "long", "Replaced - the pump" + report: "long", "REPLACED the pump..." + report: "long",
}

// ask requests a move or a pre-check, on a fresh instance or the previous one. It compares the result and
// the number of model calls with the expectation from the refusals so far.
func (g *guarded) ask(rt *rapid.T, p engine.Principal, note, mood string, precheck, another bool) {
	j := g.j
	j.model.approve.Store(mood == "approve")
	j.model.fail.Store(mood == "fail")
	id := g.open[p.ID]
	if id == "" || another {
		started, err := j.Start(context.Background(), p, engine.StartRequest{Type: "judged"})
		if err != nil {
			rt.Fatal(err)
		}
		id = started.ID
		g.open[p.ID] = id
	}
	guard := p.ID + "/" + notes[note]
	if notes[note] != "long" {
		guard += "/" + id
	}
	since := j.clock.Add(-24 * time.Hour)
	n, reuse, bound := 0, false, false
	question := id + "/" + notes[note]
	for _, k := range g.kept {
		if k.at.Before(since) {
			continue
		}
		if k.guard == guard {
			n++
		}
		reuse = reuse || k.note == note && k.reusable
		bound = bound || k.question == question && k.binds
	}
	want, calls, learns, fresh := "", int32(1), false, false
	switch {
	case n >= 3:
		want, calls = judge.CodeLoopGuard, 0
	case reuse:
		want, calls, learns = judge.CodeCriterionNotMet, 0, true
	case mood == "fail" && bound:
		want, learns = judge.CodeCriterionNotMet, true
	case mood == "fail":
		want = judge.CodeJudgeUnavailable
	case mood == "refuse":
		want, learns, fresh = judge.CodeCriterionNotMet, true, true
	}
	if learns && n == 2 {
		want = judge.CodeLoopGuard
	}

	before := j.model.calls.Load()
	d, err := g.decide(p, closing(id, note), precheck)
	if err != nil {
		rt.Fatal(err)
	}
	asked := j.model.calls.Load() - before
	if d.Code != want || asked != calls || (d.Outcome == judge.Approve) != (want == "") {
		rt.Fatalf("%s says %q (%s, pre-check %v) after %d refusals: %s code %q after %d calls, want code %q after %d",
			p.ID, note, mood, precheck, n, d.Outcome, d.Code, asked, want, calls)
	}
	if want == "" && !precheck {
		delete(g.open, p.ID)
		for i, k := range g.kept { // and the bindings of the same question
			if k.guard == guard {
				g.kept[i].guard, g.kept[i].reusable = "", false
			}
			g.kept[i].binds = k.binds && k.question != question
		}
	}
	if learns {
		g.kept = append(g.kept, trimEvidence{guard: guard, note: note, question: question, at: j.clock, instance: id, principal: p.ID, reusable: fresh, binds: fresh})
	}
}

// forget drops the counted refusals and the bindings that match; no opinion of the same cases remains.
func (g *guarded) forget(counts, binds func(trimEvidence) bool) {
	notes := map[string]bool{}
	for _, k := range g.kept {
		notes[k.note] = notes[k.note] || k.guard != "" && counts(k)
	}
	for i, k := range g.kept {
		if k.guard != "" && counts(k) {
			g.kept[i].guard, g.kept[i].reusable = "", false
		}
		g.kept[i].reusable = g.kept[i].reusable && !notes[k.note]
		g.kept[i].binds = k.binds && !binds(k)
	}
}

func (g *guarded) decide(p engine.Principal, req engine.AdvanceRequest, precheck bool) (engine.Decision, error) {
	if precheck {
		r, err := g.j.Validate(context.Background(), p, req)
		return r.Decision, err
	}
	g.asked++
	req.Key = fmt.Sprint("once ", g.asked)
	r, err := g.j.Advance(context.Background(), p, req)
	if err != nil {
		return engine.Decision{}, err
	}
	before := g.j.model.calls.Load()
	again, err := g.j.Advance(context.Background(), p, req)
	if err == nil && (!again.Replayed || again.Decision.Code != r.Decision.Code || g.j.model.calls.Load() != before) {
		err = fmt.Errorf("the replay is %+v after %d calls, want %+v", again, g.j.model.calls.Load()-before, r)
	}
	return r.Decision, err
}

// In any order of requests from any principal, with any answers of the model, refusals count exactly as
// those in a plain list do.
func TestLoopGuardAgainstAPlainList(t *testing.T) {
	var names []string
	for n := range notes {
		names = append(names, n)
	}
	slices.Sort(names)
	var walks atomic.Int32
	rapid.Check(t, func(rt *rapid.T) {
		walks.Add(1)
		g := &guarded{j: newJudged(t, memory.New(), "m"), open: map[string]string{}}
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) {
				p := rapid.SampledFrom([]engine.Principal{agent, other}).Draw(rt, "who")
				note := rapid.SampledFrom(names).Draw(rt, "note")
				mood := rapid.SampledFrom([]string{"refuse", "refuse", "approve", "fail"}).Draw(rt, "mood")
				g.ask(rt, p, note, mood, rapid.Bool().Draw(rt, "precheck"), rapid.Bool().Draw(rt, "another"))
			},
			"wait": func(*rapid.T) { g.j.clock = g.j.clock.Add(7 * time.Hour) },
			"clear": func(rt *rapid.T) {
				p := rapid.SampledFrom([]engine.Principal{agent, other}).Draw(rt, "whose")
				if _, err := g.j.ClearRefusals(context.Background(), operator, engine.ClearRefusalsRequest{Principal: p.ID}); err != nil {
					rt.Fatal(err)
				}
				theirs := func(k trimEvidence) bool { return k.principal == p.ID }
				g.forget(theirs, theirs)
			},
			"clear one": func(rt *rapid.T) {
				p := rapid.SampledFrom([]engine.Principal{agent, other}).Draw(rt, "whose")
				id := g.open[p.ID]
				if id == "" {
					rt.Skip("it has none")
				}
				if _, err := g.j.ClearRefusals(context.Background(), operator, engine.ClearRefusalsRequest{ID: id}); err != nil {
					rt.Fatal(err)
				}
				guards := map[string]bool{}
				for _, k := range g.kept {
					guards[k.guard] = guards[k.guard] || k.instance == id
				}
				g.forget(func(k trimEvidence) bool { return guards[k.guard] }, func(k trimEvidence) bool { return k.instance == id })
			},
		})
	})
	if walks.Load() == 0 {
		t.Error("nothing was tried")
	}
}
