package eval

import (
	"cmp"
	"fmt"
	"slices"
)

const maxPoints = 100

// RankedAnswer is an approval of a model. Group is the number of its group, counted from 0.
type RankedAnswer struct {
	Score float64 // certainty
	Wrong bool
	Group uint32
}

// SortAnswers puts the most certain answers first.
func SortAnswers(all []RankedAnswer) {
	slices.SortStableFunc(all, func(a, b RankedAnswer) int { return cmp.Compare(b.Score, a.Score) })
}

// RankApprovals returns the approvals of the model itself, the most certain first, and the number of its answers.
func RankApprovals(rows []Row) (approvals []RankedAnswer, answers int) {
	all, _ := listForecasts(rows)
	return listApprovals(all), len(all)
}

func listApprovals(all []forecast) (of []RankedAnswer) {
	for _, f := range all {
		if f.leans {
			of = append(of, RankedAnswer{f.p, !f.good, f.group})
		}
	}
	SortAnswers(of)
	return of
}

// RiskStep is the result of keeping all answers down to a score.
type RiskStep struct {
	Score   float64
	N       int // answers kept
	Errors  int
	Squares float64 // sum of the squared numbers of answers kept per group
	Groups  int
}

// RiskSteps returns a step for each distinct score. sorted must have the most certain answers first.
func RiskSteps(sorted []RankedAnswer) []RiskStep {
	var all []RiskStep
	var at RiskStep
	sizes := groupSizes{}
	for i, s := range sorted {
		at.N++
		at.Squares += sizes.add(s.Group)
		at.Groups = len(sizes)
		if s.Wrong {
			at.Errors++
		}
		if i+1 == len(sorted) || sorted[i+1].Score != s.Score {
			at.Score = s.Score
			all = append(all, at)
		}
	}
	return all
}

// Point returns the risk at the step; all is the total number of answers.
func (s RiskStep) Point(all int, confidence float64) RiskPoint {
	return RiskPoint{s.Score, float64(s.N) / float64(all), NewRate(s.Errors, s.N, s.Squares, confidence)}
}

func riskCurve(sorted []RankedAnswer, confidence float64) *RiskCurve {
	n := len(sorted)
	if n == 0 {
		return nil
	}
	c := &RiskCurve{N: n}
	shown := 0
	for _, s := range RiskSteps(sorted) {
		if s.N*maxPoints >= (shown+1)*n || s.N == n {
			shown = s.N * maxPoints / n
			c.Points = append(c.Points, s.Point(n, confidence))
		}
	}
	return c
}

// DropSeen omits cases of Test whose group has a case in Cal. The warning is "" if there are none.
func DropSeen(cases []Case) (unseen []Case, warning string) {
	seen, left := map[string]bool{}, 0
	for _, c := range cases {
		if c.Split == Cal {
			seen[c.GroupKey()] = true
		}
	}
	for _, c := range cases {
		if c.Split == Test && seen[c.GroupKey()] {
			left++
			continue
		}
		unseen = append(unseen, c)
	}
	if left > 0 {
		warning = fmt.Sprintf("%d cases of test are left out: cal has cases of their groups (gavel eval lint lists them)", left)
	}
	return unseen, warning
}
