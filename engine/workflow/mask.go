package workflow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Masked replaces sensitive values in the masked copies of a Case and in scrubbed
// text.
const Masked = "[masked]"

// Destroyed replaces a sensitive value whose key was destroyed. It is not secret, and is
// not masked again.
const Destroyed = "[destroyed]"

// wildcard is the token of a sensitive pointer that matches every key of an object and every
// element of an array.
const wildcard = "*"

// minScrubbed is the minimum length in bytes of a value that Scrubber removes: shorter values
// occur in ordinary text by chance.
const minScrubbed = 4

// Mask returns a copy of doc in which every sensitive value is replaced by the JSON string that
// replace returns for it. It is the only masking function: every masked copy, digest and export
// uses it.
//
// A sensitive pointer names a member of an object by its key and an element of an array by its
// index. The token * matches all of them, so a key that is literally * cannot be named alone. An
// object or array is replaced as a whole. A null stays: it means that the field has no value, and
// in data it removes a key. [Destroyed] and sealed values (see IsSealed) stay as well.
//
// replace receives the pointer of the value within doc, without wildcards, and the literal of the
// value. A nil replace uses the constant [Masked].
//
// Mask returns an error if doc is not well-formed JSON. A nil doc stays nil. If nothing in doc is
// sensitive, Mask returns doc itself.
func (d *Definition) Mask(doc json.RawMessage, replace func(pointer string, value json.RawMessage) string) (json.RawMessage, error) {
	if d.sensitiveTree() == nil || len(doc) == 0 {
		return doc, nil
	}
	v := document.ReadTrusted(doc)
	if v.Kind() == 0 {
		return nil, fmt.Errorf("mask: %w", errSyntax)
	}
	if masked := d.MaskJSON(v, replace); masked != v {
		return masked.Raw(), nil
	}
	return doc, nil
}

// MaskJSON is Mask for a document that has been read already.
func (d *Definition) MaskJSON(doc document.JSON, replace func(pointer string, value json.RawMessage) string) document.JSON {
	return maskWith(d.sensitiveTree(), doc, replace)
}

// maskArguments masks the arguments of a call as if they were data, and also those bound to a
// sensitive field.
func (d *Definition) maskArguments(c *judge.Case, bound []Binding) document.JSON {
	if d.sensitiveTree() == nil {
		return c.Call.Arguments
	}
	pointers := slices.Clone(d.Sensitive)
	for _, b := range bound {
		tokens, err := splitPointer(b.Field)
		if err == nil && !c.Context.At(tokens...).Equal(c.MaskedContext.At(tokens...)) {
			pointers = append(pointers, b.Argument)
		}
	}
	return maskWith(newMaskTree(pointers), c.Call.Arguments, nil)
}

func maskWith(tree *maskNode, doc document.JSON, replace func(pointer string, value json.RawMessage) string) document.JSON {
	if tree == nil || doc.Kind() == 0 {
		return doc
	}
	if replace == nil {
		replace = func(string, json.RawMessage) string { return Masked }
	}
	w := masker{replace: replace, out: document.NewBuilder(doc)}
	w.copyValue(doc, []*maskNode{tree})
	if !w.changed {
		return doc
	}
	return w.out.JSON()
}

// maskNode is a token in the tree of all sensitive pointers.
type maskNode struct {
	isMasked bool // a pointer ends here
	children map[string]*maskNode
}

func newMaskTree(pointers []string) *maskNode {
	root := &maskNode{}
	for _, p := range pointers {
		tokens, err := splitPointer(p)
		if err != nil {
			continue // Lint rejects the definition; see malformed-pointer
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
		at.isMasked = true
	}
	if root.children == nil {
		return nil
	}
	return root
}

// sensitiveTree returns the tree that Parse built, or builds one for a Definition not made by Parse.
func (d *Definition) sensitiveTree() *maskNode {
	if d.masks == nil && len(d.Sensitive) > 0 {
		return newMaskTree(d.Sensitive)
	}
	return d.masks
}

type masker struct {
	replace func(string, json.RawMessage) string
	out     *document.Builder
	path    []string
	changed bool
}

// copyValue copies one value. active are the nodes of the tree that match the path so far; there
// are several if both a wildcard and a name match.
func (m *masker) copyValue(v document.JSON, active []*maskNode) {
	for _, n := range active {
		if n.isMasked && v.Kind() != document.Null {
			if v.Is(Destroyed) || IsSealed(v) {
				break
			}
			m.out.String(m.replace(joinPointer("", m.path...), v.Raw()))
			m.changed = true
			return
		}
	}
	switch v.Kind() {
	case document.Object:
		m.out.Begin(document.Object)
		for name, value := range v.Members() {
			m.out.Name(name)
			m.copyChild(name.Text(), value, active)
		}
		m.out.End()
	case document.Array:
		m.out.Begin(document.Array)
		for i, value := range v.Elements() {
			m.copyChild(strconv.Itoa(i), value, active)
		}
		m.out.End()
	default:
		m.out.Copy(v)
	}
}

func (m *masker) copyChild(token string, value document.JSON, active []*maskNode) {
	next := matchToken(active, token)
	if len(next) == 0 {
		m.out.Copy(value)
		return
	}
	m.path = append(m.path, token)
	m.copyValue(value, next)
	m.path = m.path[:len(m.path)-1]
}

func matchToken(active []*maskNode, token string) []*maskNode {
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

// Scrubber returns a function that removes the sensitive values of the documents from text that leaves the process,
// however they got into it. It removes strings and numbers of at least four bytes, including those inside a sensitive
// object or array, and also in their escaped JSON form. The documents are read only when the function is first
// called. The function is never nil and is safe for concurrent use.
func (d *Definition) Scrubber(docs ...json.RawMessage) func(string) string {
	return d.newScrubber(func(yield func(document.JSON) bool) {
		for _, doc := range docs {
			if !yield(document.ReadTrusted(doc)) {
				return
			}
		}
	})
}

func (d *Definition) newScrubber(docs iter.Seq[document.JSON]) func(string) string {
	if d.sensitiveTree() == nil {
		return func(text string) string { return text }
	}
	replacer := sync.OnceValue(func() *strings.Replacer {
		return d.newReplacer(docs)
	})
	return func(text string) string { return replacer().Replace(text) }
}

func (d *Definition) newReplacer(docs iter.Seq[document.JSON]) *strings.Replacer {
	secrets := map[string]bool{}
	for doc := range docs {
		d.MaskJSON(doc, func(_ string, value json.RawMessage) string {
			collectSecrets(document.ReadTrusted(value), secrets)
			return ""
		})
	}
	list := make([]string, 0, len(secrets))
	for text := range secrets {
		list = append(list, text)
	}
	// At each position of the text the first matching pair wins: longer values come first, so
	// that no part of them remains.
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(list))
	for _, text := range list {
		pairs = append(pairs, text, Masked)
	}
	return strings.NewReplacer(pairs...)
}

// collectSecrets adds every form in which the scalars of a value may occur in text.
func collectSecrets(v document.JSON, secrets map[string]bool) {
	switch v.Kind() {
	case document.String:
		quoted := strconv.Quote(v.Text())
		addSecrets(secrets, v.Text(), string(v.Raw()[1:len(v.Raw())-1]), quoted[1:len(quoted)-1])
	case document.Number:
		addSecrets(secrets, string(v.Raw()))
		if f, err := strconv.ParseFloat(string(v.Raw()), 64); err == nil {
			addSecrets(secrets, strconv.FormatFloat(f, 'f', -1, 64), strconv.FormatFloat(f, 'g', -1, 64))
		}
	}
	for _, value := range v.Members() {
		collectSecrets(value, secrets)
	}
	for _, value := range v.Elements() {
		collectSecrets(value, secrets)
	}
}

func addSecrets(secrets map[string]bool, forms ...string) {
	for _, text := range forms {
		if len(text) >= minScrubbed {
			secrets[text] = true
		}
	}
}
