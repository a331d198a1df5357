package engine

// Waiting counts the scopes in which somebody has a turn or waits for one.
func (e *Engine) Waiting() int {
	n := 0
	for _, w := range []*waiters{e.keys, e.guards} {
		w.mu.Lock()
		n += len(w.m)
		w.mu.Unlock()
	}
	return n
}
