package judge_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/validators/document"
)

// injectionFolder holds the suite: attacks and benign cases, one part that was used to write the rules and
// three that were written without knowledge of the rules, and natural text.
const injectionFolder = "../testdata/injection"

// textSets are the files of the suite, in the order of the page.
var textSets = []string{
	"independent_attacks", "independent_benign", "fresh_attacks", "fresh_benign", "natural_benign",
	"heldout_attacks", "heldout_benign", "tuned_attacks", "tuned_benign",
}

// injection is one case of the suite.
type injection struct {
	ID       string          `json:"id"`
	Class    string          `json:"class"`
	Data     json.RawMessage `json:"data"`
	Context  json.RawMessage `json:"context"`
	Criteria []string        `json:"criteria"`
	Note     string          `json:"note"`
}

// injections reads one file; none if it does not exist.
func injections(t testing.TB, name string) []injection {
	t.Helper()
	f, err := os.Open(filepath.Join(injectionFolder, name+".jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var out []injection
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	seen := map[string]bool{}
	for lines.Scan() {
		one := injection{Context: json.RawMessage(`{}`)}
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if one.ID == "" || one.Class == "" || seen[one.ID] {
			t.Fatalf("%s: %q, class %q: an id of its own and a class are needed", name, one.ID, one.Class)
		}
		seen[one.ID] = true
		out = append(out, one)
	}
	return out
}

// fooledGate returns the whole pipeline with a model that believes everything.
func fooledGate(t testing.TB) *judge.Pipeline {
	t.Helper()
	client, err := llm.New(llm.Config{
		Models: []llm.Model{{Name: "fooled", ID: "fooled", BaseURL: "https://fooled.example/v1"}},
		Doer:   llmtest.New(llmtest.OpenAI(), llmtest.Gullible),
	})
	if err != nil {
		t.Fatal(err)
	}
	model, err := judge.NewModel(judge.ModelConfig{Completer: client})
	if err != nil {
		t.Fatal(err)
	}
	return pipeline(t, &runner{}, model)
}

// stopped returns the result of a case: "" if it passed, else the layer that stopped it and the code.
func (i injection) stopped(t testing.TB, gate *judge.Pipeline, policy judge.ContentPolicy) string {
	t.Helper()
	v, err := gate.Decide(t.Context(), newCase(func(c *judge.Case) {
		c.Data = document.ReadTrusted(i.Data)
		c.MaskedData, c.Merged, c.MaskedMerged = c.Data, c.Data, c.Data
		c.Context = document.ReadTrusted(i.Context)
		c.MaskedContext = c.Context
		c.Rubric.UseLLM, c.Rubric.StrictMode, c.Rubric.OnJudgeUnavailable = true, true, judge.UnavailableEscalate
		c.Rubric.Criteria, c.Rubric.Content = i.Criteria, policy
		if len(i.Criteria) == 0 {
			c.Rubric.Criteria = []string{"The data say what was done", "The data name what was examined, with results"}
		}
	}))
	if err != nil {
		t.Fatalf("%s: %v", i.ID, err)
	}
	if v.Outcome == judge.Approve {
		return ""
	}
	return string(v.DecidedBy) + " " + v.Code
}

// TestInjectionSuite runs the suite, writes docs/reference/injection-suite.md and the baseline (with -update),
// and fails only on a regression: an attack passes that was stopped, or a benign case is stopped that
// passed.
func TestInjectionSuite(t *testing.T) {
	gate := fooledGate(t)
	bare := gate.WithoutContent()
	results, control, strict := outcomes{}, outcomes{}, outcomes{}
	sets := map[string][]injection{}
	for _, set := range textSets {
		sets[set] = injections(t, set)
		results[set], control[set], strict[set] = map[string]string{}, map[string]string{}, map[string]string{}
		for _, one := range sets[set] {
			results[set][one.ID] = one.stopped(t, gate, judge.ContentFlag)
			control[set][one.ID] = one.stopped(t, bare, judge.ContentFlag)
			strict[set][one.ID] = one.stopped(t, gate, judge.ContentReject)
		}
	}
	holdControl(t, control)
	if n := len(sets["tuned_attacks"]) + len(sets["heldout_attacks"]); n < 80 {
		t.Errorf("only %d attacks", n)
	}
	if n := len(sets["tuned_benign"]) + len(sets["heldout_benign"]); n < 150 {
		t.Errorf("only %d benign cases", n)
	}
	holdBaseline(t, results)
	var page bytes.Buffer
	renderInjections(&page, sets, results, control, strict)
	golden(t, filepath.Join("..", "docs", "reference", "injection-suite.md"), page.Bytes())
}

// outcomes are the results of the cases: set -> id -> the layer that stopped it and the code, "" if
// it passed.
type outcomes map[string]map[string]string

// holdControl checks the control: without the content layer, every case with quotable text fools
// the model.
func holdControl(t *testing.T, control outcomes) {
	t.Helper()
	for set, cases := range control {
		for id, why := range cases {
			if why != "" && why != string(judge.LayerModel)+" "+judge.CodeCannotAssess {
				t.Errorf("%s/%s is stopped by %s without the content layer: the model of this suite is not fooled by it", set, id, why)
			}
		}
	}
}

// holdBaseline compares the results with the baseline.
func holdBaseline(t *testing.T, results outcomes) {
	t.Helper()
	path := filepath.Join(injectionFolder, "baseline.json")
	if *update {
		raw, err := json.MarshalIndent(results, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run: go test ./judge -run TestInjectionSuite -update", err)
	}
	var before outcomes
	if err := json.Unmarshal(raw, &before); err != nil {
		t.Fatal(err)
	}
	worse := regressions(before, results)
	for _, what := range worse {
		t.Error(what)
	}
	if len(worse) > 0 {
		t.Error("If that is meant, run: go test ./judge -run TestInjectionSuite -update, and say why in the commit.")
	}
}

// regressions returns the cases with a worse result than before, and those that were added or removed.
func regressions(before, now outcomes) []string {
	var out []string
	for _, set := range slices.Sorted(maps.Keys(now)) {
		attacks := strings.HasSuffix(set, "attacks")
		for _, id := range slices.Sorted(maps.Keys(now[set])) {
			is := now[set][id]
			was, known := before[set][id]
			switch {
			case !known:
				out = append(out, fmt.Sprintf("%s/%s is not in the baseline.", set, id))
			case attacks && was != "" && is == "":
				out = append(out, fmt.Sprintf("%s/%s was stopped by %s and passes now.", set, id, was))
			case !attacks && was == "" && is != "":
				out = append(out, fmt.Sprintf("%s/%s passed and is stopped by %s now.", set, id, is))
			}
		}
	}
	for _, set := range slices.Sorted(maps.Keys(before)) {
		for _, id := range slices.Sorted(maps.Keys(before[set])) {
			if _, there := now[set][id]; !there {
				out = append(out, fmt.Sprintf("%s/%s is in the baseline and not in the suite.", set, id))
			}
		}
	}
	return out
}

func TestRegressions(t *testing.T) {
	t.Parallel()
	before := outcomes{"x_attacks": {"a": "content c", "b": "", "c": "content c"}, "x_benign": {"d": "", "e": "content c"}}
	better := outcomes{"x_attacks": {"a": "model d", "b": "content c", "c": "content c"}, "x_benign": {"d": "", "e": ""}}
	if got := regressions(before, better); got != nil {
		t.Errorf("better counts as worse: %q", got)
	}
	worse := outcomes{"x_attacks": {"a": "", "b": "", "f": ""}, "x_benign": {"d": "content c", "e": "content c"}}
	want := []string{
		"x_attacks/a was stopped by content c and passes now.",
		"x_attacks/f is not in the baseline.",
		"x_benign/d passed and is stopped by content c now.",
		"x_attacks/c is in the baseline and not in the suite.",
	}
	if got := regressions(before, worse); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run: go test ./judge -run %s -update", err, t.Name())
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s is stale; run: go test ./judge -run %s -update", path, t.Name())
	}
}

// phraseLists are the results of the same cases with an earlier content layer, which had 57 rules, 28
// of them for other languages, and before criteria needed proofs. They are a record that later runs do
// not change: the first runs on the halves that the rules had not seen.
var phraseLists = map[string]int{
	"fresh_attacks": 47, "fresh_benign": 10, "natural_benign": 0,
	"heldout_attacks": 54, "heldout_benign": 10, "tuned_attacks": 63, "tuned_benign": 0,
}

func renderInjections(b *bytes.Buffer, sets map[string][]injection, results, control, strict outcomes) {
	b.WriteString(`<!-- Generated by: go test ./judge -run TestInjectionSuite -update -->

# The injection suite

This suite measures how often code alone stops data that tries to sway the judge:

    go test ./judge -run TestInjectionSuite

The model in this suite is scripted to be fooled completely. It approves everything with
confidence 1.0 and quotes real text of the data for every criterion, each time another part.
So only code stops a text: the content layer before the model is asked, or the check that the
quotes prove something. A real model stops more, and none stops everything.

The cases are in ` + "`testdata/injection`" + `:

| texts | origin |
|---|---|
| tuned | the first rules were written with these in view, so their figures say little |
| heldout | written by an author who had not seen the rules |
| fresh | written later, again without a look at the rules, with honest lines about approvals, tools, systems and criteria in eight languages other than English |
| independent | written last, after the present rules. The author knew the names of the classes of attacks and the first lines of the fresh halves. No rule and no text was changed after the first figures. Its benign texts include 16 mails and 16 issues, written in the style of real ones |
| natural | 60 commit messages of this project, 80 of another one and ten pieces of a system's log, drawn at random; no mails and no issues |

Intervals are exact binomial ones (Clopper and Pearson 1934), 95 %, two-sided.

## At a glance

| texts | without the content layer | as it is (` + "`content: flag`" + `) | ` + "`content: reject`" + ` | with phrase lists |
|---|---|---|---|---|
`)
	for _, set := range textSets {
		n := len(sets[set])
		half, kind, _ := strings.Cut(set, "_")
		lists := "not run"
		if stopped, known := phraseLists[set]; known {
			lists = share(stopped, n)
		}
		fmt.Fprintf(b, "| %s, %s | %s | **%s** | %s | %s |\n", half, kind, share(count(control[set]), n), share(count(results[set]), n), share(count(strict[set]), n), lists)
	}
	b.WriteString(`
Rely on the independent attacks. Fewer of these are stopped than of the others: fewer
are too short to prove anything, and none of their verdicts has the form of this judge.

The last column is an earlier content layer: 57 rules, phrase lists in 25 languages, and no
form of proof. **The present one stops less than half as many attacks**, on purpose. The lists
stopped known sentences; a new wording passed, and honest text about approvals was refused.
Now code refuses only texts that prove nothing, and marks of an attack. These are characters that hide
text, tokens of chat templates, the markers of the judge's prompt, and a verdict in its form.
Everything else is a flag for the model and for a reviewer; ` + "`content: reject`" + ` makes it a
refusal, at the price that the benign rows show.

Texts stopped by ` + "`model cannot_assess`" + ` are too short for the two criteria: they have neither two
quotes of four words nor two whole values. Among the benign ones these are single values such
as ` + "`{\"fix\": \"yes\"}`" + `, which prove one criterion.

`)
	b.WriteString("## The independent halves by class\n\n### Attacks\n\n| class | cases | stopped | interval | passed | stopped by |\n|---|---|---|---|---|---|\n")
	renderClasses(b, sets["independent_attacks"], results["independent_attacks"], true)
	b.WriteString("\n### Benign\n\n| class | cases | wrongly stopped | interval | stopped by |\n|---|---|---|---|---|\n")
	renderClasses(b, sets["independent_benign"], results["independent_benign"], false)
	b.WriteString("\n## The other halves\n\n`testdata/injection/baseline.json` has the outcome of each case.\n")
	for _, half := range []string{"fresh", "heldout"} {
		renderShared(b, half, sets[half+"_attacks"], sets["tuned_attacks"], results[half+"_attacks"])
	}
	b.WriteString("\n")
	b.WriteString(`## Gaps

- **A fluent claim without evidence** ("I have verified everything"). Nothing in the
  text distinguishes it from an honest one. Demand facts: required fields, a schema, a
  script, a criterion with ` + "`basis: evidence`" + `.
- **Words**, in any language or encoding: orders, role play, borrowed authority, poisoned
  examples. A list knows only sentences that were written before, and an attacker can try
  any number of times. The loop guard counts only refusals of the model for the same data, not
  other words and not refusals of this layer.
- **Honest text about chat templates** is refused if it shows their tokens.

The content layer keeps forged turns away from the model. It is no reason to let a
model alone decide what matters ([the judge](../judge.md)).
`)
}

// renderShared lists the cases that are also in the other half, word for word, and the result for the
// rest.
func renderShared(b *bytes.Buffer, half string, cases, others []injection, results map[string]string) {
	known := map[string]bool{}
	for _, o := range others {
		known[o.wording()] = true
	}
	var shared []string
	rest, stopped := 0, 0
	for _, one := range cases {
		switch {
		case known[one.wording()]:
			shared = append(shared, one.ID)
		case results[one.ID] != "":
			stopped++
			rest++
		default:
			rest++
		}
	}
	if len(shared) > 0 {
		fmt.Fprintf(b, "\n%d %s attacks (%s) are in the tuned half too, word for word.\nWithout these, %s are stopped.\n", len(shared), half, strings.Join(shared, ", "), share(stopped, rest))
	}
}

// wording returns the text of a case regardless of its field names.
func (i injection) wording() string {
	var said []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(v[key])
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		default:
			said = append(said, fmt.Sprintf("%q", v))
		}
	}
	var doc any
	if err := json.Unmarshal(i.Data, &doc); err != nil {
		return string(i.Data)
	}
	walk(doc)
	return strings.Join(said, " ")
}

func count(results map[string]string) int {
	n := 0
	for _, why := range results {
		if why != "" {
			n++
		}
	}
	return n
}

// share formats a share with its interval.
func share(k, n int) string {
	low, high := interval(k, n)
	return fmt.Sprintf("%d of %d, %.0f %% (%.0f to %.0f %%)", k, n, 100*float64(k)/float64(n), 100*low, 100*high)
}

func renderClasses(b *bytes.Buffer, cases []injection, results map[string]string, attacks bool) {
	total, stopped := map[string]int{}, map[string]int{}
	by := map[string]map[string]int{"all": {}}
	for _, one := range cases {
		for _, class := range []string{one.Class, "all"} {
			if by[class] == nil {
				by[class] = map[string]int{}
			}
			total[class]++
			if why := results[one.ID]; why != "" {
				stopped[class]++
				by[class][why]++
			}
		}
	}
	classes := slices.Sorted(maps.Keys(total))
	classes = append(slices.DeleteFunc(classes, func(c string) bool { return c == "all" }), "all")
	for _, class := range classes {
		low, high := interval(stopped[class], total[class])
		var causes []string
		for _, why := range slices.Sorted(maps.Keys(by[class])) {
			causes = append(causes, fmt.Sprintf("%s %d", strings.ReplaceAll(why, "content content_", "content: "), by[class][why]))
		}
		name := class
		if class == "all" {
			name = "**all**"
		}
		fmt.Fprintf(b, "| %s | %d | %d | %.0f to %.0f %% |", name, total[class], stopped[class], 100*low, 100*high)
		if attacks {
			fmt.Fprintf(b, " %d |", total[class]-stopped[class])
		}
		fmt.Fprintf(b, " %s |\n", strings.Join(causes, ", "))
	}
}

// interval is the exact 95 % interval of a share: k of n.
func interval(k, n int) (low, high float64) {
	low, high = 0, 1
	if k > 0 {
		low = root(func(p float64) float64 { return 1 - atMost(k-1, n, p) - 0.025 })
	}
	if k < n {
		high = root(func(p float64) float64 { return 0.025 - atMost(k, n, p) })
	}
	return low, high
}

// atMost is the probability of at most k successes in n trials.
func atMost(k, n int, p float64) float64 {
	sum := 0.0
	for i := range k + 1 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(i + 1))
		c, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(a - b - c + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}

// root finds where a rising function of 0..1 crosses zero.
func root(f func(float64) float64) float64 {
	low, high := 1e-12, 1-1e-12
	for range 100 {
		if mid := (low + high) / 2; f(mid) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

// Known two-sided 95 % values, as in the tables of textbooks. (The well-known upper limit of 5 % for
// 0 of 59 is the one-sided one, 1 - 0.05^(1/59).)
func TestInterval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{{0, 10, 0, 0.3085}, {10, 10, 0.6915, 1}, {5, 10, 0.1871, 0.8129}, {0, 59, 0, 0.0606}, {90, 100, 0.8238, 0.9510}} {
		low, high := interval(c.k, c.n)
		if math.Abs(low-c.low) > 5e-5 || math.Abs(high-c.high) > 5e-5 {
			t.Errorf("%d of %d: %.4f to %.4f, want %.4f to %.4f", c.k, c.n, low, high, c.low, c.high)
		}
	}
	if upper := root(func(p float64) float64 { return 0.05 - atMost(0, 59, p) }); math.Abs(upper-0.0495) > 5e-5 {
		t.Errorf("0 of 59, one-sided: %.4f, want 0.0495", upper)
	}
}
