package document

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `name: review
tags: {team: docs, n: 3}
judge:
  useLLM: "true"
  minConfidence: 0.8
  mode: enforced
  modle: x
roles: agent
retries: 2.5
states:
  draft:
    transitons: {}
  approved:
    final: true
extra: 1
`

func TestObjectReaderCollectsEverything(t *testing.T) {
	n, err := Parse("review.yaml", []byte(sample), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	o := NewObject(n)
	o.Require("name", "initialState")
	if got := o.String("name"); got != "review" {
		t.Errorf("name is %q", got)
	}
	if diff := cmp.Diff(map[string]string{"team": "docs"}, o.StringMap("tags")); diff != "" {
		t.Error(diff)
	}
	j := o.Object("judge")
	j.BoolPtr("useLLM")
	if f := j.FloatPtr("minConfidence"); f == nil || *f != 0.8 {
		t.Errorf("minConfidence is %v", f)
	}
	j.Enum("mode", "enforce", "shadow")
	j.StringPtr("model")
	j.Unknown()
	if diff := cmp.Diff([]string{"agent"}, o.OneOrMore("roles")); diff != "" {
		t.Error(diff)
	}
	o.IntPtr("retries")
	for _, m := range o.Entries("states") {
		s := o.Sub(m.Value)
		s.Bool("final")
		s.Object("transitions").Unknown()
		s.Unknown()
	}
	if absent := o.Object("missing"); absent.String("x") != "" || absent.Has("y") || absent.Raw("z") != nil || absent.Err() != nil {
		t.Error("an absent object must read as empty")
	}
	o.Unknown()

	var all Errors
	if !errors.As(o.Err(), &all) {
		t.Fatal("no Errors")
	}
	var got []string
	for _, i := range all {
		got = append(got, fmt.Sprintf("%d:%d %s %s %s", i.Line, i.Column, i.Rule, i.Path, i.Message))
	}
	want := []string{
		`1:1 missing  missing key "initialState"`,
		`2:23 type /tags/n expected a string, got a number`,
		`4:11 type /judge/useLLM expected a boolean, got a string`,
		`6:9 value /judge/mode "mode" must be one of "enforce", "shadow"; did you mean "enforce"?`,
		`7:3 unknown_key /judge/modle unknown key "modle"; did you mean "mode"?`,
		`9:10 type /retries expected a whole number, got a number`,
		`12:5 unknown_key /states/draft/transitons unknown key "transitons"; did you mean "transitions"?`,
		`15:1 unknown_key /extra unknown key "extra"; known keys are "name", "initialState", "tags", "judge", "roles", "retries", "states", "missing"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if text := o.Err().Error(); !strings.Contains(text, "8 issues:\n  review.yaml:1:1: missing key") {
		t.Errorf("unreadable: %s", text)
	}
}

func TestObjectReaderRefusesOtherTypes(t *testing.T) {
	n, err := Parse("x.json", []byte(`[1]`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	o := NewObject(n)
	o.Require("name")
	o.Unknown()
	var issue *Issue
	if err := o.Err(); !errors.As(err, &issue) || issue.Rule != RuleType || len(err.(Errors)) != 1 { //nolint:errorlint // the type is the promise
		t.Errorf("got %v", err)
	}
}

func TestReportIsBounded(t *testing.T) {
	doc := "{"
	for i := range 500 {
		doc += fmt.Sprintf(`"%s%d":0,`, strings.Repeat("k", 300), i)
	}
	n, err := Parse("x.json", []byte(doc+`"z":0}`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	o := NewObject(n)
	o.Unknown()
	text := o.Err().Error()
	if len(text) > 50*400 || !strings.HasSuffix(text, "and 451 more") {
		t.Errorf("%d bytes, ends %q", len(text), text[len(text)-40:])
	}
}

func TestNode(t *testing.T) {
	n, err := Parse("x.json", []byte("{\"a/b\":{\"~\":[1,{\"é\": \n \"x\"}]}, \"n\":1.0}"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	leaf := n.At("a/b", "~").Items[1].Get("é")
	if got := leaf.Path(); got != "/a~1b/~0/1/é" {
		t.Errorf("path %q", got)
	}
	if leaf.Line != 2 || leaf.Column != 2 || leaf.Source() != "x.json" {
		t.Errorf("at %d:%d of %q", leaf.Line, leaf.Column, leaf.Source())
	}
	if line := n.Lines()["/a~1b/~0/1/é"]; line != 1 {
		t.Errorf("the key's line is %d", line)
	}
	if n.Get("nothing") != nil || n.At("a", "b", "c") != nil || (*Node)(nil).Path() != "" || (*Node)(nil).JSON() != nil {
		t.Error("absent values must be nil")
	}
	if diff := cmp.Diff([]string{"a/b", "n"}, n.Keys()); diff != "" {
		t.Error(diff)
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"requiredFields", "schema", "validator", "useLLM", "target", "description", "reject", "approve", "on"}
	for word, want := range map[string]string{
		"requiredFeilds": "requiredFields", "required_fields": "requiredFields", "REQUIREDFIELDS": "requiredFields",
		"shcema": "schema", "useLlm": "useLLM", "validators": "validator", "aprove": "approve", "Reject": "reject",
		"approve": "approve", "descr": "", "xyz": "", "": "", "no": "on", "q": "", strings.Repeat("x", 10_000): "",
	} {
		if got := Suggest(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
	if got := Suggest("ab", []string{"ac", "ad"}); got != "ac" {
		t.Errorf("of equally near words got %q, want the first", got)
	}
}
