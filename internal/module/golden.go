package module

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/eval"
)

// GoldenFiles returns the files of golden cases that paths name.
func GoldenFiles(paths []string) ([]string, error) {
	return FindFiles(paths, "golden case file", ".jsonl")
}

// BuildFacts returns the facts of a history.
func BuildFacts(def *workflow.Definition, history []eval.Step) workflow.Facts {
	f := workflow.Facts{Visited: []string{def.InitialState}, Performed: map[string][]string{}}
	at := def.InitialState
	for _, step := range history {
		if s := def.States[at]; s != nil && s.Transitions[step.Action] != nil {
			for _, p := range s.Transitions[step.Action].Freezes {
				f.Frozen = AppendNew(f.Frozen, p)
			}
		}
		if step.By != "" {
			f.Performed[step.Action] = AppendNew(f.Performed[step.Action], step.By)
		}
		at = step.State
		f.Visited = AppendNew(f.Visited, at)
	}
	return f
}

// AppendNew appends s unless list has it.
func AppendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
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

// ParseShare parses a share such as 1% or 0.01.
func ParseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%q is not a share; write it as 1%% or 0.01", text)
	}
	return v, nil
}
