package label

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

func TestReadLabels(t *testing.T) {
	t.Parallel()
	good := `{"case":"a","content":"sha256:1","by":"ada","outcome":"approve"}` + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"not JSON":   {good + "approve\n", "labels:2: this is no label"},
		"no outcome": {`{"case":"a","by":"ada"}`, "labels:1: a label needs case, by and outcome"},
		"another":    {`{"case":"a","by":"ada","outcome":"maybe"}`, "labels:1: a label needs"},
		"two people": {good + `{"case":"b","by":"bob","outcome":"reject"}`, `labels:2: this label is by "bob", those before it by "ada"`},
		"too long":   {good + `{"case":"` + strings.Repeat("x", eval.MaxLine) + `"}`, "labels:2: this is no label: the line has more than"},
	} {
		if _, err := ReadLabels("labels", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	again, err := ReadLabels("labels", strings.NewReader(good+strings.Replace(good, "approve", "reject", 1)))
	if err != nil || again.By != "ada" || len(again.Of) != 1 || again.Of["a"].Outcome != judge.Reject {
		t.Errorf("the last word on a case counts: %+v, %v", again, err)
	}
}

// Groups are split 30, 30 and 40 in 100.
func TestSplitOf(t *testing.T) {
	t.Parallel()
	const n = 10_000
	got := map[eval.Split]float64{}
	for i := range n {
		got[SplitOf(fmt.Sprint("group ", i))] += 1.0 / n
	}
	for split, want := range map[eval.Split]float64{eval.Dev: 0.3, eval.Cal: 0.3, eval.Test: 0.4} {
		if math.Abs(got[split]-want) > 0.015 {
			t.Errorf("%s has %.3f of the groups, want %.3f", split, got[split], want)
		}
	}
}
