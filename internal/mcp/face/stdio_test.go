package face_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/operation"
)

const define = `{"name":"simple","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true,"outcome":"success"}}}`

func TestMovesAndRefusals(t *testing.T) {
	w := serve(t, newEngine(t))
	w.hello("test")
	if r := w.call("workflow.define", define); r.IsError || r.StructuredContent["version"] != 1.0 {
		t.Fatalf("define: %s", r.text())
	}
	start := w.call("workflow.start", `{"type":"simple"}`)
	id, _ := start.StructuredContent["id"].(string)
	if start.IsError || !strings.HasPrefix(id, "wf-") {
		t.Fatalf("start: %s", start.text())
	}
	no := w.call("workflow.advance", `{"id":"`+id+`","action":"fly"}`)
	if !no.IsError || no.StructuredContent["decision"].(map[string]any)["outcome"] != "reject" || no.StructuredContent["state"] != "a" ||
		no.StructuredContent["complete"] != false || no.StructuredContent["progress"] == "" || no.StructuredContent["nextActions"] == nil {
		t.Errorf("refusal: %+v", no)
	}
	ask := w.call("workflow.judge.validate", `{"id":"`+id+`","action":"fly"}`)
	if ask.IsError || ask.StructuredContent["approved"] != false || len(ask.StructuredContent["violations"].([]any)) == 0 {
		t.Errorf("a question is never an error: %+v", ask)
	}
	keyed := w.call("workflow.judge.validate", `{"id":"`+id+`","action":"fly","idempotencyKey":"k"}`)
	if !keyed.IsError || keyed.code() != "invalid_argument" || !strings.Contains(keyed.text(), `There is no argument \"idempotencyKey\"`) {
		t.Errorf("a key that nobody reads: %+v", keyed)
	}
	yes := w.call("workflow.advance", `{"id":"`+id+`","action":"go","data":{"n":1.50},"idempotencyKey":"k"}`)
	if yes.IsError || yes.StructuredContent["decision"].(map[string]any)["outcome"] != "approve" || yes.StructuredContent["complete"] != true {
		t.Errorf("approval: %+v", yes)
	}
	again := w.call("workflow.advance", `{"id":"`+id+`","action":"go","data":{"n":1.50},"idempotencyKey":"k"}`)
	if again.StructuredContent["replayed"] != true {
		t.Errorf("replay: %+v", again)
	}
	if s := w.call("workflow.status", `{"id":"`+id+`"}`); !strings.Contains(s.text(), `"context":{"n":1.50}`) {
		t.Errorf("numbers keep their literal: %s", s.text())
	}
	if c := w.call("workflow.judge.config", `{"name":"simple","minConfidence":7}`); !c.IsError || c.StructuredContent["success"] != false || c.StructuredContent["message"] == "" {
		t.Errorf("refused configuration: %+v", c)
	}
	if c := w.call("workflow.cancel", `{"id":"`+id+`"}`); c.code() != "instance_ended" || c.StructuredContent["state"] != "b" {
		t.Errorf("cancel of a finished instance: %+v", c)
	}
}

// Lines that parsing would change are answered and not passed on.
func TestUnsoundLines(t *testing.T) {
	w := serve(t, newEngine(t), func(c *face.Config) { c.Limits.MaxLine = 4096 })
	w.hello("test")
	for _, c := range []struct {
		name, line string
		code       float64
		id         any
	}{
		{"not JSON", `hello`, -32700, nil},
		{"truncated", `{"jsonrpc":"2.0","id":1`, -32700, nil},
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, -32600, nil},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"u\",\"method\":\"ping\",\"params\":{\"x\":\"\xff\"}}", -32700, "u"},
		{"method twice", `{"jsonrpc":"2.0","id":1,"method":"nope","method":"ping"}`, -32600, 1.0},
		{"method twice, another case", `{"jsonrpc":"2.0","id":1,"method":"nope","Method":"ping"}`, -32600, 1.0},
		{"params key twice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}`, -32600, 1.0},
		{"id is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600, nil},
		{"too long", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("y", 5000) + `"}}`, -32600, 1.0},
		{"too long, id last", `{"method":"ping","params":{"x":"` + strings.Repeat("y", 90000) + `"},"jsonrpc":"2.0","id":"late"}`, -32600, "late"},
		{"too long, not JSON", strings.Repeat("z", 5000), -32600, nil},
	} {
		w.send(c.line)
		m := w.next()
		e, _ := m["error"].(map[string]any)
		if e["code"] != c.code || fmt.Sprint(m["id"]) != fmt.Sprint(c.id) || e["message"] == "" {
			t.Errorf("%s: %v", c.name, m)
		}
	}
	w.send("   \t ")
	w.send(`{"jsonrpc":"2.0","id":77,"result":{}}`)
	w.send(`{"jsonrpc":"2.0","id":"alive","method":"ping"}`)
	if m := w.next(); m["id"] != "alive" || m["result"] == nil {
		t.Errorf("the server is not alive, or answered what it should not: %v", m)
	}
}

func TestUnsoundArguments(t *testing.T) {
	w := serve(t, newEngine(t))
	w.hello("test")
	for name, data := range map[string]string{
		"duplicate keys": `{"x":1,"x":2}`, "number": `{"x":9007199254740993}`, "lone surrogate": `{"x":"\ud800"}`,
		"deep": strings.Repeat(`{"a":`, 120) + "1" + strings.Repeat("}", 120),
	} {
		r := w.call("workflow.advance", `{"id":"wf-1","action":"go","data":`+data+`}`)
		if r.code() != "invalid_data" {
			t.Errorf("%s: %s", name, r.text())
		}
	}
}

func TestErrorsAreHidden(t *testing.T) {
	w := serve(t, broken{newEngine(t)})
	w.hello("test")
	r := w.call("workflow.status", `{"id":"wf-1"}`)
	if r.code() != "internal" || strings.Contains(r.text(), "secret") {
		t.Errorf("got %s", r.text())
	}
}

// broken fails with an error that is not meant for callers.
type broken struct{ operation.Engine }

func (broken) StatusAt(context.Context, engine.Principal, string, engine.When) (engine.StatusResult, error) {
	return engine.StatusResult{}, errors.New("secret: disk at /dev/sda")
}

// slow waits for its context or for release, and reports that it was entered.
type slow struct {
	operation.Engine
	entered chan struct{}
	release chan struct{}
}

func newSlow(e operation.Engine) *slow {
	return &slow{Engine: e, entered: make(chan struct{}, 1000), release: make(chan struct{})}
}

func (s *slow) List(ctx context.Context, _ engine.Principal) ([]engine.DefinitionSummary, error) {
	s.entered <- struct{}{}
	select {
	case <-s.release:
		return []engine.DefinitionSummary{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func callLine(id string) string {
	return `{"jsonrpc":"2.0","id":"` + id + `","method":"tools/call","params":{"name":"workflow.list","arguments":{}}}`
}

func TestCancelledCallsAreNotAnswered(t *testing.T) {
	s := newSlow(newEngine(t))
	w := serve(t, s)
	w.hello("test")
	w.send(callLine("x"))
	<-s.entered
	w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
	w.send(`{"jsonrpc":"2.0","id":"after","method":"ping"}`)
	if m := w.next(); m["id"] != "after" {
		t.Errorf("a cancelled call was answered: %v", m)
	}
	// The id can be used again once the call has ended.
	_ = w.in.Close()
	for line := range w.lines {
		if strings.Contains(string(line), `"x"`) {
			t.Errorf("answered after all: %s", line)
		}
	}
}

// More calls than mcp-go has workers block neither pings nor each other.
func TestManyCallsInFlight(t *testing.T) {
	s := newSlow(newEngine(t))
	w := serve(t, s, func(c *face.Config) { c.Limits.MaxInFlight = 300 })
	w.hello("test")
	for i := range 300 {
		w.send(callLine(fmt.Sprint("c", i)))
	}
	w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nobody"}}`)
	w.send(callLine("one too many"))
	if m := w.next(); m["id"] != "one too many" || m["error"].(map[string]any)["data"].(map[string]any)["code"] != "busy" {
		t.Errorf("over the limit: %v", m)
	}
	w.send(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
	if m := w.next(); m["id"] != "ping" || m["result"] == nil {
		t.Errorf("a ping over the limit: %v", m)
	}
	close(s.release)
	seen := map[string]bool{}
	for range 300 {
		m := w.next()
		if m["result"] == nil {
			t.Fatalf("not answered: %v", m)
		}
		seen[m["id"].(string)] = true
	}
	if len(seen) != 300 {
		t.Errorf("%d of 300 answered", len(seen))
	}
}

func TestPingIsAnsweredDuringSlowCalls(t *testing.T) {
	s := newSlow(newEngine(t))
	w := serve(t, s)
	w.hello("test")
	for i := range 200 {
		w.send(callLine(fmt.Sprint("c", i)))
	}
	w.send(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
	if m := w.next(); m["id"] != "ping" || m["result"] == nil {
		t.Errorf("got %v", m)
	}
	close(s.release)
	for range 200 {
		w.next()
	}
}

func TestSameIDInFlightIsRefused(t *testing.T) {
	s := newSlow(newEngine(t))
	w := serve(t, s)
	w.hello("test")
	w.send(callLine("x"))
	<-s.entered
	w.send(callLine("x"))
	if m := w.next(); m["error"] == nil {
		t.Errorf("got %v", m)
	}
	close(s.release)
	w.next()
}

func TestResourcesAndPrompt(t *testing.T) {
	w := serve(t, newEngine(t))
	w.hello("test")
	w.call("workflow.define", define)
	id := w.call("workflow.start", `{"type":"simple"}`).StructuredContent["id"].(string)
	for uri, want := range map[string]string{
		"workflow://definitions": "simple", "workflow://definitions/simple": "initialState", "workflow://instances": id,
		"workflow://instances/" + id: "nextActions", "workflow://instances/" + id + "/history": "decidedBy",
		"workflow://instances/" + id + "/diagram": "stateDiagram", "workflow://instances/" + id + "/diagram.svg": "gavel-current",
	} {
		w.send(`{"jsonrpc":"2.0","id":"r","method":"resources/read","params":{"uri":"` + uri + `"}}`)
		m := w.next()
		doc, err := json.Marshal(m["result"])
		if err != nil || !strings.Contains(string(doc), want) {
			t.Errorf("%s: %v", uri, m)
		}
	}
	w.send(`{"jsonrpc":"2.0","id":"r","method":"resources/read","params":{"uri":"workflow://instances/wf-nope"}}`)
	if m := w.next(); !strings.Contains(fmt.Sprint(m["error"]), "unknown_instance") {
		t.Errorf("an unknown instance: %v", m)
	}
	w.send(`{"jsonrpc":"2.0","id":"p","method":"prompts/get","params":{"name":"follow-workflow","arguments":{"type":"simple"}}}`)
	if m := w.next(); !strings.Contains(fmt.Sprint(m["result"]), "workflow.start") || strings.Contains(fmt.Sprint(m["result"]), " \n") {
		t.Errorf("prompt: %v", m)
	}
	w.send(`{"jsonrpc":"2.0","id":"p","method":"prompts/get","params":{"name":"follow-workflow","arguments":{"type":"smple"}}}`)
	if m := w.next(); !strings.Contains(fmt.Sprint(m["error"]), "did you mean") {
		t.Errorf("prompt of an unknown workflow: %v", m)
	}
}

// For any bytes, the server answers in JSON lines, and then answers a ping. Nothing stays pending: the end of input
// ends it immediately.
func FuzzLines(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"id":"\ud800"}`, "\xff", `[]`, `{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"workflow.list"}}`, "{\"a\":\r1}",
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","id":"<&>","method":"tools/list","params":[]}`, `{"jsonrpc":"2.0","id":2,"method":"notifications/x","result":1}`,
	} {
		f.Add([]byte(s))
	}
	e := newEngine(f)
	var once sync.Mutex // mcp-go has one stdio session per process
	f.Fuzz(func(t *testing.T, line []byte) {
		once.Lock()
		defer once.Unlock()
		if strings.Contains(string(line), "fuzz-ping") || strings.Contains(string(line), "initialize") {
			return
		}
		w := serve(t, e)
		w.send(strings.ReplaceAll(string(line), "\n", " "))
		w.send(`{"jsonrpc":"2.0","id":"fuzz-ping","method":"ping"}`)
		for {
			if m := w.next(); m["id"] == "fuzz-ping" {
				break
			}
		}
		began := time.Now()
		w.end()
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("something stayed pending: the end took %v", took)
		}
	})
}
