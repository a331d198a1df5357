package cli

import (
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// Measured returns the model as the layer that an evaluation measures. It has neither a loop guard nor a principal's
// budget; --max-calls and similar flags limit the cost.
func (m *Model) Measured() (judge.Layer, error) {
	layer, err := judge.NewModel(judge.ModelConfig{
		Completer: &independent{Client: m.client}, Calibrations: m.Calibrations, Prompt: m.prompt(), RefusalLimit: -1, Stable: m.cassette != nil,
	})
	if err != nil {
		return nil, term.UsageErrorf("", "the model cannot be set up: %w", err)
	}
	return layer, nil
}
