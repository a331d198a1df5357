package export

import (
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/internal/modules/webhook/endpoint"
)

// The bounds of a window.
const (
	windowEvents = 1000
	windowBytes  = 4 << 20
)

// delivery is an event on its way to a receiver.
type delivery struct {
	position int64
	instance string
	seq      int64
	message  endpoint.Message

	tries     int
	firstTry  time.Time
	notBefore time.Time
	sending   bool
	finished  bool
}

// window are the events behind a cursor that were read and not all delivered: those of one
// instance one after the other, those of several side by side. It is not safe for concurrent use.
type window struct {
	read  int64       // the position up to which events were read
	open  []*delivery // by position; the first one is not finished
	next  map[string][]*delivery
	bytes int
}

func newWindow(position int64) *window {
	return &window{read: position, next: map[string][]*delivery{}}
}

func (w *window) isFull() bool { return len(w.open) >= windowEvents || w.bytes >= windowBytes }

func (w *window) add(d *delivery) {
	w.open = append(w.open, d)
	w.next[d.instance] = append(w.next[d.instance], d)
	w.bytes += len(d.message.Body)
}

// pick returns the delivery to start now, nil for none: the first of its instance that was
// tried least, so that one that fails keeps no other from its turn. wait is how long until there
// is one, 0 where only an event can bring one.
func (w *window) pick(now time.Time) (best *delivery, wait time.Duration) {
	for _, queue := range w.next {
		d := queue[0]
		switch {
		case d.sending:
		case d.notBefore.After(now):
			if left := d.notBefore.Sub(now); wait == 0 || left < wait {
				wait = left
			}
		case best == nil || d.tries < best.tries || d.tries == best.tries && d.position < best.position:
			best = d
		}
	}
	return best, wait
}

// finish lets what follows a delivery in its instance be sent.
func (w *window) finish(d *delivery) {
	d.finished = true
	if queue := w.next[d.instance][1:]; len(queue) > 0 {
		w.next[d.instance] = queue
	} else {
		delete(w.next, d.instance)
	}
	for len(w.open) > 0 && w.open[0].finished {
		w.bytes -= len(w.open[0].message.Body)
		w.open = slices.Delete(w.open, 0, 1)
	}
}

// passed is the position up to which nothing is left to deliver.
func (w *window) passed() int64 {
	if len(w.open) > 0 {
		return w.open[0].position - 1
	}
	return w.read
}
