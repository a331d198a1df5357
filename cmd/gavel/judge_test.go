package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/author"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/demo"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	model, err := demo.StartModel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	code, out := doctor(t, model.URL, nil)
	for _, want := range []string{"scripted (default)", model.URL + "/v1/chat/completions", "json_schema", "approve, confidence 0.87 (stated 0.97)", "reject", "640 + 90 tokens", "works"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if code != term.ExitOK {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	for _, bad := range []demo.Mood{demo.Garbled, demo.Dead, demo.Slow} {
		model.Become(bad)
		code, out := doctor(t, model.URL, nil, "--json")
		var found struct {
			OK     bool
			Models []author.Diagnosis
		}
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			t.Fatalf("%s: %v\n%s", bad, err, out)
		}
		if code != term.ExitBad || found.OK || len(found.Models) != 1 || len(found.Models[0].Problems) == 0 {
			t.Errorf("%s: exit code %d\n%s", bad, code, out)
		}
	}
}

// Recorded answers are replayed without an endpoint. A missing recording is an error.
func TestCassetteThroughTheFlags(t *testing.T) {
	t.Parallel()
	scripted, err := demo.StartModel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer scripted.Close()
	tape := filepath.Join(t.TempDir(), "tape.jsonl")
	ask := func(mode string, which int) (author.SampleTest, string) {
		t.Helper()
		f := cli.ModelFlags{
			BaseURL: scripted.URL, Model: "scripted", Thinking: "auto", Structured: "auto", Deadline: 5 * time.Second,
			Refusals: 3, Window: 24 * time.Hour, Cassette: tape, CassetteFor: mode,
		}
		var log bytes.Buffer
		m, err := f.Open(slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := m.Layer(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := author.Samples[which]
		result, _, err := author.JudgeSample(t.Context(), layer, s.Name, s.Data, s.Expected)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		return result, log.String()
	}
	recorded, _ := ask("record", 0)
	if recorded.Outcome != judge.Approve {
		t.Fatalf("%+v", recorded)
	}
	var asked struct {
		Req struct {
			Body struct{ Messages []struct{ Content string } }
		}
	}
	first, err := os.ReadFile(tape)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(bytes.NewReader(first)).Decode(&asked); err != nil || len(asked.Req.Body.Messages) != 2 {
		t.Fatalf("%+v, %v", asked, err)
	}
	if user := asked.Req.Body.Messages[1].Content; !strings.Contains(user, ":gate>>\n{\"role\":") || strings.Contains(user, `"time":`) {
		t.Errorf("a recorded question says when it was asked, and is found only then: %s", user)
	}
	scripted.Become(demo.Dead)
	replayed, _ := ask("replay", 0)
	if replayed.Outcome != judge.Approve || replayed.Confidence != recorded.Confidence {
		t.Errorf("%+v", replayed)
	}
	missed, log := ask("replay", 1)
	if missed.Outcome != "" || missed.Asked == nil || missed.Asked.Failure == "" || !strings.Contains(log, "the cassette has unused answers") {
		t.Errorf("%+v, %s", missed, log)
	}
}
