package eval

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/judge"
)

// Canaries are asked one at a time while there are decisions. Drift begins with the third wrong answer among the last
// twenty, and ends when at most one is left. Unanswered canaries do not count.
func TestCanaries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, twin := Case{ID: "good", Expect: Expect{Outcome: judge.Approve}}, Case{ID: "twin", Expect: Expect{Outcome: judge.Reject}}
		said, asked := judge.Approve, []string{}
		failure := ""
		var told []string
		c, err := StartCanaries(CanaryConfig{
			Cases: []Case{good, twin}, Rate: 0.5,
			Ask: func(ctx context.Context, one Case) Result {
				asked = append(asked, one.ID)
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
				outcome := said
				if said == "" { // a judge that is right
					outcome = one.Expect.Outcome
				}
				return Result{Case: one.ID, Outcome: outcome, Failure: failure, Calls: 1}
			},
			Watch: func(d Drift) {
				says := "drift at " + d.Case
				if d.Over {
					says = "over"
				}
				told = append(told, says)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		judged := func(decisions int) {
			for range decisions {
				c.Judged()
				time.Sleep(2 * time.Second) //nolint:forbidigo // the clock is synctest's
			}
			synctest.Wait()
		}
		judged(3)
		if !slices.Equal(asked, []string{"good"}) {
			t.Fatalf("three decisions at a rate of a half asked %q", asked)
		}
		failure = "model: network"
		judged(10)
		failure = ""
		if s := c.Stats(); s.Unanswered != 5 || s.Right != 1 || s.Drift.Answers != 1 {
			t.Fatalf("%+v", s)
		}
		judged(8)
		if s := c.Stats(); len(told) != 0 || s.WrongApprovals != 2 {
			t.Fatalf("%q %+v", told, s)
		}
		judged(4)
		if s := c.Stats(); strings.Join(told, ", ") != "drift at twin" || s.Drift.WrongApprovals != 3 || s.Drift.Since.IsZero() {
			t.Fatalf("%q %+v", told, s)
		}
		said = ""
		judged(2 * 17)
		if len(told) != 1 {
			t.Fatalf("%q", told)
		}
		judged(4)
		if s := c.Stats(); strings.Join(told, ", ") != "drift at twin, over" || !s.Drift.Since.IsZero() {
			t.Fatalf("%q %+v", told, s)
		}
		for range 10 { // one is being asked, one waits, and the others are dropped
			c.Judged()
		}
		before := c.Stats().Right
		time.Sleep(time.Minute) //nolint:forbidigo // the clock is synctest's
		synctest.Wait()
		if more := c.Stats().Right - before; more != 2 {
			t.Errorf("%d asked at once", more)
		}
		c.Judged()
		c.Judged()
		synctest.Wait()
		c.Close() // ends the question in progress
		(*Canaries)(nil).Close()
	})
}

func TestStartCanariesRefuses(t *testing.T) {
	t.Parallel()
	ask, watch := func(context.Context, Case) Result { return Result{} }, func(Drift) {}
	for _, cfg := range []CanaryConfig{
		{}, {Ask: ask, Watch: watch, Rate: 1}, {Ask: ask, Watch: watch, Cases: make([]Case, 1)}, {Ask: ask, Watch: watch, Cases: make([]Case, 1), Rate: 1.5},
	} {
		if c, err := StartCanaries(cfg); err == nil {
			c.Close()
			t.Errorf("%+v", cfg)
		}
	}
}
