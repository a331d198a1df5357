package main

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
	"github.com/gavel-mcp/gavel/internal/hook"
	"github.com/gavel-mcp/gavel/internal/httpapi"
)

// hookPath is where a server answers the hooks of clients; the client's name follows.
const hookPath = httpapi.Prefix + "hooks/"

// answerForm is the form in which gavel hook --server sends an event (hook.EncodeRelayed) and gets a hook.Answer.
const answerForm = "answer"

// isHookEvent reports whether a request posts a hook event.
func isHookEvent(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, hookPath)
}

// hookFace answers hook events over HTTP.
type hookFace struct {
	door     *hook.Door
	answered func(client string, v hook.Verdict)
	log      *slog.Logger
	// analysis has the places for reading what an event would do. A request gives its place up
	// when the engine begins to decide, which has places of its own.
	analysis *fairshare.Queue
}

// hookQueueWait is how long an event waits for a place.
const hookQueueWait = 10 * time.Second

// newHookFace answers by the rules in force.
func (r *routes) newHookFace() *hookFace {
	f := &hookFace{
		log:      r.log,
		answered: func(client string, v hook.Verdict) { r.sys.metered.metrics.CountHook(client, string(v)) },
		analysis: fairshare.New(fairshare.Config{Permits: runtime.GOMAXPROCS(0), Wait: hookQueueWait}),
	}
	f.door = hook.NewDoor(hook.DoorConfig{
		Rules: r.hooks.Rules, Logger: r.log, Answered: f.answered,
		Engine: func(ctx context.Context) (hook.Engine, error) {
			if release, ok := ctx.Value(analysisKey{}).(func()); ok {
				release()
			}
			return r.sys.Engine, nil
		},
	})
	return f
}

// analysisKey is where a context has the func() that gives up a place for analysis.
type analysisKey struct{}

// ServeHTTP answers an event of a client. The status is 200 whatever the answer, where the client can
// read it there: clients take any other for a hook that failed, and most let the tool run then.
func (f *hookFace) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	adapter, ok := hook.FindAdapter(req.PathValue("client"))
	if !ok {
		sayProblem(w, http.StatusNotFound, "not_found", "There is no such client: it is one of "+strings.Join(hook.Clients(), ", ")+".")
		return
	}
	defer func() {
		if p := recover(); p != nil { // where an event is read; the door has its own
			f.log.Error("a hook crashed; this is a bug of gavel", "client", adapter.Client, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			sayProblem(w, http.StatusInternalServerError, string(engine.CodeInternal), "gavel crashed; this is a bug of gavel.")
		}
	}()
	ctx, cancel := context.WithTimeout(req.Context(), defaultHookLimit-hookMargin(defaultHookLimit))
	defer cancel()
	decode, asAnswer := adapter.Decode, isRelayed(req)
	if asAnswer {
		decode = adapter.DecodeRelayed
	}
	event, err := readHookEvent(adapter.Client, decode, req.Body)
	var answer hook.Answer
	switch {
	case err == nil:
		answer = f.answer(ctx, event)
	case f.door.Rules().Hooks.OnFailure == gate.OnFailureNeutral:
		answer = hook.Answer{Verdict: hook.Neutral}
	default:
		sayProblem(w, http.StatusBadRequest, string(engine.CodeInvalidArgument), err.Error())
		return
	}
	if asAnswer {
		writeJSON(w, http.StatusOK, "application/json", answer)
	} else {
		writeHookBody(w, adapter.Encode(event, answer))
	}
}

// isRelayed reports whether gavel hook --server sent the event.
func isRelayed(r *http.Request) bool { return r.URL.Query().Get("form") == answerForm }

// writeHookBody writes an answer. One that the client takes from an exit code and from nothing else, as
// Kiro does, is a status that a script which asks for it can tell.
func writeHookBody(w http.ResponseWriter, out hook.Output) {
	if out.Exit != 0 && len(out.Stdout) == 0 {
		sayProblem(w, http.StatusForbidden, "denied", strings.TrimSpace(string(out.Stderr)))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out.Stdout) // a caller that is gone needs no answer
}

// answer decides about an event of the caller that ctx knows.
func (f *hookFace) answer(ctx context.Context, e hook.Event) hook.Answer {
	if e.Phase == hook.PhaseOther {
		return hook.Answer{Verdict: hook.Neutral}
	}
	who, _ := auth.FromContext(ctx)
	e.Within = who.Hooks
	release, err := f.analysis.Acquire(ctx, who.ID)
	if err != nil {
		a := hook.Refuse(e, "gavel is busy reading other tool uses, so it could not decide about this one. Wait a few seconds, then do the same again.")
		f.answered(e.Client, a.Verdict)
		return a
	}
	defer release()
	return f.door.Answer(context.WithValue(ctx, analysisKey{}, release), who.Principal, e)
}

// denyInForm has problems written as a denial that the client understands, wherever they are said: clients
// ignore the body of another status. A credential that is missing or wrong stays a 401 or 403.
func (r *routes) denyInForm(w http.ResponseWriter, req *http.Request) http.ResponseWriter {
	adapter, ok := hook.FindAdapter(strings.TrimPrefix(req.URL.Path, hookPath))
	if !ok || !isHookEvent(req) || isRelayed(req) {
		return w
	}
	return &denyingWriter{ResponseWriter: w, body: req.Body, adapter: adapter, rules: r.hooks.Rules}
}

type denyingWriter struct {
	http.ResponseWriter
	body    io.Reader // of the request
	adapter *hook.Adapter
	rules   func() hook.Rules
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
	var said httpapi.Problem
	_ = json.Unmarshal(p, &said) // what is no problem says nothing
	reason := errors.New(cmp.Or(said.Detail, "the server could not answer"))
	out := w.adapter.EncodeFailure(hook.DescribeFailure(w.adapter.Client, reason))
	if w.denies == http.StatusBadRequest || w.denies == http.StatusRequestEntityTooLarge { // the event
		out = w.adapter.EncodeUnreadable(w.rules().Hooks.OnFailure, reason)
	}
	writeHookBody(w.ResponseWriter, out)
	return len(p), nil
}

// Unwrap is for http.ResponseController.
func (w *denyingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
