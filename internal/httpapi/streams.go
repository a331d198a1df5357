package httpapi

import (
	"sync"

	"github.com/gavel-mcp/gavel/engine"
)

// streams counts the open streams of each principal.
type streams struct {
	each int

	mu   sync.Mutex
	by   map[string]int
	open int
}

func newStreams(each int) *streams {
	return &streams{each: each, by: map[string]int{}}
}

// enter counts one more stream, until done is called.
func (s *streams) enter(principal string) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[principal] >= s.each {
		return nil, &engine.Error{
			Code: engine.CodeTooManyStreams, Message: "You have as many event streams open as you may.",
			Hint: "Close one, or read events as pages.",
		}
	}
	s.by[principal]++
	s.open++
	return sync.OnceFunc(func() { s.leave(principal) }), nil
}

func (s *streams) leave(principal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.by[principal]--; s.by[principal] == 0 {
		delete(s.by, principal)
	}
}

// OpenStreams is how many event streams are open.
func (h *Handler) OpenStreams() int {
	h.streams.mu.Lock()
	defer h.streams.mu.Unlock()
	return h.streams.open
}
