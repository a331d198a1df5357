package judge_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// callerLog is a sandbox that records its callers.
type callerLog struct{ checked, ran []string }

func (l *callerLog) Run(_ context.Context, b script.Batch) (script.Reply, error) {
	l.ran = append(l.ran, b.Caller)
	return script.Reply{Schema: script.SchemaReply{Code: script.OK}, Route: -1, Results: []script.Result{agrees(1)}[:len(b.Validators)]}, nil
}

func (l *callerLog) Check(_ context.Context, caller string, _ script.Owner, _ []script.Script) ([]script.Problem, error) {
	l.checked = append(l.checked, caller)
	return nil, nil
}

// All work of the sandbox for a case is charged to the caller: the principal of a move or the
// reviewer of a review, never the owner of the definition.
func TestSandboxWorksForTheCaller(t *testing.T) {
	t.Parallel()
	c := newCase(validated("() => true"), shaped(`{"required":["comments"]}`), func(c *judge.Case) {
		c.Principal, c.Owner = "agent:ada", validators.Owner{ID: "agent:eve"}
		c.Candidates[0].Entry.Schema = json.RawMessage(`{"required":["total"]}`)
	})
	for name, want := range map[string]string{"decide": "agent:ada", "approve": "rita"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log callerLog
			p := pipeline(t, &log, nil)
			var err error
			if name == "decide" {
				_, err = p.Decide(t.Context(), c)
			} else {
				c := c
				c.Caller = "rita"
				_, err = p.Approve(t.Context(), c, judge.Review{By: "rita"})
			}
			if err != nil {
				t.Fatal(err)
			}
			// The schema of the data, the schema of the state, and the validator.
			if len(log.checked) != 3 || len(log.ran) != 3 {
				t.Fatalf("it asked %+v", log)
			}
			for _, caller := range slices.Concat(log.checked, log.ran) {
				if caller != want {
					t.Errorf("it worked for %q, want %q: %+v", caller, want, log)
				}
			}
		})
	}
}
