package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/internal/term"
)

func TestCloseInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
		if err := CloseInTime(log, func() error { return nil }); err != nil {
			t.Errorf("a close in time: %v", err)
		}
		broken := errors.New("disk is gone")
		var f *term.ExitError
		if err := CloseInTime(log, func() error { return broken }); !errors.Is(err, broken) || !errors.As(err, &f) || f.Code != term.ExitUnknown {
			t.Errorf("a close that fails: %v", err)
		}
		began := time.Now()
		release := make(chan struct{})
		err := CloseInTime(log, func() error { <-release; return nil })
		if err != nil || time.Since(began) != closeLimit || !strings.Contains(said.String(), "without waiting") {
			t.Errorf("a close that hangs: %v after %v, said %q", err, time.Since(began), said.String())
		}
		close(release)
	})
}
