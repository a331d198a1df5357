package console

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
)

func TestMarksAreShown(t *testing.T) {
	for in, want := range map[string]string{
		"plain ünïcode 漢字":             "plain ünïcode 漢字",
		"a\u202egnp.exe":               "a⟨U+202E⟩gnp.exe",
		"\x1b[31mred\x1b[0m":           "␛[31mred␛[0m",
		"zero\u200bwidth\u2066iso":     "zero⟨U+200B⟩width⟨U+2066⟩iso",
		"nul\x00 bell\x07 del\x7f":     "nul␀ bell␇ del␡",
		"bad \xff\xfe utf-8":           "bad �� utf-8",
		"line\nand\ttab":               "line\nand\ttab",
		"tag \U000E0041 characters":    "tag ⟨U+E0041⟩ characters",
		"next line\u0085 and\u2028sep": "next line⟨U+0085⟩ and⟨U+2028⟩sep",
		"\ufeffbom soft\u00adhyphen":   "⟨BOM⟩bom soft⟨soft hyphen⟩hyphen",
	} {
		if got := showMarks(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

func TestLongTextsAreCut(t *testing.T) {
	if got := cutText(strings.Repeat("ä", 100_000), maxText); utf8.RuneCountInString(got) > maxText+40 || !strings.HasSuffix(got, "… (98\u202f000 more characters)") {
		t.Errorf("%d characters, ending in %q", utf8.RuneCountInString(got), got[len(got)-40:])
	}
	if got := cutText("short", 5); got != "short" {
		t.Error(got)
	}
}

func FuzzShowMarks(f *testing.F) {
	f.Add("a\u202eb\x1b[0m<script>\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := showMarks(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, isHidden) {
			t.Errorf("%q is shown as %q", s, got)
		}
	})
}

func TestDifferences(t *testing.T) {
	before, after := `{"a":1,"b":{"c":[1,2,3],"d":"x"},"gone":true,"n":9007199254740993}`, `{"a":1,"b":{"c":[1,5],"d":"y"},"n":9007199254740992,"new":null}`
	got := compareJSON(json.RawMessage(before), json.RawMessage(after))
	want := []Change{
		{Path: "b.c[1]", Before: "2", After: "5"},
		{Path: "b.c[2]", Before: "3", Removed: true},
		{Path: "b.d", Before: `"x"`, After: `"y"`},
		{Path: "gone", Before: "true", Removed: true},
		{Path: "n", Before: "9007199254740993", After: "9007199254740992"},
		{Path: "new", After: "null", Added: true},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("difference %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if got := compareJSON(json.RawMessage(before), json.RawMessage(before)); len(got) != 0 {
		t.Errorf("equal documents differ: %+v", got)
	}
	if got := compareJSON(nil, json.RawMessage(`{"a":1}`)); len(got) != 1 || !got[0].Added {
		t.Errorf("from nothing: %+v", got)
	}
	if got := compareJSON(nil, json.RawMessage(`{`)); len(got) != 1 {
		t.Errorf("not JSON: %+v", got)
	}
}

func TestIDsAreShortened(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"wf-019cd714-bf81-7a81-87c7-829eb92228c6":     "wf-019cd714-bf81",
		"rev-019cd711-e480-7b88-8025-1d0f12b1c862":    "rev-019cd711-e480",
		"wf-run-019cd714-bf81-7a81-87c7-829eb92228c6": "wf-run-019cd714-bf81",
		"release-019cd714-bf81-7a81":                  "release-019cd714-bf81-7a81",
		"wf-1":                                        "wf-1",
	} {
		if got := shortenID(id); got != want {
			t.Errorf("%s is shortened to %s, want %s", id, got, want)
		}
	}
}

func TestRefusalsAreForPeople(t *testing.T) {
	t.Parallel()
	d := engine.Decision{Verdict: judge.Verdict{Reasoning: "The validator states.a.transitions.b.validator rejects this: 2 of 412 tests fail. " + judge.TryAgain}, Violations: []string{"TestBasket: want 4"}}
	if got, want := describeRefusal(d), "2 of 412 tests fail.  TestBasket: want 4."; strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMasksAreDifferences(t *testing.T) {
	t.Parallel()
	before := `{"a":"[masked]","b":["[masked]",1],"c":{"d":"paid [masked]","e":"same"},"f":"[destroyed]","a.b":"[masked]"}`
	paths := func(all []Change) (out []string) {
		for _, c := range all {
			if !c.Hidden || c.Before != c.After {
				t.Errorf("%+v is not hidden", c)
			}
			out = append(out, c.Path)
		}
		return out
	}
	for data, want := range map[string][]string{
		"":                       {"a", "a.b", "b[0]", "c.d", "f"},
		`{}`:                     nil,
		`{"b":[],"c":{},"fa":1}`: {"b[0]", "c.d"},
		`{"a.b":1}`:              {"a.b"},
	} {
		if got := paths(compareMove(json.RawMessage(before), json.RawMessage(before), json.RawMessage(data))); !slices.Equal(got, want) {
			t.Errorf("a move with %s may change %v, want %v", data, got, want)
		}
	}
	if got := compareJSON(json.RawMessage(`{"a":"[masked]"}`), json.RawMessage(`{}`)); len(got) != 1 || got[0].Hidden || !got[0].Removed {
		t.Errorf("a removed field: %+v", got)
	}
}

func TestAssuranceClaimsNoSchema(t *testing.T) {
	t.Parallel()
	for _, a := range []judge.Assurance{judge.AssuranceNone, judge.AssuranceStructural, judge.AssuranceValidators, judge.AssuranceLLM, judge.AssuranceLLMCalibrated, judge.AssuranceHuman} {
		if got := describeAssurance(a); strings.Contains(got, "schema") || strings.Contains(got, "fields were") {
			t.Errorf("%s: %q, although a schema may not be declared", a, got)
		}
	}
}

func TestTheFirstSentenceIsSplitOff(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 60) + "end. Next."
	for text, want := range map[string][2]string{
		"The title is missing. Add one.\nThen ask again.": {"The title is missing.", "Add one. Then ask again."},
		"Give a unit, e.g. cm. It was 3.5 before.":        {"Give a unit, e.g. cm.", "It was 3.5 before."},
		"No":  {"No", ""},
		"Hm!": {"Hm!", ""},
		"":    {"", ""},
		long:  {"", long},
	} {
		if first, rest := splitSentence(text); first != want[0] || rest != want[1] {
			t.Errorf("%q is split into %q and %q", text, first, rest)
		}
	}
}
