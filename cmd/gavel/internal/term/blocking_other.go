//go:build !unix

package term

import "io"

// BlockingReader returns in: here no other process can make it non-blocking.
func BlockingReader(in io.Reader) io.Reader { return in }

// BlockingWriter returns out, likewise.
func BlockingWriter(out io.Writer) io.Writer { return out }
