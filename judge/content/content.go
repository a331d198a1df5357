// Package content finds the cheap traps that fool models, in exactly what a model would
// be shown: nothing to judge at all (a lone colon or "Thought process:" makes many
// judges accept, arXiv 2507.08794), and text that speaks to the judge instead of about
// the matter.
//
// It keeps such text away from the model; it does not prove that the rest is honest. Its
// rules are deterministic and linear in the length of the text. It must never say in a
// finding what exactly it looked for.
package content

import (
	"cmp"
	"strings"

	"github.com/gavel-mcp/gavel/judge/shown"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The codes of findings.
const (
	CodeEmpty       = "content_empty"
	CodeBoilerplate = "content_boilerplate"
	CodeRepetition  = "content_repetition"
	CodeImitation   = "content_imitation"
	CodeVerdict     = "content_verdict"
	CodeInstruction = "content_instruction"
	CodeHidden      = "content_hidden"
)

// Confidence is how sure a finding is: of the honest but odd cases that the rules were
// never tuned on, about one in ten was stopped (docs/injection-suite.md).
const Confidence = 0.9

// maxTraps limits the findings; one is enough to refuse.
const maxTraps = 8

type trap struct{ code, path string }

// Examine looks for traps in the documents that a model is shown. certain is false when
// all of them are in evidence: an agent may have written what a ticket or a test prints,
// and whether it did is for a person to say.
func Examine(docs shown.Documents) (findings []validators.Finding, certain bool) {
	var found []trap
	if values, speaks := countValues(docs.Named(shown.Data)); values > 0 && !speaks {
		found = append(found, trap{code: CodeEmpty})
	}
	for _, name := range []string{shown.Data, shown.Context} {
		for _, text := range textsOf(docs, name) {
			if len(found) < maxTraps {
				found = append(found, trapsIn(text)...)
			}
		}
	}
	certain = len(found) > 0
	for _, text := range textsOf(docs, shown.Evidence) {
		for _, t := range trapsIn(text) {
			// Logs repeat themselves and begin like anything.
			if t.code != CodeBoilerplate && t.code != CodeRepetition {
				found = append(found, t)
			}
		}
	}
	seen := map[trap]bool{}
	for _, t := range found[:min(len(found), maxTraps)] {
		if !seen[t] {
			seen[t] = true
			findings = append(findings, t.finding())
		}
	}
	return findings, certain
}

// IsBlank reports whether the data has no values and the context none that says anything. Data
// with values that say nothing is not blank but a trap.
func IsBlank(docs shown.Documents) bool {
	values, _ := countValues(docs.Named(shown.Data))
	_, speaks := countValues(docs.Named(shown.Context))
	return values == 0 && !speaks
}

// countValues counts scalars but for null, which removes a key, and reports whether one of them
// says something: a number, a boolean, a text with a letter or a digit.
func countValues(docs shown.Documents) (n int, speaks bool) {
	for _, d := range docs {
		for l := range d.Leaves() {
			if l.Name || l.Kind == document.Null {
				continue
			}
			n++
			switch l.Kind {
			case document.String:
				speaks = speaks || shown.HasWord(l.Text) || l.Cut && l.Text == ""
			default:
				speaks = true
			}
		}
	}
	return n, speaks
}

type text struct {
	path string // JSON pointer, with the document's name unless it is the data
	raw  string
	key  bool
}

func textsOf(docs shown.Documents, name string) []text {
	var out []text
	for _, d := range docs.Named(name) {
		prefix := ""
		if name != shown.Data {
			prefix = "/" + name
		}
		for l := range d.Leaves() {
			if l.Kind == document.String && (l.Text != "" || !l.Cut) {
				out = append(out, text{path: prefix + l.Path, raw: l.Text, key: l.Name})
			}
		}
	}
	return out
}

func (t trap) finding() validators.Finding {
	what, hint := t.describe()
	where := t.path
	where = cmp.Or(where, "The data")
	return validators.Finding{Code: t.code, Path: t.path, Message: where + " " + what, Hint: hint}
}

func (t trap) describe() (what, hint string) {
	switch t.code {
	case CodeEmpty:
		return "says nothing that could be judged.", "Say what was done, with names and results; where there is nothing to say, send no data."
	case CodeBoilerplate:
		return "is only the opening of an answer.", "Say what was done, with names and results."
	case CodeRepetition:
		return "repeats itself instead of saying more.", "Say it once."
	case CodeImitation:
		return "imitates the markers of a conversation or of a prompt.", "Describe what you mean in plain words, without such markers."
	case CodeVerdict:
		return "states the verdict itself.", "Give the facts and leave the verdict out."
	case CodeHidden:
		return "contains characters that hide or reorder text.", "Write it with visible characters only."
	}
	return "addresses the judge instead of the matter.", "Give the facts; leave instructions to the judge out."
}

func trapsIn(t text) []trap {
	if code := hiddenIn(t.raw); code != "" {
		return []trap{{code, t.path}}
	}
	s := normalizeText(t.raw)
	if !t.key {
		if isBoilerplate(s) {
			return []trap{{CodeBoilerplate, t.path}}
		}
		if isRepetitive(s) {
			return []trap{{CodeRepetition, t.path}}
		}
	}
	book := rules()
	for _, set := range [][]rule{book.plain, book.foreign} {
		if r := firstMatch(s, set); r != nil {
			return []trap{{r.code, t.path}}
		}
	}
	for _, hidden := range append(decodeHidden(t.raw), undisguiseText(s)...) {
		r := firstMatch(hidden, book.plain)
		if r == nil {
			r = firstMatch(hidden, book.compact)
		}
		if r != nil && r.code != CodeImitation {
			return []trap{{r.code, t.path}}
		}
	}
	return nil
}

func firstMatch(s string, all []rule) *rule {
	for i := range all {
		r := &all[i]
		if !hasCue(s, r.cues) {
			continue
		}
		for _, at := range r.pattern().FindAllStringIndex(s, 8) {
			if !isTalkedAbout(s, at[0], at[1]) {
				return r
			}
		}
	}
	return nil
}

func hasCue(s string, cues []string) bool {
	for _, c := range cues {
		if strings.Contains(s, c) {
			return true
		}
	}
	return len(cues) == 0
}
