package foreign_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/modules/gateway/foreign"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

var (
	ann = engine.Principal{ID: "ann", Role: engine.RoleAgent}
	bob = engine.Principal{ID: "bob", Role: engine.RoleAgent}
)

// fakeUpstreams is a foreign.Door whose items only ann may use.
type fakeUpstreams struct {
	items []upstream.Item
	call  func(context.Context, upstream.Request) (upstream.Reply, error)
}

func item(kind upstream.Kind, name, public, raw string) upstream.Item {
	return upstream.Item{Upstream: "files", Kind: kind, Name: name, Public: public, Raw: json.RawMessage(raw)}
}

func newFakeUpstreams() *fakeUpstreams {
	return &fakeUpstreams{items: []upstream.Item{
		item(upstream.KindTool, "b.read", "files__b_read", `{"description":"<&>", "name":"b.read","inputSchema":{"$schema":"x","maximum":90071992547409931234},"new":{"name":"b.read"}}`),
		item(upstream.KindTool, "a", "files__a", `{"name":"a"}`),
		item(upstream.KindResource, "file:///x", "files+file:///x", `{"uri":"file:///x","name":"x"}`),
		item(upstream.KindTemplate, "file:///{p}", "files+file:///{p}", `{"uriTemplate":"file:///{p}","name":"t"}`),
		item(upstream.KindPrompt, "p", "files__p", `{"name":"p","title":"P"}`),
	}}
}

func (d *fakeUpstreams) List(p engine.Principal, kind upstream.Kind) (list []upstream.Item) {
	for _, i := range d.items {
		if p == ann && i.Kind == kind {
			list = append(list, i)
		}
	}
	return list
}

func (d *fakeUpstreams) Resolve(kind upstream.Kind, public string) (server, name string, ok bool) {
	for _, i := range d.items {
		if i.Kind == kind && i.Public == public {
			return i.Upstream, i.Name, true
		}
	}
	if uri, ok := strings.CutPrefix(public, "files+"); ok {
		return "files", uri, true
	}
	return "", "", false
}

func (d *fakeUpstreams) Call(ctx context.Context, p engine.Principal, r upstream.Request) (upstream.Reply, error) {
	if p != ann {
		return upstream.Reply{}, &upstream.Error{Code: upstream.CodeUnknown}
	}
	return d.call(ctx, r)
}

func newGateway(d foreign.Upstreams) *foreign.Face {
	g := foreign.New(slog.New(slog.DiscardHandler))
	g.Serve(d)
	return g
}

func TestListsKeepEverythingButTheName(t *testing.T) {
	t.Parallel()
	g := newGateway(newFakeUpstreams())
	for kind, want := range map[wire.Kind]string{
		wire.Tool:     `files__a {"name":"files__a"} files__b_read {"description":"<&>","name":"files__b_read","inputSchema":{"$schema":"x","maximum":90071992547409931234},"new":{"name":"b.read"}} `,
		wire.Resource: `files+file:///x {"uri":"files+file:///x","name":"x"} `,
		wire.Template: `files+file:///{p} {"uriTemplate":"files+file:///{p}","name":"t"} `,
		wire.Prompt:   `files__p {"name":"files__p","title":"P"} `,
	} {
		var got strings.Builder
		for _, i := range g.List(ann, kind) {
			fmt.Fprintf(&got, "%s %s ", i.Name, i.JSON)
			if found, ok := g.Find(wire.WithCaller(t.Context(), ann), kind, i.Name); !ok || string(found.JSON) != string(i.JSON) {
				t.Errorf("%s is found as %s", i.Name, found.JSON)
			}
			if _, ok := g.Find(wire.WithCaller(t.Context(), bob), kind, i.Name); ok {
				t.Errorf("bob finds %s", i.Name)
			}
		}
		if got.String() != want {
			t.Errorf("%s:\ngot  %s\nwant %s", kind, got.String(), want)
		}
		if list := g.List(bob, kind); len(list) > 0 {
			t.Errorf("bob sees %v", list)
		}
	}
	if list := foreign.New(slog.Default()).List(ann, wire.Tool); len(list) > 0 {
		t.Errorf("without upstreams: %v", list)
	}
}

func TestURIsInResults(t *testing.T) {
	t.Parallel()
	d := newFakeUpstreams()
	g := newGateway(d)
	for _, c := range []struct {
		kind       wire.Kind
		name       string
		from, want string
	}{
		{
			wire.Tool, "files__a",
			`{"content":[{"type":"text","text":"\"uri\" file:///x"},{"type":"resource_link","uri":"file:///x","icons":[]},{"type":"resource_link","uri":"https://x"},{"type":"resource","resource":{"uri":"a:b","blob":"QQ=="}},{"type":"new","uri":"a:b"},7],"structuredContent":{"uri":"a:b","n":1.0}}`,
			`{"content":[{"type":"text","text":"\"uri\" file:///x"},{"type":"resource_link","uri":"files+file:///x","icons":[]},{"type":"resource_link","uri":"https://x"},{"type":"resource","resource":{"uri":"files+a:b","blob":"QQ=="}},{"type":"new","uri":"a:b"},7],"structuredContent":{"uri":"a:b","n":1.0}}`,
		},
		{wire.Resource, "files+file:///y", `{"contents":[{"uri":"file:///y","text":"<"},{"uri":"https://y"}],"uri":"z"}`, `{"contents":[{"uri":"files+file:///y","text":"<"},{"uri":"files+https://y"}],"uri":"z"}`},
		{
			wire.Prompt, "files__p", `{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:b"}}},{"content":"x"}]}`,
			`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"files+a:b"}}},{"content":"x"}]}`,
		},
		{wire.Tool, "files__a", `{ "content": [1.50] }`, `{ "content": [1.50] }`},
		{wire.Tool, "files__a", `{"content":{"uri":1}}`, `{"content":{"uri":1}}`},
	} {
		d.call = func(_ context.Context, r upstream.Request) (upstream.Reply, error) {
			if r.Upstream != "files" || "files+"+r.Name != c.name && !strings.HasPrefix(c.name, "files__") {
				t.Errorf("%s: asked for %s of %s", c.name, r.Name, r.Upstream)
			}
			return upstream.Reply{Result: json.RawMessage(c.from)}, nil
		}
		got, err := g.Ask(t.Context(), ann, wire.Request{Kind: c.kind, Name: c.name})
		if err != nil || string(got.Result) != c.want {
			t.Errorf("%s:\ngot  %s %v\nwant %s", c.kind, got.Result, err, c.want)
		}
	}
}

// A caller cannot distinguish denied names, unknown names and gavel's own.
func TestNotForeign(t *testing.T) {
	t.Parallel()
	d := newFakeUpstreams()
	d.call = func(context.Context, upstream.Request) (upstream.Reply, error) {
		return upstream.Reply{}, &upstream.Error{Code: upstream.CodeUnknown, Message: "secret"}
	}
	g := newGateway(d)
	for _, c := range []struct {
		who  engine.Principal
		kind wire.Kind
		name string
	}{
		{ann, wire.Tool, "workflow.start"},
		{ann, wire.Tool, ""},
		{ann, wire.Tool, "files__nothing"},
		{ann, wire.Tool, "files__a"},
		{bob, wire.Tool, "files__a"},
		{bob, wire.Resource, "files+file:///x"},
		{ann, wire.Resource, "workflow://definitions"},
		{ann, wire.Prompt, "p"},
	} {
		if reply, err := g.Ask(t.Context(), c.who, wire.Request{Kind: c.kind, Name: c.name}); !errors.Is(err, wire.ErrNotForeign) {
			t.Errorf("%s %s for %s: %s %v", c.kind, c.name, c.who.ID, reply.Result, err)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	d := newFakeUpstreams()
	var log strings.Builder
	g := foreign.New(slog.New(slog.NewTextHandler(&log, nil)))
	g.Serve(d)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	lost := &upstream.Error{Code: upstream.CodeLost, Message: "It ended.", Hint: "Look.", MayHaveRun: true, Err: errors.New("secret")}
	for _, c := range []struct {
		ctx  context.Context //nolint:containedctx // each case has its own
		kind wire.Kind
		err  error
		want string
	}{
		{t.Context(), wire.Tool, lost, `{"content":[{"type":"text","text":"{\"error\":{\"code\":\"upstream_lost\",\"message\":\"It ended.\",\"hint\":\"Look.\",\"retryable\":false,\"mayHaveRun\":true}}"}],"isError":true}`},
		{t.Context(), wire.Tool, &upstream.Error{Code: upstream.CodeBusy, Message: "Busy."}, `{"content":[{"type":"text","text":"{\"error\":{\"code\":\"upstream_busy\",\"message\":\"Busy.\",\"retryable\":true}}"}],"isError":true}`},
		{t.Context(), wire.Prompt, &upstream.Error{Code: upstream.CodeInvalid, Message: "Bad."}, `{"code":-32602,"message":"Bad.","data":{"code":"invalid_argument","message":"Bad.","retryable":false}}`},
		{t.Context(), wire.Tool, &upstream.Error{Code: upstream.CodeInvalid, Message: "Old.", Err: clientstate.ErrState}, `{"code":-32602,"message":"Old.","data":{"code":"invalid_argument"`},
		{t.Context(), wire.Prompt, lost, `{"code":-32603,"message":"It ended. Look.","data":{"code":"upstream_lost","message":"It ended.","hint":"Look.","retryable":false,"mayHaveRun":true}}`},
		{t.Context(), wire.Tool, &upstream.Error{Code: "unknown_instance", Message: "None.", Err: errors.New("secret")}, "unknown_instance"},
		{t.Context(), wire.Tool, &upstream.Error{Code: "internal", Message: "Broken.", Err: errors.New("the disk is full")}, "internal"},
		{cancelled, wire.Tool, context.Canceled, `{\"code\":\"cancelled\"`},
		{t.Context(), wire.Tool, errors.New("a defect"), `a defect`},
	} {
		d.call = func(context.Context, upstream.Request) (upstream.Reply, error) { return upstream.Reply{}, c.err }
		reply, err := g.Ask(c.ctx, ann, wire.Request{Kind: c.kind, Name: map[wire.Kind]string{wire.Tool: "files__a", wire.Prompt: "files__p"}[c.kind]})
		got := string(reply.Result)
		if e, ok := errors.AsType[*wire.Error](err); ok {
			doc, _ := document.Marshal(e)
			got = string(doc)
		} else if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%v: %s\nwant %s", c.err, got, c.want)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the disk is full") {
		t.Errorf("logged is\n%s", got)
	}
}

// A change is announced only to principals whose list it changes. The same holds for new upstreams.
func TestChanges(t *testing.T) {
	t.Parallel()
	g := newGateway(newFakeUpstreams())
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	annTools, bobTools, annPrompts := g.Changed(ann, wire.Tool), g.Changed(bob, wire.Tool), g.Changed(ann, wire.Prompt)
	g.Announce(upstream.Change{Kind: upstream.KindTool, Affects: func(p engine.Principal) bool { return p == ann }})
	if !closed(annTools) || closed(bobTools) || closed(annPrompts) || closed(g.Changed(ann, wire.Tool)) {
		t.Errorf("a change for ann's tools: ann %v, bob %v, ann's prompts %v", closed(annTools), closed(bobTools), closed(annPrompts))
	}
	annTools = g.Changed(ann, wire.Tool)
	other := newFakeUpstreams()
	other.items[0].Raw = json.RawMessage(`{"name":"b.read","description":"another"}`)
	g.Serve(other)
	if !closed(annTools) || closed(bobTools) || closed(annPrompts) {
		t.Errorf("other upstreams: ann %v, bob %v, ann's prompts %v", closed(annTools), closed(bobTools), closed(annPrompts))
	}
	g.Serve(&fakeUpstreams{})
	if closed(bobTools) || !closed(annPrompts) {
		t.Errorf("nothing is there any more: bob %v, ann's prompts %v", closed(bobTools), closed(annPrompts))
	}
}

// own lists no tools.
type own struct{}

func (own) List(context.Context, engine.Principal) ([]mcp.Tool, error) { return nil, nil }
func (own) Changed(engine.Principal) <-chan struct{}                   { return nil }
func (own) Call(context.Context, engine.Principal, wire.Call) (*mcp.CallToolResult, error) {
	return nil, &wire.Error{Code: -32602, Message: "unknown"}
}

// serve serves a gateway to ann over stdio.
func serve(t testing.TB, g *foreign.Face) (send func(string), next func() string) {
	t.Helper()
	w, err := wire.New(wire.Config{Info: mcp.Implementation{Name: "test", Version: "1"}, Tools: own{}, Foreign: g, Logger: slog.New(slog.DiscardHandler), Options: []server.ServerOption{server.WithToolCapabilities(true)}})
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- w.ServeStdio(context.WithoutCancel(t.Context()), ann, inR, outW) }()
	t.Cleanup(func() {
		_ = inW.Close()
		go func() { _, _ = io.Copy(io.Discard, outR) }()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	out := bufio.NewReader(outR)
	return func(line string) { _, _ = io.WriteString(inW, line+"\n") }, func() string {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(line)
	}
}

// Progress arrives in order, before the answer and with the client's own token. It is requested only if the client
// requests it.
func TestProgress(t *testing.T) {
	t.Parallel()
	d := newFakeUpstreams()
	const steps = 200
	d.call = func(_ context.Context, r upstream.Request) (upstream.Reply, error) {
		for n := range steps {
			if r.Progress == nil {
				break
			}
			r.Progress(json.RawMessage(fmt.Sprintf(`{"progress":%d.50,"new":90071992547409931234}`, n)))
		}
		return upstream.Reply{Result: json.RawMessage(`{"content":[]}`)}, nil
	}
	send, next := serve(t, newGateway(d))
	send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"files__a","_meta":{"progressToken":9007199254740991}}}`)
	for n := range steps {
		if got, want := next(), fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"new":90071992547409931234,"progress":%d.50,"progressToken":9007199254740991}}`, n); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	for range 2 {
		if got := next(); got != `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}` {
			t.Errorf("the answer: %s", got)
		}
		send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"files__a"}}`)
	}
	next()
}

// A server may ask the client only for input that the client declared with this request, and an older client for none.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	d, declared := newFakeUpstreams(), make(chan string, 1)
	d.call = func(_ context.Context, r upstream.Request) (upstream.Reply, error) {
		declared <- string(r.Capabilities)
		return upstream.Reply{Result: json.RawMessage(`{"content":[]}`)}, nil
	}
	send, next := serve(t, newGateway(d))
	const meta = `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"x":{}}}`
	for more, want := range map[string]string{
		``: ``,
		`,"io.modelcontextprotocol/protocolVersion":"2026-07-28"`: `{"elicitation":{"form":{}}}`,
	} {
		send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"files__a","_meta":{` + meta + more + `}}}`)
		next()
		if got := <-declared; got != want {
			t.Errorf("with %q the server gets %s", more, got)
		}
	}
}

// Cancelling a call ends it at the server. It gets no answer.
func TestCancellation(t *testing.T) {
	t.Parallel()
	d, entered, ended := newFakeUpstreams(), make(chan struct{}), make(chan error, 1)
	d.call = func(ctx context.Context, _ upstream.Request) (upstream.Reply, error) {
		close(entered)
		<-ctx.Done()
		ended <- ctx.Err()
		return upstream.Reply{}, ctx.Err()
	}
	send, next := serve(t, newGateway(d))
	send(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"files__a"}}`)
	<-entered
	send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if got := next(); got != `{"jsonrpc":"2.0","id":2,"result":{}}` {
		t.Errorf("after a cancelled call: %s", got)
	}
}

// For any answer of a server, everything except resource URIs stays unchanged, byte for byte.
func FuzzResults(f *testing.F) {
	for _, seed := range []string{`{"content":[{"type":"resource_link","uri":"a:b"}]}`, `{"contents":[{"uri":"\u0061:b"}]}`, `{"messages":[{"content":{"type":"resource","resource":{"uri":""}}}]}`, `{"content":[{"uri":1e400,"uri":2}]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, result string) {
		if !json.Valid([]byte(result)) || document.ReadTrusted([]byte(result)).Kind() != document.Object {
			return
		}
		d := newFakeUpstreams()
		d.call = func(context.Context, upstream.Request) (upstream.Reply, error) {
			return upstream.Reply{Result: json.RawMessage(result)}, nil
		}
		g := newGateway(d)
		for kind, name := range map[wire.Kind]string{wire.Tool: "files__a", wire.Resource: "files+x:", wire.Prompt: "files__p"} {
			got, err := g.Ask(t.Context(), ann, wire.Request{Kind: kind, Name: name})
			if err != nil {
				t.Fatal(err)
			}
			if back := strings.ReplaceAll(string(got.Result), `"files+`, `"`); !strings.Contains(result, "files+") && !strings.Contains(result, `\`) &&
				string(document.ReadTrusted([]byte(back)).Raw()) != string(document.ReadTrusted([]byte(result)).Raw()) {
				t.Errorf("%s: %s became %s", kind, result, got.Result)
			}
		}
	})
}

// A gate's additions to a definition are made, and nothing else changes.
func TestGatedTools(t *testing.T) {
	t.Parallel()
	handle := gate.Gate{Tool: "files__a", Workflow: "release", States: []string{"ready", "late"}}
	root, err := document.Parse("gates.yaml", []byte(`[{tool: files__a, workflow: release, states: [ready, late], subject: "{{arguments.repo}} {{arguments.n}}"}]`), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	about, err := gate.ParseConfig(root)
	if err != nil {
		t.Fatal(err)
	}
	subject := about.Gates[0]
	starting := subject
	starting.Start = true
	const note = `Can be called in the states \"ready\" or \"late\" of the workflow release.`
	const property = `"workflowId":{"type":"string","description":"The id of the workflow release that the call belongs to, as workflow.start returned it."}`
	for _, c := range []struct {
		raw, want string
		gate      gate.Gate
	}{
		{
			`{"name":"a","description":"Writes.","inputSchema":{"type":"object","properties":{"n":{"maximum":1e400}},"required":["n"]},"x":1.0}`,
			`{"name":"files__a","description":"Writes.\n\n` + note + ` workflowId selects the instance: the id that workflow.start returned.","inputSchema":{"type":"object","properties":{` + property + `,"n":{"maximum":1e400}},"required":["n","workflowId"]},"x":1.0}`, handle,
		},
		{
			`{"name":"a"}`,
			`{"inputSchema":{"required":["workflowId"],"properties":{` + property + `},"type":"object"},"description":"` + note + ` workflowId selects the instance: the id that workflow.start returned.","name":"files__a"}`, handle,
		},
		{`{"name":"a","inputSchema":{"type":"object"}}`, `{"description":"` + note + ` Which one follows from arguments.repo, arguments.n; workflow.start begins it.","name":"files__a","inputSchema":{"type":"object"}}`, subject},
		{`{"name":"a"}`, `{"description":"` + note + ` Which one follows from arguments.repo, arguments.n; the first call begins it.","name":"files__a"}`, starting},
	} {
		d := newFakeUpstreams()
		d.items = []upstream.Item{{Upstream: "files", Kind: upstream.KindTool, Name: "a", Public: "files__a", Raw: json.RawMessage(c.raw), Gate: &c.gate}}
		if got := newGateway(d).List(ann, wire.Tool); len(got) != 1 || string(got[0].JSON) != c.want {
			t.Errorf("got  %s\nwant %s", got[0].JSON, c.want)
		}
	}
}
