package judge

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators"
)

// Agents read the sentences of this file. They explain the problem and the next step. No sentence reveals a
// threshold: an agent that knows the number optimises for it.

// noObjection is the reasoning of an approval for which no layer gives one.
const noObjection = "Nothing objects to this move."

// Sentences that end a reasoning: AwaitsPerson that of an escalation, TryAgain that of a refusal for which
// there is no other advice.
const (
	AwaitsPerson = "A person has to decide this; until then the state stays as it is."
	TryAgain     = "Correct this and perform the action again."
)

// withNextSteps adds to the reasoning who has to decide now, or what the agent can do.
func (v Verdict) withNextSteps() Verdict {
	if v.Outcome == Escalate {
		if v.Code == CodeLoopGuard && v.Findings[0].Hint == "" {
			v.Findings[0].Hint = liftGuardHint
		}
		v.Reasoning = joinSentences(v.Reasoning, AwaitsPerson)
		return v
	}
	advice := nextStep(v.Code, v.RetryAfter.Duration())
	if v.DecidedBy == ByPolicy { // the finding's own hint is more specific
		advice = cmp.Or(v.Findings[0].Hint, advice)
	}
	if advice != "" && v.Findings[0].Hint == "" {
		v.Findings[0].Hint = advice
	}
	if advice == "" && !v.Fault && v.DecidedBy != LayerTransition {
		advice = TryAgain
	}
	v.Reasoning = joinSentences(v.Reasoning, advice)
	return v
}

func joinFindings(findings []validators.Finding) string {
	texts := make([]string, 0, len(findings))
	for _, f := range findings {
		texts = append(texts, joinSentences(f.Message, f.Hint))
	}
	return joinList(texts)
}

// nextStep returns the advice for a code that settle sets, "" for a layer's code.
func nextStep(code string, retryAfter time.Duration) string {
	switch code {
	case CodeLowConfidence:
		return "Make the data more convincing and perform the action again, or ask a person."
	case CodeAssuranceTooLow:
		return "Other data will not change this; ask a person or the owner of the workflow."
	case CodeJudgeNotConfigured:
		return "Trying again will not help; ask the operator to configure a model, or the workflow's owner to turn useLLM off."
	case CodeJudgeUnavailable:
		if retryAfter > 0 {
			return retryAdvice(retryAfter)
		}
		return "Leave the data as it is and perform the action again later."
	case CodeJudgeUnreadable:
		if retryAfter > 0 { // the model was not asked
			return retryAdvice(retryAfter)
		}
		return "Perform the action again with shorter, simpler data; if that does not help, tell the operator."
	case CodeCannotAssess:
		return "Add the missing evidence and perform the action again."
	case CodeCriterionNotMet:
		return "Do what the criterion requires, then perform the action again with data that shows it."
	case CodeLoopGuard:
		return "Sending this again or rephrased will not help; do what the refusals ask for, or ask a person. " + liftGuardHint
	case CodeInstructionInData:
		return "Remove text that addresses the judge; keep only data about the move."
	case CodeNoRoute:
		return "Read this action's conditions in the definition, and send data that meets one."
	}
	return ""
}

// ReviewsAreOff is added as a suggestion to each refusal that would have opened a review if reviews were on.
const ReviewsAreOff = "A person could decide this, but reviews are off. To turn them on, the operator starts gavel without --no-reviews, and without reviews: false in its configuration file."

// liftGuardHint explains how the loop guard is lifted.
const liftGuardHint = "An operator lifts this with workflow.judge.clear (gavel judge clear). It also ends when a person approves the move, or when the refusals expire."

func retryAdvice(after time.Duration) string {
	return fmt.Sprintf("Leave the data as it is and perform the action again in %s.", roundUp(after))
}

func roundUp(d time.Duration) time.Duration {
	if d > time.Second {
		d += time.Second - 1
	}
	return max(d.Truncate(time.Second), time.Second)
}

func troubleMessage(t Trouble) string {
	switch t {
	case TroubleNotConfigured:
		return "This move needs a model's judgement, and no model is configured."
	case TroubleUnavailable:
		return "The model that has to judge this move could not be reached."
	case TroubleCannotAssess:
		return "The model could not decide from the data it received."
	case TroubleLoopGuard:
		return "The model has refused this repeatedly and is not asked again for now."
	case TroubleNone, TroubleUnreadable:
	}
	return "The model's answer contained no readable judgement."
}

func defaultReason(op Opinion) string {
	if op.Reasoning != "" {
		return op.Reasoning
	}
	if op.Outcome == Escalate {
		return "The " + string(op.Layer) + " layer wants a person to decide, without giving a reason."
	}
	return "The " + string(op.Layer) + " layer objects without giving a reason."
}

func assuranceFinding(have, need Assurance) validators.Finding {
	return validators.Finding{
		Code: CodeAssuranceTooLow,
		Message: fmt.Sprintf("This move needs the assurance %s (examined by %s), but reached only %s (%s).",
			need, need.describe(), have, have.describe()),
	}
}

// unprovenFinding adds a criterion to why, the finding about an outage: only a quote from evidence can meet
// that criterion.
func unprovenFinding(why validators.Finding, criterion string) validators.Finding {
	why.Message = joinSentences(why.Message, "Only a quote from fetched evidence meets this criterion, and none was searched for: "+cleanText(criterion, maxPhrase))
	return why
}

// confidenceFinding explains that a confidence is too low. If it is the model's, the text does not ask for
// better data, which cannot help if the model is never certain.
func confidenceFinding(v Verdict) validators.Finding {
	f := validators.Finding{
		Code:    CodeLowConfidence,
		Message: fmt.Sprintf("Nothing objects, but the confidence of %s is lower than this workflow requires.", FormatConfidence(v.Confidence)),
	}
	if v.DecidedBy == LayerModel {
		shrunk := ""
		if v.Assurance == AssuranceLLM {
			shrunk = ", shrunk because the model is not calibrated"
		}
		f.Message = fmt.Sprintf("The model approves, but its confidence is only %s%s, which is lower than this workflow requires. The data is not the problem.", FormatConfidence(v.Confidence), shrunk)
		f.Hint = "Ask a person to decide, or ask the workflow's owner for a calibrated model or a lower minConfidence."
	}
	return f
}

func confidenceWarning(c float64) string {
	return fmt.Sprintf("The confidence of %s is lower than this workflow asks for; the move passed because strictMode is off.", FormatConfidence(c))
}

// notAskedText says why a model was not asked about a move that gives it nothing to judge.
func notAskedText(r Rubric) string {
	if len(r.Criteria) > 0 {
		return "The model was not asked: no criterion applies to this move."
	}
	return "The model was not asked: there is no data, context or evidence to judge."
}

func notAskedHint(r Rubric) string {
	if len(r.Criteria) > 0 {
		return "No criterion applies, so the model was not asked: ask a person to decide."
	}
	return "The model was not asked, because there is no data, context or evidence to judge: send data that describes what was done, or ask a person."
}

func fallbackWarning(why string, have Assurance) string {
	return joinSentences(why, fmt.Sprintf("The move was decided without it (assurance %s).", have))
}

func shadowWarning(o Outcome) string {
	return fmt.Sprintf("Shadow mode: the judge would have answered %s; the move happens anyway.", o)
}

// FormatConfidence formats a confidence with two decimals. It truncates rather than rounds, so that a value
// below a threshold does not look as if it reached it.
func FormatConfidence(c float64) string {
	return strconv.FormatFloat(math.Floor(roundConfidence(c)*100+1e-7)/100, 'f', 2, 64)
}

// joinSentences joins the non-empty strings and ends each with a full stop.
func joinSentences(texts ...string) string {
	var b strings.Builder
	for _, t := range texts {
		t = strings.TrimSpace(t)
		if t == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t)
		if last, _ := utf8.DecodeLastRuneInString(t); !strings.ContainsRune(".!?:;)”\"", last) {
			b.WriteByte('.')
		}
	}
	return b.String()
}

// maxRepeated limits how many messages a reasoning repeats; the findings list all messages.
const maxRepeated = 3

func joinList(texts []string) string {
	if len(texts) <= maxRepeated {
		return joinSentences(texts...)
	}
	return joinSentences(joinSentences(texts[:maxRepeated]...), fmt.Sprintf("And %d more", len(texts)-maxRepeated))
}

// failureMessage explains why a model gave no judgement, without details that only an
// operator can use.
func failureMessage(t Trouble, class llm.Class) string {
	switch class {
	case llm.ClassRateLimited, llm.ClassOverloaded:
		return "The model that has to judge this move is overloaded."
	case llm.ClassQuota:
		return "The budget of the model that has to judge this move is used up."
	case llm.ClassAuth, llm.ClassNotFound, llm.ClassConfig, llm.ClassCapability:
		return "The model that has to judge this move is misconfigured."
	case llm.ClassBreakerOpen, llm.ClassNotBefore:
		return "The model that has to judge this move has failed repeatedly and is paused for a while."
	case llm.ClassTooLong:
		return "This move is too long for the model that has to judge it."
	case llm.ClassFilter, llm.ClassRefusal:
		return "The model refused to judge this move."
	case llm.ClassTruncated:
		return "The model's answer was cut off before its judgement."
	case llm.ClassInconsistent:
		return "The model's answer contradicts itself."
	case llm.ClassIncomplete:
		return "The model did not answer every criterion."
	case llm.ClassQuality:
		return "Most of the model's recent answers to this principal were unusable; it is not asked for a while."
	default:
		return troubleMessage(t)
	}
}

func busyMessage(e *llm.Error) string {
	switch e.Class {
	case llm.ClassTimeout:
		return "The model that has to judge this move did not answer in time."
	case llm.ClassShareSpent:
		return "You have reached the limit per minute for the model that has to judge this move."
	case llm.ClassBusy:
		return "Too many questions are waiting for the model that has to judge this move."
	case llm.ClassQuota:
		return "The budget of the model that has to judge this move is used up; your requests contributed to that."
	default:
		return "The model that has to judge this move accepts no more questions for now; your requests contributed to that."
	}
}

func unknownModel(name string) string {
	return fmt.Sprintf("This move needs the model %.80q, but no such model is configured.", name)
}

func budgetSpent(principal string, frees time.Duration) string {
	return fmt.Sprintf("The principal %.80q has used up its quota of questions to the model; ask again in %s.", principal, roundUp(frees))
}
