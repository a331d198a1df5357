package replay

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
)

// Each gives what came of every question: the verdict, or the reason why there is none.
func Each(ctx context.Context, cfg Config, take func(q engine.Question, v judge.Verdict, reason string)) error {
	cfg.Workers = max(cfg.Workers, 1)
	return cfg.run(ctx, func(q engine.Question, r result) { take(q, r.verdict, r.reason) })
}
