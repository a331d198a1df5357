package measure

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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators"
)

// DefinitionCache reads every definition once, however many cases name it.
type DefinitionCache struct {
	byRef map[string]DefinitionOrError
}

// DefinitionOrError is a cached definition with its criteria, or the error of reading it.
type DefinitionOrError struct {
	Definition *workflow.Definition
	Criteria   eval.Criteria
	Err        error
}

// maxInline limits how many inline definitions are cached.
const maxInline = 1000

// NewDefinitionCache returns an empty cache.
func NewDefinitionCache() *DefinitionCache {
	return &DefinitionCache{byRef: map[string]DefinitionOrError{}}
}

// Criteria returns the criteria of a case's definition.
func (c *DefinitionCache) Criteria(file string, raw json.RawMessage) (eval.Criteria, error) {
	d := c.Find(file, raw)
	return d.Criteria, d.Err
}

// Find resolves the workflow of a case in file: {"ref": "FILE#NAME"}, with FILE relative to the folder of the case,
// or an inline definition.
func (c *DefinitionCache) Find(file string, raw json.RawMessage) DefinitionOrError {
	key := filepath.Dir(file) + "\x00" + string(raw)
	if d, ok := c.byRef[key]; ok {
		return d
	}
	var d DefinitionOrError
	if d.Definition, d.Err = ReadWorkflow(file, raw); d.Err == nil {
		d.Criteria = allCriteria(d.Definition)
	}
	if len(c.byRef) >= maxInline {
		clear(c.byRef)
	}
	c.byRef[key] = d
	return d
}

// ReadWorkflow reads the definition that a golden case names or contains.
func ReadWorkflow(file string, raw json.RawMessage) (*workflow.Definition, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, fmt.Errorf("workflow is not an object: %w", err)
	}
	ref, named := keys["ref"]
	if !named {
		d, err := workflow.Parse("workflow", raw)
		if err != nil {
			return nil, fmt.Errorf("workflow is not a valid definition: %w", err)
		}
		return d, nil
	}
	var target string
	if err := json.Unmarshal(ref, &target); err != nil || len(keys) > 1 {
		return nil, fmt.Errorf(`workflow.ref must be "FILE#NAME" and the only key; or give the definition itself`)
	}
	path, name, _ := strings.Cut(target, "#")
	if filepath.IsAbs(path) {
		return nil, fmt.Errorf("workflow.ref %q is absolute; write it relative to the folder of the case", path)
	}
	full := filepath.Join(filepath.Dir(file), filepath.FromSlash(path))
	d, err := cli.ParseDefinition(full)
	if _, bad := errors.AsType[*workflow.ParseError](err); bad {
		return nil, fmt.Errorf("%s is not a workflow definition; run gavel lint on it: %w", full, err)
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

// evaluationTime is the time at which every case is judged. Scripts that read the clock, and therefore recorded
// answers, give the same results on every day.
var evaluationTime = time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)

// EvaluationPrincipal is the requester if a case names none.
const EvaluationPrincipal = "eval:agent"

// GoldenSet is the selected part of golden files. The cases stay in the files, and all reads them again: a set may be
// larger than the memory.
type GoldenSet struct {
	Files  []string
	splits []eval.Split
	tags   []string
	File   map[string]string // by the case's id; a workflow.ref is relative to it
	Count  int               // number of selected cases
}

// ReadGolden reads the selected cases of the files. A set with mistakes is rejected.
func ReadGolden(ctx context.Context, paths []string, splits []eval.Split, tags []string) (GoldenSet, error) {
	files, err := GoldenFiles(paths)
	if err != nil {
		return GoldenSet{}, err
	}
	set := GoldenSet{Files: files, splits: splits, tags: tags, File: map[string]string{}}
	for _, file := range files {
		if err := set.check(ctx, file); err != nil {
			return GoldenSet{}, err
		}
	}
	if set.Count == 0 {
		return GoldenSet{}, term.UsageErrorf("check --split and --tags", "no cases are left to judge")
	}
	return set, nil
}

func (s *GoldenSet) check(ctx context.Context, file string) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return term.UsageErrorf("save them in a file first", "%s is not a regular file, and cases are read more than once", file)
	}
	for g, err := range readCases(ctx, file) {
		if err != nil {
			return err
		}
		if other, twice := s.File[g.ID]; twice {
			return term.UsageErrorf("gavel eval lint lists every mistake", "%s:%d: the case %q is already in %s", file, g.Line, g.ID, other)
		}
		s.File[g.ID] = file
		if s.selects(g.Case) {
			s.Count++
		}
	}
	return nil
}

func (s *GoldenSet) selects(c eval.Case) bool {
	return (len(s.splits) == 0 || slices.Contains(s.splits, c.Split)) &&
		(len(s.tags) == 0 || slices.ContainsFunc(s.tags, func(t string) bool { return slices.Contains(c.Tags, t) }))
}

// All reads the cases again. An error comes last.
func (s *GoldenSet) All(ctx context.Context) iter.Seq2[eval.Case, error] {
	return func(yield func(eval.Case, error) bool) {
		n := 0
		for _, file := range s.Files {
			for g, err := range readCases(ctx, file) {
				if err == nil && !s.selects(g.Case) {
					continue
				}
				if n++; !yield(g.Case, err) || err != nil {
					return
				}
			}
		}
		if n != s.Count {
			yield(eval.Case{}, term.UnknownErrorf("", "the files of cases changed while they were read: %d cases, %d before", n, s.Count))
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
				err = term.UnknownErrorf("", "reading the cases was stopped: %w", ctx.Err())
			}
			if !yield(g, err) || err != nil {
				return
			}
		}
	}
}

// CaseBuilder builds the judge's cases from golden cases.
type CaseBuilder struct {
	Set  GoldenSet
	Seed int64

	mu          sync.Mutex
	Definitions *DefinitionCache
}

// Build builds the question. It does not see the expectation.
func (b *CaseBuilder) Build(c eval.Case) (judge.Case, error) {
	b.mu.Lock()
	found := b.Definitions.Find(b.Set.File[c.ID], c.Workflow)
	b.mu.Unlock()
	if found.Err != nil {
		return judge.Case{}, found.Err
	}
	def := found.Definition
	if def.States[c.State] == nil {
		return judge.Case{}, fmt.Errorf("the workflow %q has no state %q", def.Name, c.State)
	}
	return def.Case(workflow.CaseInput{
		Operation: judge.Advance, Version: 1,
		// The definitions of an evaluation belong to the operator, who provides the files.
		Owner: cli.OperatorOwner, Instance: "wf-00000000-0000-7000-8000-000000000000",
		State: c.State, Action: c.Action, Data: c.Data, Context: c.Context,
		Principal: cmp.Or(c.Principal, EvaluationPrincipal), Role: cmp.Or(c.Role, string(engine.RoleAgent)),
		Facts: buildFacts(def, c.History), ReviewPath: true, Now: evaluationTime, Seed: b.Seed,
	})
}

// caseEvidence returns the evidence in the case. Nothing is fetched.
type caseEvidence struct{ eval.Case }

func (g caseEvidence) Fetch(_ context.Context, r judge.EvidenceRequest, _ bool) (judge.FetchResult, error) {
	if len(r.Missing) > 0 {
		return judge.FetchResult{Failure: judge.FailureArgument, Detail: "A field that it is asked with is missing."}, nil
	}
	content, ok := g.Evidence[r.Name]
	if !ok || string(content) == "null" {
		return judge.FetchResult{Failure: judge.FailureUnavailable, Detail: "The case gives no such evidence."}, nil
	}
	return judge.FetchResult{Content: content}, nil
}

// NewDecider puts questions to the real pipeline; layer is nil for the structural one. A prompt of the cell replaces
// those of the definitions.
func NewDecider(compiler *validators.Compiler, layer judge.Layer, cell Cell) func(context.Context, eval.Case, judge.Case) (judge.Verdict, error) {
	return func(ctx context.Context, c eval.Case, question judge.Case) (judge.Verdict, error) {
		if layer == nil {
			question.Rubric.UseLLM = false
		}
		question.Rubric.Prompt = cmp.Or(cell.Prompt, question.Rubric.Prompt)
		if cell.Model != "" {
			question.Rubric.Model, question.Rubric.Panel = cell.Model, nil
		}
		pipeline, err := judge.New(judge.Config{Compiler: compiler, Fetcher: caseEvidence{c}, Model: layer})
		if err != nil {
			return judge.Verdict{}, err
		}
		return pipeline.Decide(llm.WithTry(ctx, eval.TryOf(ctx)), question)
	}
}

// Cell is a judge of a run: a model with a prompt edition. "" is the value in the definitions.
type Cell struct{ Model, Prompt string }

// Name returns the model and the prompt, as a report calls them.
func (c Cell) Name() string { return strings.TrimSpace(c.Model + " " + c.Prompt) }

// GoldenFiles returns the files of golden cases that paths name.
func GoldenFiles(paths []string) ([]string, error) {
	return cli.FindFiles(paths, "golden case file", ".jsonl")
}

// buildFacts returns the facts of a history.
func buildFacts(def *workflow.Definition, history []eval.Step) workflow.Facts {
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

// appendNew appends s unless list has it.
func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// parseShare parses a share such as 1% or 0.01.
func parseShare(text string) (float64, error) {
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
