package eval

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The rules that need more than one line, or the definition.
const (
	RuleDuplicateID       = "duplicate-id"
	RuleDuplicateContent  = "duplicate-content"
	RuleContradictory     = "contradictory-label"
	RuleLeakedGroup       = "leaked-group"
	RuleLeakedContent     = "leaked-content"
	RuleLeakedText        = "leaked-text"
	RuleUnknownWorkflow   = "unknown-workflow"
	RuleUnknownState      = "unknown-state"
	RuleUnknownAction     = "unknown-action"
	RuleUnknownCriterion  = "unknown-criterion"
	RuleSplitWithoutClass = "split-without-class"
	RuleTwinAlone         = "twin-alone"
)

// TagTwin marks a case that was made from another one of its group.
const TagTwin = "twin"

// minText is the minimum length of normalised data for the data alone to identify a case. Shorter data, such as
// {"ok":true}, is compared together with the context.
const minText = 80

// Issue is one defect of golden data. Returned as an error, it means that a line is not a case; the lines after it can
// still be read.
type Issue struct { //nolint:errname // most of them are listed, not returned
	File    string `json:"file"`
	Line    int    `json:"line"`
	Rule    string `json:"rule"`
	Case    string `json:"case,omitempty"`
	Message string `json:"message"`
}

func (i *Issue) Error() string {
	return fmt.Sprintf("%s:%d: %s [%s]", i.File, i.Line, i.Message, i.Rule)
}

// Criteria holds the criteria of a definition by state and action, in the order in which the judge numbers them.
// Golden data may name no others.
type Criteria map[string]map[string][]string

// Resolver finds the definition that a case names or contains. file is the file of the case. The error describes what
// is wrong with workflow.
type Resolver func(file string, workflow json.RawMessage) (Criteria, error)

// Linter checks golden data one case at a time, and keeps only digests of the cases.
type Linter struct {
	resolve Resolver
	issues  []Issue
	// ids, contents, texts and groups hold where each was first seen.
	ids, contents, texts, groups map[string]spot
	splits                       map[Split]*splitSeen
	twins                        map[string][]spot // by group
	partners                     map[string]bool   // groups with a case that is not a twin
	digests                      [][sha256.Size]byte
	summary                      Summary
}

// Summary describes a set of cases.
type Summary struct {
	Cases int `json:"cases"`
	// Digest identifies the cases ("sha256:…"), independent of files and order. A report on all cases of the set has
	// the same digest.
	Digest   string         `json:"digest"`
	Splits   map[Split]int  `json:"splits"`
	Outcomes map[string]int `json:"outcomes"`
}

type spot struct {
	file    string
	line    int
	id      string
	split   Split
	outcome judge.Outcome
}

func (p spot) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

type splitSeen struct {
	first               spot
	approved, unallowed int
}

// NewLinter returns an empty linter. If resolve is nil, it omits the rules that need a definition.
func NewLinter(resolve Resolver) *Linter {
	return &Linter{
		resolve: resolve, issues: []Issue{},
		ids: map[string]spot{}, contents: map[string]spot{}, texts: map[string]spot{}, groups: map[string]spot{},
		splits: map[Split]*splitSeen{}, twins: map[string][]spot{}, partners: map[string]bool{},
		summary: Summary{Splits: map[Split]int{}, Outcomes: map[string]int{}},
	}
}

// Add examines the next case.
func (l *Linter) Add(g Golden) {
	at := spot{g.File, g.Line, g.ID, g.Split, g.Expect.Outcome}
	l.summary.Cases++
	l.summary.Splits[g.Split]++
	l.summary.Outcomes[string(g.Expect.Outcome)]++
	l.digests = append(l.digests, digestOf(&g.Case))
	if first, again := l.ids[g.ID]; again {
		l.addIssue(at, RuleDuplicateID, "duplicate id %q, first at %s; give every case its own", ClipQuote(g.ID), first)
	} else {
		l.ids[g.ID] = at
	}
	l.checkContent(g, at)
	l.checkGroup(g, at)
	l.countClass(at)
	l.checkDefinition(g, at)
}

func (l *Linter) addIssue(at spot, rule, format string, args ...any) {
	l.issues = append(l.issues, Issue{at.file, at.line, rule, at.id, fmt.Sprintf(format, args...)})
}

func (l *Linter) checkContent(g Golden, at spot) {
	key, text := contentKeys(g.Case)
	first, again := l.contents[key]
	switch {
	case !again:
		l.contents[key] = at
	case first.outcome != at.outcome:
		l.addIssue(at, RuleContradictory, "this is the same case as %s, which expects %s, while this one expects %s; decide which is right", first, first.outcome, at.outcome)
	default:
		l.addIssue(at, RuleDuplicateContent, "this is the same case as %s; remove one", first)
	}
	if again && first.split != at.split {
		l.addIssue(at, RuleLeakedContent, "this is the same case as %s, which is in the split %s, while this one is in %s; keep it in one", first, first.split, at.split)
	}
	if near, seen := l.texts[text]; !seen {
		l.texts[text] = at
	} else if near.split != at.split && !again {
		l.addIssue(at, RuleLeakedText, "except for case, spacing and punctuation these are the words of %s, which is in the split %s, while this one is in %s; keep them in one", near, near.split, at.split)
	}
}

func (l *Linter) checkGroup(g Golden, at spot) {
	if g.Group == "" {
		if slices.Contains(g.Tags, TagTwin) {
			l.addIssue(at, RuleTwinAlone, "this is a twin and has no group; give it the group of the case that it was made from")
		}
		return
	}
	if first, seen := l.groups[g.Group]; !seen {
		l.groups[g.Group] = at
	} else if first.split != at.split {
		l.addIssue(at, RuleLeakedGroup, "the group %q is in the split %s at %s and in %s here; keep it in one", ClipQuote(g.Group), first.split, first, at.split)
	}
	if slices.Contains(g.Tags, TagTwin) {
		l.twins[g.Group] = append(l.twins[g.Group], at)
	} else {
		l.partners[g.Group] = true
	}
}

func (l *Linter) countClass(at spot) {
	s := l.splits[at.split]
	if s == nil {
		s = &splitSeen{first: at}
		l.splits[at.split] = s
	}
	if at.outcome == judge.Approve {
		s.approved++
	} else {
		s.unallowed++
	}
}

func (l *Linter) checkDefinition(g Golden, at spot) {
	if l.resolve == nil {
		return
	}
	states, err := l.resolve(g.File, g.Workflow)
	if err != nil {
		l.addIssue(at, RuleUnknownWorkflow, "%v", err)
		return
	}
	actions, ok := states[g.State]
	if !ok {
		l.addIssue(at, RuleUnknownState, "the workflow has no state %q; %s", ClipQuote(g.State), suggestWord(g.State, slices.Sorted(maps.Keys(states))))
		return
	}
	criteria, ok := actions[g.Action]
	if !ok {
		l.addIssue(at, RuleUnknownAction, "the state %q has no action %q; %s", ClipQuote(g.State), ClipQuote(g.Action), suggestWord(g.Action, slices.Sorted(maps.Keys(actions))))
		return
	}
	for _, id := range slices.Sorted(maps.Keys(g.Expect.Criteria)) {
		n, err := strconv.Atoi(strings.TrimPrefix(id, "c"))
		isNumbered := err == nil && n >= 1 && n <= len(criteria) && id == "c"+strconv.Itoa(n)
		if !isNumbered && !slices.Contains(criteria, id) {
			l.addIssue(at, RuleUnknownCriterion, "expect.criteria names %q; the action has %s", ClipQuote(id), namesOf(criteria))
		}
	}
}

func namesOf(criteria []string) string {
	switch len(criteria) {
	case 0:
		return "no criteria"
	case 1:
		return fmt.Sprintf("one, c1 (%q)", ClipQuote(criteria[0]))
	}
	return fmt.Sprintf("c1 to c%d; give one of these, or a criterion's whole text", len(criteria))
}

// Finish returns all issues, by file and line, and the summary of the set. Cases may be added afterwards, and Finish
// called again.
func (l *Linter) Finish() ([]Issue, Summary) {
	rest := &Linter{issues: slices.Clone(l.issues)}
	for group, all := range l.twins {
		for _, at := range all {
			if !l.partners[group] {
				rest.addIssue(at, RuleTwinAlone, "this is a twin, and its group %q has no case that is none; add the one that it was made from", ClipQuote(group))
			}
		}
	}
	for split, s := range l.splits {
		switch {
		case s.approved == 0:
			rest.addIssue(s.first, RuleSplitWithoutClass, "the split %s, which begins here, has no case to approve; no figure on refused work can come from it", split)
		case s.unallowed == 0:
			rest.addIssue(s.first, RuleSplitWithoutClass, "the split %s, which begins here, has no case to reject or escalate; no figure on wrong approvals can come from it", split)
		}
	}
	slices.SortStableFunc(rest.issues, func(a, b Issue) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule))
	})
	sum := l.summary
	sum.Digest = digestAll(slices.Clone(l.digests))
	return rest.issues, sum
}

// Lint adds all cases of a file. The error means that reading failed.
func (l *Linter) Lint(cases func(yield func(Golden, error) bool)) error {
	for g, err := range cases {
		var bad *Issue
		switch {
		case errors.As(err, &bad):
			l.issues = append(l.issues, *bad)
		case err != nil:
			return err
		default:
			l.Add(g)
		}
	}
	return nil
}

// ContentOf digests the judged content of a case, without its label, tags and split.
func ContentOf(c Case) string {
	exact, _ := contentKeys(c)
	return "sha256:" + hex.EncodeToString([]byte(exact))
}

// contentKeys returns two digests of the judged content: of the exact content, and of its words.
func contentKeys(c Case) (exact, words string) {
	head := fmt.Sprintf("%s\x00%s\x00%s\x00", sortedKeys(c.Workflow), c.State, c.Action)
	rest, _ := json.Marshal([]any{c.Evidence, c.History, c.Principal, c.Role}) // strings and valid JSON
	sum := sha256.Sum256(fmt.Appendf(nil, "%s%s\x00%s\x00%s", head, sortedKeys(c.Context), sortedKeys(c.Data), sortedKeys(rest)))
	text := judge.Fingerprint(sortedKeys(c.Data))
	if len(text) < minText {
		text = fmt.Appendf(text, "\x00%s\x00%s", judge.Fingerprint(sortedKeys(c.Context)), judge.Fingerprint(rest))
	}
	near := sha256.Sum256(append([]byte(head), text...))
	return string(sum[:]), string(near[:])
}

func sortedKeys(doc json.RawMessage) json.RawMessage {
	if kindOf(doc) == 0 {
		return json.RawMessage("{}")
	}
	v := document.ReadTrusted(doc)
	if v.Kind() == 0 {
		return doc
	}
	text, err := json.Marshal(v.Any())
	if err != nil {
		return doc
	}
	return text
}
