package main

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
)

// independent asks a model about each case as if it were the first that anybody asks:
// no answer is taken from the cache, or a judge that wavers would look steady, and no
// earlier answer, good or garbled, keeps the next question from being asked.
type independent struct {
	*llm.Client
	asked atomic.Uint64
}

// Complete implements llm.Completer.
func (i *independent) Complete(ctx context.Context, req llm.Request) (llm.Reply, error) {
	req.Key, req.Caller = "", "case "+strconv.FormatUint(i.asked.Add(1), 10)
	return i.Client.Complete(ctx, req)
}

// measured is the model as the layer that an evaluation measures. Neither a loop guard
// nor a principal's budget stands before it: --max-calls and its like bound what is spent.
func (m *model) measured() (judge.Layer, error) {
	layer, err := judge.NewModel(judge.ModelConfig{
		Completer: &independent{Client: m.client}, Calibrations: m.calibrations, RefusalLimit: -1, Stable: m.cassette != nil,
	})
	if err != nil {
		return nil, term.UsageErrorf("", "the model cannot be set up: %w", err)
	}
	return layer, nil
}
