package judge

import "context"

// noModel stands where the model layer would be when none is configured. It
// says so, and policy decides.
type noModel struct{}

func (noModel) Name() LayerName { return LayerModel }

func (noModel) Weigh(context.Context, Case) (Opinion, error) {
	return Opinion{
		Layer: LayerModel, Outcome: Escalate, Trouble: TroubleNotConfigured,
		Reasoning: troubleMessage(TroubleNotConfigured),
	}, nil
}
