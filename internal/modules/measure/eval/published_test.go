package eval

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plain is a record parsed without the adapter.
type plain struct {
	Generator string
	Gold      struct {
		Verdict    string
		Annotators []any
	}
	Judgements []struct {
		Judge, Strategy string
		Verdict         *string
	}
}

// published reads one of the public sets, or skips the test. They are outside the repository, because not all of them
// may be copied into it.
func published(t *testing.T, name string) (Foreign, []plain) {
	t.Helper()
	root := cmp.Or(os.Getenv("GAVEL_EVAL_DATA"), filepath.Join("..", "..", "..", "..", "..", "shared", "data"))
	text, err := os.ReadFile(filepath.Join(root, name, "dev.jsonl"))
	if err != nil {
		t.Skipf("the public set is not here: %v", err)
	}
	f, err := ReadForeign(bytes.NewReader(text), Dev)
	if err != nil {
		t.Fatal(err)
	}
	var all []plain
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxForeignLine)
	for lines.Scan() {
		var p plain
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return f, all
}

// shownTable is a table between two comments in testdata/published/README.md: the page shows the results of this
// test, to the last digit.
type shownTable struct {
	name string
	b    strings.Builder
}

// tableOf begins the table of a public set; its columns are separated by |.
func tableOf(name, columns string) *shownTable {
	f := &shownTable{name: name}
	f.row("%s", columns)
	f.b.WriteString("|" + strings.Repeat("---|", strings.Count(columns, "|")+1) + "\n")
	return f
}

func (f *shownTable) row(format string, values ...any) {
	fmt.Fprintf(&f.b, "| "+format+" |\n", values...)
}

// check compares the table with the page; with -update it updates the page.
func (f *shownTable) check(t *testing.T) {
	t.Helper()
	t.Logf("%s\n%s", f.name, f.b.String())
	page := filepath.Join("..", "..", "..", "..", "testdata", "published", "README.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(text), "<!-- figures: "+f.name+" -->\n")
	shown, after, closed := strings.Cut(rest, "<!-- end -->")
	switch {
	case !opened || !closed:
		t.Errorf("testdata/published/README.md has no place for the figures of %s", f.name)
	case shown == f.b.String():
	case *update:
		if err := os.WriteFile(page, []byte(before+"<!-- figures: "+f.name+" -->\n"+f.b.String()+"<!-- end -->"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("testdata/published/README.md shows other figures of %s than were computed; compare with -update\n%s", f.name, shown)
	}
}

// two is a label and an answer.
type two struct{ label, answer string }

// plainKappa computes Cohen's kappa from its definition, over pairs.
func plainKappa(pairs []two) float64 {
	same, left, right := 0.0, map[string]float64{}, map[string]float64{}
	for _, p := range pairs {
		left[p.label]++
		right[p.answer]++
		if p.label == p.answer {
			same++
		}
	}
	n, chance := float64(len(pairs)), 0.0
	for word, count := range left {
		chance += count / n * right[word] / n
	}
	return (same/n - chance) / (1 - chance)
}

// approvesOnly replaces all words except approve by the same word.
func approvesOnly(pairs []two) []two {
	short := func(word string) string {
		if word == "approve" {
			return word
		}
		return "not"
	}
	all := make([]two, len(pairs))
	for i, p := range pairs {
		all[i] = two{short(p.label), short(p.answer)}
	}
	return all
}

// pairsOf returns the pairs of a judge, with none in place of unreadable answers.
func pairsOf(all []plain, name, none string) (pairs []two) {
	for _, r := range all {
		for _, j := range r.Judgements {
			if j.Judge != name && j.Judge+"/"+j.Strategy != name {
				continue
			}
			p := two{r.Gold.Verdict, none}
			if j.Verdict != nil {
				p.answer = *j.Verdict
			}
			pairs = append(pairs, p)
		}
	}
	return pairs
}

func agreement(pairs []two) float64 {
	same := 0.0
	for _, p := range pairs {
		if p.label == p.answer {
			same++
		}
	}
	return same / float64(len(pairs))
}

// LLMBar (Zeng et al., ICLR 2024, arXiv 2310.07641): every judge and strategy, both orders of a pair. Two figures are
// also compared with values computed outside Go.
func TestLLMBar(t *testing.T) {
	f, all := published(t, "llmbar")
	known := map[string][2]float64{"GPT-4/Metrics_Reference": {0.8249, 0.6491}, "ChatGPT/CoT": {0.4329, -0.1301}, "Falcon/CoT": {0.5, 0}, "PaLM2/Vanilla_NoRules": {0.6811, 0.4087}}
	if len(f.Judges) != 14 || len(f.Cases) != len(all) {
		t.Fatalf("%d judges, %d cases", len(f.Judges), len(f.Cases))
	}
	shown := tableOf("LLMBar", "Judge/strategy | Answers | Accuracy | Kappa | its 95 % interval | Changes with the order | Unreadable")
	for _, j := range f.Judges {
		cases, results := f.ApartOf(j)
		r := Evaluate(cases, results, Options{})
		flips := Evaluate(f.CasesOf(j), j.Results, Options{}).Flips
		pairs := pairsOf(all, j.Name, "unreadable")
		if !r.Evaluated || r.Counts.Scored != len(pairs) {
			t.Fatalf("%s: %+v", j.Name, r.Counts)
		}
		near(t, j.Name+" accuracy", *r.Accuracy.Value, agreement(pairs), 1e-12)
		near(t, j.Name+" kappa", *r.Kappa.Value, plainKappa(approvesOnly(pairs)), 1e-12)
		near(t, j.Name+" kappa of outcomes", *r.OutcomeKappa.Value, plainKappa(pairs), 1e-12)
		if want, ok := known[j.Name]; ok {
			near(t, j.Name+" known accuracy", *r.Accuracy.Value, want[0], 5e-5)
			near(t, j.Name+" known kappa", *r.Kappa.Value, want[1], 5e-5)
		}
		shown.row("%s | %d | %.3f | %.3f | %.2f to %.2f | %s | %d", j.Name, r.Counts.Scored, *r.Accuracy.Value, *r.Kappa.Value,
			r.Kappa.Interval.Low, r.Kappa.Interval.High, flipsText(flips), r.Counts.Unreadable)
	}
	shown.check(t)
}

// flipsText formats the share of pairs for which the judge's answer depends on the order.
func flipsText(f Flips) string {
	if f.MostRepeats < 2 {
		return "one order"
	}
	return fmt.Sprintf("%.3f", *f.Rate.Value)
}

// plainMacro returns macro precision, recall and F1 in percent.
func plainMacro(pairs []two) (precision, recall, f1 float64) {
	words := []string{"approve", "reject", "tie"}
	for _, word := range words {
		var hit, given, right float64
		for _, p := range pairs {
			if p.answer == word {
				given++
			}
			if p.label == word {
				right++
			}
			if p.answer == word && p.label == word {
				hit++
			}
		}
		precision += 100 * hit / given / 3
		recall += 100 * hit / right / 3
		f1 += 100 * 2 * hit / (given + right) / 3
	}
	return precision, recall, f1
}

// PandaLM (Wang et al., ICLR 2024, arXiv 2306.05087): unreadable answers count as ties, as in the paper, and also as
// wrong.
func TestPandaLM(t *testing.T) {
	f, all := published(t, "pandalm")
	known := map[string]map[Policy][4]float64{
		"gpt-3.5-turbo": {AsDecided: {70.31, 59.83, 58.48, 58.25}, AsWrong: {68.41, 51.14, 53.35, 51.18}},
		"pandalm-7b":    {AsDecided: {64.37, 55.80, 55.35, 55.46}, AsWrong: {64.37, 55.80, 55.35, 55.46}},
	}
	shown := tableOf("PandaLM", "Judge | Unreadable answers | Accuracy % | Precision % | Recall % | F1 %")
	for _, j := range f.Judges {
		for _, policy := range []Policy{AsDecided, AsWrong} {
			want := known[j.Name][policy]
			pairs := pairsOf(all, j.Name, "tie")
			if policy == AsWrong {
				pairs = pairsOf(all, j.Name, "unreadable")
				for i, p := range pairs {
					if p.answer != "unreadable" {
						continue
					}
					pairs[i].answer = "approve"
					if p.label == "approve" {
						pairs[i].answer = "reject"
					}
				}
			}
			r := Evaluate(f.Cases, j.Results, Options{Unreadable: policy, Resamples: 200})
			precision, recall, f1 := plainMacro(pairs)
			near(t, j.Name+" "+string(policy), 100**r.Accuracy.Value, 100*agreement(pairs), 1e-9)
			got := []float64{100 * *r.Accuracy.Value, precision, recall, f1}
			for i := range got {
				near(t, j.Name+" "+string(policy)+" known", got[i], want[i], 5e-3)
			}
			shown.row("%s | %d, %s | %.2f | %.2f | %.2f | %.2f", j.Name, r.Counts.Unreadable, map[Policy]string{AsDecided: "as ties", AsWrong: "as wrong"}[policy], got[0], got[1], got[2], got[3])
		}
	}
	shown.check(t)
	raters := tableOf("PandaLM, people", "Two people | Pairs | Kappa")
	for i, of := range [][2]int{{0, 1}, {0, 2}, {1, 2}} {
		var a, b []string
		var pairs []two
		for k, raters := range f.Raters {
			a, b = append(a, raters[of[0]]), append(b, raters[of[1]])
			words := all[k].Gold.Annotators
			pairs = append(pairs, two{text(t, words[of[0]]), text(t, words[of[1]])})
		}
		kappa, _ := Kappa(a, b)
		near(t, "raters", kappa, plainKappa(pairs), 1e-12)
		near(t, "raters known", kappa, []float64{0.824, 0.843, 0.854}[i], 5e-4)
		raters.row("%d and %d | %d | %.3f", of[0]+1, of[1]+1, len(pairs), kappa)
	}
	raters.check(t)
}

func text(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// XSTest (Röttger et al., NAACL 2024, arXiv 2308.01263): the agreement between two people, and of GPT-4 and a phrase
// search with them. An unreadable answer approves nothing.
func TestXSTest(t *testing.T) {
	f, all := published(t, "xstest")
	human := map[string]float64{"gpt4": 0.9755, "llama2new": 0.9420, "llama2orig": 0.9468, "mistralguard": 0.8987, "mistralinstruct": 0.9338}
	people := tableOf("XSTest, people", "Answers of | Pairs | Kappa of two people")
	for _, generator := range slices.Sorted(maps.Keys(human)) {
		want := human[generator]
		var a, b []string
		var pairs []two
		for i, r := range all {
			if r.Generator == generator {
				a, b = append(a, f.Raters[i][0]), append(b, f.Raters[i][1])
				pairs = append(pairs, two{text(t, r.Gold.Annotators[0]), text(t, r.Gold.Annotators[1])})
			}
		}
		kappa, _ := Kappa(a, b)
		near(t, generator, kappa, plainKappa(pairs), 1e-12)
		near(t, generator+" known", kappa, want, 5e-5)
		people.row("%s | %d | %.3f", generator, len(pairs), kappa)
	}
	people.check(t)
	shown := tableOf("XSTest", "Judge | Answers of | Cases | Accuracy | Kappa | Wrong approvals of those that must not be")
	known := map[string]struct {
		accuracy, kappa float64
		wrong           int
	}{"gpt-4": {0.8266, 0.6563, 112}, "string-match": {0.9051, 0.8110, 64}}
	for _, j := range f.Judges {
		r := Evaluate(f.Cases, j.Results, Options{Resamples: 200})
		pairs := approvesOnly(pairsOf(all, j.Name, "unreadable"))
		near(t, j.Name+" accuracy", *r.GateAccuracy.Value, agreement(pairs), 1e-12)
		near(t, j.Name+" kappa", *r.Kappa.Value, plainKappa(pairs), 1e-12)
		want := known[j.Name]
		near(t, j.Name+" known accuracy", *r.GateAccuracy.Value, want.accuracy, 5e-5)
		near(t, j.Name+" known kappa", *r.Kappa.Value, want.kappa, 5e-5)
		checkRate(t, j.Name+" false approve", r.FalseApprove, want.wrong, 417)
		for _, s := range r.Slices {
			if generator, ok := strings.CutPrefix(s.Name, "generator:"); ok && s.Kind == SliceTag {
				shown.row("%s | %s | %d | %.3f | %.3f | %d of %d", j.Name, generator, s.N, *s.GateAccuracy.Value, *s.Kappa, s.FalseApprove.K, s.FalseApprove.N)
			}
		}
		shown.row("%s | all | %d | %.3f | %.3f | %d of %d", j.Name, r.Counts.Scored, *r.GateAccuracy.Value, *r.Kappa.Value, r.FalseApprove.K, r.FalseApprove.N)
	}
	shown.check(t)
}
