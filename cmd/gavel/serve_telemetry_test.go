package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// figures are what /metrics answers.
func (s *served) figures(token string) (status int, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+metricsPath, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// TestFiguresOfAServer: what is done shows in /metrics, for those who may look.
func TestFiguresOfAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "guarded.json"), strict)
	s := serveGavel(t, "--definitions", dir)
	if got := s.move(s.begin(s.agent, "guarded")); got != "reject" {
		t.Fatal(got)
	}
	auditor := s.token("watcher", "--role", "auditor")
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"nobody": {"", http.StatusUnauthorized}, "agent": {s.agent, http.StatusForbidden},
		"reviewer": {s.token("rev", "--role", "reviewer"), http.StatusForbidden}, "operator": {s.owner, http.StatusOK}, "auditor": {auditor, http.StatusOK},
		"operator of some workflows": {s.token("some", "--role", "operator", "--workflows", "refund-*"), http.StatusForbidden},
		"auditor of some workflows":  {s.token("few", "--role", "auditor", "--workflows", "refund-*"), http.StatusForbidden},
	} {
		if status, _ := s.figures(c.token); status != c.want {
			t.Errorf("%s: %d, want %d", name, status, c.want)
		}
	}
	_, text := s.figures(auditor)
	for _, want := range []string{
		`gavel_decisions_total{asked="advance",decided_by="fields",outcome="reject"} 1`,
		`gavel_events_total{kind="started"} 1`, `gavel_http_requests_total{code="403",method="GET",route="/metrics"} 4`,
		"gavel_sandbox_workers ", "gavel_store_batches_total ", `gavel_store_bytes{part="file"} `, "gavel_streams 0", "gavel_build_info{",
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, secret := range []string{"guarded", s.agent, "wf-", "local:agent"} {
		if strings.Contains(text, secret) {
			t.Errorf("what callers sent (%s) is in the figures", secret)
		}
	}
}

// TestFiguresForEverybody: where the operator says so, and where everybody is one principal.
func TestFiguresForEverybody(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--metrics-open"}, {"--auth", "none"}} {
		if status, text := serveGavel(t, flags...).figures(""); status != http.StatusOK || !strings.Contains(text, "gavel_build_info") {
			t.Errorf("%v: %d", flags, status)
		}
	}
}

// untilReady waits for the sandbox, which takes its time on a busy machine.
func (s *served) untilReady() {
	s.t.Helper()
	s.until("ready", func() bool {
		status, _ := s.ask("", http.MethodGet, "/readyz", "")
		return status == http.StatusOK
	})
}

// TestPartsOfReadiness names what is looked at.
func TestPartsOfReadiness(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--llm-model", "m", "--llm-base-url", "http://127.0.0.1:9/v1")
	s.untilReady()
	ready := s.must("", http.MethodGet, "/readyz", "")
	var got []string
	parts, _ := ready["parts"].([]any)
	for _, p := range parts {
		part, _ := p.(object)
		if part["ok"] != true {
			t.Errorf("%v", part)
		}
		name, _ := part["name"].(string)
		got = append(got, name)
	}
	if want := "store sandbox definitions model"; strings.Join(got, " ") != want || ready["ready"] != true {
		t.Errorf("%v, want %s", ready, want)
	}
}

// TestAnOutageIsSeen: in readiness and in gavel health with the decisions since, and as one line of
// the log.
func TestAnOutageIsSeen(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(endpoint.Close)
	s := serveGavel(t, "--llm-model", "m", "--llm-base-url", endpoint.URL)
	s.untilReady()
	for name, settings := range map[string]string{"lenient": `"useLLM":true`, "strict": `"useLLM":true,"strictMode":true,"onJudgeUnavailable":"structural"`} {
		s.must(s.owner, http.MethodPost, "/v1/definitions", `{"name":"`+name+`","initialState":"open","judgeConfig":{`+settings+`},
			"states":{"open":{"transitions":{"approve":{"target":"done","criteria":["The tests pass"]}}},"done":{"final":true}}}`)
	}
	advance := func(name string) object {
		return s.must(s.agent, http.MethodPost, "/v1/instances/"+s.begin(s.agent, name)+"/advance", `{"action":"approve","data":{"tests":"all of them passed"}}`)
	}
	if d, _ := advance("lenient")["decision"].(object); d["degraded"] != true {
		t.Errorf("%v", d)
	}
	refused := advance("strict")
	if d, _ := refused["decision"].(object); d["code"] != "judge_unavailable" || refused["retryAfterMs"] == nil && d["retryAfterMs"] == nil {
		t.Errorf("%v", refused)
	}
	var model object
	s.until("the outage to be seen", func() bool { // an answer may be a second old
		parts, _ := s.must("", http.MethodGet, "/readyz", "")["parts"].([]any)
		model, _ = parts[len(parts)-1].(object)
		return model["ok"] == false && model["decisions"] == float64(2)
	})
	if model["since"] == nil {
		t.Errorf("%v", model)
	}
	if out := string(runGavel(t, "health", s.url)); !strings.Contains(out, "ready; not working: model (since ") || !strings.Contains(out, "2 decisions without it") {
		t.Errorf("%s", out)
	}
	s.stop()
	if log := s.stderr.String(); strings.Count(log, "the model is not asked for now") != 1 || strings.Contains(log, "a part does not work") {
		t.Errorf("%s", log)
	}
}

// TestLogsAsJSON: one object a line, without what looks like a credential.
func TestLogsAsJSON(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--log-format", "json", "--log-level", "debug", "--llm-model", "m", "--llm-base-url", "http://127.0.0.1:9/v1")
	s.must(s.agent, http.MethodGet, "/v1/whoami", "")
	s.stop()
	objects := 0
	for line := range strings.Lines(s.stderr.String()) {
		var entry struct{ Level, Msg string }
		if !strings.HasPrefix(line, "{") {
			continue // what a person reads at the start
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "" || entry.Msg == "" {
			t.Errorf("%s: %v", line, err)
		}
		objects++
	}
	if objects == 0 || strings.Contains(s.stderr.String(), "level=") || strings.Contains(s.stderr.String(), s.agent) {
		t.Errorf("no objects, or more than they:\n%s", s.stderr)
	}
}
