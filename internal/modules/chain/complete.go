package chain

import (
	"context"
	"errors"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
)

// promptModel completes the prompts of chains with the configured models, within the judge's deadline and
// the principal's budget.
type promptModel struct {
	asker judge.Asker
	// spend charges the tokens to the principal's budget; nil disables the budget.
	spend func(ctx context.Context, p engine.Principal, ask func(context.Context) (tokens int64, err error)) error
}

// CompletePrompt implements Completer.
func (m promptModel) CompletePrompt(ctx context.Context, p engine.Principal, name string, messages []Message) (text string, err error) {
	req := llm.Request{Model: name, Caller: p.ID}
	for _, one := range messages {
		req.Dialogue = append(req.Dialogue, llm.Message(one))
	}
	ask := func(ctx context.Context) (tokens int64, err error) {
		reply, err := m.asker.Ask(ctx, req)
		used := reply.Usage
		if fail, ok := errors.AsType[*llm.Error](err); ok {
			used = fail.Usage
		}
		if used != nil {
			tokens = int64(used.Prompt) + int64(used.Completion)
		}
		text = reply.Text
		return tokens, err
	}
	if m.spend == nil {
		_, err = ask(ctx)
	} else {
		err = m.spend(ctx, p, ask)
	}
	return text, err
}
