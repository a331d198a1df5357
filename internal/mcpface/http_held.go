package mcpface

// Held is how many sessions and streams are open.
func (e *Endpoint) Held() int { return e.sessions.quota.held() + e.streams.held() }

func (q *quota) held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}
