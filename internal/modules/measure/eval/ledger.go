package eval

import (
	"cmp"
	"container/heap"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
)

// Ledger keeps only what the figures of a run need: a small record of each case without context, data and evidence,
// and each result without quotes. It keeps texts (the judge's, and the notes of cases) and views up to a limit,
// preferring those of the worst outcomes. The figures over a Ledger equal those over the complete run, including the
// digest of the cases.
//
// The zero Ledger is empty. It is not safe for concurrent use.
type Ledger struct {
	Cases   []Case
	Results []Result
	// ViewBytes limits the views; 0 is 8 MiB.
	ViewBytes int
	// SystemPrompts are the system prompts sent to a model, without duplicates.
	SystemPrompts []string

	texts     map[string]string // interned texts that occur often
	workflows map[string]json.RawMessage
	lists     map[string][]string
	labels    map[string]map[string]string
	words     caseHeap
	viewed    caseHeap
	views     map[int]View // by the case's index
}

// Limits of a Ledger. maxWord is the maximum size of the text of one result or note, maxWords that of all texts, both
// in bytes. maxTexts limits how many different texts are interned.
const (
	maxWord   = 4 << 10
	maxWords  = 4 << 20
	maxTexts  = 10_000
	separator = "\x00"
)

// Add adds a case with its results.
func (l *Ledger) Add(c Case, results []Result) {
	small := l.withoutJudgeInput(c)
	words := caseWords{at: len(l.Cases), first: len(l.Results), n: len(results), bytes: len(small.Notes)}
	view, size := newView(c, results)
	for _, r := range results {
		for _, e := range r.Asked {
			if !slices.Contains(l.SystemPrompts, e.System) && len(l.SystemPrompts) < maxSystemPrompts {
				l.SystemPrompts = append(l.SystemPrompts, e.System)
			}
		}
		r = l.withoutQuotes(small, r)
		words.bytes += len(r.Reasoning)
		words.rank(&small, &r)
		l.Results = append(l.Results, r)
	}
	l.Cases = append(l.Cases, small)
	l.words.keep(words, maxWords, func(s caseWords) {
		l.Cases[s.at].Notes = ""
		for i := range s.n {
			l.Results[s.first+i].Reasoning = ""
		}
	})
	if l.views == nil {
		l.views = map[int]View{}
	}
	l.views[words.at], words.bytes = view, size
	l.viewed.keep(words, cmp.Or(l.ViewBytes, MaxViews), func(s caseWords) { delete(l.views, s.at) })
}

// Views returns the views that were kept, in the order of the cases.
func (l *Ledger) Views() []View {
	var all []View
	for _, at := range slices.Sorted(maps.Keys(l.views)) {
		all = append(all, l.views[at])
	}
	return all
}

func (l *Ledger) withoutJudgeInput(c Case) Case {
	sum := digestOf(&c)
	c.Workflow = l.workflow(&c)
	c.Context, c.Data, c.Evidence, c.History = nil, nil, nil, nil
	c.Tags, c.Expect.ViolationsAny, c.Expect.Criteria = l.list(c.Tags), l.list(c.Expect.ViolationsAny), l.label(c.Expect.Criteria)
	for _, text := range []*string{&c.State, &c.Action, &c.Principal, &c.Role, (*string)(&c.Expect.Outcome), &c.Label.Source, &c.Label.By, &c.Risk, (*string)(&c.Split)} {
		*text = l.intern(*text)
	}
	c.Notes = truncateText(c.Notes, maxWord)
	c.Digest = hex.EncodeToString(sum[:])
	return c
}

// withoutQuotes returns the result without quotes, and with the answers to labelled criteria only.
func (l *Ledger) withoutQuotes(c Case, r Result) Result {
	r.Case, r.Reasoning, r.Asked = c.ID, truncateText(r.Reasoning, maxWord), nil
	r.Codes = l.list(r.Codes)
	for _, text := range []*string{&r.Failure, &r.Code, (*string)(&r.DecidedBy), (*string)(&r.Assurance), &r.Model, &r.PromptDigest, &r.CriteriaDigest, &r.Rung} {
		*text = l.intern(*text)
	}
	var answers []judge.CriterionVerdict
	for _, a := range r.Criteria {
		if answers == nil && len(c.Expect.Criteria) > 0 {
			answers = make([]judge.CriterionVerdict, 0, len(c.Expect.Criteria))
		}
		for name := range c.Expect.Criteria {
			if _, names := AnswerTo(name, []judge.CriterionVerdict{a}); names {
				answers = append(answers, judge.CriterionVerdict{ID: l.intern(a.ID), Text: l.intern(a.Text), Status: l.intern(a.Status)})
				break
			}
		}
	}
	r.Criteria = answers
	return r
}

func (l *Ledger) intern(text string) string {
	return reuseValue(&l.texts, text, func() string { return text })
}

func (l *Ledger) list(all []string) []string {
	if len(all) == 0 {
		return nil
	}
	return reuseValue(&l.lists, strings.Join(all, separator), func() []string { return all })
}

func (l *Ledger) label(criteria map[string]string) map[string]string {
	if len(criteria) == 0 {
		return nil
	}
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(criteria)) {
		key.WriteString(name + separator + criteria[name] + separator)
	}
	return reuseValue(&l.labels, key.String(), func() map[string]string { return criteria })
}

// workflow returns the reference to a case's definition as JSON, or the definition's name if there is no reference.
func (l *Ledger) workflow(c *Case) json.RawMessage {
	var w struct{ Ref, Name string }
	if json.Unmarshal(c.Workflow, &w) != nil {
		return nil
	}
	return reuseValue(&l.workflows, w.Ref+separator+w.Name, func() json.RawMessage {
		key, name := "ref", w.Ref
		if w.Ref == "" {
			key, name = "name", w.Name
		}
		out, err := json.Marshal(map[string]string{key: name})
		if err != nil {
			return nil // a string can always be encoded
		}
		return out
	})
}

// reuseValue returns the value stored for the key, or else computes and stores it. It stores at most maxTexts values.
func reuseValue[V any](values *map[string]V, key string, value func() V) V {
	if v, ok := (*values)[key]; ok {
		return v
	}
	v := value()
	if *values == nil {
		*values = map[string]V{}
	}
	if len(*values) < maxTexts {
		(*values)[key] = v
	}
	return v
}

// caseWords describes the texts of a case and its results, or its view. They are dropped together.
type caseWords struct {
	at, first, n int // index of the case and of its first result, and the number of results
	bytes        int
	worth        int // 0 if right, 1 if failed, else GradeOutcome plus 1
	confidence   float64
}

func (s *caseWords) rank(c *Case, r *Result) {
	worth := 1
	if !IsFailed(r) {
		if worth = GradeOutcome(Row{Case: c, Result: r, Expect: c.Expect.Outcome, Got: r.Outcome}); worth > 0 {
			worth++
		}
	}
	if worth > s.worth || worth == s.worth && r.Confidence > s.confidence {
		s.worth, s.confidence = worth, r.Confidence
	}
}

// caseHeap keeps the texts of cases up to a limit. The least valuable is on top; among equals, the latest.
type caseHeap struct {
	all   []caseWords
	bytes int
}

// keep adds texts. While the total is above most bytes, it removes the least valuable ones and passes them to forget.
func (h *caseHeap) keep(s caseWords, most int, forget func(caseWords)) {
	if s.bytes == 0 {
		return
	}
	heap.Push(h, s)
	for h.bytes += s.bytes; h.bytes > most; {
		last := heap.Pop(h).(caseWords) //nolint:forcetypeassert // the heap holds nothing else
		h.bytes -= last.bytes
		forget(last)
	}
}

func (h *caseHeap) Len() int      { return len(h.all) }
func (h *caseHeap) Swap(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] }
func (h *caseHeap) Less(i, j int) bool {
	a, b := h.all[i], h.all[j]
	return cmp.Or(cmp.Compare(a.worth, b.worth), cmp.Compare(a.confidence, b.confidence), cmp.Compare(b.at, a.at)) < 0
}

// Push implements heap.Interface.
func (h *caseHeap) Push(v any) { h.all = append(h.all, v.(caseWords)) } //nolint:forcetypeassert // the heap holds nothing else

// Pop implements heap.Interface.
func (h *caseHeap) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	return last
}
