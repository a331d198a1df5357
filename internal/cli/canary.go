package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
	"github.com/gavel-mcp/gavel/judge/llm"
)

// canaryFlags configure canaries: cases with a known outcome that the judge is asked while it is in use.
type canaryFlags struct {
	Canaries   string  `name:"llm-canaries" placeholder:"FILE" help:"Golden cases (JSON Lines) that the model judges right, with bad twins. They are repeated in the background to detect drift."`
	CanaryRate float64 `name:"llm-canary-rate" default:"0.05" placeholder:"SHARE" help:"Canaries per judgement. Default: 0.05, one in twenty."`
}

// canaryCaller is the caller under which canaries use the model.
const canaryCaller = "gavel:canaries"

// background gives requests a lower priority than those of decisions.
type background struct{ *llm.Client }

func (b background) Complete(ctx context.Context, req llm.Request) (llm.Reply, error) {
	req.Background = true
	return b.Client.Complete(ctx, req)
}

// start starts the canaries of a system; without a file there are none.
func (f canaryFlags) start(ctx context.Context, log *slog.Logger, sys *System) error {
	switch {
	case f.Canaries == "":
		return nil
	case sys.Model == nil:
		return term.UsageErrorf("set LLM_JUDGE_MODEL or --llm-model", "--llm-canaries needs a model to ask")
	case sys.Model.cassette != nil:
		return term.UsageErrorf("drop one flag", "--llm-canaries cannot be used with --llm-cassette")
	}
	set, err := ReadGolden(ctx, []string{f.Canaries}, nil, nil)
	if err != nil {
		return err
	}
	layer, err := judge.NewModel(judge.ModelConfig{Completer: background{sys.Model.client}, Calibrations: sys.Model.Calibrations, RefusalLimit: -1})
	if err != nil {
		return err
	}
	builder, decide := &CaseBuilder{Set: set, Definitions: NewDefinitionCache()}, NewDecider(sys.Compiler, layer, Cell{})
	cfg := eval.CanaryConfig{Rate: f.CanaryRate, Watch: func(d eval.Drift) { logDrift(log, d) }}
	cfg.Ask = func(ctx context.Context, c eval.Case) eval.Result {
		question, err := builder.Build(c)
		question.Caller, question.Identity = canaryCaller, "" // the answer is not remembered
		if err == nil {
			var v judge.Verdict
			if v, err = decide(ctx, c, question); err == nil {
				return eval.ResultOf(c.ID, 0, v)
			}
		}
		return eval.Result{Case: c.ID, Failure: err.Error()}
	}
	for c, err := range set.All(ctx) {
		if err != nil {
			return err
		}
		if question, err := builder.Build(c); err != nil {
			return term.UsageErrorf("gavel eval lint lists every mistake", "--llm-canaries: case %q: %w", c.ID, err)
		} else if !question.Rubric.UseLLM {
			return term.UsageErrorf("remove the case from the file", "--llm-canaries: case %q asks no model", c.ID)
		}
		cfg.Cases = append(cfg.Cases, c)
	}
	canaries, err := eval.StartCanaries(cfg)
	if err != nil {
		return term.UsageErrorf("", "--llm-canary-rate: %w", err)
	}
	sys.Model.Canaries.Store(canaries)
	return nil
}

func logDrift(log *slog.Logger, d eval.Drift) {
	fields := []any{"answers", d.Answers, "wrongApprovals", d.WrongApprovals, "wrongRefusals", d.WrongRefusals, "case", d.Case}
	if d.Over {
		log.Warn("the judge answers its canaries correctly again", append(fields, "after", time.Since(d.Since).Round(time.Second).String())...)
		return
	}
	log.Warn("the judge has drifted: it gives wrong answers to its canaries", append(fields, "hint", "check whether the provider changed the model; measure it with gavel eval run")...)
}

// Drift returns an error while the canaries show a drift; nil otherwise, and if there are no canaries.
func (m *Model) Drift() error {
	c := m.Canaries.Load()
	if c == nil {
		return nil
	}
	d := c.Stats().Drift
	if d.Since.IsZero() {
		return nil
	}
	return &telemetry.PartError{Since: d.Since, Err: fmt.Errorf("the judge has drifted: %d of its last %d canary answers were wrong; see the log", d.WrongApprovals+d.WrongRefusals, d.Answers)}
}

func (m *Model) canaryStats() (telemetry.CanaryStats, bool) {
	c := m.Canaries.Load()
	if c == nil {
		return telemetry.CanaryStats{}, false
	}
	s := c.Stats()
	return telemetry.CanaryStats{
		Right: s.Right, WrongApprovals: s.WrongApprovals, WrongRefusals: s.WrongRefusals, Unanswered: s.Unanswered, Drift: !s.Drift.Since.IsZero(),
	}, true
}
