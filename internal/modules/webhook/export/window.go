package export

import (
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/internal/modules/webhook/endpoint"
)

// Limits of a window.
const (
	windowEvents = 1000
	windowBytes  = 4 << 20
)

// delivery is an event that is being delivered to a receiver.
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

// window holds the events after a cursor that were read but not all delivered. Events of the same instance are sent
// one after another, those of different instances in parallel. It is not safe for concurrent use.
type window struct {
	read  int64       // events were read up to this position
	open  []*delivery // by position; the first is not finished
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

// pick returns the delivery to start now, or nil. It prefers the instance whose first delivery has the fewest tries,
// so that a failing one does not hold up others. wait is the time until a delivery is due; 0 if only an event can
// make one due.
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

// finish allows the next delivery of the same instance.
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

// passed returns the position up to which nothing is left to deliver.
func (w *window) passed() int64 {
	if len(w.open) > 0 {
		return w.open[0].position - 1
	}
	return w.read
}
