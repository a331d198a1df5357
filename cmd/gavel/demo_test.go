package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/testdata"
)

// liar answers as a server that passes the demo does, but for one scene.
type liar struct {
	honest []answer
	scene  int // -1: none
	lie    func(*answer)
	calls  int
}

func (l *liar) call(_ context.Context, tool string, _ any) (answer, error) {
	a := l.honest[l.calls]
	l.calls++
	if a.Tool != tool {
		return answer{}, fmt.Errorf("asked for %s, expected %s", tool, a.Tool)
	}
	if l.calls-1 == l.scene {
		// A copy of the fields, so that the lie does not outlive the test.
		var fields map[string]any
		if err := json.Unmarshal(a.Answer, &fields); err != nil {
			return answer{}, err
		}
		a.fields = fields
		l.lie(&a)
	}
	return a, nil
}

// recording plays a part of the demo against the real server once.
func recording(t *testing.T, part string) []answer {
	t.Helper()
	// The agent starts os.Args[0], which is this test binary under another name.
	out := runGavel(t, "demo", part, "--json")
	var played struct {
		OK       bool       `json:"ok"`
		Exchange []exchange `json:"exchange"`
	}
	if err := json.Unmarshal(out, &played); err != nil || !played.OK {
		t.Fatalf("the demo's JSON: %v\n%s", err, out)
	}
	answers := make([]answer, len(played.Exchange))
	for i, e := range played.Exchange {
		answers[i] = answer{exchange: e}
		if err := json.Unmarshal(e.Answer, &answers[i].fields); err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
	}
	return answers
}

// steadyModel has no moods: the answers are recorded.
type steadyModel struct{}

func (steadyModel) become(mood) error { return nil }

// TestDemoChecksItself lies in every scene of both parts: the demo must not swallow it.
func TestDemoChecksItself(t *testing.T) {
	t.Parallel()
	set := func(key string, value any) func(*answer) {
		return func(a *answer) { a.fields[key] = value }
	}
	decide := func(key string, value any) func(*answer) {
		return func(a *answer) { a.fields["decision"].(map[string]any)[key] = value }
	}
	judged := func(a answer) bool { return a.at("decision") != nil }
	advances := func(a answer) bool { return a.Tool == "workflow.advance" && judged(a) }
	everywhere := map[string]lie{
		"the other way round": {func(a *answer) { a.IsError = !a.IsError }, func(answer) bool { return true }},
		"nothing at all":      {func(a *answer) { a.fields = nil }, func(answer) bool { return true }},
		"another state":       {set("state", "elsewhere"), func(a answer) bool { return a.at("state") != nil }},
		"another outcome":     {decide("outcome", "escalate"), advances},
		"not complete":        {set("complete", "maybe"), func(a answer) bool { return advances(a) && !a.IsError }},
		"nameless violations": {decide("violations", []any{"something is wrong"}), func(a answer) bool { return a.IsError && judged(a) }},
		"another layer":       {decide("decidedBy", "nobody"), func(a answer) bool { return a.IsError && judged(a) }},
		"a short history":     {set("decisions", []any{}), func(a answer) bool { return a.Tool == "workflow.judge.history" }},
	}
	for part, c := range map[string]struct {
		play play
		lies map[string]lie
	}{
		"workflow": {workflowPlay, map[string]lie{
			"a kept context": {
				func(a *answer) { a.fields["context"].(map[string]any)["comments"] = "still here" },
				func(a answer) bool { return a.Tool == "workflow.rollback" },
			},
			"another error": {set("error", map[string]any{"code": "internal"}), func(a answer) bool { return a.at("error") != nil }},
		}},
		"evidence": {evidencePlay, map[string]lie{
			"evidence untold":          {decide("evidence", nil), advances},
			"other evidence":           {decide("evidence", []any{map[string]any{"name": "moon", "at": "now", "tookNs": 1.0}}), advances},
			"evidence without history": {dropEvidence, func(a answer) bool { return a.Tool == "workflow.judge.history" }},
		}},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			lies := maps.Clone(everywhere)
			maps.Copy(lies, c.lies)
			lieEverywhere(t, c.play, recording(t, part), lies)
		})
	}
}

// lie is what a server could say instead, and in which answers.
type lie struct {
	tell  func(*answer)
	where func(answer) bool
}

// dropEvidence takes what was fetched out of a history.
func dropEvidence(a *answer) {
	for _, d := range a.fields["decisions"].([]any) {
		delete(d.(map[string]any), "evidence")
	}
}

func lieEverywhere(t *testing.T, p play, honest []answer, lies map[string]lie) {
	t.Helper()
	want := 0
	for _, act := range p.acts {
		want += len(act.scenes)
	}
	if len(honest) != want {
		t.Fatalf("%d answers for %d scenes", len(honest), want)
	}
	for name, l := range lies {
		told := 0
		for i := range honest {
			if !l.where(honest[i]) {
				continue
			}
			told++
			if err := p.run(t.Context(), &liar{honest: honest, scene: i, lie: l.tell}, steadyModel{}, quietTranscript()); err == nil {
				t.Errorf("%s in step %d (%s) went unnoticed", name, i+1, honest[i].Tool)
			}
		}
		if told == 0 {
			t.Errorf("%s: no scene to tell it in", name)
		}
	}
	if err := p.run(t.Context(), &liar{honest: honest, scene: -1}, steadyModel{}, quietTranscript()); err != nil {
		t.Errorf("the honest answers: %v", err)
	}
}

// TestDemoFailureIsReported prints what was wrong and what the server said.
func TestDemoFailureIsReported(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	con := testConsole(&out, &errs)
	tr := &transcript{con: con}
	code := con.err.PrintError(tr.fail(fmt.Errorf("step 3: state is %q", "x"), "level=ERROR msg=boom\x1b[2J\n"))
	if code != term.ExitBad {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"did not go as it should", "step 3", "the server wrote:", "boom"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q is missing: %s", want, errs.String())
		}
	}
	if strings.Contains(errs.String(), "\x1b") {
		t.Error("the server's escape sequence got through")
	}
}

// TestDemoPlaysTheExample holds the demo's workflow to the example that the
// documentation shows.
func TestDemoPlaysTheExample(t *testing.T) {
	t.Parallel()
	example, err := testdata.Workflows.ReadFile("workflows/document-review.json")
	if err != nil {
		t.Fatal(err)
	}
	hash := func(doc []byte) string {
		d, err := workflow.Parse("document-review.json", doc)
		if err != nil {
			t.Fatal(err)
		}
		return d.Hash
	}
	if hash(example) != hash(documentReview) {
		t.Error("the embedded definition is not testdata/workflows/document-review.json")
	}
	if got := definitionArguments(documentReview)["name"]; got != "document-review" {
		t.Errorf("name %v", got)
	}
}

func quietTranscript() *transcript {
	return &transcript{quiet: true, con: testConsole(io.Discard, io.Discard)}
}

func testConsole(out, errs io.Writer) *console {
	return &console{
		stdin: strings.NewReader(""), rawOut: out, out: term.New(out), err: term.New(errs),
		log: slog.New(slog.NewTextHandler(errs, nil)),
	}
}
