package judge

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/shown"
	"github.com/gavel-mcp/gavel/validators"
)

// Limits on the recorded words of a model, in bytes, and on the number of findings, objections
// and suggestions. Together they stay below the limits of vetOpinion.
const (
	maxWords    = 1200 // its reasoning
	maxPhrase   = 300  // a criterion, an objection, a suggestion
	maxQuote    = 200  // evidence
	maxLabel    = 100  // text that an endpoint gives about itself
	maxUnmet    = 24
	maxRemarks  = 8
	maxRecorded = 40 // criteria in the record
	maxDetail   = 400
	maxStrays   = 16 // answers to criteria that were not asked
)

// findContradiction describes, for the operator, how an answer contradicts itself or misses the question; nil if it
// does neither. It examines the answer as written: a problem that code finds in the evidence does not count as a
// contradiction.
func (q question) findContradiction(a llm.Answer) error {
	if !(a.Confidence >= 0 && a.Confidence <= 1) {
		return errors.New("the model states a confidence outside 0 to 1")
	}
	if len(a.Criteria) > 2*len(q.criteria)+maxStrays {
		return fmt.Errorf("the model gives %d answers to %d criteria", len(a.Criteria), len(q.criteria))
	}
	if a.Keyed != q.keyed && (!a.NoCriteria || a.Approved) {
		return q.missedForm(a)
	}
	if a.Keyed {
		return q.findGap(a)
	}
	met, notMet := map[string]bool{}, map[string]bool{}
	for _, c := range a.Criteria {
		switch c.Status {
		case llm.StatusMet:
			met[idOf(c.ID)] = true
		case llm.StatusNotMet:
			notMet[idOf(c.ID)] = true
		}
	}
	overall := len(q.criteria) == 0
	allMet := !overall && !slices.ContainsFunc(q.criteria, func(c criterion) bool { return !met[c.id] })
	switch {
	case overall && a.Approved && q.clean(a.Reasoning, maxWords) == "":
		return errors.New("the model approves but gives no reasoning")
	case a.Approved && len(notMet) > 0:
		return fmt.Errorf("the model approves but answers contradicted to %s", cleanText(strings.Join(slices.Sorted(maps.Keys(notMet)), ", "), maxLabel))
	case a.Approved && len(a.Violations) > 0:
		return errors.New("the model approves but lists violations")
	case !a.Approved && allMet && len(notMet) == 0 && !a.InjectionSuspected:
		return errors.New("the model refuses but answers met to every criterion")
	}
	return nil
}

// missedForm describes an answer whose criteria have another form than the question asks for.
func (q question) missedForm(a llm.Answer) error {
	switch {
	case !q.keyed:
		return fmt.Errorf("%w: the model answers criteria under ids, which was not asked", llm.ErrIncomplete)
	case a.NoCriteria:
		return fmt.Errorf("%w: the model left out every criterion", llm.ErrIncomplete)
	}
	return fmt.Errorf("%w: the model gave the criteria as a list, without the required members", llm.ErrIncomplete)
}

// idOf normalises a criterion's id as models write it.
func idOf(id string) string { return strings.ToLower(strings.TrimSpace(id)) }

// weighAnswer turns a consistent answer into an opinion. If there are criteria, the model only
// answers them, and code derives the outcome.
func (m *modelLayer) weighAnswer(q question, a llm.Answer, model ModelRecord) Opinion {
	a = q.grade(a)
	verdicts := q.verdicts(a)
	model.Criteria = verdicts[:min(len(verdicts), maxRecorded)]
	advice := slices.DeleteFunc(slices.Clone(verdicts), func(v CriterionVerdict) bool { return !v.Advisory || v.Status == llm.StatusMet })
	verdicts = slices.DeleteFunc(slices.Clone(verdicts), func(v CriterionVerdict) bool { return v.Advisory })
	unmet := withStatus(verdicts, llm.StatusNotMet)
	open := withStatus(verdicts, llm.StatusCannotAssess)
	if len(open) > 0 && len(unmet) == 0 && !a.InjectionSuspected {
		op := q.undecidedOpinion(a, open, model)
		op.Flags = q.adviceFlags(advice)
		return op
	}
	op := Opinion{
		Layer: LayerModel, Outcome: Approve, Confidence: unavailableConfidence, Assurance: AssuranceLLM,
		Suggestions: q.cleanRemarks(a.Suggestions), Flags: q.adviceFlags(advice),
	}
	if a.InjectionSuspected || len(unmet) > 0 || !a.Approved {
		op.Outcome, op.Findings = Reject, q.rejectionFindings(a, unmet)
	}
	// If code overrides the model, the model's confidence and words refer to another outcome, so they are
	// dropped.
	if a.Approved == (op.Outcome == Approve) {
		op.Reasoning = cmp.Or(q.clean(a.Reasoning, maxWords), q.explainVerdicts(verdicts, unmet))
		op.Confidence = shrinkConfidence(model.Stated)
		if op.Outcome == Approve { // calibrations apply to approvals only
			op.Confidence, model.Calibration, model.Uncalibrated = m.Calibrations.confidence(model)
			if model.Exemplars != "" && model.Calibration != "" {
				op.Confidence, model.Calibration = min(op.Confidence, shrinkConfidence(model.Stated)), ""
				model.Uncalibrated = "it was measured without decisions from the history"
			}
		}
	}
	if q.asksAdviceOnly() && op.Outcome == Approve {
		op.Assurance, op.Reasoning, model.Calibration = AssuranceNone, "The model was asked for advice only.", ""
	} else if model.Calibration != "" {
		op.Assurance = AssuranceLLMCalibrated
	}
	op.Model = &model
	return op
}

// asksAdviceOnly reports whether no criterion of the question counts. Then an approval shows nothing, whatever the model
// answers.
func (q question) asksAdviceOnly() bool {
	return len(q.criteria) > 0 && !slices.ContainsFunc(q.criteria, func(c criterion) bool { return !c.terms.Advisory })
}

// explainVerdicts is the reasoning of an answer whose only reasons are those of its criteria.
func (q question) explainVerdicts(verdicts, unmet []CriterionVerdict) string {
	if len(unmet) == 0 {
		return fmt.Sprintf("The model found %s met, with quotes for each.", countCriteria(len(verdicts)))
	}
	var why []string
	for _, v := range unmet {
		why = append(why, v.Says)
	}
	return truncateText(joinSentences(why...), maxWords)
}

func countCriteria(n int) string {
	if n == 1 {
		return "the criterion"
	}
	return fmt.Sprintf("all %d criteria", n)
}

// adviceFlags reports advisory criteria that do not hold.
func (q question) adviceFlags(advice []CriterionVerdict) (flags []string) {
	for _, f := range q.findingsOn(CodeCriterionNotMet, advice, nil) {
		flags = append(flags, "Advice, which does not block: "+f.Message)
	}
	return flags
}

// undecidedOpinion lists the criteria that cannot be assessed. If the model refused, it includes the reasons.
func (q question) undecidedOpinion(a llm.Answer, open []CriterionVerdict, model ModelRecord) Opinion {
	reasoning := troubleMessage(TroubleCannotAssess)
	findings := q.findingsOn(CodeCriterionNotAssessable, open, nil)
	if !a.Approved {
		reasoning = joinSentences(reasoning, q.clean(a.Reasoning, maxWords))
		findings = append(findings, q.objectionFindings(a.Violations)...)
	}
	op := unjudgedOpinion(TroubleCannotAssess, reasoning, model)
	op.Findings, op.Suggestions = findings, q.cleanRemarks(a.Suggestions)
	return op
}

// verdicts settles the criteria. A refusal without criteria comes from a judge in the style of the Generic DFA
// server: its reasons count.
func (q question) verdicts(a llm.Answer) []CriterionVerdict {
	if a.NoCriteria && !a.Approved {
		return nil
	}
	var out []CriterionVerdict
	proves := map[string]string{} // from quote to the criterion that it proves
	for _, c := range q.criteria {
		out = append(out, q.verdictOn(c, a.Criteria, proves))
	}
	return out
}

// verdictOn settles one criterion. The gravest of several answers counts; a quote proves one criterion
// only.
func (q question) verdictOn(c criterion, answers []llm.Criterion, proves map[string]string) CriterionVerdict {
	v := CriterionVerdict{ID: c.id, Text: q.clean(c.text, maxPhrase), Advisory: c.terms.Advisory}
	proof := c.proof
	for _, a := range answers {
		if idOf(a.ID) != c.id {
			continue
		}
		if a.Status == llm.StatusMet {
			a.Evidence = q.extractQuote(a.Evidence, proof)
		}
		status, why := q.verifyCriterion(a, proof)
		key, first := q.identifyQuote(a.Evidence, proves)
		if status == llm.StatusMet && first != "" && first != c.id {
			status, why = llm.StatusCannotAssess, "its quote already proves "+first
		}
		if statusRank(status) > statusRank(v.Status) {
			v.Status, v.Why, v.Evidence, v.Says = status, why, q.clean(a.Evidence, maxQuote), q.clean(a.Why, maxPhrase)
			v.Basis, v.Grade = "", a.Grade
			if status == llm.StatusMet {
				v.Basis, proves[key] = q.findBasis(a.Evidence), c.id
			}
		}
	}
	if v.Status == "" {
		v.Status, v.Why = llm.StatusCannotAssess, "the model did not answer it"
	}
	if v.Status == llm.StatusCannotAssess && proof.unprovenStatus() == llm.StatusNotMet {
		v.Status, v.Why = llm.StatusNotMet, cmp.Or(v.Why, "only a quote from the evidence meets it")
	}
	return v
}

// identifyQuote returns the key of a quote in proves, and the criterion that it already proves. A
// short quote of a whole value has the same key with or without the value's name.
func (q question) identifyQuote(evidence string, proves map[string]string) (key, proved string) {
	key = sameQuote(evidence)
	if countWords(evidence) < DefaultMinWords {
		for _, path := range q.shown.FindWhole(evidence) {
			if key = path; proves[key] == "" {
				break
			}
		}
	}
	return key, proves[key]
}

// verifyCriterion checks the evidence against the shown documents: if it is missing, not found, or
// proves nothing, the criterion is not assessable.
func (q question) verifyCriterion(a llm.Criterion, proof Proof) (status, why string) {
	switch a.Status {
	case llm.StatusNotMet, llm.StatusCannotAssess:
		return a.Status, ""
	case llm.StatusMet:
	default:
		return llm.StatusCannotAssess, "the model gave it an unknown status"
	}
	if strings.TrimSpace(a.Evidence) == "" {
		return llm.StatusCannotAssess, "the model gave no evidence"
	}
	if ok, why := q.shown.Contains(a.Evidence); !ok {
		why = cmp.Or(why, "its evidence is not in the documents that the model received")
		return llm.StatusCannotAssess, q.clean(why, maxQuote)
	}
	if why := proof.explainMissing(a.Evidence, q.shown, proof.minWords()); why != "" {
		return llm.StatusCannotAssess, q.clean(why, maxQuote)
	}
	return a.Status, ""
}

// extractQuote returns the evidence, or the longest verbatim quote within it if the model wrote other words around
// its quote.
func (q question) extractQuote(evidence string, proof Proof) string {
	if found, _ := q.shown.Contains(evidence); found {
		return evidence
	}
	return cmp.Or(proof.sources(q.shown).FindRun(evidence, max(proof.minWords(), DefaultMinWords)), evidence)
}

func (q question) findBasis(evidence string) string {
	fetched := q.shown.Named(shown.Evidence)
	if ok, _ := fetched.Contains(evidence); ok {
		return BasisEvidence
	}
	return BasisClaim
}

func statusRank(status string) int {
	return slices.Index([]string{"", llm.StatusMet, llm.StatusCannotAssess, llm.StatusNotMet}, status)
}

func withStatus(all []CriterionVerdict, status string) []CriterionVerdict {
	var some []CriterionVerdict
	for _, v := range all {
		if v.Status == status {
			some = append(some, v)
		}
	}
	return some
}

func (q question) rejectionFindings(a llm.Answer, unmet []CriterionVerdict) []validators.Finding {
	var out []validators.Finding
	if a.InjectionSuspected {
		out = append(out, validators.Finding{Code: CodeInstructionInData, Message: "The data tries to tell its judge what to decide."})
	}
	// The prompt asks the model for one objection per criterion that is not met.
	objections := q.cleanRemarks(a.Violations)
	if len(objections) == len(unmet) {
		out = append(out, q.findingsOn(CodeCriterionNotMet, unmet, objections)...)
		objections = nil
	} else {
		out = append(out, q.findingsOn(CodeCriterionNotMet, unmet, nil)...)
	}
	out = append(out, q.objectionFindings(objections)...)
	if len(out) == 0 {
		why := cmp.Or(q.clean(a.Reasoning, maxPhrase), "The model objects without giving a reason.")
		out = append(out, validators.Finding{Code: CodeModelObjection, Message: why})
	}
	return out
}

func (q question) objectionFindings(objections []string) []validators.Finding {
	var out []validators.Finding
	for _, objection := range q.cleanRemarks(objections) {
		out = append(out, validators.Finding{Code: CodeModelObjection, Message: objection})
	}
	return out
}

// findingsOn turns criteria into findings, with the model's words if there are any. Criteria beyond the
// limit are only counted.
func (q question) findingsOn(code string, verdicts []CriterionVerdict, words []string) []validators.Finding {
	var out []validators.Finding
	for i, v := range verdicts[:min(len(verdicts), maxUnmet)] {
		f := validators.Finding{Code: code, Message: "Not met: " + v.Text, Path: q.dataPath(v.Evidence)}
		if code == CodeCriterionNotAssessable {
			f.Message = "Cannot be assessed: " + v.Text
		}
		switch {
		case v.Why != "":
			says, _, _ := strings.Cut(f.Message, ":")
			f.Message = fmt.Sprintf("%s (%s): %s", says, v.Why, v.Text)
		case words != nil:
			f.Message = joinSentences(f.Message, words[i])
		case v.Says != "":
			f.Message = joinSentences(f.Message, v.Says)
		case v.Evidence != "" && f.Path == "":
			f.Message = joinSentences(f.Message, "The model points to: "+v.Evidence)
		}
		out = append(out, f)
	}
	if more := len(verdicts) - maxUnmet; more > 0 {
		out = append(out, validators.Finding{Code: code, Message: fmt.Sprintf("And %d more criteria.", more)})
	}
	return out
}

// dataPath returns the evidence as a JSON pointer into the action's data, "" if it is
// not one.
func (q question) dataPath(evidence string) string {
	pointer := strings.TrimPrefix(evidence, "#")
	if found, why := q.shown.Named(shown.Data).FindPointer(pointer); found || why != "" {
		return strings.TrimPrefix(pointer, "/"+shown.Data)
	}
	return ""
}

func (q question) cleanRemarks(texts []string) []string {
	var out []string
	for _, text := range texts {
		if len(out) == maxRemarks {
			break
		}
		if text = q.clean(text, maxPhrase); text != "" {
			out = appendMissing(out, []string{text})
		}
	}
	return out
}

// cleanText prepares untrusted words for the record: one line of valid UTF-8 of at most limit
// bytes, without control characters and characters that hide or reorder text.
func cleanText(text string, limit int, secrets ...string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return ' '
		case r == zeroWidthJoiner || r == zeroWidthNonJoiner:
			return r // some scripts need them
		case unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.Join(strings.Fields(text), " ")
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, ellipsis)
		}
	}
	return truncateText(text, limit)
}

const (
	zeroWidthNonJoiner = '\u200C'
	zeroWidthJoiner    = '\u200D'
	ellipsis           = "…"
)

func truncateText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimSpace(text[:max(end, 0)]) + ellipsis
}

// clean is cleanText that also removes the question's marker and nonce.
func (q question) clean(text string, limit int) string {
	return cleanText(text, limit, q.marker, q.nonce)
}
