// Package replay judges recorded decisions again: under another definition, threshold
// or model, or under nothing else, to see that they come out the same.
//
// It promises that every question is put as it was put, with the context, facts, rights,
// data and evidence that the decision saw, and that what cannot be put so is counted with
// the reason and never guessed. Moves that would now be approved and were not stand first
// in every report. Decisions that no model had a part in come out as they were when nothing
// is changed.
//
// It must never write, fetch evidence, count for the loop guard, or let what is judged
// again have any effect: it reads an Archive, and its only outcome is a Report.
// Every decision is judged by itself; what would have happened after another one, it does
// not know.
package replay

import (
	"cmp"
	"context"
	"errors"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
	"github.com/gavel-mcp/gavel/validators"
)

// Change is what is otherwise than when the decisions were made. The zero Change changes
// nothing.
type Change struct {
	// Definitions take the place of those of the same name, whatever their version. When
	// there are any, only decisions of these workflows are judged again. Owner and
	// judge-config revisions stay those that were in force.
	Definitions map[string]*workflow.Definition
	// MinConfidence (0 to 1) and StrictMode take the place of every rubric's; nil leaves it.
	MinConfidence *float64
	StrictMode    *bool
	// PromptDigest, when not "", is the only prompt whose recorded answers count.
	PromptDigest string
	// Prompt, when not "", is the edition of the prompt that Config.Model is asked with.
	Prompt string
	// DefaultModel asks the default model of Config.Model also where a definition names
	// another one.
	DefaultModel bool
}

// Config sets a run up.
type Config struct {
	// From is what was recorded. Required.
	From  Archive
	Query QuestionQuery
	// Compiler runs schemas and scripts. Required, but for a ShadowOnly run.
	Compiler *validators.Compiler
	// Model is asked where a rubric wants it; it must have no memory. nil: what the model
	// answered then is what it answers now.
	Model  judge.Layer
	Change Change
	// ShadowOnly judges nothing, and only sums up what was decided in shadow mode.
	ShadowOnly bool
	// Gates are limits of the report.
	Gates Gates
	// Workers judge at once; 0 is one for each processor. The report does not depend on it.
	Workers int
	// Listed is how many flips of each direction the report lists; 0 is 100.
	Listed int
	// Progress is told how many decisions are done, one call at a time; nil tells nobody.
	Progress func(done int64)
}

// Run judges what was recorded again. Its memory does not grow with the number of
// decisions. The error is that of the archive or of ctx; then there is no report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if cfg.From == nil || cfg.Compiler == nil && !cfg.ShadowOnly {
		return Report{}, errors.New("replay: Config.From and Config.Compiler are required")
	}
	if err := cfg.Gates.Validate(); err != nil {
		return Report{}, err
	}
	t := newTally(cfg)
	if err := cfg.run(ctx, t.add); err != nil {
		return Report{}, err
	}
	return t.report(), nil
}

// run judges the questions and gives each to take, in their order.
func (cfg Config) run(ctx context.Context, take func(Question, result)) error {
	questions := func(yield func(Question, error) bool) {
		for q, err := range Questions(ctx, cfg.From, cfg.Query) {
			if (err != nil || cfg.matches(q)) && !yield(q, err) {
				return
			}
		}
	}
	var done int64
	err := eval.InOrder(ctx, cfg.Workers, questions, cfg.judgeAgain, func(q Question, r result) error {
		take(q, r)
		if done++; cfg.Progress != nil {
			cfg.Progress(done)
		}
		return nil
	})
	return cmp.Or(ctx.Err(), err)
}

func (cfg Config) matches(q Question) bool {
	if cfg.ShadowOnly {
		return q.Event.Decision != nil && q.Event.Decision.Mode == judge.Shadow
	}
	if len(cfg.Change.Definitions) == 0 {
		return true
	}
	_, ok := cfg.Change.Definitions[q.Event.Workflow]
	return ok
}
