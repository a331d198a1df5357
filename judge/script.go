package judge

import (
	"context"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// scripts runs the route conditions and all validators in one call of the sandbox, unless the schema
// layer already did.
type scripts struct{ compiler *validators.Compiler }

func (scripts) Name() LayerName { return LayerScript }

func (s scripts) Weigh(ctx context.Context, c Case) (Opinion, error) {
	checks := c.scriptChecks()
	if len(checks.Routes) == 0 && len(checks.Validators) == 0 {
		return Opinion{}, nil
	}
	set, fault, err := compileChecks(ctx, s.compiler, c, LayerScript, checks)
	if err != nil || fault != nil {
		return orNone(fault), err
	}
	if c.early != nil && c.early.Schema.Passes() {
		return readScriptReply(c, checks, *c.early)
	}
	reply, err := set.RunScripts(ctx, c.scriptInput())
	if err != nil {
		return Opinion{}, fmt.Errorf("judge: run the scripts: %w", err)
	}
	return readScriptReply(c, checks, reply)
}

func (c Case) scriptChecks() validators.Checks {
	return validators.Checks{Routes: c.Checks.Routes, Validators: c.Checks.Validators}
}

// scriptInput returns the input of scripts. Untrusted scripts get masked documents.
func (c Case) scriptInput() validators.Input {
	in := validators.Input{Caller: c.caller(), Data: c.MaskedData.Raw(), Context: c.MaskedContext.Raw(), Evidence: joinContents(c.Fetched, false), Call: c.Call.write(false), Now: c.Now, Seed: c.Seed}
	if c.Owner.Trusted {
		in.Data, in.Context, in.Evidence, in.Call = c.Data.Raw(), c.Context.Raw(), joinContents(c.Fetched, true), c.Call.write(true)
	}
	return in
}

// readScriptReply reads the sandbox's reply. A reply that does not answer the question counts as a
// failure of the sandbox.
func readScriptReply(c Case, asked validators.Checks, reply script.Reply) (Opinion, error) {
	candidates := c.Candidates
	op := Opinion{Layer: LayerScript, Confidence: 1, Assurance: AssuranceNone, Sandbox: reply.Unhardened}
	if len(asked.Routes) > 0 {
		switch {
		case reply.RouteFault != nil:
			fault := unavailableOpinion(LayerScript)
			fault.Sandbox = reply.Unhardened
			fault.Findings = []validators.Finding{faultFinding("condition", *reply.RouteFault)}
			fault.Reasoning = joinFindings(fault.Findings)
			return fault, nil
		case reply.Route == -1:
			op.Outcome = Reject
			op.Findings = []validators.Finding{noRouteFinding(candidates)}
			op.Reasoning = op.Findings[0].Message
			return op, nil
		case reply.Route < -1 || reply.Route >= len(candidates):
			return Opinion{}, fmt.Errorf("judge: the sandbox chose route %d of %d: %w", reply.Route, len(candidates), script.ErrUnavailable)
		}
		op.Route = &reply.Route
		op.Reasoning = fmt.Sprintf("Condition %d of %d holds and leads to the state %q.", reply.Route+1, len(candidates), candidates[reply.Route].Target)
	}
	if len(reply.Results) != len(asked.Validators) {
		return Opinion{}, fmt.Errorf("judge: the sandbox answered for %d of %d validators: %w", len(reply.Results), len(asked.Validators), script.ErrUnavailable)
	}
	// The conditions of criteria come last.
	own := len(asked.Validators)
	for own > 0 && asked.Validators[own-1].Kind == script.Condition {
		own--
	}
	var holds []bool
	for _, r := range reply.Results[own:] {
		if r.Code != script.OK {
			fault := unavailableOpinion(LayerScript)
			fault.Sandbox, fault.Findings = reply.Unhardened, []validators.Finding{faultFinding("condition", r)}
			fault.Reasoning = joinFindings(fault.Findings)
			return fault, nil
		}
		holds = append(holds, r.Valid)
	}
	op.NotAsked = c.Rubric.listUnasked(holds)
	return combineValidators(op, reply.Results[:own]), nil
}

// combineValidators combines the results of the validators. All must agree; each one that does not is
// reported. Faults come before refusals: a caller that reads only the first finding must learn that the
// check itself is broken.
func combineValidators(op Opinion, results []script.Result) Opinion {
	var faults, refusals []validators.Finding
	var reasons []string
	agreement, refusal := 1.0, 0.0
	for _, r := range results {
		if r.Code == script.OK && !(r.Confidence >= 0 && r.Confidence <= 1) {
			r.Code, r.Detail = script.BadResult, fmt.Sprintf("its confidence is %v, which is not 0 to 1", r.Confidence)
		}
		switch {
		case r.Code != script.OK:
			faults = append(faults, faultFinding("validator", r))
			continue
		case r.Valid: // its other output is not shown
			agreement = min(agreement, r.Confidence)
		default:
			found := refusalFindings(r)
			refusal = max(refusal, r.Confidence)
			refusals = append(refusals, found...)
			reasons = append(reasons, fmt.Sprintf("The validator %s rejects this: %s", r.Name, found[0].Message))
			op.Suggestions = appendMissing(op.Suggestions, r.Suggestions)
		}
		op.Assurance = AssuranceValidators
	}
	switch {
	case len(faults) > 0:
		op.Outcome, op.Confidence, op.Fault = Reject, 1, true
		op.Findings = append(faults, refusals...)
		op.Reasoning = joinSentences(joinFindings(faults), joinList(reasons))
	case len(refusals) > 0:
		op.Outcome, op.Confidence = Reject, refusal
		op.Findings = refusals
		op.Reasoning = joinList(reasons)
	default:
		op.Outcome, op.Confidence = Approve, agreement
		op.Reasoning = joinSentences(op.Reasoning, describeAgreement(len(results), agreement))
	}
	return op
}

func refusalFindings(r script.Result) []validators.Finding {
	texts := appendMissing(nil, append([]string{r.Reason}, r.Violations...))
	var out []validators.Finding
	for _, text := range texts {
		if strings.TrimSpace(text) != "" {
			out = append(out, validators.Finding{Code: CodeValidatorRejected, Message: text})
		}
	}
	if len(out) == 0 {
		out = append(out, validators.Finding{
			Code:    CodeValidatorRejected,
			Message: fmt.Sprintf("The validator %s refuses the data without giving a reason.", r.Name),
			Hint:    "Read the validator in the workflow's definition.",
		})
	}
	return out
}

func faultFinding(what string, r script.Result) validators.Finding {
	message := fmt.Sprintf("The %s %s failed (%s)", what, r.Name, r.Code)
	if r.Detail != "" {
		message += ": " + r.Detail
	}
	return validators.Finding{Code: CodeValidatorError, Message: message, Hint: ownerFaultHint}
}

func noRouteFinding(candidates []Candidate) validators.Finding {
	targets := make([]string, 0, len(candidates))
	for _, c := range candidates {
		targets = appendMissing(targets, []string{c.Target})
	}
	return validators.Finding{
		Code:    CodeNoRoute,
		Message: fmt.Sprintf("None of this action's conditions is true, so it has no target (possible targets: %s).", strings.Join(targets, ", ")),
	}
}

func describeAgreement(n int, c float64) string {
	switch {
	case n == 0:
		return ""
	case n == 1 && c == 1:
		return "The validator agrees."
	case n == 1:
		return fmt.Sprintf("The validator agrees with a confidence of %s.", FormatConfidence(c))
	case c == 1:
		return fmt.Sprintf("All %d validators agree.", n)
	}
	return fmt.Sprintf("All %d validators agree, the least sure with a confidence of %s.", n, FormatConfidence(c))
}
