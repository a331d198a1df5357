package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/gavel-mcp/gavel/engine/record"
)

// Decisions are found in two stages. DecisionQuery.Matcher is authoritative, and sufficient for a small store. A
// larger store also keeps an index of terms: DecisionTerms returns the terms of an event, DecisionQuery.Terms those
// that a query requires. Terms only narrow the search and the matcher decides, so that a collision of terms costs an
// extra read but never a wrong result.

// maxWord limits the length of a word in characters, maxQueryTerms how many words of a query narrow the search.
const (
	maxWord       = 64
	maxQueryTerms = 32
)

// Matcher returns a function that reports whether an event, of an instance with this owner, is a decision that the
// query selects. Position, Limit and order are up to the driver.
func (q DecisionQuery) Matcher() func(e record.Event, owner string) bool {
	wanted := queryWords(q.Text)
	return func(e record.Event, owner string) bool {
		return e.Decision != nil && q.matchesNames(e, owner) && q.matchesRest(e) && (q.Text == "" || containsWords(e, wanted))
	}
}

// nameFields are the fields of a decision that are compared for equality, most selective first. names and
// decisionNames return their values in this order.
var nameFields = [...]rune{termOwner, termPrincipal, termCode, termAction, termWorkflow, termDecidedBy, termAssurance, termOutcome}

type names [len(nameFields)]string

func (q DecisionQuery) names() names {
	return names{q.Owner, q.Principal, q.Code, q.Action, q.Workflow, string(q.DecidedBy), string(q.Assurance), string(q.Outcome)}
}

func decisionNames(e record.Event, owner string) names {
	d := e.Decision
	return names{owner, e.Principal, d.Code, e.Action, e.Workflow, string(d.DecidedBy), string(d.Assurance), string(d.Outcome)}
}

func (q DecisionQuery) matchesNames(e record.Event, owner string) bool {
	have := decisionNames(e, owner)
	for i, want := range q.names() {
		if want != "" && want != have[i] {
			return false
		}
	}
	return q.Instance == "" || q.Instance == e.Instance
}

func (q DecisionQuery) matchesRest(e record.Event) bool {
	d := e.Decision
	switch {
	case q.Degraded != nil && *q.Degraded != d.Degraded,
		q.MinConfidence != nil && d.Confidence < *q.MinConfidence,
		q.MaxConfidence != nil && d.Confidence > *q.MaxConfidence,
		!q.Since.IsZero() && e.Time.Before(q.Since),
		!q.Until.IsZero() && !e.Time.Before(q.Until),
		len(q.Kinds) > 0 && !slices.Contains(q.Kinds, e.Kind):
		return false
	}
	return true
}

// MatchesText reports whether a decision's text contains every word of the query. A query without a text matches
// every decision.
func (q DecisionQuery) MatchesText(e record.Event) bool {
	return q.Text == "" || containsWords(e, queryWords(q.Text))
}

// containsWords reports whether a decision's text contains every word. It returns false if there are no words.
func containsWords(e record.Event, want []string) bool {
	if len(want) == 0 {
		return false
	}
	have := map[string]bool{}
	for _, w := range decisionWords(e) {
		have[w] = true
	}
	return !slices.ContainsFunc(want, func(w string) bool { return !have[w] })
}

// DecisionTerms returns the index terms of a decision; none if the event has no decision. Terms consist of ASCII
// letters and digits and of characters beyond ASCII.
func DecisionTerms(e record.Event, owner string) []string {
	d := e.Decision
	if d == nil {
		return nil
	}
	terms := []string{termOf(termDegraded, strconv.FormatBool(d.Degraded)), termOf(termKind, string(e.Kind)), confidenceTerm(bandOf(d.Confidence))}
	for i, name := range decisionNames(e, owner) {
		terms = append(terms, termOf(nameFields[i], name))
	}
	return append(terms, decisionWords(e)...)
}

// Terms returns lists of terms: a matching decision has at least one term of each list. It returns nil if terms do
// not narrow the search. Instance and times are not included: histories have their own index, and positions grow with
// time.
func (q DecisionQuery) Terms() [][]string {
	var out [][]string
	for i, want := range q.names() {
		if want != "" {
			out = append(out, []string{termOf(nameFields[i], want)})
		}
	}
	if q.Degraded != nil {
		out = append(out, []string{termOf(termDegraded, strconv.FormatBool(*q.Degraded))})
	}
	if len(q.Kinds) > 0 {
		kinds := make([]string, len(q.Kinds))
		for i, k := range q.Kinds {
			kinds[i] = termOf(termKind, string(k))
		}
		out = append(out, kinds)
	}
	if q.MinConfidence != nil || q.MaxConfidence != nil {
		out = append(out, q.confidenceTerms())
	}
	words := queryWords(q.Text)
	for _, w := range words[:min(len(words), maxQueryTerms)] {
		out = append(out, []string{w})
	}
	return out
}

// Empty reports whether the query can match nothing, whatever is stored: its text has no words, or its bounds exclude
// each other.
func (q DecisionQuery) Empty() bool {
	return q.Text != "" && len(queryWords(q.Text)) == 0 ||
		q.MinConfidence != nil && q.MaxConfidence != nil && *q.MinConfidence > *q.MaxConfidence ||
		!q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until)
}

// The prefixes of terms, one for each field. They are private-use characters, which do not occur in words.
const (
	termWorkflow rune = 0xe000 + iota
	termOwner
	termPrincipal
	termAction
	termOutcome
	termDecidedBy
	termAssurance
	termCode
	termDegraded
	termKind
	termConfidence
)

// termOf returns the term for a field's value. It hashes the value, because values may contain any characters.
func termOf(field rune, value string) string {
	sum := sha256.Sum256([]byte(value))
	return string(field) + hex.EncodeToString(sum[:8])
}

// bandsOfConfidence is the number of confidence bands that terms distinguish.
const bandsOfConfidence = 20

func bandOf(confidence float64) int {
	return int(min(max(confidence, 0), 1) * bandsOfConfidence)
}

func confidenceTerm(band int) string { return fmt.Sprintf("%c%02d", termConfidence, band) }

// confidenceTerms returns the terms of all bands that contain confidences within the query's bounds. Bands at the
// edges also contain a few confidences outside them.
func (q DecisionQuery) confidenceTerms() []string {
	from, to := 0, bandsOfConfidence
	if q.MinConfidence != nil {
		from = bandOf(*q.MinConfidence)
	}
	if q.MaxConfidence != nil {
		to = bandOf(*q.MaxConfidence)
	}
	var out []string
	for band := from; band <= to; band++ {
		out = append(out, confidenceTerm(band))
	}
	return out
}

// decisionWords returns the words of the parts of a decision that everyone who may see it can read: its reasoning and
// its findings.
func decisionWords(e record.Event) []string {
	var b strings.Builder
	b.WriteString(e.Decision.Reasoning)
	for _, f := range e.Decision.Findings {
		for _, s := range [...]string{f.Code, f.Path, f.Message, f.Hint} {
			b.WriteByte(' ')
			b.WriteString(s)
		}
	}
	return splitWords(b.String(), true)
}

// queryWords returns the words of a search text.
func queryWords(text string) []string { return splitWords(text, false) }

// splitWords splits a text into distinct words, in lower case and without accents. Text in scripts without spaces
// (Chinese, Japanese, ...) is split into pairs of adjacent characters. If all is set, each character is also added on
// its own so that it can be found. A symbol such as an emoji counts as a word.
func splitWords(text string, all bool) []string {
	s := splitter{seen: map[string]bool{}, all: all}
	for _, r := range norm.NFC.String(strings.Map(plainRune, norm.NFKD.String(text))) {
		switch {
		case isUnspaced(r):
			s.endWord()
			s.run = append(s.run, r)
			continue
		case unicode.In(r, unicode.L, unicode.N, unicode.M):
			s.endRun()
			s.word = append(s.word, r)
			continue
		case r > unicode.MaxASCII && r != unicode.ReplacementChar && unicode.Is(unicode.So, r):
			s.end()
			s.add(string(r))
			continue
		}
		s.end()
	}
	s.end()
	return s.out
}

// plainRune removes accents and converts to lower case.
func plainRune(r rune) rune {
	switch {
	case unicode.Is(unicode.Mn, r):
		return -1
	case r == 'ς':
		return 'σ'
	}
	return unicode.ToLower(r)
}

// isUnspaced reports whether a character belongs to a script that is written without spaces between words.
func isUnspaced(r rune) bool {
	return r >= 0x0e00 && (unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) || r == 'ー') && !unicode.In(r, unicode.P, unicode.S, unicode.Z)
}

type splitter struct {
	seen      map[string]bool
	out       []string
	all       bool
	word, run []rune
}

func (s *splitter) add(word string) {
	if !s.seen[word] {
		s.seen[word] = true
		s.out = append(s.out, word)
	}
}

func (s *splitter) end() { s.endWord(); s.endRun() }

func (s *splitter) endWord() {
	if len(s.word) > 0 {
		s.add(string(s.word[:min(len(s.word), maxWord)]))
		s.word = s.word[:0]
	}
}

func (s *splitter) endRun() {
	for i, r := range s.run {
		if s.all || len(s.run) == 1 {
			s.add(string(r))
		}
		if i > 0 {
			s.add(string(s.run[i-1 : i+1]))
		}
	}
	s.run = s.run[:0]
}
