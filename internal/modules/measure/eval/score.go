package eval

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
)

// Row is a case with the result that represents it: the first that did not fail.
type Row struct {
	Case   *Case
	Result *Result
	Group  string
	Expect judge.Outcome
	Got    judge.Outcome // under the policy for unreadable answers
}

// MustNot reports whether the case must not be approved. That includes cases to escalate: approving them is as wrong as
// approving a case to reject.
func (w Row) MustNot() bool { return w.Expect != judge.Approve }

// FalseApprove reports whether a case was approved that must not be.
func (w Row) FalseApprove() bool { return w.MustNot() && w.Got == judge.Approve }

// IsExact reports whether the outcome is exactly right.
func (w Row) IsExact() bool     { return w.Expect == w.Got }
func (w Row) isGateRight() bool { return (w.Expect == judge.Approve) == (w.Got == judge.Approve) }

// Joined holds cases with their results, sorted by group and case, so that no figure depends on the order of
// the input.
type Joined struct {
	Rows   []Row
	Cases  []*Case              // selected, without duplicates
	by     map[string][]*Result // results of each case, by repeat
	Counts Counts
	lost   []*Case // cases without a known outcome
	// unreadable also counts the answers that policy excludes.
	unreadable tally
}

// Join joins cases and results. Pass options from Options.WithDefaults.
func Join(cases []Case, results []Result, o Options) Joined {
	s := Joined{by: make(map[string][]*Result, len(cases))}
	s.Counts.Splits = map[Split]int{}
	other := map[string]bool{} // cases in splits that were not requested
	for i := range cases {
		c := &cases[i]
		if _, ok := s.by[c.ID]; ok || other[c.ID] {
			s.Counts.DuplicateCases++
			continue
		}
		if !o.IncludesSplit(c.Split) {
			other[c.ID] = true
			continue
		}
		s.by[c.ID] = nil
		s.Cases = append(s.Cases, c)
		s.Counts.Splits[c.Split]++
	}
	slices.SortStableFunc(s.Cases, func(a, b *Case) int {
		return cmp.Or(cmp.Compare(a.GroupKey(), b.GroupKey()), cmp.Compare(a.ID, b.ID))
	})
	for i := range results {
		r := &results[i]
		if of, ok := s.by[r.Case]; ok {
			s.by[r.Case] = append(of, r)
		} else if !other[r.Case] {
			s.Counts.UnknownResults++
		}
	}
	s.score(o)
	return s
}

// GroupKey identifies the group of a case. The prefix distinguishes a case "x" without a group from a group "x".
func (c *Case) GroupKey() string {
	if c.Group == "" {
		return "1" + c.ID
	}
	return "0" + c.Group
}

func (s *Joined) score(o Options) {
	failures := map[string]int{}
	labels := map[string]int{}
	for _, c := range s.Cases {
		labels[cmp.Or(c.Label.Source, "unknown")]++
		all := s.repeatsOf(c.ID)
		for _, r := range all {
			if IsFailed(r) {
				failures[cmp.Or(r.Failure, "no outcome")]++
				s.Counts.FailedResults++
			}
		}
		switch first := slices.IndexFunc(all, func(r *Result) bool { return !IsFailed(r) }); {
		case first >= 0:
			s.addRow(c, all[first], o.Unreadable)
			continue
		case len(all) == 0:
			s.Counts.Missing++
		default:
			s.Counts.Failed++
		}
		s.lost = append(s.lost, c)
	}
	s.Counts.Cases = len(s.Cases)
	s.Counts.Scored = len(s.Rows)
	s.Counts.Failures = sortTallies(failures)
	s.Counts.Labels = sortTallies(labels)
	s.Counts.Digest = digestCases(s.Cases)
	for i, w := range s.Rows {
		if i == 0 || w.Group != s.Rows[i-1].Group {
			s.Counts.Groups++
		}
		switch w.Expect {
		case judge.Approve:
			s.Counts.ExpectApprove++
		case judge.Escalate:
			s.Counts.ExpectEscalate++
		default:
			s.Counts.ExpectReject++
		}
	}
}

// repeatsOf returns the results of a case, one for each repeat, in order.
func (s *Joined) repeatsOf(id string) []*Result {
	all := s.by[id]
	slices.SortStableFunc(all, func(a, b *Result) int { return cmp.Compare(a.Repeat, b.Repeat) })
	once := slices.CompactFunc(all, func(a, b *Result) bool { return a.Repeat == b.Repeat })
	s.Counts.DuplicateResults += len(all) - len(once)
	s.Counts.Results += len(once)
	s.by[id] = once
	return once
}

// IsFailed reports whether a result has a failure or an invalid outcome. Such a result shows nothing about the judge.
func IsFailed(r *Result) bool {
	return r.Failure != "" || (r.Outcome != judge.Approve && r.Outcome != judge.Reject && r.Outcome != judge.Escalate)
}

func (s *Joined) addRow(c *Case, r *Result, policy Policy) {
	w := Row{Case: c, Result: r, Group: c.GroupKey(), Expect: c.Expect.Outcome}
	s.unreadable.add(w.Group, r.Unreadable)
	if r.Unreadable {
		s.Counts.Unreadable++
	}
	var counts bool
	if w.Got, counts = r.OutcomeUnder(policy, w.MustNot()); !counts {
		s.Counts.Excluded++
		return
	}
	s.Rows = append(s.Rows, w)
}

// OutcomeUnder returns the outcome that a result counts as under the policy for unreadable answers; counts is false
// if it is excluded.
func (r *Result) OutcomeUnder(policy Policy, mustNot bool) (got judge.Outcome, counts bool) {
	switch {
	case !r.Unreadable || policy != Excluded && policy != AsWrong:
		return r.Outcome, true
	case policy == Excluded:
		return r.Outcome, false
	case mustNot:
		return judge.Approve, true
	}
	return judge.Reject, true
}

// groupStarts returns the index of each group's first row, and the number of rows.
func groupStarts(rows []Row) []int {
	var starts []int
	for i := range rows {
		if i == 0 || rows[i].Group != rows[i-1].Group {
			starts = append(starts, i)
		}
	}
	return append(starts, len(rows))
}

func digestCases(cases []*Case) string {
	sums := make([][sha256.Size]byte, 0, len(cases))
	for _, c := range cases {
		sums = append(sums, digestOf(c))
	}
	return digestAll(sums)
}

func digestOf(c *Case) (sum [sha256.Size]byte) {
	if len(c.Digest) == hex.EncodedLen(len(sum)) {
		if _, err := hex.Decode(sum[:], []byte(c.Digest)); err == nil {
			return sum
		}
	}
	text, err := json.Marshal(c)
	if err != nil { // if raw JSON is invalid, identify the case by its id
		text = []byte(c.ID)
	}
	return sha256.Sum256(text)
}

func digestAll(sums [][sha256.Size]byte) string {
	slices.SortStableFunc(sums, func(a, b [sha256.Size]byte) int { return slices.Compare(a[:], b[:]) })
	all := sha256.New()
	for _, sum := range sums {
		_, _ = all.Write(sum[:]) // a hash never fails
	}
	return "sha256:" + hex.EncodeToString(all.Sum(nil))
}

// WorkflowOf names a case's workflow: the part of ref after #, ref itself, or the
// definition's name.
func WorkflowOf(c *Case) string {
	var w struct{ Ref, Name string }
	if json.Unmarshal(c.Workflow, &w) != nil {
		return ""
	}
	if _, name, ok := strings.Cut(w.Ref, "#"); ok && name != "" {
		return name
	}
	return cmp.Or(w.Ref, w.Name)
}

func sortTallies(counts map[string]int) []Tally {
	var all []Tally
	for name, n := range counts {
		all = append(all, Tally{name, n})
	}
	slices.SortStableFunc(all, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return all
}
