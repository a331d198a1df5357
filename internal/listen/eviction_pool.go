package listen

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// evictionPool limits things that can be taken from their holders: connections without a request, requests that have not
// begun, bytes of their bodies. When it is full, the holder with the most loses what it has held longest. No holder
// therefore keeps more than half while another one arrives, and a holder with little loses nothing because of others.
type evictionPool struct {
	limit int64

	mu      sync.Mutex
	total   int64
	clock   uint64
	evicted uint64
	holders map[string]*holder
}

// holder is the owner of members: a principal, or an address before authentication.
type holder struct {
	members int
	sum     int64
	loose   *simplelru.LRU[*member, uint64] // members that can be evicted, with their turns
}

// member is one thing that is held. Its methods may be called after it has left.
type member struct {
	pool      *evictionPool
	evict     func() // called once it is out, without holding the lock
	key       string
	weight    int64
	pins      int
	isRemoved bool
}

func newEvictionPool(limit int64) *evictionPool {
	return &evictionPool{limit: limit, holders: map[string]*holder{}}
}

// join adds a member. It returns false if no other member can be evicted for it.
func (p *evictionPool) join(key string, weight int64, evict func()) (*member, bool) {
	m := &member{pool: p, key: key, weight: weight, evict: evict}
	p.mu.Lock()
	victims, ok := p.evictFor(key, weight, nil)
	if ok {
		p.add(m)
	} else {
		m.isRemoved = true
	}
	p.mu.Unlock()
	evictAll(victims)
	return m, ok
}

// evictOne evicts a member, if there is one.
func (p *evictionPool) evictOne() {
	p.mu.Lock()
	v := p.pickVictim("", 0)
	if v != nil {
		p.remove(v)
		p.evicted++
	}
	p.mu.Unlock()
	if v != nil {
		v.evict()
	}
}

func (p *evictionPool) stats() (total int64, evicted uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total, p.evicted
}

// addWeight increases the weight of a member. It returns false if this member would be the next to be evicted, or is
// already out.
func (m *member) addWeight(weight int64) bool {
	c := m.pool
	c.mu.Lock()
	ok := !m.isRemoved
	var victims []*member
	if ok {
		if victims, ok = c.evictFor(m.key, weight, m); ok {
			m.weight += weight
			c.total += weight
			c.holders[m.key].sum += weight
		}
	}
	c.mu.Unlock()
	evictAll(victims)
	return ok
}

func (m *member) holder() string {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.key
}

func (m *member) setHolder(key string) {
	c := m.pool
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.isRemoved || m.key == key {
		return
	}
	c.remove(m)
	m.key, m.isRemoved = key, false
	c.add(m)
}

// renew marks a member as the most recently held.
func (m *member) renew() {
	c := m.pool
	c.mu.Lock()
	defer c.mu.Unlock()
	if !m.isRemoved && m.pins == 0 {
		c.renew(m)
	}
}

// pin keeps a member from being evicted until unpin is called. It returns false if the member is out.
func (m *member) pin() bool {
	c := m.pool
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.isRemoved {
		return false
	}
	m.pins++
	c.holders[m.key].loose.Remove(m)
	return true
}

func (m *member) unpin() {
	c := m.pool
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.pins--; m.pins == 0 && !m.isRemoved {
		c.renew(m)
	}
}

// leave removes a member. It returns false if the member was already out.
func (m *member) leave() bool {
	c := m.pool
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.isRemoved {
		return false
	}
	c.remove(m)
	return true
}

func evictAll(victims []*member) {
	for _, v := range victims {
		v.evict()
	}
}

// The functions below require c.mu.

// evictFor removes members until the additional weight fits. It returns false if there are none, or if the next one
// would be except.
func (p *evictionPool) evictFor(key string, weight int64, except *member) (victims []*member, ok bool) {
	for p.total+weight > p.limit {
		v := p.pickVictim(key, weight)
		if v == nil || v == except {
			return victims, false
		}
		p.remove(v)
		p.evicted++
		victims = append(victims, v)
	}
	return victims, true
}

// pickVictim returns the member to evict so that a holder can get more weight: the longest-held member of the holder
// that would then have the most. Between equal holders, the longest-held member is chosen.
func (p *evictionPool) pickVictim(key string, weight int64) *member {
	var next *member
	var most int64
	var first uint64
	for k, h := range p.holders {
		sum := h.sum
		if k == key {
			sum += weight
		}
		m, turn, ok := h.loose.GetOldest()
		if ok && (next == nil || sum > most || sum == most && turn < first) {
			next, most, first = m, sum, turn
		}
	}
	return next
}

func (p *evictionPool) add(m *member) {
	h := p.holders[m.key]
	if h == nil {
		h = &holder{}
		h.loose, _ = simplelru.NewLRU[*member, uint64](math.MaxInt, nil) // an error is only possible for a size below 1
		p.holders[m.key] = h
	}
	h.members++
	h.sum += m.weight
	p.total += m.weight
	if m.pins == 0 {
		p.renew(m)
	}
}

func (p *evictionPool) remove(m *member) {
	m.isRemoved = true
	h := p.holders[m.key]
	h.loose.Remove(m)
	h.sum -= m.weight
	p.total -= m.weight
	if h.members--; h.members == 0 {
		delete(p.holders, m.key)
	}
}

func (p *evictionPool) renew(m *member) {
	p.clock++
	p.holders[m.key].loose.Add(m, p.clock)
}
