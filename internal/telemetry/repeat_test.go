package telemetry_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/internal/telemetry"
)

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A cause that fails every request yields one line per second, with the number of lines that it represents.
func TestRepeatedCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		log := telemetry.NewLogger(&out, slog.LevelInfo, false)
		faces := []*slog.Logger{log, log.With("face", "mcp")}
		for n := range 3000 { // 600 a second
			faces[n%2].Error("could not answer", "asked", "advance", "cause", fmt.Sprintf("commit %d of wf-01926f0e-7c1a-7000-8000-%012x: the disk is full", n, n), "request", n)
			time.Sleep(time.Second / 600) //nolint:forbidigo // the bubble's clock
		}
		log.Error("could not answer", "cause", errors.New("another cause"))
		for range 3 {
			log.Info("answered", "cause", "no failure")
		}
		time.Sleep(3 * time.Second) //nolint:forbidigo // the bubble's clock
		full, total := 0, 0
		for line := range strings.Lines(out.String()) {
			if !strings.Contains(line, "the disk is full") {
				continue
			}
			full++
			count := 1
			if _, after, ok := strings.Cut(line, "lines="); ok {
				if _, err := fmt.Sscan(after, &count); err != nil {
					t.Fatal(err)
				}
			}
			total += count
		}
		if full < 5 || full > 7 || total != 3000 {
			t.Errorf("%d lines for %d failures in 5 s, want 6 for 3000", full, total)
		}
		if n := strings.Count(out.String(), "another cause"); n != 1 {
			t.Errorf("%d lines of the other cause", n)
		}
		if n := strings.Count(out.String(), "answered"); n != 3 {
			t.Errorf("%d lines that say no failure, want all 3", n)
		}
	})
}

// Unlimited distinct causes are bounded too: beyond a number of concurrent causes, the rest count as one.
func TestManyCausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		log := telemetry.NewLogger(&out, slog.LevelInfo, false)
		const causes = 2000
		for n := range causes {
			log.Error("could not answer", "cause", strings.Repeat("z", n+1))
		}
		time.Sleep(3 * time.Second) //nolint:forbidigo // the bubble's clock
		if n := strings.Count(out.String(), "could not answer"); n > 300 {
			t.Errorf("%d lines for %d causes at a time", n, causes)
		}
		if want := "lines="; !strings.Contains(out.String(), want) {
			t.Error("those that were held back are not counted")
		}
	})
}
