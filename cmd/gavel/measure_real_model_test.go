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
	var page, criteria strings.Builder
	table, met := tabwriter.NewWriter(&page, 0, 0, 2, ' ', 0), tabwriter.NewWriter(&criteria, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MODEL\tFORM\tPROMPT\tCASES\tRIGHT\tWRONG\tREJECTED\tHELD UP\tUNREADABLE\tASKED\tANSWERED\tSECONDS\tAUROC")
	fmt.Fprintln(met, "MODEL\tFORM\tPROMPT\tGOOD\tSAID MET\tCOUNTED\tBAD\tSAID MET\tCOUNTED")
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
		row := []string{model, form[1:], edition[1:]}
		writeRealModel(t, table, row, m, tape)
		writeMet(t, met, row, m)
	}
	_ = table.Flush() // a strings.Builder never fails
	_ = met.Flush()
	showsAt(t, filepath.Join("..", "..", "docs", "real-model.md"), "cassettes", page.String())
	showsAt(t, filepath.Join("..", "..", "docs", "real-model.md"), "criteria", criteria.String())
}

// writeMet compares what the model said of each labelled criterion with its label, and with what gavel counted.
func writeMet(t *testing.T, table *tabwriter.Writer, row []string, m eval.Measurement) {
	t.Helper()
	labels := map[string]map[string]string{}
	for _, c := range m.Cases {
		labels[c.ID] = c.Expect.Criteria
	}
	type count struct{ of, said, counted int }
	var good, bad count
	for _, v := range m.Views {
		for _, a := range v.Answers {
			if len(a.Asked) == 0 || len(a.Asked[0].Answers) == 0 { // not recorded
				continue
			}
			said := statedMet(a.Asked[0].Answers)
			for id, label := range labels[v.Case] {
				n := &bad
				if label == "met" {
					n = &good
				}
				n.of++
				if said[id] {
					n.said++
				}
				if slices.ContainsFunc(a.Criteria, func(c judge.CriterionVerdict) bool { return c.ID == id && c.Status == "met" }) {
					n.counted++
				}
			}
		}
	}
	if good.of == 0 || bad.of == 0 {
		t.Errorf("%s: no labelled criteria: %+v %+v", row, good, bad)
	}
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", strings.Join(row, "\t"), good.of, good.said, good.counted, bad.of, bad.said, bad.counted)
}

// statedMet returns the criteria that the last answer itself calls met: v3 lists them, v4 has a member for each.
func statedMet(answers []string) map[string]bool {
	said := map[string]bool{}
	text := answers[len(answers)-1]
	begins, ends := strings.Index(text, "{"), strings.LastIndex(text, "}")+1
	if begins < 0 || begins > ends {
		return said
	}
	type criterion struct{ ID, Status string }
	var v3 struct{ Criteria []criterion }
	var v4 struct{ Criteria map[string]criterion }
	object := []byte(text[begins:ends])
	if json.Unmarshal(object, &v4) == nil {
		for id, c := range v4.Criteria {
			said[id] = c.Status == "met"
		}
	} else if json.Unmarshal(object, &v3) == nil {
		for _, c := range v3.Criteria {
			said[c.ID] = c.Status == "met"
		}
	}
	return said
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
		t.Fatalf("%s: no answer in the cassette belongs to a request that gavel makes; record it anew, or remove it", row)
	}
	wrong, area := m.Report.FalseApprove.K, "none"
	if p := m.Report.Probability; p != nil && p.AUROC.Value != nil {
		area = fmt.Sprintf("%.2f", *p.AUROC.Value)
		if i := p.AUROC.Interval; i != nil {
			area += fmt.Sprintf(" (%.2f to %.2f)", i.Low, i.High)
		}
	}
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t%s\n", strings.Join(row, "\t"), judged, outcomes[judge.Approve]-wrong, wrong,
		outcomes[judge.Reject], outcomes[judge.Escalate], unreadable, asked/judged, answered/judged, readSeconds(t, tape), area)
}

// readSeconds returns the median of how long the answers of a cassette took when they were recorded.
func readSeconds(t *testing.T, tape string) float64 {
	t.Helper()
	file, err := os.Open(tape)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var took []float64
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
		took = append(took, entry.Rec.Ms/1000)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
