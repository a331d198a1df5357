package export

import "context"

// Constants of a sender that external tests need.
const (
	LeaseTime  = leaseTime
	RetryEvery = retryEvery
	CloseTime  = closeTime
	MaxPause   = maxPause
)

// RunTo runs a webhook with a replacement receiver.
func (x *Exporter) RunTo(ctx context.Context, h Webhook, to Receiver) (stop func()) {
	x.senders = []*sender{newSender(x, h, to)}
	return x.Run(ctx)
}
