package chain

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The seed has its own code. These tests check that we do not have its mistakes.

// TestSeedBugs lists mistakes of the seed's executor, with chains that show them.
func TestSeedBugs(t *testing.T) {
	type answers = map[string]func(Command, int) Outcome
	const use = `{id: use, type: tool, server: s, action: use, arguments: `
	for _, row := range []struct {
		bug, doc string
		answers  answers
		calls    []string
		err      string
	}{
		{
			"every value becomes a text",
			"variables: {input: {n: 9007199254740991, f: 1.50, yes: true, no: null, list: [1, {a: b}]}}\n" +
				steps(use+`{n: "{{variables.input.n}}", f: "{{variables.input.f}}", yes: "{{variables.input.yes}}", "no": "{{variables.input.no}}", list: "{{variables.input.list}}", text: "{{variables.input.n}} {{variables.input.list}}"}}`),
			nil,
			[]string{`s/use {"f":1.50,"list":[1,{"a":"b"}],"n":9007199254740991,"no":null,"text":"9007199254740991 [1,{\"a\":\"b\"}]","yes":true}`},
			"",
		},
		{
			"a missing path is None",
			steps(`{id: a, type: tool, server: s, action: get}`, use+`{url: "{{a.output.link}}"}}`),
			answers{"s/get": says(map[string]any{"url": "x", "title": "y"})},
			[]string{`s/get null`},
			`{{a.output.link}} is missing: a.output has "title", "url"`,
		},
		{
			"a missing path inside a text is None, too",
			steps(`{id: a, type: tool, server: s, action: get}`, use+`{url: "see {{a.output[1]}}"}}`),
			answers{"s/get": says([]any{"x"})},
			[]string{`s/get null`},
			`{{a.output[1]}} is missing: a.output is a list of 1`,
		},
		{
			"a part is looked for in a text",
			steps(`{id: a, type: tool, server: s, action: get}`, use+`{url: "{{a.output.url}}"}}`),
			answers{"s/get": says("the url is x")},
			[]string{`s/get null`},
			`{{a.output.url}} is missing: a.output is a text`,
		},
		{
			"an index is part of a key",
			"variables: {input: {sites: [one, two]}}\n" + steps(use+`{url: "{{variables.input.sites[1]}}"}}`),
			nil,
			[]string{`s/use {"url":"two"}`},
			"",
		},
		{
			"what was put in is read once more",
			"variables: {input: {secret: hunter2}}\n" + steps(`{id: a, type: tool, server: s, action: get}`, use+`{text: "{{a.output}} and {{variables.input.secret}}"}}`),
			answers{"s/get": says("{{variables.input.secret}}")},
			[]string{`s/get null`, `s/use {"text":"{{variables.input.secret}} and hunter2"}`},
			"",
		},
		{
			"the arguments of a step that has none are missing",
			steps(`{id: a, type: tool, server: s, action: get}`), nil,
			[]string{`s/get null`},
			"",
		},
		{
			"conditionals are never looked at",
			steps(`{id: a, type: tool, server: s, action: get}`, `{id: "yes", type: tool, server: s, action: "yes"}`, `{id: "no", type: tool, server: s, action: "no"}`) +
				`conditionals: {c: {condition: "{{a.output}} contains 'OK'", if_true: ["yes"], if_false: ["no"]}}`,
			answers{"s/get": says("not well")},
			[]string{`s/get null`, `s/no null`},
			"",
		},
		{
			"on_error is swallowed",
			steps(`{id: a, type: tool, server: s, action: get, on_error: other}`, `{id: other, type: tool, server: s, action: other}`, use+`{a: "{{a.output}}"}}`),
			answers{"s/get": fails("down"), "s/other": says("the other")},
			[]string{`s/get null`, `s/other null`, `s/use {"a":"the other"}`},
			"",
		},
		{
			"an error after a swallowed one is none",
			steps(`{id: a, type: tool, server: s, action: get, on_error: other}`, `{id: other, type: tool, server: s, action: other}`, use+`{}}`),
			answers{"s/get": fails("down"), "s/other": fails("down as well")},
			[]string{`s/get null`, `s/other null`},
			`down; its handler "other" also failed: down as well`,
		},
		{
			"retries are not made",
			steps(`{id: a, type: tool, server: s, action: get, retry: {max_attempts: 3}}`),
			answers{"s/get": func(c Command, call int) Outcome {
				if call < 3 {
					return fails("down")(c, call)
				}
				return Outcome{Value: "up"}
			}},
			[]string{`s/get null`, `s/get null`, `s/get null`},
			"",
		},
		{
			"the steps of a loop are not there",
			steps(`{id: l, type: loop, max_iterations: 3, until: "{{a.output}} == 2", steps: [{id: a, type: tool, server: s, action: get}]}`),
			answers{"s/get": func(_ Command, call int) Outcome { return Outcome{Value: json.Number(fmt.Sprint(call))} }},
			[]string{`s/get null`, `s/get null`},
			"",
		},
	} {
		t.Run(row.bug, func(t *testing.T) {
			f := &fakeServers{answers: row.answers}
			r := runFake(t, parse(t, row.doc), f, MachineOptions{Repeatable: func(string, string) bool { return true }})
			if got := errorText(r.Err); got != row.err {
				t.Errorf("the error is %q, want %q", got, row.err)
			}
			if diff := cmp.Diff(row.calls, f.calls); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSeedBugInput: the seed's executor always uses the definition's defaults and ignores the input of a
// run.
func TestSeedBugInput(t *testing.T) {
	f := &fakeServers{}
	d := parse(t, "variables: {input: {a: default, b: default}}\n"+steps(`{id: a, type: tool, server: s, action: use, arguments: {a: "{{variables.input.a}}", b: "{{variables.input.b}}"}}`))
	input, err := d.CheckInput(json.RawMessage(`{"a": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	runFake(t, d, f, MachineOptions{Input: input})
	if want := []string{`s/use {"a":1,"b":"default"}`}; !slices.Equal(f.calls, want) {
		t.Errorf("%q, want %q", f.calls, want)
	}
}

// TestSeedBugMethods: the seed's executor calls prompts/execute, which MCP does not have, with the step's
// action instead of the prompt's name. It also treats protocol errors and tool errors as empty results.
func TestSeedBugMethods(t *testing.T) {
	servers := openServers(t)
	servers.answers.Store(&fakeServers{answers: map[string]func(Command, int) Outcome{
		"vision-agent-mcp/analyze_dashboard": says("look"), "vision-agent-mcp/verify": fails("no such page"),
	}})
	door := Executor{Upstreams: servers.door}
	call := func(kind Kind, server, name string) Outcome {
		return door.Do(t.Context(), Command{Op: OpCall, Kind: kind, Server: server, Name: name, Key: name, Principal: operator})
	}
	if o := call(KindPrompt, "vision-agent-mcp", "analyze_dashboard"); o.Err != nil || servers.last() != "prompts/get analyze_dashboard" {
		t.Errorf("a prompt is asked for with %q: %v", servers.last(), o.Err)
	}
	if o := call(KindTool, "vision-agent-mcp", "verify"); o.Err == nil || o.Err.Code != CodeToolError || o.Err.Message != "no such page" {
		t.Errorf("of a tool that failed it says %v", o)
	}
	broken := func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": %s, "error": {"code": -32000, "message": "there is nobody here"}}`, id)
	}
	servers.raw.Store(&broken)
	if o := call(KindTool, "vision-agent-mcp", "navigate"); o.Err == nil || o.Err.Code != "server_error" || !strings.Contains(o.Err.Message, "there is nobody here") {
		t.Errorf("of an error of the protocol it says %v", o)
	}
}

// TestSeedBugPipe: the seed's executor takes the next line from a server's pipe as the answer to its latest
// request. The server of this test answers three calls in reverse order, with other messages in between.
func TestSeedBugPipe(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	door := openUpstreams(t, map[string]any{"pipe": map[string]any{
		"command": []string{program}, "set": map[string]any{"CHAIN_TEST_PIPE": "1"}, "allow": []any{map[string]any{"tools": []string{"*"}}},
	}})
	runs := openRuns(t, t.TempDir(), Executor{Upstreams: door})
	defer runs.Close()
	d := parse(t, steps(`{id: all, type: parallel, save_output_to: variables.output.all, tasks: [`+
		`{id: a, type: tool, server: pipe, action: echo, arguments: {say: one}}, {id: b, type: tool, server: pipe, action: echo, arguments: {say: two}}, {id: c, type: tool, server: pipe, action: echo, arguments: {say: three}}]}`))
	r := waitRun(t, runs, startRun(t, runs, d, ""))
	if got := marshal(r.Output); r.Err != nil || got != `{"all":{"a":"one","b":"two","c":"three"}}` {
		t.Errorf("%s, %v", got, r.Err)
	}
}

// servePipe is an MCP server over a pipe that answers three calls together, the last one first.
func servePipe(in io.Reader, out io.Writer) {
	type message struct {
		ID     json.RawMessage
		Method string
		Params struct{ Arguments struct{ Say string } }
	}
	var held []message
	answer := func(id json.RawMessage, result any) {
		_, _ = fmt.Fprintln(out, marshal(map[string]any{"jsonrpc": "2.0", "id": id, "result": result}))
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil || len(m.ID) == 0 {
			continue
		}
		switch m.Method {
		case "initialize":
			answer(m.ID, map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}, "logging": map[string]any{}}, "serverInfo": map[string]any{"name": "pipe", "version": "1"}})
		case "tools/list":
			answer(m.ID, map[string]any{"tools": describeItems([]string{"echo"}, map[string]any{"inputSchema": map[string]any{"type": "object"}})})
		case "tools/call":
			if held = append(held, m); len(held) < 3 {
				continue
			}
			for _, call := range slices.Backward(held) {
				_, _ = fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"busy"}}`)
				answer(call.ID, map[string]any{"content": []any{map[string]any{"type": "text", "text": call.Params.Arguments.Say}}})
			}
			held = nil
		default:
			_, _ = fmt.Fprintln(out, marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32601, "message": "no such method"}}))
		}
	}
}

// openUpstreams opens a door to servers, with their pinned items.
func openUpstreams(t testing.TB, declared map[string]any) *upstream.Manager {
	t.Helper()
	section, err := document.Parse("", []byte(marshal(declared)), document.Limits{Bytes: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	open := func(pins *upstream.Pins) *upstream.Manager {
		cfg, err := upstream.ParseConfig(section)
		if err != nil {
			t.Fatal(err)
		}
		m, err := upstream.Open(cfg, upstream.Options{Pins: pins})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	pins, err := upstream.LoadPins(filepath.Join(t.TempDir(), "pins.json"))
	if err != nil {
		t.Fatal(err)
	}
	look := open(pins)
	for name := range declared {
		report, err := look.Inspect(context.Background(), name)
		if err == nil {
			err = pins.Set(name, report.Items)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	look.Close()
	return open(pins)
}
