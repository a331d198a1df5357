//go:build !unix

package term

import (
	"io"
)

// BlockingReader returns in unchanged: on this system, no other process can make it non-blocking.
func BlockingReader(in io.Reader) io.Reader { return in }

// BlockingWriter returns out unchanged, for the same reason.
func BlockingWriter(out io.Writer) io.Writer { return out }

// width returns 0: the terminal's width is not known on this system.
func (t *Terminal) width() int { return 0 }
