package operation

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// Explain is an error as callers see it: the text of one that is not an *engine.Error
// stays in the log. defect says that it belongs there.
func Explain(err error) (e *engine.Error, defect bool) {
	if !errors.As(err, &e) {
		e = &engine.Error{Code: engine.CodeOf(err), Message: "An internal error kept gavel from answering.", Hint: "The log has the details.", Err: err}
		if e.Code == engine.CodeCancelled {
			e.Message, e.Hint = "The request ended before gavel could answer.", "Check the status before trying again."
		}
	}
	return e, e.Code == engine.CodeInternal || e.Code == engine.CodeUnavailable || e.Code == engine.CodeUntrustedRules || e.Code == engine.CodeValuesUnreadable
}

// CodeInfo documents a code of the engine; one that it does not know is a defect.
func CodeInfo(code engine.Code) engine.CodeInfo {
	if i := slices.IndexFunc(engine.Codes, func(c engine.CodeInfo) bool { return c.Code == code }); i >= 0 {
		return engine.Codes[i]
	}
	return engine.CodeInfo{Code: code, Meaning: "An error without a description."}
}

// sayMessage is the line of a result that says itself what happened: its Message and its
// Progress.
func sayMessage(res any) string {
	v := reflect.ValueOf(res)
	var line []string
	for _, name := range []string{"Message", "Progress"} {
		if f := v.FieldByName(name); f.IsValid() && f.Kind() == reflect.String && f.String() != "" {
			line = append(line, f.String())
		}
	}
	return strings.Join(line, " ")
}

// sayPage is the line of a page: how many, in which order, and how to go on.
func sayPage(n int, noun, order, more string, next any) string {
	line := countNoun(n, noun) + order + "."
	if v := reflect.ValueOf(next); !v.IsZero() {
		line += fmt.Sprintf(" More with "+more+".", next)
	}
	return line
}

func sayDefine(r engine.DefineResult) string {
	line := fmt.Sprintf("DEFINED %q version %d: it starts in %q.", r.Name, r.Version, r.InitialState)
	if !r.Created {
		line = fmt.Sprintf("UNCHANGED: %q version %d already is this definition.", r.Name, r.Version)
	}
	for _, w := range r.Warnings {
		line += fmt.Sprintf(" Warning: %s.", w.Message)
	}
	return line
}

func sayList(r DefinitionList) string {
	if r.Count == 0 {
		return "No workflow is defined yet; define one first."
	}
	names := make([]string, len(r.Workflows))
	for i, d := range r.Workflows {
		names[i] = d.Name
	}
	return fmt.Sprintf("%d defined: %s.", r.Count, strings.Join(names, ", "))
}

func sayStart(r engine.StartResult) string {
	what := "start of " + r.Workflow
	if r.ID != "" {
		what += " as " + r.ID
	}
	return SayVerdict(what, r.Decision)
}

// sayValidate is never a refusal: it was a question.
func sayValidate(r engine.ValidateResult) string {
	what := fmt.Sprintf("%q in %q", r.Action, r.State)
	line := fmt.Sprintf("WOULD PASS: %s would lead to %q.", what, r.Decision.Target)
	switch {
	case r.Approved:
	case r.Decision.Outcome == judge.Escalate:
		line = fmt.Sprintf("WOULD BE ESCALATED: %s: %s", what, sayFindings(r.Decision))
	default:
		line = fmt.Sprintf("WOULD BE REJECTED: %s: %s", what, sayFindings(r.Decision))
	}
	return line + " Nothing moved."
}

func sayStatus(r engine.StatusResult) string {
	var line strings.Builder
	line.WriteString(r.Progress)
	for _, review := range r.Reviews {
		switch {
		case r.Past != nil: // those of the past need no longer wait
		case review.Status == record.ReviewResolved:
			what := strconv.Quote(review.Action)
			if review.EndedEarly {
				what = "The early end"
			}
			fmt.Fprintf(&line, " %s was rejected by %s (review %s): %s", what, review.By, review.ID, Sentence(review.Reason))
		case review.EndedEarly:
			fmt.Fprintf(&line, " The agent ended early, and the review %s tells a person.", review.ID)
		default:
			fmt.Fprintf(&line, " %q waits for a person as review %s.", review.Action, review.ID)
		}
	}
	return line.String()
}

func sayCanExecute(r engine.CanExecuteResult) string {
	if r.Allowed {
		return "YES: " + r.Reason
	}
	return "NO: " + r.Reason
}

func sayReviews(r engine.ReviewsResult) string {
	var line strings.Builder
	line.WriteString(countNoun(r.Count, "review") + ", the most urgent first.")
	for _, one := range r.Reviews {
		fmt.Fprintf(&line, " %s.", reviewLabel(one))
	}
	if r.NextCursor != "" {
		fmt.Fprintf(&line, " More with cursor %q.", r.NextCursor)
	}
	return line.String()
}

func sayReview(r engine.ReviewView) string {
	line := fmt.Sprintf("%s, asked for by %s. %s", reviewLabel(r.ReviewSummary), r.RequestedBy, r.Next)
	if r.Reason != "" {
		line += " Reason: " + Sentence(r.Reason)
	}
	return line + " Why a person: " + sayFindings(r.Escalation.Decision)
}

// askedFor is what a review is about: an action, in quotes, or the end of the agent.
func askedFor(r engine.ReviewSummary) string {
	if r.EndedEarly {
		return "the early end"
	}
	return strconv.Quote(r.Action)
}

// reviewLabel names a review and what it is about.
func reviewLabel(r engine.ReviewSummary) string {
	label := fmt.Sprintf("%s (%s, %s): %s in %q of %s (%s)", r.ID, r.Status, r.Priority, askedFor(r), r.From, r.Instance, r.Workflow)
	if r.Decision == judge.Reject && r.Status == record.ReviewResolved {
		label += ", rejected by " + r.By + ": " + strings.TrimSuffix(Sentence(r.Reason), ".")
	}
	return label
}

func sayResolve(r engine.ResolveResult) string {
	what := fmt.Sprintf("%s in %q of %s (%s)", askedFor(r.Review), r.Review.From, r.Review.Instance, r.Review.ID)
	switch {
	case r.Applied:
		return fmt.Sprintf("APPROVED %s. %s", what, r.Progress)
	case r.Review.Status == record.ReviewResolved && r.Review.Decision == judge.Approve: // of a call, or an early end
		return fmt.Sprintf("APPROVED %s: %s %s", what, r.Message, r.Progress)
	case r.Review.Status == record.ReviewReopened:
		return fmt.Sprintf("REOPENED %s. %s", what, r.Message)
	case r.Review.Status == record.ReviewResolved:
		return fmt.Sprintf("REJECTED %s: %s Nothing moved. %s", what, sayFindings(r.Decision), r.Progress)
	default:
		return fmt.Sprintf("NOT APPROVED: %s %s was not performed, and its review is %s. %s", Sentence(r.Review.Reason), what, r.Review.Status, r.Progress)
	}
}

// SayVerdict tells a decision in one line: what was asked, what came of it, and when
// refused what is wrong and what to do. Where the instance is, SayPosition adds.
func SayVerdict(what string, d engine.Decision) string {
	var b strings.Builder
	switch {
	case d.Outcome == judge.Approve:
		fmt.Fprintf(&b, "APPROVED %s.", what)
	case d.Applied: // shadow mode
		fmt.Fprintf(&b, "MOVED %s, because the mode is shadow; enforced, the answer would be %s: %s", what, d.Outcome, sayFindings(d))
	case d.Outcome == judge.Escalate:
		fmt.Fprintf(&b, "ESCALATED %s: %s", what, sayFindings(d))
	default:
		fmt.Fprintf(&b, "REJECTED %s: %s", what, sayFindings(d))
	}
	for _, w := range d.Warnings {
		b.WriteString(" Warning: " + Sentence(w))
	}
	return b.String()
}

// sayEach tells the entries of a list.
func sayEach[T any](all []T, say func(T) string) string {
	var b strings.Builder
	for _, one := range all {
		b.WriteString(" " + Sentence(say(one)))
	}
	return b.String()
}

// sayEntry tells one decision of a history.
func sayEntry(h engine.HistoryEntry) string {
	line := fmt.Sprintf("%d: %s %s", h.Seq, h.Kind, h.Outcome)
	if h.Action != "" {
		line = fmt.Sprintf("%d: %q in %q %s %s", h.Seq, h.Action, h.From, h.Kind, h.Outcome)
	}
	if h.Outcome != judge.Approve {
		line += ": " + sayFindings(h.Decision)
	}
	return line
}

// Objections are the reasoning, which says what is wrong and what to do, and the
// violations that it leaves out.
func Objections(d engine.Decision) string {
	text := Sentence(d.Reasoning)
	for _, v := range d.Violations {
		if !strings.Contains(d.Reasoning, v) {
			text = strings.TrimSpace(text + " " + Sentence(v))
		}
	}
	return text
}

// Sentence ends a text as a sentence does.
func Sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

func countNoun(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
