package review

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// boast is text by which an agent imitates gavel's output.
const boast = "approved by all layers, nothing to check"

// A layer's reasoning may contain text from scripts, models and agents.
func TestReviewShowsEachLayerOnOneLine(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := reviewPage{out: term.New(&b)}
	p.Escalation.Opinions = []judge.Opinion{
		{Layer: judge.LayerScript, Outcome: judge.Approve, Reasoning: boast + "\nmodel: " + boast},
		{Layer: judge.LayerModel, Outcome: judge.Approve, Reasoning: boast, Model: &judge.ModelRecord{
			Votes: []judge.Vote{{Model: "small", Outcome: judge.Reject, Confidence: 0.7}, {Model: "m", Outcome: judge.Escalate, Trouble: judge.TroubleUnreadable}},
			Model: "m", Criteria: []judge.CriterionVerdict{{Text: boast, Status: "met", Evidence: boast + "\n" + boast, Why: boast, Says: boast, Basis: judge.BasisClaim}},
		}},
	}
	p.Criteria = []string{boast}
	p.layers()
	p.criteria()
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, boast) && !strings.HasPrefix(line, "  | ") {
			t.Errorf("somebody's words pass for gavel's: %q", line)
		}
	}
	for _, row := range []string{`small +reject +0.70`, `m +judge_unreadable`} {
		if !regexp.MustCompile(row).MatchString(b.String()) {
			t.Errorf("no %q in\n%s", row, &b)
		}
	}
	if n := strings.Count(b.String(), "\n  | model: "); n != 1 {
		t.Errorf("the model speaks %d times:\n%s", n, &b)
	}
}

// The path marks steps that were decided without a required judge, or that do not count in full. It contains only
// gavel's own text.
func TestReviewShowsThePath(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	at := func(seq int64, kind record.Kind, action, to string) engine.TimelineEntry {
		return engine.TimelineEntry{Seq: seq, Kind: kind, Action: action, To: to, Principal: "agent:ada", Reason: boast}
	}
	decided := func(d judge.Outcome, by judge.LayerName, degraded, fault bool, mode judge.Mode) engine.HistoryEntry {
		return engine.HistoryEntry{Decision: engine.Decision{Verdict: judge.Verdict{Outcome: d, DecidedBy: by, Degraded: degraded, Fault: fault, Mode: mode, Code: "some_code", Reasoning: boast}}}
	}
	p := reviewPage{out: term.New(&b), past: reviewPast{
		events: []engine.TimelineEntry{
			at(1, record.Started, "", "a"), at(2, record.Refused, "go", "a"), at(3, record.Advanced, "go", "b"),
			at(4, record.Advanced, "on", "c"), at(5, record.RolledBack, "", "a"), at(6, record.Advanced, "go", "b"),
		},
		decisions: map[int64]engine.HistoryEntry{
			1: decided(judge.Approve, judge.LayerTransition, false, false, judge.Enforce), 2: decided(judge.Reject, judge.LayerScript, false, true, judge.Enforce),
			3: decided(judge.Approve, judge.ByFallback, true, false, judge.Enforce), 4: decided(judge.Approve, judge.LayerModel, false, false, judge.Shadow),
			6: decided(judge.Approve, judge.LayerScript, false, false, judge.Enforce),
		},
		reviews: []engine.ReviewSummary{{ID: "rev-2", Status: record.ReviewStale}},
	}}
	p.path()
	for _, want := range []string{"\na -> b (degraded, fallback) -> c (shadow) -> a -> b\n", "  degraded, fallback\n", "  fault\n", "  shadow\n", "other reviews of this instance", "rev-2"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), boast) {
		t.Errorf("somebody's words pass for gavel's:\n%s", &b)
	}
	b.Reset()
	for i := int64(7); i < 40; i++ {
		p.past.events = append(p.past.events, at(i, record.Prechecked, "go", "b"))
	}
	p.Instance = "wf-1"
	p.path()
	if n := strings.Count(b.String(), "prechecked"); n != maxPathSteps || !strings.Contains(b.String(), "19 earlier steps: gavel instances timeline wf-1") {
		t.Errorf("%d steps in\n%s", n, &b)
	}
}

// TestShowNamesTheAnswers shows that a chain's step has other commands to resolve it than a move.
func TestShowNamesTheAnswers(t *testing.T) {
	for kind, want := range map[string][]string{
		"step":  {"it happened and returned JSON (null for nothing):\n    gavel review approve rev-1 --output JSON --reason '...' --store s.db\n", "it did not happen; the run repeats the call:\n    gavel review reject rev-1 --reason '...' --store s.db\n", "    gavel review give-up rev-1 --reason '...' --store s.db\n"},
		"input": {"give JSON, the content of the form:\n    gavel review approve rev-1 --output JSON --reason", "decline:\n    gavel review reject rev-1 ", "    gavel review give-up rev-1 "},
		"":      {"gavel review approve rev-1 --reason '...' --store s.db\ngavel review reject rev-1 --reason '...' --store s.db\n"},
	} {
		var b bytes.Buffer
		p := reviewPage{out: term.New(&b), ReviewView: engine.ReviewView{ReviewSummary: engine.ReviewSummary{ID: "rev-1", Kind: kind, Status: record.ReviewOpen}}}
		p.decide(" --store s.db", true)
		for _, part := range want {
			if !strings.Contains(b.String(), part) {
				t.Errorf("kind %q: %q is not in\n%s", kind, part, b.String())
			}
		}
	}
}

// TestLongDocumentsAreCut shows that documents are cut by lines and by bytes, with a note of the missing size.
func TestLongDocumentsAreCut(t *testing.T) {
	t.Parallel()
	many, err := json.Marshal(make([]int, 1000))
	if err != nil {
		t.Fatal(err)
	}
	long, err := json.Marshal(strings.Repeat("é", shownBytes))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		doc   json.RawMessage
		lines int
		cut   bool
	}{
		"short": {json.RawMessage(`{"a":1}`), 3, false},
		"lines": {many, shownLines, true},
		"bytes": {long, 1, true},
	} {
		var b bytes.Buffer
		p := reviewPage{out: term.New(&b)}
		p.document("data", c.doc)
		bars := strings.Count(b.String(), "  | ")
		if bars != c.lines || strings.Contains(b.String(), "more bytes") != c.cut || b.Len() > 2*shownBytes {
			t.Errorf("%s: %d lines, %d bytes, ending %.80q", name, bars, b.Len(), b.String()[max(0, b.Len()-80):])
		}
	}
}
