package judge

import (
	"slices"

	"github.com/gavel-mcp/gavel/validators"
)

// unavailableConfidence is the confidence of a judgement that was needed but is unavailable.
const unavailableConfidence = 0.5

type deliberation struct {
	// opinions are those of the layers that gave one, in order.
	opinions []Opinion
	rubric   Rubric // with defaults
	// reviewPath is true if an escalation can reach a person.
	reviewPath bool
	// blank is true if a model was not asked because there was nothing to judge.
	blank bool
	// target is the state that the action leads to, "" if none was determined.
	target string
}

// settle turns opinions into a verdict. It is pure, and the only place that applies thresholds,
// required assurance and the policies for an unavailable judgement.
//
// First the opinions are combined into a proposal. Policy can only restrict it: no other outcome becomes an
// approval, and only the structural fallback changes (lowers) the confidence. The loop guard escalates a
// repeated refusal to a person.
func settle(h deliberation) Verdict {
	v := combineOpinions(h.opinions)
	v.Mode, v.Target = h.rubric.Mode, h.target
	if v.Outcome == Approve {
		v = h.applyAvailability(v)
	}
	if v.Outcome == Approve {
		v = h.applyRequirements(v)
	}
	if v.Outcome != Approve {
		v = h.applyLoopGuard(v)
	}
	if v.Outcome == Escalate && !h.reviewPath {
		v.Outcome = Reject
		v.Suggestions = appendMissing(v.Suggestions, []string{ReviewsAreOff})
	}
	if v.Outcome != Approve {
		v.Code = v.Findings[0].Code
		v = v.withNextSteps()
	}
	if v.Code != CodeJudgeUnavailable && v.Code != CodeJudgeUnreadable {
		v.RetryAfter = 0 // waiting does not fix a problem of the case
	}
	v.Applied = v.Outcome == Approve && h.target != ""
	if h.rubric.Mode == Shadow {
		v.Applied = h.target != "" && !h.isIllegal()
		if v.Applied && v.Outcome != Approve {
			v.Warnings = append(v.Warnings, shadowWarning(v.Outcome))
		}
	}
	return v
}

func (d deliberation) isIllegal() bool {
	return slices.ContainsFunc(d.opinions, func(op Opinion) bool {
		return op.Layer == LayerTransition && op.Outcome == Reject
	})
}

// combineOpinions combines the opinions before any policy: one rejection rejects, else one escalation
// escalates, else the move is approved. A rejection has the highest confidence of the opinions that reject,
// any other outcome the lowest of all. A layer that could not judge because of an outage is ignored.
func combineOpinions(opinions []Opinion) Verdict {
	v := Verdict{Outcome: Approve, Confidence: 1, Assurance: AssuranceNone, Opinions: opinions}
	spoke := make([]Opinion, 0, len(opinions))
	for _, op := range opinions {
		v.RetryAfter = max(v.RetryAfter, op.RetryAfter)
		v.Warnings = append(v.Warnings, op.Flags...)
		if op.Outcome == "" || op.Trouble.isExternal() {
			continue
		}
		op.Confidence = roundConfidence(op.Confidence) // 0.1 + 0.7 is 0.8
		spoke = append(spoke, op)
		if op.Layer != LayerContent { // finding no attack says nothing about the rest
			v.Assurance = strongerAssurance(v.Assurance, op.Assurance)
		}
		v.Outcome = worseOutcome(v.Outcome, op.Outcome)
		v.Confidence = min(v.Confidence, op.Confidence)
		v.Sandbox = appendMissing(v.Sandbox, op.Sandbox)
		v.Evidence = append(v.Evidence, op.Evidence...)
	}
	v.Proposed = v.Outcome
	// The deciding opinion comes first, so that code and reasoning begin with it.
	deciding := slices.DeleteFunc(spoke, func(op Opinion) bool { return op.Outcome != v.Outcome })
	lead := findLeader(deciding, v.Outcome)
	v.DecidedBy = LayerTransition
	if lead < 0 {
		v.Reasoning = noObjection
		return v
	}
	v.DecidedBy = deciding[lead].Layer
	if v.Outcome == Reject {
		v.Confidence = deciding[lead].Confidence
	}
	if v.Outcome != Approve {
		first := deciding[lead]
		deciding = slices.Insert(slices.Delete(deciding, lead, lead+1), 0, first)
	}
	for _, op := range deciding {
		v.Reasoning = joinSentences(v.Reasoning, op.Reasoning)
		v.Suggestions = appendMissing(v.Suggestions, op.Suggestions)
		v.Fault = v.Fault || op.Fault
		if v.Outcome != Approve {
			v.Findings = append(v.Findings, findingsOf(op)...)
		}
	}
	if v.Reasoning == "" {
		v.Reasoning = noObjection
		if v.Outcome != Approve {
			v.Reasoning = joinFindings(v.Findings)
		}
	}
	return v
}

// findLeader returns the index of the most certain opinion for a rejection, else of the least certain one;
// ties go to the layer that ranks later. It returns -1 without opinions.
func findLeader(deciding []Opinion, outcome Outcome) int {
	lead := -1
	for i, op := range deciding {
		if lead < 0 {
			lead = i
			continue
		}
		best := deciding[lead]
		ahead := op.Confidence < best.Confidence
		if outcome == Reject {
			ahead = op.Confidence > best.Confidence
		}
		if ahead || op.Confidence == best.Confidence && op.Layer.rank() > best.Layer.rank() {
			lead = i
		}
	}
	return lead
}

// rank breaks ties between equally certain layers. Layers whose approval proves nothing about quality
// come first.
func (n LayerName) rank() int {
	return slices.Index([]LayerName{
		LayerEvidence, LayerContent, LayerTransition,
		LayerSchema, LayerFields, LayerState, LayerScript, LayerModel,
	}, n)
}

// applyAvailability applies onJudgeUnavailable to an approval if the model was unavailable. Other layers
// cannot replace a required quote from the evidence.
func (d deliberation) applyAvailability(v Verdict) Verdict {
	why := d.findOutage()
	if why == nil {
		return v
	}
	switch d.rubric.OnJudgeUnavailable {
	case UnavailableStructural:
		if text := d.rubric.EvidenceOnly(); text != "" { // no model looked for such a quote
			return v.withOutcome(Reject, unprovenFinding(why[0], text))
		}
		v.Confidence = min(unavailableConfidence, v.Confidence)
		v.DecidedBy, v.Degraded = ByFallback, true
		v.Reasoning = joinSentences(v.Reasoning, why[0].Message)
		return v
	case UnavailableReject:
		return v.withOutcome(Reject, why...)
	default:
		return v.withOutcome(Escalate, why...)
	}
}

// findOutage explains why the model was unavailable, nil if it answered or was not asked.
func (d deliberation) findOutage() []validators.Finding {
	i := slices.IndexFunc(d.opinions, func(op Opinion) bool { return op.Trouble.isExternal() })
	if i < 0 {
		return nil
	}
	return findingsOf(d.opinions[i])
}

// applyRequirements checks an approval against the rubric and reports every unmet requirement,
// assurance first, because better data cannot fix it. If the model was unavailable, the refusal
// gives that as the reason.
func (d deliberation) applyRequirements(v Verdict) Verdict {
	var missing []validators.Finding
	if need := d.rubric.RequiredAssurance(); !v.Assurance.AtLeast(need) {
		missing = append(missing, assuranceFinding(v.Assurance, need))
		if d.blank {
			missing[0].Hint = notAskedHint(d.rubric)
		}
	}
	outage := d.findOutage()
	unsure := d.rubric.Enabled && v.Confidence < d.rubric.MinConfidence
	refused := unsure && d.rubric.StrictMode
	switch {
	case outage != nil && (refused || missing != nil):
		missing = append(outage, missing...)
	case refused:
		missing = append(missing, confidenceFinding(v))
	}
	if missing != nil {
		v.Degraded = false // nothing was decided without the model
		return v.withOutcome(Escalate, missing...)
	}
	if outage != nil {
		v.Warnings = append(v.Warnings, fallbackWarning(outage[0].Message, v.Assurance))
	}
	if unsure {
		v.Warnings = append(v.Warnings, confidenceWarning(v.Confidence))
	}
	if d.blank {
		v.Warnings = append(v.Warnings, notAskedText(d.rubric))
	}
	return v
}

// applyLoopGuard escalates a case to a person if the model answered it too often without an approval:
// otherwise a caller could reword its request until the judge gives in. Approvals that policy turned down
// do not count. The number of earlier refusals is in the opinion.
func (d deliberation) applyLoopGuard(v Verdict) Verdict {
	i := slices.IndexFunc(d.opinions, Opinion.isJudgement)
	if i < 0 || d.opinions[i].Outcome == Approve {
		return v
	}
	record := d.opinions[i].Model
	if record == nil || record.RefusalLimit <= 0 || record.Refusals < record.RefusalLimit-1 {
		return v
	}
	reasoning := v.Reasoning
	why := validators.Finding{Code: CodeLoopGuard, Message: troubleMessage(TroubleLoopGuard)}
	v = v.withOutcome(Escalate, slices.Insert(v.Findings, 0, why)...)
	v.Reasoning = joinSentences(why.Message, reasoning)
	return v
}

// withOutcome returns v with the outcome that policy requires. The proposal and its
// confidence stay.
func (v Verdict) withOutcome(to Outcome, why ...validators.Finding) Verdict {
	v.Outcome, v.DecidedBy = to, ByPolicy
	v.Findings = why
	v.Reasoning = ""
	for _, f := range why {
		v.Reasoning = joinSentences(v.Reasoning, f.Message)
	}
	return v
}

// findingsOf returns at least one finding: a refusal without a reason gets a default one, and for a
// model without a judgement the cause comes first.
func findingsOf(op Opinion) []validators.Finding {
	if op.Trouble != TroubleNone {
		why := validators.Finding{Code: string(op.Trouble), Message: op.Reasoning}
		if why.Message == "" {
			why.Message = troubleMessage(op.Trouble)
		}
		return append([]validators.Finding{why}, op.Findings...)
	}
	if len(op.Findings) == 0 {
		return []validators.Finding{{
			Code:    string(op.Layer) + "_rejected",
			Message: defaultReason(op),
		}}
	}
	return op.Findings
}

// isExternal reports whether the trouble is independent of the case, so that the policy for an
// unavailable judge applies.
func (t Trouble) isExternal() bool {
	return t == TroubleNotConfigured || t == TroubleUnavailable
}

func worseOutcome(a, b Outcome) Outcome {
	if a == Reject || b == Reject {
		return Reject
	}
	if a == Escalate || b == Escalate {
		return Escalate
	}
	return Approve
}

// clampUnit limits a confidence to 0..1; NaN is 0.
func clampUnit(c float64) float64 {
	if c >= 0 && c <= 1 {
		return c
	}
	if c > 1 {
		return 1
	}
	return 0
}

func appendMissing(all, more []string) []string {
	for _, s := range more {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
