package judge

import (
	"fmt"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/validators"
)

// Limits on a model's opinion. A larger one counts as an attempt to fill the record, not as a judgement.
const (
	maxModelFindings = 64
	maxModelText     = 32 << 10 // bytes, all strings together
	maxRecordText    = 48 << 10 // bytes, all strings of a ModelRecord together
)

// vetOpinion checks that an opinion is consistent. An inconsistent opinion of a model counts as
// unreadable: the case may have caused it, so it must never help the case. An inconsistent opinion
// of a deterministic layer is a bug in this program, and nothing is decided.
func vetOpinion(asked LayerName, op Opinion) (Opinion, error) {
	if asked != LayerModel {
		if op.Outcome == "" {
			return op, nil
		}
		if flaw := findFlaw(asked, op); flaw != "" {
			return Opinion{}, fmt.Errorf("judge: the %s layer %s", asked, flaw)
		}
		return op, nil
	}
	flaw := findFlaw(asked, op)
	if flaw == "" {
		flaw = findModelFlaw(op)
	}
	recordFlaw := findRecordFlaw(op.Model)
	if flaw == "" {
		flaw = recordFlaw
	}
	if flaw != "" {
		record := op.Model
		if recordFlaw != "" {
			record = nil
		}
		op = Opinion{
			Layer: LayerModel, Outcome: Escalate, Trouble: TroubleUnreadable, Model: record,
			Reasoning: "The model's answer could not be used: it " + flaw + ".",
		}
	}
	if op.Trouble != TroubleNone {
		// Without a judgement nothing was examined, whatever the layer claims.
		op.Confidence, op.Assurance = unavailableConfidence, AssuranceNone
	}
	return op, nil
}

// findFlaw describes the problem with an opinion, "" if there is none.
func findFlaw(asked LayerName, op Opinion) string {
	switch {
	case op.Layer != asked:
		return fmt.Sprintf("speaks as %.40q", op.Layer)
	case op.Outcome != Approve && op.Outcome != Reject && op.Outcome != Escalate:
		return fmt.Sprintf("has the unknown outcome %.40q", op.Outcome)
	case !(op.Confidence >= 0 && op.Confidence <= 1):
		return fmt.Sprintf("gives the confidence %v, which is not 0 to 1", op.Confidence)
	case op.Trouble == TroubleNone && op.Assurance.rank() == 0:
		return fmt.Sprintf("claims the assurance %.40q, which is unknown", op.Assurance)
	case op.Outcome == Approve && len(op.Findings) > 0:
		return "both approves and objects"
	case op.Outcome == Approve && op.Fault:
		return "approves although it failed"
	case slices.ContainsFunc(op.Findings, func(f validators.Finding) bool { return f.Code == "" || f.Message == "" }):
		return "has a finding without a code or a message"
	case op.Evidence != nil && asked != LayerEvidence:
		return "has evidence, which another layer fetches"
	case (op.Trouble != TroubleNone || op.Model != nil) && asked != LayerModel:
		return "has a field that only a model may set"
	}
	return ""
}

func findModelFlaw(op Opinion) string {
	switch op.Trouble {
	case TroubleNone:
		if op.Outcome == Escalate {
			return "escalates without naming the trouble"
		}
		if op.Assurance != AssuranceNone && op.Assurance != AssuranceLLM && op.Assurance != AssuranceLLMCalibrated {
			return fmt.Sprintf("claims the assurance %.40s, which a model cannot give", op.Assurance)
		}
	case TroubleNotConfigured, TroubleUnavailable, TroubleUnreadable, TroubleCannotAssess, TroubleLoopGuard:
		if op.Outcome != Escalate {
			return fmt.Sprintf("decides %s although it has no judgement (%s)", op.Outcome, op.Trouble)
		}
	default:
		return fmt.Sprintf("names the trouble %.40q, which is unknown", op.Trouble)
	}
	if op.Fault || op.Route != nil {
		return "has a field that only scripts may set"
	}
	if len(op.Findings) > maxModelFindings || textSize(op) > maxModelText {
		return "is too long"
	}
	return ""
}

func findRecordFlaw(a *ModelRecord) string {
	if a == nil {
		return ""
	}
	size := 0
	for _, s := range []string{
		a.Model, a.Reported, a.Endpoint, a.Fingerprint, a.PromptID, a.PromptDigest, a.CriteriaDigest,
		a.Calibration, a.Uncalibrated, a.Rung, a.Failure, a.Detail, a.Breaker,
	} {
		size += len(s)
	}
	for _, c := range a.Criteria {
		size += len(c.ID) + len(c.Text) + len(c.Status) + len(c.Evidence) + len(c.Why) + len(c.Says)
	}
	for _, v := range a.Votes {
		size += len(v.Model) + len(v.Failure)
	}
	switch {
	case len(a.Votes) > MaxSamples:
		return "has more votes than models can be asked"
	case !(a.Stated >= 0 && a.Stated <= 1):
		return fmt.Sprintf("states the confidence %v, which is not 0 to 1", a.Stated)
	case a.CostUSD != nil && !(*a.CostUSD >= 0 && *a.CostUSD <= math.MaxFloat64):
		return fmt.Sprintf("costs %v, which is not a valid price", *a.CostUSD)
	case a.Calls < 0 || a.Refusals < 0 || a.RefusalLimit < 0 || a.Samples < 0 || a.Agreeing < 0:
		return "counts below zero"
	case size > maxRecordText:
		return "leaves a record that is too long"
	}
	return ""
}

func textSize(op Opinion) int {
	n := len(op.Reasoning)
	for _, s := range op.Suggestions {
		n += len(s)
	}
	for _, f := range op.Findings {
		n += len(f.Code) + len(f.Path) + len(f.Keyword) + len(f.Message) + len(f.Hint)
	}
	return n
}

// scrubOpinion passes every text through scrub, so that nothing sensitive reaches the agent or the record.
// It does not modify the layer's own slices.
func scrubOpinion(op Opinion, scrub func(string) string) Opinion {
	if scrub == nil {
		return op
	}
	op.Reasoning = scrub(op.Reasoning)
	op.Flags = slices.Clone(op.Flags)
	for i := range op.Flags {
		op.Flags[i] = scrub(op.Flags[i])
	}
	if len(op.Suggestions) > 0 {
		clean := make([]string, len(op.Suggestions))
		for i, s := range op.Suggestions {
			clean[i] = scrub(s)
		}
		op.Suggestions = clean
	}
	if op.Model != nil {
		record := *op.Model
		record.Detail = scrub(record.Detail)
		record.Criteria = slices.Clone(record.Criteria)
		for i, c := range record.Criteria {
			c.Text, c.Evidence, c.Why, c.Says = scrub(c.Text), scrub(c.Evidence), scrub(c.Why), scrub(c.Says)
			record.Criteria[i] = c
		}
		op.Model = &record
	}
	if len(op.Evidence) > 0 {
		op.Evidence = slices.Clone(op.Evidence)
		for i, e := range op.Evidence {
			op.Evidence[i].Detail = scrub(e.Detail)
		}
	}
	if len(op.Findings) > 0 {
		clean := make([]validators.Finding, len(op.Findings))
		for i, f := range op.Findings {
			f.Path, f.Message, f.Hint = scrub(f.Path), scrub(f.Message), scrub(f.Hint)
			clean[i] = f
		}
		op.Findings = clean
	}
	return op
}
