package listen

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// body bounds what a handler reads, in bytes and in time. What went wrong decides the
// answer, whatever the handler makes of the error: see answer.
type body struct {
	io.ReadCloser
	left    int64
	control *http.ResponseController
	held    *member // what of it is in memory; nil when it is not kept
	ended   atomic.Bool
	failure atomic.Pointer[problem]
}

var errBody = errors.New("the body is too large or too slow")

// leftovers is how long what a handler did not read may still take to come.
const leftovers = 2 * time.Second

func newBody(r *http.Request, control *http.ResponseController, limit int64, within time.Duration) *body {
	b := &body{ReadCloser: r.Body, left: limit, control: control}
	if r.Body == nil || r.Body == http.NoBody {
		b.ReadCloser = http.NoBody
		b.ended.Store(true)
		return b
	}
	_ = control.SetReadDeadline(time.Now().Add(within)) // what cannot have one is no network connection
	return b
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.failure.Load() != nil {
		return 0, errBody
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	switch {
	case b.left < 0:
		return 0, b.fail(&bigBody)
	case b.held != nil && !b.held.addWeight(int64(n)):
		return 0, b.fail(&tooMany)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, b.fail(&slowBody)
	case errors.Is(err, io.EOF):
		b.ended.Store(true) // and net/http takes the deadline back
	case err != nil:
		_ = b.fail(&brokenBody)
	}
	return n, err
}

// fail keeps the first failure.
func (b *body) fail(p *problem) error {
	b.failure.CompareAndSwap(nil, p)
	return errBody
}

// finish is for after the handler.
func (b *body) finish() {
	if !b.ended.Load() {
		_ = b.control.SetReadDeadline(time.Now().Add(leftovers))
	}
}
