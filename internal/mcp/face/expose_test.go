package face_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/modules/gateway/expose"
	"github.com/gavel-mcp/gavel/validators/document"
)

const releaseWorkflow = `{
	"name": "release.v2", "description": "Releases a service.", "comment": "First the checks, then the release.", "initialState": "draft",
	"inputSchema": {"type": "object", "properties": {"service": {"type": "string", "minLength": 3}}, "required": ["service"], "additionalProperties": false},
	"states": {
		"draft": {"transitions": {"submit": "checked"}}, "checked": {"transitions": {"release": "released", "drop": "dropped"}},
		"released": {"final": true, "outcome": "success"}, "dropped": {"final": true, "outcome": "failure"}}}`

// exposing exposes two workflows of the operator: release.v2 and, in express mode, other.
func exposing(t testing.TB, e *engine.Engine, wait time.Duration) option {
	t.Helper()
	tools := exposed(t, e, wait)
	return func(c *face.Config) { c.Extras = tools }
}

func exposed(t testing.TB, e *engine.Engine, wait time.Duration) *expose.Tools {
	t.Helper()
	file, err := document.Parse("gavel.yaml", []byte("{prefix: rel, workflows: [{name: other, mode: express}]}"), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := expose.ParseConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Wait = wait
	for _, doc := range []string{releaseWorkflow, strings.Replace(releaseWorkflow, "release.v2", "other", 1), strings.Replace(releaseWorkflow, "release.v2", "hidden", 1)} {
		if _, err := e.Define(t.Context(), localOperator, engine.DefineRequest{Source: "definition", Document: []byte(doc)}); err != nil {
			t.Fatal(err)
		}
	}
	tools := expose.New(e, cfg, slog.New(slog.DiscardHandler))
	t.Cleanup(tools.Close)
	return tools
}

var localOperator = engine.Principal{ID: "local:operator", Role: engine.RoleOperator}

func scopedTo(workflows string) option {
	return func(c *face.Config) { c.Principal.Workflows = workflows }
}

// A golden file holds what each principal sees.
func TestExposedList(t *testing.T) {
	for name, options := range map[string][]option{
		"agent": {withSchemas}, "scope": {scopedTo("other work*")}, "operator": {as("operator"), withSchemas}, "reviewer": {as("reviewer")},
	} {
		e := newEngine(t)
		w := serve(t, e, append(options, exposing(t, e, 30*time.Second))...)
		w.hello("claude-ai")
		var all bytes.Buffer
		for _, raw := range w.listRaw() {
			if bytes.Contains(raw, []byte(`"name":"workflow_`)) {
				continue
			}
			if err := json.Indent(&all, raw, "", "  "); err != nil {
				t.Fatal(err)
			}
			all.WriteByte('\n')
		}
		switch name {
		case "reviewer": // which may start nothing
			if all.Len() > 0 {
				t.Errorf("a reviewer sees %s", all.String())
			}
		case "operator":
			golden(t, "../exposed/agent.json", all.Bytes())
		default:
			golden(t, "../exposed/"+name+".json", all.Bytes())
		}
		w.end()
	}
}

// Calling an exposed workflow is like workflow.start: the same answer, and the same idempotency.
func TestExposedCall(t *testing.T) {
	e := newEngine(t)
	w := serve(t, e, exposing(t, e, time.Second))
	w.hello("test")
	call := func(tool, arguments, meta string) (r result) {
		t.Helper()
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":%s}}`, tool, arguments, meta))
		var m struct{ Result result }
		if err := json.Unmarshal(w.nextLine(), &m); err != nil {
			t.Fatal(err)
		}
		conforms(t, "workflow.start", &m.Result)
		return m.Result
	}
	first := call("release_v2", `{"service":"api"}`, `{"gavel/idempotencyKey":"k"}`)
	if first.IsError || first.StructuredContent["state"] != "draft" || fmt.Sprint(first.StructuredContent["nextActions"]) != "[submit]" {
		t.Errorf("started: %s", first.text())
	}
	for tool, arguments := range map[string]string{"release_v2": `{ "service": "api" }`, "workflow.start": `{"type":"release.v2","context":{"service":"api"},"idempotencyKey":"k"}`} {
		if again := call(tool, arguments, `{"gavel/idempotencyKey":"k"}`); again.StructuredContent["id"] != first.StructuredContent["id"] || again.StructuredContent["replayed"] != true {
			t.Errorf("%s with the same key: %s", tool, again.text())
		}
	}
	if other := call("release_v2", `{"service":"api"}`, `{}`); other.StructuredContent["id"] == first.StructuredContent["id"] {
		t.Errorf("without a key: %s", other.text())
	}
	for arguments, want := range map[string]string{
		`{"service":"ab"}`:                       `\"/service\" must have at least 3 characters`,
		`{}`:                                     `\"/service\" is required`,
		`{"service":"api","type":"other"}`:       `"/type`,
		`["api"]`:                                `The arguments are a list, not an object.`,
		`{"service":"api","service":"blog"}`:     `duplicate key`,
		`{"service":"api","n":9007199254740993}`: `would change when read`,
		`{"service":"` + strings.Repeat("a", 70_000) + `"}`: `65536`,
	} {
		if r := call("release_v2", arguments, `{}`); !r.IsError || !strings.Contains(r.text(), want) && !strings.Contains(strings.ReplaceAll(r.text(), `\\`, `\`), want) {
			t.Errorf("%.60s is answered %s, want %s", arguments, r.text(), want)
		}
	}
	if r := call("release_v2", `{"service":"api"}`, `{"gavel/idempotencyKey":7}`); r.code() != "invalid_argument" || !strings.Contains(r.text(), "The idempotency key is a number.") {
		t.Errorf("a key that is no text: %s", r.text())
	}
	page, err := e.Instances(t.Context(), localOperator, engine.InstancesRequest{})
	if err != nil || page.Count != 2 {
		t.Errorf("%d instances, %v: refused starts must leave none", page.Count, err)
	}
}

// If the schema of a tool is wrapped, its input is the only argument.
func TestExposedWrapped(t *testing.T) {
	e := newEngine(t)
	option := exposing(t, e, time.Second)
	choice := strings.NewReplacer("release.v2", "rel-choice", `"required": ["service"]`, `"anyOf": [{"required": ["service"]}]`).Replace(releaseWorkflow)
	if _, err := e.Define(t.Context(), localOperator, engine.DefineRequest{Source: "definition", Document: []byte(choice)}); err != nil {
		t.Fatal(err)
	}
	w := serve(t, e, option)
	w.hello("test")
	for arguments, want := range map[string]string{
		`{"input":{"service":"api"}}`: `\"state\":\"draft\"`,
		`{"service":"api"}`:           `\"path\":\"/input\"`,
		`{"input":{}}`:                `"isError":true`,
		`{"input":"api"}`:             `"isError":true`,
	} {
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rel-choice","arguments":%s}}`, arguments))
		if got := string(w.nextLine()); !strings.Contains(got, want) {
			t.Errorf("%s is answered %s", arguments, got)
		}
	}
}

// A workflow that a principal may not start does not exist for it.
func TestUnstartableWorkflowIsNotExposed(t *testing.T) {
	e := newEngine(t)
	w := serve(t, e, exposing(t, e, time.Second), scopedTo("other"))
	w.hello("test")
	for _, name := range []string{"release_v2", "hidden", "nothing_v2"} {
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"service":"api"}}}`, name))
		got := string(w.nextLine())
		if !strings.Contains(got, `There is no tool \"`+name+`\".`) || strings.Contains(strings.ReplaceAll(got, `\"`+name, ""), "release") || !strings.Contains(got, ", other.") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestExposedExpress(t *testing.T) {
	for name, c := range map[string]struct {
		end     func(e *engine.Engine, id string) error
		failed  bool
		content map[string]string
		reports int
	}{
		"success": {
			func(e *engine.Engine, id string) error { return advance(t, e, id, "submit", "release") }, false,
			map[string]string{"state": `"released"`, "complete": "true", "outcome": `"success"`, "context": `{"service":"api","by":"ops"}`},
			2,
		},
		"failure": {
			func(e *engine.Engine, id string) error { return advance(t, e, id, "submit", "drop") }, true,
			map[string]string{"state": `"dropped"`, "complete": "true", "outcome": `"failure"`},
			2,
		},
		"cancelled": {func(e *engine.Engine, id string) error {
			_, err := e.Cancel(t.Context(), localOperator, engine.CancelRequest{ID: id, Reason: "not now"})
			return err
		}, true, map[string]string{"state": `"draft"`, "complete": "false", "status": `"cancelled"`}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			w := serve(t, e, exposing(t, e, patience), withSchemas)
			w.hello("test")
			w.send(expressCall(`{"progressToken":"p"}`))
			moved := make(chan error, 1)
			for n := 0; ; n++ {
				m := w.next()
				if m["id"] == nil {
					params := m["params"].(map[string]any)
					if m["method"] != "notifications/progress" || params["progressToken"] != "p" || params["progress"] != float64(n+1) || params["message"] == "" {
						t.Fatalf("got %v", m)
					}
					if n == 0 { // it has started
						go func() { moved <- c.end(e, onlyInstance(t, e)) }()
					}
					continue
				}
				if err := <-moved; err != nil {
					t.Fatal(err)
				}
				if n < 1 || n > c.reports { // the last move is the answer, and two reports may be merged
					t.Errorf("%d reports of progress, want %d", n, c.reports)
				}
				answer := m["result"].(map[string]any)
				content := answer["structuredContent"].(map[string]any)
				if failed := answer["isError"] == true; failed != c.failed {
					t.Errorf("isError is %v: %v", failed, content)
				}
				for key, want := range c.content {
					if got, _ := document.Marshal(content[key]); !document.ReadTrusted(got).Equal(document.ReadTrusted([]byte(want))) {
						t.Errorf("%s is %s, want %s", key, got, want)
					}
				}
				break
			}
		})
	}
}

func expressCall(meta string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"other","arguments":{"service":"api"},"_meta":` + meta + `}}`
}

func onlyInstance(t *testing.T, e *engine.Engine) string {
	page, err := e.Instances(t.Context(), localOperator, engine.InstancesRequest{})
	if err != nil || page.Count != 1 {
		t.Errorf("%d instances, %v", page.Count, err)
		return ""
	}
	return page.Instances[0].ID
}

func advance(t *testing.T, e *engine.Engine, id string, actions ...string) error {
	for _, action := range actions {
		r, err := e.Advance(t.Context(), localOperator, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(`{"by":"ops"}`))})
		if err != nil || !r.Decision.Applied {
			return fmt.Errorf("%s: %v, %w", action, r.Decision, err)
		}
	}
	return nil
}

// A call that stops waiting before the end has still started an instance.
func TestExpressWithoutAnEnd(t *testing.T) {
	t.Run("the time is over", func(t *testing.T) {
		e := newEngine(t)
		w := serve(t, e, exposing(t, e, 10*time.Millisecond))
		w.hello("claude-ai")
		w.send(expressCall(`{}`))
		var m struct{ Result result }
		if err := json.Unmarshal(w.nextLine(), &m); err != nil {
			t.Fatal(err)
		}
		if text := m.Result.text(); m.Result.IsError || !strings.Contains(text, `"id":"`+onlyInstance(t, e)) || !strings.Contains(text, `"note":"It has not ended within 10ms and continues; check again with workflow_status."`) || strings.Contains(text, "context") {
			t.Errorf("got %s", text)
		}
	})
	for name, leave := range map[string]func(w *session){
		"the client cancels": func(w *session) {
			w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			w.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
			if m := w.next(); m["id"] != float64(2) { // and no answer to request 1
				w.t.Errorf("got %v", m)
			}
		},
		"the server stops": func(w *session) { w.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			w := serve(t, e, exposing(t, e, time.Hour))
			w.hello("test")
			w.send(expressCall(`{"progressToken":1}`))
			if m := w.next(); m["method"] != "notifications/progress" {
				t.Fatalf("got %v", m)
			}
			leave(w)
			w.end()
			if s, err := e.StatusAt(t.Context(), localOperator, onlyInstance(t, e), engine.When{}); err != nil || s.State != "draft" || s.Status != record.Running {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

// A change is announced only on connections that it affects.
func TestExposedListChanged(t *testing.T) {
	e := newEngine(t)
	tools := exposed(t, e, time.Second)
	x := func(c *face.Config) { c.Extras = tools }
	all, scoped := serve(t, e, x), serve(t, e, x, scopedTo("other"))
	all.hello("test")
	scoped.hello("test")
	define := func(name string) {
		doc := strings.Replace(releaseWorkflow, "release.v2", name, 1)
		doc = strings.Replace(doc, "Releases", "Now releases", 1)
		if _, err := e.Define(t.Context(), localOperator, engine.DefineRequest{Source: "definition", Document: []byte(doc)}); err != nil {
			t.Fatal(err)
		}
		tools.List(t.Context(), localOperator) // looks immediately
	}
	define("release.v2")
	if m := all.next(); m["method"] != "notifications/tools/list_changed" {
		t.Errorf("got %v", m)
	}
	define("other")
	for _, w := range []*session{all, scoped} { // for scoped, this is the first notification
		if m := w.next(); m["method"] != "notifications/tools/list_changed" {
			t.Errorf("got %v", m)
		}
	}
	if got := scoped.list(); !strings.Contains(fmt.Sprint(got[len(got)-1]["description"]), "Now releases") {
		t.Errorf("listed: %v", got[len(got)-1])
	}
	select {
	case line := <-scoped.lines:
		t.Errorf("one more: %s", line)
	default:
	}
}
