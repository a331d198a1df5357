package main

import "fmt"

// The exit codes, the same for every command.
const (
	exitFine    = 0 // all is well
	exitBad     = 1 // the thing that was checked is bad
	exitUsage   = 2 // wrong usage or configuration
	exitUnknown = 3 // could not find out
	exitWorse   = 4 // significantly worse than the baseline
)

// failure is an error with its exit code and what to do about it.
type failure struct {
	code int
	err  error // nil when the command has already printed what was found
	hint string
	// lines come before the sentence: one per mistake, where there can be many.
	lines []string
}

func (f *failure) Error() string {
	if f.err == nil {
		return "failed"
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// found ends a check that printed its findings and found the thing bad.
func found() error { return &failure{code: exitBad} }

// misused is a mistake in how gavel was called or configured.
func misused(hint, format string, args ...any) error {
	return &failure{code: exitUsage, hint: hint, err: fmt.Errorf(format, args...)}
}

// unclear is for what could not be found out: the disk, the store, the server.
func unclear(hint, format string, args ...any) error {
	return &failure{code: exitUnknown, hint: hint, err: fmt.Errorf(format, args...)}
}
