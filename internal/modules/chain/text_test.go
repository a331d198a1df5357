package chain

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// sdkServer answers like servers built on the official SDKs: a result for each name, and the output schema
// of each tool.
type sdkServer struct {
	results map[string]string
	schemas map[string]string
	calls   []string
}

func (s *sdkServer) List(engine.Principal, upstream.Kind) (items []upstream.Item) {
	for name, schema := range s.schemas {
		items = append(items, upstream.Item{Upstream: "s", Kind: upstream.KindTool, Name: name, Raw: json.RawMessage(`{"name":"` + name + `","outputSchema":` + schema + `}`)})
	}
	return items
}

func (s *sdkServer) Call(_ context.Context, _ engine.Principal, req upstream.Request) (upstream.Reply, error) {
	arguments, _ := decodeJSON(req.Params).(map[string]any)
	s.calls = append(s.calls, req.Name+" "+marshal(arguments["arguments"]))
	result, known := s.results[req.Name]
	if !known {
		result = `{"content":[{"type":"text","text":"ok"}]}`
	}
	return upstream.Reply{Result: json.RawMessage(result)}, nil
}

// wrapperSchema is the output schema that the Python SDK generates for a tool that returns a plain JSON
// type.
func wrapperSchema(kind string) string {
	return `{"type":"object","properties":{"result":{"title":"Result",` + kind + `}},"required":["result"],"title":"Output"}`
}

// TestOutputAsText: an output that is used as text is the text of the result's content. A value that an SDK
// wrapped in an object is the output itself.
func TestOutputAsText(t *testing.T) {
	for _, row := range []struct {
		name, result, schema string
		step, use            string // the step that produces the output ("" is a tool), and the arguments that use it
		want                 string
	}{
		{"a wrapped text", `{"content":[{"type":"text","text":"an Error"}],"structuredContent":{"result":"an Error"}}`, wrapperSchema(`"type":"string"`), "", `v: "{{a.output}}", t: "<{{a.output}}>"`, `{"t":"<an Error>","v":"an Error"}`},
		{"its member", `{"content":[{"type":"text","text":"an Error"}],"structuredContent":{"result":"an Error"}}`, wrapperSchema(`"type":"string"`), "", `v: "{{a.output.result}}"`, `{"v":"an Error"}`},
		{"a wrapped list", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"structuredContent":{"result":["a","b"]}}`, wrapperSchema(`"type":"array"`), "", `v: "{{a.output[1]}}", w: "{{a.output.result[0]}}", t: "<{{a.output}}>"`, `{"t":"<a\nb>","v":"b","w":"a"}`},
		{"a wrapped null", `{"content":[],"structuredContent":{"result":null}}`, wrapperSchema(`"type":"null"`), "", `v: "{{a.output}}", t: "<{{a.output}}>"`, `{"t":"<null>","v":null}`},
		{"an object with a member of that name", `{"content":[],"structuredContent":{"result":"x"}}`, `{"type":"object","properties":{"result":{},"more":{}}}`, "", `v: "{{a.output}}"`, `{"v":{"result":"x"}}`},
		{"an object without a schema", `{"content":[{"type":"text","text":"it is x"}],"structuredContent":{"result":"x"}}`, `{}`, "", `v: "{{a.output}}", t: "<{{a.output}}>"`, `{"t":"<it is x>","v":{"result":"x"}}`},
		{"parts that are kept", `{"content":[{"type":"text","text":"long"}],"structuredContent":{"result":[{"n":1},{"n":2}]}}`, wrapperSchema(`"type":"array"`), `{id: a, type: tool, server: s, action: give, keep: ["1.n", "result[0].n"]}`, `v: "{{a.output}}", t: "<{{a.output[1].n}}>"`, `{"t":"<2>","v":{"1":{"n":2},"result":{"0":{"n":1}}}}`},
		{"a picture with words", `{"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"text","text":"a cat"}]}`, `{}`, "", `t: "<{{a.output}}>"`, `{"t":"<a cat>"}`},
		{"the messages of a prompt", `{"messages":[{"role":"user","content":{"type":"text","text":"Look."}},{"role":"user","content":{"type":"resource","resource":{"uri":"x:y","text":"at this"}}}]}`, `{}`, `{id: a, type: prompt, server: s, prompt_name: give}`, `t: "<{{a.output}}>", r: "{{a.output[0].role}}"`, `{"r":"user","t":"<Look.\nat this>"}`},
		{"two parts of a resource", `{"contents":[{"uri":"x:y","text":"a"},{"uri":"x:z","text":"b"}]}`, `{}`, `{id: a, type: resource, server: s, uri: give}`, `t: "<{{a.output}}>", u: "{{a.output[1].uri}}"`, `{"t":"<a\nb>","u":"x:z"}`},
		{"what a parallel step collects", `{"content":[{"type":"text","text":"x"}],"structuredContent":{"result":"x"}}`, wrapperSchema(`"type":"string"`), `{id: p, type: parallel, tasks: [{id: a, type: tool, server: s, action: give}]}`, `v: "{{p.output}}", t: "<{{a.output}}>"`, `{"t":"<x>","v":{"a":"x"}}`},
		{"what a switch gives", `{"content":[{"type":"text","text":"in words"}],"structuredContent":{"n":1}}`, `{}`, `{id: a, type: switch, cases: [{when: "true", steps: [{id: b, type: tool, server: s, action: give}]}]}`, `v: "{{a.output.n}}", t: "<{{a.output}}>"`, `{"t":"<in words>","v":1}`},
		{"what a handler gives", `{"content":[{"type":"text","text":"in words"}],"structuredContent":{"n":1}}`, `{}`, `{id: a, type: tool, server: s, action: fail, on_error: b}, {id: b, type: tool, server: s, action: give}`, `v: "{{a.output.n}}", t: "<{{a.output}}>"`, `{"t":"<in words>","v":1}`},
		{"a saved output", `{"content":[{"type":"text","text":"in words"}],"structuredContent":{"n":1}}`, `{}`, `{id: a, type: tool, server: s, action: give, save_output_to: variables.global.x}`, `v: "{{variables.global.x}}"`, `{"v":{"n":1}}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.step == "" {
				row.step = `{id: a, type: tool, server: s, action: give}`
			}
			s := &sdkServer{results: map[string]string{"give": row.result, "fail": `{"isError":true,"content":[]}`}, schemas: map[string]string{"give": row.schema}}
			r := runAt(t, "steps: ["+row.step+", {id: use, type: tool, server: s, action: use, arguments: {"+row.use+"}}]", s)
			if got := s.calls[len(s.calls)-1]; got != "use "+row.want || r.Err != nil {
				t.Errorf("it calls %s, and ends with %v; want %s", got, r.Err, row.want)
			}
		})
	}
}

// runAt runs a chain through a door to a server.
func runAt(t *testing.T, doc string, s *sdkServer) *Result {
	t.Helper()
	d := parse(t, "name: c\n"+doc)
	input, err := d.CheckInput(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := runInMemory(t.Context(), NewMachine(d, MachineOptions{Input: input}), Executor{Upstreams: s}, &fakeServers{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestConditionsOnText: a condition on a whole output compares its text with a string, and its value with
// anything else.
func TestConditionsOnText(t *testing.T) {
	const text, object, list, count = `"type":"string"`, `"type":"object"`, `"type":"array"`, `"type":"integer"`
	wrapped := func(value, text string) string {
		return `{"content":[{"type":"text","text":` + text + `}],"structuredContent":{"result":` + value + `}}`
	}
	for _, row := range []struct {
		result, kind, condition string
		want                    bool
	}{
		{wrapped(`"page has an Error"`, `"page has an Error"`), text, `{{a.output}} contains 'Error'`, true},
		{wrapped(`"fine"`, `"fine"`), text, `{{a.output}} contains 'result'`, false},
		{wrapped(`"fine"`, `"fine"`), text, `{{a.output}} == 'fine'`, true},
		{wrapped(`"fine"`, `"fine"`), text, `{{a.output.result}} == 'fine'`, true},
		{wrapped(`5`, `"5"`), count, `{{a.output}} == 5`, true},
		{wrapped(`5`, `"5"`), count, `{{a.output}} > 4.5`, true},
		{wrapped(`5`, `"five"`), count, `{{a.output}} == 'five'`, true},
		{wrapped(`["ab",7]`, `"ab, 7"`), list, `{{a.output}} contains 'b'`, true},
		{wrapped(`["ab",7]`, `"ab, 7"`), list, `{{a.output}} contains 7`, true},
		{wrapped(`["ab",7]`, `"ab, 7"`), list, `{{a.output[0]}} contains 'b'`, true},
		{`{"content":[{"type":"text","text":"{\"code\": 404}"}],"structuredContent":{"code":404}}`, object, `{{a.output}} contains 404`, true},
		{`{"content":[{"type":"text","text":"{\"code\": 404}"}],"structuredContent":{"code":404}}`, object, `{{a.output.code}} == 404`, true},
		{`{"content":[{"type":"text","text":"not found"}],"structuredContent":{"code":404}}`, object, `'the page was not found' contains {{a.output}}`, true},
	} {
		s := &sdkServer{results: map[string]string{"give": row.result}, schemas: map[string]string{"give": wrapperSchema(row.kind)}}
		if row.kind == object {
			s.schemas["give"] = `{"type":"object","properties":{"code":{"type":"integer"}}}`
		}
		runAt(t, `steps: [{id: a, type: tool, server: s, action: give}, {id: "yes", type: tool, server: s, action: "yes"}]
conditionals: {c: {condition: "`+strings.ReplaceAll(row.condition, `"`, `\"`)+`", if_true: ["yes"]}}`, s)
		if got := len(s.calls) == 2; got != row.want {
			t.Errorf("%s on %s is %v", row.condition, row.result, got)
		}
	}
}

// TestPromptArguments: prompt arguments are strings in MCP; other values are sent as JSON text.
func TestPromptArguments(t *testing.T) {
	s := &sdkServer{results: map[string]string{"give": `{"content":[{"type":"text","text":"in words"}],"structuredContent":{"n":1}}`}}
	r := runAt(t, `variables: {input: {sites: [a, "b\"c"], n: 1.50}}
steps: [{id: a, type: tool, server: s, action: give}, {id: p, type: prompt, server: s, prompt_name: ask, arguments: {list: "{{variables.input.sites}}", n: "{{variables.input.n}}", yes: true, object: {k: "{{variables.input.n}}"}, text: "as it is", said: "{{a.output}}"}}, {id: q, type: prompt, server: s, prompt_name: bare}]`, s)
	want := []string{`give {}`, `ask {"list":"[\"a\",\"b\\\"c\"]","n":"1.50","object":"{\"k\":1.50}","said":"in words","text":"as it is","yes":"true"}`, `bare {}`}
	if marshal(s.calls) != marshal(want) || r.Err != nil {
		t.Errorf("it calls %s, %v; want %s", marshal(s.calls), r.Err, marshal(want))
	}
}

// TestAnsweredErrorsAreRetried: an error that the server returned is retried as the chain requests. A call
// with an unknown outcome is retried only if the tool is repeatable.
func TestAnsweredErrorsAreRetried(t *testing.T) {
	const doc = `{id: a, type: tool, server: s, action: pay, retry: {max_attempts: 3}}`
	for _, row := range []struct {
		code  string
		calls int
	}{
		{CodeToolError, 3},
		{CodeServerError, 3},
		{CodeTimeout, 1},
		{string(upstream.CodeLost), 1},
		{CodeOutput, 1},
	} {
		f := &fakeServers{answers: map[string]func(Command, int) Outcome{"s/pay": func(Command, int) Outcome {
			return Outcome{Err: &StepError{Code: row.code, Message: "no", MayHaveRun: true}}
		}}}
		r := runFake(t, parse(t, steps(doc)), f, MachineOptions{})
		if len(f.calls) != row.calls || r.Err == nil {
			t.Errorf("after %s it is called %d times, want %d; %v", row.code, len(f.calls), row.calls, r.Err)
		}
	}
}

// TestHandledErrorStops: after a handler with "then: stop" the run is done, and nothing more runs.
func TestHandledErrorStops(t *testing.T) {
	const handler = `{id: tell, type: tool, server: s, action: tell, save_output_to: variables.output.told}`
	const failing = `{id: a, type: tool, server: s, action: fail, save_output_to: variables.output.a, on_error: {step: tell, then: stop}}`
	for name, row := range map[string]struct{ doc, calls, output, err string }{
		"a step":                       {steps(failing, handler, `{id: z, type: tool, server: s, action: z}`), `["s/fail null","s/tell null"]`, `{"a":"told","told":"told"}`, ""},
		"that continues":               {steps(strings.Replace(failing, "stop", "continue", 1), handler, `{id: z, type: tool, server: s, action: z}`), `["s/fail null","s/tell null","s/z null"]`, `{"a":"told","told":"told"}`, ""},
		"inside a loop with a handler": {steps(`{id: l, type: loop, max_iterations: 2, on_error: z, steps: [`+failing+`]}`, handler, `{id: z, type: tool, server: s, action: z}`), `["s/fail null","s/tell null"]`, `{"a":"told","told":"told"}`, ""},
		"of a handler":                 {steps(`{id: f, type: tool, server: s, action: fail, on_error: a}`, failing, handler, `{id: z, type: tool, server: s, action: z}`), `["s/fail null","s/fail null","s/tell null"]`, `{"a":"told","told":"told"}`, ""},
		"next to a branch that failed": {steps(`{id: p, type: parallel, mode: all, tasks: [`+failing+`, {id: b, type: wait, seconds: 1}, {id: c, type: tool, server: s, action: fail}]}`, handler), `["s/fail null","s/fail null","s/tell null"]`, `{"a":"told","told":"told"}`, "down"},
		"before a conditional":         {steps(failing, handler, `{id: z, type: tool, server: s, action: z}`) + "conditionals: {c: {condition: \"1 == 1\", if_true: [z]}}", `["s/fail null","s/tell null"]`, `{"a":"told","told":"told"}`, ""},
		"without a callback":           {steps(failing, handler, `{id: z, type: tool, server: s, action: z}`) + "on_error: z", `["s/fail null","s/tell null"]`, `{"a":"told","told":"told"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeServers{answers: map[string]func(Command, int) Outcome{"s/fail": fails("down"), "s/tell": says("told")}}
			r := runFake(t, parse(t, row.doc), f, MachineOptions{})
			if strings.Contains(row.doc, "parallel") { // branches make calls in any order
				slices.Sort(f.calls)
			}
			if marshal(f.calls) != row.calls || marshal(r.Output) != row.output || errorText(r.Err) != row.err {
				t.Errorf("it calls %s and gives %s, %q; want %s, %s, %q", marshal(f.calls), marshal(r.Output), errorText(r.Err), row.calls, row.output, row.err)
			}
		})
	}
}

// TestRunReferences: a run can refer to its id and start time, unless the definition uses those names.
func TestRunReferences(t *testing.T) {
	started := time.Date(2026, 3, 1, 9, 0, 0, 5e8, time.UTC)
	const use = `{id: use, type: tool, server: s, action: use, arguments: {at: "{{run.startedAt}}", id: "{{run.id}}", global: "{{variables.global.start_time}}"}}`
	d := parse(t, steps(use))
	if issues := d.Lint(LintOptions{}); len(issues) > 0 {
		t.Errorf("lint finds %v", issues)
	}
	f := &fakeServers{}
	runFake(t, d, f, MachineOptions{Run: "run-1", Started: started})
	const want = `s/use {"at":"2026-03-01T09:00:00.5Z","global":"2026-03-01T09:00:00.5Z","id":"run-1"}`
	if len(f.calls) != 1 || f.calls[0] != want {
		t.Errorf("it calls %q, want %s", f.calls, want)
	}
	f = &fakeServers{answers: map[string]func(Command, int) Outcome{"s/get": says(map[string]any{"id": 7})}}
	runFake(t, parse(t, "variables: {global: {start_time: noon}}\n"+steps(`{id: run, type: tool, server: s, action: get}`, `{id: use, type: tool, server: s, action: use, arguments: {id: "{{run.output.id}}", at: "{{variables.global.start_time}}"}}`)), f, MachineOptions{Run: "run-1", Started: started})
	if last := f.calls[len(f.calls)-1]; last != `s/use {"at":"noon","id":7}` {
		t.Errorf("where a step is called run, it calls %s", last)
	}
	if issues := parse(t, steps(`{id: use, type: tool, server: s, action: use, arguments: {x: "{{run.output}}"}}`)).Lint(LintOptions{}); len(issues) != 1 || issues[0].Message != "{{run.output}} is unknown; write {{run.id}} or {{run.startedAt}}" {
		t.Errorf("lint finds %v", issues)
	}
}

// TestProgressRenewsTimeout: a call whose server reports progress may exceed the step's timeout; a silent
// one may not.
func TestProgressRenewsTimeout(t *testing.T) {
	for _, reports := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d := Executor{Upstreams: callerFunc(func(ctx context.Context, req upstream.Request) (upstream.Reply, error) {
				for range 5 {
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						return upstream.Reply{}, ctx.Err()
					}
					if reports {
						req.Progress(json.RawMessage(`{"progress":1}`))
					}
				}
				return upstream.Reply{Result: json.RawMessage(`{"content":[{"type":"text","text":"done"}]}`)}, nil
			})}
			o := perform(t.Context(), Command{Op: OpCall, Kind: KindTool, Server: "s", Name: "n", Timeout: 1500 * time.Millisecond}, d.Do)
			if got, want := marshal(o), map[bool]string{true: `{"value":"done"}`, false: `{"err":{"code":"timeout","message":"no answer within 1.5s","mayHaveRun":true}}`}[reports]; got != want {
				t.Errorf("with progress %v: got %s, want %s", reports, got, want)
			}
		})
	}
}

type callerFunc func(ctx context.Context, req upstream.Request) (upstream.Reply, error)

func (callerFunc) List(engine.Principal, upstream.Kind) []upstream.Item { return nil }

func (f callerFunc) Call(ctx context.Context, _ engine.Principal, req upstream.Request) (upstream.Reply, error) {
	return f(ctx, req)
}

// TestLintNeverTrue: lint compares conditions with pinned output schemas, and reports nothing if those are
// ambiguous.
func TestLintNeverTrue(t *testing.T) {
	servers := map[string]ServerItems{"s": {Tools: []string{"text", "object", "count", "open", "none"}, OutputSchemas: map[string]json.RawMessage{
		"text":   json.RawMessage(wrapperSchema(`"type":"string"`)),
		"count":  json.RawMessage(wrapperSchema(`"type":"integer"`)),
		"object": json.RawMessage(`{"type":"object","properties":{"state":{"type":"string","enum":["up","down"]},"n":{"type":"number"},"list":{"type":"array","items":{"type":"object","properties":{"id":{"type":"string"}}}},"any":{"anyOf":[{"type":"string"}]}}}`),
		"open":   json.RawMessage(`{"type":"object","properties":{"n":{"type":"number"}},"additionalProperties":true}`),
	}}}
	for condition, want := range map[string]string{
		`{{text.output}} contains 'Error'`:                   "",
		`{{text.output.result}} contains 'Error'`:            "",
		`{{text.output.status}} == 'x'`:                      "this can never be true: in the pinned outputSchema of s/text, {{text.output.status}} is missing: a value of the type string has no members",
		`{{text.output}} == 5`:                               "this can never be true: in the pinned outputSchema of s/text, {{text.output}} has the type string",
		`5 == {{text.output}}`:                               "this can never be true: in the pinned outputSchema of s/text, {{text.output}} has the type string",
		`{{text.output}}`:                                    "this can never be true: in the pinned outputSchema of s/text, {{text.output}} has the type string",
		`{{count.output}} > 3`:                               "",
		`{{count.output}} == '3'`:                            "",
		`{{count.output.result}} == '3'`:                     "this can never be true: in the pinned outputSchema of s/count, {{count.output.result}} has the type integer",
		`{{object.output.stat}} == 'up'`:                     `this can never be true: in the pinned outputSchema of s/object, {{object.output.stat}} is missing: the object has no "stat"; did you mean "state"?`,
		`{{object.output.state}} == 'UP'`:                    "this can never be true: in the pinned outputSchema of s/object, {{object.output.state}} never has that value",
		`{{object.output.state}} == 'up'`:                    "",
		`{{object.output.n}} contains 1`:                     "this can never be true: in the pinned outputSchema of s/object, {{object.output.n}} has the type number",
		`{{object.output.list[0].name}} == 'x'`:              `this can never be true: in the pinned outputSchema of s/object, {{object.output.list[0].name}} is missing: the object has no "name"; known are "id"`,
		`{{object.output.any}} == 5`:                         "",
		`{{object.output}} contains 'x'`:                     "",
		`{{open.output.more}} == 1`:                          "",
		`{{none.output}} == 1`:                               "",
		`{{text.output}} == 5 or {{count.output}} == 5`:      "",
		`{{text.output}} == 5 and {{count.output}} == 5`:     "this can never be true: in the pinned outputSchema of s/text, {{text.output}} has the type string",
		`{{text.output}} == 5 or {{object.output.n}} == 'x'`: "this can never be true: in the pinned outputSchema of s/object, {{object.output.n}} has the type number",
		`not {{text.output}} == 5`:                           "",
	} {
		doc := ""
		for _, tool := range servers["s"].Tools {
			doc += "- {id: " + tool + ", type: tool, server: s, action: " + tool + "}\n"
		}
		d := parse(t, "name: c\nsteps:\n"+doc+"- {id: \"yes\", type: tool, server: s, action: none}\nconditionals: {c: {condition: \""+condition+"\", if_true: [\"yes\"]}}")
		got := ""
		for _, issue := range d.Lint(LintOptions{Servers: servers}) {
			if issue.Rule == "never-true" {
				got += issue.Message
			}
		}
		if got != want {
			t.Errorf("%s: lint says %q, want %q", condition, got, want)
		}
	}
}
