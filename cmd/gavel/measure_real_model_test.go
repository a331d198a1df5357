package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

// Recorded answers of real models with 0.5 and 1.5 billion parameters are still read as they were when recorded.
// docs/real-model.md has the table; testdata/real-model/run.sh record records more of them. A cassette has the first
// cases of cases.jsonl, as many as there was time for.
func TestRealModelFromItsCassettes(t *testing.T) {
	t.Parallel()
	folder, results := filepath.Join("..", "..", "testdata", "real-model"), t.TempDir()
	tapes, err := filepath.Glob(filepath.Join(folder, "*.cassette"))
	if err != nil || len(tapes) == 0 {
		t.Fatalf("no cassettes: %v", err)
	}
	slices.Sort(tapes)
	var page strings.Builder
	table := tabwriter.NewWriter(&page, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MODEL\tFORM\tPROMPT\tCASES\tRIGHT\tWRONG\tREJECTED\tHELD UP\tUNREADABLE\tASKED\tANSWERED\tSECONDS\tAUROC")
	for _, tape := range tapes {
		name := strings.TrimSuffix(filepath.Base(tape), ".cassette")
		edition := filepath.Ext(name)
		form := filepath.Ext(strings.TrimSuffix(name, edition))
		model := strings.TrimSuffix(name, form+edition)
		file := filepath.Join(results, name+".json")
		var out bytes.Buffer
		code := run(t.Context(), []string{
			"eval", "run", "--llm-base-url", "http://127.0.0.1", "--llm-model", model, "--llm-structured", form[1:], "--prompt", edition[1:],
			"--workers", "1", "--cassette", tape, "--max-errors", "100%", "--out", file, filepath.Join(folder, "cases.jsonl"),
		}, strings.NewReader(""), &out, &out)
		m, err := measure.ReadResults(file)
		if err != nil {
			t.Errorf("%s: exit code %d, %v\n%s", name, code, err, out.String())
			continue
		}
		writeRealModel(t, table, []string{model, form[1:], edition[1:]}, m, tape)
	}
	_ = table.Flush() // a strings.Builder never fails
	showsAt(t, filepath.Join("..", "..", "docs", "real-model.md"), "cassettes", page.String())
}

func writeRealModel(t *testing.T, table *tabwriter.Writer, row []string, m eval.Measurement, tape string) {
	t.Helper()
	outcomes, judged, unreadable, asked, answered := map[judge.Outcome]int{}, 0, 0, 0, 0
	for _, r := range m.Results {
		if r.Failure != "" { // not recorded
			continue
		}
		judged++
		outcomes[r.Outcome]++
		if r.Unreadable {
			unreadable++
		}
		if r.PromptTokens == nil || r.CompletionTokens == nil {
			t.Fatalf("%s: no tokens are counted for %s", row, r.Case)
		}
		asked, answered = asked+*r.PromptTokens, answered+*r.CompletionTokens
	}
	if judged == 0 {
		t.Fatalf("%s: no answer in the cassette belongs to a request that gavel makes", row)
	}
	wrong, area := m.Report.FalseApprove.K, "none"
	if p := m.Report.Probability; p != nil && p.AUROC.Value != nil {
		area = fmt.Sprintf("%.2f %s", *p.AUROC.Value, p.AUROC.Bounds())
	}
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t%s\n", strings.Join(row, "\t"), judged, outcomes[judge.Approve]-wrong, wrong,
		outcomes[judge.Reject], outcomes[judge.Escalate], unreadable, asked/judged, answered/judged, recordedSeconds(t, tape)/float64(judged), area)
}

// recordedSeconds is how long the answers of a cassette took when they were recorded.
func recordedSeconds(t *testing.T, tape string) (seconds float64) {
	t.Helper()
	file, err := os.Open(tape)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry struct {
			Rec struct {
				Ms float64 `json:"ms"`
			} `json:"rec"`
		}
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil || entry.Rec.Ms <= 0 {
			t.Fatalf("%s: %v, %+v", tape, err, entry)
		}
		seconds += entry.Rec.Ms / 1000
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return seconds
}
