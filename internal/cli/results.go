package cli

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/eval"
)

// CheckExtensions rejects --out names without a rendering, before the run costs anything.
func CheckExtensions(paths []string, known ...string) error {
	for _, path := range paths {
		if !slices.Contains(known, filepath.Ext(path)) {
			return term.UsageErrorf("", "--out %s: the name must end in %s", path, OrList(known))
		}
	}
	return nil
}

// CheckOverwrite rejects an --out file that the command reads.
func CheckOverwrite(out []string, read ...string) error {
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
