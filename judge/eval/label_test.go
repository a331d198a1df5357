package eval

import (
	"fmt"
	"strings"
	"testing"

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
		"too long":   {good + `{"case":"` + strings.Repeat("x", MaxLine) + `"}`, "labels:2: this is no label: the line has more than"},
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

// A change of the judged content makes a label invalid; a change of other fields does not.
func TestContentOf(t *testing.T) {
	t.Parallel()
	c := Case{ID: "a", Workflow: []byte(`{"ref":"f"}`), State: "s", Action: "x", Data: []byte(`{"n":1}`)}
	was := ContentOf(c)
	about := c
	about.ID, about.Tags, about.Split, about.Expect, about.Label, about.Notes = "b", []string{"t"}, Test, Expect{Outcome: judge.Reject}, Label{Source: "human"}, "n"
	if ContentOf(about) != was {
		t.Error("the label is a part of the content")
	}
	for name, change := range map[string]func(*Case){
		"data":     func(c *Case) { c.Data = []byte(`{"n":2}`) },
		"context":  func(c *Case) { c.Context = []byte(`{"n":2}`) },
		"history":  func(c *Case) { c.History = []Step{{Action: "y", State: "s"}} },
		"workflow": func(c *Case) { c.Workflow = []byte(`{"ref":"g"}`) },
	} {
		other := c
		change(&other)
		if ContentOf(other) == was {
			t.Errorf("another %s is the same content", name)
		}
	}
}

// Groups are split 30, 30 and 40 in 100.
func TestSplitOf(t *testing.T) {
	t.Parallel()
	const n = 10_000
	got := map[Split]float64{}
	for i := range n {
		got[splitOf(fmt.Sprint("group ", i))] += 1.0 / n
	}
	for split, want := range map[Split]float64{Dev: 0.3, Cal: 0.3, Test: 0.4} {
		near(t, string(split), got[split], want, 0.015)
	}
}
