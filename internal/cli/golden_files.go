package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
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
