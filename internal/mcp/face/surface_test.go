package face_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// extra is set by the tests of a module: its tools, and an option that provides its service.
var extra = struct {
	tools  []string
	option option
}{option: func(*face.Config) {}}

// Golden files hold the whole surface, one for each tool and one for the rest, so that every change that clients see
// is reviewed. The additions of reviews are in separate files.
func TestSurface(t *testing.T) {
	names := map[string]bool{}
	for rest, options := range map[string][]option{"server.txt": {withSchemas}, "server.reviews.txt": {withReviewTools, as("operator"), withSchemas, extra.option}} {
		w := serve(t, newEngine(t, withReviews), options...)
		var all bytes.Buffer
		for _, request := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`,
			`{"jsonrpc":"2.0","id":1,"method":"resources/templates/list"}`,
			`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`,
		} {
			w.send(request)
			if err := json.Indent(&all, w.nextLine(), "", "  "); err != nil {
				t.Fatal(err)
			}
			all.WriteByte('\n')
		}
		golden(t, rest, all.Bytes())
		names[rest] = true
		for _, raw := range w.listRaw() {
			var tool struct{ Name string }
			var doc bytes.Buffer
			if err := errors.Join(json.Unmarshal(raw, &tool), json.Indent(&doc, raw, "", "  ")); err != nil {
				t.Fatal(err)
			}
			doc.WriteByte('\n')
			golden(t, tool.Name+".json", doc.Bytes())
			names[tool.Name+".json"] = true
		}
		w.end()
	}
	files, err := os.ReadDir(filepath.Join("testdata", "__snaps__"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !names[f.Name()] {
			t.Errorf("%s shows a tool that is not there any more; remove it", f.Name())
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "__snaps__", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what is served; read the difference after -update. Served:\n%s", path, got)
	}
}

// documented returns the tools of the table of operations, except those of chains. The face must list exactly these.
func documented(except ...string) []string {
	var names []string
	for _, op := range operation.All() {
		if name := op.Tool.Name; name != "" && op.Group != "chains" && !slices.Contains(except, name) {
			names = append(names, name)
		}
	}
	return names
}

func TestInventory(t *testing.T) {
	inventory(t, documented("workflow.review.list", "workflow.review.resolve", "workflow.judge.clear"))
	inventory(t, documented("workflow.review.resolve", "workflow.judge.clear"), withReviewTools)
	inventory(t, documented("workflow.judge.clear"), asReviewer)
	inventory(t, documented(), withReviewTools, as("operator"))
	inventory(t, documented(), withReviewTools, as("operator"), withSchemas)
	inventory(t, append(documented(), extra.tools...), withReviewTools, as("operator"), withSchemas, extra.option)
	var eleven []string
	for _, s := range seed {
		eleven = append(eleven, s.tool)
	}
	inventory(t, eleven, asReviewer, func(c *face.Config) { c.Toolset = face.SeedTools })
	inventory(t, []string{"workflow.list", "workflow.describe", "workflow.start", "workflow.advance", "workflow.status", "workflow.judge.validate"},
		asReviewer, func(c *face.Config) { c.Toolset = face.CoreTools })
	if len(documented()) < 21 {
		t.Errorf("only %d tools are documented", len(documented()))
	}
}

func withSchemas(c *face.Config) { c.OutputSchemas = true }

func inventory(t *testing.T, documented []string, options ...option) {
	t.Helper()
	w := serve(t, newEngine(t, withReviews), options...)
	defer w.end()
	w.hello("test")
	tools := w.list()
	var names []string
	short := map[string]string{}
	for _, tool := range tools {
		name := tool["name"].(string)
		names = append(names, name)
		if !regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`).MatchString(name) {
			t.Errorf("%s: bad name", name)
		}
		if other, taken := short[strings.ReplaceAll(name, ".", "_")]; taken {
			t.Errorf("%s and %s are one name with underscores", name, other)
		}
		short[strings.ReplaceAll(name, ".", "_")] = name
		if len(tool["description"].(string)) < 30 || tool["title"] == "" {
			t.Errorf("%s: needs a title and a description", name)
		}
		if hints := tool["annotations"].(map[string]any); hints["openWorldHint"] != false {
			t.Errorf("%s: it reaches nothing outside: %v", name, hints)
		}
		input := tool["inputSchema"].(map[string]any)
		if input["type"] != "object" || input["additionalProperties"] != false {
			t.Errorf("%s: the input is a closed object", name)
		}
		for _, combinator := range []string{"anyOf", "oneOf", "allOf", "not", "if", "$ref"} {
			if _, ok := input[combinator]; ok {
				t.Errorf("%s: %s at the top of an input schema makes some providers refuse every tool", name, combinator)
			}
		}
		described(t, name+" input", input)
		output, listed := tool["outputSchema"].(map[string]any)
		if want := slices.ContainsFunc(options, func(o option) bool { var c face.Config; o(&c); return c.OutputSchemas }); listed != want {
			t.Errorf("%s: an output schema is listed: %v, want %v", name, listed, want)
		}
		if !listed {
			continue
		}
		described(t, name+" output", output)
		if output["required"] != nil || output["properties"].(map[string]any)["error"] == nil {
			t.Errorf("%s: the output schema must admit refusals and errors", name)
		}
	}
	slices.Sort(names)
	want := slices.Sorted(slices.Values(documented))
	if !slices.Equal(names, want) {
		t.Errorf("tools %v\nwant  %v", names, want)
	}
}

// described reports every property without a description as an error.
func described(t *testing.T, where string, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	for key, v := range properties {
		p := v.(map[string]any)
		if d, _ := p["description"].(string); d == "" {
			t.Errorf("%s: %s has no description", where, key)
		}
		described(t, where+"."+key, p)
		if items, ok := p["items"].(map[string]any); ok {
			described(t, where+"."+key, items)
		}
	}
}

// A wrong type for any argument of any tool gives one clear sentence and one code.
func TestWrongTypes(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), asReviewer)
	w.hello("test")
	samples := map[string]string{"string": `"x"`, "object": `{"a":1}`, "integer": `7`, "number": `0.5`, "boolean": `true`, "array": `["x"]`}
	wrong := map[string]string{"a list of numbers": `[1]`, "null in a list": `[null]`, "a fraction": `1.5`, "beyond 64 bits": `1e300`}
	maps.Copy(wrong, samples)
	n := 0
	for _, tool := range w.list() {
		input := tool["inputSchema"].(map[string]any)
		properties := input["properties"].(map[string]any)
		good := map[string]json.RawMessage{}
		for key, v := range properties {
			p := v.(map[string]any)
			kind, typed := p["type"].(string)
			if !typed { // any JSON
				kind = "object"
			}
			good[key] = json.RawMessage(samples[kind])
			if enum, ok := p["enum"].([]any); ok {
				good[key] = json.RawMessage(strconv.Quote(enum[0].(string)))
			}
			if strings.Contains(p["description"].(string), "RFC 3339") {
				good[key] = json.RawMessage(`"2026-01-02T15:04:05Z"`)
			}
		}
		for key, v := range properties {
			kind, typed := v.(map[string]any)["type"].(string)
			for other, value := range wrong {
				if !typed || other == kind || kind == "number" && other == "integer" {
					continue
				}
				args := maps.Clone(good)
				args[key] = json.RawMessage(value)
				doc, err := json.Marshal(args)
				if err != nil {
					t.Fatal(err)
				}
				r := w.call(tool["name"].(string), string(doc))
				n++
				e, _ := r.StructuredContent["error"].(map[string]any)
				if !r.IsError || e["code"] != "invalid_argument" || e["path"] != "/"+key || e["hint"] == nil ||
					!strings.HasPrefix(fmt.Sprint(e["message"]), fmt.Sprintf("The argument %q must be ", key)) {
					t.Errorf("%s %s as %s: %v %s", tool["name"], key, other, e, r.text())
				}
			}
		}
		name := tool["name"].(string)
		if required := input["required"].([]any); len(required) > 0 {
			r := w.call(name, `{}`)
			if r.code() != "invalid_argument" || !strings.Contains(r.text(), fmt.Sprint(required[0])) {
				t.Errorf("%s without arguments: %s", name, r.text())
			}
		}
		if name != "workflow.define" {
			if r := w.call(name, `{"idd":"x","nmae":"x"}`); r.code() != "invalid_argument" {
				t.Errorf("%s with an unknown argument: %s", name, r.text())
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d cases were tried", n)
	}
}

func TestNameStyles(t *testing.T) {
	for _, c := range []struct {
		client string
		style  face.ToolNames
		want   string
	}{
		{"test", "", "workflow.judge.validate"},
		{"claude-ai", face.Auto, "workflow_judge_validate"},
		{"codex-mcp-client", face.Auto, "workflow_judge_validate"},
		{"claude-code", face.Auto, "workflow.judge.validate"},
		{"claude-ai", face.Dotted, "workflow.judge.validate"},
		{"test", face.Underscore, "workflow_judge_validate"},
	} {
		w := serve(t, newEngine(t), func(cfg *face.Config) { cfg.ToolNames = c.style })
		w.hello(c.client)
		if !slices.ContainsFunc(w.list(), func(tool map[string]any) bool { return tool["name"] == c.want }) {
			t.Errorf("%s, %q: %s is not listed", c.client, c.style, c.want)
		}
		for _, name := range []string{"workflow.list", "workflow_list"} { // both are always accepted
			if r := w.call(name, `{}`); r.IsError {
				t.Errorf("%s: %s", name, r.text())
			}
		}
		w.end()
	}
}

// A client that does not wait for the answer to initialize still gets names in its style.
func TestListRightAfterInitialize(t *testing.T) {
	for range 50 {
		w := serve(t, newEngine(t))
		w.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-ai","version":"1"}}}` + "\n" +
			`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		hello := w.next()
		result, _ := hello["result"].(map[string]any)
		if hello["id"] != 1.0 || !strings.Contains(fmt.Sprint(result["instructions"]), "workflow_start") {
			t.Fatalf("initialize: %v", hello)
		}
		if list := w.nextLine(); !bytes.Contains(list, []byte(`"workflow_start"`)) {
			t.Fatalf("names with dots: %.200s", list)
		}
		w.end()
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	t.Parallel()
	if _, err := face.New(face.Config{ToolNames: "camel", Toolset: "some", Limits: wire.Limits{MaxLine: 1}}); err == nil ||
		!strings.Contains(err.Error(), "Engine") || !strings.Contains(err.Error(), "camel") || !strings.Contains(err.Error(), "some") || !strings.Contains(err.Error(), "MaxLine") {
		t.Errorf("every mistake is named: %v", err)
	}
}
