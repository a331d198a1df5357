package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
)

// figures returns the response of /metrics.
func (s *served) figures(token string) (status int, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+serve.MetricsPath, http.NoBody)
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

// TestFiguresOfAServer: operations appear in /metrics, for callers who may read it.
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

// TestFiguresForEverybody: metrics are open if the operator allows it, and if all callers are one principal.
func TestFiguresForEverybody(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--metrics-open"}, {"--auth", "none"}} {
		if status, text := serveGavel(t, flags...).figures(""); status != http.StatusOK || !strings.Contains(text, "gavel_build_info") {
			t.Errorf("%v: %d", flags, status)
		}
	}
}

// untilReady waits for the sandbox, which can be slow on a busy machine.
func (s *served) untilReady() {
	s.t.Helper()
	s.until("ready", func() bool {
		status, _ := s.ask("", http.MethodGet, "/readyz", "")
		return status == http.StatusOK
	})
}

// TestPartsOfReadiness checks the names of the parts.
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

// TestAnOutageIsSeen: readiness and gavel health show an outage with the number of decisions since, and the log has
// one line.
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
	s.until("the outage to be seen", func() bool { // the answer may be a second old
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
	if log := s.stderr.String(); strings.Count(log, "the model is paused") != 1 || strings.Contains(log, "a component has failed") {
		t.Errorf("%s", log)
	}
}

// secretData is in the requests of these tests; no log line may contain it.
const secretData = "sixteen-tons-of-data"

// TestLogsAsJSON: every line is one JSON object, from start to end. There is one line for each decision, and none
// with judged data or anything that looks like a credential.
func TestLogsAsJSON(t *testing.T) {
	t.Parallel()
	flow := filepath.Join(t.TempDir(), "paper.json")
	put(t, flow, `{"name":"paper","initialState":"draft","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}},"states":{
		"draft":{"transitions":{"submit":{"target":"approval","requiredFields":["title"]}}},
		"approval":{"transitions":{"grant":{"target":"granted","risk":"high"}}},"granted":{"final":true}}}`)
	s := serveGavel(t, "--log-format", "json", "--log-level", "debug", "--definitions", flow, "--llm-model", "m", "--llm-base-url", "http://127.0.0.1:9/v1")
	s.must(s.agent, http.MethodPost, "/v1/instances", `{"type":"paper","context":{"n":"`+secretData+`"}}`)
	id, _ := s.must(s.agent, http.MethodPost, "/v1/instances", `{"type":"paper","context":{"who":"`+secretData+`"}}`)["id"].(string)
	at := "/v1/instances/" + id
	s.must(s.agent, http.MethodPost, at+"/advance", `{"action":"submit","data":{"who":"`+secretData+`"}}`)
	s.must(s.agent, http.MethodPost, at+"/validate", `{"action":"submit","data":{"title":"`+secretData+`"}}`)
	s.must(s.agent, http.MethodPost, at+"/advance", `{"action":"submit","data":{"title":"`+secretData+`"}}`)
	s.must(s.agent, http.MethodPost, "/v1/decide", `{"workflow":"paper","state":"draft","action":"submit","data":{"title":"`+secretData+`"}}`)
	parked, _ := s.must(s.agent, http.MethodPost, at+"/advance", `{"action":"grant","data":{"why":"`+secretData+`"}}`)["review"].(object)
	review, _ := parked["reviewId"].(string)
	s.must(s.token("rita", "--role", "reviewer"), http.MethodPost, "/v1/reviews/"+review+"/resolve", `{"decision":"reject","reason":"`+secretData+`"}`)
	s.must(s.agent, http.MethodPost, at+"/advance", `{"action":"send `+secretData+`"}`)
	s.ask("", http.MethodGet, "/v1/whoami", "")
	s.stop()

	lines := logLinesOf(t, s.stderr.String())
	if text := s.stderr.String(); strings.Contains(text, secretData) || strings.Contains(text, s.agent) || strings.Contains(text, s.owner) {
		t.Errorf("a line says too much:\n%s", text)
	}
	var got []string
	for _, line := range lines {
		if line["decidedBy"] == nil {
			continue
		}
		got = append(got, fmt.Sprint(line["level"], " ", line["msg"], " ", line["operation"], " ", line["action"], " ", line["outcome"], " ", line["decidedBy"], " ", line["revision"]))
		for _, name := range []string{"workflow", "version", "from", "code", "principal", "role", "id", "decisionId", "seq", "ms"} {
			if line[name] == nil {
				t.Errorf("%v has no %s", line, name)
			}
		}
		if recorded := line["seq"] != 0.0; (line["id"] == id) != recorded || (line["decisionId"] != "") != recorded {
			t.Errorf("not about %s: %v", id, line)
		}
	}
	want := []string{
		"INFO refused start  reject schema 0",
		"DEBUG decided start  approve schema 1",
		"INFO refused advance submit reject fields 1",
		"DEBUG pre-checked validate submit approve fields 1",
		"DEBUG decided advance submit approve fields 2",
		"DEBUG pre-checked validate submit approve fields 0",
		"INFO escalated advance grant escalate policy 2",
		"INFO refused review grant reject reviewer 2",
		"INFO refused advance  reject transition 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines of decisions (-want +got):\n%s", diff)
	}
	start, end := findLine(lines, "serving"), findLine(lines, "ended")
	if start == nil || start["version"] == "" || start["definitions"] != flow || start["auth"] != "token" || start["tls"] != false || start["address"] != s.url || end["address"] != s.url {
		t.Errorf("start %v, end %v", start, end)
	}
	if n := strings.Count(s.stderr.String(), "serving"); n != 1 {
		t.Errorf("the start is reported %d times:\n%s", n, s.stderr)
	}
}

// TestMCPLogs: there is one line at the start and one at the end, in addition to those of decisions.
func TestMCPLogs(t *testing.T) {
	t.Parallel()
	s := launch(t, "--store", storeIn(t), "--log-format", "json", "--log-level", "info", "--tool-names", "dotted")
	s.call("workflow.start", map[string]any{"type": "nothing", "context": map[string]any{"x": secretData}})
	_ = s.stdin.Close()
	<-s.ended
	lines := logLinesOf(t, s.stderr.String())
	if start, end := findLine(lines, "serving MCP"), findLine(lines, "ended"); start == nil || start["version"] == "" || start["principal"] != "local:agent" || end == nil {
		t.Errorf("start %v, end %v", start, end)
	}
}

// logLinesOf parses lines of a log, which must all be JSON with a level and a message.
func logLinesOf(t *testing.T, text string) (all []object) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one object
		if err := json.Unmarshal([]byte(line), &one); err != nil || one["level"] == nil || one["msg"] == "" || one["time"] == nil {
			t.Errorf("%q is no line of a log: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

func findLine(lines []object, message string) object {
	if i := slices.IndexFunc(lines, func(l object) bool { return l["msg"] == message }); i >= 0 {
		return lines[i]
	}
	return nil
}

// TestAllOfStderrIsJSON: with --log-format json, wherever it is set, errors, warnings and usage errors are JSON too.
func TestAllOfStderrIsJSON(t *testing.T) {
	dir := t.TempDir()
	file, broken := filepath.Join(dir, "gavel.yaml"), filepath.Join(dir, "broken.yaml")
	put(t, file, "logFormat: json\n")
	put(t, broken, "logFormat: json\nbogus: 1\nserve: {rate: -2}\n")
	judged := filepath.Join(dir, "judged.json")
	put(t, judged, `{"name":"j","initialState":"a","states":{"a":{"transitions":{"go":{"target":"b","useLLM":true}}},"b":{"final":true}}}`)
	store := filepath.Join(dir, "gavel.db")
	for name, c := range map[string]struct {
		args []string
		env  string
		says string
	}{
		"no store":              {[]string{"instances", "list", "--store", store, "--log-format", "json"}, "", `"exit":2`},
		"unknown flag":          {[]string{"serve", "--bogus", "--log-format=json"}, "", "no flag --bogus"},
		"unknown command":       {[]string{"srve", "--log-format", "json"}, "", "srve"},
		"missing value":         {[]string{"serve", "--log-format", "json", "--listen"}, "", "--listen"},
		"wrong value":           {[]string{"--log-format", "json", "serve", "--rate", "many"}, "", "--rate"},
		"missing argument":      {[]string{"token", "create", "--log-format", "json"}, "", "name"},
		"by a variable":         {[]string{"serve", "--bogus"}, "json", "no flag --bogus"},
		"by the file":           {[]string{"serve", "--config", file, "--auth", "none", "--listen", "0.0.0.0:0", "--store", "memory"}, "", "admits anyone who reaches the address"},
		"by a file of mistakes": {[]string{"serve", "--config", broken, "--store", "memory"}, "", "bogus"},
		"a warning":             {[]string{"mcp", "--store", "memory", "--definitions", judged, "--log-format", "json"}, "", `"level":"WARN"`},
		"a token for nobody":    {[]string{"serve", "--store", "memory", "--listen", "127.0.0.1:0", "--log-format", "json"}, "", "--auth none"},
		"errors as JSON too":    {[]string{"instances", "list", "--store", store, "--json", "--log-format", "json"}, "", `{"error":`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GAVEL_LOG_FORMAT", c.env)
			var stdout, stderr bytes.Buffer
			run(t.Context(), c.args, strings.NewReader(""), &stdout, &stderr)
			if stderr.Len() == 0 || !strings.Contains(stderr.String(), c.says) {
				t.Errorf("stderr has no %q: %s", c.says, stderr.String())
			}
			for line := range strings.Lines(stderr.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("%q is no JSON", line)
				}
			}
		})
	}
}
