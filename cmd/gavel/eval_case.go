package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
	"github.com/gavel-mcp/gavel/validators"
)

// evaluationTime is when every case is judged: scripts that look at the clock, and so
// recorded answers, come out the same on every day.
var evaluationTime = time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)

// evaluationPrincipal asks where a case names nobody.
const evaluationPrincipal = "eval:agent"

// goldenSet is what of the files is asked for. The cases stay in the files and are read
// anew by all: a set may be larger than the memory.
type goldenSet struct {
	files  []string
	splits []eval.Split
	tags   []string
	file   map[string]string // by the case's id: what a workflow.ref is relative to
	n      int               // cases asked for
}

// readGolden reads what of the files is asked for. A set with mistakes is not measured.
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

// sameAs refuses a baseline of which a case asked for has another right outcome, before
// anything is spent on a comparison that cannot be made.
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

// all reads the cases once more. The error is the last thing that comes.
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

// readCases reads one file. An error is the last thing that comes.
func readCases(ctx context.Context, file string) iter.Seq2[eval.Golden, error] {
	return func(yield func(eval.Golden, error) bool) {
		in, err := os.Open(file)
		if err != nil {
			yield(eval.Golden{}, term.UnknownErrorf("", "cannot read the cases: %w", err))
			return
		}
		defer func() { _ = in.Close() }() // it was only read
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

// caseBuilder makes questions of cases, as the engine does of what agents ask.
type caseBuilder struct {
	set  goldenSet
	seed int64

	mu          sync.Mutex
	definitions *definitionCache
}

// build makes the question. It sees no expectation.
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
		// Definitions of an evaluation are the operator's: he gives the files.
		Owner: operatorOwner, Instance: "wf-00000000-0000-7000-8000-000000000000",
		State: c.State, Action: c.Action, Data: c.Data, Context: c.Context,
		Principal: cmp.Or(c.Principal, evaluationPrincipal), Role: cmp.Or(c.Role, string(engine.RoleAgent)),
		Facts: factsOf(def, c.History), ReviewPath: true, Now: evaluationTime, Seed: b.seed,
	})
}

// factsOf is what an instance with this history would know.
func factsOf(def *workflow.Definition, history []eval.Step) workflow.Facts {
	f := workflow.Facts{Visited: []string{def.InitialState}, Performed: map[string][]string{}}
	at := def.InitialState
	for _, step := range history {
		if s := def.States[at]; s != nil && s.Transitions[step.Action] != nil {
			for _, p := range s.Transitions[step.Action].Freezes {
				if !slices.Contains(f.Frozen, p) {
					f.Frozen = append(f.Frozen, p)
				}
			}
		}
		if step.By != "" && !slices.Contains(f.Performed[step.Action], step.By) {
			f.Performed[step.Action] = append(f.Performed[step.Action], step.By)
		}
		if at = step.State; !slices.Contains(f.Visited, at) {
			f.Visited = append(f.Visited, at)
		}
	}
	return f
}

// givenEvidence is what a case says would have been fetched. Nothing is fetched.
type givenEvidence struct{ eval.Case }

// Fetch implements judge.Fetcher.
func (g givenEvidence) Fetch(_ context.Context, r judge.EvidenceRequest, _ bool) (judge.Fetched, error) {
	if len(r.Missing) > 0 {
		return judge.Fetched{Failure: judge.FailureArgument, Detail: "A field that it is asked with is missing."}, nil
	}
	content, ok := g.Evidence[r.Name]
	if !ok || string(content) == "null" {
		return judge.Fetched{Failure: judge.FailureUnavailable, Detail: "The case gives no such evidence."}, nil
	}
	return judge.Fetched{Content: content}, nil
}

// decideEval puts questions to the real pipeline; layer is nil for the structural one.
func decideEval(compiler *validators.Compiler, layer judge.Layer) func(context.Context, eval.Case, judge.Case) (judge.Verdict, error) {
	return func(ctx context.Context, c eval.Case, question judge.Case) (judge.Verdict, error) {
		if layer == nil {
			question.Rubric.UseLLM = false
		}
		pipeline, err := judge.New(judge.Config{Compiler: compiler, Fetcher: givenEvidence{c}, Model: layer})
		if err != nil {
			return judge.Verdict{}, err
		}
		return pipeline.Decide(ctx, question)
	}
}
