package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge/eval"
)

type evalLintCmd struct {
	Paths []string `arg:"" name:"path" help:"Files of golden cases, or folders with .jsonl files."`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// Help shows examples.
func (evalLintCmd) Help() string {
	return `Every line is read and checked: its keys and values, cases that stand there twice, labels
that contradict each other, groups and texts that are in two splits, states, actions and
criteria that the workflow does not have. All paths together are one set. The last line
has its digest: another one means other cases.

Examples:

    gavel eval lint testdata/golden
    gavel eval lint cases.jsonl more/*.jsonl
    gavel eval lint --json cases.jsonl | jq '.issues[].rule'

Exit codes: 0 no issue, 1 issues, 2 wrong usage, 3 could not find out.`
}

// evalLintReport is what --json prints.
type evalLintReport struct {
	OK     bool         `json:"ok"`
	Issues []eval.Issue `json:"issues"`
	eval.Summary
}

// Run lints all files as one set.
func (c *evalLintCmd) Run(ctx context.Context, con *console) error {
	files, err := goldenFiles(c.Paths)
	if err != nil {
		return err
	}
	linter := eval.NewLinter(newDefinitionCache().known)
	for _, file := range files {
		if err := lintGolden(ctx, linter, file); err != nil {
			return err
		}
	}
	issues, summary := linter.Finish()
	if summary.Cases == 0 && len(issues) == 0 {
		return term.UsageErrorf("a case is a line; docs/evaluation.md has every key", "there is no case in %s", strings.Join(c.Paths, " "))
	}
	report := evalLintReport{OK: len(issues) == 0, Issues: issues, Summary: summary}
	if err := c.print(con, report); err != nil {
		return err
	}
	if !report.OK {
		return term.ErrBad
	}
	return nil
}

func lintGolden(ctx context.Context, linter *eval.Linter, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the cases: %w", err)
	}
	defer func() { _ = in.Close() }() // it was only read
	cases := eval.ReadCases(file, in)
	err = linter.Lint(func(yield func(eval.Golden, error) bool) {
		for g, err := range cases {
			if ctx.Err() != nil || !yield(g, err) {
				return
			}
		}
	})
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return term.UnknownErrorf("", "cannot read the cases: %w", err)
	}
	return nil
}

func (c *evalLintCmd) print(con *console, r evalLintReport) error {
	if c.JSON {
		return con.out.JSON(r)
	}
	for _, i := range r.Issues {
		con.out.Printf("%s:%d: %s [%s]\n", i.File, i.Line, i.Message, i.Rule)
	}
	con.out.Printf("%s (dev %d, cal %d, test %d): approve %d, reject %d, escalate %d; %s; %s\n",
		term.Count(r.Cases, "case"), r.Splits[eval.Dev], r.Splits[eval.Cal], r.Splits[eval.Test],
		r.Outcomes["approve"], r.Outcomes["reject"], r.Outcomes["escalate"], term.Count(len(r.Issues), "issue"), r.Digest)
	return nil
}

// goldenFiles are the files that paths name: files as they are, of folders all .jsonl.
func goldenFiles(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			files, err := expand(path)
			if err != nil {
				return nil, err
			}
			out = append(out, files...)
			continue
		}
		n := len(out)
		err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() && strings.HasSuffix(name, ".jsonl") {
				out = append(out, filepath.Clean(name))
			}
			return err
		})
		if err != nil {
			return nil, term.UnknownErrorf("", "cannot look at %s: %w", path, err)
		}
		if len(out) == n {
			return nil, term.UsageErrorf("golden cases stand in files that end in .jsonl", "there is no golden case file in %s", path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// definitionCache reads every definition once, however many cases name it.
type definitionCache struct {
	byRef map[string]definitionOrError
}

type definitionOrError struct {
	definition *workflow.Definition
	known      eval.Known
	err        error
}

// maxInline is how many definitions that stand in cases are kept.
const maxInline = 1000

func newDefinitionCache() *definitionCache {
	return &definitionCache{byRef: map[string]definitionOrError{}}
}

func (c *definitionCache) known(file string, raw json.RawMessage) (eval.Known, error) {
	d := c.find(file, raw)
	return d.known, d.err
}

// find resolves the workflow of a case that stands in file: {"ref": "FILE#NAME"},
// where FILE is relative to the folder of the case, or a definition.
func (c *definitionCache) find(file string, raw json.RawMessage) definitionOrError {
	key := filepath.Dir(file) + "\x00" + string(raw)
	if d, ok := c.byRef[key]; ok {
		return d
	}
	var d definitionOrError
	if d.definition, d.err = readWorkflow(file, raw); d.err == nil {
		d.known = knownOf(d.definition)
	}
	if len(c.byRef) >= maxInline {
		clear(c.byRef)
	}
	c.byRef[key] = d
	return d
}

func readWorkflow(file string, raw json.RawMessage) (*workflow.Definition, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, fmt.Errorf("workflow is no object: %w", err)
	}
	ref, named := keys["ref"]
	if !named {
		d, err := workflow.Parse("workflow", raw)
		if err != nil {
			return nil, fmt.Errorf("the definition in workflow is not one: %w", err)
		}
		return d, nil
	}
	var target string
	if err := json.Unmarshal(ref, &target); err != nil || len(keys) > 1 {
		return nil, fmt.Errorf(`workflow.ref is "FILE#NAME" and stands alone; or give the definition itself`)
	}
	path, name, _ := strings.Cut(target, "#")
	full := filepath.Join(filepath.Dir(file), filepath.FromSlash(path))
	document, err := readDefinition(full)
	if err != nil {
		return nil, err
	}
	d, err := workflow.Parse(full, document)
	if err != nil {
		return nil, fmt.Errorf("%s is no workflow definition; run gavel lint on it: %w", full, err)
	}
	if name != "" && name != d.Name {
		return nil, fmt.Errorf("%s defines the workflow %q, not %q; change workflow.ref", full, d.Name, name)
	}
	return d, nil
}

// knownOf lists what cases may name.
func knownOf(d *workflow.Definition) eval.Known {
	out := eval.Known{Criteria: map[string]map[string][]string{}}
	for _, state := range d.States {
		actions := map[string][]string{}
		for action, t := range state.Transitions {
			actions[action] = criteriaOf(d, t)
		}
		out.Criteria[state.Name] = actions
	}
	return out
}

// criteriaOf are a transition's criteria in the order in which a judge gets them: the
// definition's, then its own.
func criteriaOf(d *workflow.Definition, t *workflow.Transition) []string {
	var out []string
	for _, c := range slices.Concat(d.Rubric(nil).Criteria, t.Judge.Criteria) {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}
