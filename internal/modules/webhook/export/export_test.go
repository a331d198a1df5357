package export

import "context"

// Constants of a sender that external tests need.
const (
	LeaseTime  = leaseTime
	RetryEvery = retryInterval
	CloseTime  = closeTimeout
	MaxPause   = maxPause
)

// RunTo runs a webhook with a replacement receiver.
func (e *Exporter) RunTo(ctx context.Context, h Webhook, to Receiver) (stop func()) {
	e.senders = []*sender{newSender(e, h, to)}
	return e.Run(ctx)
}
