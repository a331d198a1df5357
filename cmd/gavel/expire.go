package main

import (
	"context"
	"log/slog"
	"time"
)

// expireEvery is how often reviews are looked through whose time is over. Nothing
// rests on it: one that is past its time resolves nothing, whoever noticed.
const expireEvery = time.Minute

// expirer is what watching reviews needs of the engine.
type expirer interface {
	ExpireReviews(ctx context.Context) (int, error)
}

// watchReviews ends the reviews that nobody decided in time, now and every minute,
// until ctx ends or the returned function is called, which waits for it.
func watchReviews(ctx context.Context, log *slog.Logger, reviews expirer) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		again := time.NewTicker(expireEvery)
		defer again.Stop()
		for {
			expireOnce(ctx, log, reviews)
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func expireOnce(ctx context.Context, log *slog.Logger, reviews expirer) {
	n, err := reviews.ExpireReviews(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		log.Warn("cannot look through the reviews; trying again in a minute", "error", err)
	case n > 0:
		log.Info("reviews that nobody decided in time", "number", n)
	}
}
