package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Exit codes by which a worker says why it ended itself. ExitFatal is the Go
// runtime's own, for an allocation or a stack beyond the limits.
const (
	ExitFatal   = 2
	ExitMemory  = 7 // the watchdog saw the memory limit passed
	ExitStuck   = 8 // a call passed twice the hard limit; nobody killed us
	ExitRefused = 9 // the host does not speak this protocol
)

// cause is why a worker is gone.
type cause int32

const (
	alive      cause = iota
	outOfTime        // killed: a script passed the hard limit
	cancelled        // killed: the caller left
	discarded        // killed: recycled, or the pool closed
	outOfSpace       // ended itself or was ended by the runtime: memory
	garbled          // killed: it sent what is not an outcome
	crashed          // ended itself, for a reason that neither side knows of
	vanished         // somebody else killed it
)

func (c cause) String() string {
	return [...]string{"alive", "out of time", "cancelled", "discarded", "out of memory", "garbled", "crashed", "vanished"}[c]
}

// process is one worker. Its methods are for the one goroutine that holds it,
// except kill.
type process struct {
	cmd        *exec.Cmd
	in, out    *os.File
	errs       *os.File // what the runtime prints when it dies
	frame      []byte   // being written
	content    []byte   // being read
	lastID     uint32
	calls      int
	leaving    bool
	reads      bool // documents
	unhardened []string

	lastOutput string       // what it printed when it ended
	killed     atomic.Int32 // cause; the first one counts
	exited     chan struct{}
	timer      *time.Timer
	onMemory   func(memory int64)
}

// startProcess starts a worker and waits for its greeting. saw, unless nil, gets the
// memory that the worker used when it is killed.
func startProcess(ctx context.Context, path string, setup Setup, limit time.Duration, saw func(memory int64)) (*process, error) {
	p, err := spawnProcess(path)
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	p.onMemory = saw // before anybody can kill it
	stop := context.AfterFunc(ctx, func() { p.kill(cancelled) })
	defer stop()
	p.timer = time.AfterFunc(limit, func() { p.kill(outOfTime) })
	defer p.timer.Stop()
	if err := p.greet(setup); err != nil {
		p.kill(discarded)
		<-p.exited
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if p.readLastOutput(); p.lastOutput != "" {
			err = fmt.Errorf("%w (%s)", err, p.lastOutput)
		}
		p.release()
		return nil, fmt.Errorf("start worker %s: %w; its main must begin with worker.Main()", path, err)
	}
	return p, nil
}

// spawnProcess starts the process with nothing of ours: three pipes, no environment,
// no other descriptor, not our process group.
func spawnProcess(path string) (*process, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inR.Close(), inW.Close())
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inR.Close(), inW.Close(), outR.Close(), outW.Close())
	}
	cmd := &exec.Cmd{
		Path: path, Args: []string{WorkerName},
		Env:   append(systemEnv(), "TZ=UTC", "GOTRACEBACK=none", "GOMAXPROCS=2"),
		Dir:   rootDir(),
		Stdin: inR, Stdout: outW, Stderr: errW,
		SysProcAttr: newGroupAttr(),
	}
	err = cmd.Start()
	err = errors.Join(err, inR.Close(), outW.Close(), errW.Close())
	if err != nil {
		return nil, errors.Join(err, inW.Close(), outR.Close(), errR.Close())
	}
	p := &process{cmd: cmd, in: inW, out: outR, errs: errR, exited: make(chan struct{})}
	widenPipe(inW)
	go func() {
		_ = cmd.Wait() // the state is read from cmd.ProcessState
		close(p.exited)
	}()
	return p, nil
}

func (p *process) greet(setup Setup) error {
	raw, err := json.Marshal(setup)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(EndFrame(append(BeginFrame(nil), raw...))); err != nil {
		return fmt.Errorf("send limits: %w", err)
	}
	content, err := ReadFrame(p.out, nil, maxHello)
	if err != nil {
		return fmt.Errorf("no greeting: %w", err)
	}
	var hello Hello
	if err := json.Unmarshal(content, &hello); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if !hello.Ready {
		return errors.New("greeting: not a worker")
	}
	if hello.Version != Version {
		return fmt.Errorf("it speaks protocol %d, this program %d", hello.Version, Version)
	}
	p.reads = hello.Reads
	for _, name := range hello.Unhardened {
		p.unhardened = append(p.unhardened, Clean(name, MaxNote))
	}
	return nil
}

// ask sends a request and hands each outcome to accept as it comes. A cause other
// than alive means that the process is gone and that the first script without an
// outcome was running. The error explains causes that no script is charged for.
func (p *process) ask(ctx context.Context, q *Request, hard time.Duration, accept func(*Outcome)) (cause, error) {
	p.lastID++
	q.ID = p.lastID
	p.calls++
	p.frame = EndFrame(q.AppendTo(BeginFrame(p.frame)))
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { p.kill(cancelled) })
		defer func() { p.noteLateKill(stop()) }()
	}
	p.timer.Reset(hard)
	defer func() { p.noteLateKill(p.timer.Stop()) }()
	if _, err := p.in.Write(p.frame); err != nil {
		return p.awaitExit(vanished), fmt.Errorf("send request: %w", err)
	}
	next := 0
	for {
		var o Outcome
		var err error
		if p.content, err = ReadFrame(p.out, p.content[:0], MaxReplyFrame); err == nil {
			err = o.Decode(p.content)
		} else if !errors.Is(err, errFrame) || errors.Is(err, io.ErrUnexpectedEOF) {
			return p.awaitExit(vanished), fmt.Errorf("read outcome: %w", err)
		}
		if err == nil && (o.ID != q.ID || o.Index < next || o.Index >= max(len(q.Sources), 1)) {
			err = fmt.Errorf("%w: an outcome that was not asked for", errFrame)
		}
		if err != nil {
			p.kill(garbled)
			return p.awaitExit(garbled), fmt.Errorf("read outcome: %w", err)
		}
		next = o.Index + 1
		p.leaving = p.leaving || o.Leaving
		accept(&o)
		if o.Last || o.Leaving {
			return alive, nil
		}
		p.timer.Reset(hard)
	}
}

// noteLateKill retires the process when a kill was not called off in time: its death
// would be charged to the next script.
func (p *process) noteLateKill(inTime bool) {
	if !inTime {
		p.leaving = true
	}
}

// kill ends the process for a reason; the first reason counts. It does not wait.
func (p *process) kill(why cause) {
	if p.killed.CompareAndSwap(int32(alive), int32(why)) {
		if p.onMemory != nil {
			p.onMemory(peakMemory(p.cmd.Process.Pid))
		}
		_ = p.cmd.Process.Kill() // an error means that it has ended already
	}
}

// awaitExit waits for the process to end and says why it did: our reason for
// killing it, else what its exit status tells. A process that closed its pipes
// but lives is killed for the reason given.
func (p *process) awaitExit(lingers cause) cause {
	select {
	case <-p.exited: // it ended by itself: its status is the better witness
	case <-time.After(100 * time.Millisecond):
		p.kill(lingers)
		<-p.exited
	}
	p.readLastOutput()
	if why := cause(p.killed.Load()); why != alive {
		return why
	}
	switch code := p.cmd.ProcessState.ExitCode(); {
	case code == ExitMemory, code == ExitFatal && outOfMemory(p.lastOutput):
		return outOfSpace
	case code == ExitStuck:
		return outOfTime
	case code >= 0 || isFault(p.cmd.ProcessState):
		return crashed
	}
	return vanished
}

// readLastOutput reads what the process printed when it ended, as one short line.
func (p *process) readLastOutput() {
	buf := make([]byte, 1024)
	_ = p.errs.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	n, _ := io.ReadFull(p.errs, buf) // as much as there is
	p.lastOutput = strings.TrimSpace(Clean(string(buf[:n]), MaxNote))
}

// outOfMemory recognises the ways in which the Go runtime says that an allocation
// or the growth of a stack failed. By then it can say little else.
func outOfMemory(words string) bool {
	for _, sign := range []string{"out of memory", "cannot allocate memory", "stack exceeds", "stack overflow", "failed to create new OS thread"} {
		if strings.Contains(words, sign) {
			return true
		}
	}
	// Goroutine 0 is the runtime's own, which no script runs on: its garbage
	// collector reaches for memory that it was refused.
	return words == "" || strings.Contains(words, "SIGSEGV") && strings.Contains(words, "goroutine 0 ")
}

// release closes our ends of the pipes.
func (p *process) release() {
	_ = p.in.Close()
	_ = p.out.Close()
	_ = p.errs.Close()
}

// peakMemory is the greatest resident size so far of a living process, in bytes; 0 where
// the platform does not tell.
func peakMemory(pid int) int64 {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	kb, _ := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	return kb << 10
}
