package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// silentServer serves MCP without sessions. Its tools pay and send perform each call, but do not answer the first one,
// nor the next one after silence. calls returns how often a tool was called.
func silentServer(t *testing.T) (url string, calls func(tool string) int, silence func(tool string)) {
	t.Helper()
	var mu sync.Mutex
	count, silent := map[string]int{}, map[string]bool{"pay": true, "send": true}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		result := `{}`
		switch m.Method {
		case "server/discover":
			result = `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		case "tools/list":
			result = `{"tools":[{"name":"pay"},{"name":"send"}]}`
		case "tools/call":
			mu.Lock()
			count[m.Params.Name]++
			isSilent := silent[m.Params.Name]
			silent[m.Params.Name] = false
			mu.Unlock()
			if isSilent {
				<-r.Context().Done()
				return
			}
			result = `{"content":[{"type":"text","text":"answered"}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(h.Close)
	calls = func(tool string) int {
		mu.Lock()
		defer mu.Unlock()
		return count[tool]
	}
	silence = func(tool string) {
		mu.Lock()
		defer mu.Unlock()
		silent[tool] = true
	}
	return h.URL, calls, silence
}

const (
	payChain  = `{"name":"pay","steps":[{"id":"pay","type":"tool","server":"far","action":"pay","timeout":"500ms","save_output_to":"variables.output.paid"}]}`
	sendChain = `{"name":"send","steps":[{"id":"open","type":"workflow","action":"start","workflow":"order"},
		{"id":"send","type":"tool","server":"far","action":"send","timeout":"500ms","arguments":{"workflowId":"{{open.output.id}}"},"save_output_to":"variables.output.sent"}]}`
	sentOrder = `{"name":"order","initialState":"open","states":{"open":{"transitions":{"sent":"gone"}},"gone":{"final":true,"outcome":"success"}}}`
)

// TestRedriveAsksFirst: a call that its server did not answer in time is repeated only after a person allows it, over
// either face. A gated call is not repeated while its outcome is unknown to the gate.
func TestRedriveAsksFirst(t *testing.T) {
	t.Parallel()
	url, calls, silence := silentServer(t)
	config := writeChains(t, payChain, sendChain)
	put(t, filepath.Join(filepath.Dir(config), "flows", "order.json"), sentOrder)
	put(t, config, fmt.Sprintf(`chains: {definitions: chains}
definitions: [flows/*.json]
upstreams: {far: {url: %q, privateNetwork: true, protocol: "2026-07-28", callTimeout: 2s, allow: [{tools: ["*"]}]}}
gates: [{tool: far__send, workflow: order, states: open, success: sent}]
`, url))
	pinAll(t, config)
	s := serveGavel(t, "--config", config)
	there := []string{"--server", s.url, "--token-file", tokenFile(t, s.owner)}
	gavel := func(args ...string) string { return string(runGavel(t, append(args, there...)...)) }
	reviewer := s.token("rita", "--role", "reviewer") // the principal that the run acts for may not answer
	read := func(run string) object { return s.must(s.owner, http.MethodGet, "/v1/runs/"+run, "") }
	until := func(run, status string) object {
		t.Helper()
		s.until(run+" to be "+status, func() bool { return read(run)["status"] == status })
		return read(run)
	}
	fail := func(chain string) string {
		t.Helper()
		run, _ := s.must(s.owner, http.MethodPost, "/v1/runs", `{"chain":"`+chain+`"}`)["run"].(string)
		until(run, "failed")
		return run
	}
	review := func(run string) string {
		t.Helper()
		id := ""
		s.until("the question", func() bool {
			waiting, _ := read(run)["waiting"].([]any)
			if len(waiting) == 1 {
				id, _ = waiting[0].(object)["reviewId"].(string)
			}
			return id != ""
		})
		return id
	}

	byCommand := strings.Fields(gavel("chain", "redrive", fail("pay"), "--reason", "The network is back."))[0]
	asked := review(byCommand)
	if out := gavel("chain", "show", byCommand); calls("pay") != 1 || !strings.Contains(out, asked) {
		t.Errorf("before the answer it was called %d times, and the run shows:\n%s", calls("pay"), out)
	}
	runGavel(t, "review", "approve", asked, "--reason", "It is on the statement.", "--output", `{"receipt": 7}`, "--server", s.url, "--token-file", tokenFile(t, reviewer))
	if got := until(byCommand, "done")["output"]; marshal(got) != `{"paid":{"receipt":7}}` || calls("pay") != 1 {
		t.Errorf("it happened: %s, and it was called %d times", marshal(got), calls("pay"))
	}

	silence("pay")
	byREST, _ := s.must(s.owner, http.MethodPost, "/v1/runs/"+fail("pay")+"/redrive", `{}`)["run"].(string)
	asked = review(byREST)
	if calls("pay") != 2 {
		t.Errorf("before the answer it was called %d times", calls("pay"))
	}
	s.must(reviewer, http.MethodPost, "/v1/reviews/"+asked+"/resolve", `{"decision":"reject","reason":"It is not on the statement."}`)
	if got := until(byREST, "done")["output"]; marshal(got) != `{"paid":"answered"}` || calls("pay") != 3 {
		t.Errorf("it did not happen: %s, and it was called %d times", marshal(got), calls("pay"))
	}

	gated, _ := s.must(s.owner, http.MethodPost, "/v1/runs/"+fail("send")+"/redrive", `{}`)["run"].(string)
	if v := until(gated, "failed"); calls("send") != 1 {
		t.Errorf("behind the gate it was called %d times: %v", calls("send"), v)
	}
}
