package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

var (
	// TestedChange is the workflow of the evidence demo.
	//
	//go:embed tested-change.yaml
	TestedChange []byte
	// TestedChangeSources declares its evidence source.
	//
	//go:embed tested-change-sources.yaml
	TestedChangeSources []byte
)

// evidencePlay is the demo of evidence.
var evidencePlay = play{
	headline: "An agent claims that all tests pass, and gavel runs them before it believes that.",
	acts: []act{
		{"First act: the agent's word against what the gate sees.", claimScenes},
		{"Second act: the tests cannot be run. Without required evidence nothing is approved.", missingScenes},
	},
}

// The agent's claims.
var (
	claim       = map[string]any{"summary": "The discount is in, and all tests pass."}
	firmerClaim = map[string]any{
		"summary":  "I ran the whole suite twice: 2 of 2 green, exit code 0.",
		"evidence": map[string]any{"tests": map[string]any{"exitCode": 0, "output": "PASS"}},
	}
)

// claimScenes are the first act.
var claimScenes = []scene{
	startChange("It starts a change. The workflow and the source of evidence are the operator's."),
	{
		say: "It claims that all tests pass. The gate runs them.", tool: "workflow.advance", mood: Broken,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: rejectFailingTests,
	},
	{
		say: "It claims it in other words, and brings evidence of its own. The gate runs the tests.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("finish", firmerClaim) },
		must: rejectFailingTests,
	},
	{
		say: "It mends the file, and claims what it claimed at first. The gate runs the tests.", tool: "workflow.advance", mood: Mended,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: func(_ *memory, a answer) error {
			return firstOf(mustMove(a, "done", true), mustEqual("assurance", a.text("decision", "assurance"), "validators"), mustFetch(a, ""))
		},
	},
	{
		say: "What was fetched, when, and how long it took is on record.", tool: "workflow.judge.history",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance} },
		must: func(_ *memory, a answer) error {
			return firstOf(mustRecord(a, "start approve", "finish reject", "finish reject", "finish approve"),
				checkEvidenceHistory(a, "", "", ""))
		},
	},
}

// missingScenes are the second act.
var missingScenes = []scene{
	startChange("A second change."),
	{
		say: "The agent's code makes the tests hang. The gate stops them after three seconds.", tool: "workflow.advance", mood: Hanging,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: func(_ *memory, a answer) error { return rejectWithout(a, judge.FailureTimeout) },
	},
	{
		say: "The program that runs the tests is gone.", tool: "workflow.advance", mood: Gone,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: func(_ *memory, a answer) error { return rejectWithout(a, judge.FailureUnavailable) },
	},
	{
		say: "It is back, and the code is mended.", tool: "workflow.advance", mood: Mended,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: func(_ *memory, a answer) error { return firstOf(mustMove(a, "done", true), mustFetch(a, "")) },
	},
	{
		say: "All of it is on record.", tool: "workflow.judge.history",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance} },
		must: func(_ *memory, a answer) error {
			return firstOf(mustRecord(a, "start approve", "finish reject", "finish reject", "finish approve"),
				checkEvidenceHistory(a, judge.FailureTimeout, judge.FailureUnavailable, ""))
		},
	},
}

func startChange(say string) scene {
	return scene{
		say: say, tool: "workflow.start",
		args: func(*memory) map[string]any { return map[string]any{"type": "tested-change"} },
		must: func(m *memory, a answer) error {
			m.instance = a.text("id")
			return firstOf(mustPass(a), mustBegin("id", m.instance, "wf-"), mustEqual("state", a.text("state"), "working"))
		},
	}
}

// rejectFailingTests is a refusal that names the test that fails.
func rejectFailingTests(_ *memory, a answer) error {
	return firstOf(mustReject(a, "working", "script"), mustName(a, "TestTotal", "total is 20, want 18"), mustFetch(a, ""))
}

// rejectWithout is a refusal because the evidence could not be had.
func rejectWithout(a answer, why judge.EvidenceFailure) error {
	return firstOf(mustReject(a, "working", "evidence"), mustEqual("code", a.text("decision", "code"), judge.CodeEvidenceMissing),
		mustName(a, string(why)), mustFetch(a, why))
}

// mustFetch checks that a decision says what was fetched: the tests, with this failure.
func mustFetch(a answer, failure judge.EvidenceFailure) error {
	entries, _ := a.at("decision", "evidence").([]any)
	return checkEvidence(entries, failure)
}

func checkEvidence(entries []any, failure judge.EvidenceFailure) error {
	if len(entries) != 1 {
		return fmt.Errorf("%d pieces of evidence are told, and one was fetched", len(entries))
	}
	entry, _ := entries[0].(map[string]any)
	text := func(key string) string { s, _ := entry[key].(string); return s }
	took, told := entry["tookNs"].(float64)
	size, _ := entry["size"].(float64)
	if !told || took < 0 || text("at") == "" || (size > 0) != (failure == "") {
		return fmt.Errorf("when it was fetched, how long that took or its size is not told: %v", entry)
	}
	return firstOf(mustEqual("the evidence", text("name"), "tests"), mustEqual("its failure", text("failure"), string(failure)))
}

// checkEvidenceHistory checks what was fetched for each decision of a history but the start.
func checkEvidenceHistory(a answer, want ...judge.EvidenceFailure) error {
	decisions, _ := a.at("decisions").([]any)
	if len(decisions) != len(want)+1 {
		return fmt.Errorf("%d decisions, want %d", len(decisions), len(want)+1)
	}
	for i, failure := range want {
		entry, _ := decisions[i+1].(map[string]any)
		entries, _ := entry["evidence"].([]any)
		if err := checkEvidence(entries, failure); err != nil {
			return fmt.Errorf("decision %d: %w", i+2, err)
		}
	}
	return nil
}

// Workshop is what the demo of evidence works with: a folder with a project, the
// program that runs its tests, and the operator's two files beside them.
type Workshop struct{ Dir string }

// The moods of the project. All but gone put the program in its place.
const (
	Broken  Mood = "broken"  // a test fails
	Mended  Mood = "mended"  // all pass
	Hanging Mood = "hanging" // a test does not end
	Gone    Mood = "gone"    // the program that runs the tests is not there
)

// ProjectFile is the project. What total should be is the tests' affair.
const ProjectFile = "shop.cfg"

var shops = map[Mood]string{
	Broken:  "price = 20\ndiscount = 2\ntotal = 20\n",
	Mended:  "price = 20\ndiscount = 2\ntotal = 18\n",
	Hanging: "price = 20\ndiscount = 2\ntotal = for ever\n",
}

// OpenWorkshop makes the folder.
func OpenWorkshop() (*Workshop, error) {
	dir, err := os.MkdirTemp("", "gavel-demo-")
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot make a folder for the demo: %w", err)
	}
	w := &Workshop{Dir: dir}
	for _, folder := range []string{"project", "tools", "flows"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, folder), 0o700))
	}
	err = errors.Join(err, w.write("gavel.yaml", TestedChangeSources), w.write("flows/tested-change.yaml", TestedChange), w.Become(Broken))
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot prepare the demo: %w", errors.Join(err, w.Close()))
	}
	return w, nil
}

func (w *Workshop) settings() (arguments, environment []string) {
	return []string{"--config", filepath.Join(w.Dir, "gavel.yaml"), "--definitions", filepath.Join(w.Dir, "flows")}, nil
}

// Close removes the workshop's folder.
func (w *Workshop) Close() error { return os.RemoveAll(w.Dir) }

func (w *Workshop) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(w.Dir, filepath.FromSlash(name)), content, 0o600)
}

// Become sets what the next fetches find.
func (w *Workshop) Become(to Mood) error {
	tool := filepath.Join(w.Dir, "tools", "gavel")
	if runtime.GOOS == "windows" {
		tool += ".exe"
	}
	if to == Gone {
		return os.Remove(tool)
	}
	if err := placeProgram(tool); err != nil {
		return fmt.Errorf("put the program that runs the tests in its place: %w", err)
	}
	return w.write("project/"+ProjectFile, []byte(shops[to]))
}

// placeProgram makes this very program available under another path, unless it is.
func placeProgram(path string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	err = os.Symlink(program, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return copyFile(program, path) // where links need a right of their own
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700) //nolint:gosec // a program, and ours to run
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// TestsCommand makes this program the one that runs the tests of the demo's
// project. It has no page in the reference: nobody else has a use for it.
const TestsCommand = "__demo-tests"

// testsTimeout ends tests that hang where nobody stops them.
const testsTimeout = time.Minute

// RunTests tests the project in a file. It writes what test runners write, and its
// exit code says what came of it.
func RunTests(ctx context.Context, file string, out io.Writer) (code int) {
	ctx, cancel := context.WithTimeout(ctx, testsTimeout)
	defer cancel()
	text, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(out, "no project:", err)
		return 2
	}
	shop := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, "="); ok {
			shop[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	number := func(key string) int { n, _ := strconv.Atoi(shop[key]); return n } //nolint:errcheck // then it is 0
	for _, test := range []struct {
		name, problem string
	}{
		{"TestPrice", problemUnless(number("price") > 0, "the price is %d, want more than 0", number("price"))},
		{"TestTotal", problemUnless(number("total") == number("price")-number("discount"), "total is %d, want %d", number("total"), number("price")-number("discount"))},
	} {
		fmt.Fprintf(out, "=== RUN   %s\n", test.name)
		if test.name == "TestTotal" && shop["total"] == "for ever" {
			<-ctx.Done()
		}
		if test.problem == "" {
			fmt.Fprintf(out, "--- PASS: %s\n", test.name)
			continue
		}
		fmt.Fprintf(out, "--- FAIL: %s: %s\n", test.name, test.problem)
		code = 1
	}
	fmt.Fprintln(out, map[int]string{0: "PASS", 1: "FAIL"}[code])
	return code
}

func problemUnless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}
