package chain

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/internal/upstream"
)

// mcpServers are the servers of testdata/servers.json. Each speaks MCP over HTTP and answers with the
// current fakeServers.
type mcpServers struct {
	answers atomic.Pointer[fakeServers]
	// raw answers every call if it is set.
	raw  atomic.Pointer[func(w http.ResponseWriter, id string)]
	door *upstream.Manager
	// meta is the _meta of the last call, called its method and name.
	meta   atomic.Pointer[map[string]any]
	called atomic.Pointer[string]
}

// last returns the method and name of the last call.
func (s *mcpServers) last() string { return *s.called.Load() }

// openServers starts the servers, and opens a door to them.
func openServers(t testing.TB) *mcpServers {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "servers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var has map[string]map[string][]string
	if err := json.Unmarshal(raw, &has); err != nil {
		t.Fatal(err)
	}
	s := &mcpServers{}
	declared := map[string]any{}
	for name, items := range has {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, name, items) }))
		t.Cleanup(h.Close)
		everything := []string{"*"}
		declared[name] = map[string]any{"url": h.URL, "privateNetwork": true, "allow": []any{map[string]any{"tools": everything, "resources": everything, "prompts": everything}}}
	}
	s.door = openUpstreams(t, declared)
	return s
}

// serve answers one MCP message.
func (s *mcpServers) serve(w http.ResponseWriter, r *http.Request, server string, items map[string][]string) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name, URI string
			Arguments any
			Meta      map[string]any `json:"_meta"`
		}
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if len(m.ID) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var result any
	switch m.Method {
	case "initialize":
		capabilities := map[string]any{}
		for kind := range items {
			capabilities[kind] = map[string]any{}
		}
		result = map[string]any{"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": map[string]any{"name": server, "version": "1"}}
	case "tools/list":
		result = map[string]any{"tools": describeItems(items["tools"], map[string]any{"inputSchema": map[string]any{"type": "object"}})}
	case "prompts/list":
		result = map[string]any{"prompts": describeItems(items["prompts"], nil)}
	case "resources/list":
		var list []any
		for _, uri := range items["resources"] {
			list = append(list, map[string]any{"uri": uri, "name": uri})
		}
		result = map[string]any{"resources": list}
	case "resources/templates/list":
		result = map[string]any{"resourceTemplates": []any{}}
	default:
		called := m.Method + " " + m.Params.Name + m.Params.URI
		s.meta.Store(&m.Params.Meta)
		s.called.Store(&called)
		if raw := s.raw.Load(); raw != nil {
			(*raw)(w, string(m.ID))
			return
		}
		result = answerAsMCP(m.Method, s.answers.Load().Do(r.Context(), Command{Server: server, Name: m.Params.Name + m.Params.URI, Arguments: m.Params.Arguments}))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})))
}

func describeItems(names []string, more map[string]any) []any {
	list := []any{}
	for _, name := range names {
		item := map[string]any{"name": name}
		for key, value := range more {
			item[key] = value
		}
		list = append(list, item)
	}
	return list
}

// answerAsMCP converts an outcome to an MCP result.
func answerAsMCP(method string, o Outcome) any {
	text, isText := o.Value.(string)
	part := map[string]any{"type": "text", "text": text}
	switch {
	case o.Err != nil:
		part["text"] = o.Err.Message
		return map[string]any{"isError": true, "content": []any{part}}
	case method == "resources/read":
		return map[string]any{"contents": []any{map[string]any{"uri": "x", "text": text}}}
	case method == "prompts/get":
		return map[string]any{"messages": []any{map[string]any{"role": "user", "content": part}}}
	case isText:
		return map[string]any{"content": []any{part}}
	}
	return map[string]any{"content": []any{}, "structuredContent": o.Value}
}

var delays = regexp.MustCompile(`"delay_seconds": [0-9]+`)

// readSeed reads an example of the seed without its delays, which TestDelays covers.
func readSeed(t *testing.T, name string) *Definition {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("testdata", "seed", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, delays.ReplaceAllString(string(doc), `"delay_seconds": 0`))
}

// TestSeedRuns runs every example of the seed as its text promises: durably, through the door, with servers
// that speak MCP.
func TestSeedRuns(t *testing.T) {
	const vision, code = "vision-agent-mcp/", "code-mcp/"
	servers := openServers(t)
	runs, err := Open(context.Background(), Config{Path: filepath.Join(t.TempDir(), "chains.db"), Effects: Executor{Upstreams: servers.door}, Writer: writers.Writer, Repeatable: func(string, string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	type answers = map[string]func(Command, int) Outcome
	ran := map[string]bool{}
	for _, row := range []struct {
		seed, name string
		answers    answers
		calls      []string // in order, except within a parallel step
		output     string
		err        string
	}{
		{
			"simple", "saves what steps give",
			answers{vision + "screenshot": says("/tmp/1.png"), vision + "screenshots/latest": says("PNG"), code + "execute": says(map[string]any{"status": "OK"})},
			[]string{`vision-agent-mcp/navigate {"url":"https://example.com"}`, `vision-agent-mcp/screenshot {}`, `vision-agent-mcp/screenshots/latest null`, `code-mcp/execute {"code":"import json; print(json.dumps({'status': 'OK', 'timestamp': '2026-02-04'}))"}`},
			`{"analysis_result":{"status":"OK"},"screenshot_data":"PNG","screenshot_path":"/tmp/1.png"}`, "",
		},
		{
			"conditional", "alerts when the text is there",
			answers{vision + "verify": says("found Error")},
			[]string{`vision-agent-mcp/verify {"text":"Error"}`, `vision-agent-mcp/send_alert {"message":"Error detected!"}`},
			`{}`, "",
		},
		{"conditional", "does not alert when it is not", answers{vision + "verify": says("all is well")}, []string{`vision-agent-mcp/verify {"text":"Error"}`}, `{}`, ""},
		{
			"conditional", "alerts once when verifying fails",
			answers{vision + "verify": fails("no page"), vision + "send_alert": says("Error sent")},
			[]string{`vision-agent-mcp/verify {"text":"Error"}`, `vision-agent-mcp/send_alert {"message":"Error detected!"}`},
			`{}`, "",
		},
		{
			"parallel", "checks all, then adds up", nil,
			[]string{
				`vision-agent-mcp/verify {"url":"https://site1.com"}`, `vision-agent-mcp/verify {"url":"https://site2.com"}`, `vision-agent-mcp/verify {"url":"https://site3.com"}`,
				`code-mcp/execute {"code":"import json; results = [check_site1.output, check_site2.output, check_site3.output]; print(json.dumps({'total': len(results), 'passed': sum(1 for r in results if 'OK' in r)}))"}`,
			},
			`{}`, "",
		},
		{"loop", "ends with the expected text", answers{vision + "screenshot": func(_ Command, call int) Outcome {
			return Outcome{Value: map[int]string{1: "nothing", 2: "the Expected Text"}[call]}
		}}, []string{`vision-agent-mcp/screenshot {}`, `vision-agent-mcp/screenshots/latest null`, `vision-agent-mcp/screenshot {}`, `vision-agent-mcp/screenshots/latest null`}, `{}`, ""},
		{
			"loop", "ends by its cap",
			answers{vision + "screenshot": says("nothing")},
			nil, `{}`,
			`the loop "wait_loop" ended after 60 iterations without its condition becoming true: {{step_check.output}} contains 'Expected Text'`,
		},
		{"retry", "falls back after three attempts", answers{vision + "navigate": func(c Command, _ int) Outcome {
			if marshal(c.Arguments) == `{"url":"https://example.com"}` {
				return fails("down")(c, 0)
			}
			return Outcome{Value: "ok"}
		}}, []string{`vision-agent-mcp/navigate {"url":"https://example.com"}`, `vision-agent-mcp/navigate {"url":"https://example.com"}`, `vision-agent-mcp/navigate {"url":"https://example.com"}`, `vision-agent-mcp/navigate {"url":"https://backup.example.com"}`}, `{}`, ""},
		{"fallback", "is not used when all is well", nil, []string{`vision-agent-mcp/screenshot {}`}, `{}`, ""},
		{"fallback", "is used on an error", answers{vision + "screenshot": fails("no")}, []string{`vision-agent-mcp/screenshot {}`, `vision-agent-mcp/navigate {"url":"https://backup.example.com"}`}, `{}`, ""},
		{
			"callback", "says which step failed, and why",
			answers{vision + "navigate": fails("the site is down")},
			[]string{`vision-agent-mcp/navigate {"url":"https://down.example.com"}`, `vision-agent-mcp/alert {"message":"Workflow failed at step broken: the site is down"}`},
			`{}`, "the site is down",
		},
		{"daily_check", "passes Python on as it is", nil, []string{
			`vision-agent-mcp/navigate {"url":"https://mysite.com"}`, `vision-agent-mcp/screenshot {}`, `vision-agent-mcp/analyze_dashboard {"dashboard_url":"https://mysite.com"}`,
			`code-mcp/execute {"code":"with open('/tmp/check_result.txt', 'w') as f: f.write(json.dumps({{'timestamp': '2026-02-04', 'status': 'OK'}}))"}`,
		}, `{}`, ""},
		{"form_test", "passes an object on as an object", nil, []string{
			`vision-agent-mcp/navigate {"url":"https://example.com/form"}`, `vision-agent-mcp/fill_form {"fields":{"password":"test","username":"test"},"url":"https://example.com/form"}`,
			`vision-agent-mcp/screenshot {}`, `vision-agent-mcp/verify {"text":"Success"}`, `code-mcp/execute {"code":"print('Form test passed')"}`,
		}, `{}`, ""},
		{"compare_sites", "takes elements of a list, and the list", nil, []string{
			`vision-agent-mcp/navigate {"url":"https://site1.com"}`, `vision-agent-mcp/navigate {"url":"https://site2.com"}`, `vision-agent-mcp/navigate {"url":"https://site3.com"}`,
			`vision-agent-mcp/compare_multiple_sites {"sites":"[\"https://site1.com\",\"https://site2.com\",\"https://site3.com\"]"}`,
		}, `{}`, ""},
		{
			"communication", "calls a tool, hands a resource to another server, and gets prompts of two",
			answers{vision + "screenshots/latest": says("PNG"), vision + "analyze_dashboard": says("Look at ..."), "prompts-engine/summarize": says("In short")},
			[]string{
				`vision-agent-mcp/screenshot {}`, `vision-agent-mcp/screenshots/latest null`, `code-mcp/execute {"data":"PNG","uri":"input/screenshot"}`,
				`vision-agent-mcp/analyze_dashboard {"dashboard_url":"..."}`, `prompts-engine/summarize {"text":"Look at ..."}`,
			},
			`{"messages":[{"content":{"text":"In short","type":"text"},"role":"user"}]}`, "",
		},
		{
			"variables", "has no saved value the first time",
			answers{code + "execute": says(map[string]any{"now": 1770163200}), vision + "navigate": says("the page"), vision + "screenshot": says("/tmp/1.png")},
			[]string{
				`code-mcp/execute {"code":"import time; print(time.time())"}`, `vision-agent-mcp/navigate {"url":"https://example.com"}`,
				`vision-agent-mcp/verify {"at":{"now":1770163200},"before":null,"page":"the page"}`, `vision-agent-mcp/screenshot {}`,
			},
			`{}`, "",
		},
		{
			"variables", "has what the first run saved, and fails",
			answers{code + "execute": says("noon"), vision + "screenshot": fails("the disk is full")},
			[]string{
				`code-mcp/execute {"code":"import time; print(time.time())"}`, `vision-agent-mcp/navigate {"url":"https://example.com"}`,
				`vision-agent-mcp/verify {"at":"noon","before":"/tmp/1.png","page":"ok"}`, `vision-agent-mcp/screenshot {}`,
			},
			`{}`, "the disk is full",
		},
		{
			"variables", "has it still after a run that failed",
			answers{code + "execute": says("one")},
			[]string{
				`code-mcp/execute {"code":"import time; print(time.time())"}`, `vision-agent-mcp/navigate {"url":"https://example.com"}`,
				`vision-agent-mcp/verify {"at":"one","before":"/tmp/1.png","page":"ok"}`, `vision-agent-mcp/screenshot {}`,
			},
			`{}`, "",
		},
		{"schedule_cron", "runs", nil, []string{`vision-agent-mcp/navigate {"url":"https://example.com"}`}, `{}`, ""},
		{"schedule_interval", "runs", nil, []string{`vision-agent-mcp/navigate {"url":"https://example.com"}`}, `{}`, ""},
		{"schedule_once", "runs", nil, []string{`vision-agent-mcp/navigate {"url":"https://example.com"}`}, `{}`, ""},
	} {
		ran[row.seed] = true
		t.Run(row.seed+" "+row.name, func(t *testing.T) {
			f := &fakeServers{answers: row.answers}
			servers.answers.Store(f)
			r := waitRun(t, runs, startRun(t, runs, readSeed(t, row.seed), ""))
			if message := errorText(r.Err); message != row.err {
				t.Errorf("the run's error is %q, want %q", message, row.err)
			}
			if got := marshal(r.Output); got != row.output {
				t.Errorf("the output is %s, want %s", got, row.output)
			}
			if row.seed == "parallel" || row.seed == "compare_sites" {
				slices.Sort(f.calls[:3])
			}
			if row.calls != nil {
				if diff := cmp.Diff(row.calls, f.calls); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
	files, err := filepath.Glob("testdata/seed/*.json")
	if err != nil || len(files) != len(ran) {
		t.Errorf("%d examples of the seed ran, and there are %d: %v", len(ran), len(files), err)
	}
}

// TestSeedSchedules: the schedules of the seed fire at the times that its text states.
func TestSeedSchedules(t *testing.T) {
	at := func(text string) time.Time {
		moment, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return moment
	}
	for name, want := range map[string][]string{
		"simple":            {"2026-02-04T09:00:00Z", "2026-02-05T09:00:00Z", "2026-02-06T09:00:00Z"},
		"daily_check":       {"2026-02-04T09:00:00Z", "2026-02-05T09:00:00Z", "2026-02-06T09:00:00Z"},
		"schedule_cron":     {"2026-02-04T09:00:00Z", "2026-02-05T09:00:00Z", "2026-02-06T09:00:00Z"},
		"schedule_interval": {"2026-02-04T08:05:00Z", "2026-02-04T08:10:00Z", "2026-02-04T08:15:00Z"},
		"schedule_once":     {"2026-02-04T14:30:00Z"},
	} {
		schedule := readSeed(t, name).Schedule
		var got []string
		for now := at("2026-02-04T08:00:01Z"); len(got) < 3; {
			tick, ok := schedule.Next(now)
			if !ok {
				break
			}
			got, now = append(got, tick.Format(time.RFC3339)), tick
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is due at %q, want %q", name, got, want)
		}
	}
}
