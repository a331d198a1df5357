package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
)

// Recorded answers of a real model with 135 million parameters are still read as they were when recorded, in every
// answer format. None passes a strict gate, and none can be calibrated or certified. docs/evaluation.md has the
// table; testdata/real-model/run.sh record records them again.
func TestRealModelFromItsCassettes(t *testing.T) {
	t.Parallel()
	folder, results := filepath.Join("..", "..", "testdata", "real-model"), t.TempDir()
	command := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := run(t.Context(), args, strings.NewReader(""), &out, &out)
		return code, out.String()
	}
	var page strings.Builder
	table := tabwriter.NewWriter(&page, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "FORM\tCASES\tAPPROVED\tREJECTED\tTO A PERSON\tUNREADABLE\tREQUESTS\tWHY NOT APPROVED")
	for _, form := range []struct {
		rung llm.Rung
		part []string
	}{
		{llm.RungJSONSchema, []string{filepath.Join(folder, "cases.jsonl"), "--split", "test"}},
		{llm.RungTool, []string{filepath.Join(folder, "cases.jsonl")}},
		{llm.RungJSONObject, []string{filepath.Join(folder, "few.jsonl")}},
		{llm.RungPrompt, []string{filepath.Join(folder, "few.jsonl")}},
	} {
		rung, file := form.rung, filepath.Join(results, string(form.rung)+".json")
		asked := []string{
			"eval", "run", "--llm-base-url", "http://127.0.0.1", "--llm-model", "smollm2-135m", "--llm-structured", string(rung), "--workers", "1",
			"--cassette", filepath.Join(folder, string(rung)+".cassette"), "--max-errors", "0", "--gates", filepath.Join(folder, "gates.yaml"), "--out", file,
		}
		code, out := command(append(asked, form.part...)...)
		if code != term.ExitOK {
			t.Errorf("%s: exit code %d\n%s", rung, code, out)
			continue
		}
		m, err := measure.ReadResults(file)
		if err != nil {
			t.Fatal(err)
		}
		writeRealModel(table, rung, m.Results)
		if code, out := command("eval", "tune", file, "--target-risk", "0.05"); code != term.ExitBad || !strings.Contains(out, "not certifiable") {
			t.Errorf("%s: tune exits with %d\n%s", rung, code, out)
		}
		calibration := filepath.Join(results, string(rung)+".calibration")
		if code, out := command("eval", "calibrate", file, "--out", calibration); code != term.ExitBad || !strings.Contains(out, "approved no case") {
			t.Errorf("%s: calibrate exits with %d\n%s", rung, code, out)
		}
	}
	_ = table.Flush() // a strings.Builder never fails
	showsAt(t, filepath.Join("..", "..", "docs", "evaluation.md"), "cassettes", page.String())
}

func writeRealModel(table io.Writer, rung llm.Rung, results []eval.Result) {
	outcomes, codes, unreadable, calls := map[judge.Outcome]int{}, map[string]int{}, 0, 0
	for _, r := range results {
		outcomes[r.Outcome]++
		calls += r.Calls
		if r.Unreadable {
			unreadable++
		}
		if r.Outcome != judge.Approve {
			codes[r.Code]++
		}
	}
	var why []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		why = append(why, fmt.Sprintf("%d %s", codes[code], code))
	}
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", rung, len(results), outcomes[judge.Approve], outcomes[judge.Reject], outcomes[judge.Escalate], unreadable, calls, strings.Join(why, ", "))
}
