package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Start creates an instance of the newest version of a definition. The start
// context passes the same judge as every action; a refused start creates and
// records nothing.
func (e *Engine) Start(ctx context.Context, p Principal, req StartRequest) (StartResult, error) {
	if err := Authorize(p, RightStart); err != nil {
		return StartResult{}, err
	}
	if req.Type == "" {
		return StartResult{}, MissingField("type", "The name of a defined workflow.")
	}
	read, err := e.readDocument("context", req.Context, e.cfg.Limits.Data)
	if err != nil {
		return StartResult{}, err
	}
	if len(req.Subject) > e.cfg.Limits.Key {
		return StartResult{}, tooLarge("/subject", "The subject has %d bytes; the limit is %d.", len(req.Subject), e.cfg.Limits.Key)
	}
	r := keyedRequest{RightStart, "", req.Key, func() []string {
		parts := []string{req.Type, string(read.Canonical())}
		if req.Subject != "" {
			parts = append(parts, req.Subject)
		}
		return parts
	}}
	return runOnce(ctx, e, p, r, e.replayStart, func(ctx context.Context, key *record.Key) (StartResult, error) {
		return e.start(ctx, p, req, read, key)
	})
}

func (e *Engine) start(ctx context.Context, p Principal, req StartRequest, read document.JSON, key *record.Key) (StartResult, error) {
	l, err := e.loadNamed(ctx, p, req.Type, 0)
	if err != nil {
		return StartResult{}, err
	}
	if err := refuseOfChain(l, "start an instance"); err != nil {
		return StartResult{}, err
	}
	if p.Role != RoleOperator && strings.HasPrefix(l.stored.Name, ownPrefix) {
		return StartResult{}, newError(CodeForbidden, "/type", "The workflow %q is gavel's own; only an operator may start it.", l.stored.Name).
			hint("Start one of the workflows that workflow.list shows as yours to use.")
	}
	l.overlays, l.overlaysHash, err = e.loadOverlays(ctx, l, p.ID, time.Time{})
	if err != nil {
		return StartResult{}, err
	}
	inst := record.Instance{
		ID: "wf-" + e.cfg.NewID(), Owner: p.ID, Workflow: l.stored.Name, Version: l.stored.Version, DefinitionHash: l.stored.Hash,
	}
	c, err := l.def.Case(workflow.CaseInput{
		Operation: judge.Start, Version: l.stored.Version, Owner: l.owner(), Read: read,
		Principal: p.ID, Role: string(p.Role), Overlays: l.overlays, JudgeConfigHash: l.overlaysHash,
		ReviewPath: e.cfg.ReviewPath, Now: e.Now(), Seed: Seed(l.stored.Name, int64(l.stored.Version), "start"),
	})
	if err != nil {
		return StartResult{}, InternalError("build the case", err)
	}
	v, err := e.askJudge(ctx, p, c, nil)
	if err != nil {
		return StartResult{}, err
	}
	if !v.Applied {
		e.publishUnrecorded(ctx, p, record.Started, c, l.stored.Version, v)
		return newRefusedStart(l, p, v), nil
	}
	j := judgement{inst: inst, definition: l, question: c, verdict: v}
	ev := e.decisionEvent(p, j, record.Started, key)
	ev.From, ev.To, ev.Status, ev.Patch = "", l.def.InitialState, statusIn(l.def, l.def.InitialState), read.Raw()
	ev.Subject = req.Subject
	if string(ev.Decision.Data) == string(ev.Patch) {
		ev.Decision.Data = nil
	}
	finish, err := e.mayStart(ctx, p)
	if err != nil {
		return StartResult{}, err
	}
	w, err := e.commit(ctx, inst, change{event: ev})
	finish(err == nil)
	if err != nil {
		return StartResult{}, err
	}
	return StartResult{Position: newPosition(w.next, l, p), Decision: decisionView(w.event.Decision)}, nil
}

func newRefusedStart(l definition, p Principal, v judge.Verdict) StartResult {
	return StartResult{
		Position: Position{
			Workflow: l.stored.Name, Version: l.stored.Version, DefinitionOwner: definitionOwner(l.stored, p), NextActions: []string{},
			Progress: fmt.Sprintf("Not started: the start context of %q was refused.", l.stored.Name),
		},
		Decision: decisionView(&record.Decision{Verdict: v}),
	}
}

func (e *Engine) replayStart(ctx context.Context, p Principal, ev record.Event) (StartResult, error) {
	pos, err := e.positionAt(ctx, p, ev)
	if err != nil {
		return StartResult{}, err
	}
	return StartResult{Position: pos, Decision: decisionView(ev.Decision), Replayed: true}, nil
}
