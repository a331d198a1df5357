package workflow

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// Masked is what stands in place of a sensitive value in the masked copies of a
// Case and in scrubbed text.
const Masked = "[masked]"

// wildcard is the token of a sensitive pointer that stands for every key of an
// object and every element of an array.
const wildcard = "*"

// shortestScrubbed is the length in bytes from which Scrubber removes a value:
// shorter ones occur in ordinary text by chance.
const shortestScrubbed = 4

// Mask returns a copy of doc in which every sensitive value is replaced by the
// JSON string that replace returns for it. It is the only masking there is:
// every masked copy, digest and export goes through here.
//
// A sensitive pointer names a member of an object by its key and an element of
// an array by its index; the token * stands for all of them (so a key that is
// literally * cannot be named alone). A value that is an object or an array is
// replaced as a whole. A null stays: it says that nothing is there, and in data
// it removes a key. replace gets the pointer of the value within doc, without
// wildcards, and the value's literal; nil means the constant [Masked].
//
// doc is well-formed JSON, else the error says so; nil stays nil. When nothing
// in it is sensitive, doc itself is returned.
func (d *Definition) Mask(doc json.RawMessage, replace func(pointer string, value json.RawMessage) string) (json.RawMessage, error) {
	tree := d.sensitiveTree()
	if tree == nil || len(doc) == 0 {
		return doc, nil
	}
	if replace == nil {
		replace = func(string, json.RawMessage) string { return Masked }
	}
	w := masker{replace: replace}
	if err := w.value(doc, []*maskNode{tree}); err != nil {
		return nil, fmt.Errorf("mask: %w", err)
	}
	if !w.changed {
		return doc, nil
	}
	return w.out, nil
}

// maskNode is one token of the sensitive pointers, merged into a tree.
type maskNode struct {
	whole    bool // a pointer ends here
	children map[string]*maskNode
}

func newMaskTree(pointers []string) *maskNode {
	root := &maskNode{}
	for _, p := range pointers {
		tokens, err := splitPointer(p)
		if err != nil {
			continue // Lint refuses the definition; see malformed-pointer
		}
		at := root
		for _, t := range tokens {
			if at.children == nil {
				at.children = map[string]*maskNode{}
			}
			if at.children[t] == nil {
				at.children[t] = &maskNode{}
			}
			at = at.children[t]
		}
		at.whole = true
	}
	if root.children == nil {
		return nil
	}
	return root
}

// sensitiveTree is made by Parse; a Definition put together by hand gets one here.
func (d *Definition) sensitiveTree() *maskNode {
	if d.masks == nil && len(d.Sensitive) > 0 {
		return newMaskTree(d.Sensitive)
	}
	return d.masks
}

// masker copies a document and replaces on the way.
type masker struct {
	replace func(string, json.RawMessage) string
	out     []byte
	path    []string
	changed bool
}

// value copies one value. active are the nodes of the tree that the path so far
// leads to: several where a wildcard and a name both match.
func (w *masker) value(raw []byte, active []*maskNode) error {
	for _, n := range active {
		if n.whole && !isNull(raw) {
			text, err := json.Marshal(w.replace(joinPointer("", w.path...), raw))
			if err != nil {
				return err
			}
			w.out = append(w.out, text...)
			w.changed = true
			return nil
		}
	}
	s := scanner{src: raw}
	switch s.peek() {
	case '{':
		return w.object(&s, active)
	case '[':
		return w.array(&s, active)
	default:
		w.out = append(w.out, raw...)
		return nil
	}
}

func (w *masker) object(s *scanner, active []*maskNode) error {
	w.out = append(w.out, '{')
	first := len(w.out)
	err := s.object(func(m member) error {
		if len(w.out) > first {
			w.out = append(w.out, ',')
		}
		w.out = append(append(w.out, m.name...), ':')
		return w.child(string(m.key), m.value, active)
	})
	w.out = append(w.out, '}')
	return err
}

func (w *masker) array(s *scanner, active []*maskNode) error {
	w.out = append(w.out, '[')
	err := s.array(func(i int, value []byte) error {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		return w.child(strconv.Itoa(i), value, active)
	})
	w.out = append(w.out, ']')
	return err
}

func (w *masker) child(token string, value []byte, active []*maskNode) error {
	next := descend(active, token)
	if len(next) == 0 {
		w.out = append(w.out, value...)
		return nil
	}
	w.path = append(w.path, token)
	err := w.value(value, next)
	w.path = w.path[:len(w.path)-1]
	return err
}

func descend(active []*maskNode, token string) []*maskNode {
	var next []*maskNode
	for _, n := range active {
		if c := n.children[token]; c != nil {
			next = append(next, c)
		}
		if c := n.children[wildcard]; c != nil && token != wildcard {
			next = append(next, c)
		}
	}
	return next
}

// Scrubber returns a function that removes the sensitive values of the documents
// from text that leaves the process, whatever way they came into it: strings and
// numbers of at least four bytes, also where they stand inside a sensitive object
// or array, and also in the escaped form that JSON gives them. The documents are
// only looked at when the function is first called. It is never nil and safe for
// concurrent use.
func (d *Definition) Scrubber(docs ...json.RawMessage) func(string) string {
	if d.sensitiveTree() == nil {
		return func(text string) string { return text }
	}
	replacer := sync.OnceValue(func() *strings.Replacer {
		return d.replacer(docs)
	})
	return func(text string) string { return replacer().Replace(text) }
}

func (d *Definition) replacer(docs []json.RawMessage) *strings.Replacer {
	secrets := map[string]bool{}
	for _, doc := range docs {
		// A document that is not well-formed has been refused before it got here;
		// what could be read of it is scrubbed all the same.
		_, _ = d.Mask(doc, func(_ string, value json.RawMessage) string {
			collect(value, secrets)
			return ""
		})
	}
	list := make([]string, 0, len(secrets))
	for text := range secrets {
		list = append(list, text)
	}
	// At one place of the text the first pair wins: longer values go first, so
	// that no rest of them stays behind.
	sort.Slice(list, func(i, j int) bool {
		if len(list[i]) != len(list[j]) {
			return len(list[i]) > len(list[j])
		}
		return list[i] < list[j]
	})
	pairs := make([]string, 0, 2*len(list))
	for _, text := range list {
		pairs = append(pairs, text, Masked)
	}
	return strings.NewReplacer(pairs...)
}

// collect adds every form in which the scalars of a value may turn up in text.
func collect(raw []byte, secrets map[string]bool) {
	s := scanner{src: raw}
	switch c := s.peek(); {
	case c == '{':
		_ = s.object(func(m member) error { collect(m.value, secrets); return nil })
	case c == '[':
		_ = s.array(func(_ int, value []byte) error { collect(value, secrets); return nil })
	case c == '"':
		text, err := unquote(raw)
		if err != nil {
			return
		}
		quoted := strconv.Quote(string(text))
		remember(secrets, string(text), string(raw[1:len(raw)-1]), quoted[1:len(quoted)-1])
	case c == '-' || isDigit(c):
		remember(secrets, string(raw))
		if f, err := strconv.ParseFloat(string(raw), 64); err == nil {
			remember(secrets, strconv.FormatFloat(f, 'f', -1, 64), strconv.FormatFloat(f, 'g', -1, 64))
		}
	}
}

func remember(secrets map[string]bool, forms ...string) {
	for _, text := range forms {
		if len(text) >= shortestScrubbed {
			secrets[text] = true
		}
	}
}
