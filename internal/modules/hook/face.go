package hook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/fairshare"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
)

// facePath is where a server answers events; the client's name follows.
const facePath = "/v1/hooks/"

// answerForm is the form in which gavel hook --server sends an event (agent.EncodeRelayed) and gets an agent.Answer.
const answerForm = "answer"

// face answers hook events over HTTP.
type face struct {
	door     *agent.Door
	rules    func() agent.Rules
	answered func(client string, v agent.Verdict)
	log      *slog.Logger
	// analysis has the places for reading what an event would do. A request gives its place up
	// when the engine begins to decide, which has places of its own.
	analysis *fairshare.Queue
}

// queueWait is how long an event waits for a place.
const queueWait = 10 * time.Second

// newFace answers by the rules in force.
func newFace(host module.Host, rules *rulesInForce) *face {
	f := &face{
		log: host.Log, rules: rules.get, answered: rules.count,
		analysis: fairshare.New(fairshare.Config{Permits: runtime.GOMAXPROCS(0), Wait: queueWait}),
	}
	f.door = agent.NewDoor(agent.DoorConfig{
		Rules: f.rules, Logger: host.Log, Answered: f.answered,
		Engine: func(ctx context.Context) (agent.Engine, error) {
			if release, ok := ctx.Value(analysisKey{}).(func()); ok {
				release()
			}
			return host.Engine, nil
		},
	})
	return f
}

// analysisKey is where a context has the func() that gives up a place for analysis.
type analysisKey struct{}

// ServeHTTP answers an event of a client. The status is 200 whatever the answer, where the client can
// read it there: clients take any other for a hook that failed, and most let the tool run then.
func (f *face) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	adapter, ok := agent.FindAdapter(req.PathValue("client"))
	if !ok {
		listen.WriteProblem(w, http.StatusNotFound, "not_found", "There is no such client: it is one of "+strings.Join(agent.Clients(), ", ")+".")
		return
	}
	defer func() {
		if p := recover(); p != nil { // where an event is read; the door has its own
			f.log.Error("a hook crashed; this is a bug of gavel", "client", adapter.Client, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			listen.WriteProblem(w, http.StatusInternalServerError, string(engine.CodeInternal), "gavel crashed; this is a bug of gavel.")
		}
	}()
	ctx, cancel := context.WithTimeout(req.Context(), defaultHookLimit-hookMargin(defaultHookLimit))
	defer cancel()
	decode, asAnswer := adapter.Decode, isRelayed(req)
	if asAnswer {
		decode = adapter.DecodeRelayed
	}
	event, err := readEvent(adapter.Client, decode, req.Body)
	var answer agent.Answer
	switch {
	case err == nil:
		answer = f.answer(ctx, event)
	case f.rules().Hooks.OnFailure == gate.OnFailureNeutral:
		answer = agent.Answer{Verdict: agent.Neutral}
	default:
		listen.WriteProblem(w, http.StatusBadRequest, string(engine.CodeInvalidArgument), err.Error())
		return
	}
	if asAnswer {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // a caller that is gone needs no answer
	} else {
		writeBody(w, adapter.Encode(event, answer))
	}
}

// isRelayed reports whether gavel hook --server sent the event.
func isRelayed(r *http.Request) bool { return r.URL.Query().Get("form") == answerForm }

// writeBody writes an answer. One that the client takes from an exit code and from nothing else, as
// Kiro does, is a status that a script which asks for it can tell.
func writeBody(w http.ResponseWriter, out agent.Output) {
	if out.Exit != 0 && len(out.Stdout) == 0 {
		listen.WriteProblem(w, http.StatusForbidden, "denied", strings.TrimSpace(string(out.Stderr)))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out.Stdout) // a caller that is gone needs no answer
}

// answer decides about an event of the caller that ctx knows.
func (f *face) answer(ctx context.Context, e agent.Event) agent.Answer {
	if e.Phase == agent.PhaseOther {
		return agent.Answer{Verdict: agent.Neutral}
	}
	who, _ := auth.FromContext(ctx)
	e.Within = who.Hooks
	release, err := f.analysis.Acquire(ctx, who.ID)
	if err != nil {
		a := agent.Refuse(e, "gavel is busy reading other tool uses, so it could not decide about this one. Wait a few seconds, then do the same again.")
		f.answered(e.Client, a.Verdict)
		return a
	}
	defer release()
	return f.door.Answer(context.WithValue(ctx, analysisKey{}, release), who.Principal, e)
}

// denyInForm has problems written as a denial that the client understands, wherever they are said: clients
// ignore the body of another status. A credential that is missing or wrong stays a 401 or 403.
func (f *face) denyInForm(w http.ResponseWriter, req *http.Request) http.ResponseWriter {
	adapter, ok := agent.FindAdapter(strings.TrimPrefix(req.URL.Path, facePath))
	if !ok || isRelayed(req) {
		return w
	}
	return &denyingWriter{ResponseWriter: w, body: req.Body, adapter: adapter, rules: f.rules}
}

type denyingWriter struct {
	http.ResponseWriter
	body    io.Reader // of the request
	adapter *agent.Adapter
	rules   func() agent.Rules
	denies  int // the status that was replaced, 0 for none
}

// maxLeftover is how much of a body that is too large is read away, in bytes: a client that is
// cut off while it writes does not read the answer.
const maxLeftover = 64 << 20

// WriteHeader implements http.ResponseWriter.
func (w *denyingWriter) WriteHeader(status int) {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusRequestTimeout, http.StatusUnsupportedMediaType, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable:
		w.denies = status
		w.Header().Del("Content-Length")
	default:
		w.ResponseWriter.WriteHeader(status)
	}
	if status == http.StatusRequestEntityTooLarge {
		_, _ = io.CopyN(io.Discard, w.body, maxLeftover)
	}
}

// Write implements http.ResponseWriter. A problem is written at once.
func (w *denyingWriter) Write(p []byte) (int, error) {
	if w.denies == 0 {
		return w.ResponseWriter.Write(p) //nolint:wrapcheck // for net/http
	}
	var said struct{ Detail string }
	_ = json.Unmarshal(p, &said) // what is no problem says nothing
	reason := errors.New(cmp.Or(said.Detail, "the server could not answer"))
	out := w.adapter.EncodeFailure(agent.DescribeFailure(w.adapter.Client, reason))
	if w.denies == http.StatusBadRequest || w.denies == http.StatusRequestEntityTooLarge { // the event
		out = w.adapter.EncodeUnreadable(w.rules().Hooks.OnFailure, reason)
	}
	writeBody(w.ResponseWriter, out)
	return len(p), nil
}

// Unwrap is for http.ResponseController.
func (w *denyingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
