package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// compareGolden compares got with a golden file.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("what is said differs from %s; read the diff and run with -update:\n%s", path, got)
	}
}

// TestBadInputs: testdata/bad_inputs.golden holds the error messages for inputs with which a run cannot
// begin.
func TestBadInputs(t *testing.T) {
	plain := parse(t, "variables: {input: {site_url: x, deep: {a: 1}}}\n"+steps(first))
	without := parse(t, steps(first))
	schemed := parse(t, "inputSchema: {type: object, additionalProperties: false, required: [site], properties: {site: {type: string, maxLength: 8}, n: {type: integer, maximum: 3}}}\n"+steps(first))
	var got strings.Builder
	for _, bad := range []struct {
		name  string
		d     *Definition
		input string
	}{
		{"a list", plain, `[1]`},
		{"a text", plain, `"https://example.com"`},
		{"null", plain, `null`},
		{"not JSON", plain, `site_url=x`},
		{"cut off", plain, `{"site_url":`},
		{"two values", plain, `{} {}`},
		{"duplicate key", plain, `{"site_url":1,"site_url":2}`},
		{"not UTF-8", plain, "{\"site_url\":\"\xff\"}"},
		{"half a surrogate", plain, `{"site_url":"\ud800"}`},
		{"too deep", plain, strings.Repeat(`{"deep":`, 1000) + "1" + strings.Repeat("}", 1000)},
		{"too large", plain, `{"site_url":"` + strings.Repeat("x", MaxOutput) + `"}`},
		{"misspelt key", plain, `{"siteurl":"y"}`},
		{"unknown key", plain, `{"proxy":"y"}`},
		{"key of a chain without input", without, `{"site_url":"y"}`},
		{"__proto__", plain, `{"__proto__":{"site_url":"y"}}`},
		{"missing for its schema", schemed, `{}`},
		{"nothing for its schema", schemed, ``},
		{"another type than its schema's", schemed, `{"site":1}`},
		{"too long for its schema", schemed, `{"site":"https://example.com"}`},
		{"unknown to its schema", schemed, `{"site":"x","sites":["y"]}`},
		{"too much for its schema", schemed, `{"site":"x","n":4}`},
	} {
		_, err := bad.d.CheckInput(json.RawMessage(bad.input))
		if err == nil {
			t.Errorf("%s: nothing is wrong with it", bad.name)
			continue
		}
		fmt.Fprintf(&got, "== %s\n%s\n", bad.name, err)
	}
	compareGolden(t, "bad_inputs.golden", got.String())
}

// TestBadAnswers: testdata/bad_servers.golden holds the error messages of steps whose server sends invalid
// answers, through the door, over MCP.
func TestBadAnswers(t *testing.T) {
	servers := openServers(t)
	result := func(result string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
		}
	}
	body := func(status int, kind, text string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "ID", id))
		}
	}
	const tool = `{id: a, type: tool, server: code-mcp, action: execute, save_output_to: variables.output.a}`
	const withPeople = ", where people can be asked"
	var got strings.Builder
	for _, bad := range []struct {
		name, doc string
		answer    func(w http.ResponseWriter, id string)
	}{
		{"isError", tool, result(`{"isError":true,"content":[{"type":"text","text":"disk full"}]}`)},
		{"isError in two parts", tool, result(`{"isError":true,"content":[{"type":"text","text":"disk"},{"type":"text","text":"full"}]}`)},
		{"isError without a word", tool, result(`{"isError":true,"content":[]}`)},
		{"isError with escapes of a terminal", tool, result(`{"isError":true,"content":[{"type":"text","text":"\u001b[2Jdisk\u202efull"}]}`)},
		{"isError of 10 KB", tool, result(`{"isError":true,"content":[{"type":"text","text":"` + strings.Repeat("disk full ", 1000) + `"}]}`)},
		{"an error of JSON-RPC", tool, body(200, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no such tool"}}`)},
		{"a list for a result", tool, result(`[1]`)},
		{"a text for a result", tool, result(`"OK"`)},
		{"no result", tool, body(200, "application/json", `{"jsonrpc":"2.0","id":ID}`)},
		{"an empty result", tool, result(`{}`)},
		{"a task", tool, result(`{"task":{"taskId":"t1","status":"working","ttl":60000,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"}}`)},
		{"a task by its type", tool, result(`{"resultType":"task","task":{"taskId":"t1","status":"working"}}`)},
		{"a result of an unknown type", tool, result(`{"resultType":"stream","content":[]}`)},
		{"input_required that nobody can give", tool, result(`{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"Which city?"}}}}`)},
		{"input_required of a model", tool, result(`{"resultType":"input_required","inputRequests":{"q":{"method":"sampling/createMessage"}}}`)},
		{"input_required of a model" + withPeople, tool, result(`{"resultType":"input_required","inputRequests":{"q":{"method":"sampling/createMessage"}}}`)},
		{"input_required of nothing" + withPeople, tool, result(`{"resultType":"input_required"}`)},
		{"input_required of an empty list" + withPeople, tool, result(`{"resultType":"input_required","inputRequests":{}}`)},
		{"input_required of nothing, with a state" + withPeople, tool, result(`{"resultType":"input_required","inputRequests":{},"requestState":"s"}`)},
		{"input_required with a state that is no text" + withPeople, tool, result(`{"resultType":"input_required","requestState":1}`)},
		{"garbage", tool, body(200, "application/json", "<html>It works!</html>")},
		{"half an answer", tool, body(200, "application/json", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"te`)},
		{"an answer to something else", tool, body(200, "application/json", `{"jsonrpc":"2.0","id":"another","result":{"content":[]}}`)},
		{"nothing", tool, body(200, "application/json", "")},
		{"nothing of an unknown kind", tool, body(200, "text/html", "hello")},
		{"a stream without an answer", tool, body(200, "text/event-stream", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n")},
		{"a status of 500", tool, body(500, "text/plain", "out of memory")},
		{"a status of 401", tool, body(401, "text/plain", "who are you?")},
		{"a status of 404", tool, body(404, "text/plain", "not here")},
		{"a redirect", tool, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", "http://169.254.169.254/latest")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}},
		{"50 MB", tool, func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, id)
			chunk := strings.Repeat("x", 1<<20)
			for range 50 {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
			_, _ = io.WriteString(w, `"}]}}`)
		}},
		{"300 KB", tool, result(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 300<<10) + `"}]}`)},
		{"a connection that closes", tool, func(http.ResponseWriter, string) { panic(http.ErrAbortHandler) }},
		{"a connection that closes in the middle", tool, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`)
			panic(http.ErrAbortHandler)
		}},
		{"a number that no float has", tool, result(`{"structuredContent":{"n":1e999}}`)},
		{"a value nested 10,000 deep", tool, result(`{"structuredContent":{"n":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}}`)},
		{"a duplicate key", tool, result(`{"structuredContent":{"n":1,"n":2}}`)},
		{"a tool that is not pinned", `{id: a, type: tool, server: code-mcp, action: remove}`, nil},
		{"a server that is not configured", `{id: a, type: tool, server: shell-mcp, action: remove}`, nil},
		{"a prompt that is not pinned", `{id: a, type: prompt, server: prompts-engine, prompt_name: shout}`, nil},
		{"an argument that is missing", `{id: b, type: tool, server: code-mcp, action: execute, default: {"a.output.x": 1}}`, result(`{"isError":true,"content":[{"type":"text","text":"\"code\" is required"}]}`)},
		{"a field that is not in the output", tool + "\n- {id: b, type: tool, server: code-mcp, action: lint, arguments: {x: \"{{a.output.lines[3]}}\"}}", result(`{"structuredContent":{"lines":["one"]}}`)},
		{"a part to keep that is not in the output", `{id: a, type: tool, server: code-mcp, action: execute, keep: [lines]}`, result(`{"structuredContent":{"files":["one"]}}`)},
		{"an output that its schema refuses", `{id: a, type: tool, server: code-mcp, action: execute, outputSchema: {type: object, required: [lines]}}`, result(`{"structuredContent":{"files":["one"]}}`)},
		{"an output of text with references", tool, result(`{"content":[{"type":"text","text":"{{variables.saved.key}} and {{a.output}}"}]}`)},
		{"an output with __proto__", tool, result(`{"structuredContent":{"__proto__":{"admin":true},"constructor":1}}`)},
		{"an output that names a path with 1,000 dots", tool, result(`{"content":[{"type":"text","text":"{{a` + strings.Repeat(".a", 1000) + `}}"}]}`)},
	} {
		servers.answers.Store(&fakeServers{})
		servers.raw.Store(&bad.answer)
		if bad.answer == nil {
			servers.raw.Store(nil)
		}
		m := NewMachine(parse(t, steps(bad.doc)), MachineOptions{Input: map[string]any{}})
		door, calls := Executor{Upstreams: servers.door, AsksPeople: strings.HasSuffix(bad.name, withPeople)}, 0
		r, err := runInMemory(context.Background(), m, effectsFunc(func(ctx context.Context, c Command) Outcome {
			c.Run, c.Principal = "run-bad", operator
			calls++
			return door.Do(ctx, c)
		}), &fakeServers{})
		if err != nil {
			t.Fatal(err)
		}
		said := "the run is done: " + marshal(r.Output)
		if r.Err != nil {
			said = fmt.Sprintf("the step %q failed: %s [%s]", r.Err.Step, r.Err.Message, r.Err.Code)
			if r.Err.MayHaveRun {
				said += " it may have run"
			}
		}
		if calls > 1 && door.AsksPeople {
			said += fmt.Sprintf(", after %d calls", calls)
		}
		if n := len(said); n > 400 {
			said = fmt.Sprintf("%s... (%d bytes)", said[:100], n)
		}
		fmt.Fprintf(&got, "== %s\n%s\n", bad.name, said)
	}
	compareGolden(t, "bad_servers.golden", got.String())
}
