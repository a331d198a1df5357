package script

// WorkerPIDs are the processes of the pool, for tests that kill them.
func (p *Pool) WorkerPIDs() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pids []int
	for w := range p.procs {
		pids = append(pids, w.cmd.Process.Pid)
	}
	return pids
}

// Idle is how many workers wait for a call of Run.
func (p *Pool) Idle() int {
	p.eval.mu.Lock()
	defer p.eval.mu.Unlock()
	return len(p.eval.idle)
}
