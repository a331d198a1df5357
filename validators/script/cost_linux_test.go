package script_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gavel-mcp/gavel/validators/script"
)

func init() { workerTime = sumWorkerTime }

func sumWorkerTime(p *script.Pool) time.Duration {
	for {
		ended := endedTime()
		sum := ended
		for _, pid := range p.WorkerPIDs() {
			sum += processTime(pid)
		}
		if endedTime() == ended { // otherwise a process may be counted twice, or not at all
			return sum
		}
	}
}

// endedTime returns the processor time of all child processes that have been reaped.
func endedTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// processTime returns the processor time of a process, or 0 if it has ended.
func processTime(pid int) time.Duration {
	var spent unix.Timespec
	if unix.ClockGettime(int32(^pid)<<3|2, &spent) != nil { //nolint:gosec // clock_getcpuclockid(3)
		return 0
	}
	return time.Duration(spent.Nano())
}

// A worker's processor time counts while it runs and after it has ended.
func TestWorkerTimeIsCounted(t *testing.T) {
	p := newPool(t, script.Config{})
	before := workerTime(p)
	work := script.Batch{Caller: "op", Owner: script.Owner{ID: "op"}, Validators: []script.Script{{
		Name: "s", Kind: script.Validator, Source: "() => { for (let i = 0; i < 1000; i++); return true }",
	}}}
	if r, err := p.Run(t.Context(), work); err != nil || len(r.Results) != 1 || r.Results[0].Code != script.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	spent := workerTime(p) - before
	pids := p.WorkerPIDs()
	if len(pids) == 0 || processTime(pids[0]) <= 0 || spent < processTime(pids[0])/2 {
		t.Fatalf("%v for the work of %d workers", spent, len(pids))
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if after := workerTime(p) - before; after < spent {
		t.Errorf("%v, and %v when the worker has ended", spent, after)
	}
}
