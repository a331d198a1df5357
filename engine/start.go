package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Start creates an instance of the newest version of a definition. The start context passes the same judge
// as every action. A refused start creates and records nothing.
func (e *Engine) Start(ctx context.Context, p Principal, req StartRequest) (StartResult, error) {
	var read document.JSON
	m := mutation{
		right: RightStart, key: req.Key, noRetry: true,
		content: func() []string {
			parts := []string{req.Type, string(read.Canonical())}
			if req.Subject != "" {
				parts = append(parts, req.Subject)
			}
			return parts
		},
		check: func() (err error) {
			if req.Type == "" {
				return MissingField("type", "The name of a defined workflow.")
			}
			if read, err = readDocument("context", req.Context, e.cfg.Limits.Data); err == nil && len(req.Subject) > e.cfg.Limits.Key {
				err = tooLarge("/subject", "The subject has %d bytes; the limit is %d.", len(req.Subject), e.cfg.Limits.Key)
			}
			return err
		},
		load: func(ctx context.Context, inst *instance) error { return e.loadStart(ctx, inst, req.Type) },
	}
	return mutate(ctx, e, p, m, func(ctx context.Context, inst *instance) (StartResult, error) {
		return e.start(ctx, *inst, req.Subject, read)
	}, e.replayStart)
}

// loadStart prepares a new instance of the newest version of a definition, to be started.
func (e *Engine) loadStart(ctx context.Context, inst *instance, name string) (err error) {
	if inst.definition, err = e.loadNamed(ctx, inst.by, name, 0); err != nil {
		return err
	}
	if err := rejectRecorderMade(inst.definition, "start an instance"); err != nil {
		return err
	}
	if inst.by.Role != RoleOperator && strings.HasPrefix(inst.stored.Name, ownPrefix) {
		return newError(CodeForbidden, "/type", "The workflow %q is gavel's own; only an operator may start it.", inst.stored.Name).
			withHint("Start one of the workflows that workflow.list shows as yours to use.")
	}
	inst.Instance = newRecord("wf-"+e.cfg.NewID(), inst.by, inst.stored)
	inst.overlays, inst.overlaysHash, err = e.loadOverlays(ctx, inst.definition, inst.by.ID, time.Time{})
	return err
}

func newRecord(id string, owner Principal, of store.Definition) record.Instance {
	return record.Instance{ID: id, Owner: owner.ID, Workflow: of.Name, Version: of.Version, DefinitionHash: of.Hash}
}

func (e *Engine) start(ctx context.Context, inst instance, subject string, read document.JSON) (StartResult, error) {
	c, err := e.startCase(inst, read)
	if err != nil {
		return StartResult{}, err
	}
	v, err := e.askJudge(ctx, inst.by, c, nil)
	if err != nil {
		return StartResult{}, err
	}
	if !v.Applied {
		e.publishUnrecorded(ctx, inst.by, record.Started, c, inst.stored.Version, v)
		return newRefusedStart(inst, v), nil
	}
	w, err := e.commitStart(ctx, judgement{instance: inst, question: c, verdict: v}, subject)
	if err != nil {
		return StartResult{}, err
	}
	return StartResult{Position: w.next.position(), Decision: decisionView(w.event.Decision)}, nil
}

func (e *Engine) startCase(inst instance, read document.JSON) (judge.Case, error) {
	c, err := inst.def.Case(workflow.CaseInput{
		Operation: judge.Start, Version: inst.Version, Owner: inst.owner(), Read: read,
		Principal: inst.by.ID, Role: string(inst.by.Role), Overlays: inst.overlays, JudgeConfigHash: inst.overlaysHash,
		ReviewPath: e.cfg.ReviewPath, Now: e.Now(), Seed: Seed(inst.Workflow, int64(inst.Version), "start"),
	})
	if err != nil {
		return c, InternalError("build the case", err)
	}
	return c, nil
}

// commitStart records an approved start, within the owner's quota.
func (e *Engine) commitStart(ctx context.Context, j judgement, subject string) (change, error) {
	ev := e.decisionEvent(j, record.Started)
	ev.From, ev.To, ev.Status, ev.Patch = "", j.def.InitialState, statusIn(j.def, j.def.InitialState), j.question.Data.Raw()
	ev.Subject = subject
	dropDuplicateData(ev.Decision, ev.Patch)
	finish, err := e.mayStart(ctx, j.by)
	if err != nil {
		return change{}, err
	}
	w, err := e.commit(ctx, j.instance, change{event: ev})
	finish(err == nil)
	return w, err
}

func newRefusedStart(inst instance, v judge.Verdict) StartResult {
	return StartResult{
		Position: Position{
			Workflow: inst.stored.Name, Version: inst.stored.Version, DefinitionOwner: definitionOwner(inst.stored, inst.by), NextActions: []string{},
			Progress: fmt.Sprintf("Not started: the start context of %q was refused.", inst.stored.Name),
		},
		Decision: decisionView(&record.Decision{Verdict: v}),
	}
}

func (e *Engine) replayStart(ctx context.Context, now instance, ev record.Event) (StartResult, error) {
	then, err := e.instanceAfter(ctx, now, ev)
	if err != nil {
		return StartResult{}, err
	}
	return StartResult{Position: then.position(), Decision: decisionView(ev.Decision), Replayed: true}, nil
}
