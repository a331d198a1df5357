package script

import (
	"errors"
	"testing"
)

func newJob(t *testing.T, p *Pool, op Op, scripts ...Script) *job {
	t.Helper()
	j, err := p.newJob(op, "o", Owner{ID: "o"}, nil, scripts)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// A timeout that the machine is to blame for says nothing yet: the script is
// asked about once more, whoever wrote it.
func TestAStarvedScriptIsAskedAgain(t *testing.T) {
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

// A worker that was killed at a check is the script's fault when it happens again: what a
// definition is refused for is remembered long.
func TestACheckThatWasKilledIsAskedAgain(t *testing.T) {
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
