package measure

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
)

// canaryCaller is the caller under which canaries use the model.
const canaryCaller = "gavel:canaries"

// background gives requests a lower priority than those of decisions.
type background struct{ *llm.Client }

func (b background) Complete(ctx context.Context, req llm.Request) (llm.Reply, error) {
	req.Background = true
	return b.Client.Complete(ctx, req)
}

// canaryStarter implements cli.CanaryStarter.
type canaryStarter struct{}

func (canaryStarter) StartCanaries(ctx context.Context, log *slog.Logger, sys *cli.System, file string, rate float64) (cli.Canaries, error) {
	set, err := ReadGolden(ctx, []string{file}, nil, nil)
	if err != nil {
		return nil, err
	}
	layer, err := sys.Model.NewMeasuredLayer(func(c *llm.Client) llm.Completer { return background{c} })
	if err != nil {
		return nil, err
	}
	builder, decide := &CaseBuilder{Set: set, Definitions: NewDefinitionCache()}, NewDecider(sys.Compiler, layer, Cell{})
	cfg := eval.CanaryConfig{Rate: rate, Watch: func(d eval.Drift) { logDrift(log, d) }}
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
			return nil, err
		}
		if question, err := builder.Build(c); err != nil {
			return nil, term.UsageErrorf("gavel eval lint lists every mistake", "--llm-canaries: case %q: %w", c.ID, err)
		} else if !question.Rubric.UseLLM {
			return nil, term.UsageErrorf("remove the case from the file", "--llm-canaries: case %q asks no model", c.ID)
		}
		cfg.Cases = append(cfg.Cases, c)
	}
	started, err := eval.StartCanaries(cfg)
	if err != nil {
		return nil, term.UsageErrorf("", "--llm-canary-rate: %w", err)
	}
	return canaries{started}, nil
}

func logDrift(log *slog.Logger, d eval.Drift) {
	fields := []any{"answers", d.Answers, "wrongApprovals", d.WrongApprovals, "wrongRefusals", d.WrongRefusals, "case", d.Case}
	if d.Over {
		log.Warn("the judge answers its canaries correctly again", append(fields, "after", time.Since(d.Since).Round(time.Second).String())...)
		return
	}
	log.Warn("the judge has drifted: it gives wrong answers to its canaries", append(fields, "hint", "check whether the provider changed the model; measure it with gavel eval run")...)
}

// canaries implements cli.Canaries.
type canaries struct{ *eval.Canaries }

func (c canaries) Stats() telemetry.CanaryStats {
	s := c.Canaries.Stats()
	return telemetry.CanaryStats{
		Right: s.Right, WrongApprovals: s.WrongApprovals, WrongRefusals: s.WrongRefusals, Unanswered: s.Unanswered, Drift: !s.Drift.Since.IsZero(),
	}
}

func (c canaries) Drift() error {
	d := c.Canaries.Stats().Drift
	if d.Since.IsZero() {
		return nil
	}
	return &telemetry.PartError{Since: d.Since, Err: fmt.Errorf("the judge has drifted: %d of its last %d canary answers were wrong; see the log", d.WrongApprovals+d.WrongRefusals, d.Answers)}
}
