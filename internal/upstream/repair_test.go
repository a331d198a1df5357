package upstream_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// These definitions are also passed to the official SDKs in .ci/run. Those that the SDKs accept stay unchanged;
// others are repaired in one pass, or left out.
func TestOddDefinitions(t *testing.T) {
	text, err := os.ReadFile("../../testdata/clients/odd.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[upstream.Kind][]struct {
		Is         string
		Definition json.RawMessage
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for kind, definitions := range all {
		for _, d := range definitions {
			item, repaired, err := upstream.ReadItem("odd", kind, d.Definition)
			got := "kept"
			switch {
			case err != nil:
				got = "left out"
			case len(repaired) > 0:
				got = "repaired"
			case string(item.Raw) != string(d.Definition):
				t.Errorf("%s became %s, and nobody is told", d.Definition, item.Raw)
			}
			if got != d.Is {
				t.Errorf("the %s %s is %s, want %s: %q %v", kind, d.Definition, got, d.Is, repaired, err)
			}
			if again, more, err := upstream.ReadItem("odd", kind, item.Raw); got == "repaired" && (err != nil || len(more) > 0 || string(again.Raw) != string(item.Raw)) {
				t.Errorf("%s needs another repair: %q %v", item.Raw, more, err)
			}
		}
	}
}

// A repaired definition keeps its meaning.
func TestRepairedDefinition(t *testing.T) {
	for _, c := range []struct {
		kind      upstream.Kind
		raw, want string
	}{
		{upstream.KindTool, `{"name":"t","x": 1.0,"description":null}`, `{"name":"t","x":1.0,"inputSchema":{"type":"object"}}`},
		{upstream.KindTool, `{"name":"t","inputSchema":{"anyOf":[{"default":null}],"required":null,"default":null}}`, `{"name":"t","inputSchema":{"anyOf":[{"default":null}],"default":null,"type":"object"}}`},
		{upstream.KindTool, `{"name":"t","inputSchema":{"type":["null","object"],"properties":{"a":true,"b":false,"c":{"type":"null"}}}}`, `{"name":"t","inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{"type":"null"}}}}`},
		{upstream.KindTool, `{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"objekt"},"annotations":{"title":null,"readOnlyHint":true}}`, `{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`},
		{upstream.KindTool, `{"name":"t","inputSchema":{"type":"object"},"description":"\uD83D \ud83d\ude00 \\ud83d"}`, `{"name":"t","inputSchema":{"type":"object"},"description":"\ufffd \ud83d\ude00 \\ud83d"}`},
		{upstream.KindPrompt, `{"name":"p","arguments":[null,{"name":"a","required":null}]}`, `{"name":"p","arguments":[{"name":"a"}]}`},
		{upstream.KindResource, `{"uri":"a:b","name":null,"size":"1"}`, `{"uri":"a:b","name":"a:b"}`},
	} {
		if item, _, err := upstream.ReadItem("s", c.kind, json.RawMessage(c.raw)); err != nil || string(item.Raw) != c.want {
			t.Errorf("%s became %s, want %s: %v", c.raw, item.Raw, c.want, err)
		}
	}
	deep := `{"name":"t","inputSchema":{"type":"object","default":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`
	if _, _, err := upstream.ReadItem("s", upstream.KindTool, json.RawMessage(deep)); err == nil {
		t.Error("a definition was accepted in which the Python SDK goes astray")
	}
}

// pages is an HTTP server whose list of tools consists of these pages, by cursor.
func pages(t testing.TB, by map[string]string) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Cursor string }
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		w.Header().Set("Content-Type", "application/json")
		result := `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}`
		if m.Method == "tools/list" {
			result = by[m.Params.Cursor]
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// A list ends without a further cursor, with a note if the end was odd. Each tool is listed once.
func TestPages(t *testing.T) {
	const one, two = `{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"type":"object"}}]`, `{"tools":[{"name":"b","inputSchema":{"type":"object"}},{"name":"c","inputSchema":{"type":"object"}}]`
	const odd = "the tools: the list ends at a nextCursor that is empty or repeated"
	for name, c := range map[string]struct {
		pages       map[string]string
		items, want string // want is notes, or the error
	}{
		"none":          {map[string]string{"": one + `}`}, "a b", ""},
		"null":          {map[string]string{"": one + `,"nextCursor":"x"}`, "x": two + `,"nextCursor":null}`}, "a b c", ""},
		"empty":         {map[string]string{"": one + `,"nextCursor":"x"}`, "x": two + `,"nextCursor":""}`}, "a b c", odd},
		"the same":      {map[string]string{"": one + `,"nextCursor":"x"}`, "x": two + `,"nextCursor":"x"}`}, "a b c", odd},
		"a circle":      {map[string]string{"": one + `,"nextCursor":"x"}`, "x": two + `,"nextCursor":"y"}`, "y": one + `,"nextCursor":"x"}`}, "a b c", odd},
		"a number":      {map[string]string{"": one + `,"nextCursor":7}`}, "", "nextCursor of the answer to tools/list is a number, not a string: 7"},
		"no list":       {map[string]string{"": `{"tools":{"a":{}}}`}, "", "tools of the answer to tools/list is an object, not a list"},
		"null list":     {map[string]string{"": `{"tools":null}`}, "", ""},
		"twins":         {map[string]string{"": `{"tools":[{"name":"a.b"},{"name":"a_b"},{"name":"c","inputSchema":{"type":"object"}}]}`}, "c", `two items would have the public name "web__a_b"`},
		"two of a name": {map[string]string{"": `{"tools":[{"name":"a","title":"1"},{"name":"a","title":"2"},{"name":"c","inputSchema":{"type":"object"}}]}`}, "c", `two items would have the public name "web__a"`},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, "  web: "+over(pages(t, c.pages), ""), upstream.Options{})
			r, err := m.Inspect(t.Context(), "web")
			var items, notes []string
			for _, i := range r.Items {
				items = append(items, i.Name)
			}
			for _, n := range r.Notes {
				notes = append(notes, n.String())
			}
			if err != nil {
				notes = append(notes, err.Error())
			}
			if got := strings.Join(notes, "; "); strings.Join(items, " ") != c.items || !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("listed %q with %q", items, got)
			}
		})
	}
}

// Unordered parts of a JSON Schema may come in any order; every other change is drift.
func TestOrderIsNoDrift(t *testing.T) {
	tool := func(schema string) string {
		return `{"name":"t","inputSchema":` + schema + `,"outputSchema":` + schema + `}`
	}
	for _, c := range []struct {
		a, b    string
		drifted bool
	}{
		{`{"type":"object","required":["a","b"]}`, `{"required":["b","a"],"type":"object"}`, false},
		{`{"type":"object","properties":{"a":{"enum":[1,{"x":1,"y":[2,3]},"c"]},"b":{"type":["null","string"]}}}`, `{"type":"object","properties":{"b":{"type":["string","null"]},"a":{"enum":["c",1,{"y":[2,3],"x":1}]}}}`, false},
		{`{"type":"object","$defs":{"required":{"required":["a","b"]},"default":{"enum":[1,2]}}}`, `{"type":"object","$defs":{"default":{"enum":[2,1]},"required":{"required":["b","a"]}}}`, false},
		{`{"type":"object","anyOf":[{"required":["a","b"]}]}`, `{"type":"object","anyOf":[{"required":["b","a"]}]}`, false},
		{`{"type":"object","required":["a","b"]}`, `{"type":"object","required":["a"]}`, true},
		{`{"type":"object","required":["a"]}`, `{"type":"object","required":["a","a"]}`, true},
		{`{"type":"object","properties":{"a":{"enum":[1,2]}}}`, `{"type":"object","properties":{"a":{"enum":[12]}}}`, true},
		{`{"type":"object","prefixItems":[{},true]}`, `{"type":"object","prefixItems":[true,{}]}`, true},
		{`{"type":"object","default":{"enum":[1,2]}}`, `{"type":"object","default":{"enum":[2,1]}}`, true},
		{`{"type":"object","properties":{"enum":{"const":[1,2]}}}`, `{"type":"object","properties":{"enum":{"const":[2,1]}}}`, true},
	} {
		got := pins(t, [3]string{"a", "tool", tool(c.a)}).Compare("a", []upstream.Item{newItem(t, tool(c.b))})
		if (len(got) == 1) != c.drifted || c.drifted && !slices.Equal(got[0].Members, []string{"inputSchema", "outputSchema"}) {
			t.Errorf("%s and %s: %+v", c.a, c.b, got)
		}
	}
}

// Pins of an older gavel, which accepted definitions unchanged, remain valid. They are repaired like a server's list,
// and definitions that strict clients refuse are dropped.
func TestOlderPins(t *testing.T) {
	path := t.TempDir() + "/gavel.pins.json"
	row := func(definition string) string {
		name := document.ReadTrusted([]byte(definition)).Get("name").Text()
		return fmt.Sprintf(`{"kind":"tool","name":%q,"hash":%q,"definition":%s}`, name, upstream.Item{Raw: []byte(definition)}.Hash(), definition)
	}
	text := `{"version":1,"upstreams":{"a":[` + row(`{"name":"bare"}`) + `,` + row(`{"name":"bad","inputSchema":{"type":"string"}}`) + `]}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := upstream.LoadPins(path)
	if err != nil {
		t.Fatal(err)
	}
	items, _ := p.Of("a")
	if len(items) != 1 || string(items[0].Raw) != `{"name":"bare","inputSchema":{"type":"object"}}` {
		t.Errorf("read %+v", items)
	}
	if d := p.Compare("a", []upstream.Item{newTool(t, "bare")}); len(d) != 0 {
		t.Errorf("drifted: %+v", d)
	}
}
