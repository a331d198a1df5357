package mcpwire

import (
	"cmp"
	"time"
)

// Defaults of Limits.
const (
	DefaultMaxLine     = 4 << 20
	DefaultMaxInFlight = 2000
)

// Limits bound what clients may send and hold. Zero values are the defaults.
type Limits struct {
	// MaxLine bounds one message in bytes: 4 MiB, enough for the largest document the
	// engine takes, and for refusing larger ones politely.
	MaxLine int
	// MaxInFlight bounds the requests that wait for an answer over stdio: 2000.
	MaxInFlight int
	// Grace is how long requests in flight over stdio may still be answered once ServeStdio
	// is to stop; cancelled ones get three times as long to end. 700 ms: a client that
	// waits two seconds before it kills has time to spare.
	Grace time.Duration
	// LastAnswers bounds how long requests in flight may still take once the client ended
	// its input: 10 minutes, longer than any request lasts by its own deadlines.
	LastAnswers time.Duration
	// Settle is how long a new subscription is quiet, so that the client hears first that
	// it is subscribed: half a second.
	Settle time.Duration

	// What follows is for HTTP: so many of all callers, and so many of each principal.
	// Sessions are those of the protocol eras with initialize: 5000, each 2000.
	Sessions, SessionsEach int
	// Streams stay open: GET, and subscriptions/listen. 2000, each 200.
	Streams, StreamsEach int
	// Idle is how long a session without request and stream lasts: 30 minutes.
	Idle time.Duration
	// Stream is how long one stream lasts at most: 1 hour. Clients open another, and
	// then show their credential again.
	Stream time.Duration
	// Alive is how often a quiet stream is written to: 20 seconds.
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
