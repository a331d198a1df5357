package script

// WorkerPIDs returns the process ids of the pool's workers, for tests that kill them.
func (p *Pool) WorkerPIDs() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pids []int
	for w := range p.procs {
		pids = append(pids, w.cmd.Process.Pid)
	}
	return pids
}

// Idle returns how many workers for Run are idle.
func (p *Pool) Idle() int {
	p.eval.mu.Lock()
	defer p.eval.mu.Unlock()
	return len(p.eval.idle)
}
