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
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
)

// facePath is the path at which a server answers events. The client's name follows it.
const facePath = "/v1/hooks/"

// answerForm is the value of the query parameter form that gavel hook --server sends. The request then holds an
// event encoded by agent.EncodeRelayed, and the response an agent.Answer.
const answerForm = "answer"

// face answers hook events over HTTP.
type face struct {
	decider  *agent.Decider
	rules    func() agent.Rules
	answered func(client string, v agent.Verdict)
	log      *slog.Logger
	// analysis limits how many events are analyzed concurrently. A request releases its permit when the engine
	// begins to decide, because the engine has its own limit.
	analysis *fairshare.Queue
}

// queueWait limits how long an event waits for a permit.
const queueWait = 10 * time.Second

// newFace returns a face that applies the rules in force.
func newFace(log *slog.Logger, rules *currentRules) *face {
	f := &face{
		log: log, rules: rules.get, answered: rules.count,
		analysis: fairshare.New(fairshare.Config{Permits: runtime.GOMAXPROCS(0), Wait: queueWait}),
	}
	f.decider = agent.NewDecider(agent.DeciderConfig{
		Rules: f.rules, Logger: log, OnAnswer: f.answered,
		Engine: func(ctx context.Context) (agent.Engine, error) {
			if release, ok := ctx.Value(analysisKey{}).(func()); ok {
				release()
			}
			return rules.engine.Load(), nil
		},
	})
	return f
}

// analysisKey is the context key of the func() that releases the permit for analysis.
type analysisKey struct{}

// ServeHTTP answers an event of a client. A denial also has status 200 if the client can read it from the body:
// clients treat any other status as a failed hook, and most then run the tool.
func (f *face) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	adapter, ok := agent.FindAdapter(req.PathValue("client"))
	if !ok {
		listen.WriteProblem(w, http.StatusNotFound, "not_found", "There is no such client: it is one of "+strings.Join(agent.Clients(), ", ")+".")
		return
	}
	defer func() {
		if p := recover(); p != nil { // from decoding the event; the decider recovers from its own panics
			f.log.Error("a hook crashed; this is a bug in gavel", "client", adapter.Client, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			listen.WriteProblem(w, http.StatusInternalServerError, string(engine.CodeInternal), "gavel crashed; this is a bug in gavel.")
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

// isRelayed reports whether the event comes from gavel hook --server.
func isRelayed(r *http.Request) bool { return r.URL.Query().Get("form") == answerForm }

// writeBody writes an answer. Some clients, such as Kiro, take a denial from the exit code alone. It is sent as
// status 403, so that a script that calls the server can detect it.
func writeBody(w http.ResponseWriter, out agent.Output) {
	if out.Exit != 0 && len(out.Stdout) == 0 {
		listen.WriteProblem(w, http.StatusForbidden, "denied", strings.TrimSpace(string(out.Stderr)))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out.Stdout) // a caller that is gone needs no answer
}

// answer decides about an event of the caller in ctx.
func (f *face) answer(ctx context.Context, e agent.Event) agent.Answer {
	if e.Phase == agent.PhaseOther {
		return agent.Answer{Verdict: agent.Neutral}
	}
	who, _ := auth.FromContext(ctx)
	e.Within = who.Events
	release, err := f.analysis.Acquire(ctx, who.ID)
	if err != nil {
		a := agent.Refuse(e, "gavel is busy reading other tool uses, so it could not decide about this one. Wait a few seconds, then do the same again.")
		f.answered(e.Client, a.Verdict)
		return a
	}
	defer release()
	return f.decider.Decide(context.WithValue(ctx, analysisKey{}, release), who.Principal, e)
}

// denyInForm returns a writer that turns any problem response into a denial in the client's format, because clients
// ignore the body if the status is not 200. A missing or invalid credential remains a 401 or 403.
func (f *face) denyInForm(w http.ResponseWriter, req *http.Request) http.ResponseWriter {
	adapter, ok := agent.FindAdapter(strings.TrimPrefix(req.URL.Path, facePath))
	if !ok || isRelayed(req) {
		return w
	}
	return &denyingWriter{ResponseWriter: w, body: req.Body, adapter: adapter, rules: f.rules}
}

type denyingWriter struct {
	http.ResponseWriter
	body    io.Reader // the request's body
	adapter *agent.Adapter
	rules   func() agent.Rules
	denies  int // the status that was replaced, or 0
}

// maxDrain limits, in bytes, how much of a too large body is discarded. The body must be drained because a client
// whose connection closes while it writes does not read the answer.
const maxDrain = 64 << 20

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
		_, _ = io.CopyN(io.Discard, w.body, maxDrain)
	}
}

// Write implements http.ResponseWriter. It expects the whole problem in one call.
func (w *denyingWriter) Write(p []byte) (int, error) {
	if w.denies == 0 {
		return w.ResponseWriter.Write(p) //nolint:wrapcheck // for net/http
	}
	var said struct{ Detail string }
	_ = json.Unmarshal(p, &said) // if p is not a problem, Detail stays empty
	reason := errors.New(cmp.Or(said.Detail, "the server could not answer"))
	out := w.adapter.EncodeFailure(agent.DescribeFailure(w.adapter.Client, reason))
	if w.denies == http.StatusBadRequest || w.denies == http.StatusRequestEntityTooLarge { // the event could not be read
		out = w.adapter.EncodeUnreadable(w.rules().Hooks.OnFailure, reason)
	}
	writeBody(w.ResponseWriter, out)
	return len(p), nil
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *denyingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
