package chain

import (
	"fmt"
	"testing"
)

// TestRunsShareWorkflow: the records of a chain's runs share one workflow; a different definition has its
// own.
func TestRunsShareWorkflow(t *testing.T) {
	r := openRuns(t, t.TempDir(), &fakeServers{})
	defer r.Close()
	record := func(description string) *runRecord {
		t.Helper()
		l, err := r.newRecord("x", agentA, parse(t, "description: "+description+"\n"+steps(first)))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one := record("one").definition
	if record("one").definition != one {
		t.Error("two runs of one chain have a workflow each")
	}
	if other := record("other").definition; other == one || other.Description != "other" {
		t.Errorf("another definition has the workflow %q", other.Description)
	}
	for n := range 2 * maxWorkflows {
		record(fmt.Sprint("n", n))
	}
	if n := len(r.workflows); n > maxWorkflows {
		t.Errorf("%d workflows are kept", n)
	}
}
