package script_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// TestDocs runs the examples of the page on writing validators: each block of code with the cases in the block
// after it.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "writing-validators.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```(js|condition)\n(.*?)```\n\n```json\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if blocks := regexp.MustCompile("(?m)^```(js|condition)$").FindAllString(string(page), -1); len(examples) != len(blocks) || len(blocks) < 10 {
		t.Fatalf("%d blocks of code, %d with cases", len(blocks), len(examples))
	}
	p := newPool(t, script.Config{Soft: 500 * time.Millisecond, Hard: 2 * time.Second, Total: 5 * time.Second}) // long limits, for a busy machine
	for _, example := range examples {
		kind := script.Validator
		if example[1] == "condition" {
			kind = script.Condition
		}
		cases, err := script.ReadCases([]byte(example[3]), nil)
		if err != nil {
			t.Errorf("%s: %v", example[2], err)
			continue
		}
		for i := range cases {
			cases[i].Kind, cases[i].Source = kind, example[2]
		}
		_, err = p.RunCases(context.Background(), cases, func(r script.CaseReport) {
			if !r.Pass {
				t.Errorf("%s\n%s", example[2], r.Miss)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestReadCases(t *testing.T) {
	for name, raw := range map[string]string{
		"not JSON": `[`, "no list": `{}`, "unknown field": `[{"sorce":"x"}]`, "text behind": `[] []`,
		"unknown ending": `[{"must":"perhaps"}]`, "half a part": `[{"parts":[["x"]]}]`, "part of a giant": `[{"parts":[["x",9999999999]]}]`,
		"giants together": `[{"parts":[["x",200000000],["x",200000000]]}]`, "negative": `[{"parts":[["x",-1]]}]`,
		"file and source": `[{"file":"a","source":"b"}]`, "file that is not there": `[{"file":"missing.js"}]`,
	} {
		if cases, err := script.ReadCases([]byte(raw), os.ReadFile); err == nil {
			t.Errorf("%s: %+v", name, cases)
		}
	}
	if _, err := script.ReadCases([]byte(`[{"file":"a.js"}]`), nil); err == nil {
		t.Error("a file without a way to open it")
	}
	cases, err := script.ReadCases([]byte(`[{"file":"a.js"},{"parts":[["ab",2],["c",1]],"must":"error|timeout"},{"schema":{"type":"object"}},{"kind":"condition","source":"true"}]`),
		func(name string) ([]byte, error) { return []byte("content of " + name), nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"content of a.js", "ababc", `{"type":"object"}`, "true"} {
		if got := cases[i].Text(); got != want {
			t.Errorf("case %d: %q, want %q", i, got, want)
		}
	}
	if cases[0].Kind != script.Validator || cases[2].Kind != script.Schema || cases[0].Must != "ok" {
		t.Errorf("%+v", cases)
	}
	if raw, err := json.Marshal(cases[1].Parts); err != nil || string(raw) != `[["ab",2],["c",1]]` {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestCasesThatMiss: a table test must be able to fail.
func TestCasesThatMiss(t *testing.T) {
	cases, err := script.ReadCases([]byte(`[
		{"name":"right","source":"() => true","expect":{"valid":true,"confidence":1}},
		{"name":"ending","source":"() => true","must":"error|timeout"},
		{"name":"verdict","source":"() => true","expect":{"valid":false}},
		{"name":"confidence","source":"() => true","expect":{"confidence":0.5}},
		{"name":"reason","source":"() => ({valid:false,reason:'a'})","expect":{"reason":"b"}},
		{"name":"then","source":"() => true","then":"() => ({valid:false,reason:'after'})"},
		{"name":"schema","schema":{"required":["a"]},"expect":{"valid":true}}
	]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(t, script.Config{})
	sum, err := p.RunCases(context.Background(), cases, func(r script.CaseReport) {
		if r.Pass != (r.Name == "right") || r.Pass != (r.Miss == "") {
			t.Errorf("%+v", r)
		}
	})
	if err != nil || sum.Passed != 1 || sum.Failed != 6 {
		t.Errorf("%+v, %v", sum, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.RunCases(ctx, cases, nil); err == nil {
		t.Error("cancelled, and no error")
	}
}
