package face_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// scripted answers every advance, start and validation with one decision, or fails with one error.
type scripted struct {
	operation.Engine
	decision engine.Decision
	err      error
}

func (s scripted) position() engine.Position {
	return engine.Position{ID: "wf-1", Workflow: "w", Version: 1, State: "a", NextActions: []string{"go"}, Progress: "In \"a\".", Status: "running", Revision: 3, Seq: 4}
}

func (s scripted) Advance(_ context.Context, _ engine.Principal, req engine.AdvanceRequest) (engine.AdvanceResult, error) {
	return engine.AdvanceResult{Position: s.position(), From: "a", Action: req.Action, Decision: s.decision}, s.err
}

func (s scripted) Start(context.Context, engine.Principal, engine.StartRequest) (engine.StartResult, error) {
	return engine.StartResult{Position: s.position(), Decision: s.decision}, s.err
}

func (s scripted) Validate(_ context.Context, _ engine.Principal, req engine.AdvanceRequest) (engine.ValidateResult, error) {
	return engine.ValidateResult{Position: s.position(), Action: req.Action, Approved: s.decision.Outcome == judge.Approve, Decision: s.decision}, s.err
}

func (s scripted) ConfigureJudge(context.Context, engine.Principal, engine.JudgeConfigRequest) (engine.JudgeConfigResult, error) {
	return engine.JudgeConfigResult{}, s.err
}

func decided(o judge.Outcome, applied bool) engine.Decision {
	return engine.Decision{Violations: []string{"The plan is thin", "No date is given"}, Verdict: judge.Verdict{
		Outcome: o, Proposed: o, Applied: applied, Code: "c", Confidence: 0.5, Assurance: judge.AssuranceStructural, DecidedBy: judge.LayerScript,
		Mode: judge.Enforce, Reasoning: "The plan is thin. Say more.",
		Findings:    []validators.Finding{{Code: "c", Message: "The plan is thin"}, {Code: "d", Path: "/date", Message: "No date is given", Hint: "Add a date."}},
		Suggestions: []string{"Add a date."},
	}}
}

func TestDecisionsAsAnswers(t *testing.T) {
	shadow := decided(judge.Reject, true)
	shadow.Mode = judge.Shadow
	shouting := decided(judge.Reject, false)
	shouting.Reasoning = "Two\nlines\x1b[31m and a bell\a."
	for _, c := range []struct {
		name     string
		decision engine.Decision
		refused  bool
	}{
		{"approve", decided(judge.Approve, true), false},
		{"reject", decided(judge.Reject, false), true},
		{"escalate", decided(judge.Escalate, false), true},
		{"shadow", shadow, false},
		{"control characters", shouting, true},
	} {
		w := serve(t, scripted{Engine: newEngine(t), decision: c.decision})
		w.hello("test")
		advance := w.call("workflow.advance", `{"id":"wf-1","action":"go"}`)
		if advance.IsError != c.refused {
			t.Errorf("%s: isError %v, %s", c.name, advance.IsError, advance.text())
		}
		for _, field := range []string{"state", "nextActions", "complete", "decision"} {
			if _, ok := advance.StructuredContent[field]; !ok {
				t.Errorf("%s: no %s", c.name, field)
			}
		}
		if start := w.call("workflow.start", `{"type":"w"}`); start.IsError != c.refused {
			t.Errorf("%s: start: isError %v", c.name, start.IsError)
		}
		if ask := w.call("workflow.judge.validate", `{"id":"wf-1","action":"go"}`); ask.IsError || ask.StructuredContent["approved"] != (c.decision.Outcome == judge.Approve) {
			t.Errorf("%s: a question is never an error: %s", c.name, ask.text())
		}
		w.end()
	}
}

// Every code of the engine reaches the client unchanged, with the next step. Nothing of the cause does.
func TestEveryErrorCode(t *testing.T) {
	for _, info := range engine.Codes {
		current := &engine.Position{ID: "wf-1", State: "b", NextActions: []string{}, Progress: "In \"b\"."}
		w := serve(t, scripted{Engine: newEngine(t), err: fmt.Errorf("wrapped: %w", &engine.Error{
			Code: info.Code, Message: info.Meaning, Hint: info.Do, Path: "/x", Current: current, Err: errors.New("secret cause"),
		})})
		w.hello("test")
		r := w.call("workflow.advance", `{"id":"wf-1","action":"go"}`)
		e, _ := r.StructuredContent["error"].(map[string]any)
		if !r.IsError || e["code"] != string(info.Code) || e["message"] != info.Meaning || e["hint"] != info.Do || e["path"] != "/x" ||
			e["retryable"] != info.Retryable || r.StructuredContent["state"] != "b" {
			t.Errorf("%s: %s", info.Code, r.text())
		}
		if strings.Contains(r.text(), "secret") {
			t.Errorf("%s: %s", info.Code, r.text())
		}
		c := w.call("workflow.judge.config", `{"name":"w","enabled":true}`)
		if !c.IsError || c.StructuredContent["success"] != false || c.StructuredContent["message"] == "" {
			t.Errorf("%s: judge.config: %s", info.Code, c.text())
		}
		w.end()
	}
}

// panicking panics.
type panicking struct{ operation.Engine }

func (panicking) List(context.Context, engine.Principal) ([]engine.DefinitionSummary, error) {
	panic("secret: a defect")
}

func (panicking) StatusAt(context.Context, engine.Principal, string, engine.When) (engine.StatusResult, error) {
	panic("secret: a defect")
}

func TestPanicsAreHidden(t *testing.T) {
	var log bytes.Buffer
	w := serve(t, panicking{newEngine(t)}, func(c *face.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w.hello("test")
	if r := w.call("workflow.status", `{"id":"wf-1"}`); r.code() != "internal" || strings.Contains(r.text(), "secret") {
		t.Errorf("got %s", r.text())
	}
	for _, request := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"workflow://instances/wf-1"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"follow-workflow","arguments":{"id":"wf-1"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"follow-workflow"},"argument":{"name":"type","value":""}}}`,
	} {
		w.send(request)
		if line := w.nextLine(); !bytes.Contains(line, []byte(`"code":"internal"`)) || bytes.Contains(line, []byte("secret")) {
			t.Errorf("got %s", line)
		}
	}
	w.end()
	if n := strings.Count(log.String(), "secret: a defect"); n != 4 {
		t.Errorf("the log has the defect %d times, want once for each request:\n%s", n, &log)
	}
}

// big has a context of the given size, in bytes.
type big struct {
	operation.Engine
	bytes int
}

func (b big) StatusAt(context.Context, engine.Principal, string, engine.When) (engine.StatusResult, error) {
	return engine.StatusResult{Context: json.RawMessage(`{"x":"` + strings.Repeat("y", b.bytes) + `"}`)}, nil
}

// Answers that would crash a client are not sent.
func TestLargeAnswers(t *testing.T) {
	for _, c := range []struct {
		bytes, most int
		fails       bool
	}{{1 << 10, 4 << 10, false}, {3 << 20, 3<<20 + 4096, false}, {10 << 20, 4096, true}} {
		w := serve(t, big{newEngine(t), c.bytes})
		w.hello("test")
		w.send(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"workflow.status","arguments":{"id":"wf-1"}}}`)
		line := w.nextLine()
		var m struct {
			ID     string
			Result result
		}
		if err := json.Unmarshal(line, &m); err != nil || m.ID != "call" || len(line) > c.most || m.Result.IsError != c.fails || (m.Result.code() == "too_large") != c.fails {
			t.Errorf("%d bytes: isError %v, %d bytes, %v: %.300s", c.bytes, m.Result.IsError, len(line), err, line)
		}
		w.send(`{"jsonrpc":"2.0","id":123456789012345678901,"method":"resources/read","params":{"uri":"workflow://instances/wf-1"}}`)
		line = w.nextLine()
		if !bytes.HasPrefix(line, []byte(`{"jsonrpc":"2.0","id":123456789012345678901,`)) || bytes.Contains(line, []byte(`"code":"too_large"`)) != c.fails {
			t.Errorf("resource of %d bytes: %.300s", c.bytes, line)
		}
		w.end()
	}
}
