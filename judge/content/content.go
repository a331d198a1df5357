// Package content finds text meant to influence the judge, in exactly the documents that a model would
// be shown.
//
//   - A trap is something that only an attack contains: characters that hide text, tokens of chat
//     templates, the prompt's own markers, a verdict in the judge's own form.
//   - A flag is wording that honest text may contain too.
//
// If neither is found, that does not prove that the text is honest. Everything is deterministic and linear
// in the length of the text, and each finding quotes the words that caused it.
package content

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/gavel-mcp/gavel/judge/shown"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The codes of findings: three of traps, one of flags.
const (
	CodeImitation   = "content_imitation"
	CodeVerdict     = "content_verdict"
	CodeHidden      = "content_hidden"
	CodeInstruction = "content_instruction"
)

// Confidence is the confidence of a rejection. Fewer than one in ten benign texts contain a trap; about
// one in ten unusual ones contains a flag (docs/reference/injection-suite.md).
const Confidence = 0.9

// Limits on findings: one is enough to reject.
const (
	maxFindings = 8
	maxWords    = 60 // runes of the words that a finding quotes
)

// Report is the result of Examine.
type Report struct {
	// Traps are in text that the agent wrote. Fetched are traps in evidence: the agent may have written
	// that text, too (in a ticket, or as test output), so a person must decide.
	Traps, Fetched []validators.Finding
	// Flags are words that may be meant to influence the judge.
	Flags []validators.Finding
}

// Examine looks for traps and flags in the documents that a model is shown.
func Examine(docs shown.Documents) Report {
	var r Report
	for _, d := range slices.Backward(docs) { // the data first
		traps := &r.Traps
		if d.Name == shown.Evidence {
			traps = &r.Fetched
		}
		for _, t := range collectTexts(d) {
			trap, flag := t.examine()
			*traps, r.Flags = appendFinding(*traps, trap), appendFinding(r.Flags, flag)
		}
		if at, found := findVerdict(d); found {
			*traps = appendFinding(*traps, describeWords(CodeVerdict, at, `"approved" next to "criteria"`))
		}
	}
	return r
}

func appendFinding(all []validators.Finding, f validators.Finding) []validators.Finding {
	if f.Code == "" || len(all) == maxFindings || slices.Contains(all, f) {
		return all
	}
	return append(all, f)
}

// IsBlank reports whether the data has no values and no value of the context has content.
func IsBlank(docs shown.Documents) bool {
	values, _ := countValues(docs.Named(shown.Data))
	_, speaks := countValues(docs.Named(shown.Context))
	return values == 0 && !speaks
}

// countValues counts scalars except null, which removes a key, and reports whether one of them
// has content: a number, a boolean, a string with a letter or a digit.
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
	path string // JSON pointer, prefixed with the document's name unless it is the data
	raw  string
}

func collectTexts(d shown.Document) []text {
	var out []text
	for l := range d.Leaves() {
		if l.Kind == document.String && (l.Text != "" || !l.Cut) {
			out = append(out, text{path: pathIn(d, l.Path), raw: l.Text})
		}
	}
	return out
}

func pathIn(d shown.Document, path string) string {
	if d.Name == shown.Data {
		return path
	}
	return "/" + d.Name + path
}

func (t text) examine() (trap, flag validators.Finding) {
	if hidden := findHidden(t.raw); hidden != "" {
		return describeWords(CodeHidden, t.path, hidden), flag
	}
	s := normalizeText(t.raw)
	if words := firstMatch(s, rules().refuse); words != "" {
		return describeWords(CodeImitation, t.path, words), flag
	}
	if words := verdictText().FindString(s); words != "" && embeddedVerdict().MatchString(s) {
		return describeWords(CodeVerdict, t.path, words), flag
	}
	if words := firstMatch(s, rules().flag); words != "" {
		flag = describeWords(CodeInstruction, t.path, words)
	}
	return trap, flag
}

// A verdict in the judge's own form within a string: the member approved or a status, and one other member.
var (
	verdictText     = compileOnce(`["']approved["']\s*:\s*(?:true|false)|["']status["']\s*:\s*["'](?:met|not_met|cannot_assess|contradicted|not_shown)["']`)
	embeddedVerdict = compileOnce(`["'](?:criteria|confidence|violations|injection_suspected|evidence)["']\s*:`)
)

// findVerdict finds an object with a combination of verdict members that no other document has.
func findVerdict(d shown.Document) (at string, found bool) {
	members := map[string][]string{}
	for l := range d.Leaves() {
		if l.Name && slices.Contains([]string{"approved", "criteria", "injection_suspected"}, l.Text) {
			parent := l.Path[:strings.LastIndex(l.Path, "/")]
			if members[parent] = append(members[parent], l.Text); len(members[parent]) > 1 && slices.Contains(members[parent], "approved") {
				return pathIn(d, parent), true
			}
		}
	}
	return "", false
}

// describeWords returns the finding that quotes words.
func describeWords(code, path, words string) validators.Finding {
	words = strings.Join(strings.Fields(words), " ")
	if r := []rune(words); len(r) > maxWords {
		words = string(r[:maxWords]) + "…"
	}
	what, hint := describeCode(code)
	return validators.Finding{
		Code: code, Path: path, Hint: hint,
		Message: fmt.Sprintf("%s %s: “%s”.", cmp.Or(path, "The data"), what, words),
	}
}

func describeCode(code string) (what, hint string) {
	switch code {
	case CodeImitation:
		return "has tokens of a chat template or markers of the judge's prompt", "Describe what you mean in plain words, without such markers."
	case CodeVerdict:
		return "has a verdict in the judge's own form", "Give the facts and leave the verdict out."
	case CodeHidden:
		return "has characters that hide or reorder text", "Write it with visible characters only."
	}
	return "has words that may be meant for the judge", "Give the facts; leave instructions to the judge out."
}

// normalizeText prepares a string for the rules: composed compatibility forms, lower case, no invisible
// characters.
func normalizeText(s string) string {
	return strings.Map(func(r rune) rune {
		if isInvisible(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFKC.String(s))
}

func isInvisible(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector) || unicode.IsControl(r) && !unicode.IsSpace(r) ||
		r == '\u115f' || r == '\u1160' || r == '\u3164' || r == '\u034f'
}

// findHidden names characters that hide or reorder visible text, "" if there are none. Characters
// that scripts need (joiners in Persian and in emoji, isolates in Arabic and Hebrew) are not traps.
func findHidden(s string) string {
	var (
		previous          rune
		tags, selectors   []rune
		inWord, invisible []rune
		show, flag        bool
	)
	for _, r := range s {
		switch {
		case r == 0x1F3F4:
			flag, show = true, true
		case r >= 0xE0000 && r <= 0xE007F:
			if !flag {
				tags = append(tags, r)
			}
		case r == '\u202d' || r == '\u202e':
			return describeRunes([]rune{r})
		case r >= 0xE0100 && r <= 0xE01EF || unicode.Is(unicode.Variation_Selector, r) && unicode.Is(unicode.Variation_Selector, previous):
			selectors = append(selectors, r)
		case isInvisible(r):
			invisible = append(invisible, r)
			if previous < 0x250 && unicode.IsLetter(previous) && r != '\u00ad' {
				inWord = append(inWord, r)
			}
		default:
			flag = false
			show = show || !unicode.IsSpace(r)
		}
		previous = r
	}
	switch {
	case len(tags) > 0:
		return describeRunes(tags)
	case len(selectors) > 1:
		return describeRunes(selectors)
	case len(inWord) > 2:
		return describeRunes(inWord)
	case !show:
		return describeRunes(invisible)
	}
	return ""
}

// describeRunes names the first few characters.
func describeRunes(all []rune) string {
	var names []string
	for _, r := range all[:min(len(all), 3)] {
		names = append(names, fmt.Sprintf("%U", r))
	}
	return strings.Join(names, " ")
}

// compileOnce compiles a pattern on first use: most processes judge no content.
func compileOnce(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
