package eval

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/judge"
)

// Labelling is one person's answer to one case: a line of a file of labels.
type Labelling struct {
	Case string `json:"case"`
	// Content is the ContentOf of the case that the person saw.
	Content  string            `json:"content"`
	By       string            `json:"by"`
	Outcome  judge.Outcome     `json:"outcome"`
	Criteria map[string]string `json:"criteria,omitempty"` // as in Expect
	Why      string            `json:"why,omitempty"`
}

// ContentOf digests the judged content of a case, without its label, tags and split.
func ContentOf(c Case) string {
	exact, _ := contentKeys(c)
	return "sha256:" + hex.EncodeToString([]byte(exact))
}

// ReadUnlabelled reads cases like ReadCases; expect.outcome, label.source and split may be absent.
func ReadUnlabelled(file string, from io.Reader) iter.Seq2[Golden, error] {
	return readCases(file, from, func(c Case) string {
		c.Expect.Outcome, c.Label.Source, c.Split = cmp.Or(c.Expect.Outcome, judge.Approve), cmp.Or(c.Label.Source, "human"), cmp.Or(c.Split, Dev)
		return c.findProblem()
	})
}

// Labels are one person's labels, by case. The last label of a case counts.
type Labels struct {
	By string
	Of map[string]Labelling
}

// ReadLabels reads a file of labels, which must all be from one person. Its error names the line.
func ReadLabels(file string, from io.Reader) (Labels, error) {
	out := Labels{Of: map[string]Labelling{}}
	for l, err := range readLines(from, MaxLine) {
		if err == nil && l.isLong {
			err = fmt.Errorf("the line has more than %d bytes", MaxLine)
		}
		var one Labelling
		if err == nil {
			err = json.Unmarshal(l.text, &one)
		}
		switch {
		case err != nil:
			return Labels{}, fmt.Errorf("%s:%d: this is no label: %w", file, l.number, err)
		case one.Case == "" || one.By == "" || !slices.Contains([]judge.Outcome{judge.Approve, judge.Reject, judge.Escalate}, one.Outcome):
			return Labels{}, fmt.Errorf("%s:%d: a label needs case, by and outcome (approve, reject or escalate)", file, l.number)
		case out.By != "" && out.By != one.By:
			return Labels{}, fmt.Errorf("%s:%d: this label is by %q, those before it by %q; give everybody a file of their own", file, l.number, clipQuote(one.By), clipQuote(out.By))
		}
		out.By, out.Of[one.Case] = one.By, one
	}
	return out, nil
}

// LabelOf returns the label of a case, unless the case was changed after it was labelled.
func (l Labels) LabelOf(c Case) (label Labelling, given, changed bool) {
	label, given = l.Of[c.ID]
	if given && label.Content != ContentOf(c) {
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
	// Unlabelled counts cases that one of them has not labelled, Changed those that changed after they were labelled.
	Unlabelled int  `json:"unlabelled"`
	Changed    int  `json:"changed"`
	Same       Rate `json:"same"`
	// Kappa is computed for the three outcomes, GateKappa for approved or not. Groups are resampled.
	Kappa     Estimate `json:"kappa"`
	GateKappa Estimate `json:"gateKappa"`
	// Counts is indexed by the first and the second person's outcome: approve, reject, escalate.
	Counts   [kinds][kinds]int `json:"counts"`
	Disputes []Dispute         `json:"disputes"`
}

// Dispute is a case about which two people disagree.
type Dispute struct {
	Case string       `json:"case"`
	Said [2]Labelling `json:"said"`
}

// Agree compares two people's labels of cases.
func Agree(cases []Case, a, b Labels) Agreement {
	o := Options{Seed: 1}.withDefaults()
	out := Agreement{By: [2]string{a.By, b.By}, Disputes: []Dispute{}}
	var rows []row
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
		rows = append(rows, row{group: groupOf(&c), expect: first.Outcome, got: second.Outcome})
	}
	slices.SortStableFunc(rows, func(x, y row) int { return cmp.Compare(x.group, y.group) })
	t := newTable(rows)
	out.Cases, out.Groups, out.Counts = len(rows), len(groupStarts(rows))-1, t
	out.Same = rateOf(rows, o.Confidence, func(row) bool { return true }, row.isExact)
	samples := bootstrapTable(rows, o)
	out.Kappa = samples["outcomeKappa"].estimate(t.outcomeKappa(), o.Confidence)
	out.GateKappa = samples["kappa"].estimate(t.kappa(), o.Confidence)
	return out
}

// TextAgreement writes the figures for a terminal.
func TextAgreement(w io.Writer, a Agreement, align Align) error {
	text := align(figureRows([]figure{
		{"same outcome", a.Same.String(), a.Same.formatBounds()},
		{"kappa, three outcomes", FormatDecimal(a.Kappa.Value), a.Kappa.formatBounds()},
		{"kappa, approve or not", FormatDecimal(a.GateKappa.Value), a.GateKappa.formatBounds()},
	}))
	_, err := io.WriteString(w, text)
	return err
}

// Merge returns a case with the label that two people agree on, or that a third one settled. ok is false if there is
// none. Criteria are those that both labelled the same. A case without a split gets one by its group: 30 of 100
// groups dev, 30 cal, 40 test.
func Merge(c Case, a, b, settled Labels) (merged Case, ok bool) {
	first, isFirst, _ := a.LabelOf(c)
	second, isSecond, _ := b.LabelOf(c)
	third, isSettled, _ := settled.LabelOf(c)
	switch {
	case !isFirst || !isSecond:
		return Case{}, false
	case first.Outcome == second.Outcome:
		same := maps.Clone(first.Criteria)
		maps.DeleteFunc(same, func(id, status string) bool { return second.Criteria[id] != status })
		c.Expect = Expect{Outcome: first.Outcome, Criteria: same, ViolationsAny: keepViolations(c, first.Outcome)}
		c.Label = Label{Source: "human", By: first.By + ", " + second.By, Raters: 2, Agreement: shareOf(1)}
	case isSettled:
		agree := 1.0
		for _, one := range []Labelling{first, second} {
			if one.Outcome == third.Outcome {
				agree++
			}
		}
		c.Expect = Expect{Outcome: third.Outcome, Criteria: third.Criteria, ViolationsAny: keepViolations(c, third.Outcome)}
		c.Label = Label{Source: "adjudicated", By: third.By, Raters: 3, Agreement: shareOf(math.Round(agree/3*1000) / 1000)}
	default:
		return Case{}, false
	}
	c.Split = cmp.Or(c.Split, splitOf(groupOf(&c)))
	return c, true
}

// keepViolations returns the codes that a case expects, if they belong to this outcome.
func keepViolations(c Case, outcome judge.Outcome) []string {
	if c.Expect.Outcome == outcome {
		return c.Expect.ViolationsAny
	}
	return nil
}

func shareOf(v float64) *float64 { return &v }

func splitOf(group string) Split {
	sum := sha256.Sum256([]byte(group))
	switch at := float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32); {
	case at < 0.3:
		return Dev
	case at < 0.6:
		return Cal
	default:
		return Test
	}
}
