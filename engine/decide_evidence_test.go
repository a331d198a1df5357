package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// asked is a Fetcher that records its requests.
type asked struct {
	mu    sync.Mutex
	names []string
}

func (a *asked) Fetch(_ context.Context, r judge.EvidenceRequest, _ bool) (judge.FetchResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = append(a.names, r.Name+" "+string(r.Arguments))
	return judge.FetchResult{Content: json.RawMessage(`{"pin":1234}`)}, nil
}

// A caller that writes the context itself must not use it to choose the queries to an operator's sources.
// Queries that use the action's data are allowed, because the caller always chooses those.
func TestDecideFetchesNothingWithACallersContext(t *testing.T) {
	t.Parallel()
	fetcher := &asked{}
	compiler := validators.NewCompiler(pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler, Fetcher: fetcher})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{
		Store: memory.New(), Judge: pipeline, Compiler: compiler, Sources: []string{"crm"}, ReadOnlySources: []string{"crm"},
		Digester: record.NewDigester([]byte("a key of thirty-two bytes length")), ReviewPath: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	define := func(name, required, policy string) {
		t.Helper()
		doc := `{"name":"` + name + `","initialState":"open","inputSchema":{"required":["customer"]},"states":{"closed":{"final":true},"open":{"transitions":{"close":{"target":"closed",
			"requiredFields":["order"],"onEvidenceMissing":"` + policy + `","evidence":[
			{"name":"order","source":"crm","arguments":{"id":"{{data.order}}"}},
			{"name":"customer","source":"crm","arguments":{"id":"c-{{context.customer}}"},"required":` + required + `}]}}}}}`
		if _, err := e.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(doc)}); err != nil {
			t.Fatal(err)
		}
	}
	define("needed", "true", "escalate")
	define("wanted", "false", "reject")
	for _, c := range []struct {
		workflow string
		p        engine.Principal
		approved bool
		code     string
		fetched  string
	}{
		{"needed", agent, false, judge.CodeEvidenceNotChecked, `order {"id":"o1"}`},
		{"wanted", agent, true, "", `order {"id":"o1"}`},
		{"needed", operator, true, "", `customer {"id":"c-victim"}, order {"id":"o1"}`},
	} {
		fetcher.names = nil
		got, err := e.Decide(t.Context(), c.p, engine.DecideRequest{
			Workflow: c.workflow, State: "open", Action: "close", Data: json.RawMessage(`{"order":"o1"}`), Context: json.RawMessage(`{"customer":"victim"}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(fetcher.names)
		if fetched := strings.Join(fetcher.names, ", "); got.Approved != c.approved || got.Decision.Code != c.code || fetched != c.fetched {
			t.Errorf("%s by %s: approved %t %s, fetched %s", c.workflow, c.p.ID, got.Approved, got.Decision.Code, fetched)
		}
		listed := slices.ContainsFunc(got.NotChecked, func(u engine.Unchecked) bool { return u.What == "evidence" && strings.Contains(u.Why, `"customer"`) })
		if listed != (c.p.Role != engine.RoleOperator) {
			t.Errorf("%s by %s: not checked %+v", c.workflow, c.p.ID, got.NotChecked)
		}
		for _, ev := range got.Decision.Evidence {
			if strings.HasPrefix(ev.Digest, "sha256:") {
				t.Errorf("%s by %s: the digest %s of %s needs no key", c.workflow, c.p.ID, ev.Digest, ev.Name)
			}
		}
	}
}

// An agent learns that evidence was fetched, but gets no digest that it could compare its guesses with.
func TestAnswersHaveNoDigestThatNeedsNoKey(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, memory.New(), &asked{}, func(c *engine.Config) {
		c.Sources, c.ReadOnlySources = []string{"crm"}, []string{"crm"}
	})
	b.define(operator, `{"name":"pin","initialState":"open","states":{"closed":{"final":true},"open":{"transitions":{"close":{"target":"closed",
		"evidence":[{"name":"card","source":"crm"}]}}}}}`)
	id := b.start(agent, "pin", "").ID
	asks := engine.AdvanceRequest{ID: id, Action: "close", Key: "k"}
	check, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "close"})
	if err != nil {
		t.Fatal(err)
	}
	told := [][]judge.Evidence{check.Decision.Evidence}
	for range 2 { // the second one is a replay
		moved, err := b.Advance(t.Context(), agent, asks)
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, moved.Decision.Evidence)
	}
	history := func(p engine.Principal) []judge.Evidence {
		h, err := b.History(t.Context(), p, engine.HistoryRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return h.Decisions[len(h.Decisions)-1].Decision.Evidence
	}
	told = append(told, history(agent))
	for i, all := range told {
		if len(all) != 1 || all[0].Size == 0 || all[0].Content != nil || all[0].Digest != "" || all[0].SameDigest != "" {
			t.Errorf("answer %d: %+v", i, all)
		}
	}
	if seen := history(operator); !strings.HasPrefix(seen[0].Digest, "sha256:") || seen[0].Content == nil {
		t.Errorf("an operator sees %+v", seen)
	}
}
