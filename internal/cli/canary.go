package cli

import (
	"context"
	"log/slog"

	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
)

// canaryFlags configure canaries.
type canaryFlags struct {
	Canaries   string  `name:"llm-canaries" placeholder:"FILE" help:"Golden cases (JSON Lines) that the model judges right, with bad twins. They are repeated in the background to detect drift."`
	CanaryRate float64 `name:"llm-canary-rate" default:"0.05" placeholder:"SHARE" help:"Canaries per judgement. Default: 0.05, one in twenty."`
}

// ModelUser is implemented by the extension that shows how the model works.
type ModelUser interface {
	// UseModel is called once a system is open; the model is nil if none is configured.
	UseModel(*Model)
}

// Canaries are cases with a known outcome that the judge is asked while it is in use.
type Canaries interface {
	// Judged records that the model has judged a move. It never blocks.
	Judged()
	Stats() telemetry.CanaryStats
	// Drift returns an error while the answers show a drift.
	Drift() error
	Close()
}

// CanaryStarter is implemented by the extension that reads and asks canaries.
type CanaryStarter interface {
	// StartCanaries starts asking the cases in a file. rate is the number of canaries per judgement.
	StartCanaries(ctx context.Context, log *slog.Logger, sys *System, file string, rate float64) (Canaries, error)
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
	starter, ok := module.Find[CanaryStarter](sys.Extensions())
	if !ok {
		return term.UsageErrorf("use a gavel with all modules", "this program has no canaries")
	}
	canaries, err := starter.StartCanaries(ctx, log, sys, f.Canaries, f.CanaryRate)
	if err == nil {
		sys.Model.Canaries.Store(&canaries)
	}
	return err
}

// CanaryStats returns how the canaries were answered; ok is false if there are none.
func (m *Model) CanaryStats() (telemetry.CanaryStats, bool) {
	c := m.Canaries.Load()
	if c == nil {
		return telemetry.CanaryStats{}, false
	}
	return (*c).Stats(), true
}
