package term

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The exit codes, the same for every command.
const (
	ExitOK         = 0 // all is well
	ExitBad        = 1 // what was checked is bad
	ExitUsage      = 2 // wrong usage or configuration
	ExitUnknown    = 3 // could not find out
	ExitRegression = 4 // significantly worse than the baseline
	ExitIncomplete = 5 // fine as far as it goes: a part could not be measured
)

// ExitError is an error with its exit code and what to do about it.
type ExitError struct {
	Code int
	Err  error // nil when the command has already printed its findings
	Hint string
	// Lines are printed before the error: one for each mistake, where there can be many.
	Lines []string
	// Reason is the stable code of what went wrong, where there is one; for programs.
	Reason string
}

// ErrBad ends a check that has printed what is bad.
var ErrBad error = &ExitError{Code: ExitBad}

func (f *ExitError) Error() string {
	if f.Err == nil {
		return "failed"
	}
	return f.Err.Error()
}

func (f *ExitError) Unwrap() error { return f.Err }

// UsageErrorf reports a mistake in how gavel was called or configured; hint may be "".
func UsageErrorf(hint, format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// UnknownErrorf reports that something could not be found out, because of the disk, the
// store or the server; hint may be "".
func UnknownErrorf(hint, format string, args ...any) error {
	return &ExitError{Code: ExitUnknown, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// PrintError prints an error behind its lines and its hint, and returns its exit code: the last
// line is the verdict.
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

// PrintErrorJSON prints what PrintError does for a program: as one line of JSON.
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

// AddWriteError returns err, or the reason why some output of t was lost: an answer that
// did not arrive is no success.
func (t *Terminal) AddWriteError(err error) error {
	lost := t.w.firstError()
	if lost == nil {
		return err
	}
	if err == nil {
		return UnknownErrorf("", "the answer could not be written: %w", lost)
	}
	if f := new(ExitError); errors.As(err, &f) && f.Err == nil { // all that it had to say was printed
		return &ExitError{Code: f.Code, Err: fmt.Errorf("the findings could not be written: %w", lost)}
	}
	return err
}
