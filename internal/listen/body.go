package listen

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// body limits what a handler reads, in bytes and in time. Its failure determines the answer, however the handler
// treats the error (see answer).
type body struct {
	io.ReadCloser
	left    int64
	control *http.ResponseController
	held    *member // its bytes in memory; nil if they are not kept
	ended   atomic.Bool
	failure atomic.Pointer[problem]
}

var errBody = errors.New("the body is too large or too slow")

// drainTimeout is how long the unread rest of a body may still take to arrive.
const drainTimeout = 2 * time.Second

func newBody(r *http.Request, control *http.ResponseController, limit int64, within time.Duration) *body {
	b := &body{ReadCloser: r.Body, left: limit, control: control}
	if r.Body == nil || r.Body == http.NoBody {
		b.ReadCloser = http.NoBody
		b.ended.Store(true)
		return b
	}
	_ = control.SetReadDeadline(time.Now().Add(within)) // only fails for non-network connections
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
		b.ended.Store(true) // net/http then removes the deadline
	case err != nil:
		_ = b.fail(&brokenBody)
	}
	return n, err
}

// fail records the first failure.
func (b *body) fail(p *problem) error {
	b.failure.CompareAndSwap(nil, p)
	return errBody
}

// finish is called after the handler has returned.
func (b *body) finish() {
	if !b.ended.Load() {
		_ = b.control.SetReadDeadline(time.Now().Add(drainTimeout))
	}
}
