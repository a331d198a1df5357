// Package label handles people's labels of golden cases. It measures how far two people agree, and merges the labels on
// which they do.
//
// It must never use the judge's answers.
package label

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

// ReadCases reads golden cases, in which expect.outcome, label.source and split may be absent.
func ReadCases(file string, from io.Reader) iter.Seq2[eval.Golden, error] {
	return eval.ReadDrafts(file, from, func(c *eval.Case) {
		c.Expect.Outcome, c.Label.Source, c.Split = cmp.Or(c.Expect.Outcome, judge.Approve), cmp.Or(c.Label.Source, "human"), cmp.Or(c.Split, eval.Dev)
	})
}

// Labelling is one person's label of one case: one line of a labels file.
type Labelling struct {
	Case string `json:"case"`
	// Content is the ContentOf of the case that the person saw.
	Content  string            `json:"content"`
	By       string            `json:"by"`
	Outcome  judge.Outcome     `json:"outcome"`
	Criteria map[string]string `json:"criteria,omitempty"` // as in Expect
	Why      string            `json:"why,omitempty"`
}

// Labels are one person's labels by case. If a case has several labels, the last one counts.
type Labels struct {
	By string
	Of map[string]Labelling
}

// ReadLabels reads a labels file. All of its labels must be from one person. Its error names the line.
func ReadLabels(file string, from io.Reader) (Labels, error) {
	out := Labels{Of: map[string]Labelling{}}
	text, err := io.ReadAll(from)
	if err != nil {
		return Labels{}, fmt.Errorf("read %s: %w", file, err)
	}
	number := 0
	for line := range bytes.Lines(text) {
		if number++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var one Labelling
		err := json.Unmarshal(line, &one)
		if len(line) > eval.MaxLine {
			err = fmt.Errorf("the line has more than %d bytes", eval.MaxLine)
		}
		switch {
		case err != nil:
			return Labels{}, fmt.Errorf("%s:%d: this is no label: %w", file, number, err)
		case one.Case == "" || one.By == "" || !slices.Contains([]judge.Outcome{judge.Approve, judge.Reject, judge.Escalate}, one.Outcome):
			return Labels{}, fmt.Errorf("%s:%d: a label needs case, by and outcome (approve, reject or escalate)", file, number)
		case out.By != "" && out.By != one.By:
			return Labels{}, fmt.Errorf("%s:%d: this label is by %q, those before it by %q; give each person a separate file", file, number, eval.ClipQuote(one.By), eval.ClipQuote(out.By))
		}
		out.By, out.Of[one.Case] = one.By, one
	}
	return out, nil
}

// LabelOf returns the label of a case, unless the case was changed after it was labelled.
func (l Labels) LabelOf(c eval.Case) (label Labelling, given, changed bool) {
	label, given = l.Of[c.ID]
	if given && label.Content != eval.ContentOf(c) {
		return Labelling{}, false, true
	}
	return label, given, false
}

// Agreement measures how far two people agree about the cases that both have labelled.
type Agreement struct {
	By [2]string `json:"by"`
	// Cases is how many both labelled; Groups is the number of their groups.
	Cases  int `json:"cases"`
	Groups int `json:"groups"`
	// Unlabelled counts cases that at least one of them has not labelled. Changed counts cases that changed after at
	// least one of them labelled them.
	Unlabelled int       `json:"unlabelled"`
	Changed    int       `json:"changed"`
	Same       eval.Rate `json:"same"`
	// Kappa is for the three outcomes; GateKappa treats reject and escalate as one. Their intervals come from
	// resampling groups.
	Kappa     eval.Estimate `json:"kappa"`
	GateKappa eval.Estimate `json:"gateKappa"`
	// Counts is indexed by the first and the second person's outcome: approve, reject, escalate.
	Counts   [3][3]int `json:"counts"`
	Disputes []Dispute `json:"disputes"`
}

// Dispute is a case about which two people disagree.
type Dispute struct {
	Case string       `json:"case"`
	Said [2]Labelling `json:"said"`
}

// Agree compares two people's labels of cases. It scores the second person as a judge, with the first person's labels
// as the right answers. Swapping the two changes no figure.
func Agree(cases []eval.Case, a, b Labels) Agreement {
	out := Agreement{By: [2]string{a.By, b.By}, Disputes: []Dispute{}}
	var right []eval.Case
	var given []eval.Result
	for _, c := range cases {
		first, isFirst, changedFirst := a.LabelOf(c)
		second, isSecond, changedSecond := b.LabelOf(c)
		switch {
		case changedFirst || changedSecond:
			out.Changed++
			continue
		case !isFirst || !isSecond:
			out.Unlabelled++
			continue
		case first.Outcome != second.Outcome:
			out.Disputes = append(out.Disputes, Dispute{c.ID, [2]Labelling{first, second}})
		}
		c.Expect = eval.Expect{Outcome: first.Outcome}
		right, given = append(right, c), append(given, eval.Result{Case: c.ID, Outcome: second.Outcome})
	}
	r := eval.Evaluate(right, given, eval.Options{Seed: 1})
	out.Cases, out.Groups, out.Same, out.Kappa, out.GateKappa = r.Counts.Scored, r.Counts.Groups, r.Accuracy, r.OutcomeKappa, r.Kappa
	for i, row := range []eval.OutcomeCounts{r.Confusion.ExpectApprove, r.Confusion.ExpectReject, r.Confusion.ExpectEscalate} {
		out.Counts[i] = [3]int{row.Approve, row.Reject, row.Escalate}
	}
	return out
}

// Figures returns the rows of a table of the figures.
func (a Agreement) Figures() [][]string {
	return [][]string{
		{"same outcome", a.Same.String(), a.Same.Bounds()},
		{"kappa, three outcomes", eval.FormatDecimal(a.Kappa.Value), a.Kappa.Bounds()},
		{"kappa, approve or not", eval.FormatDecimal(a.GateKappa.Value), a.GateKappa.Bounds()},
	}
}

// Merge returns a case with the label that two people agree on, or else the label of a third person who settled it. ok
// is false if there is neither. If the two agree, Criteria holds the criteria that both labelled the same. A case
// without a split gets that of its group.
func Merge(c eval.Case, a, b, settled Labels) (merged eval.Case, ok bool) {
	first, isFirst, _ := a.LabelOf(c)
	second, isSecond, _ := b.LabelOf(c)
	third, isSettled, _ := settled.LabelOf(c)
	switch {
	case !isFirst || !isSecond:
		return eval.Case{}, false
	case first.Outcome == second.Outcome:
		same := maps.Clone(first.Criteria)
		maps.DeleteFunc(same, func(id, status string) bool { return second.Criteria[id] != status })
		c.Expect = eval.Expect{Outcome: first.Outcome, Criteria: same, ViolationsAny: keepViolations(c, first.Outcome)}
		c.Label = eval.Label{Source: "human", By: first.By + ", " + second.By, Raters: 2, Agreement: new(1.0)}
	case isSettled:
		agree := 1.0
		for _, one := range []Labelling{first, second} {
			if one.Outcome == third.Outcome {
				agree++
			}
		}
		c.Expect = eval.Expect{Outcome: third.Outcome, Criteria: third.Criteria, ViolationsAny: keepViolations(c, third.Outcome)}
		c.Label = eval.Label{Source: "adjudicated", By: third.By, Raters: 3, Agreement: new(math.Round(agree/3*1000) / 1000)}
	default:
		return eval.Case{}, false
	}
	c.Split = cmp.Or(c.Split, SplitOf(c.GroupKey()))
	return c, true
}

// keepViolations returns the codes that a case expects, if the case expects the given outcome.
func keepViolations(c eval.Case, outcome judge.Outcome) []string {
	if c.Expect.Outcome == outcome {
		return c.Expect.ViolationsAny
	}
	return nil
}

// SplitOf returns the split of a group: 30 % of groups are dev, 30 % cal and 40 % test.
func SplitOf(group string) eval.Split {
	sum := sha256.Sum256([]byte(group))
	switch at := float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32); {
	case at < 0.3:
		return eval.Dev
	case at < 0.6:
		return eval.Cal
	default:
		return eval.Test
	}
}
