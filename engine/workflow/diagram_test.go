package workflow_test

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// hostile is a definition whose names contain diagram syntax.
const hostile = `{"name":"w","initialState":"end","states":{
	"end":{"transitions":{"a --> b":"State","x\": [*]":"s3","%% comment":"<script>alert(1)</script>","#35;quot;":"note left of end : hi","\\N&lt;":"a\"; rm [label=\"x"}},
	"State":{"transitions":{"go:on;now":"[*]"}},
	"<script>alert(1)</script>":{"transitions":{"back":[{"condition":"context.a > 1 &&\n  context.b === \"x\\\\y\" || context.c.includes('a very long condition that has to be cut')","target":"end"},{"condition":"true","target":"s3"}]}},
	"s3":{"transitions":{"{}| direction LR":"[*]"}},
	"note left of end : hi":{"transitions":{"ümlaut 漢字":"[*]"}},
	"a\"; rm [label=\"x":{"transitions":{"b":"[*]"}},
	"[*]":{"final":true,"outcome":"success\" as x"}}}`

func diagrams(t testing.TB, d *workflow.Definition, m workflow.Marks) map[string]string {
	t.Helper()
	var mermaid, dot bytes.Buffer
	if err := errors.Join(d.WriteMermaid(&mermaid, m), d.WriteDOT(&dot, m)); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"mmd": mermaid.String(), "dot": dot.String()}
}

func TestDiagrams(t *testing.T) {
	for name, c := range map[string]struct {
		doc   string
		marks workflow.Marks
	}{
		"document-review": {string(examples(t)["document-review.json"]), workflow.Marks{Current: "reviewing", Visited: []string{"draft", "reviewing"}}},
		"infrastructure":  {string(examples(t)["infrastructure-deployment.yaml"]), workflow.Marks{}},
		"everything":      {everything, workflow.Marks{Current: "approved", Visited: []string{"draft", "reviewing", "approved"}}},
		"hostile":         {hostile, workflow.Marks{Current: "end", Visited: []string{"[*]", "unknown"}}},
	} {
		for ext, got := range diagrams(t, parse(t, c.doc), c.marks) {
			golden(t, name+"."+ext, got)
		}
	}
}

// mermaidLine matches every line that a Mermaid diagram may have: a name that became syntax would give
// another line. Labels hold no quote and no markup.
var mermaidLine = regexp.MustCompile(`^(stateDiagram-v2|    (state "[^"<>&:;{}]*(#\d+;[^"<>&:;{}]*)*" as \w+|(\[\*\]|\w+) --> (\[\*\]|\w+)( : [^"<>&:{}\n]*)?|classDef (visited|current) [^"<>]*|class [\w,]+ (visited|current)))$`)

// dotLine does the same for DOT: a quoted string is closed only by its own quote.
var dotLine = regexp.MustCompile(`^(digraph "[\w.-]+" \{|\}|  (rankdir=LR;|(node|edge) \[.*\];|start \[.*\];|(start|s\d+) -> s\d+( \[label="([^"\\]|\\["\\])*"\])?;|s\d+ \[label="([^"\\]|\\["\\])*"(, \w+=("[^"]*"|\d+))*\];))$`)

func TestDiagramsStayDiagrams(t *testing.T) {
	label := rapid.StringMatching(`[ -~]{1,12}|[a-z]{1,5}|[\x{e0}-\x{ff}]{1,3}`)
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(label, 1, 5, rapid.ID[string]).Draw(rt, "states")
		d := &workflow.Definition{Name: "w", InitialState: names[0], StateNames: names, States: map[string]*workflow.State{}}
		for i, n := range names {
			s := &workflow.State{Name: n, Outcome: rapid.SampledFrom([]string{"", "ok"}).Draw(rt, "outcome"), Transitions: map[string]*workflow.Transition{}}
			action := label.Draw(rt, "action")
			s.Actions = []string{action, "missing"}
			s.Transitions[action] = &workflow.Transition{Action: action, Routes: []workflow.Route{{Target: names[(i+1)%len(names)], Condition: label.Draw(rt, "condition")}}}
			d.States[n] = s
		}
		out := diagrams(t, d, workflow.Marks{Current: names[0], Visited: names})
		for l := range strings.SplitSeq(strings.TrimSuffix(out["mmd"], "\n"), "\n") {
			if !mermaidLine.MatchString(l) {
				rt.Fatalf("Mermaid: %s", l)
			}
		}
		for l := range strings.SplitSeq(strings.TrimSuffix(out["dot"], "\n"), "\n") {
			if !dotLine.MatchString(l) {
				rt.Fatalf("DOT: %s", l)
			}
		}
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestDiagramsReportTheWriter(t *testing.T) {
	d := parse(t, hostile)
	if err := d.WriteMermaid(broken{}, workflow.Marks{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if err := d.WriteDOT(broken{}, workflow.Marks{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}
