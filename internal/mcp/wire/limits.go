package wire

import (
	"cmp"
	"time"
)

// Default limits.
const (
	DefaultMaxLine     = 4 << 20
	DefaultMaxInFlight = 2000
)

// Limits limits what clients may send and hold open. Zero fields take the defaults.
type Limits struct {
	// MaxLine is the maximum size of one message in bytes. Default 4 MiB: enough for the largest document that the
	// engine accepts, and for answering somewhat larger ones with an explanation.
	MaxLine int
	// MaxInFlight is the maximum number of unanswered requests over stdio. Default 2000.
	MaxInFlight int
	// Grace is how long requests in flight over stdio may still take once ServeStdio must stop. Cancelled requests
	// get three times as long to end. Default 700 ms, which suits clients that wait two seconds before they kill the
	// process.
	Grace time.Duration
	// LastAnswers limits how long requests in flight may take once the input has ended. Default 10 minutes, longer
	// than any request's own deadline.
	LastAnswers time.Duration
	// Settle is how long a new subscription sends nothing, so that the client first learns that it is subscribed.
	// Default 500 ms.
	Settle time.Duration

	// The limits below apply to HTTP, in total and for each principal.
	// Sessions limits sessions of protocol versions with initialize. Default 5000, and 2000 for each principal.
	Sessions, SessionsEach int
	// Streams limits open streams: GET and subscriptions/listen. Default 2000, and 200 for each principal.
	Streams, StreamsEach int
	// Idle is how long a session without requests and streams is kept. Default 30 minutes.
	Idle time.Duration
	// Stream is the maximum lifetime of one stream. Default 1 hour. Clients then open another and present their
	// credential again.
	Stream time.Duration
	// Alive is the interval at which an idle stream is written to. Default 20 seconds.
	Alive time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxLine: cmp.Or(l.MaxLine, DefaultMaxLine), MaxInFlight: cmp.Or(l.MaxInFlight, DefaultMaxInFlight),
		Grace: cmp.Or(l.Grace, 700*time.Millisecond), LastAnswers: cmp.Or(l.LastAnswers, 10*time.Minute),
		Settle:   cmp.Or(l.Settle, 500*time.Millisecond),
		Sessions: cmp.Or(l.Sessions, 5000), SessionsEach: cmp.Or(l.SessionsEach, 2000),
		Streams: cmp.Or(l.Streams, 2000), StreamsEach: cmp.Or(l.StreamsEach, 200),
		Idle: cmp.Or(l.Idle, 30*time.Minute), Stream: cmp.Or(l.Stream, time.Hour), Alive: cmp.Or(l.Alive, 20*time.Second),
	}
}
