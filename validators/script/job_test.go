package script

import (
	"errors"
	"testing"
)

func newJob(t *testing.T, p *Pool, op Op, scripts ...Script) *job {
	t.Helper()
	j, err := p.newJob(op, Batch{Caller: "o", Owner: Owner{ID: "o"}, Validators: scripts})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// A timeout for which the machine is to blame is inconclusive: the script runs once more, whoever owns it.
func TestStarvedScriptIsRetried(t *testing.T) {
	t.Parallel()
	p, err := NewPool(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	for _, late := range []bool{true, false} {
		j := newJob(t, p, OpRun, Script{Name: "n", Kind: Validator, Source: "() => true"})
		before := p.Stats().Retries
		for try := range 2 {
			if again := j.prepareRequest(); !again {
				if try == 0 || late {
					t.Fatalf("late %t: nothing to ask in try %d", late, try)
				}
				break
			}
			j.acceptOutcome(&Outcome{Index: 0, Last: true, Late: late, Result: Result{Code: Timeout}})
		}
		if j.prepareRequest() || j.states[0].Code != Timeout {
			t.Errorf("late %t: ended with %+v", late, j.states[0])
		}
		if got := p.Stats().Retries - before; (got == 1) != late {
			t.Errorf("late %t: %d retries", late, got)
		}
	}
}

// A kill during a check counts against the script only if it happens twice, because the rejection of a
// definition is remembered for long.
func TestKilledCheckIsRetried(t *testing.T) {
	t.Parallel()
	p, err := NewPool(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	for _, op := range []Op{OpCheck, OpRun} {
		j := newJob(t, p, op, Script{Name: "n", Kind: Validator, Source: "() => true"})
		tries := 0
		for ; j.prepareRequest(); tries++ {
			if tries == 5 {
				t.Fatal("it is asked again and again")
			}
			if err := j.recordWorkerDeath(outOfTime, errors.New("killed")); err != nil {
				t.Fatal(err)
			}
		}
		if want := map[Op]int{OpCheck: 2, OpRun: 1}[op]; tries != want || j.states[0].Code != Timeout {
			t.Errorf("%v: asked %d times, want %d: %+v", op, tries, want, j.states[0])
		}
	}
}

// A schema's time, and workers lost before it has an outcome, do not count against the scripts after it.
func TestScriptsAfterASchemaStartAfresh(t *testing.T) {
	t.Parallel()
	p, err := NewPool(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	j, err := p.newJob(OpRun, Batch{
		Schema: &Script{Kind: Schema, Source: "true"}, Routes: []Script{{Kind: Condition, Source: "true"}, {Kind: Condition, Source: "false"}}, Validators: []Script{{Kind: Validator, Source: "() => true"}},
	})
	if err != nil || !j.prepareRequest() || len(j.asked) != 4 || j.request.Routes != 3 {
		t.Fatalf("%v, asked %v, routes until %d", err, j.asked, j.request.Routes)
	}
	if err := j.recordWorkerDeath(vanished, errors.New("killed")); err != nil {
		t.Fatal(err)
	}
	j.spent = p.cfg.Total
	j.acceptOutcome(&Outcome{Index: 0, Result: Result{Code: OK, Valid: true}})
	if err := j.recordWorkerDeath(vanished, errors.New("killed")); err != nil || j.expireOverdue() {
		t.Errorf("the route has nothing left: %v, %v spent", err, j.spent)
	}
	if !j.prepareRequest() || len(j.asked) != 3 || j.request.Routes != 2 {
		t.Errorf("then it asked %v, routes until %d", j.asked, j.request.Routes)
	}
	j.acceptOutcome(&Outcome{Index: 0, Result: Result{Code: OK, Valid: true}})
	if err := j.recordWorkerDeath(outOfTime, errors.New("killed")); err != nil || j.states[3].Code != Timeout {
		t.Errorf("%v, the validator ended with %+v", err, j.states[3])
	}
	if r := j.buildReply(); r.Route != 0 || len(r.Results) != 1 || !r.Schema.Passes() {
		t.Errorf("%+v", r)
	}
}
