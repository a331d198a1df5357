package eval

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/judge"
)

// goldenLine is a valid case.
const goldenLine = `{"id":"a","group":"g","tags":["x"],"workflow":{"ref":"f.yaml#flow"},"state":"s","action":"do","context":{"k":{"id":1}},"data":{"text":"all done"},"history":[{"action":"go","state":"s"}],"expect":{"outcome":"approve","criteria":{"c1":"met"}},"label":{"source":"human","n_raters":2,"agreement":0.5},"split":"dev"}`

func TestReadCasesReportsTheMistake(t *testing.T) {
	tests := []struct{ name, old, now, rule, says string }{
		{"good", "", "", "", ""},
		{"a schema for editors", `{"id":"a"`, `{"$schema":"https://example.org/golden.json","id":"a"`, "", ""},
		{"a schema that is none", `{"id":"a"`, `{"$schema":1,"id":"a"`, RuleBadValue, "$schema is a number"},
		{"unknown key", `"action":"do"`, `"acton":"do"`, RuleUnknownKey, `did you mean "action"?`},
		{"unknown key below", `"outcome"`, `"outcom"`, RuleUnknownKey, `"expect.outcom"; did you mean "outcome"?`},
		{"unknown key of a step", `"action":"go"`, `"action":"go","when":1`, RuleUnknownKey, `"history[].when"`},
		{"key in capitals", `"split"`, `"Split"`, RuleUnknownKey, `did you mean "split"?`},
		{"key twice", `"state":"s","action"`, `"state":"s","state":"s","action"`, RuleDuplicateKey, "duplicate key state"},
		{"key twice in data", `"data":{`, `"data":{"text":"x",`, RuleDuplicateKey, "data.text"},
		{"own keys in data are free", `"data":{`, `"data":{"expct":1,`, "", ""},
		{"not JSON", `"id":"a"`, `"id":a`, RuleSyntax, "not JSON"},
		{"no object", goldenLine, `[1]`, RuleSyntax, "not a JSON object"},
		{"cut off", goldenLine, `{"id":"a"`, RuleSyntax, "not JSON"},
		{"two on a line", goldenLine, `{} {}`, RuleSyntax, "line of its own"},
		{"not UTF-8", "all done", "all \xff", RuleSyntax, "UTF-8"},
		{"wrong type", `"id":"a"`, `"id":7`, RuleBadValue, "id is a number"},
		{"no id", `"id":"a",`, ``, RuleBadValue, "id is missing"},
		{"control character", `"id":"a"`, `"id":"a\u001b"`, RuleBadValue, "control"},
		{"outcome", `"outcome":"approve"`, `"outcome":"ok"`, RuleBadValue, `"ok"; it is approve, reject or escalate`},
		{"criterion", `"c1":"met"`, `"c1":"yes"`, RuleBadValue, "cannot_assess"},
		{"source", `"human"`, `"robot"`, RuleBadValue, "label.source"},
		{"split", `"split":"dev"`, `"split":"train"`, RuleBadValue, "dev, cal or test"},
		{"agreement", `0.5`, `1.5`, RuleBadValue, "0 to 1"},
		{"raters", `"n_raters":2`, `"n_raters":-2`, RuleBadValue, "n_raters"},
		{"weight", `"split"`, `"weight":1,"split"`, RuleUnknownKey, "weight"},
		{"risk", `"split"`, `"risk":"low","split"`, RuleBadValue, "risk"},
		{"bom", `{"id"`, "\ufeff{\"id\"", RuleSyntax, "byte order mark"},
		{"data", `"data":{"text":"all done"}`, `"data":[]`, RuleBadValue, "data is not a JSON object"},
		{"workflow", `"workflow":{"ref":"f.yaml#flow"}`, `"workflow":"f"`, RuleBadValue, "workflow is not an object"},
		{"step", `{"action":"go","state":"s"}`, `{"action":"go"}`, RuleBadValue, "history[0]"},
		{"nested too deep", `{"text":"all done"}`, `{"t":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, RuleSyntax, "nested"},
		{"too long", "all done", strings.Repeat("x", MaxLine), RuleSyntax, "more than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			line := strings.Replace(goldenLine, tt.old, tt.now, 1)
			if tt.old != "" && line == goldenLine {
				t.Fatal("nothing was replaced")
			}
			// The next line is read, whatever is wrong with this one.
			var lines []int
			for g, err := range ReadCases("f.jsonl", strings.NewReader("\n"+line+"\r\n"+goldenLine)) {
				lines = append(lines, g.Line)
				var bad *Issue
				switch {
				case g.Line == 3 || tt.rule == "":
					if err != nil || g.ID != "a" || g.Schema != "" { // it would make the case different
						t.Errorf("line %d: %v", g.Line, err)
					}
				case !errors.As(err, &bad) || bad.Rule != tt.rule || bad.Line != 2 || bad.File != "f.jsonl" || !strings.Contains(bad.Message, tt.says):
					t.Errorf("got %v; want %s and %q", err, tt.rule, tt.says)
				}
			}
			if diff := cmp.Diff([]int{2, 3}, lines); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadCasesReportsTheReader(t *testing.T) {
	broken := errors.New("disk")
	var last error
	for _, err := range ReadCases("f", io.MultiReader(strings.NewReader(goldenLine+"\n{"), iotest.ErrReader(broken))) {
		last = err
	}
	if !errors.Is(last, broken) {
		t.Errorf("got %v", last)
	}
}

func FuzzReadCases(f *testing.F) {
	f.Add(goldenLine)
	f.Add("{}\n\n[")
	f.Fuzz(func(t *testing.T, text string) {
		for g, err := range ReadCases("f", strings.NewReader(text)) {
			if err == nil && g.Validate() != nil {
				t.Errorf("line %d was accepted and is not valid", g.Line)
			}
		}
	})
}

// lintLines lints cases that differ from goldenLine; each argument is a list of pairs to replace.
func lintLines(t *testing.T, resolve Resolver, lines ...[]string) ([]Issue, Summary) {
	t.Helper()
	var text strings.Builder
	for _, pairs := range lines {
		text.WriteString(strings.NewReplacer(pairs...).Replace(goldenLine) + "\n")
	}
	l := NewLinter(resolve)
	if err := l.Lint(ReadCases("f.jsonl", strings.NewReader(text.String()))); err != nil {
		t.Fatal(err)
	}
	return l.Finish()
}

func flow(_ string, workflow []byte) (Criteria, error) {
	if strings.Contains(string(workflow), "nowhere") {
		return nil, errors.New("there is no such definition")
	}
	return Criteria{"s": {"do": {"The text is clear."}}, "end": {}}, nil
}

// other makes the second case different, with the outcome reject.
var other = []string{`"id":"a"`, `"id":"b"`, `"group":"g"`, `"group":"h"`, "all done", "nothing", `"outcome":"approve"`, `"outcome":"reject"`}

func TestLintRules(t *testing.T) {
	resolve := func(file string, w json.RawMessage) (Criteria, error) { return flow(file, w) }
	long := "all of this was done with the greatest care by the four of us, on Monday, and then it was checked again"
	tests := []struct {
		name string
		add  []string // a third case
		rule string
		says string
	}{
		{"clean", []string{`"id":"a"`, `"id":"c"`, "all done", "third"}, "", ""},
		{"id", []string{"all done", "third"}, RuleDuplicateID, "f.jsonl:1"},
		{"content, keys and spacing aside", []string{`"id":"a"`, `"id":"c"`, `{"text":"all done"}`, `{ "text" : "all done" }`}, RuleDuplicateContent, "f.jsonl:1"},
		{"label", []string{`"id":"a"`, `"id":"c"`, `"outcome":"approve"`, `"outcome":"reject"`}, RuleContradictory, "expects approve, while this one expects reject"},
		{"content in two splits", []string{`"id":"a"`, `"id":"c"`, `"group":"g"`, `"group":"i"`, `"dev"`, `"test"`}, RuleLeakedContent, "in the split dev, while this one is in test"},
		{"group in two splits", []string{`"id":"a"`, `"id":"c"`, "all done", "third", `"dev"`, `"cal"`}, RuleLeakedGroup, `"g" is in the split dev`},
		{"words in two splits", []string{`"id":"a"`, `"id":"c"`, `"group":"g"`, `"group":"i"`, "all done", "ALL  done!", `"dev"`, `"test"`}, RuleLeakedText, "f.jsonl:1"},
		{"twin without group", []string{`"id":"a"`, `"id":"c"`, "all done", "third", `"x"`, `"twin"`, `"group":"g",`, ``}, RuleTwinAlone, "no group"},
		{"twin without partner", []string{`"id":"a"`, `"id":"c"`, "all done", "third", `"x"`, `"twin"`, `"group":"g"`, `"group":"i"`}, RuleTwinAlone, `"i"`},
		{"twin with partner", []string{`"id":"a"`, `"id":"c"`, "all done", "third", `"x"`, `"twin"`}, "", ""},
		{"split without rejects", []string{`"id":"a"`, `"id":"c"`, "all done", long, `"group":"g"`, `"group":"i"`, `"dev"`, `"cal"`}, RuleSplitWithoutClass, "no case to reject"},
		{"workflow", []string{`"id":"a"`, `"id":"c"`, "all done", "third", "f.yaml", "nowhere"}, RuleUnknownWorkflow, "no such"},
		{"state", []string{`"id":"a"`, `"id":"c"`, "all done", "third", `"state":"s","action":"do"`, `"state":"ende","action":"do"`}, RuleUnknownState, `did you mean "end"?`},
		{"action", []string{`"id":"a"`, `"id":"c"`, "all done", "third", `"do"`, `"doo"`}, RuleUnknownAction, `did you mean "do"?`},
		{"criterion", []string{`"id":"a"`, `"id":"c"`, "all done", "third", `"c1"`, `"c2"`}, RuleUnknownCriterion, `"c2"`},
		{"criterion by text", []string{`"id":"a"`, `"id":"c"`, "all done", "third", `"c1"`, `"The text is clear."`}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			issues, sum := lintLines(t, resolve, nil, other, tt.add)
			if sum.Cases != 3 {
				t.Fatalf("%d cases: %v", sum.Cases, issues)
			}
			found := tt.rule == "" && len(issues) == 0
			for _, i := range issues {
				found = found || i.Rule == tt.rule && i.Line == 3 && i.File == "f.jsonl" && strings.Contains(i.Message, tt.says)
			}
			if !found {
				t.Errorf("want %s and %q on line 3, got %+v", tt.rule, tt.says, issues)
			}
		})
	}
}

// The digest does not depend on order, changes with a case, and equals that of a report.
func TestDigestOfASet(t *testing.T) {
	_, one := lintLines(t, nil, nil, other)
	_, turned := lintLines(t, nil, other, nil)
	_, changed := lintLines(t, nil, nil, append([]string{`"c1":"met"`, `"c1":"not_met"`}, other...))
	if one.Digest != turned.Digest || one.Digest == changed.Digest {
		t.Errorf("%s, turned %s, changed %s", one.Digest, turned.Digest, changed.Digest)
	}
	var cases []*Case
	for g := range ReadCases("f", strings.NewReader(goldenLine+"\n"+strings.NewReplacer(other...).Replace(goldenLine))) {
		cases = append(cases, &g.Case)
	}
	if got := digestCases(cases); got != one.Digest {
		t.Errorf("a report has %s, lint %s", got, one.Digest)
	}
}

// Cases are read one by one, in any number; only their digests are kept.
func TestLintManyCases(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 2_000
	}
	from, to := io.Pipe()
	go func() {
		for i := range n {
			outcome := []judge.Outcome{judge.Approve, judge.Reject}[i%2]
			_, err := fmt.Fprintf(to, `{"id":"%d","workflow":{"ref":"f"},"state":"s","action":"do","data":{"n":%d},"expect":{"outcome":"%s"},"label":{"source":"synthetic"},"split":"test"}`+"\n", i, i, outcome)
			if err != nil {
				break
			}
		}
		_ = to.Close()
	}()
	l := NewLinter(nil)
	if err := l.Lint(ReadCases("f", from)); err != nil {
		t.Fatal(err)
	}
	if issues, sum := l.Finish(); len(issues) != 0 || sum.Cases != n {
		t.Errorf("%d cases, %d issues, the first: %+v", sum.Cases, len(issues), issues[:min(1, len(issues))])
	}
}

// A change of the judged content makes a label invalid; a change of other fields does not.
func TestContentOf(t *testing.T) {
	t.Parallel()
	c := Case{ID: "a", Workflow: []byte(`{"ref":"f"}`), State: "s", Action: "x", Data: []byte(`{"n":1}`)}
	was := ContentOf(c)
	about := c
	about.ID, about.Tags, about.Split, about.Expect, about.Label, about.Notes = "b", []string{"t"}, Test, Expect{Outcome: judge.Reject}, Label{Source: "human"}, "n"
	if ContentOf(about) != was {
		t.Error("the label is a part of the content")
	}
	for name, change := range map[string]func(*Case){
		"data":     func(c *Case) { c.Data = []byte(`{"n":2}`) },
		"context":  func(c *Case) { c.Context = []byte(`{"n":2}`) },
		"history":  func(c *Case) { c.History = []Step{{Action: "y", State: "s"}} },
		"workflow": func(c *Case) { c.Workflow = []byte(`{"ref":"g"}`) },
	} {
		other := c
		change(&other)
		if ContentOf(other) == was {
			t.Errorf("another %s is the same content", name)
		}
	}
}
