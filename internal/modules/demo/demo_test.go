package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/testdata"
)

// TestDemoFailureIsReported checks that the failure and the server's output are printed.
func TestDemoFailureIsReported(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	tr := &transcript{show: term.New(&out)}
	code := term.New(&errs).PrintError(tr.fail(fmt.Errorf("step 3: state is %q", "x"), "level=ERROR msg=boom\x1b[2J\n"))
	if code != term.ExitBad {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"the demo failed", "step 3", "the server wrote:", "boom"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q is missing: %s", want, errs.String())
		}
	}
	if strings.Contains(errs.String(), "\x1b") {
		t.Error("the server's escape sequence got through")
	}
}

// TestDemoPlaysTheExample checks that the demo's workflow equals the example in the documentation.
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

// The demo leaves nothing behind, even if it keeps the store elsewhere.
func TestDemoEvidenceCleansUp(t *testing.T) {
	t.Parallel()
	w, err := OpenWorkshop()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []Mood{Fixed, Gone, Hanging, Gone, Broken, Broken} {
		if err := w.Become(to); err != nil {
			t.Errorf("become %s: %v", to, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(w.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", w.Dir, err)
	}
}

func TestDemoTests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, shop string
		code       int
		want       []string
	}{
		{"broken", shops[Broken], 1, []string{"--- PASS: TestPrice", "--- FAIL: TestTotal: total is 20, want 18", "FAIL\n"}},
		{"fixed", shops[Fixed], 0, []string{"--- PASS: TestPrice", "--- PASS: TestTotal", "PASS\n"}},
		{"hanging", shops[Hanging], 1, []string{"=== RUN   TestTotal"}},
		{"empty", "", 1, []string{"--- FAIL: TestPrice"}},
		{"none", "-", 2, []string{"no project"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), projectFile)
			if c.shop != "-" {
				if err := os.WriteFile(file, []byte(c.shop), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // a hanging test ends immediately
			var out bytes.Buffer
			if code := runTests(ctx, file, &out); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing:\n%s", want, out.String())
				}
			}
		})
	}
}

// pages answers with the pages of a history in turn.
type pages []string

func (p *pages) call(_ context.Context, tool string, arguments map[string]any) (answer, error) {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return answer{}, err
	}
	a, err := newAnswer(Exchange{Tool: tool, Arguments: raw, Answer: json.RawMessage((*p)[0])})
	*p = (*p)[1:]
	return a, err
}

// A history in several pages is read as one.
func TestHistoryIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	agent := pages{
		`{"decisions":[{"outcome":"approve"}],"nextAfter":1}`, `{"decisions":[],"nextAfter":3}`, `{"decisions":[{"action":"submit","outcome":"reject"}]}`,
	}
	a, err := callWhole(t.Context(), &agent, "workflow.judge.history", map[string]any{"id": "wf-1"})
	if err != nil || recorded("start approve", "submit reject")(a) != nil || len(agent) != 0 || string(a.Arguments) != `{"afterSeq":3,"id":"wf-1"}` {
		t.Errorf("%s %s, %v, %d pages are left", a.Arguments, a.Answer, err, len(agent))
	}
}
