package script_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// readForTests is the reader of these tests' worker. The document selects its behaviour.
func readForTests(request []byte) []byte {
	switch word, rest, _ := strings.Cut(string(request), " "); word {
	case "spin":
		for n := 0; ; n++ {
			_ = n
		}
	case "eat":
		var kept [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			kept = append(kept, b)
			runtime.KeepAlive(kept) // the point is to use memory
			debug.FreeOSMemory()
		}
	case "panic":
		panic("hostile")
	case "exit":
		os.Exit(3)
	case "lie":
		_, _ = os.Stdout.WriteString("\xff\xff\xff\xff\xff")
	case "large":
		return make([]byte, script.MaxReport)
	case "say":
		return []byte("say:" + rest)
	}
	return nil
}

// TestReadEndsWithItsLimits: a document that costs too much is rejected, and the next one is read normally.
func TestReadEndsWithItsLimits(t *testing.T) {
	p := newPool(t, script.Config{Read: 500 * time.Millisecond, WorkerMemory: 64 << 20})
	for _, c := range []struct {
		document string
		want     error
	}{
		{"spin", script.ErrTooCostly},
		{"eat", script.ErrTooCostly},
		{"panic", script.ErrTooCostly},
		{"exit", script.ErrTooCostly},
		{"large", script.ErrTooCostly},
		{"lie", script.ErrUnavailable},
		{strings.Repeat("x", 2<<20), script.ErrInput},
	} {
		began := time.Now()
		if _, err := p.Read(t.Context(), "agent", []byte(c.document)); !errors.Is(err, c.want) {
			t.Errorf("%.10s: got %v, want %v", c.document, err, c.want)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%.10s: took %v", c.document, took)
		}
		if answer, err := p.Read(t.Context(), "agent", []byte("say hello")); err != nil || string(answer) != "say:hello" {
			t.Errorf("after %.10s: %q, %v", c.document, answer, err)
		}
	}
}

func TestReadEndsWithItsCaller(t *testing.T) {
	p := newPool(t, script.Config{Read: time.Minute})
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for len(p.WorkerPIDs()) == 0 {
			time.Sleep(time.Millisecond) //nolint:forbidigo // nothing tells that a worker has started
		}
		cancel(gone)
	}()
	if _, err := p.Read(ctx, "agent", []byte("spin")); !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestMalformedReportIsRejected: a message must be exactly one report.
func TestMalformedReportIsRejected(t *testing.T) {
	r := script.Report{ID: 7, Leaving: true, Answer: []byte("x")}
	frame := r.AppendTo(nil)
	var got script.Report
	if err := got.Decode(frame); err != nil || got.ID != 7 || !got.Leaving || string(got.Answer) != "x" {
		t.Errorf("got %+v, %v", got, err)
	}
	for n := range frame {
		if err := got.Decode(frame[:n]); err == nil {
			t.Errorf("%d bytes of it are taken", n)
		}
	}
	if err := got.Decode(append(frame, 0)); err == nil {
		t.Error("more than a report is taken")
	}
	frame[4] = 4
	if err := got.Decode(frame); err == nil {
		t.Error("an unknown flag is taken")
	}
}
