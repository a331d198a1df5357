package author

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
)

type judgeDoctorCmd struct {
	cli.ConfigFlag
	cli.ModelFlags
	JSON bool `name:"json" help:"Print the findings as JSON."`
}

// Diagnosis is what gavel judge doctor finds out about one model.
type Diagnosis struct {
	Model    string       `json:"model"`
	Role     string       `json:"role"` // default, also, fallback
	URL      string       `json:"url"`
	Key      bool         `json:"key"` // whether a key is sent
	Rung     llm.Rung     `json:"rung,omitempty"`
	Dropped  []string     `json:"dropped,omitempty"`
	Breaker  string       `json:"breaker,omitempty"`
	Samples  []SampleTest `json:"samples"`
	Problems []string     `json:"problems,omitempty"` // the cause and the next step, one per line
	Notes    []string     `json:"notes,omitempty"`    // like Problems, for faults that do not stop the model from working
	OK       bool         `json:"ok"`
}

// SampleTest is the model's result for a sample.
type SampleTest struct {
	Sample     string             `json:"sample"`
	Expected   judge.Outcome      `json:"expected"`
	Outcome    judge.Outcome      `json:"outcome,omitempty"`
	Confidence float64            `json:"confidence"`
	TookMs     int64              `json:"tookMs"`
	Reasoning  string             `json:"reasoning,omitempty"`
	Asked      *judge.ModelRecord `json:"asked,omitempty"`
}

// sampleWorkflow is the workflow that the samples are judged by.
const sampleWorkflow = `
name: judged-review
description: A document is reviewed; a model judges whether the review was done
initialState: reviewing
states:
  reviewing:
    description: A reviewer reads the document
    transitions:
      approve:
        target: approved
        description: The reviewer is done and accepts the document
        useLLM: true
        criteria:
          - The comments name the parts of the document that were read
          - The comments say against what the content was checked, or what was corrected
  approved: {final: true}
judgeConfig: {strictMode: true, minConfidence: 0.8}
`

// Samples are the questions that gavel judge doctor asks.
var Samples = []struct {
	Name, Data string
	Expected   judge.Outcome
}{
	{"a review with details", `{"comments": "Read sections 1 to 4 and compared every figure in table 2 with the source data; two typos corrected."}`, judge.Approve},
	{"a review without details", `{"comments": "I have looked at it very carefully and I am fully convinced of its quality."}`, judge.Reject},
}

func (c *judgeDoctorCmd) Run(ctx context.Context, con *cli.Console) error {
	if err := llm.ValidThinking(c.Thinking); err != nil {
		return term.UsageErrorf("", "LLM_JUDGE_THINKING_MODE (--llm-thinking): %w", err)
	}
	if c.Model == "" {
		return term.UsageErrorf("set LLM_JUDGE_MODEL, and LLM_BASE_URL and LLM_API_KEY as the endpoint needs them; docs/judge.md has examples",
			"no model is configured")
	}
	cfg, err := c.BuildConfig(con.Log)
	if err != nil {
		return err
	}
	if _, err := llm.New(cfg); err != nil {
		return term.UsageErrorf("", "the model cannot be set up: %w", err)
	}
	cassette, err := c.OpenCassette()
	if err != nil {
		return err
	}
	if cassette != nil {
		cfg.Doer = cassette
		defer func() { _ = cassette.Close() }()
	}
	report, ok := make([]Diagnosis, 0, len(cfg.Models)), true
	for i, m := range cfg.Models {
		d, err := c.examine(ctx, cfg, m)
		if err != nil {
			return err
		}
		d.Role = modelRole(i, len(c.Also))
		ok = ok && d.OK
		report = append(report, d)
		if !c.JSON {
			d.print(con)
		}
	}
	if c.JSON {
		err = con.Out.JSON(map[string]any{"ok": ok, "models": report})
	}
	return cmp.Or(err, cli.ExitBadUnless(ok))
}

func modelRole(i, also int) string {
	switch {
	case i == 0:
		return "default"
	case i <= also:
		return "also"
	}
	return "fallback"
}

// examine asks a single model, without fallbacks.
func (c *judgeDoctorCmd) examine(ctx context.Context, cfg llm.Config, m llm.Model) (Diagnosis, error) {
	cfg.Models, cfg.Fallbacks = []llm.Model{m}, nil
	client, err := llm.New(cfg)
	if err != nil {
		return Diagnosis{}, term.UsageErrorf("", "%s cannot be set up: %w", m.Name, err)
	}
	defer client.Close()
	layer, err := judge.NewModel(judge.ModelConfig{Completer: client, RefusalLimit: -1, Stable: cfg.Doer != nil, Untimed: cfg.Doer != nil})
	if err != nil {
		return Diagnosis{}, err
	}
	d := Diagnosis{Model: m.Name, Key: m.APIKey != "", OK: true}
	for _, s := range Samples {
		result, problem, err := JudgeSample(ctx, layer, s.Name, s.Data, s.Expected)
		if err != nil {
			return Diagnosis{}, term.UnknownErrorf("", "stopped: %w", err)
		}
		d.Samples = append(d.Samples, result)
		if problem != "" {
			d.OK = false
			d.Problems = append(d.Problems, problem)
		}
		if result.Outcome == "" {
			break // the second sample would fail in the same way
		}
	}
	d.describe(client.Stats())
	return d, nil
}

// JudgeSample asks the model a sample question.
func JudgeSample(ctx context.Context, layer judge.Layer, name, data string, expected judge.Outcome) (SampleTest, string, error) {
	c, err := caseFor(engine.DefineRequest{Source: "judged-review.yaml", Document: []byte(sampleWorkflow)}, "reviewing", "approve", json.RawMessage(data),
		json.RawMessage(`{"documentId":"DOC-7","reviewer":"ada@example.com"}`))
	if err != nil {
		return SampleTest{}, "", err
	}
	began := time.Now()
	op, err := layer.Weigh(ctx, c)
	if busy, ok := errors.AsType[*judge.BusyError](err); ok {
		problem := busy.Message
		if fail, ok := errors.AsType[*llm.Error](err); ok {
			problem = fail.Explain()
		}
		return SampleTest{Sample: name, Expected: expected, TookMs: time.Since(began).Milliseconds()}, problem, nil
	}
	if err != nil {
		return SampleTest{}, "", err
	}
	r := SampleTest{
		Sample: name, Expected: expected, Outcome: op.Outcome, Confidence: op.Confidence,
		TookMs: time.Since(began).Milliseconds(), Reasoning: op.Reasoning, Asked: op.Model,
	}
	switch {
	case op.Trouble == judge.TroubleUnavailable || op.Trouble == judge.TroubleNotConfigured || op.Trouble == judge.TroubleUnreadable:
		r.Outcome = ""
		return r, cmp.Or(op.Model.Detail, op.Reasoning), nil
	case expected != judge.Approve && op.Outcome == judge.Approve:
		return r, fmt.Sprintf("it approves %s, so it cannot be relied on; use a larger model", name), nil
	case expected == judge.Approve && op.Outcome != judge.Approve:
		return r, fmt.Sprintf("it does not approve %s, so it would block agents: %s", name, whyNot(op)), nil
	case expected == judge.Approve && op.Confidence < c.Rubric.MinConfidence:
		return r, fmt.Sprintf("it approves with a stated confidence of %s, which counts as %s, and no strict move passes below %s; use a model that states %s, calibrate this one (docs/evaluation.md), or lower minConfidence",
			judge.FormatConfidence(op.Model.Stated), judge.FormatConfidence(op.Confidence), judge.FormatConfidence(c.Rubric.MinConfidence), judge.StatedFor(c.Rubric.MinConfidence)), nil
	}
	return r, "", nil
}

// whyNot explains why the good sample was not approved and suggests a fix.
func whyNot(op judge.Opinion) string {
	for _, v := range op.Model.Criteria {
		switch {
		case v.Why != "" && v.Evidence != "":
			return fmt.Sprintf("criterion %s is met by the quote %q, but %s; use a model that copies quotes word for word", v.ID, v.Evidence, v.Why)
		case v.Why != "":
			return fmt.Sprintf("criterion %s does not count: %s; use a larger model", v.ID, v.Why)
		case v.Status != llm.StatusMet:
			return fmt.Sprintf("it answers %s to criterion %s, with the reason %q; use a larger model", v.Status, v.ID, op.Reasoning)
		}
	}
	return fmt.Sprintf("its reason is %q; use a larger model", op.Reasoning)
}

// describe adds what the client learned about the endpoint.
func (d *Diagnosis) describe(stats llm.Stats) {
	for _, m := range stats.Models {
		d.URL, d.Dropped, d.Breaker = m.Capabilities.URL, m.Capabilities.Dropped, m.Breaker
		if !m.Capabilities.Since.IsZero() {
			d.Rung = m.Capabilities.Rung
		}
		// Problems already contains the failures of samples; Dropped and Rung show unsupported capabilities.
		if e := m.LastError; e != nil && d.OK && e.Class != llm.ClassCapability {
			d.Notes = append(d.Notes, e.Message+"; "+e.Advice)
		}
	}
}

func (d *Diagnosis) print(con *cli.Console) {
	out := con.Out
	out.Printf("%s (%s)\n", out.Bold(d.Model), d.Role)
	line := func(name string, value any) { out.Printf("  %-10s %v\n", name, value) }
	line("url", d.URL)
	key := "none sent"
	if d.Key {
		key = "sent as a bearer token"
	}
	line("key", key)
	if d.Rung != "" {
		line("answers by", string(d.Rung))
	}
	if len(d.Dropped) > 0 {
		line("not taken", strings.Join(d.Dropped, ", "))
	}
	for _, s := range d.Samples {
		line("sample", s.line())
	}
	if d.Breaker != "" {
		line("breaker", d.Breaker)
	}
	if d.OK {
		line("result", out.Green("works"))
	} else {
		line("result", out.Red("does not work as a judge"))
	}
	for _, p := range append(d.Problems, d.Notes...) {
		out.Printf("    - %s\n", p)
	}
	out.Printf("\n")
}

func (s SampleTest) line() string {
	if s.Outcome == "" {
		return fmt.Sprintf("%s: no judgement, %d ms", s.Sample, s.TookMs)
	}
	text := fmt.Sprintf("%s: %s, confidence %s", s.Sample, s.Outcome, judge.FormatConfidence(s.Confidence))
	if a := s.Asked; a != nil {
		text += fmt.Sprintf(" (stated %s), %d ms, %d calls", judge.FormatConfidence(a.Stated), s.TookMs, a.Calls)
		if a.PromptTokens != nil && a.CompletionTokens != nil {
			text += fmt.Sprintf(", %d + %d tokens", *a.PromptTokens, *a.CompletionTokens)
		}
		if a.Lenient {
			text += ", not exactly in the requested form"
		}
	}
	return text
}
