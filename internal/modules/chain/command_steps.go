package chain

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/term"
)

// stepLines prints the progress of steps. A terminal gets one line per ended step with its duration, and a
// status line below that lists the steps in progress. A file or a pipe gets one line per event.
type stepLines struct {
	out  *term.Terminal
	live *term.Progress // nil if the output is not a terminal

	mu     sync.Mutex
	begun  map[string]time.Time // steps in progress, by key
	order  []string             // their keys
	status string               // the status text when no step is known to be in progress
	stop   func()
	// closed reports that the status line was removed for good.
	closed bool
}

func newStepLines(out *term.Terminal) *stepLines {
	l := &stepLines{out: out, live: out.NewProgress(), begun: map[string]time.Time{}, stop: func() {}}
	if l.live != nil {
		end, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-end:
					return
				case <-tick.C:
					l.draw()
				}
			}
		}()
		l.stop = sync.OnceFunc(func() {
			close(end)
			<-ended
			l.mu.Lock()
			defer l.mu.Unlock()
			l.closed = true
			l.live.Finish("")
		})
	}
	return l
}

// close removes the status line. It is safe to call more than once.
func (l *stepLines) close() { l.stop() }

func (l *stepLines) startStep(key string) {
	l.mu.Lock()
	l.begun[key] = time.Now()
	l.order = append(l.order, key)
	l.mu.Unlock()
	if l.live == nil {
		l.out.Printf("%-9s %s\n", "started", key)
	}
	l.draw()
}

// minPrinted is the shortest duration worth printing: steps recorded before a run was taken up end as soon
// as they begin.
const minPrinted = 5 * time.Millisecond

// endStep prints that a step is done, failed, or failed and was handled.
func (l *stepLines) endStep(event, key string, wrong *RunError) {
	l.mu.Lock()
	began, known := l.begun[key]
	if event != "handled" { // the step continues with its handler
		delete(l.begun, key)
		l.order = slices.DeleteFunc(l.order, func(other string) bool { return other == key })
	}
	l.mu.Unlock()
	took := time.Duration(0)
	if known {
		took = time.Since(began)
	}
	l.printEnd(event, key, took, wrong)
}

// printEnd prints how a step ended, and after how long.
func (l *stepLines) printEnd(event, key string, took time.Duration, wrong *RunError) {
	what := ""
	if wrong != nil {
		what = wrong.Why()
	}
	if l.live != nil && took >= minPrinted {
		key += "  " + term.ShortDuration(took)
	}
	l.printLine(event, key, what)
}

// printLine prints one line.
func (l *stepLines) printLine(event, key, what string) {
	if what != "" {
		key += ": " + what
	}
	if l.live == nil {
		l.out.Printf("%-9s %s\n", event, key)
		return
	}
	l.live.Printf("%s %s\n", l.out.Outcome(fmt.Sprintf("%-9s", event)), key)
	l.draw()
}

// draw updates the status line.
func (l *stepLines) draw() {
	if l.live == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	var under []string
	for _, key := range l.order {
		if slices.ContainsFunc(l.order, func(other string) bool { return strings.HasPrefix(other, key+"/") }) {
			continue // the steps inside it are more specific
		}
		if since := time.Since(l.begun[key]); since >= time.Second {
			key += " " + term.Roughly(since)
		}
		under = append(under, key)
	}
	if len(under) == 0 {
		l.live.Set(l.status)
		return
	}
	l.live.Set("under way " + strings.Join(under, ", "))
}

// setStatus sets the status text to use when no step is known to be in progress.
func (l *stepLines) setStatus(text string) {
	l.mu.Lock()
	l.status = text
	l.mu.Unlock()
	l.draw()
}
