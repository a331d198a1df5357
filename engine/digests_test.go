package engine_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

var keyedDigests = regexp.MustCompile(`hmac-sha256[-:0-9a-fv]*`)

// An agent may have the same value digested in its own workflow, or in its own instance of the same
// workflow. None of its digests appear in records of another principal.
func TestDigestsAreNoOracle(t *testing.T) {
	t.Parallel()
	const flow = `{"name":"bank","initialState":"a","sensitive":["/pin","/alt"],"states":{"a":{"transitions":{"note":"a"}}}}`
	const data = `{"pin":"4711","alt":"4711"}`
	b := newBench(t)
	b.define(operator, flow)
	b.define(agent, named(flow, "guess"))
	digestsOf := func(text string) map[string]bool {
		out := map[string]bool{}
		for _, d := range keyedDigests.FindAllString(text, -1) {
			out[d] = true
		}
		return out
	}
	stored := func(p engine.Principal, workflow string) (id string, digests map[string]bool) {
		id = b.start(p, workflow, data).ID
		b.refused(p, id, "nothing", data, "illegal_action")
		var all strings.Builder
		for _, ev := range b.events(id) {
			all.Write(ev.Body())
		}
		return id, digestsOf(all.String())
	}
	exported := func(id string) map[string]bool {
		x, err := exportInstances(t.Context(), b, operator, id, "")
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, in := range x {
			all.Write(in.State)
			for _, line := range in.Lines {
				all.Write(line)
			}
		}
		return digestsOf(all.String())
	}
	victim, victims := stored(other, "bank")
	own, owns := stored(agent, "guess")
	_, sames := stored(agent, "bank")
	pairs := map[string][2]map[string]bool{"workflows in the store": {victims, owns}, "owners in the store": {victims, sames}}
	if exportInstances != nil {
		first, again := exported(victim), exported(victim)
		pairs["store and export"], pairs["two exports"], pairs["exports of two workflows"] = [2]map[string]bool{victims, first}, [2]map[string]bool{first, again}, [2]map[string]bool{first, exported(own)}
	}
	for name, pair := range pairs {
		if len(pair[0]) < 2 || len(pair[1]) < 2 {
			t.Errorf("%s: %v, %v: one digest for two paths", name, pair[0], pair[1])
		}
		for d := range pair[0] {
			if pair[1][d] {
				t.Errorf("%s share %s", name, d)
			}
		}
	}
	for _, p := range []engine.Principal{other, reviewer, auditor, operator} {
		h, err := b.History(t.Context(), p, engine.HistoryRequest{ID: victim})
		text, _ := json.Marshal(h)
		if err != nil || len(digestsOf(string(text))) > 0 || !strings.Contains(string(text), `"pin":"[masked]"`) {
			t.Errorf("the history for %s: %v, %s", p.Role, err, text)
		}
	}
}
