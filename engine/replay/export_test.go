package replay

import (
	"context"

	"github.com/gavel-mcp/gavel/judge"
)

// Each gives what came of every question: the verdict, or the reason why there is none.
func Each(ctx context.Context, cfg Config, take func(q Question, v judge.Verdict, reason string)) error {
	cfg.Workers = max(cfg.Workers, 1)
	return cfg.run(ctx, func(q Question, r result) { take(q, r.verdict, r.reason) })
}
