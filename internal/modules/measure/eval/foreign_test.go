package eval

import (
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
	tuned := strings.NewReplacer(`"r1"`, `"r3"`, `"group"`, `"split": "cal", "group"`).Replace(line)
	disputed := strings.NewReplacer(`"r1"`, `"r2"`, `{"verdict": "reject", "annotators": [1, 2]}`, `{"verdict": "disputed"}`).Replace(line)
	f, err := ReadForeign(strings.NewReader(line+"\n\n"+disputed+"\n"+tuned), Dev)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Cases) != 2 || f.Cases[1].Split != Cal || f.Unlabelled != 1 || len(f.Judges) != 2 {
		t.Fatalf("%+v", f)
	}
	c := f.Cases[0]
	if c.Expect.Outcome != judge.Reject || c.Split != Dev || c.Label != (Label{Source: "human", Raters: 2}) || WorkflowOf(&c) != "w" || !slices.Equal(c.Tags, []string{"subset:s"}) {
		t.Errorf("case: %+v", c)
	}
	if !slices.Equal(f.Raters[0], []string{"1", "2"}) {
		t.Errorf("raters: %v", f.Raters)
	}
	j := f.Judges[0]
	if j.Name != "j/CoT" || len(j.Results) != 4 || j.Results[1].Repeat != 1 || !j.Results[1].Unreadable || j.Results[1].Reasoning != "7\n8" || j.Results[1].Outcome != judge.Escalate {
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
		"split":         {strings.Replace(line, `"group"`, `"split": "train", "group"`, 1), `the split "train" is unknown`},
		"a long line":   {line + "\n" + strings.Repeat("x", maxForeignLine+1), "line 2: is longer"},
		"wrong in type": {strings.Replace(line, `"r1"`, "7", 1), "line 1"},
	} {
		if _, err := ReadForeign(strings.NewReader(c.text), Dev); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
