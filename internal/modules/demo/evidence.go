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

	"github.com/gavel-mcp/gavel/internal/term"
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

var evidencePlay = play{
	needs:    []string{"evidence"},
	headline: "An agent claims that all tests pass, and gavel runs them before it believes it.",
	acts: []act{
		{"First act: the agent's claim against the gate's own test run.", claimScenes},
		{"Second act: the tests cannot be run. Without required evidence nothing is approved.", missingScenes},
	},
}

var (
	claim       = map[string]any{"summary": "The discount is in, and all tests pass."}
	firmerClaim = map[string]any{
		"summary":  "I ran the whole suite twice: 2 of 2 green, exit code 0.",
		"evidence": map[string]any{"tests": map[string]any{"exitCode": 0, "output": "PASS"}},
	}
)

var claimScenes = []scene{
	start("It starts a change. The workflow and the source of evidence are the operator's.", "tested-change", "working"),
	advance("It claims that all tests pass. The gate runs them.", "finish", claim, failingTests).in(Broken),
	advance("It claims the same in other words, with its own evidence. The gate runs the tests.", "finish", firmerClaim, failingTests),
	advance("It fixes the file, and repeats its first claim. The gate runs the tests.", "finish", claim,
		moved("done", true), is("decision.assurance", "validators"), fetched("")).in(Fixed),
	history("The evidence is on record, with the time and duration of each fetch.",
		recorded("start approve", "finish reject", "finish reject", "finish approve"), recordedEvidence("", "", "")),
}

var missingScenes = []scene{
	start("A second change.", "tested-change", "working"),
	advance("The agent's code makes the tests hang. The gate stops them after three seconds.", "finish", claim, withoutTests(judge.FailureTimeout)).in(Hanging),
	advance("The program that runs the tests is gone.", "finish", claim, withoutTests(judge.FailureUnavailable)).in(Gone),
	advance("It is back, and the code is fixed.", "finish", claim, moved("done", true), fetched("")).in(Fixed),
	history("Everything is on record.",
		recorded("start approve", "finish reject", "finish reject", "finish approve"), recordedEvidence(judge.FailureTimeout, judge.FailureUnavailable, "")),
}

// failingTests checks a refusal that names the failing test.
var failingTests = all(rejected("working", "script", "TestTotal", "total is 20, want 18"), fetched(""))

func withoutTests(why judge.EvidenceFailure) check {
	return all(rejected("working", "evidence", string(why)), is("decision.code", judge.CodeEvidenceMissing), fetched(why))
}

// fetched checks that a decision lists the fetched evidence: the tests, with this failure.
func fetched(failure judge.EvidenceFailure) check {
	return func(a answer) error {
		entries, _ := a.at("decision", "evidence").([]any)
		return checkEvidence(entries, failure)
	}
}

func checkEvidence(entries []any, failure judge.EvidenceFailure) error {
	if len(entries) != 1 {
		return fmt.Errorf("%d pieces of evidence, and one was fetched", len(entries))
	}
	fields, _ := entries[0].(map[string]any)
	entry := answer{fields: fields}
	took, timed := entry.at("tookMs").(float64)
	size, _ := entry.at("size").(float64)
	if !timed || took < 0 || entry.text("at") == "" || (size > 0) != (failure == "") || entry.text("name") != "tests" || entry.text("failure") != string(failure) {
		return fmt.Errorf("not the evidence %q with the failure %q, its time and its size: %v", "tests", failure, fields)
	}
	return nil
}

// recordedEvidence checks the evidence of each decision of a history except the start.
func recordedEvidence(want ...judge.EvidenceFailure) check {
	return func(a answer) error {
		decisions, _ := a.at("decisions").([]any)
		if len(decisions) != len(want)+1 {
			return fmt.Errorf("%d decisions, want %d", len(decisions), len(want)+1)
		}
		for i, failure := range want {
			fields, _ := decisions[i+1].(map[string]any)
			entries, _ := fields["evidence"].([]any)
			if err := checkEvidence(entries, failure); err != nil {
				return fmt.Errorf("decision %d: %w", i+2, err)
			}
		}
		return nil
	}
}

// Workshop is the environment of the evidence demo: a folder with a project, the program that runs its tests, and the
// operator's two files.
type Workshop struct{ Dir string }

// The moods of the project. All except Gone install the test program.
const (
	Broken  Mood = "broken"  // a test fails
	Fixed   Mood = "fixed"   // all tests pass
	Hanging Mood = "hanging" // a test does not end
	Gone    Mood = "gone"    // the program that runs the tests does not exist
)

// projectFile is the project. The tests determine the right value of total.
const projectFile = "shop.cfg"

var shops = map[Mood]string{
	Broken:  "price = 20\ndiscount = 2\ntotal = 20\n",
	Fixed:   "price = 20\ndiscount = 2\ntotal = 18\n",
	Hanging: "price = 20\ndiscount = 2\ntotal = forever\n",
}

// OpenWorkshop creates the folder for the evidence demo.
func OpenWorkshop() (*Workshop, error) {
	dir, err := os.MkdirTemp("", "gavel-demo-")
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot make a folder for the demo: %w", err)
	}
	w := &Workshop{Dir: dir}
	err = errors.Join(w.makeFolders("project", "tools", "flows"),
		w.write("gavel.yaml", TestedChangeSources), w.write("flows/tested-change.yaml", TestedChange), w.Become(Broken))
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot prepare the demo: %w", errors.Join(err, w.Close()))
	}
	return w, nil
}

func (w *Workshop) settings() (arguments, environment []string) {
	return []string{"--no-reviews", "--config", w.path("gavel.yaml"), "--definitions", w.path("flows")}, nil
}

// Close removes the workshop's folder.
func (w *Workshop) Close() error { return os.RemoveAll(w.Dir) }

func (w *Workshop) folder() string { return w.Dir }

func (w *Workshop) path(name string) string { return filepath.Join(w.Dir, filepath.FromSlash(name)) }

func (w *Workshop) makeFolders(names ...string) (err error) {
	for _, name := range names {
		err = errors.Join(err, os.Mkdir(w.path(name), 0o700))
	}
	return err
}

func (w *Workshop) write(name string, content []byte) error {
	return os.WriteFile(w.path(name), content, 0o600)
}

// tool returns the path of this program that the operator's files use.
func (w *Workshop) tool() string {
	if runtime.GOOS == "windows" {
		return w.path("tools/gavel.exe")
	}
	return w.path("tools/gavel")
}

// Become sets the result of the next fetches.
func (w *Workshop) Become(to Mood) error {
	if to == Gone {
		return os.Remove(w.tool())
	}
	if err := placeProgram(w.tool()); err != nil {
		return fmt.Errorf("put the program that runs the tests in its place: %w", err)
	}
	return w.write("project/"+projectFile, []byte(shops[to]))
}

// placeProgram makes this very program available under another path, unless it already is.
func placeProgram(path string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err = os.Symlink(program, path); err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	binary, err := os.ReadFile(program) // if creating links requires a special right
	if err != nil {
		return err
	}
	return os.WriteFile(path, binary, 0o700) //nolint:gosec // a program, and ours to run
}

// testsCommand makes this program run the tests of the demo's project. It is not in the reference, because it has no
// other use.
const testsCommand = "__demo-tests"

// testsTimeout ends tests that hang and that nothing else stops.
const testsTimeout = time.Minute

// runTests tests the project in a file. Its output looks like that of a test runner, and its exit code is the result.
func runTests(ctx context.Context, file string, out io.Writer) (code int) {
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
	end := func(test string, ok bool, problem string, args ...any) {
		if ok {
			fmt.Fprintf(out, "--- PASS: %s\n", test)
			return
		}
		fmt.Fprintf(out, "--- FAIL: %s: %s\n", test, fmt.Sprintf(problem, args...))
		code = 1
	}
	fmt.Fprintln(out, "=== RUN   TestPrice")
	end("TestPrice", number("price") > 0, "the price is %d, want more than 0", number("price"))
	fmt.Fprintln(out, "=== RUN   TestTotal")
	if shop["total"] == "forever" {
		<-ctx.Done()
	}
	want := number("price") - number("discount")
	end("TestTotal", number("total") == want, "total is %d, want %d", number("total"), want)
	fmt.Fprintln(out, map[int]string{0: "PASS", 1: "FAIL"}[code])
	return code
}
