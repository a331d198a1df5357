package eval

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
)

const foreignLine = `{"id": "r1", "group": "g", "subset": "s", "gold": {"verdict": "reject", "annotators": [1, 2]},
 "transition": {"workflow": "w", "state": "s0", "action": "go", "data": {"a": 1}}, "judgements": [
 {"judge": "j", "strategy": "CoT", "order": "ab", "completion": "(a)", "verdict": "approve", "p_approve": 0.8},
 {"judge": "j", "strategy": "CoT", "order": "ba", "completion": ["7", "8"], "verdict": null}, {"judge": "k", "verdict": "tie"}]}`

func TestReadForeign(t *testing.T) {
	line := strings.ReplaceAll(foreignLine, "\n", "")
	disputed := strings.NewReplacer(`"r1"`, `"r2"`, `{"verdict": "reject", "annotators": [1, 2]}`, `{"verdict": "disputed"}`).Replace(line)
	f, err := ReadForeign(strings.NewReader(line+"\n\n"+disputed+"\n"), Dev)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Cases) != 1 || f.Unlabelled != 1 || len(f.Judges) != 2 {
		t.Fatalf("%+v", f)
	}
	c := f.Cases[0]
	if c.Expect.Outcome != judge.Reject || c.Split != Dev || c.Label != (Label{Source: "human", Raters: 2}) || workflowOf(&c) != "w" || !slices.Equal(c.Tags, []string{"subset:s"}) {
		t.Errorf("case: %+v", c)
	}
	if !slices.Equal(f.Raters[0], []string{"1", "2"}) {
		t.Errorf("raters: %v", f.Raters)
	}
	j := f.Judges[0]
	if j.Name != "j/CoT" || len(j.Results) != 2 || j.Results[1].Repeat != 1 || !j.Results[1].Unreadable || j.Results[1].Reasoning != "7\n8" || j.Results[1].Outcome != judge.Escalate {
		t.Errorf("judge: %+v", j)
	}
	if r := j.Results[0]; r.Unreadable || r.Reasoning != "(a)" || *r.Approval != 0.8 || r.Confidence != 0.8 {
		t.Errorf("result: %+v", r)
	}
	if k := f.Judges[1].Results[0]; k.Outcome != judge.Escalate || k.Unreadable {
		t.Errorf("a tie is an answer: %+v", k)
	}
}

func TestReadForeignErrors(t *testing.T) {
	line := strings.ReplaceAll(foreignLine, "\n", "")
	for name, c := range map[string]struct{ text, says string }{
		"no JSON":       {line + "\n{", "line 2"},
		"same id":       {line + "\n" + line, `line 2: the id "r1"`},
		"verdict":       {strings.Replace(line, `"tie"`, `"draw"`, 1), `judgements[2]: the verdict "draw"`},
		"judge":         {strings.Replace(line, `"k"`, `""`, 1), "judgements[2]: judge is empty"},
		"probability":   {strings.Replace(line, "0.8", "1.8", 1), "judgements[0]: p_approve is 1.8"},
		"a long line":   {line + "\n" + strings.Repeat("x", maxForeignLine+1), "line 2: is longer"},
		"wrong in type": {strings.Replace(line, `"r1"`, "7", 1), "line 1"},
	} {
		if _, err := ReadForeign(strings.NewReader(c.text), Dev); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// plain is a record read without the adapter.
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

// published reads one of the public sets, or skips the test. They lie beside the tree,
// since not all of them may be copied into it.
func published(t *testing.T, name string) (Foreign, []plain) {
	t.Helper()
	root := cmp.Or(os.Getenv("GAVEL_EVAL_DATA"), filepath.Join("..", "..", "..", "shared", "data"))
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

// two are label and answer.
type two struct{ label, answer string }

// plainKappa is Cohen's kappa from its definition, over pairs.
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

// approvesOnly makes every other word the same.
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

// pairsOf a judge, its unreadable answers written as none.
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

// LLMBar (Zeng et al., ICLR 2024, arXiv 2310.07641): every judge and strategy, both
// orders of a pair. Two figures are also given as computed outside of Go.
func TestLLMBar(t *testing.T) {
	f, all := published(t, "llmbar")
	known := map[string][2]float64{"GPT-4/Metrics_Reference": {0.8249, 0.6491}, "ChatGPT/CoT": {0.4329, -0.1301}, "Falcon/CoT": {0.5, 0}, "PaLM2/Vanilla_NoRules": {0.6811, 0.4087}}
	if len(f.Judges) != 14 || len(f.Cases) != len(all) {
		t.Fatalf("%d judges, %d cases", len(f.Judges), len(f.Cases))
	}
	for _, j := range f.Judges {
		r := Evaluate(f.CasesOf(j), j.Results, Options{Pool: true, Resamples: 200})
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
		t.Logf("%-24s n %3d accuracy %.4f kappa %+.4f [%+.3f, %+.3f] flips %.3f unreadable %d", j.Name, r.Counts.Scored, *r.Accuracy.Value, *r.Kappa.Value, r.Kappa.Interval.Low, r.Kappa.Interval.High, orZero(r.Flips.Rate.Value), r.Counts.Unreadable)
	}
}

// plainMacro are macro precision, recall and F1 in percent.
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

// PandaLM (Wang et al., ICLR 2024, arXiv 2306.05087): unreadable answers as ties, as the
// paper counts them, and as wrong.
func TestPandaLM(t *testing.T) {
	f, all := published(t, "pandalm")
	known := map[string]map[Policy][4]float64{
		"gpt-3.5-turbo": {AsDecided: {70.31, 59.83, 58.48, 58.25}, AsWrong: {68.41, 51.14, 53.35, 51.18}},
		"pandalm-7b":    {AsDecided: {64.37, 55.80, 55.35, 55.46}, AsWrong: {64.37, 55.80, 55.35, 55.46}},
	}
	for _, j := range f.Judges {
		for policy, want := range known[j.Name] {
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
			got := []float64{100 * *r.Accuracy.Value, 100 * *r.MacroPrecision, 100 * *r.MacroRecall, 100 * *r.MacroF1}
			for i, plain := range []float64{100 * agreement(pairs), precision, recall, f1} {
				near(t, j.Name+" "+string(policy), got[i], plain, 1e-9)
				near(t, j.Name+" "+string(policy)+" known", got[i], want[i], 5e-3)
			}
			t.Logf("%-14s %-10s accuracy %.2f precision %.2f recall %.2f F1 %.2f unreadable %d", j.Name, policy, got[0], got[1], got[2], got[3], r.Counts.Unreadable)
		}
	}
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
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// XSTest (Röttger et al., NAACL 2024, arXiv 2308.01263): how two people agree, and how
// GPT-4 and a search for phrases agree with them. An unreadable answer approves nothing.
func TestXSTest(t *testing.T) {
	f, all := published(t, "xstest")
	human := map[string]float64{"gpt4": 0.9755, "llama2new": 0.9420, "llama2orig": 0.9468, "mistralguard": 0.8987, "mistralinstruct": 0.9338}
	for generator, want := range human {
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
	}
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
				t.Logf("%-12s %-16s n %d kappa %+.4f accuracy %.4f", j.Name, generator, s.N, *s.Kappa, *s.GateAccuracy.Value)
			}
		}
		t.Logf("%-12s all              n %d kappa %+.4f accuracy %.4f false-approve %.4f (upper %.4f)", j.Name, r.Counts.Scored, *r.Kappa.Value, *r.GateAccuracy.Value, *r.FalseApprove.Value, r.FalseApprove.Upper)
	}
}
