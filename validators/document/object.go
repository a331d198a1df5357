package document

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ObjectReader reads the keys of one object and collects every mistake instead of stopping at the first. Any
// method that reads a key makes it known; Unknown reports the keys that are not. Readers derived from one
// another share one report.
//
// A reader of an absent object (including a nil reader) reads as empty and reports nothing, so optional
// sections need no special case. An explicit null is not absent; it has the wrong type.
type ObjectReader struct {
	node    *Node
	report  *report
	known   []string // in the order of the first read
	isKnown map[string]bool
}

// NewObject returns a reader of n. If n is not an object, it reports that as the first issue, and the
// reader is empty.
func NewObject(n *Node) *ObjectReader {
	root := &ObjectReader{report: &report{source: n.Source()}}
	return root.Sub(n)
}

// Sub reads another object of the same document into the same report, such as an element of an array or the
// value of an Entries pair.
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

// Node returns the object itself, or nil if it is absent.
func (o *ObjectReader) Node() *Node {
	if o == nil {
		return nil
	}
	return o.node
}

// Value returns the value of a key, of any kind, or nil if it is absent.
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

// Has reports whether a key is present.
func (o *ObjectReader) Has(key string) bool { return o.Value(key) != nil }

// readKind returns the value of a key. A value of another kind is reported and read as absent.
func (o *ObjectReader) readKind(key string, kind Kind) *Node {
	n := o.Value(key)
	if n != nil && n.Kind != kind {
		o.rejectKind(n, kind.String())
		return nil
	}
	return n
}

// String returns a string, or "" if it is absent.
func (o *ObjectReader) String(key string) string {
	if n := o.readKind(key, String); n != nil {
		return n.Text
	}
	return ""
}

// StringPtr returns a string, or nil if it is absent.
func (o *ObjectReader) StringPtr(key string) *string {
	if n := o.readKind(key, String); n != nil {
		return &n.Text
	}
	return nil
}

// Bool returns a boolean, or false if it is absent.
func (o *ObjectReader) Bool(key string) bool {
	p := o.BoolPtr(key)
	return p != nil && *p
}

// BoolPtr returns a boolean, or nil if it is absent.
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

// FloatPtr returns a number, or nil if it is absent.
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

// IntPtr returns a whole number, or nil if it is absent. 1e3 and 2.0 are whole. The magnitude is at most 2^53.
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

// Enum returns a string that must be one of the allowed ones, or "" if it is absent. The issue for another
// string lists them.
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

// Strings returns an array of strings. It is nil if absent, and not nil if empty.
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

// OneOrMore returns a string or an array of strings as a slice, or nil if it is absent.
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

// StringMap returns an object whose values are strings, or nil if it is absent.
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

// Raw returns a value as compact JSON, or nil if it is absent.
func (o *ObjectReader) Raw(key string) json.RawMessage { return o.Value(key).JSON() }

// Object returns a reader of an object, which reads as empty if the object is absent.
func (o *ObjectReader) Object(key string) *ObjectReader { return o.Sub(o.Value(key)) }

// Items returns the elements of an array, or nil if it is absent.
func (o *ObjectReader) Items(key string) []*Node {
	if n := o.readKind(key, Array); n != nil {
		return n.Items
	}
	return nil
}

// Entries returns the pairs of an object with arbitrary keys (such as names of states), in the order of the
// document. It returns nil if the object is absent.
func (o *ObjectReader) Entries(key string) []Member {
	if n := o.readKind(key, Object); n != nil {
		return n.Members
	}
	return nil
}

// Require reports each of the keys that is absent.
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

// Fail reports that a value is not allowed. The message is a sentence without a position and without values
// that may be secret.
func (o *ObjectReader) Fail(n *Node, format string, args ...any) {
	if o != nil {
		o.report.add(newIssue(n, RuleValue, fmt.Sprintf(format, args...)))
	}
}

// Unknown reports every key that has not been read, with the nearest known one. Call it after all other
// methods. Keys in extra also count as known.
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

// Err returns all issues of this reader and of those that share its report, as Errors ordered by line. It
// returns nil if there are none.
func (o *ObjectReader) Err() error {
	if o == nil {
		return nil
	}
	return o.report.buildError()
}

func (o *ObjectReader) rejectKind(n *Node, want string) {
	o.report.add(newIssue(n, RuleType, fmt.Sprintf("expected %s, got %s", want, n.Kind)))
}

// maxIssues limits the issues of a report; further ones are only counted.
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

// suggest adds the nearest known word to the message and reports whether there is one.
func (i *Issue) suggest(word string, known []string) bool {
	i.Suggestion = Suggest(word, known)
	if i.Suggestion == "" {
		return false
	}
	i.Message += fmt.Sprintf("; did you mean %q?", i.Suggestion)
	return true
}

// maxListed limits how many words a message lists.
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
