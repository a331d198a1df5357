package document

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ObjectReader reads the keys of one object and collects every mistake instead
// of stopping at the first. A key is known once it was asked for by any method;
// Unknown reports the others. Readers made from one another share their report.
//
// A reader of an absent object (nil included) reads as empty and reports nothing,
// so optional sections need no special case. An explicit null is not absent: it
// is of the wrong type.
type ObjectReader struct {
	node    *Node
	report  *report
	known   []string // in the order in which they were asked for
	isKnown map[string]bool
}

// NewObject reads n, which should be an object; when it is not, that is the first
// issue and the reader is empty.
func NewObject(n *Node) *ObjectReader {
	root := &ObjectReader{report: &report{source: n.Source()}}
	return root.Sub(n)
}

// Sub reads another value of the same document, such as an element of an array
// or the value of an Entries pair, into the same report.
func (o *ObjectReader) Sub(n *Node) *ObjectReader {
	if n == nil || o == nil {
		return nil
	}
	if n.Kind != Object {
		o.rejectKind(n, Object.String())
		n = nil
	}
	return &ObjectReader{node: n, report: o.report, isKnown: map[string]bool{}}
}

// Node is the object itself, nil when absent.
func (o *ObjectReader) Node() *Node {
	if o == nil {
		return nil
	}
	return o.node
}

// Value returns the value of a key whatever its kind, nil when it is absent.
func (o *ObjectReader) Value(key string) *Node {
	if o == nil {
		return nil
	}
	if !o.isKnown[key] {
		o.isKnown[key] = true
		o.known = append(o.known, key)
	}
	return o.node.Get(key)
}

// Has says whether a key is there.
func (o *ObjectReader) Has(key string) bool { return o.Value(key) != nil }

// readKind returns the value of a key when it has the wanted kind.
func (o *ObjectReader) readKind(key string, kind Kind) *Node {
	n := o.Value(key)
	if n != nil && n.Kind != kind {
		o.rejectKind(n, kind.String())
		return nil
	}
	return n
}

// String returns a string, "" when absent.
func (o *ObjectReader) String(key string) string {
	if n := o.readKind(key, String); n != nil {
		return n.Text
	}
	return ""
}

// StringPtr returns a string, nil when absent.
func (o *ObjectReader) StringPtr(key string) *string {
	if n := o.readKind(key, String); n != nil {
		return &n.Text
	}
	return nil
}

// Bool returns a boolean, false when absent.
func (o *ObjectReader) Bool(key string) bool {
	p := o.BoolPtr(key)
	return p != nil && *p
}

// BoolPtr returns a boolean, nil when absent.
func (o *ObjectReader) BoolPtr(key string) *bool {
	n := o.Value(key)
	if n == nil {
		return nil
	}
	if n.Kind != True && n.Kind != False {
		o.rejectKind(n, True.String())
		return nil
	}
	v := n.Kind == True
	return &v
}

// FloatPtr returns a number, nil when absent.
func (o *ObjectReader) FloatPtr(key string) *float64 {
	n := o.readKind(key, Number)
	if n == nil {
		return nil
	}
	v, err := strconv.ParseFloat(n.Text, 64)
	if err != nil {
		o.rejectKind(n, "a number that a 64-bit float can hold")
		return nil
	}
	return &v
}

// IntPtr returns a whole number, nil when absent. 1e3 and 2.0 are whole.
func (o *ObjectReader) IntPtr(key string) *int {
	f := o.FloatPtr(key)
	if f == nil {
		return nil
	}
	if *f != math.Trunc(*f) || math.Abs(*f) > 1<<53 {
		o.rejectKind(o.Value(key), "a whole number")
		return nil
	}
	v := int(*f)
	return &v
}

// Enum returns a string that is one of those allowed, "" when absent. A wrong one
// is an issue that lists them.
func (o *ObjectReader) Enum(key string, allowed ...string) string {
	n := o.readKind(key, String)
	if n == nil {
		return ""
	}
	if slices.Contains(allowed, n.Text) {
		return n.Text
	}
	issue := newIssue(n, RuleValue, fmt.Sprintf("%q must be one of %s", clipKey(key), listWords(allowed)))
	issue.suggest(n.Text, allowed)
	o.report.add(issue)
	return ""
}

// Strings returns an array of strings, nil when absent and not nil when empty.
func (o *ObjectReader) Strings(key string) []string {
	n := o.readKind(key, Array)
	if n == nil {
		return nil
	}
	out := make([]string, 0, len(n.Items))
	for _, v := range n.Items {
		if v.Kind != String {
			o.rejectKind(v, String.String())
			continue
		}
		out = append(out, v.Text)
	}
	return out
}

// OneOrMore returns a string, or an array of strings; nil when absent.
func (o *ObjectReader) OneOrMore(key string) []string {
	n := o.Value(key)
	switch {
	case n == nil:
		return nil
	case n.Kind == String:
		return []string{n.Text}
	case n.Kind == Array:
		return o.Strings(key)
	}
	o.rejectKind(n, "a string or an array of strings")
	return nil
}

// StringMap returns an object whose values are strings, nil when absent.
func (o *ObjectReader) StringMap(key string) map[string]string {
	n := o.readKind(key, Object)
	if n == nil {
		return nil
	}
	out := make(map[string]string, len(n.Members))
	for _, m := range n.Members {
		if m.Value.Kind != String {
			o.rejectKind(m.Value, String.String())
			continue
		}
		out[m.Key] = m.Value.Text
	}
	return out
}

// Raw returns a value as compact JSON, nil when absent.
func (o *ObjectReader) Raw(key string) json.RawMessage { return o.Value(key).JSON() }

// Object returns a reader of an object, one that reads as empty when absent.
func (o *ObjectReader) Object(key string) *ObjectReader { return o.Sub(o.Value(key)) }

// Items returns the elements of an array, nil when absent.
func (o *ObjectReader) Items(key string) []*Node {
	if n := o.readKind(key, Array); n != nil {
		return n.Items
	}
	return nil
}

// Entries returns the pairs of an object whose keys are free (such as names of
// states), in the order of the document; nil when absent.
func (o *ObjectReader) Entries(key string) []Member {
	if n := o.readKind(key, Object); n != nil {
		return n.Members
	}
	return nil
}

// Require reports those of the keys that are absent.
func (o *ObjectReader) Require(keys ...string) {
	for _, key := range keys {
		if o == nil || o.node == nil || o.Has(key) {
			continue
		}
		issue := newIssue(o.node, RuleMissing, fmt.Sprintf("missing key %q", clipKey(key)))
		issue.Key = key
		o.report.add(issue)
	}
}

// Fail reports that a value is not allowed. The message is a sentence without a
// position and without values that may be secret.
func (o *ObjectReader) Fail(n *Node, format string, args ...any) {
	if o != nil {
		o.report.add(newIssue(n, RuleValue, fmt.Sprintf(format, args...)))
	}
}

// Unknown reports every key that was not asked for, with the nearest known one.
// Call it after all the others. extra are keys that are known without having been
// read.
func (o *ObjectReader) Unknown(extra ...string) {
	if o == nil || o.node == nil {
		return
	}
	for _, key := range extra {
		o.Value(key)
	}
	for _, m := range o.node.Members {
		if o.isKnown[m.Key] {
			continue
		}
		issue := newIssue(m.Value, RuleUnknownKey, fmt.Sprintf("unknown key %q", clipKey(m.Key)))
		issue.Line, issue.Column, issue.Key = m.Line, m.Column, m.Key
		if !issue.suggest(m.Key, o.known) {
			issue.Message += "; known keys are " + listWords(o.known)
		}
		o.report.add(issue)
	}
}

// Err returns every issue found so far by this reader and all that share its
// report, ordered by line, as Errors; nil when there is none.
func (o *ObjectReader) Err() error {
	if o == nil {
		return nil
	}
	return o.report.buildError()
}

func (o *ObjectReader) rejectKind(n *Node, want string) {
	o.report.add(newIssue(n, RuleType, fmt.Sprintf("expected %s, got %s", want, n.Kind)))
}

// maxIssues bounds a report; what comes after is counted, not listed.
const maxIssues = 50

type report struct {
	source  string
	issues  Errors
	dropped int
}

func (r *report) add(i *Issue) {
	if len(r.issues) >= maxIssues {
		r.dropped++
		return
	}
	i.Source = r.source
	r.issues = append(r.issues, i)
}

func (r *report) buildError() error {
	if len(r.issues) == 0 {
		return nil
	}
	out := slices.Clone(r.issues)
	slices.SortStableFunc(out, func(a, b *Issue) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	if r.dropped > 0 {
		out = append(out, &Issue{Rule: RuleValue, Source: r.source, Message: fmt.Sprintf("and %d more", r.dropped)})
	}
	return out
}

func newIssue(n *Node, rule Rule, message string) *Issue {
	i := &Issue{Rule: rule, Message: message, Path: n.ShownPath()}
	if n != nil {
		i.Line, i.Column = n.Line, n.Column
	}
	return i
}

// suggest adds the nearest of the known words to the message.
func (i *Issue) suggest(word string, known []string) bool {
	i.Suggestion = Suggest(word, known)
	if i.Suggestion == "" {
		return false
	}
	i.Message += fmt.Sprintf("; did you mean %q?", i.Suggestion)
	return true
}

// maxListed bounds how many words a message lists.
const maxListed = 30

func listWords(words []string) string {
	quoted := make([]string, 0, min(len(words), maxListed)+1)
	for i, w := range words {
		if i == maxListed {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(words)-i))
			break
		}
		quoted = append(quoted, strconv.Quote(clipKey(w)))
	}
	return strings.Join(quoted, ", ")
}
