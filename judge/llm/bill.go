package llm

import "context"

// bill sums the cost of all requests for one question, including unusable answers. It is used by one goroutine
// only.
type bill struct {
	usage                      *Usage // nil if nothing was used
	cost                       *float64
	unknownUsage, unknownPrice bool
}

type billKey struct{}

// withBill reports the usage and cost of all requests for a question.
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

// total returns nil for a sum with an unknown part: unknown does not mean zero.
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
	case b == nil: // the request belongs to no question
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
