package export

import "context"

// What tests from outside see of a sender.
const (
	LeaseTime  = leaseTime
	RetryEvery = retryEvery
	CloseTime  = closeTime
	MaxPause   = maxPause
)

// Messenger stands in for an endpoint.
type Messenger = messenger

// RunTo runs one webhook that leads to a stand-in.
func (x *Exporter) RunTo(ctx context.Context, h Webhook, to Messenger) (stop func()) {
	x.senders = []*sender{newSender(x, h, to)}
	return x.Run(ctx)
}
