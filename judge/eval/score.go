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

type row struct {
	c      *Case
	r      *Result
	group  string
	expect judge.Outcome
	got    judge.Outcome // under the policy for unreadable answers
	weight float64
}

// mustNot includes escalate: an approval is as wrong there as for a case to reject.
func (w row) mustNot() bool { return w.expect != judge.Approve }

func (w row) falseApprove() bool { return w.mustNot() && w.got == judge.Approve }

func (w row) isExact() bool     { return w.expect == w.got }
func (w row) isGateRight() bool { return (w.expect == judge.Approve) == (w.got == judge.Approve) }

// scoredCases joins cases and results, sorted by group, case and repeat, so that no figure depends on the order of
// the input.
type scoredCases struct {
	rows   []row
	cases  []*Case              // counted
	by     map[string][]*Result // results of each case, by repeat
	counts Counts
	lost   []*Case // cases without a known outcome
	// unreadable also counts those that policy excludes.
	unreadable tally
}

func joinResults(cases []Case, results []Result, o Options) scoredCases {
	s := scoredCases{by: make(map[string][]*Result, len(cases))}
	s.counts.Splits = map[Split]int{}
	other := map[string]bool{} // cases in splits that were not requested
	for i := range cases {
		c := &cases[i]
		if _, ok := s.by[c.ID]; ok || other[c.ID] {
			s.counts.DuplicateCases++
			continue
		}
		if !o.includesSplit(c.Split) {
			other[c.ID] = true
			continue
		}
		s.by[c.ID] = nil
		s.cases = append(s.cases, c)
		s.counts.Splits[c.Split]++
	}
	slices.SortStableFunc(s.cases, func(a, b *Case) int {
		return cmp.Or(cmp.Compare(a.GroupKey(), b.GroupKey()), cmp.Compare(a.ID, b.ID))
	})
	for i := range results {
		r := &results[i]
		if of, ok := s.by[r.Case]; ok {
			s.by[r.Case] = append(of, r)
		} else if !other[r.Case] {
			s.counts.UnknownResults++
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

func (s *scoredCases) score(o Options) {
	failures := map[string]int{}
	labels := map[string]int{}
	for _, c := range s.cases {
		labels[cmp.Or(c.Label.Source, "unknown")]++
		all := s.repeatsOf(c.ID)
		for _, r := range all {
			if isFailed(r) {
				failures[cmp.Or(r.Failure, "no outcome")]++
				s.counts.FailedResults++
			}
		}
		scored := false
		for _, r := range all {
			if isFailed(r) {
				continue
			}
			scored = true
			s.addRow(c, r, o.Unreadable)
			if !o.Pool {
				break
			}
		}
		switch {
		case scored:
			continue
		case len(all) == 0:
			s.counts.Missing++
		default:
			s.counts.Failed++
		}
		s.lost = append(s.lost, c)
	}
	s.counts.Cases = len(s.cases)
	s.counts.Scored = len(s.rows)
	s.counts.Failures = sortTallies(failures)
	s.counts.Labels = sortTallies(labels)
	s.counts.Digest = digestCases(s.cases)
	for i, w := range s.rows {
		if i == 0 || w.group != s.rows[i-1].group {
			s.counts.Groups++
		}
		switch w.expect {
		case judge.Approve:
			s.counts.ExpectApprove++
		case judge.Escalate:
			s.counts.ExpectEscalate++
		default:
			s.counts.ExpectReject++
		}
	}
}

// repeatsOf returns the results of a case in order, each repeat once.
func (s *scoredCases) repeatsOf(id string) []*Result {
	all := s.by[id]
	slices.SortStableFunc(all, func(a, b *Result) int { return cmp.Compare(a.Repeat, b.Repeat) })
	once := slices.CompactFunc(all, func(a, b *Result) bool { return a.Repeat == b.Repeat })
	s.counts.DuplicateResults += len(all) - len(once)
	s.counts.Results += len(once)
	s.by[id] = once
	return once
}

// isFailed reports a failure, or an invalid outcome: then nothing is known about the judge.
func isFailed(r *Result) bool {
	return r.Failure != "" || (r.Outcome != judge.Approve && r.Outcome != judge.Reject && r.Outcome != judge.Escalate)
}

func (s *scoredCases) addRow(c *Case, r *Result, policy Policy) {
	w := row{c: c, r: r, group: c.GroupKey(), expect: c.Expect.Outcome, weight: c.Weight}
	if w.weight <= 0 {
		w.weight = 1
	}
	s.unreadable.add(w.group, r.Unreadable)
	if r.Unreadable {
		s.counts.Unreadable++
	}
	var counts bool
	if w.got, counts = r.outcomeUnder(policy, w.mustNot()); !counts {
		s.counts.Excluded++
		return
	}
	s.rows = append(s.rows, w)
}

// outcomeUnder returns the outcome that a result counts as under the policy for unreadable answers; counts is false
// if it is excluded.
func (r *Result) outcomeUnder(policy Policy, mustNot bool) (got judge.Outcome, counts bool) {
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
func groupStarts(rows []row) []int {
	var starts []int
	for i := range rows {
		if i == 0 || rows[i].group != rows[i-1].group {
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

// workflowOf names a case's workflow: the part of ref after #, ref itself, or the
// definition's name.
func workflowOf(c *Case) string {
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
