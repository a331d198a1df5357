package chain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
)

const orderChain = `
name: order
variables: {input: {item: pen, count: 1, secret: none}}
sensitive: [/input/secret]
steps: [{id: a, type: tool, server: s, action: a}]
`

// TestReusedRun: reusing the id of a run returns the run if the request is equivalent, however it is
// written, and is rejected otherwise. This holds even if only the store's record remains, or if its values
// are destroyed.
func TestReusedRun(t *testing.T) {
	runs, service, e := openRecorded(t, func(chain.Command) chain.Outcome { return chain.Outcome{Value: "ok"} }, orderChain, strings.Replace(orderChain, "order", "plain", 1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	long := strings.Repeat("pencil ", 1000) // its record is a digest
	inputs := map[string]string{"short": `{"count":2,"secret":"canary-1"}`, "long": `{"item":"` + long + `"}`, "none": ``}
	begin := func(run, input string) {
		t.Helper()
		if _, err := service.StartRun(ctx, ann, chain.StartRun{Chain: "order", Run: run, Input: json.RawMessage(input)}); err != nil {
			t.Fatal(err)
		}
		if v, err := service.WaitRun(ctx, ann, run); err != nil || v.Status != chain.StatusDone {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	for run, input := range inputs {
		begin(run, input)
	}
	begin("last", "") // a sweep keeps the last run

	check := func(when string, destroyed bool) {
		t.Helper()
		for _, tc := range []struct{ run, chain, input, want string }{
			{"short", "order", ` {"secret": "canary-1", "count": 2.0}`, ""},
			{"short", "order", `{"item":"pen","count":2,"secret":"canary-1"}`, ""}, // states a default explicitly
			{"short", "order", `{"count":3,"secret":"canary-1"}`, `of the chain "order" with another input`},
			{"short", "order", `{"count":"2","secret":"canary-1"}`, "another input"},
			{"short", "order", `{"count":2,"secret":"canary-2"}`, "another input"},
			{"short", "order", `{"count":2}`, "another input"},
			{"short", "order", `{"count":2,"secret":"canary-1","colour":"red"}`, "another input"},
			{"short", "order", ``, "another input"},
			{"short", "plain", `{"count":2,"secret":"canary-1"}`, `belongs to a run of the chain "order".`},
			{"long", "order", inputs["long"], ""},
			{"long", "order", `{"item":"` + long + `."}`, "another input"},
			{"none", "order", `{}`, ""},
			{"none", "order", `{"count":1,"item":"pen","secret":"none"}`, ""},
			{"none", "order", `{"count":0}`, "another input"},
		} {
			if destroyed && (strings.Contains(tc.input, "canary-2") || tc.input == `{"count":2}`) {
				tc.want = "" // the secret can no longer be compared
			}
			v, err := service.StartRun(ctx, ann, chain.StartRun{Chain: tc.chain, Run: tc.run, Input: json.RawMessage(tc.input)})
			switch {
			case tc.want == "" && (err != nil || v.Run != tc.run || v.Status != chain.StatusDone):
				t.Errorf("%s, %s with %.60s: %+v, %v", when, tc.run, tc.input, v, err)
			case tc.want != "" && (engine.CodeOf(err) != engine.CodeKeyReused || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s, %s of %s with %.60s: %v, want %q", when, tc.run, tc.chain, tc.input, err, tc.want)
			case err != nil && strings.Contains(err.Error(), "canary"):
				t.Errorf("%s: the refusal shows what is sensitive: %v", when, err)
			}
		}
	}
	check("known", false)
	if swept, err := runs.Sweep(ctx, time.Now().Add(time.Second)); err != nil || swept != len(inputs) {
		t.Fatalf("%d were swept, %v", swept, err)
	}
	check("swept", false)
	for _, run := range []string{"short", "long", "none", "last"} {
		if _, err := e.ShredInstance(ctx, olga, engine.RunInstance(chain.ScopeRun("ann", run))); err != nil {
			t.Fatal(err)
		}
	}
	check("destroyed", true)
	if v, err := service.StartRun(ctx, ann, chain.StartRun{Chain: "order", Run: "last", Input: json.RawMessage(`{"count":9}`)}); err != nil || v.Swept {
		t.Errorf("a run that was not swept and whose input is destroyed: %+v, %v", v, err)
	}
}

// TestReusedRunAtOnce: of two concurrent starts with the same id and different inputs, one is rejected; the
// other one's input is executed and recorded.
func TestReusedRunAtOnce(t *testing.T) {
	_, service, e := openRecorded(t, func(c chain.Command) chain.Outcome { return chain.Outcome{Value: c.Arguments} },
		strings.Replace(countingChain, "{n: 0}", "{n: 0, as: plain}", 1), strings.Replace(countingChain, "name: counting", "name: queued\nconcurrency: 1", 1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range []string{"counting", "queued"} {
		const many = 8
		var began sync.WaitGroup
		errs := make([]error, many)
		for n := range many {
			began.Go(func() {
				_, errs[n] = service.StartRun(ctx, ann, chain.StartRun{Chain: name, Run: name + "-1", Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n/2))})
			})
		}
		began.Wait()
		won := -1
		for n, err := range errs {
			switch {
			case err == nil && won >= 0 && n/2 != won:
				t.Errorf("%s: the inputs %d and %d both started the run", name, won, n/2)
			case err == nil:
				won = n / 2
			case engine.CodeOf(err) != engine.CodeKeyReused:
				t.Errorf("%s: %v", name, err)
			}
		}
		if v, err := service.WaitRun(ctx, ann, name+"-1"); err != nil || v.Status != chain.StatusDone {
			t.Fatalf("%+v, %v", v, err)
		}
		kept, err := e.Status(ctx, ann, engine.RunInstance(chain.ScopeRun("ann", name+"-1")))
		var shown struct {
			Input struct{ N int }
			Steps map[string]struct{ Output struct{ Last int } }
		}
		if err != nil || json.Unmarshal(kept.Context, &shown) != nil || shown.Input.N != won || shown.Steps["keep"].Output.Last != won {
			t.Errorf("%s: the input %d started the run, and its record is %s, %v", name, won, kept.Context, err)
		}
	}
}
