package upstream

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

func newTestServer(t *testing.T) *server {
	t.Helper()
	m, err := Open(Config{Servers: map[string]Server{"a": {Command: []string{"x"}}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m.servers["a"]
}

// A principal whose calls get no answer is delayed, longer each time. Others are delayed only if their calls get no
// answer either, and no call of anyone was answered since.
func TestUnansweredCallsDelayTheirPrincipal(t *testing.T) {
	late, lost := &linkError{code: CodeTimeout}, &linkError{code: CodeLost}
	type call struct {
		of  string
		err error
	}
	repeat := func(c call, n int) []call { return slices.Repeat([]call{c}, n) }
	for name, c := range map[string]struct {
		calls []call
		waits string // which of ann, bob and cid are delayed
	}{
		"too few":                      {repeat(call{"ann", late}, 2), ""},
		"one alone":                    {repeat(call{"ann", late}, 30), "ann"},
		"one alone, lost":              {repeat(call{"ann", lost}, 30), "ann"},
		"one, and others are answered": {slices.Concat(repeat(call{"ann", late}, 5), []call{{"bob", nil}}, repeat(call{"ann", late}, 5)), "ann"},
		"two":                          {slices.Concat([]call{{"bob", late}}, repeat(call{"ann", late}, 3)), "ann bob cid"},
		"two, but one was answered":    {slices.Concat([]call{{"bob", late}, {"bob", nil}}, repeat(call{"ann", late}, 3)), "ann"},
		"two, but a third was":         {slices.Concat([]call{{"bob", late}, {"cid", nil}}, repeat(call{"ann", late}, 3)), "ann"},
		"answered at last":             {slices.Concat([]call{{"bob", late}}, repeat(call{"ann", late}, 3), []call{{"ann", nil}}), ""},
		"refused is not unanswered":    {repeat(call{"ann", &Error{Code: CodeGateClosed}}, 9), ""},
		"nonsense is an answer":        {slices.Concat(repeat(call{"ann", late}, 3), []call{{"ann", errTask}}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestServer(t)
				for _, c := range c.calls {
					var err error
					if c.err != nil {
						err = c.err
					}
					s.noteOutcome(engine.Principal{ID: c.of}, err)
				}
				for round := range 2 {
					waits := ""
					for _, id := range []string{"ann", "bob", "cid"} {
						leave, err := s.acquireSlot(engine.Principal{ID: id})
						if err == nil {
							leave()
						} else {
							waits = fmt.Sprint(waits, " ", id)
						}
					}
					if want := c.waits; round == 0 && waits != "" && waits[1:] != want || round == 0 && waits == "" && want != "" || round == 1 && waits != "" {
						t.Errorf("round %d: %q wait", round, waits)
					}
					<-time.After(maxBackoff)
				}
			})
		})
	}
}

// One principal may use half of the calls in flight; others can use the rest.
func TestHalfOfTheCallsInFlight(t *testing.T) {
	s := newTestServer(t)
	count := func(id string) (n int, last error) {
		for last == nil {
			if _, last = s.acquireSlot(engine.Principal{ID: id}); last == nil {
				n++
			}
		}
		return n, last
	}
	n, err := count("ann")
	if n != maxInFlight/2 || codeOf(err) != CodeBusy {
		t.Errorf("one holds %d of %d: %v", n, maxInFlight, err)
	}
	if n, _ := count("bob"); n != maxInFlight/2 {
		t.Errorf("another holds %d", n)
	}
}
