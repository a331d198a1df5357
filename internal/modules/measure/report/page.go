package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Page is a report that HTML renders together with its cases. All content is rendered as text: nothing that models or
// agents wrote becomes markup.
type Page struct {
	eval.Page
	Title string
	// SystemPrompts are the system prompts that a model got before every question.
	SystemPrompts []string
	Cases         []PageCase
	CasesLeftOut  int

	charts []chart
}

// PageCase is a case, collapsed until the reader opens it.
type PageCase struct {
	Title, Line string
	// Badge is a word before the title; Wrong determines its colour.
	Badge string
	Wrong bool
	// Labels are the filters that select the case.
	Labels     []PageLabel
	Facts      [][]string
	Judgements []PageJudgement
	Documents  []PageText
}

// PageLabel is an option of a filter, such as tag: injection.
type PageLabel struct{ Kind, Name string }

// PageJudgement is one judge's answer to a case.
type PageJudgement struct {
	Title     string
	Facts     [][]string
	Reasoning string
	Criteria  []PageCriterion
	Texts     []PageText
}

// PageCriterion is a criterion with the model's quote.
type PageCriterion struct {
	Name, Status, Labelled, Quote, Why string
}

// Class returns the CSS class of the status, for the templates.
func (c PageCriterion) Class() string { return statusClass(c.Status) }

func statusClass(status string) string {
	if status == "met" {
		return "met"
	}
	return "unmet"
}

// PageText is a document, a prompt or an answer, with the quotes of a model marked.
type PageText struct {
	Title  string
	Open   bool
	Pieces []PagePiece
}

// PagePiece is a part of a text. Quote names the criterion for which the model quoted it, "" if it is not a quote.
type PagePiece struct{ Text, Quote, Status string }

// quotation is a model's quote for a criterion.
type quotation struct {
	words, name, status string
}

func quotationsOf(prefix string, criteria []judge.CriterionVerdict) []quotation {
	var all []quotation
	for _, c := range criteria {
		if len(c.Evidence) > 3 && !strings.HasPrefix(c.Evidence, "/") {
			all = append(all, quotation{c.Evidence, prefix + c.ID + ": " + c.Status, statusClass(c.Status)})
		}
	}
	return all
}

// maxMarks limits how often one quote is marked in a text.
const maxMarks = 20

// newPageText returns the text with the quotes marked. It looks for the quote as JSON encodes it if the text contains
// that, otherwise for the quote itself.
func newPageText(title, text string, quotes []quotation) PageText {
	type span struct {
		from, to int
		quotation
	}
	var spans []span
	for _, q := range quotes {
		needle := q.words
		if encoded, err := document.Marshal(q.words); err == nil && strings.Contains(text, string(encoded[1:len(encoded)-1])) {
			needle = string(encoded[1 : len(encoded)-1])
		}
		for at, n := 0, 0; n < maxMarks; n++ {
			i := strings.Index(text[at:], needle)
			if i < 0 {
				break
			}
			spans = append(spans, span{at + i, at + i + len(needle), q})
			at += i + len(needle)
		}
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	out := PageText{Title: title}
	at := 0
	for _, s := range spans {
		if s.from < at {
			continue // inside another quote
		}
		out.Pieces = append(out.Pieces, PagePiece{Text: showHidden(text[at:s.from])}, PagePiece{showHidden(text[s.from:s.to]), s.name, s.status})
		at = s.to
	}
	out.Pieces = append(out.Pieces, PagePiece{Text: showHidden(text[at:])})
	return out
}

// showHidden escapes characters that hide or reorder text, so that the reader sees them.
func showHidden(s string) string {
	isHidden := func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
	}
	if !strings.ContainsFunc(s, isHidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isHidden(r) {
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// maxPageCases and maxChoices limit a page: its cases, and the options of one filter.
const (
	maxPageCases = 5000
	maxChoices   = 24
)

type filter struct {
	Kind    string
	Choices []choice
}

type choice struct {
	Group, ID, Name string
	All             bool
}

// shownPage is the data of the template.
type shownPage struct {
	Page
	Style     template.CSS
	StyleHash string
	Filters   []filter
	Cases     []shownCase
	Charts    []chart
	Prompts   []PageText
}

type shownCase struct {
	PageCase
	Classes, Status string
}

// listFilters returns the filters, the classes of each case, and the style that hides unselected cases. Because the
// page has no scripts, only its style can filter.
func (p Page) listFilters() (filters []filter, classes []string, style string) {
	counts, kinds := map[PageLabel]int{}, []string{}
	for _, c := range p.Cases {
		for _, l := range c.Labels {
			if counts[l]++; !slices.Contains(kinds, l.Kind) {
				kinds = append(kinds, l.Kind)
			}
		}
	}
	var b strings.Builder
	class := map[PageLabel]string{}
	for i, kind := range kinds {
		var labels []PageLabel
		for l := range counts {
			if l.Kind == kind {
				labels = append(labels, l)
			}
		}
		slices.SortStableFunc(labels, func(a, b PageLabel) int {
			return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.Name, b.Name))
		})
		group := fmt.Sprintf("g%d", i)
		f := filter{Kind: eval.OneLine(kind), Choices: []choice{{Group: group, ID: group + "all", Name: "all", All: true}}}
		for n, l := range labels[:min(len(labels), maxChoices)] {
			class[l] = fmt.Sprintf("%sn%d", group, n)
			f.Choices = append(f.Choices, choice{Group: group, ID: class[l], Name: fmt.Sprintf("%s (%d)", eval.OneLine(l.Name), counts[l])})
			fmt.Fprintf(&b, "#%[1]s:checked ~ .cases > .case:not(.%[1]s) { display: none; }\n", class[l])
		}
		filters = append(filters, f)
	}
	for _, c := range p.Cases {
		var names []string
		for _, l := range c.Labels {
			if class[l] != "" {
				names = append(names, class[l])
			}
		}
		classes = append(classes, strings.Join(names, " "))
	}
	return filters, classes, b.String()
}

//go:embed report.html.tmpl
var htmlText string

//go:embed report.css
var cssText string

var htmlTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Parse(htmlText))
})

// HTML writes a page: one self-contained file that has no scripts and loads nothing from other hosts. Its content
// security policy allows only its own style.
func (p Page) HTML(w io.Writer) error {
	if n := len(p.Cases) - maxPageCases; n > 0 {
		p.Cases, p.CasesLeftOut = p.Cases[:maxPageCases], p.CasesLeftOut+n
	}
	shown := shownPage{Page: p, Charts: p.charts}
	filters, classes, choices := p.listFilters()
	style := "\n" + cssText + choices
	sum := sha256.Sum256([]byte(style))
	shown.Filters, shown.Style, shown.StyleHash = filters, template.CSS(style), "sha256-"+base64.StdEncoding.EncodeToString(sum[:]) //nolint:gosec // names of this program only
	for i, c := range p.Cases {
		status := "right"
		if c.Wrong {
			status = "wrong"
		}
		c.Title, c.Line = eval.OneLine(c.Title), eval.OneLine(c.Line)
		shown.Cases = append(shown.Cases, shownCase{c, classes[i], status})
	}
	for _, text := range p.SystemPrompts {
		shown.Prompts = append(shown.Prompts, newPageText("System prompt", text, nil))
	}
	var b strings.Builder
	if err := htmlTemplate().Execute(&b, shown); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}
