package chain

import "context"

// Guard asks before each effect whether whom the run acts for may still act at all.
type Guard struct {
	Effects
	// MayAct says why a principal may not act any more, and nil where it may. What it may do is for
	// the Effects to ask.
	MayAct func(Command) error
}

// Do implements Effects.
func (g Guard) Do(ctx context.Context, c Command) Outcome {
	if err := g.MayAct(c); err != nil {
		return Outcome{Err: &StepError{Code: CodeNotAllowed, Message: err.Error(), Final: true}}
	}
	return g.Effects.Do(ctx, c)
}
