package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/internal/modules/measure/compare"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

// breakouts try to escape from every place in a page.
var breakouts = []string{
	`</pre></details></script><script>alert(1)</script>`, `</style><style>body{display:none}</style>`, `" onmouseover="alert(1)`, `' onfocus='alert(1)' autofocus='`,
	`<img src=x onerror=alert(1)>`, `javascript:alert(1)`, `<!-- `, `]]>`, `{{.Style}}`, `</title><base href="https://example.com/">`, "x\u202egnp.exe\u200b\x00", `} body { background: url(https://example.com) } .x {`,
}

// pageElements are the elements that a page may have, with their attributes.
var pageElements = map[string][]string{
	"html": {"lang"}, "head": nil, "meta": {"charset", "name", "content", "http-equiv"}, "title": nil, "style": nil, "body": nil, "h1": nil, "h2": nil, "h3": nil,
	"p": {"class"}, "table": {"class"}, "tr": {"class"}, "th": nil, "td": nil, "div": {"class", "tabindex"}, "details": {"class", "open"}, "summary": nil, "span": {"class"},
	"strong": nil, "pre": nil, "mark": {"class", "title"}, "section": nil, "blockquote": nil, "q": nil, "label": {"for"}, "input": {"type", "name", "id", "checked"},
	"figure": nil, "figcaption": nil, "svg": {"viewBox", "role", "aria-label"}, "path": {"class", "d"}, "text": {"x", "y", "text-anchor", "transform"}, "circle": {"class", "cx", "cy", "r"}, "ul": nil, "li": nil,
}

// checkPage reports what a page may not have, and returns its elements and all its text.
func checkPage(t *testing.T, page []byte) (elements map[string]int, text string) {
	t.Helper()
	in := xml.NewDecoder(bytes.NewReader(page))
	in.Strict, in.AutoClose, in.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	elements = map[string]int{}
	var b strings.Builder
	policy, style, inStyle := "", "", false
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch v := token.(type) {
		case xml.StartElement:
			elements[v.Name.Local]++
			inStyle = v.Name.Local == "style"
			allowed, known := pageElements[v.Name.Local]
			if !known {
				t.Errorf("the page has an element %q", v.Name.Local)
			}
			for i, a := range v.Attr {
				if !slices.Contains(allowed, a.Name.Local) {
					t.Errorf("%s has the attribute %s=%q", v.Name.Local, a.Name.Local, a.Value)
				}
				if a.Value == "Content-Security-Policy" {
					policy = v.Attr[1-i].Value
				}
			}
		case xml.EndElement:
			inStyle = false
		case xml.Comment:
			t.Errorf("the page has a comment: %q", v)
		case xml.CharData:
			if b.Write(v); inStyle {
				style += string(v)
			}
		}
	}
	sum := sha256.Sum256([]byte(style))
	if want := fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'", base64.StdEncoding.EncodeToString(sum[:])); policy != want || elements["style"] != 1 {
		t.Errorf("the policy is %q, want %q", policy, want)
	}
	return elements, b.String()
}

// Whatever agents and models write, a page has the same elements as with harmless text.
func TestPagesHoldHostileWords(t *testing.T) {
	pageWith := func(words string) Page {
		text := func(title string) PageText {
			return newPageText(title, words+" and "+words, []quotation{{words, words, "met"}})
		}
		grid := eval.Grid{Title: words, Head: []string{words}, Rows: [][]string{{words}}}
		return Page{
			Title: words, SystemPrompts: []string{words},
			Page: eval.Page{
				Conclusion: eval.Conclusion{Status: eval.StatusGateFailed, Says: words}, Gates: grid, Header: [][]string{{words, words}}, Figures: [][]string{{words, words, words}},
				Cautions: []string{words}, Notes: []string{words}, Tables: []eval.Grid{grid},
			},
			Cases: []PageCase{{
				Title: words, Line: words, Badge: words, Labels: []PageLabel{{words, words}}, Facts: [][]string{{words, words}}, Documents: []PageText{text(words)},
				Judgements: []PageJudgement{{Title: words, Facts: [][]string{{words, words}}, Reasoning: words, Criteria: []PageCriterion{{words, words, words, words, words}}, Texts: []PageText{text(words)}}},
			}},
		}
	}
	render := func(words string) []byte {
		var b bytes.Buffer
		if err := pageWith(words).HTML(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	want, _ := checkPage(t, render("harmless"))
	for _, words := range breakouts {
		got, text := checkPage(t, render(words))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q makes markup: %s", words, diff)
		}
		if visible := showHidden(words); !strings.Contains(text, visible) {
			t.Errorf("%q is not shown", visible)
		}
		if strings.ContainsAny(text, "\u202e\u200b\x00") && strings.Contains(string(render(words)), "\u202e⟩") {
			t.Errorf("%q hides text", words)
		}
	}
}

// The page of a run begins with its verdict and gates, and has a filter for each label and every case.
func TestPageOfARun(t *testing.T) {
	m, compared := rendered(t)
	var b bytes.Buffer
	writePage(t, &b, m)
	_, text := checkPage(t, b.Bytes())
	if at := []int{strings.Index(text, "FAILED: "), strings.Index(text, "Gates"), strings.Index(text, "Figures"), strings.Index(text, "wrongly approved")}; !slices.IsSorted(at) || at[0] < 0 {
		t.Errorf("the order of the page: %v", at)
	}
	if strings.Count(b.String(), `<p class="kind">`) != 5 || strings.Count(b.String(), `<details class="case `) != len(m.Cases) {
		t.Errorf("%d filters, %d cases", strings.Count(b.String(), `<p class="kind">`), strings.Count(b.String(), `<details class="case `))
	}
	for _, want := range []string{`<mark class="met" title="c1: met">The pump runs \&#34;well\&#34;</mark>`, `.case:not(.g0n0) { display: none; }`, `⟨U&#43;001B⟩`, "became right (1)", "injection (10)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	b.Reset()
	before := m
	before.Results = slices.Clone(m.Results)
	before.Results[3].Outcome = judge.Reject
	if err := ComparisonPage(compared, before, m).HTML(&b); err != nil {
		t.Fatal(err)
	}
	if _, text := checkPage(t, b.Bytes()); !strings.Contains(text, compared.Conclude().Says) || !strings.Contains(text, "reject / approve") && !strings.Contains(text, "reject / escalate") {
		t.Error("the comparison does not show what changed")
	}
}

func TestQuotesAreMarked(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		quotes []quotation
		want   string
	}{
		"none":        {"abc", nil, "abc"},
		"as it is":    {"a quote, a quote", []quotation{{words: "quote"}}, "a [quote], a [quote]"},
		"as JSON":     {`{"a":"say \"it\""}`, []quotation{{words: `say "it"`}}, `{"a":"[say \"it\"]"}`},
		"one another": {"one two three", []quotation{{words: "two"}, {words: "one two"}, {words: "two three"}}, "[one two] three"},
		"not there":   {"abc", []quotation{{words: "xyz"}}, "abc"},
		"hidden":      {"a\u200bb", []quotation{{words: "\u200bb"}}, "a[⟨U+200B⟩b]"},
	} {
		got := ""
		for i := range c.quotes {
			c.quotes[i].name = "c"
		}
		for _, p := range newPageText("", c.text, c.quotes).Pieces {
			if p.Quote != "" {
				p.Text = "[" + p.Text + "]"
			}
			got += p.Text
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := newPageText("", strings.Repeat("word ", 100), []quotation{{words: "word", name: "c"}}); len(got.Pieces) != 2*maxMarks+1 {
		t.Errorf("%d pieces", len(got.Pieces))
	}
}

var update = flag.Bool("update", false, "write the golden file of testdata")

// rendered returns the run of the tests of package eval, compared with one that rejects a case.
func rendered(t *testing.T) (eval.Measurement, compare.Comparison) {
	t.Helper()
	f, err := os.Open("../eval/testdata/render/report.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := eval.ReadMeasurement(f)
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(m.Results)
	before[3].Outcome = judge.Reject
	c := compare.Compare(m.Cases, before, m.Results, m.Report.Options)
	if m.Baseline, err = c.Baseline(); err != nil {
		t.Fatal(err)
	}
	return m, c
}

func writePage(t *testing.T, w io.Writer, m eval.Measurement) {
	t.Helper()
	p, err := RunPage(m)
	if err == nil {
		err = p.HTML(w)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestPageIsTheSame(t *testing.T) {
	m, _ := rendered(t)
	var b, again bytes.Buffer
	writePage(t, &b, m)
	writePage(t, &again, m)
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("the page comes out otherwise the second time")
	}
	path := filepath.Join("testdata", "report.html")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("run with -update: %s", diff)
	}
}

// A model's text creates no markup and no request.
func TestPageEscapes(t *testing.T) {
	m, _ := rendered(t)
	m.Cases[5].ID += m.Results[1].Reasoning
	var b bytes.Buffer
	writePage(t, &b, m)
	text := b.String()
	if !strings.Contains(text, "alert(1)") {
		t.Fatal("the page does not show the judge's words")
	}
	if strings.Contains(text, "\x1b") || strings.Contains(text, "<script") || strings.Contains(text, "src=") || strings.Contains(text, "href=") || !strings.Contains(text, "<svg") {
		t.Error("the page has a script, asks for something else, or draws nothing")
	}
}
