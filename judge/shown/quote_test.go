package shown

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

// failer is a test, a benchmark or a property.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// shownOf renders a context and data as the judge does.
func shownOf(t failer, context, data string) Documents {
	t.Helper()
	c, err1 := Render(Context, document.ReadTrusted([]byte(context)), 1000, 12<<10)
	d, err2 := Render(Data, document.ReadTrusted([]byte(data)), 4000, 24<<10)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return Documents{c, d}
}

// A pointer that names the evidence is followed only in the evidence that the gate fetched.
func TestEvidenceIsNoFieldOfTheData(t *testing.T) {
	t.Parallel()
	s := shownOf(t, `{"evidence":{"ticket":"open"}}`, `{"evidence":{"tests":{"passed":"12 of 12"}}}`)
	fetched, err := Render(Evidence, document.ReadTrusted([]byte(`{"tests":{"passed":"3 of 12"}}`)), 1000, 12<<10)
	if err != nil {
		t.Fatal(err)
	}
	with := append(Documents{fetched}, s...)
	for pointer, want := range map[string][3]bool{ // with evidence, of the evidence alone, without any
		"/evidence/tests/passed":                     {true, true, false},
		"/data/evidence/tests/passed":                {true, false, true},
		"/context/evidence/ticket":                   {true, false, true},
		"/evidence/ticket":                           {false, false, false},
		"/evidence":                                  {false, false, false},
		"12 of 12":                                   {true, false, true},
		`"evidence":{"tests":{"passed":"12 of 12"}}`: {true, false, true},
	} {
		var got [3]bool
		got[0] = with.find(pointer)
		got[1] = with.Named(Evidence).find(pointer)
		got[2] = s.find(pointer)
		if got != want {
			t.Errorf("%s: %v, want %v", pointer, got, want)
		}
	}
}

// find looks up a pointer or a quote.
func (ds Documents) find(evidence string) bool {
	pointer, _ := ds.FindPointer(evidence)
	quote, _ := ds.Contains(evidence)
	return pointer || quote
}

// A pointer names a position and quotes none of its content.
func TestPointersAreNoQuotes(t *testing.T) {
	t.Parallel()
	s := shownOf(t, `{"title":"A title of some words"}`, `{"see":"/context/title","at":"as in /context/title above"}`)
	for evidence, want := range map[string]bool{
		"/context/title": true, // a whole value
		"/data/at":       false, "#/data/at": false, "/at": false,
		"A title of some words": true,
	} {
		if got, why := s.Contains(evidence); got != want || got == (why != "") {
			t.Errorf("%s: %t (%s)", evidence, got, why)
		}
	}
}

func TestWithinAndWithout(t *testing.T) {
	t.Parallel()
	s := shownOf(t, `{"title":"said before"}`, `{"report":{"tests":"all of them"},"note":"said now"}`)
	for _, c := range []struct {
		path, quote string
		want        bool
	}{
		{"data", "said now", true},
		{"data", "said before", false},
		{"context", "said before", true},
		{"/data/report", "all of them", true},
		{"/data/report/tests", "all of them", true},
		{"/data/report", "said now", false},
		{"/data/nowhere", "said now", false},
		{"evidence", "said now", false},
		{"/data", "said now", true},
	} {
		if got, _ := s.Within(c.path).Contains(c.quote); got != c.want {
			t.Errorf("%s, %s: %t", c.path, c.quote, got)
		}
	}
	rest := s[1].Without(func(name string) bool { return name == "note" })
	if ok, _ := (Documents{rest}).Contains("said now"); ok || rest.Text != s[1].Text {
		t.Errorf("what is left out can be quoted, or the text changed: %s", rest.Text)
	}
	if ok, _ := (Documents{rest}).Contains("all of them"); !ok {
		t.Error("the rest cannot be quoted")
	}
}

func TestContain(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("lorem ipsum ", 1000) // cut after 4,000 runes
	s := shownOf(t,
		`{"documentId":"DOC-7","nested":{"deep":[{"x":"found here"}]},"ssn":"[masked]","e":"","n":null,"list":[]}`,
		`{"comments":"Read sections 1 to 4;\n every \"figure\" in table 2\twas compared.","count":12.50,"ok":true,"a":"z","path":"/etc/passwd","html":"<b>bold</b> text","zero":"ab\u200bcd","colour":"\u001b[32mok\u001b[0m renders header","long":"`+long+`the end","a/b":{"~":"tilde"}}`)
	for evidence, want := range map[string]bool{
		"Read sections 1 to 4":                   true,
		"“Read sections 1 to 4”":                 true,
		`"'Read sections 1 to 4'"`:               true,
		"1 to 4; every":                          true, // a line break is a space
		`every "figure" in table 2 was compared`: true,
		`every \"figure\" in table 2\twas`:       true, // as it appears in the JSON
		`comments: "Read sections 1 to 4"`:       true,
		`"comments": "Read sections 1 to 4`:      true,
		"data.comments: Read sections":           true,
		"Read sections … was compared.":          true,
		"Read ... table 2 ... compared":          true,
		"was compared … Read sections":           false, // in reverse order
		"found here":                             true,
		"/comments":                              true,
		"/data/comments":                         true,
		"#/data/comments":                        true,
		"/context/nested/deep/0/x":               true,
		"/nested/deep/0/x":                       true,
		"/data/a~1b/~0":                          true,
		"/data/nested/deep/0/x":                  false, // it is in the context
		"/nested/deep/1/x":                       false,
		"/nested/deep/00/x":                      false,
		"/missing":                               false,
		"/context/e":                             false,
		"/context/n":                             false,
		"/context/list":                          false,
		"/context/ssn":                           true, // it exists, though it is masked
		"[masked]":                               false,
		"masked":                                 false,
		"/etc/passwd":                            true, // a quote that looks like a pointer
		"12.50":                                  true,
		"12.5":                                   true, // part of 12.50
		"13":                                     false,
		"true":                                   true,
		"z":                                      true, // a whole value
		"R":                                      false,
		"to":                                     false, // too short to be evidence
		"":                                       false,
		"   ":                                    false,
		".":                                      false,
		`","`:                                    false,
		"…":                                      false,
		"comments":                               false, // a key
		`"comments":`:                            false,
		"documentId":                             false,
		"read sections 1 to 4":                   false, // different case
		"Read sections 1 to 5":                   false,
		"<b>bold</b>":                            true,
		`\u003cb\u003ebold`:                      true,
		"ab\u200bcd":                             true,
		"abcd":                                   false,
		" renders header":                        true,
		"\x1b[0m renders header":                 true,
		"lorem ipsum lorem":                      true,
		"the end":                                false, // removed by a cut
		"[truncated 8007 chars]":                 false,
		"truncated":                              false,
		strings.Repeat("Read sections 1 to 4; ", 100): false,
		"invented: Read sections 1 to 4":              false, // no such key
	} {
		if got := s.find(evidence); got != want {
			t.Errorf("%.60q: %t", evidence, got)
		}
	}
}

// A model may write its own words around a quote. Fewer words than asked, words of several values, and words in
// another order are no quote.
func TestFindRun(t *testing.T) {
	t.Parallel()
	ds := shownOf(t, `{}`, `{"comments":"Read sections 1 to 4; every figure in table 2 was compared.","by":"Ann Lee of the review board"}`)
	for text, want := range map[string]string{
		`The agent says "every figure in table 2", which names it`:   "every figure in table 2",
		"It says every figure in table 9 was compared":               "every figure in table",
		"comments (Read sections 1 to 4) and figures":                "Read sections 1 to 4",
		"Ann Lee read every figure in the table":                     "",
		"compared was 2 table in figure every":                       "",
		"it read sections 1 to":                                      "",
		"Read sections 1 to and then every figure in table 2 was ok": "every figure in table 2 was",
		strings.Repeat("figure in table 2 ", 400):                    "figure in table 2",
		"": "",
	} {
		if got := ds.FindRun(text, 4); got != want {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
	}
}

// The documents are between markers that no document can imitate, and equal the case except for
// removed parts.
func TestDocumentsAreShownWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		doc := rapid.MapOfN(rapid.String(), rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }),
			rapid.Map(rapid.SliceOfN(rapid.String(), 0, 5), func(s []string) any { return s }),
		), 0, 8).Draw(t, "doc")
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Skip("no JSON")
		}
		s := shownOf(t, `{}`, string(raw))
		text := s[1].Text
		if strings.ContainsAny(text, "<>\n\r") || strings.ContainsFunc(text, prompts.Hidden) {
			t.Fatalf("not one safe line: %q", text)
		}
		var want, got any
		if json.Unmarshal(raw, &want) != nil || json.Unmarshal([]byte(text), &got) != nil {
			t.Fatalf("shown as no JSON: %q", text)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v is shown as %v", want, got)
		}
		for _, v := range doc {
			text, ok := v.(string)
			if !ok || len([]rune(text)) > maxQuote || !HasWord(Unwrap(text)) || text == Masked {
				continue
			}
			if held, why := s.Contains(text); !held {
				t.Fatalf("the value %q is no evidence: %s", text, why)
			}
		}
		if held, _ := s.Contains("a quote that cannot be there, 4711"); held {
			t.Fatal("holds what is not there")
		}
	})
}

func FuzzContain(f *testing.F) {
	for _, seed := range []string{"Read sections", "/data/comments", "#/a/b", "…", `\u00e4`, "a: b", "...", `"""`, "/~", "x...y"} {
		f.Add(seed, `{"comments":"Read sections 1 to 4","n":[1,{"a":"x y"}]}`)
	}
	f.Fuzz(func(t *testing.T, evidence, data string) {
		d, err := Render(Data, document.ReadTrusted([]byte(data)), 4000, 24<<10)
		if err != nil {
			return
		}
		s := Documents{d}
		held, why := s.Contains(evidence)
		if held == (why != "") {
			t.Fatalf("%t and %q", held, why)
		}
		if held && !HasWord(evidence) {
			t.Fatalf("%q is evidence", evidence)
		}
	})
}
