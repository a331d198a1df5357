package worker

import "github.com/gavel-mcp/gavel/validators/script"

// answerDocument has the reader answer the request's document. Nothing can interrupt it: what
// takes too long or too much memory ends with the process.
func (s *server) answerDocument() error {
	r := script.Report{ID: s.request.ID}
	r.Answer, r.Failed = s.readGuarded()
	if len(r.Answer) > script.MaxReport-64 {
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
