// Package worker is the inside of the sandbox: a process that compiles and runs untrusted scripts one at a
// time. The host may kill it at any time.
//
// It promises:
//
//   - Each script starts in a fresh runtime with the clock, the random source and the time zone of its request.
//   - Results of scripts are not trusted: they are read by a fixed contract, and any other result is a
//     fault.
//
// It is the only package that contains a JavaScript interpreter. It must never be used in a process that has
// anything to lose; [Main] is its only entry point.
package worker

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// Main must be the first call of main or TestMain. It returns immediately unless the process was started as a
// script worker; then it serves requests and exits.
//
// read, if given, answers the documents of [script.Pool.Read]; only the first one is used. Without it, the
// worker reports that it does not read documents.
func Main(read ...func(request []byte) []byte) {
	if !script.IsWorker(os.Args) {
		script.MarkMain()
		return
	}
	prepareProcess()
	var reader func([]byte) []byte
	if len(read) > 0 {
		reader = read[0]
	}
	os.Exit(serveRequests(os.Stdin, os.Stdout, reader))
}

// serveRequests answers requests until the host closes the pipe. It returns the exit code of the process.
func serveRequests(in io.Reader, out io.Writer, read func([]byte) []byte) int {
	// One read call fetches the length and, for most requests, the whole content.
	r := bufio.NewReaderSize(in, 64<<10)
	setup, err := readSetup(r)
	if err != nil {
		return script.ExitRefused
	}
	prepareRuntime(setup)
	s := &server{out: out, eval: newEvaluator(setup), read: read}
	s.eval.warmUp()
	missing := applyProtections(setup)
	if err := s.sendHello(missing); err != nil {
		return script.ExitRefused
	}
	var content []byte
	for {
		content, err = script.ReadFrame(r, content, setup.MaxRequest)
		if err != nil {
			return 0 // the host closed the pipe or sent an invalid frame
		}
		if err := s.request.Decode(content); err != nil {
			return script.ExitRefused
		}
		answer := s.answerScripts
		if s.request.Op == script.OpRead {
			answer = s.answerDocument
		}
		if err := answer(); err != nil {
			return 0
		}
		if s.leaving {
			return 0
		}
	}
}

func readSetup(r io.Reader) (script.Setup, error) {
	var setup script.Setup
	content, err := script.ReadFrame(r, nil, 8<<10)
	if err != nil {
		return setup, err
	}
	err = json.Unmarshal(content, &setup)
	return setup, err
}

// prepareRuntime changes process-wide settings that do not depend on the kernel.
func prepareRuntime(setup script.Setup) {
	os.Clearenv()
	time.Local = time.UTC // scripts must not see the local time zone
	// Runaway recursion in native code ends the process at a fraction of Go's default limit of 1 GB.
	debug.SetMaxStack(int(setup.WorkerMemory / 2))
	debug.SetMemoryLimit(setup.WorkerMemory / 2) // soft limit: collect garbage harder before the hard limits
	debug.SetGCPercent(400)                      // the live heap is tiny between calls
	limitRegexps(setup)
}

// server holds the state that is reused between requests.
type server struct {
	out     io.Writer
	eval    *evaluator
	read    func([]byte) []byte // nil if the worker does not read documents
	request script.Request
	frame   []byte
	leaving bool
}

func (s *server) sendHello(missing []string) error {
	raw, err := json.Marshal(script.Hello{Version: script.Version, Ready: true, Reads: s.read != nil, Unhardened: missing})
	if err != nil {
		return err
	}
	return s.writeFrame(append(script.BeginFrame(s.frame), raw...))
}

func (s *server) writeFrame(frame []byte) error {
	s.frame = script.EndFrame(frame)
	_, err := s.out.Write(s.frame)
	return err
}

// answerScripts evaluates the request and sends each outcome immediately, so that the host knows which script
// was running if the process ends.
func (s *server) answerScripts() error {
	q := &s.request
	last := len(q.Sources) - 1
	for i := 0; i <= last; i++ {
		o := s.eval.evaluate(q, q.Sources[i])
		o.ID, o.Index = q.ID, i
		s.leaving = s.leaving || o.Code == script.Internal || s.eval.mustRecycle()
		stop := o.Code == script.BadInput
		schema := q.Op == script.OpRun && q.Sources[i].Kind == script.Schema
		route := !schema && i < q.Routes
		switch {
		case schema:
			stop = stop || !o.Valid
		case route:
			stop = stop || o.Code != script.OK || !o.Valid && i == q.Routes-1
		}
		o.Last = stop || i == last || route && o.Valid && q.Routes > last
		o.Leaving = s.leaving
		if err := s.writeFrame(o.AppendTo(script.BeginFrame(s.frame))); err != nil {
			return err
		}
		if o.Last || o.Leaving { // after an interpreter failure, another process must run the rest
			return nil
		}
		if route && o.Valid {
			i = q.Routes - 1 // skip the routes after the true one
		}
	}
	return nil
}

// answerDocument passes the request's document to the reader. It cannot be interrupted: if the reader takes
// too much time or memory, the process ends.
func (s *server) answerDocument() error {
	r := script.Report{ID: s.request.ID}
	r.Answer, r.Failed = s.readGuarded()
	if len(r.Answer) > script.MaxReport-128 {
		r.Answer, r.Failed = nil, true
	}
	s.leaving = s.leaving || r.Failed || s.eval.mustRecycle()
	r.Leaving = s.leaving
	return s.writeFrame(r.AppendTo(script.BeginFrame(s.frame)))
}

func (s *server) readGuarded() (answer []byte, failed bool) {
	s.eval.watch.begin(s.eval.setup.Read)
	defer s.eval.watch.end()
	defer func() {
		if recover() != nil {
			answer, failed = nil, true
		}
	}()
	if s.read == nil {
		return nil, true
	}
	return s.read(s.request.Data), false
}
