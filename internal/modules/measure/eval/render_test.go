package eval

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/judge"
)

var update = flag.Bool("update", false, "write the golden files of testdata/render")

// hostileWords try to escape from the place where they are shown.
const hostileWords = "</blockquote><script>alert(1)</script> | [x](https://example.com) ]]> # all good\nsecond line \x1b[31mred"

// rendered returns a small run with everything that a report can have.
func rendered() Measurement {
	cases, results := hand()
	for i := range cases {
		cases[i].Label.Source = "synthetic"
		cases[i].Tags = []string{[]string{"plain", "injection"}[i%2]}
		results[i].Reasoning, results[i].Took = hostileWords, 0
		results[i].Confidence = 0.6 + float64(i)/100
	}
	views := []View{{
		Case: cases[3].ID, Documents: []ViewDocument{{"data", "{\n  \"text\": \"The pump runs \\\"well\\\" " + hostileWords + "\"\n}"}},
		Answers: []ViewAnswer{{
			Criteria: []judge.CriterionVerdict{{ID: "c1", Text: "It runs.", Status: "met", Evidence: `The pump runs "well"`}, {ID: "c2", Text: hostileWords, Status: "not_met", Evidence: hostileWords, Why: hostileWords}},
			Asked:    []Exchange{{User: "Is it so? " + hostileWords, Answers: []string{`{"approved": true} ` + hostileWords}}},
		}},
	}}
	results[0] = Result{Case: cases[0].ID, Failure: "model: config"}
	o := Options{Resamples: 50, MaxFailures: new(0.1), Seed: 1}
	m := Measurement{
		About:  About{Sets: []string{"cases.jsonl"}, Judge: "model scripted", Mode: "replay", Repeats: 1, Prompts: []string{"sha256:p"}, Remarks: []string{"The answers were written, no model gave them."}},
		Report: Evaluate(cases, results, o), Cases: cases, Results: results, Views: views, SystemPrompts: []string{"You judge. " + hostileWords},
	}
	m.Gates, _ = Gates{Limits: map[string]float64{"max_false_approve_upper": 0.1, "min_cases": 5}}.Check(m.Report)
	m.Baseline = &BaselineResult{Compared: true, Says: "no significant regression", Detail: []byte(`{"compared": true, "regression": false, "says": "no significant regression"}`)}
	return m
}

func junitOf(w io.Writer, m Measurement) error { return JUnit(w, Cell{Run: m}) }

// plainText aligns columns with the standard library; the program's own printer has separate tests.
func plainText(w io.Writer, m Measurement) error {
	return m.Page().Text(w, func(rows [][]string) string {
		var b strings.Builder
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range rows {
			fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
		}
		_ = t.Flush() // a Builder accepts everything
		return b.String()
	})
}

func TestRenderings(t *testing.T) {
	m := rendered()
	for name, render := range map[string]func(io.Writer, Measurement) error{
		"report.txt": plainText, "report.xml": junitOf, "report.json": WriteJSON,
	} {
		var b, again bytes.Buffer
		if err := errors.Join(render(&b, m), render(&again, m)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), again.Bytes()) {
			t.Errorf("%s comes out otherwise the second time", name)
		}
		path := filepath.Join("testdata", "render", name)
		if *update {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b.Bytes(), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s (run with -update): %s", name, diff)
		}
	}
}

// A model's text creates no line.
func TestTextEscapes(t *testing.T) {
	m := rendered()
	m.Cases[5].ID += hostileWords
	var b bytes.Buffer
	if err := plainText(&b, m); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "alert(1)") {
		t.Fatal("the text does not show the judge's words")
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(strings.TrimSpace(line), "second line") {
			t.Error(line)
		}
	}
}

func TestJUnitIsXML(t *testing.T) {
	var b bytes.Buffer
	if err := junitOf(&b, rendered()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
		Suites   []struct {
			Tests int        `xml:"tests,attr"`
			Cases []struct{} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	// By hand: 20 cases, one without an outcome; wrong are 1+1 (approved), 1+1+... see
	// hand(): approve got 1 reject and 1 escalate; reject got 1 approve and 1 escalate;
	// escalate got 1 approve and 2 reject. One gate of two fails.
	if got.Tests != 23 || got.Errors != 1 || got.Skipped != 2 || got.Failures != 6 {
		t.Errorf("%d tests, %d failures, %d errors, %d skipped", got.Tests, got.Failures, got.Errors, got.Skipped)
	}
	if len(got.Suites) != 2 || got.Suites[0].Tests != 3 || len(got.Suites[0].Cases) != 3 || got.Suites[1].Tests != 20 || len(got.Suites[1].Cases) != 20 {
		t.Errorf("suites: %+v", got.Suites)
	}
	// A full disk is reported.
	if err := junitOf(failing{}, rendered()); err == nil {
		t.Error("no error although nothing was written")
	}
}

func TestMeasurementIsReadBack(t *testing.T) {
	m := rendered()
	var b bytes.Buffer
	if err := WriteJSON(&b, m); err != nil {
		t.Fatal(err)
	}
	got, err := ReadMeasurement(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	m.Format = MeasurementFormat
	if diff := cmp.Diff(m.Results, got.Results); diff != "" {
		t.Error(diff)
	}
	var first, second bytes.Buffer
	if err := errors.Join(plainText(&first, m), plainText(&second, got)); err != nil || first.String() != second.String() {
		t.Errorf("the report is another one: %v\n%s", err, cmp.Diff(first.String(), second.String()))
	}
	for _, bad := range []string{"", "[]", "{}", `{"format":"gavel-eval-9"}`} {
		if _, err := ReadMeasurement(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// failing is a writer on a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }
