package judge

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/validators"
)

// The codes of the content layer.
const (
	CodeContentEmpty       = "content_empty"
	CodeContentBoilerplate = "content_boilerplate"
	CodeContentRepetition  = "content_repetition"
	CodeContentImitation   = "content_imitation"
	CodeContentVerdict     = "content_verdict"
	CodeContentInstruction = "content_instruction"
	CodeContentHidden      = "content_hidden"
)

// content looks for the cheap traps that fool models, in exactly what a model
// would be shown: nothing to judge at all (a lone colon or "Thought process:" makes
// many judges accept, arXiv 2507.08794), and text that speaks to the judge instead
// of to the matter. It keeps them from the model; it is no proof that the rest is
// honest. Its rules are deterministic, and linear in the length of the text.
type content struct{}

func (content) Name() LayerName { return LayerContent }

// maxTraps is how many findings are given; one is enough to refuse.
const maxTraps = 8

func (content) Weigh(_ context.Context, c Case) (Opinion, error) {
	docs, err := listDocuments(c)
	if err != nil {
		return Opinion{}, fmt.Errorf("content: %w", err)
	}
	past, data := docs[0], docs[len(docs)-1]
	var found []trap
	if t, empty := nothingSaid(data, past); empty {
		found = append(found, t)
	}
	for _, text := range append(textsOf(data), textsOf(past)...) {
		if len(found) == maxTraps {
			break
		}
		found = append(found, trapsIn(text)...)
	}
	for _, d := range docs[1 : len(docs)-1] {
		found = append(found, trapsFetched(d)...)
	}
	return opinionOfTraps(found[:min(len(found), maxTraps)]), nil
}

// trapsFetched are the traps in what the gate fetched itself: an agent may have written
// what a ticket or a test prints. Whether it did is for a person to say. Logs repeat
// themselves and begin like anything.
func trapsFetched(d shownDocument) []trap {
	var out []trap
	for _, text := range textsOf(d) {
		for _, t := range trapsIn(text) {
			if t.code != CodeContentBoilerplate && t.code != CodeContentRepetition {
				t.doubtful = true
				out = append(out, t)
			}
		}
	}
	return out
}

// trap is one thing that was found.
type trap struct {
	code, path string
	doubtful   bool // it may be meant well: a person decides
}

// trapConfidence is how sure a finding is: of the honest but odd cases that the rules
// were never tuned on, about one in ten was stopped (docs/injection-suite.md).
const trapConfidence = 0.9

// opinionOfTraps is the opinion that follows from what was found.
func opinionOfTraps(found []trap) Opinion {
	op := Opinion{Layer: LayerContent, Outcome: Approve, Confidence: 1, Assurance: AssuranceStructural}
	if len(found) == 0 {
		return op
	}
	op.Outcome, op.Confidence = Escalate, trapConfidence
	seen := map[validators.Finding]bool{}
	for _, t := range found {
		if !t.doubtful {
			op.Outcome = Reject
		}
		f := t.finding()
		if !seen[f] {
			seen[f] = true
			op.Findings = append(op.Findings, f)
		}
	}
	op.Reasoning = joinFindings(op.Findings)
	return op
}

// finding says what was found and how to write it instead, without saying what
// exactly was looked for.
func (t trap) finding() validators.Finding {
	f := validators.Finding{Code: t.code, Path: t.path}
	where := t.path
	if where == "" {
		where = "The data"
	}
	switch t.code {
	case CodeContentEmpty:
		f.Message, f.Hint = where+" says nothing that could be judged.", "Say what was done, with names and results."
	case CodeContentBoilerplate:
		f.Message, f.Hint = where+" is only the opening of an answer.", "Say what was done, with names and results."
	case CodeContentRepetition:
		f.Message, f.Hint = where+" repeats itself instead of saying more.", "Say it once."
	case CodeContentImitation:
		f.Message, f.Hint = where+" imitates the markers of a conversation or of a prompt.", "Describe what you mean in plain words, without such markers."
	case CodeContentVerdict:
		f.Message, f.Hint = where+" states the verdict itself.", "Give the facts and leave the verdict out."
	case CodeContentHidden:
		f.Message, f.Hint = where+" contains characters that hide or reorder text.", "Write it with visible characters only."
	default:
		f.Message, f.Hint = where+" speaks to whoever judges instead of to the matter.", "Give the facts; leave instructions to the judge out."
	}
	return f
}
