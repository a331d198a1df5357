package wire_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
)

// others offers entries of other servers to ann; reply returns their answers.
type others struct {
	reply func(wire.Request) (wire.Reply, error)

	mu      sync.Mutex
	items   map[wire.Kind][]wire.Item
	changed map[wire.Kind]chan struct{}
}

func newOthers() *others {
	o := &others{items: map[wire.Kind][]wire.Item{}, changed: map[wire.Kind]chan struct{}{}}
	for kind, doc := range map[wire.Kind]string{
		wire.Tool:     `{"name":"a__t","inputSchema":{"$schema":"x","anyOf":[{}],"properties":{"region":{"type":"string","x-mcp-header":"Region"}}},"unknown":{"n":90071992547409931234,"f":1.50},"description":"<&>"}`,
		wire.Resource: `{"uri":"a+r://1","name":"R","icons":[]}`,
		wire.Template: `{"uriTemplate":"a+r://{id}","name":"T"}`,
		wire.Prompt:   `{"name":"a__p","arguments":[{"name":"x","required":false}]}`,
	} {
		o.items[kind] = []wire.Item{{Name: "a__t", JSON: json.RawMessage(doc)}}
		o.changed[kind] = make(chan struct{})
	}
	return o
}

func (o *others) List(p engine.Principal, kind wire.Kind) []wire.Item {
	if p != ann {
		return nil
	}
	return o.items[kind]
}

func (o *others) Find(ctx context.Context, kind wire.Kind, name string) (wire.Item, bool) {
	for _, item := range o.List(wire.CallerOf(ctx), kind) {
		if item.Name == name {
			return item, true
		}
	}
	return wire.Item{}, false
}

func (o *others) Ask(_ context.Context, p engine.Principal, r wire.Request) (wire.Reply, error) {
	if p != ann || !strings.HasPrefix(r.Name, "a__") && !strings.HasPrefix(r.Name, "a+") {
		return wire.Reply{}, wire.ErrNotForeign
	}
	return o.reply(r)
}

func (o *others) Changed(_ engine.Principal, kind wire.Kind) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed[kind]
}

func (o *others) change(kind wire.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed[kind])
	o.changed[kind] = make(chan struct{})
}

func newForeignWire(t *testing.T, o *others) *wire.Wire {
	t.Helper()
	w, err := wire.New(wire.Config{
		Info: mcp.Implementation{Name: "test", Version: "1"}, Tools: newOtherTools("work"), Foreign: o, Logger: slog.New(slog.DiscardHandler),
		Options: []server.ServerOption{
			server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true), server.WithPromptCapabilities(true), server.WithCompletions(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestForeignListsComeAsTheyAre(t *testing.T) {
	o := newOthers()
	p := serveStdio(t, newForeignWire(t, o))
	for method, kind := range map[string]wire.Kind{
		"tools/list": wire.Tool, "resources/list": wire.Resource, "resources/templates/list": wire.Template, "prompts/list": wire.Prompt,
	} {
		p.send(`{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`)
		if got := p.next(); !strings.Contains(got, string(o.items[kind][0].JSON)+"]") || kind == wire.Tool && !strings.Contains(got, `"name":"work"`) {
			t.Errorf("%s: %s", method, got)
		}
	}
	p.end()
}

// Clients that use initialize must not receive an outputSchema that their protocol version does not support.
func TestOutputSchemasOfNoObject(t *testing.T) {
	o := newOthers()
	p := serveStdio(t, newForeignWire(t, o))
	for schema, kept := range map[string]bool{`{"type":"object","x":1.0}`: true, `{"type":"array"}`: false, `{"anyOf":[{"type":"object"}]}`: false} {
		o.items[wire.Tool] = []wire.Item{{Name: "a__t", JSON: json.RawMessage(`{"name":"a__t","outputSchema":` + schema + `,"title":"T"}`)}}
		for era, kept := range map[string]bool{``: kept, `,"params":{` + meta + `}`: true} {
			p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"` + era + `}`)
			if got := p.next(); strings.Contains(got, schema) != kept || !strings.Contains(got, `"title":"T"`) {
				t.Errorf("%s, kept %v: %s", schema, kept, got)
			}
		}
	}
	p.end()
}

func TestForeignRepliesComeAsTheyAre(t *testing.T) {
	o := newOthers()
	p := serveStdio(t, newForeignWire(t, o))
	for _, c := range []struct{ name, request, reply, want string }{
		{
			"a result", `"method":"tools/call","params":{"name":"a__t","arguments":{"n":1.50}}`,
			`{"Result":{"content":[{"type":"new"}],"structuredContent":{"n":90071992547409931234,"f":1.0},"isError":false,"un known":[1e400]}}`,
			`"result":{"content":[{"type":"new"}],"structuredContent":{"n":90071992547409931234,"f":1.0},"isError":false,"un known":[1e400]}}`,
		},
		{"lines", `"method":"resources/read","params":{"uri":"a+r://1"}`, "{\"Result\":{\n \"contents\": [ ]\r\n}}", `"result":{"contents":[]}}`},
		{
			"an error", `"method":"prompts/get","params":{"name":"a__p"}`,
			`{"Error":{"code":-32042,"message":"go","data":{"n":90071992547409931234},"more":1}}`,
			`"error":{"code":-32042,"message":"go","data":{"n":90071992547409931234},"more":1}}`,
		},
		{"a completion", `"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"a+r://{id}"},"argument":{"name":"id","value":""}}`, `{"Result":{"completion":{"values":[]}}}`, `"result":{"completion":{"values":[]}}}`},
		{"no result", `"method":"tools/call","params":{"name":"a__t"}`, `{"Result":[1]}`, `"code":"internal"`},
		{"no error", `"method":"tools/call","params":{"name":"a__t"}`, `{"Error":{"code":"x"}}`, `"code":"internal"`},
		{"its own", `"method":"tools/call","params":{"name":"work","arguments":{}}`, `{}`, `"result":{"content":[{"type":"text","text":"{}"}]}}`},
		{"nobody's", `"method":"prompts/get","params":{"name":"b__p"}`, `{}`, `"error":{"code":-32602`},
	} {
		o.reply = func(r wire.Request) (reply wire.Reply, err error) {
			if !strings.Contains(c.request, string(r.Params)) {
				t.Errorf("%s: params %s", c.name, r.Params)
			}
			return reply, json.Unmarshal([]byte(c.reply), &reply)
		}
		p.send(`{"jsonrpc":"2.0","id":7,` + c.request + `}`)
		if got := p.next(); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s\nwant %s", c.name, got, c.want)
		}
	}
	p.end()
}

// A client without sessions gets the members that its protocol version requires. The cache scope is private, because
// the result depends on the caller.
func TestForeignRepliesOfTheModernEra(t *testing.T) {
	o := newOthers()
	ask := overHTTP(t, newForeignWire(t, o))
	for _, c := range []struct{ method, name, reply, want string }{
		{"tools/call", `"name":"a__t"`, `{"content":[]}`, `"result":{"content":[],"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}}`},
		{"tools/call", `"name":"a__t"`, `{"resultType":"input_required","_meta":{}}`, `"result":{"resultType":"input_required","_meta":{}}}`},
		{"resources/read", `"uri":"a+r://1"`, `{"_meta":{},"cacheScope":"public","ttlMs":5}`, `"result":{"_meta":{},"cacheScope":"private","ttlMs":5,"resultType":"complete"}}`},
		{"resources/read", `"uri":"a+r://1"`, `{}`, `"ttlMs":0,"cacheScope":"private"}}`},
	} {
		o.reply = func(wire.Request) (wire.Reply, error) {
			return wire.Reply{Result: json.RawMessage(c.reply)}, nil
		}
		var name string
		_, _ = fmt.Sscanf(c.name[strings.Index(c.name, ":")+1:], "%q", &name)
		res := ask(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"`+c.method+`","params":{`+meta+`,`+c.name+`}}`,
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", c.method, "Mcp-Name", name)
		var got json.RawMessage
		if err := json.NewDecoder(res.Body).Decode(&got); err != nil || !strings.HasSuffix(string(got), c.want) {
			t.Errorf("%s of %s: %s %v", c.method, c.reply, got, err)
		}
	}
	res := ask(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+meta+`,"name":"a__t","arguments":{"region":"eu"}}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "a__t", "Mcp-Param-Region", "us")
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("a header that says something else: %d", res.StatusCode)
	}
}

// A list change is announced to the streams that follow the list.
func TestForeignListsChange(t *testing.T) {
	o := newOthers()
	ask := overHTTP(t, newForeignWire(t, o))
	hello := ask(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	session := events(t, ask(http.MethodGet, "", "Mcp-Session-Id", hello.Header.Get("Mcp-Session-Id")))
	listen := events(t, ask(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{`+meta+`,"notifications":{"promptsListChanged":true}}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen"))
	if got := listen(); !strings.Contains(got, `"promptsListChanged":true`) {
		t.Fatalf("listen: %s", got)
	}
	for _, c := range []struct {
		kind   wire.Kind
		method string
	}{
		{wire.Tool, "notifications/tools/list_changed"},
		{wire.Resource, "notifications/resources/list_changed"},
		{wire.Template, "notifications/resources/list_changed"},
		{wire.Prompt, "notifications/prompts/list_changed"},
	} {
		o.change(c.kind)
		if got := session(); !strings.Contains(got, c.method) {
			t.Errorf("%s: the session is told %s", c.kind, got)
		}
	}
	if got := listen(); !strings.Contains(got, "notifications/prompts/list_changed") || !strings.Contains(got, `subscriptionId":7`) {
		t.Errorf("who follows prompts is told %s", got)
	}
}
