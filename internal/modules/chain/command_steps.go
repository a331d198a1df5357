package chain

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/term"
)

// stepLines shows what becomes of steps. A person gets one line for each that has ended, with how
// long it took, and below them a line that says what is under way; a file or a pipe gets a line for
// each thing that happens.
type stepLines struct {
	out  *term.Terminal
	live *term.Progress // nil where no person is looking

	mu    sync.Mutex
	begun map[string]time.Time // steps under way, by key
	order []string             // their keys
	rest  string               // what there is to say where no step is known to be under way
	stop  func()
	// closed says that the last line is gone for good.
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

// close clears the line of what is under way. It may be called again.
func (l *stepLines) close() { l.stop() }

func (l *stepLines) started(key string) {
	l.mu.Lock()
	l.begun[key] = time.Now()
	l.order = append(l.order, key)
	l.mu.Unlock()
	if l.live == nil {
		l.out.Printf("%-9s %s\n", "started", key)
	}
	l.draw()
}

// leastTime is the shortest that it is worth saying a step took: what was recorded before a run was
// taken up ends as soon as it begins.
const leastTime = 5 * time.Millisecond

// ended says that a step is done, failed, or failed and was handled.
func (l *stepLines) ended(event, key string, wrong *RunError) {
	l.mu.Lock()
	began, known := l.begun[key]
	if event != "handled" { // the step goes on with its handler
		delete(l.begun, key)
		l.order = slices.DeleteFunc(l.order, func(other string) bool { return other == key })
	}
	l.mu.Unlock()
	took := time.Duration(0)
	if known {
		took = time.Since(began)
	}
	l.took(event, key, took, wrong)
}

// took says how a step ended, and after how long.
func (l *stepLines) took(event, key string, took time.Duration, wrong *RunError) {
	what := ""
	if wrong != nil {
		what = wrong.Why()
	}
	if l.live != nil && took >= leastTime {
		key += "  " + term.ShortDuration(took)
	}
	l.say(event, key, what)
}

// say prints one line.
func (l *stepLines) say(event, key, what string) {
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

// draw says what is under way.
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
			continue // the steps in it say more
		}
		if since := time.Since(l.begun[key]); since >= time.Second {
			key += " " + term.Roughly(since)
		}
		under = append(under, key)
	}
	if len(under) == 0 {
		l.live.Set(l.rest)
		return
	}
	l.live.Set("under way " + strings.Join(under, ", "))
}

// setRest sets what the last line says where no step is known to be under way.
func (l *stepLines) setRest(text string) {
	l.mu.Lock()
	l.rest = text
	l.mu.Unlock()
	l.draw()
}
