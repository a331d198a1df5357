//go:build !unix

package term

import (
	"io"
)

// BlockingReader returns in: here no other process can make it non-blocking.
func BlockingReader(in io.Reader) io.Reader { return in }

// BlockingWriter returns out, likewise.
func BlockingWriter(out io.Writer) io.Writer { return out }

// width returns 0: the columns of the terminal are not known here.
func (t *Terminal) width() int { return 0 }
