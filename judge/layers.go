package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/judge/content"
	"github.com/gavel-mcp/gavel/judge/shown"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Layer examines one aspect of a case. Weigh returns the layer's opinion; an Opinion with an empty
// Outcome means that there was nothing to check.
//
// An error means only "could not decide" (the sandbox is down, the context ended): the caller may
// retry, and nothing is recorded. Anything that the case itself can cause is an Opinion.
type Layer interface {
	Name() LayerName
	Weigh(ctx context.Context, c Case) (Opinion, error)
}

type transition struct{}

func (transition) Name() LayerName { return LayerTransition }

func (transition) Weigh(_ context.Context, c Case) (Opinion, error) {
	op := Opinion{Layer: LayerTransition, Outcome: Approve, Confidence: 1, Assurance: AssuranceNone}
	if len(c.Illegal) > 0 {
		op.Outcome, op.Findings = Reject, c.Illegal
		op.Reasoning = joinFindings(c.Illegal)
		return op, nil
	}
	if c.Operation == Start {
		op.Reasoning = fmt.Sprintf("The workflow %q may be started.", c.Workflow)
	} else {
		op.Reasoning = fmt.Sprintf("The action %q is legal in the state %q.", c.Action, c.State)
	}
	return op, nil
}

// rejection repeats a person's rejection, so that the same question is put neither to a model, which
// might answer differently, nor to another person.
type rejection struct{}

func (rejection) Name() LayerName { return ByReviewer }

func (rejection) Weigh(_ context.Context, c Case) (Opinion, error) {
	r := c.Rejected
	if r == nil || c.Rubric.Mode == Shadow || !slices.EqualFunc(r.Evidence, c.Fetched, func(a, b Evidence) bool {
		return a.Name == b.Name && a.Sameness() == b.Sameness()
	}) {
		return Opinion{}, nil
	}
	return Opinion{
		Layer: ByReviewer, Outcome: Reject, Confidence: 1, Assurance: AssuranceHuman, Reasoning: r.Reason,
		Findings: []validators.Finding{{
			Code:    CodeReviewRejected,
			Message: fmt.Sprintf("%s rejected exactly this in review %s: %s", r.By, r.Review, r.Reason),
			Hint:    "Change the data, or ask a person to reopen the review.",
		}},
	}, nil
}

type fields struct{ compiler *validators.Compiler }

func (fields) Name() LayerName { return LayerFields }

func (f fields) Weigh(ctx context.Context, c Case) (Opinion, error) {
	names := c.Checks.RequiredFields
	if len(names) == 0 {
		return Opinion{}, nil
	}
	set, fault, err := compileChecks(ctx, f.compiler, c, LayerFields, validators.Checks{RequiredFields: names})
	if err != nil || fault != nil {
		return orNone(fault), err
	}
	if missing := set.CheckFields(c.Data); len(missing) > 0 {
		return structuralOpinion(LayerFields, missing), nil
	}
	passed := structuralOpinion(LayerFields, nil)
	passed.Reasoning = "The required field is present."
	if len(names) > 1 {
		passed.Reasoning = fmt.Sprintf("All %d required fields are present.", len(names))
	}
	return passed, nil
}

// structuralOpinion returns an opinion with confidence 1, which is a rejection if there are findings.
func structuralOpinion(layer LayerName, findings []validators.Finding) Opinion {
	op := Opinion{
		Layer: layer, Outcome: Approve, Confidence: 1, Assurance: AssuranceStructural,
		Findings: findings,
	}
	if len(findings) > 0 {
		op.Outcome, op.Reasoning = Reject, joinFindings(findings)
	}
	return op
}

type schema struct{ compiler *validators.Compiler }

func (schema) Name() LayerName { return LayerSchema }

func (s schema) Weigh(ctx context.Context, c Case) (Opinion, error) {
	if len(c.Checks.Schema) == 0 {
		return Opinion{}, nil
	}
	set, fault, err := compileChecks(ctx, s.compiler, c, LayerSchema, validators.Checks{Schema: c.Checks.Schema})
	if err != nil || fault != nil {
		return orNone(fault), err
	}
	report, err := s.check(ctx, c, set)
	if err != nil {
		return Opinion{}, fmt.Errorf("judge: check the data: %w", err)
	}
	op := structuralOpinion(LayerSchema, report.Findings)
	op.Fault, op.Sandbox = report.Fault, report.Unhardened
	if op.Outcome == Approve {
		op.Reasoning = "The data matches its schema."
	}
	return op, nil
}

// check applies the schema. If that needs the sandbox and the scripts come next, it runs both in one
// call. Errors of the scripts are reported by the script layer.
func (s schema) check(ctx context.Context, c Case, set *validators.Set) (validators.SchemaReport, error) {
	fieldsPassed := len(c.Checks.RequiredFields) == 0 || slices.Contains(c.Passed, LayerFields)
	if c.early != nil && fieldsPassed && set.IsSandboxed() {
		if scripts := s.compiler.Recall(c.Owner, c.scriptChecks()); scripts != nil {
			report, reply, err := set.CheckThenRun(ctx, c.Data, scripts, c.scriptInput())
			if _, held := errors.AsType[*validators.QuarantineError](err); !held && !errors.Is(err, script.ErrInput) {
				*c.early = reply
				return report, err
			}
		}
	}
	return set.CheckSchema(ctx, c.caller(), c.Data)
}

// state checks the merged context against the checks of the target state, the fields that the data
// may write, and the requirements on the history. The case has one candidate at this point.
type state struct{ compiler *validators.Compiler }

func (state) Name() LayerName { return LayerState }

func (s state) Weigh(ctx context.Context, c Case) (Opinion, error) {
	next := c.Candidates[0]
	entry := validators.Checks{RequiredFields: next.Entry.RequiredFields, Schema: next.Entry.Schema}
	examines := len(entry.RequiredFields) > 0 || len(entry.Schema) > 0
	findings := slices.Concat(c.Forbidden, next.Unmet)
	if !examines && len(findings) == 0 {
		return Opinion{}, nil
	}
	var report validators.SchemaReport
	if examines {
		set, fault, err := compileChecks(ctx, s.compiler, c, LayerState, entry)
		if err != nil {
			return Opinion{}, err
		}
		if fault != nil {
			fault.Findings = append(fault.Findings, findings...)
			return *fault, nil
		}
		findings = append(findings, set.CheckFields(c.Merged)...)
		if report, err = set.CheckSchema(ctx, c.caller(), c.Merged); err != nil {
			return Opinion{}, fmt.Errorf("judge: check the context: %w", err)
		}
		findings = append(findings, report.Findings...)
	}
	op := structuralOpinion(LayerState, findings)
	op.Fault, op.Sandbox = report.Fault, report.Unhardened
	if op.Outcome == Reject {
		op.Reasoning = joinSentences(fmt.Sprintf("The state %q cannot be entered:", next.Target), op.Reasoning)
	} else {
		op.Reasoning = fmt.Sprintf("The context fits the state %q.", next.Target)
	}
	return op, nil
}

// contentLayer rejects content that occurs only in attacks, before the model sees it, and flags possible
// attacks.
type contentLayer struct{}

func (contentLayer) Name() LayerName { return LayerContent }

func (contentLayer) Weigh(_ context.Context, c Case) (Opinion, error) {
	docs, err := showDocuments(c)
	if err != nil {
		return Opinion{}, fmt.Errorf("content: %w", err)
	}
	op := Opinion{Layer: LayerContent, Outcome: Approve, Confidence: 1, Assurance: AssuranceStructural}
	if lists := c.findBadLists(); len(lists) > 0 {
		op.Outcome, op.Findings, op.Reasoning = Reject, lists, joinFindings(lists)
		return op, nil
	}
	if binding := slices.DeleteFunc(c.criteria(), func(one criterion) bool { return one.terms.Advisory }); len(binding) > 0 && isBlank(c, docs) {
		return blankOpinion(binding), nil
	}
	found := content.Examine(docs)
	switch policy := c.Rubric.Content; {
	case len(found.Traps) > 0:
		op.Outcome, op.Findings = Reject, found.Traps
	case policy == ContentReject && len(found.Fetched)+len(found.Flags) > 0:
		op.Outcome, op.Findings = Reject, slices.Concat(found.Fetched, found.Flags)
	case len(found.Fetched) > 0 || policy == ContentEscalate && len(found.Flags) > 0:
		op.Outcome, op.Findings = Escalate, slices.Concat(found.Fetched, found.Flags)
	default:
		for _, f := range found.Flags {
			op.Flags = append(op.Flags, f.Message)
		}
		return op, nil
	}
	op.Confidence, op.Reasoning = content.Confidence, joinFindings(op.Findings)
	return op, nil
}

// isBlank reports whether data, context, evidence and call contain nothing to judge.
func isBlank(c Case, docs shown.Documents) bool {
	fetched := slices.ContainsFunc(c.Fetched, func(e Evidence) bool { return e.Failure == "" })
	return !fetched && c.Call == nil && content.IsBlank(docs)
}

// hasNothingToJudge reports whether a question to the model would be empty: no content to judge
// and no criterion to judge it by.
func hasNothingToJudge(c Case) (bool, error) {
	if len(c.Rubric.Criteria) > 0 {
		return len(c.criteria()) == 0 && len(c.findBadLists()) == 0, nil
	}
	docs, err := showDocuments(c)
	return err == nil && isBlank(c, docs), err
}

// blankOpinion rejects a case because nothing in it can show that the criteria are met.
func blankOpinion(criteria []criterion) Opinion {
	op := Opinion{Layer: LayerContent, Outcome: Reject, Confidence: 1, Assurance: AssuranceStructural}
	for _, one := range criteria[:min(len(criteria), maxUnmet)] {
		op.Findings = append(op.Findings, validators.Finding{
			Code: CodeCriterionNotMet, Message: joinSentences("Not met: "+cleanText(one.text, maxPhrase), "There is no data, context or evidence that could show it."),
		})
	}
	op.Reasoning = joinFindings(op.Findings)
	return op
}

// ownerFaultHint is the hint of every fault: the caller cannot fix it.
const ownerFaultHint = "This is a fault of the workflow, not of the data; report it to its owner."

// compileChecks compiles one layer's part of the checks, so that missing fields are rejected even
// while a script is broken or the sandbox is down. A definition is compiled before it is accepted,
// so a problem here is rare; it blocks the move as a fault.
func compileChecks(ctx context.Context, compiler *validators.Compiler, c Case, layer LayerName, checks validators.Checks) (*validators.Set, *Opinion, error) {
	set, problems, err := compiler.Compile(ctx, c.caller(), c.Owner, checks)
	if err != nil {
		return nil, nil, fmt.Errorf("judge: compile the checks of the %s layer: %w", layer, err)
	}
	if len(problems) == 0 {
		return set, nil, nil
	}
	op := unavailableOpinion(layer)
	for _, p := range problems {
		op.Findings = append(op.Findings, validators.Finding{
			Code:    CodeValidatorError,
			Message: fmt.Sprintf("A check of this workflow cannot be used: %s", p),
			Hint:    ownerFaultHint,
		})
	}
	op.Reasoning = joinFindings(op.Findings)
	return nil, &op, nil
}

func unavailableOpinion(layer LayerName) Opinion {
	return Opinion{Layer: layer, Outcome: Reject, Confidence: 1, Assurance: AssuranceNone, Fault: true}
}

func orNone(op *Opinion) Opinion {
	if op == nil {
		return Opinion{}
	}
	return *op
}
