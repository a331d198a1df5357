package llm

import "context"

// bill adds up what the requests of one question cost, those of unusable answers too. It belongs
// to one goroutine.
type bill struct {
	usage                      *Usage // nil: nothing was used
	cost                       *float64
	unknownUsage, unknownPrice bool
}

type billKey struct{}

// withBill says of a question what all its requests cost.
func withBill(next Completer) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		b := &bill{}
		reply, err := next.Complete(context.WithValue(ctx, billKey{}, b), req)
		usage, cost := b.total()
		if fail := asError(err); fail != nil {
			return Reply{}, fail.withChange(func(e *Error) { e.Usage, e.CostUSD = usage, cost })
		}
		reply.Usage, reply.CostUSD = usage, cost
		return reply, err
	})
}

// total is nil where a part of it is unknown: unknown is not zero.
func (b *bill) total() (*Usage, *float64) {
	switch {
	case b.unknownUsage:
		return nil, nil
	case b.unknownPrice:
		return b.usage, nil
	}
	return b.usage, b.cost
}

func (b *bill) add(used *Usage, cost *float64, answered bool) {
	switch {
	case b == nil: // nobody's question
		return
	case used == nil:
		b.unknownUsage = b.unknownUsage || answered
		return
	}
	if b.usage == nil {
		b.usage, b.cost = new(Usage), new(float64)
	}
	b.usage.Prompt += used.Prompt
	b.usage.Completion += used.Completion
	b.usage.Cached += used.Cached
	b.usage.Reasoning += used.Reasoning
	if cost == nil {
		b.unknownPrice = true
		return
	}
	*b.cost += *cost
}

func billOf(ctx context.Context) *bill {
	b, _ := ctx.Value(billKey{}).(*bill)
	return b
}
