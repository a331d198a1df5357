package serve

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counting expires reviews and records when.
type counting struct {
	mu    sync.Mutex
	at    []time.Time
	fails bool
}

func (c *counting) ExpireReviews(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Now())
	if c.fails {
		return 0, errors.New("the disk is full")
	}
	return 1, nil
}

// TestWatchReviews shows that reviews are expired at start and then every minute, despite failures, and not after
// the watch ends.
func TestWatchReviews(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			reviews, began := &counting{fails: fails}, time.Now()
			stop := watchReviews(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), reviews)
			time.Sleep(2*expireInterval + time.Second) //nolint:forbidigo // the synctest clock
			stop()
			time.Sleep(10 * expireInterval) //nolint:forbidigo // the synctest clock
			if len(reviews.at) != 3 || !reviews.at[0].Equal(began) || reviews.at[2].Sub(began) != 2*expireInterval {
				t.Errorf("looked at %v, began at %v", reviews.at, began)
			}
			if got := strings.Count(log.String(), "the disk is full"); got != map[bool]int{true: 3}[fails] {
				t.Errorf("%d complaints:\n%s", got, log.String())
			}
			ctx, cancel := context.WithCancel(t.Context())
			stop = watchReviews(ctx, slog.New(slog.DiscardHandler), reviews)
			cancel()
			synctest.Wait() // its goroutine must be gone, or synctest fails
			stop()
		})
	}
}
