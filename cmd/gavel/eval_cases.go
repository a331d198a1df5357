package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators"
)

type evalLintCmd struct {
	Paths []string `arg:"" name:"path" help:"Files of golden cases, or folders with .jsonl files."`
	JSON  bool     `name:"json" help:"Print JSON."`
}

func (evalLintCmd) Help() string {
	return `Every line is read and checked: its keys and values, duplicate cases, labels that contradict
each other, groups and texts that are in two splits, states, actions and criteria that the
workflow does not have. All paths together are one set. The last line has its digest: another
one means other cases.

Examples:

    gavel eval lint testdata/golden
    gavel eval lint cases.jsonl more/*.jsonl
    gavel eval lint --json cases.jsonl | jq '.issues[].rule'

Exit codes: 0 no issue, 1 issues, 2 wrong usage, 3 could not find out.`
}

type evalLintReport struct {
	OK     bool         `json:"ok"`
	Issues []eval.Issue `json:"issues"`
	eval.Summary
}

func (c *evalLintCmd) Run(ctx context.Context, con *console) error {
	files, err := goldenFiles(c.Paths)
	if err != nil {
		return err
	}
	linter := eval.NewLinter(newDefinitionCache().criteria)
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
	err = con.print(c.JSON, report, func() { printGoldenLint(con, report) })
	return cmp.Or(err, badUnless(report.OK))
}

func lintGolden(ctx context.Context, linter *eval.Linter, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the cases: %w", err)
	}
	defer func() { _ = in.Close() }() // read only
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

func printGoldenLint(con *console, r evalLintReport) {
	for _, i := range r.Issues {
		con.out.Printf("%s:%d: %s [%s]\n", i.File, i.Line, i.Message, i.Rule)
	}
	con.out.Printf("%s (dev %d, cal %d, test %d): approve %d, reject %d, escalate %d; %s; %s\n",
		term.Count(r.Cases, "case"), r.Splits[eval.Dev], r.Splits[eval.Cal], r.Splits[eval.Test],
		r.Outcomes["approve"], r.Outcomes["reject"], r.Outcomes["escalate"], term.Count(len(r.Issues), "issue"), r.Digest)
}

func goldenFiles(paths []string) ([]string, error) {
	return findFiles(paths, "golden case file", ".jsonl")
}

// definitionCache reads every definition once, however many cases name it.
type definitionCache struct {
	byRef map[string]definitionOrError
}

type definitionOrError struct {
	definition *workflow.Definition
	criteria   eval.Criteria
	err        error
}

// maxInline limits how many inline definitions are cached.
const maxInline = 1000

func newDefinitionCache() *definitionCache {
	return &definitionCache{byRef: map[string]definitionOrError{}}
}

func (c *definitionCache) criteria(file string, raw json.RawMessage) (eval.Criteria, error) {
	d := c.find(file, raw)
	return d.criteria, d.err
}

// find resolves the workflow of a case in file: {"ref": "FILE#NAME"}, with FILE relative to the folder of the case,
// or an inline definition.
func (c *definitionCache) find(file string, raw json.RawMessage) definitionOrError {
	key := filepath.Dir(file) + "\x00" + string(raw)
	if d, ok := c.byRef[key]; ok {
		return d
	}
	var d definitionOrError
	if d.definition, d.err = readWorkflow(file, raw); d.err == nil {
		d.criteria = allCriteria(d.definition)
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
		return nil, fmt.Errorf(`workflow.ref is "FILE#NAME" and has no other key; or give the definition itself`)
	}
	path, name, _ := strings.Cut(target, "#")
	if filepath.IsAbs(path) {
		return nil, fmt.Errorf("workflow.ref %q is absolute; write it relative to the folder of the case", path)
	}
	full := filepath.Join(filepath.Dir(file), filepath.FromSlash(path))
	d, err := parseDefinition(full)
	if _, bad := errors.AsType[*workflow.ParseError](err); bad {
		return nil, fmt.Errorf("%s is no workflow definition; run gavel lint on it: %w", full, err)
	}
	if err != nil {
		return nil, err
	}
	if name != "" && name != d.Name {
		return nil, fmt.Errorf("%s defines the workflow %q, not %q; change workflow.ref", full, d.Name, name)
	}
	return d, nil
}

func allCriteria(d *workflow.Definition) eval.Criteria {
	out := eval.Criteria{}
	for _, state := range d.States {
		actions := map[string][]string{}
		for action, t := range state.Transitions {
			actions[action] = criteriaOf(d, t)
		}
		out[state.Name] = actions
	}
	return out
}

// criteriaOf returns a transition's criteria in the order in which a judge gets them: the definition's, then its own.
func criteriaOf(d *workflow.Definition, t *workflow.Transition) []string {
	var out []string
	for _, c := range slices.Concat(d.Rubric(nil).Criteria, t.Judge.Criteria) {
		out = appendNew(out, c)
	}
	return out
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// evaluationTime is the time at which every case is judged. Scripts that read the clock, and therefore recorded
// answers, give the same results on every day.
var evaluationTime = time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)

// evaluationPrincipal is the requester if a case names none.
const evaluationPrincipal = "eval:agent"

// goldenSet is the selected part of golden files. The cases stay in the files, and all reads them again: a set may be
// larger than the memory.
type goldenSet struct {
	files  []string
	splits []eval.Split
	tags   []string
	file   map[string]string // by the case's id; a workflow.ref is relative to it
	n      int               // number of selected cases
}

// readGolden reads the selected cases of the files. A set with mistakes is rejected.
func readGolden(ctx context.Context, paths []string, splits []eval.Split, tags []string) (goldenSet, error) {
	files, err := goldenFiles(paths)
	if err != nil {
		return goldenSet{}, err
	}
	set := goldenSet{files: files, splits: splits, tags: tags, file: map[string]string{}}
	for _, file := range files {
		if err := set.check(ctx, file); err != nil {
			return goldenSet{}, err
		}
	}
	if set.n == 0 {
		return goldenSet{}, term.UsageErrorf("look at --split and --tags", "no case is left to judge")
	}
	return set, nil
}

func (s *goldenSet) check(ctx context.Context, file string) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return term.UsageErrorf("save them in a file first", "%s is no file: cases are read more than once", file)
	}
	for g, err := range readCases(ctx, file) {
		if err != nil {
			return err
		}
		if other, twice := s.file[g.ID]; twice {
			return term.UsageErrorf("gavel eval lint lists every mistake", "%s:%d: the case %q is in %s already", file, g.Line, g.ID, other)
		}
		s.file[g.ID] = file
		if s.takes(g.Case) {
			s.n++
		}
	}
	return nil
}

func (s *goldenSet) takes(c eval.Case) bool {
	return (len(s.splits) == 0 || slices.Contains(s.splits, c.Split)) &&
		(len(s.tags) == 0 || slices.ContainsFunc(s.tags, func(t string) bool { return slices.Contains(c.Tags, t) }))
}

// sameAs rejects a baseline in which a selected case has a different right outcome, before a comparison that is
// impossible costs anything.
func (s *goldenSet) sameAs(ctx context.Context, before *eval.Measurement) error {
	if before == nil {
		return nil
	}
	var now eval.Measurement
	for c, err := range s.all(ctx) {
		if err != nil {
			return err
		}
		now.Cases = append(now.Cases, eval.Case{ID: c.ID, Expect: eval.Expect{Outcome: c.Expect.Outcome}})
	}
	return sameCases(*before, now)
}

// all reads the cases again. An error comes last.
func (s *goldenSet) all(ctx context.Context) iter.Seq2[eval.Case, error] {
	return func(yield func(eval.Case, error) bool) {
		n := 0
		for _, file := range s.files {
			for g, err := range readCases(ctx, file) {
				if err == nil && !s.takes(g.Case) {
					continue
				}
				if n++; !yield(g.Case, err) || err != nil {
					return
				}
			}
		}
		if n != s.n {
			yield(eval.Case{}, term.UnknownErrorf("", "the files of cases changed while they were read: %d cases, %d before", n, s.n))
		}
	}
}

// readCases reads one file. An error comes last.
func readCases(ctx context.Context, file string) iter.Seq2[eval.Golden, error] {
	return func(yield func(eval.Golden, error) bool) {
		in, err := os.Open(file)
		if err != nil {
			yield(eval.Golden{}, term.UnknownErrorf("", "cannot read the cases: %w", err))
			return
		}
		defer func() { _ = in.Close() }() // read only
		for g, err := range eval.ReadCases(file, in) {
			if err != nil {
				err = term.UsageErrorf("gavel eval lint lists every mistake", "%w", err)
			} else if ctx.Err() != nil {
				err = term.UnknownErrorf("", "the reading of cases was stopped: %w", ctx.Err())
			}
			if !yield(g, err) || err != nil {
				return
			}
		}
	}
}

type caseBuilder struct {
	set  goldenSet
	seed int64

	mu          sync.Mutex
	definitions *definitionCache
}

// build builds the question. It does not see the expectation.
func (b *caseBuilder) build(c eval.Case) (judge.Case, error) {
	b.mu.Lock()
	found := b.definitions.find(b.set.file[c.ID], c.Workflow)
	b.mu.Unlock()
	if found.err != nil {
		return judge.Case{}, found.err
	}
	def := found.definition
	if def.States[c.State] == nil {
		return judge.Case{}, fmt.Errorf("the workflow %q has no state %q", def.Name, c.State)
	}
	return def.Case(workflow.CaseInput{
		Operation: judge.Advance, Version: 1,
		// The definitions of an evaluation belong to the operator, who provides the files.
		Owner: operatorOwner, Instance: "wf-00000000-0000-7000-8000-000000000000",
		State: c.State, Action: c.Action, Data: c.Data, Context: c.Context,
		Principal: cmp.Or(c.Principal, evaluationPrincipal), Role: cmp.Or(c.Role, string(engine.RoleAgent)),
		Facts: factsOf(def, c.History), ReviewPath: true, Now: evaluationTime, Seed: b.seed,
	})
}

func factsOf(def *workflow.Definition, history []eval.Step) workflow.Facts {
	f := workflow.Facts{Visited: []string{def.InitialState}, Performed: map[string][]string{}}
	at := def.InitialState
	for _, step := range history {
		if s := def.States[at]; s != nil && s.Transitions[step.Action] != nil {
			for _, p := range s.Transitions[step.Action].Freezes {
				f.Frozen = appendNew(f.Frozen, p)
			}
		}
		if step.By != "" {
			f.Performed[step.Action] = appendNew(f.Performed[step.Action], step.By)
		}
		at = step.State
		f.Visited = appendNew(f.Visited, at)
	}
	return f
}

// givenEvidence returns the evidence in the case. Nothing is fetched.
type givenEvidence struct{ eval.Case }

func (g givenEvidence) Fetch(_ context.Context, r judge.EvidenceRequest, _ bool) (judge.FetchResult, error) {
	if len(r.Missing) > 0 {
		return judge.FetchResult{Failure: judge.FailureArgument, Detail: "A field that it is asked with is missing."}, nil
	}
	content, ok := g.Evidence[r.Name]
	if !ok || string(content) == "null" {
		return judge.FetchResult{Failure: judge.FailureUnavailable, Detail: "The case gives no such evidence."}, nil
	}
	return judge.FetchResult{Content: content}, nil
}

// decideEval puts questions to the real pipeline; layer is nil for the structural one. A prompt of the cell replaces
// those of the definitions.
func decideEval(compiler *validators.Compiler, layer judge.Layer, cell evalCell) func(context.Context, eval.Case, judge.Case) (judge.Verdict, error) {
	return func(ctx context.Context, c eval.Case, question judge.Case) (judge.Verdict, error) {
		if layer == nil {
			question.Rubric.UseLLM = false
		}
		question.Rubric.Prompt = cmp.Or(cell.prompt, question.Rubric.Prompt)
		if cell.model != "" {
			question.Rubric.Model, question.Rubric.Panel, question.Rubric.Cascade = cell.model, nil, nil
		}
		pipeline, err := judge.New(judge.Config{Compiler: compiler, Fetcher: givenEvidence{c}, Model: layer})
		if err != nil {
			return judge.Verdict{}, err
		}
		return pipeline.Decide(llm.WithTry(ctx, eval.TryOf(ctx)), question)
	}
}
