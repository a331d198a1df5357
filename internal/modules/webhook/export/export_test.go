package export

import "context"

// What tests from outside see of a sender.
const (
	LeaseTime  = leaseTime
	RetryEvery = retryEvery
	CloseTime  = closeTime
	MaxPause   = maxPause
)

// RunTo runs one webhook that leads to a stand-in.
func (x *Exporter) RunTo(ctx context.Context, h Webhook, to Receiver) (stop func()) {
	x.senders = []*sender{newSender(x, h, to)}
	return x.Run(ctx)
}
