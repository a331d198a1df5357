package term

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes, the same for every command.
const (
	ExitOK         = 0 // success
	ExitBad        = 1 // a check failed
	ExitUsage      = 2 // invalid usage or configuration
	ExitUnknown    = 3 // the result could not be determined
	ExitRegression = 4 // significantly worse than the baseline
	ExitIncomplete = 5 // no problem found, but a part could not be measured
)

// ExitError is an error with an exit code and a hint.
type ExitError struct {
	Code int
	Err  error // nil if the command has already printed its findings
	Hint string
	// Lines are printed before the error, one for each mistake.
	Lines []string
	// Reason is a stable code for programs, or "".
	Reason string
}

// ErrBad is returned by a check that has already printed its findings.
var ErrBad error = &ExitError{Code: ExitBad}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return "failed"
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// UsageErrorf returns an error in how gavel was called or configured; hint may be "".
func UsageErrorf(hint, format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// UnknownErrorf returns an error for a result that could not be determined, because of the disk, the store or the
// server; hint may be "".
func UnknownErrorf(hint, format string, args ...any) error {
	return &ExitError{Code: ExitUnknown, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// PrintError prints an error after its lines and its hint, so that the last line is the verdict. It returns the exit
// code.
func (t *Terminal) PrintError(err error) int {
	var f *ExitError
	if !errors.As(err, &f) {
		f = &ExitError{Code: ExitUnknown, Err: err}
	}
	if f.Err == nil {
		return f.Code
	}
	for _, line := range f.Lines {
		t.Printf("%s\n", line)
	}
	if f.Hint != "" {
		t.Printf("%s %s\n", t.Dim("  hint:"), f.Hint)
	}
	t.Printf("%s %s\n", t.Red("gavel:"), strings.TrimSpace(f.Err.Error()))
	return f.Code
}

// PrintErrorJSON is like PrintError, but prints one line of JSON for programs.
func (t *Terminal) PrintErrorJSON(err error) int {
	f, ok := errors.AsType[*ExitError](err)
	if !ok {
		f = &ExitError{Code: ExitUnknown, Err: err}
	}
	if f.Err == nil {
		return f.Code
	}
	type failure struct {
		Code     string   `json:"code,omitempty"`
		Message  string   `json:"message"`
		Hint     string   `json:"hint,omitempty"`
		Mistakes []string `json:"mistakes,omitempty"`
		Exit     int      `json:"exit"`
	}
	var line strings.Builder
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(map[string]failure{"error": {f.Reason, strings.TrimSpace(f.Err.Error()), f.Hint, f.Lines, f.Code}}) // strings and a number always encode
	_, _ = io.WriteString(t.w, EscapeJSON(line.String()))
	return f.Code
}

// AddWriteError returns err, or an error if some output of t was lost: a result that could not be printed is not a
// success.
func (t *Terminal) AddWriteError(err error) error {
	lost := t.w.firstError()
	if lost == nil {
		return err
	}
	if err == nil {
		return UnknownErrorf("", "the answer could not be written: %w", lost)
	}
	if f := new(ExitError); errors.As(err, &f) && f.Err == nil { // the error's own findings were already printed
		return &ExitError{Code: f.Code, Err: fmt.Errorf("the findings could not be written: %w", lost)}
	}
	return err
}
