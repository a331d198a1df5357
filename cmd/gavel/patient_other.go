//go:build !unix

package main

import "io"

// patientReader is in: here nobody else can turn it non-blocking.
func patientReader(in io.Reader) io.Reader { return in }

// patientWriter is out, likewise.
func patientWriter(out io.Writer) io.Writer { return out }
