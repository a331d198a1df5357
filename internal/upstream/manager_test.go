package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

var (
	agent    = engine.Principal{ID: "local:agent", Role: engine.RoleAgent}
	operator = engine.Principal{ID: "local:operator", Role: engine.RoleOperator}
)

// pins returns accepted definitions. Each row has an upstream, a kind and a definition.
func pins(t testing.TB, rows ...[3]string) *upstream.Pins {
	t.Helper()
	p, err := upstream.LoadPins(filepath.Join(t.TempDir(), "gavel.pins.json"))
	if err != nil {
		t.Fatal(err)
	}
	byServer := map[string][]upstream.Item{}
	for _, row := range rows {
		item, err := upstream.NewItem(row[0], upstream.Kind(row[1]), json.RawMessage(row[2]))
		if err != nil {
			t.Fatal(err)
		}
		byServer[row[0]] = append(byServer[row[0]], item)
	}
	for server, items := range byServer {
		if err := p.Set(server, items); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func open(t testing.TB, text string, opts upstream.Options) *upstream.Manager {
	t.Helper()
	m, err := upstream.Open(mustParse(t, text), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func call(ctx context.Context, m *upstream.Manager, server, tool, params string) (upstream.Reply, error) {
	return m.Call(ctx, agent, upstream.Request{Upstream: server, Method: "tools/call", Kind: upstream.KindTool, Name: tool, Params: json.RawMessage(params)})
}

func wantCode(t testing.TB, err error, want upstream.Code, mayHaveRun bool) {
	t.Helper()
	if e, ok := errors.AsType[*upstream.Error](err); !ok || e.Code != want || e.MayHaveRun != mayHaveRun {
		t.Errorf("got %v (%+v), want %s, mayHaveRun %v", err, e, want, mayHaveRun)
	}
}

func publicNames(items []upstream.Item) string {
	var out []string
	for _, i := range items {
		out = append(out, i.Public)
	}
	return strings.Join(out, " ")
}

// A list contains the pinned items that the caller may use. A denied item is reported in the same way as one that
// does not exist.
func TestList(t *testing.T) {
	p := pins(t,
		[3]string{"git", "tool", `{"name":"git.log","inputSchema":{"type":"object"}}`},
		[3]string{"git", "tool", `{"name":"git_add","inputSchema":{}}`},
		[3]string{"git", "resource", `{"uri":"git://head","name":"h"}`},
		[3]string{"docs", "prompt", `{"name":"ask"}`},
		[3]string{"docs", "tool", `{"name":"find"}`},
	)
	m := open(t, `
  git: {command: [x], allow: [{tools: ["*log"], resources: ["git://*"]}, {tools: [git_add], roles: [operator]}]}
  docs: {command: [x], allow: [{prompts: ["*"], principals: ["local:*"]}]}
`, upstream.Options{Pins: p})
	for _, c := range []struct {
		p    engine.Principal
		kind upstream.Kind
		want string
	}{
		{agent, upstream.KindTool, "git__git_log"},
		{operator, upstream.KindTool, "git__git_log git__git_add"},
		{agent, upstream.KindResource, "git+git://head"},
		{agent, upstream.KindPrompt, "docs__ask"},
		{engine.Principal{ID: "jwt:x", Role: engine.RoleAgent}, upstream.KindPrompt, ""},
		{engine.Principal{}, upstream.KindTool, ""},
	} {
		if got := publicNames(m.List(c.p, c.kind)); got != c.want {
			t.Errorf("%s of %s are %q, want %q", c.kind, c.p.ID, got, c.want)
		}
	}
	if server, name, ok := m.Resolve(upstream.KindTool, "git__git_log"); !ok || server != "git" || name != "git.log" {
		t.Errorf("resolved to %q %q", server, name)
	}
	if server, name, ok := m.Resolve(upstream.KindResource, "GIT+git://any"); !ok || server != "git" || name != "git://any" {
		t.Errorf("resolved to %q %q", server, name)
	}
	var texts []string
	for _, name := range []string{"git_add", "none"} {
		_, err := m.Call(t.Context(), agent, upstream.Request{Upstream: "git", Method: "tools/call", Kind: upstream.KindTool, Name: name})
		if e, ok := errors.AsType[*upstream.Error](err); !ok || e.Code != upstream.CodeUnknown {
			t.Errorf("%s: %v", name, err)
		} else {
			texts = append(texts, e.Message+e.Hint)
		}
	}
	if len(slices.Compact(texts)) != 1 {
		t.Errorf("denied and unknown differ: %q", texts)
	}
	if list := (*upstream.Manager)(nil).List(agent, upstream.KindTool); list != nil {
		t.Errorf("a nil Manager lists %v", list)
	}
	if _, err := (*upstream.Manager)(nil).Call(context.Background(), agent, upstream.Request{}); err == nil {
		t.Error("a nil Manager answers")
	}
}

// Warnings report upstreams that are less protected, or of which nothing is listed.
func TestWarnings(t *testing.T) {
	m := open(t, `
  fine: {command: [x], allow: [{tools: ["*"]}]}
  loose: {command: [gavel-has-no-such-program], pinning: first-use, allow: [{tools: ["*"]}]}
  mute: {command: [x]}
`, upstream.Options{Pins: pins(t, [3]string{"fine", "tool", `{"name":"a"}`}, [3]string{"mute", "tool", `{"name":"a"}`})})
	if got := strings.Join(m.Warnings(), "\n"); got != `the upstream "loose" is pinned on first use: its items are trusted at each start of gavel`+"\n"+`the upstream "mute" has no rule in "allow", so no one may use it` {
		t.Errorf("warnings are\n%s", got)
	}
	m = open(t, "  a: {command: [x], allow: [{tools: ['*']}]}\n", upstream.Options{})
	if got := m.Warnings(); len(got) != 1 || !strings.Contains(got[0], "gavel upstream pin a") {
		t.Errorf("warnings are %q", got)
	}
}

// Open reports errors with their lines.
func TestOpenRefuses(t *testing.T) {
	tools := func(names ...string) (rows [][3]string) {
		for _, n := range names {
			rows = append(rows, [3]string{"a", "tool", `{"name":"` + n + `"}`})
		}
		return rows
	}
	for name, c := range map[string]struct {
		text string
		pins [][3]string
		want string
	}{
		"pattern": {"  a: {command: [x], allow: [{tools: [raed_file]}]}\n", tools("read_file"), `gavel.yaml:2:38: /upstreams/a/allow/0/tools/0: the pattern "raed_file" matches none of the pinned tools; did you mean "read_file"?`},
		"unset":   {"  a: {url: 'https://h.example/', headers: {A: '${GAVEL_NO_SUCH}'}}\n", nil, "gavel.yaml:2:47: /upstreams/a/headers/A: the environment variable GAVEL_NO_SUCH is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := upstream.Open(mustParse(t, c.text), upstream.Options{Pins: pins(t, c.pins...)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// A pins file is read exactly as it was written, byte for byte, and rejected after a change by hand.
func TestPinsFile(t *testing.T) {
	definition := "{ \"name\" : \"t\",\n \"n\": 12345678901234567890.0, \"s\": \"<&>\\u2028\", \"x-own\": {}, \"inputSchema\": {\"type\":\"object\"} }"
	path := filepath.Join(t.TempDir(), "gavel.pins.json")
	p, err := upstream.LoadPins(path)
	if err != nil {
		t.Fatal(err)
	}
	item, err := upstream.NewItem("a", upstream.KindTool, json.RawMessage(definition))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Set("a", []upstream.Item{item}), p.Save()); err != nil {
		t.Fatal(err)
	}
	again, err := upstream.LoadPins(path)
	if err != nil {
		t.Fatal(err)
	}
	if items, ok := again.Of("a"); !ok || string(items[0].Raw) != definition || items[0].Hash() != item.Hash() {
		t.Errorf("read %+v", items)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, changed := range map[string]string{
		"definition": strings.Replace(string(text), `"name" : "t"`, `"name" : "t", "description": "more"`, 1),
		"version":    strings.Replace(string(text), `"version": 1`, `"version": 2`, 1),
		"key":        strings.Replace(string(text), `"version": 1`, `"version": 1, "more": 1`, 1),
	} {
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := upstream.LoadPins(path); err == nil || !strings.Contains(err.Error(), "gavel upstream pin") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, items := range map[string][]upstream.Item{
		"two of a name":   {item, item},
		"one public name": {newTool(t, "a.b"), newTool(t, "a_b")},
	} {
		if err := p.Set("a", items); err == nil {
			t.Errorf("%s: pinned", name)
		}
	}
}

func newTool(t testing.TB, name string) upstream.Item {
	t.Helper()
	return newItem(t, `{"name":"`+name+`"}`)
}

func newItem(t testing.TB, definition string) upstream.Item {
	t.Helper()
	item, err := upstream.NewItem("a", upstream.KindTool, json.RawMessage(definition))
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// The hash covers the members that a model or client bases decisions on, and ignores the order of keys.
func TestHash(t *testing.T) {
	hash := func(raw string) string {
		item, err := upstream.NewItem("a", upstream.KindTool, json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		return item.Hash()
	}
	base := hash(`{"name":"t","description":"d","inputSchema":{"a":1,"b":[1,2]}}`)
	for raw, same := range map[string]bool{
		`{"inputSchema":{"b":[1,2],"a":1}, "description":"\u0064","name":"t"}`:             true,
		`{"name":"t","description":"d","inputSchema":{"a":1,"b":[1,2]},"icons":[]}`:        true,
		`{"name":"t","description":"D","inputSchema":{"a":1,"b":[1,2]}}`:                   false,
		`{"name":"t","description":"d","inputSchema":{"a":1,"b":[2,1]}}`:                   false,
		`{"name":"t","description":"d","inputSchema":{"a":1,"b":[12]}}`:                    false,
		`{"name":"t","description":"d","inputSchema":{"a":1,"b":[1,2]},"_meta":{}}`:        false,
		`{"name":"t","description":"d","inputSchema":{"a":1,"b":[1,2]},"annotations":{}}`:  false,
		`{"name":"t","description":"d","inputSchema":{"a":1,"b":[1,2]},"outputSchema":{}}`: false,
		`{"name":"t","description":"d","inputSchema":{"a":1,"b":[1,2]},"title":"t"}`:       false,
	} {
		if (hash(raw) == base) != same {
			t.Errorf("%s: same is not %v", raw, same)
		}
	}
	if _, err := upstream.NewItem("a", upstream.KindTool, json.RawMessage(`{"name":"t","inputSchema":{"a":1,"a":2}}`)); err == nil {
		t.Error("a duplicate key was accepted")
	}
}

// Public names are short and plain, and identify the upstream.
func TestPublicName(t *testing.T) {
	for name, want := range map[string]string{
		"read_file":             "up__read_file",
		"a.b/c d":               "up__a_b_c_d",
		strings.Repeat("x", 48): "up__" + strings.Repeat("x", 48),
	} {
		if got := upstream.PublicName("up", upstream.KindTool, name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	rapid.Check(t, checkNames)
}

func FuzzPublicName(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkNames)) }

// checkNames pins tools of two upstreams. Each has a public name that every client accepts and that resolves back to
// it, or all are rejected.
func checkNames(r *rapid.T) {
	server := rapid.SampledFrom([]string{"a", "abcdefghijklmnopqrstuvwx"})
	name := rapid.OneOf(rapid.StringMatching(`[a_./]{1,2}`), rapid.StringMatching(`a{48}[ab]{1,2}`), rapid.String())
	type pair struct{ server, name string }
	var all []pair
	pinned := upstream.NewPins()
	byServer := map[string][]upstream.Item{}
	for range 4 {
		p := pair{server.Draw(r, "server"), name.Draw(r, "name")}
		definition, err := json.Marshal(map[string]string{"name": p.name})
		if err != nil {
			r.Fatal(err)
		}
		item, err := upstream.NewItem(p.server, upstream.KindTool, definition)
		if err != nil {
			continue // the name is not printable
		}
		p.name = item.Name // invalid UTF-8 was replaced
		if !regexp.MustCompile(`^[a-zA-Z0-9_-]{1,52}$`).MatchString(item.Public) {
			r.Fatalf("%q is %q", p.name, item.Public)
		}
		same := slices.ContainsFunc(byServer[p.server], func(i upstream.Item) bool { return i.Public == item.Public })
		if twice := slices.ContainsFunc(byServer[p.server], func(i upstream.Item) bool { return i.Name == item.Name }); same && !twice && len(p.name) > 40 {
			r.Fatalf("%q is %q, and so is another name", p.name, item.Public)
		}
		err = pinned.Set(p.server, append(byServer[p.server], item))
		if same == (err == nil) {
			r.Fatalf("%q beside %v: %v", p.name, byServer[p.server], err)
		}
		if err == nil {
			byServer[p.server], all = append(byServer[p.server], item), append(all, p)
		}
	}
	cfg := upstream.Config{Servers: map[string]upstream.Server{}}
	for _, p := range all {
		cfg.Servers[p.server] = upstream.Server{Command: []string{"x"}}
	}
	m, err := upstream.Open(cfg, upstream.Options{Pins: pinned})
	if err != nil {
		r.Fatal(err)
	}
	defer m.Close()
	for _, p := range all {
		public := upstream.PublicName(p.server, upstream.KindTool, p.name)
		if server, name, ok := m.Resolve(upstream.KindTool, public); !ok || server != p.server || name != p.name {
			r.Fatalf("%q of %q is %q, which leads to %q of %q", p.name, p.server, public, name, server)
		}
	}
}

// A URI that fills a template means what its text shows, so that patterns are reliable.
func TestPlainURI(t *testing.T) {
	for uri, want := range map[string]bool{
		"file:///data/a%20b": true, "demo://r/1?x=2": true, "file:///100%25": true, "x:a..b": true,
		"file:///data/../etc": false, "file:///data/%2e%2e/etc": false, "file:///data/%252e%252e/etc": false,
		`file:///data\..\etc`: false, "file:///a%00": false, "file:///a/./b": false, "file:///a%2f..%2fb": false, "x:a/%2525252e./b": false,
	} {
		if got := upstream.IsPlainURI(uri); got != want {
			t.Errorf("%s: %v", uri, got)
		}
	}
}
