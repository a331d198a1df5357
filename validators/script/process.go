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

// Exit codes with which a worker explains why it exited. ExitFatal is the Go runtime's own code, for an
// allocation or a stack beyond the limits.
const (
	ExitFatal   = 2
	ExitMemory  = 7 // the watchdog found the memory limit exceeded
	ExitStuck   = 8 // a call exceeded twice the hard limit and the host did not kill the worker
	ExitRefused = 9 // the host does not use this protocol
)

// exitReason is why a worker exited.
type exitReason int32

const (
	alive       exitReason = iota
	outOfTime              // killed: a script passed the hard limit
	cancelled              // killed: the caller's context ended
	discarded              // killed: recycled, or the pool closed
	outOfMemory            // exited for lack of memory, or the Go runtime ended it
	garbled                // killed: it sent something other than the expected message
	crashed                // exited for an unknown reason
	vanished               // killed by something outside this program
)

func (r exitReason) String() string {
	return [...]string{"alive", "out of time", "cancelled", "discarded", "out of memory", "garbled", "crashed", "vanished"}[r]
}

// process is one worker. Only the goroutine that has leased it may call its methods, except kill.
type process struct {
	cmd        *exec.Cmd
	in, out    *os.File
	errs       *os.File // the runtime's output when it dies
	frame      []byte   // the frame being written
	content    []byte   // the content being read
	lastID     uint32
	calls      int
	idleSince  time.Time
	leaving    bool
	reads      bool // it answers OpRead
	unhardened []string

	lastOutput string       // what it printed when it died
	killed     atomic.Int32 // an exitReason; only the first one is stored
	exited     chan struct{}
	timer      *time.Timer
	onMemory   func(memory int64)
}

// startProcess starts a worker and waits for its greeting. saw, unless nil, is called with the worker's peak
// memory when it is killed.
func startProcess(ctx context.Context, path, name string, setup Setup, limit time.Duration, saw func(memory int64)) (*process, error) {
	p, err := spawnProcess(path, name)
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	p.onMemory = saw // before any kill
	stop := context.AfterFunc(ctx, func() { p.kill(cancelled) })
	defer stop()
	p.timer = time.AfterFunc(limit, func() { p.kill(outOfTime) })
	defer p.timer.Stop()
	if err := p.exchangeHello(setup); err != nil {
		p.kill(discarded)
		<-p.exited
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if p.readLastOutput(); p.lastOutput != "" {
			err = fmt.Errorf("%w (%s)", err, p.lastOutput)
		}
		p.closePipes()
		return nil, fmt.Errorf("start worker %s: %w; its main must begin with worker.Main(workflow.AnswerLintRequest)", path, err)
	}
	return p, nil
}

// spawnProcess starts the process with three pipes, in its own process group. It inherits nothing else: no
// environment and no other descriptor.
func spawnProcess(path, name string) (*process, error) {
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
		Path: path, Args: []string{name},
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
		_ = cmd.Wait() // the state is in cmd.ProcessState
		close(p.exited)
	}()
	return p, nil
}

func (p *process) exchangeHello(setup Setup) error {
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

// send sends a request. Until stop is called, the process is killed if ctx ends or the limit passes.
func (p *process) send(ctx context.Context, q *Request, limit time.Duration) (stop func(), err error) {
	p.lastID++
	q.ID = p.lastID
	p.calls++
	p.frame = EndFrame(q.AppendTo(BeginFrame(p.frame)))
	calledOff := func() bool { return true }
	if ctx.Done() != nil {
		calledOff = context.AfterFunc(ctx, func() { p.kill(cancelled) })
	}
	p.timer.Reset(limit)
	stop = func() {
		// The timer may have fired before its last Reset; killed then says so.
		if inTime := p.timer.Stop(); !calledOff() || !inTime || exitReason(p.killed.Load()) != alive {
			p.leaving = true // otherwise the next script would be charged for its death
		}
	}
	if _, err = p.in.Write(p.frame); err != nil {
		err = fmt.Errorf("send request: %w", err)
	}
	return stop, err
}

// receive reads one message. If it fails, the process has exited for the returned reason.
func (p *process) receive(buf []byte, limit int, decode func(content []byte) error) ([]byte, exitReason, error) {
	content, err := ReadFrame(p.out, buf, limit)
	if err == nil {
		err = decode(content)
	} else if !errors.Is(err, errFrame) || errors.Is(err, io.ErrUnexpectedEOF) {
		return content, p.awaitExit(vanished), fmt.Errorf("read answer: %w", err)
	}
	if err != nil {
		p.kill(garbled)
		return content, p.awaitExit(garbled), fmt.Errorf("read answer: %w", err)
	}
	return content, alive, nil
}

// requestOutcomes sends a request and calls accept with each outcome as it arrives. A reason other than alive
// means that the process has exited while it ran the first script without an outcome. The error explains
// reasons for which no script is charged.
func (p *process) requestOutcomes(ctx context.Context, q *Request, hard time.Duration, accept func(*Outcome)) (why exitReason, err error) {
	stop, err := p.send(ctx, q, hard)
	defer stop()
	if err != nil {
		return p.awaitExit(vanished), err
	}
	for next := 0; ; {
		var o Outcome
		p.content, why, err = p.receive(p.content[:0], MaxReplyFrame, func(content []byte) error {
			if err := o.Decode(content); err != nil {
				return err
			}
			if o.ID != q.ID || o.Index < next || o.Index >= max(len(q.Sources), 1) {
				return fmt.Errorf("%w: an outcome that was not asked for", errFrame)
			}
			return nil
		})
		if err != nil {
			return why, err
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

// kill ends the process for a reason; only the first reason counts. It does not wait.
func (p *process) kill(why exitReason) {
	if p.killed.CompareAndSwap(int32(alive), int32(why)) {
		if p.onMemory != nil {
			p.onMemory(peakMemory(p.cmd.Process.Pid))
		}
		_ = p.cmd.Process.Kill() // an error means that it has exited already
	}
}

// awaitExit waits for the process to exit and returns the reason: the one given to kill, if any, or else
// the one that its exit status implies. A process that closed its pipes but is still running is killed with
// the reason lingers.
func (p *process) awaitExit(lingers exitReason) exitReason {
	select {
	case <-p.exited: // its own exit status is more precise
	case <-time.After(100 * time.Millisecond):
		p.kill(lingers)
		<-p.exited
	}
	p.readLastOutput()
	if why := exitReason(p.killed.Load()); why != alive {
		return why
	}
	switch code := p.cmd.ProcessState.ExitCode(); {
	case code == ExitMemory, code == ExitFatal && isOutOfMemoryText(p.lastOutput):
		return outOfMemory
	case code == ExitStuck:
		return outOfTime
	case code >= 0 || isFault(p.cmd.ProcessState):
		return crashed
	}
	return vanished
}

// readLastOutput reads what the process printed when it exited, as one short line.
func (p *process) readLastOutput() {
	buf := make([]byte, 1024)
	_ = p.errs.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	n, _ := io.ReadFull(p.errs, buf) // as much as is available
	p.lastOutput = strings.TrimSpace(Clean(string(buf[:n]), MaxNote))
}

// isOutOfMemoryText recognises the messages of the Go runtime for a failed allocation or stack growth. The
// runtime often cannot print more at that point.
func isOutOfMemoryText(words string) bool {
	for _, sign := range []string{"out of memory", "cannot allocate memory", "stack exceeds", "stack overflow", "failed to create new OS thread"} {
		if strings.Contains(words, sign) {
			return true
		}
	}
	// Goroutine 0 is the runtime's own; no script runs on it. It faults if the garbage collector accesses
	// memory that the system denied.
	return words == "" || strings.Contains(words, "SIGSEGV") && strings.Contains(words, "goroutine 0 ")
}

// closePipes closes this process's ends of the pipes.
func (p *process) closePipes() {
	_ = p.in.Close()
	_ = p.out.Close()
	_ = p.errs.Close()
}

// peakMemory returns the largest resident size so far of a running process, in bytes. It returns 0 if the
// platform does not report it.
func peakMemory(pid int) int64 {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	kb, _ := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	return kb << 10
}
