package measure

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/compare"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/modules/measure/report"
	"github.com/gavel-mcp/gavel/internal/term"
)

// renderings are the functions that write a report, by file extension.
type renderings map[string]func(io.Writer) error

// writeFiles writes the report to files.
func (r renderings) writeFiles(paths []string) error {
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

// finish writes the report to files, prints its text, and returns the exit error for its conclusion. It writes the files
// first: the reader of the text may close the pipe, which ends this program.
func (r renderings) finish(to *term.Terminal, files []string, c eval.Conclusion) error {
	if err := errors.Join(r.writeFiles(files), r.print(to)); err != nil {
		return err
	}
	return exitWith(c)
}

// print prints the text of the report.
func (r renderings) print(to *term.Terminal) error {
	var b bytes.Buffer
	if err := r[".txt"](&b); err != nil {
		return err
	}
	to.Text(b.String())
	return nil
}

// exitWith returns the exit error for a conclusion that was printed.
func exitWith(c eval.Conclusion) error {
	code := map[eval.Status]int{
		eval.StatusNotEvaluated: term.ExitUnknown, eval.StatusGateFailed: term.ExitBad,
		eval.StatusRegression: term.ExitRegression, eval.StatusIncomplete: term.ExitIncomplete,
	}[c.Status]
	if code == term.ExitOK {
		return nil
	}
	return &term.ExitError{Code: code}
}

// runEndings are the endings of --out for a run or a matrix.
var runEndings = []string{".txt", ".json", ".xml", ".html", ".jsonl"}

func renderRun(m eval.Measurement) (renderings, error) {
	page := m.Page()
	if m.Baseline != nil {
		compared, err := compare.ReadBaseline(m.Baseline)
		if err != nil {
			return nil, err
		}
		page.Tables = append(page.Tables, compared.DifferenceTable(), compared.ChangeTable())
	}
	return renderings{
		".txt":   func(w io.Writer) error { return page.Text(w, term.Align) },
		".json":  func(w io.Writer) error { return eval.WriteJSON(w, m) },
		".jsonl": func(w io.Writer) error { return eval.WriteAllLines(w, eval.Cell{Run: m}) },
		".xml":   func(w io.Writer) error { return eval.JUnit(w, eval.Cell{Run: m}) },
		".html": func(w io.Writer) error {
			page, err := report.RunPage(m)
			if err != nil {
				return err
			}
			return page.HTML(w)
		},
	}, nil
}

func renderMatrix(m report.Matrix) renderings {
	return renderings{
		".txt":  func(w io.Writer) error { return m.Text().Text(w, term.Align) },
		".html": func(w io.Writer) error { return m.Page().HTML(w) },
		".json": func(w io.Writer) error { return report.WriteMatrix(w, m) },
		".xml":  func(w io.Writer) error { return eval.JUnit(w, m.Cells...) },
		".jsonl": func(w io.Writer) error {
			for _, c := range m.Cells {
				if err := eval.WriteAllLines(w, c); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// checkExtensions rejects --out names without a rendering, before the run costs anything.
func checkExtensions(paths []string, known ...string) error {
	for _, path := range paths {
		if !slices.Contains(known, filepath.Ext(path)) {
			return term.UsageErrorf("", "--out %s: the name must end in %s", path, cli.OrList(known))
		}
	}
	return nil
}

// checkOverwrite rejects an --out file that the command reads.
func checkOverwrite(out []string, read ...string) error {
	for _, path := range out {
		target, err := os.Stat(path)
		if err != nil {
			continue
		}
		for _, name := range read {
			if source, err := os.Stat(name); err == nil && os.SameFile(source, target) {
				return term.UsageErrorf("write to another file", "--out %s would overwrite an input file", path)
			}
		}
	}
	return nil
}

// ReadResults reads a measurement that gavel eval run wrote.
func ReadResults(path string) (eval.Measurement, error) {
	f, err := os.Open(path)
	if err != nil {
		return eval.Measurement{}, term.UsageErrorf("", "cannot read the results: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	m, err := eval.ReadMeasurement(f)
	if err != nil {
		return m, term.UsageErrorf("gavel eval run --out FILE.json writes one", "%s: %w", path, err)
	}
	return m, nil
}
