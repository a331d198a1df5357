// Package worker is the inside of the sandbox: a process that compiles and runs
// one stranger's script after the other and may be killed at any moment.
//
// It is the only package that contains a JavaScript interpreter. It promises that
// each script starts in a fresh runtime with the clock, random source and time
// zone of its request, and that nothing it returns is believed: the answer is
// read by a fixed contract and anything else is a fault. It must never be used in
// a process that has something to lose; [Main] is its only entry.
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

// Main must be the first thing that main, or TestMain, calls. It returns at once
// unless the process was started as a script worker; then it serves and exits.
//
// read, where one is given, answers the documents of [script.Pool.Read]; of several
// the first counts. Without one, the worker says that it reads none.
func Main(read ...func(request []byte) []byte) {
	if !script.IsWorker(os.Args) {
		script.SeeMain()
		return
	}
	prepareProcess()
	var reader func([]byte) []byte
	if len(read) > 0 {
		reader = read[0]
	}
	os.Exit(serveRequests(os.Stdin, os.Stdout, reader))
}

// serveRequests answers requests until the host closes its end. The result is the
// process's exit code.
func serveRequests(in io.Reader, out io.Writer, read func([]byte) []byte) int {
	// One read call fetches the length and, for most requests, all the rest.
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
			return 0 // the host closed, or is not our host
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

// prepareRuntime sets what belongs to the whole process and needs no help from
// the kernel.
func prepareRuntime(setup script.Setup) {
	os.Clearenv()
	time.Local = time.UTC // a script must not see where it runs
	// Runaway recursion in native code ends the process at a fraction of what the
	// Go default of 1 GB would allow.
	debug.SetMaxStack(int(setup.WorkerMemory / 2))
	debug.SetMemoryLimit(setup.WorkerMemory / 2) // soft: collect harder before the hard limits
	debug.SetGCPercent(400)                      // the live heap is tiny between calls
	limitRegexps(setup)
}

// server holds what is reused between requests.
type server struct {
	out     io.Writer
	eval    *evaluator
	read    func([]byte) []byte // nil: it reads no documents
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

// answerScripts evaluates the request and sends each outcome as soon as it is known, so
// that if a script ends this process the host knows which one it was.
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
		if o.Last || o.Leaving { // after a failure of the interpreter the rest belongs in another process
			return nil
		}
		if route && o.Valid {
			i = q.Routes - 1 // the routes behind it are not asked
		}
	}
	return nil
}

// answerDocument has the reader answer the request's document. Nothing can interrupt it: what
// takes too long or too much memory ends with the process.
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
