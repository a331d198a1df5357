package httpapi

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/gavel-mcp/gavel/internal/operation"
)

// Config is what a Handler is made of. Engine and Logger are required.
type Config struct {
	Engine operation.Engine
	Logger *slog.Logger
	// Sources lists the sources of evidence; nil when there are none.
	Sources func() []operation.Source
	// MaxBody bounds a request's body in bytes; 0 is 1 MiB.
	MaxBody int64
	// Heartbeat is how often a quiet stream says that it still is there; 0 is 15 seconds.
	Heartbeat time.Duration
	// WriteTimeout is how long a reader of a stream may take for what it was sent before
	// it is dropped; 0 is 10 seconds.
	WriteTimeout time.Duration
	// StreamLife is how long a stream may live before its reader has to come back, with its
	// credential; 0 is 15 minutes.
	StreamLife time.Duration
	// MaxStreams bounds the streams of one principal; 0 is 8. How many all may have together
	// is the listener's to say.
	MaxStreams int
}

func (c Config) withDefaults() Config {
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	c.StreamLife = cmp.Or(c.StreamLife, 15*time.Minute)
	c.MaxStreams = cmp.Or(c.MaxStreams, 8)
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Engine == nil || c.Logger == nil {
		errs = append(errs, errors.New("httpapi: config needs Engine and Logger"))
	}
	if c.MaxBody < 1024 || c.MaxStreams < 1 {
		errs = append(errs, errors.New("httpapi: MaxBody is at least 1024, MaxStreams is at least 1"))
	}
	if c.Heartbeat < time.Millisecond || c.WriteTimeout < time.Millisecond || c.StreamLife < time.Millisecond {
		errs = append(errs, errors.New("httpapi: Heartbeat, WriteTimeout and StreamLife are at least a millisecond"))
	}
	return errors.Join(errs...)
}
