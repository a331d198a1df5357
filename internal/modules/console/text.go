package console

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

//go:embed assets/console.css
var stylesheet string

//go:embed assets/console.js
var scriptText string

//go:embed assets/site.html
var siteTemplates string

// policy allows the style and the script of the pages by digest, forms of this site, and its event streams.
var policy = "default-src 'none'; style-src " + digestOf(stylesheet) + " " + digestOf(workflow.SVGStyle) + "; script-src " + digestOf(scriptText) +
	"; connect-src 'self'; form-action 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// site holds the templates and functions that all pages share. It is never executed.
var site = template.Must(template.New("site").Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(stylesheet) }, //nolint:gosec // our own
	"script": func() template.JS { return template.JS(scriptText) },   //nolint:gosec // our own
	"text":   func(s any) string { return cutText(showMarks(fmt.Sprint(s)), maxText) },
	"short": func(n int, s any) string {
		return cutText(showMarks(strings.Join(strings.Fields(fmt.Sprint(s)), " ")), n)
	},
	"json":  func(raw json.RawMessage) string { return cutText(showMarks(indentJSON(raw)), maxDocument) },
	"isCut": func(raw json.RawMessage) bool { return utf8.RuneCountInString(indentJSON(raw)) > maxDocument },
	"when":  formatTime, "ago": formatAgo, "took": formatTook, "percent": formatPercent, "count": formatCount,
	"id":      shortenID,
	"path":    pathTo,
	"outcome": outcomeOf, "assured": describeAssurance, "layer": describeLayer,
	"refusal": describeRefusal,
	"changes": func(before, after json.RawMessage) []Change { return compareJSON(before, after) },
	"dict":    makeDict,
	"plus":    func(a, b int) int { return a + b },
	"minus":   func(a, b int) int { return a - b },
	"period":  term.Roughly,
	"typed":   typedOr, "severity": classOfSeverity,
	"unsaid": omitSaid, "contains": strings.Contains, "age": formatAge, "cost": formatCost,
	"inc":   func(n int64) int64 { return n + 1 },
	"right": func(name string) engine.Right { return engine.Right(name) },
}).Parse(siteTemplates))

// shells has the templates around pages. Templates that were executed cannot be cloned for pages.
var shells = template.Must(site.Clone())

// Limits of one text on a page, in characters. Longer texts are cut; the page links to the whole.
const (
	maxText     = 2_000
	maxDocument = 8_000
)

// marks are replacements for characters that a browser would not show, or that would change how others are shown.
var marks = map[rune]string{'\u00AD': "⟨soft hyphen⟩", '\uFEFF': "⟨BOM⟩", '\x1b': "␛", '\x7f': "␡", '\uFFFD': "�"}

// showMarks makes invisible characters visible: controls, marks of direction, and bytes that are not UTF-8.
func showMarks(s string) string {
	if !strings.ContainsFunc(s, isHidden) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch mark, ok := marks[r]; {
		case ok:
			b.WriteString(mark)
		case r < ' ' && r != '\n' && r != '\t':
			b.WriteRune('␀' + r)
		case isHidden(r):
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isHidden(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029')
}

// cutText cuts a text to n characters, and says how many are missing.
func cutText(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n]) + "… (" + formatCount(len(runes)-n) + " more characters)"
}

func indentJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// formatTime shows a time relative to now; the script keeps it current.
func formatTime(at time.Time) template.HTML {
	if at.IsZero() {
		return "–"
	}
	return timeElement(at, formatDistance(at))
}

// formatAgo is formatTime without "ago", for durations until now.
func formatAgo(at time.Time) template.HTML { return timeElement(at, term.Roughly(now().Sub(at))) }

func timeElement(at time.Time, text string) template.HTML {
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // numbers and our own words
		at.UTC().Format(time.RFC3339), at.UTC().Format("2 January 2006, 15:04:05 UTC"), text))
}

func formatDistance(at time.Time) string {
	if d := at.Sub(now()); d > 0 {
		return "in " + term.Roughly(d)
	}
	return term.Roughly(now().Sub(at)) + " ago"
}

func formatTook(ms any) string {
	d, ok := ms.(interface{ Duration() time.Duration })
	if !ok {
		return fmt.Sprint(ms)
	}
	return term.ShortDuration(d.Duration())
}

func formatPercent(f float64) string { return fmt.Sprintf("%.0f %%", f*100) }

// formatAge says how old a fact was when it was used.
func formatAge(used, fetched time.Time) string {
	if d := used.Sub(fetched); d >= time.Second {
		return term.Roughly(d) + " old at the decision"
	}
	return "fetched for the decision"
}

// formatCost shows a price in dollars.
func formatCost(usd *float64) string { return fmt.Sprintf("$%.4f", *usd) }

// formatCount writes a number with thin spaces between groups of three digits.
func formatCount(n any) string {
	if p, ok := n.(*int); ok {
		n = *p
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// shortenID cuts an id after its timestamp, which still tells most ids apart.
func shortenID(id string) string {
	i := strings.IndexByte(id, '-')
	isOurs := i > 0 && i <= 3
	if strings.HasPrefix(id, "wf-run-") { // the record of a run
		i = len("wf-run")
	}
	if isOurs && len(id) > i+14 {
		return id[:i+14]
	}
	return cutText(showMarks(id), 40)
}

// pathTo returns the address of a page: path "instances" ID.
func pathTo(parts ...any) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(fmt.Sprint(p))
	}
	return base + strings.Join(escaped, "/")
}

// outcome is how a decision is shown.
type outcome struct{ Class, Word string }

func outcomeOf(o judge.Outcome) outcome {
	switch o {
	case judge.Approve:
		return outcome{"yes", "approved"}
	case judge.Reject:
		return outcome{"no", "refused"}
	case judge.Escalate:
		return outcome{"wait", "waits for a person"}
	}
	return outcome{"none", "nothing to check"}
}

// describeAssurance says in words how thoroughly a move was examined.
func describeAssurance(a judge.Assurance) string {
	switch a {
	case judge.AssuranceStructural:
		return "the form of the data was checked, as far as it is declared"
	case judge.AssuranceValidators:
		return "scripts checked the data, and its form was checked as far as it is declared"
	case judge.AssuranceLLM:
		return "a model examined it, whose confidence is not calibrated"
	case judge.AssuranceLLMCalibrated:
		return "a model examined it, whose confidence is calibrated"
	case judge.AssuranceHuman:
		return "a person decided it"
	case judge.AssuranceNone:
	}
	return "only the legality of the action was checked"
}

func describeLayer(l judge.LayerName) string {
	words := map[judge.LayerName]string{
		judge.LayerTransition: "Action", judge.LayerFields: "Required fields", judge.LayerSchema: "Schema", judge.LayerEvidence: "Evidence",
		judge.LayerScript: "Script", judge.LayerState: "State", judge.LayerContent: "Content", judge.LayerModel: "Model",
		judge.ByFallback: "Fallback", judge.ByPolicy: "Policy", judge.ByReviewer: "A person",
	}
	if word, ok := words[l]; ok {
		return word
	}
	return string(l)
}

var placeOfValidator = regexp.MustCompile(`^The validator \S+ rejects this: `)

// describeRefusal says why a move was refused, without what only the agent needs that asked for it: where the validator
// is, and that it may try again.
func describeRefusal(d engine.Decision) string {
	text := placeOfValidator.ReplaceAllString(operation.DescribeRefusal(d), "")
	return strings.TrimSpace(strings.ReplaceAll(text, judge.TryAgain, ""))
}

// maxHeading limits a sentence that is set like a heading, in bytes.
const maxHeading = 240

// splitSentence splits a text after its first sentence. A text that begins with a long sentence is all rest.
func splitSentence(s string) (first, rest string) {
	words := strings.Fields(s)
	end := 0
	for i, word := range words {
		if end += len(word) + 1; end > maxHeading {
			return "", strings.Join(words, " ")
		}
		isEnd := strings.ContainsAny(word[len(word)-1:], ".!?")
		if isEnd && (i+1 == len(words) || !unicode.IsLower([]rune(words[i+1])[0])) { // "e.g. this" goes on
			return strings.Join(words[:i+1], " "), strings.Join(words[i+1:], " ")
		}
	}
	return strings.Join(words, " "), ""
}

// makeDict builds the data of a shared template from names and values.
func makeDict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict needs pairs, not %d values", len(pairs))
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m, nil
}

// typedOr returns what a visitor typed into a field of the form that was just sent, or the field's first value.
func typedOr(form url.Values, name, first string) string {
	if form.Has(name) {
		return form.Get(name)
	}
	return first
}

func classOfSeverity(s workflow.Severity) string {
	return map[workflow.Severity]string{workflow.SeverityError: "no", workflow.SeverityWarning: "wait"}[s]
}
