package mcpface

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

func runDefine(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Define(ctx, callerOf(ctx), engine.DefineRequest{Source: "workflow.define", Document: a.raw})
	if err != nil {
		return answer{}, err
	}
	line := fmt.Sprintf("DEFINED %q version %d: it starts in %q.", r.Name, r.Version, r.InitialState)
	if !r.Created {
		line = fmt.Sprintf("UNCHANGED: %q version %d already is this definition.", r.Name, r.Version)
	}
	var b strings.Builder
	b.WriteString(line)
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, " Warning: %s.", w.Message)
	}
	return answer{line: b.String(), content: r}, nil
}

func runList(ctx context.Context, f *Face, _ arguments) (answer, error) {
	all, err := f.cfg.Engine.List(ctx, callerOf(ctx))
	if err != nil {
		return answer{}, err
	}
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = d.Name
	}
	line := f.styled(ctx, "No workflow is defined yet; use workflow.define.")
	if len(all) > 0 {
		line = fmt.Sprintf("%d defined: %s.", len(all), strings.Join(names, ", "))
	}
	return answer{line: line, content: listAnswer{Workflows: all, Count: len(all)}}, nil
}

func runDescribe(ctx context.Context, f *Face, a arguments) (answer, error) {
	when, err := a.when()
	if err != nil {
		return answer{}, err
	}
	d, err := f.cfg.Engine.DescribeAt(ctx, callerOf(ctx), engine.DescribeRequest{
		Name: a.text("name"), Version: int(a.integer("version")), ID: a.text("id"), When: when,
	})
	if err != nil {
		return answer{}, err
	}
	return answer{line: fmt.Sprintf("%q version %d. %s", d.Name, d.Version, d.Description), content: d}, nil
}

func runStart(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Start(ctx, callerOf(ctx), engine.StartRequest{
		Type: a.text("type"), Context: a.doc("context"), Key: a.text("idempotencyKey"),
	})
	if err != nil {
		return answer{}, err
	}
	what := "start of " + r.Workflow
	if r.ID != "" {
		what += " as " + r.ID
	}
	return answer{line: verdictLine(what, r.Decision, r.Position), content: r, refused: !r.Decision.Applied}, nil
}

func advanceRequest(a arguments) engine.AdvanceRequest {
	return engine.AdvanceRequest{
		ID: a.text("id"), Action: a.text("action"), Data: a.doc("data"),
		ExpectedRevision: a.revision(), Key: a.text("idempotencyKey"),
	}
}

// runValidate is never a refusal: it was a question.
func runValidate(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Validate(ctx, callerOf(ctx), advanceRequest(a))
	if err != nil {
		return answer{}, err
	}
	what := fmt.Sprintf("%q in %q", r.Action, r.State)
	line := fmt.Sprintf("WOULD PASS: %s would lead to %q.", what, r.Decision.Target)
	switch {
	case r.Approved:
	case r.Decision.Outcome == judge.Escalate:
		line = fmt.Sprintf("WOULD BE ESCALATED: %s: %s", what, objections(r.Decision))
	default:
		line = fmt.Sprintf("WOULD BE REJECTED: %s: %s", what, objections(r.Decision))
	}
	return answer{line: line + " Nothing moved.", content: validateAnswer{
		Approved: r.Approved, Confidence: r.Decision.Confidence, Reasoning: r.Decision.Reasoning,
		Violations: r.Decision.Violations, Suggestions: r.Decision.Suggestions,
		Action: r.Action, Position: r.Position, Decision: r.Decision,
	}}, nil
}

func runStatus(ctx context.Context, f *Face, a arguments) (answer, error) {
	when, err := a.when()
	if err != nil {
		return answer{}, err
	}
	if when != (engine.When{}) {
		return f.statusAt(ctx, a.text("id"), when)
	}
	r, err := f.cfg.Engine.Status(ctx, callerOf(ctx), a.text("id"))
	if err != nil {
		return answer{}, err
	}
	var line strings.Builder
	line.WriteString(r.Progress)
	for _, review := range r.Reviews {
		fmt.Fprintf(&line, " %q waits for a person as review %s.", review.Action, review.ID)
	}
	return answer{line: line.String(), content: r}, nil
}

func runCancel(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Cancel(ctx, callerOf(ctx), engine.CancelRequest{
		ID: a.text("id"), Reason: a.text("reason"), Key: a.text("idempotencyKey"), ExpectedRevision: a.revision(),
	})
	if err != nil {
		return answer{}, err
	}
	return answer{line: r.Message, content: r}, nil
}

func runCheckpoint(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Checkpoint(ctx, callerOf(ctx), engine.CheckpointRequest{
		ID: a.text("id"), Description: a.text("description"), Metadata: a.doc("metadata"), Key: a.text("idempotencyKey"),
	})
	if err != nil {
		return answer{}, err
	}
	return answer{line: fmt.Sprintf("Checkpoint %s names %q at revision %d.", r.CheckpointID, r.State, r.Revision), content: r}, nil
}

func runRollback(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Rollback(ctx, callerOf(ctx), engine.RollbackRequest{
		ID: a.text("id"), CheckpointID: a.text("checkpointId"), Key: a.text("idempotencyKey"), ExpectedRevision: a.revision(),
	})
	if err != nil {
		return answer{}, err
	}
	return answer{line: r.Message + " " + r.Progress, content: r}, nil
}

func runListCheckpoints(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.ListCheckpoints(ctx, callerOf(ctx), a.text("id"))
	if err != nil {
		return answer{}, err
	}
	return answer{line: counted(r.Count, "checkpoint") + ", newest first.", content: r}, nil
}

func runConfigure(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.ConfigureJudge(ctx, callerOf(ctx), engine.JudgeConfigRequest{
		Name: a.text("name"),
		Settings: workflow.JudgeSettings{
			Enabled: optional[bool](a, "enabled"), StrictMode: optional[bool](a, "strictMode"),
			MinConfidence: optional[float64](a, "minConfidence"), UseLLM: optional[bool](a, "useLLM"),
			Model: optional[string](a, "model"), Shared: optional[bool](a, "shared"),
		},
	})
	if err != nil {
		return answer{}, err
	}
	return answer{line: r.Message, content: r}, nil
}

func runInstances(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Instances(ctx, callerOf(ctx), engine.InstancesRequest{
		Workflow: a.text("workflow"), State: a.text("state"), Status: record.Status(a.text("status")),
		Cursor: a.text("cursor"), Limit: int(a.integer("limit")),
	})
	if err != nil {
		return answer{}, err
	}
	line := counted(r.Count, "instance") + ", newest first."
	if r.NextCursor != "" {
		line += fmt.Sprintf(" More with cursor %q.", r.NextCursor)
	}
	return answer{line: line, content: r}, nil
}

func runCanExecute(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.CanExecute(ctx, callerOf(ctx), a.text("id"), a.strings("states"))
	if err != nil {
		return answer{}, err
	}
	verb := "NO"
	if r.Allowed {
		verb = "YES"
	}
	return answer{line: verb + ": " + r.Reason, content: r}, nil
}

func runDiagram(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Diagram(ctx, callerOf(ctx), engine.DiagramRequest{
		Name: a.text("name"), ID: a.text("id"), Format: a.text("format"),
	})
	if err != nil {
		return answer{}, err
	}
	return answer{line: fmt.Sprintf("%s of %q.", r.Format, r.Name), content: r}, nil
}

// indented is a document for a person to read.
func indented(v any) (string, error) {
	doc, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode the resource: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, doc, "", "  "); err != nil {
		return "", fmt.Errorf("encode the resource: %w", err)
	}
	return b.String(), nil
}
