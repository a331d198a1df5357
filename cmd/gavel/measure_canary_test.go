package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// TestDriftIsReported: a judge approves a bad twin that it is known to refuse. The log, the metrics and readiness show
// that, and the judge keeps working.
func TestDriftIsReported(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(llmtest.New(llmtest.OpenAI(), llmtest.Gullible))
	t.Cleanup(endpoint.Close)
	dir := t.TempDir()
	flow, cases := filepath.Join(dir, "flow.json"), filepath.Join(dir, "canaries.jsonl")
	put(t, flow, `{"name":"review","initialState":"open","judgeConfig":{"useLLM":true,"criteria":["The notes say how it was tested"]},
		"states":{"open":{"transitions":{"approve":{"target":"done"}}},"done":{"final":true}}}`)
	put(t, cases, `{"id":"twin","workflow":{"ref":"flow.json"},"state":"open","action":"approve","data":{"notes":"It should work as it is now."},"expect":{"outcome":"reject"},"label":{"source":"human"},"split":"dev"}`+"\n")
	s := serveGavel(t, "--definitions", flow, "--llm-model", "m", "--llm-base-url", endpoint.URL, "--llm-canaries", cases, "--llm-canary-rate", "1")
	s.untilReady()
	for n := 1; n <= 3; n++ {
		moved := s.must(s.agent, http.MethodPost, "/v1/instances/"+s.begin(s.agent, "review")+"/advance", fmt.Sprintf(`{"action":"approve","data":{"notes":"Ran the whole suite %d times, all green."}}`, n))
		if d, _ := moved["decision"].(object); d["outcome"] != "approve" {
			t.Fatalf("%v", moved)
		}
		s.until("the canary's answer", func() bool {
			_, text := s.figures(s.owner)
			return strings.Contains(text, fmt.Sprintf("\ngavel_canaries_total{result=\"wrong_approval\"} %d", n))
		})
	}
	s.sees("the judge has drifted")
	s.until("the drift to be seen", func() bool { // the answer may be a second old
		ready := s.must("", http.MethodGet, "/readyz", "")
		parts, _ := ready["parts"].([]any)
		part, _ := parts[len(parts)-1].(object)
		return ready["ready"] == true && part["name"] == "canaries" && part["ok"] == false && part["since"] != nil
	})
	if _, text := s.figures(s.owner); !strings.Contains(text, "\ngavel_judge_drift 1") {
		t.Errorf("%s", text)
	}
	if out := string(runGavel(t, "health", s.url)); !strings.Contains(out, "ready; not working: canaries (since ") {
		t.Errorf("%s", out)
	}
	s.stop()

	for _, tt := range []struct{ says, flags string }{
		{"needs a model", ""},
		{"must be above 0", "--llm-model m --llm-base-url http://127.0.0.1:9 --llm-canary-rate 2"},
	} {
		var stderr bytes.Buffer
		args := append([]string{"serve", "--store", "memory", "--listen", "127.0.0.1:0", "--llm-canaries", cases}, strings.Fields(tt.flags)...)
		if code := run(context.Background(), args, strings.NewReader(""), &bytes.Buffer{}, &stderr); code != 2 || !strings.Contains(stderr.String(), tt.says) {
			t.Errorf("%s: %d\n%s", tt.flags, code, &stderr)
		}
	}
}
