package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if err := closeWithin(closeLimit, func() error { return nil }); err != nil {
			t.Errorf("a close in time: %v", err)
		}
		broken := errors.New("disk is gone")
		var f *failure
		if err := closeWithin(closeLimit, func() error { return broken }); !errors.Is(err, broken) || !errors.As(err, &f) || f.code != exitUnknown {
			t.Errorf("a close that fails: %v", err)
		}
		began := time.Now()
		release := make(chan struct{})
		err := closeWithin(closeLimit, func() error { <-release; return nil })
		if err == nil || time.Since(began) != closeLimit {
			t.Errorf("a close that hangs: %v after %v", err, time.Since(began))
		}
		close(release)
	})
}
