package module

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/eval"
)

// Reports are the reports of gavel eval run that compare runs, or show every case.
type Reports interface {
	// CheckSame rejects a comparison of runs if a case has a different right outcome.
	CheckSame(before, after eval.Measurement) error
	// Compare compares a run with an earlier one.
	Compare(before, after eval.Measurement) (*eval.BaselineResult, error)
	// Tables returns the tables that show a comparison.
	Tables(*eval.BaselineResult) ([]eval.Grid, error)
	// HTML writes the page of a run.
	HTML(io.Writer, eval.Measurement) error
	// Matrix reports on several judges of the same cases. ReadMatrix reads a file with such a report.
	Matrix([]eval.Cell) (Renderings, eval.Conclusion, error)
	ReadMatrix(io.Reader) (Renderings, error)
}

// FindReports returns the reports of a module; nil if there are none.
func FindReports() Reports {
	for _, m := range modules {
		if m.Reports != nil {
			return m.Reports
		}
	}
	return nil
}

// Renderings are the functions that write a report, by file extension.
type Renderings map[string]func(io.Writer) error

// WriteFiles writes the report to files.
func (r Renderings) WriteFiles(paths []string) error {
	for _, path := range paths {
		var b bytes.Buffer
		extension := filepath.Ext(path)
		if err := r[extension](&b); err != nil {
			return err
		}
		text := b.String()
		if extension == ".txt" { // it may be printed on a terminal
			text = term.CleanLines(text)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return term.UnknownErrorf("", "cannot write the report: %w", err)
		}
	}
	return nil
}

// Finish writes the report to files, prints its text, and returns the exit error for its conclusion. It writes the files
// first: the reader of the text may close the pipe, which ends this program.
func (r Renderings) Finish(to *term.Terminal, files []string, c eval.Conclusion) error {
	if err := errors.Join(r.WriteFiles(files), r.Print(to)); err != nil {
		return err
	}
	return ExitWith(c)
}

// Print prints the text of the report.
func (r Renderings) Print(to *term.Terminal) error {
	var b bytes.Buffer
	if err := r[".txt"](&b); err != nil {
		return err
	}
	to.Text(b.String())
	return nil
}

// ExitWith returns the exit error for a conclusion that was printed.
func ExitWith(c eval.Conclusion) error {
	code := map[eval.Status]int{
		eval.StatusNotEvaluated: term.ExitUnknown, eval.StatusGateFailed: term.ExitBad,
		eval.StatusRegression: term.ExitRegression, eval.StatusIncomplete: term.ExitIncomplete,
	}[c.Status]
	if code == term.ExitOK {
		return nil
	}
	return &term.ExitError{Code: code}
}
