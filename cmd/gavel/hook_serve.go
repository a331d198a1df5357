package main

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/hook"
	"github.com/gavel-mcp/gavel/internal/httpapi"
)

// hookPath is where a server answers the hooks of clients; the client's name follows.
const hookPath = httpapi.Prefix + "hooks/"

// answerForm is the form in which gavel hook --server asks for the answer, to write it itself.
const answerForm = "answer"

// newHookDoor is the door of a server: its rules are those in force.
func (r *routes) newHookDoor() *hook.Door {
	return hook.NewDoor(hook.DoorConfig{
		Rules: r.sys.gateway.HookRules, Logger: r.log, Answered: func(client string, v hook.Verdict) { r.sys.metered.metrics.CountHook(client, string(v)) },
		Engine: func(context.Context) (hook.Engine, error) { return r.sys.Engine, nil },
	})
}

// answerHook answers an event of a client. The status is 200 whatever the answer: clients take any
// other for a hook that failed, and most let the tool run then.
func (r *routes) answerHook(w http.ResponseWriter, req *http.Request) {
	adapter, ok := hook.FindAdapter(req.PathValue("client"))
	if !ok {
		sayProblem(w, http.StatusNotFound, "not_found", "There is no such client: it is one of "+strings.Join(hook.Clients(), ", ")+".")
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), defaultHookLimit-hookMargin(defaultHookLimit))
	defer cancel()
	who, _ := auth.FromContext(req.Context())
	event, err := readHookEvent(adapter, req.Body)
	asAnswer := req.URL.Query().Get("form") == answerForm
	if folder := req.URL.Query().Get("project"); asAnswer && filepath.IsAbs(folder) {
		event.Project = folder
	}
	switch {
	case err != nil && asAnswer:
		sayProblem(w, http.StatusBadRequest, string(engine.CodeInvalidArgument), err.Error())
	case err != nil:
		writeHookBody(w, adapter.EncodeFailure(hook.DescribeFailure(adapter.Client(), hookError(err))))
	case asAnswer:
		writeJSON(w, http.StatusOK, "application/json", r.hooks.Answer(ctx, who.Principal, event))
	default:
		writeHookBody(w, adapter.Encode(event, r.hooks.Answer(ctx, who.Principal, event)))
	}
}

func writeHookBody(w http.ResponseWriter, out hook.Output) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out.Stdout) // a caller that is gone needs no answer
}
