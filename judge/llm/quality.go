package llm

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// quality counts usable answers per caller and stops asking for a caller whose answers
// mostly are not: its data may confuse the model, and each try costs money. Other
// callers do not wait.
type quality struct {
	mu      sync.Mutex
	callers *callerMap[callerQuality]
}

// A caller is not asked for when so many of its last answers, of at least so many, were
// unusable.
const (
	qualityShare  = 0.5
	qualityMin    = 6
	qualityWindow = 20
	qualityLatch  = time.Minute
)

type callerQuality struct {
	poor    []bool // the last answers, oldest first
	until   time.Time
	probing bool
}

// maxCallers limits the records by caller; the least recently seen one goes.
const maxCallers = 4096

// callerMap has a record for each caller; its owner locks it.
type callerMap[V any] struct {
	*simplelru.LRU[string, *V]
	create func() *V
}

func newCallerMap[V any](create func() *V) *callerMap[V] {
	records, err := simplelru.NewLRU[string, *V](maxCallers, nil)
	if err != nil {
		panic(err) // only for a size below one
	}
	return &callerMap[V]{records, create}
}

func (m *callerMap[V]) recordOf(name string) *V {
	if v, ok := m.Get(name); ok {
		return v
	}
	v := m.create()
	m.Add(name, v)
	return v
}

func newQuality() *quality {
	return &quality{callers: newCallerMap(func() *callerQuality { return &callerQuality{} })}
}

// enter returns an error for a caller that must wait, or whether its question probes.
func (q *quality) enter(name string) (probes bool, refusal *Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.callers.recordOf(name)
	if c.until.IsZero() {
		return false, nil
	}
	left := time.Until(c.until)
	if left <= 0 && !c.probing {
		c.probing = true
		return true, nil
	}
	return false, &Error{
		Class: ClassQuality, RetryAfter: max(left, time.Second),
		Message: "most of the model's recent answers to this caller were unusable, so it is not asked for a while",
		Advice:  "send shorter, plainer data; gavel judge doctor says whether the model is to blame",
	}
}

func (q *quality) leave(name string, probed bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.callers.recordOf(name)
	if probed {
		c.probing = false
	}
	poor := ClassOf(err).Traits().Poor
	if err != nil && !poor {
		return // it says nothing about answers
	}
	if probed && !poor {
		c.until, c.poor = time.Time{}, nil
		return
	}
	c.poor = append(c.poor, poor)
	if len(c.poor) > qualityWindow {
		c.poor = c.poor[1:]
	}
	bad := 0
	for _, p := range c.poor {
		if p {
			bad++
		}
	}
	if probed || len(c.poor) >= qualityMin && poor && float64(bad) >= qualityShare*float64(len(c.poor)) {
		c.until = time.Now().Add(qualityLatch)
	}
}

func (q *quality) countLatched() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, c := range q.callers.Values() {
		if time.Until(c.until) > 0 {
			n++
		}
	}
	return n
}

func withQuality(next Completer, q *quality) Completer {
	return withGuard(next, q.enter, q.leave)
}
