package face_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
)

func TestEndOfInputAnswersOpenCalls(t *testing.T) {
	s := newSlow(newEngine(t))
	w := serve(t, s)
	w.hello("test")
	w.send(callLine("x"))
	<-s.entered
	_ = w.in.Close()
	close(s.release)
	if m := w.next(); m["id"] != "x" || m["result"] == nil {
		t.Errorf("the call in flight was not answered: %v", m)
	}
	if err := <-w.done; err != nil {
		t.Errorf("the end of input is no error: %v", err)
	}
}

// A change that a client subscribed to is announced before the end, even if no poll of the feed has seen it.
func TestEndOfInputAnnouncesChanges(t *testing.T) {
	w := serve(t, newEngine(t, func(c *engine.Config) { c.FeedPoll = time.Hour }))
	w.hello("test")
	w.call("workflow.define", define)
	id, _ := w.call("workflow.start", `{"type":"simple"}`).StructuredContent["id"].(string)
	uri := "workflow://instances/" + id
	w.subscribe(uri)
	w.send(`{"jsonrpc":"2.0","id":"move","method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"` + id + `","action":"go"}}}`)
	_ = w.in.Close()
	if m := w.next(); m["id"] != "move" || m["result"] == nil {
		t.Errorf("the call in flight was not answered: %v", m)
	}
	w.updated(nil, uri)
	if err := <-w.done; err != nil {
		t.Errorf("ServeStdio returned %v", err)
	}
}

// A last line without a newline is processed.
func TestEndOfInputServesTheLastLine(t *testing.T) {
	w := serve(t, newEngine(t))
	if _, err := io.WriteString(w.in, `{"jsonrpc":"2.0","id":"last","method":"ping"}`); err != nil {
		t.Fatal(err)
	}
	_ = w.in.Close()
	if m := w.next(); m["id"] != "last" {
		t.Errorf("got %v", m)
	}
	if err := <-w.done; err != nil {
		t.Errorf("ServeStdio returned %v", err)
	}
}

func TestStopCancelsOpenCalls(t *testing.T) {
	s := newSlow(newEngine(t))
	w := serveFace(t, hurried(t, s))
	w.hello("test")
	w.send(callLine("x"))
	<-s.entered
	w.stop()
	if err := <-w.done; !errors.Is(err, context.Canceled) {
		t.Errorf("ServeStdio returned %v", err)
	}
}

// While the last answers are awaited, new requests are rejected.
func TestStopRefusesNewCalls(t *testing.T) {
	s := newSlow(newEngine(t))
	w := serve(t, s)
	w.hello("test")
	w.send(callLine("x"))
	<-s.entered
	w.stop()
	for { // until the stop is noticed
		w.send(`{"jsonrpc":"2.0","id":"new","method":"ping"}`)
		m := w.next()
		if m["result"] != nil {
			continue
		}
		data, _ := m["error"].(map[string]any)["data"].(map[string]any)
		if m["id"] != "new" || data["code"] != "unavailable" {
			t.Errorf("got %v", m)
		}
		break
	}
	close(s.release)
	if m := w.next(); m["id"] != "x" || m["result"] == nil {
		t.Errorf("the call in flight was not answered: %v", m)
	}
	if err := <-w.done; !errors.Is(err, context.Canceled) {
		t.Errorf("ServeStdio returned %v", err)
	}
}

// A handler that never ends does not keep the server running.
func TestServerEndsDespiteOpenCalls(t *testing.T) {
	s := &deaf{Engine: newEngine(t), entered: make(chan struct{}, 1), release: make(chan struct{})}
	w := serveFace(t, hurried(t, s))
	w.hello("test")
	w.send(callLine("x"))
	<-s.entered
	_ = w.in.Close()
	if err := <-w.done; err == nil {
		t.Error("nobody is told that a call did not end")
	}
	close(s.release)
}

// deaf ignores cancellation.
type deaf struct {
	operation.Engine
	entered, release chan struct{}
}

func (d *deaf) List(context.Context, engine.Principal) ([]engine.DefinitionSummary, error) {
	d.entered <- struct{}{}
	<-d.release
	return nil, errors.New("too late")
}

// A client that does not read does not keep the server running either.
func TestEndsWithoutReader(t *testing.T) {
	face := hurried(t, newEngine(t))
	inR, inW := io.Pipe()
	outR, outW := io.Pipe() // no one reads: every write blocks
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { done <- face.ServeStdio(ctx, inR, outW) }()
	if _, err := io.WriteString(inW, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	stop()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("the server waits for its client")
	}
	_ = outR.Close()
	_ = inW.Close()
}

// A client that has gone away ends the server: no one would get the answers.
func TestEndsWithItsOutput(t *testing.T) {
	face := hurried(t, newEngine(t))
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	_ = outR.Close()
	done := make(chan error, 1)
	go func() { done <- face.ServeStdio(context.Background(), inR, outW) }()
	if _, err := io.WriteString(inW, "no JSON\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("ServeStdio returned %v", err)
	}
	_ = inW.Close()
}

func hurried(t *testing.T, e operation.Engine) *face.Face {
	t.Helper()
	face, err := face.New(face.Config{
		Engine: e, Principal: engine.Principal{ID: "local:agent", Role: engine.RoleAgent}, Logger: slog.New(slog.DiscardHandler),
		Limits: wire.Limits{Grace: 30 * time.Millisecond, LastAnswers: 30 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	return face
}
