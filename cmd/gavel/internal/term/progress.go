package term

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

const progressEvery = 100 * time.Millisecond

// Progress is one line that says how far a long command is. A nil Progress prints nothing.
type Progress struct {
	t     *Terminal
	mu    sync.Mutex
	last  time.Time
	width int // of what the line shows
}

// NewProgress returns nil where no person is looking.
func (t *Terminal) NewProgress() *Progress {
	if t.file == nil {
		return nil
	}
	return &Progress{t: t}
}

// Update replaces the line, at most ten times a second.
func (p *Progress) Update(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) < progressEvery {
		return
	}
	p.last = time.Now()
	p.print(fmt.Sprintf(format, args...))
}

// Finish clears the line, and leaves a last one if there is something to say.
func (p *Progress) Finish(last string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(last)
	if last != "" {
		p.t.Printf("\n")
		return
	}
	_, _ = fmt.Fprint(p.t.w, "\r")
}

func (p *Progress) print(line string) {
	line = Clean(line)
	_, _ = fmt.Fprintf(p.t.w, "\r%s%s", line, strings.Repeat(" ", max(p.width-len(line), 0)))
	p.width = len(line)
}
