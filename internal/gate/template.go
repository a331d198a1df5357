package gate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

// The roots of references.
const (
	rootArguments = "arguments" // the call's arguments
	rootPrincipal = "principal" // the caller's id and role
	rootResult    = "result"    // the call's result, as the server sent it
)

// Template is a JSON value whose strings may contain references such as {{arguments.path}}.
type Template struct{ value document.JSON }

var (
	referencePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{([^{}]*)\}\}`) })
	fieldPattern     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([a-z]+)((?:\.[A-Za-z0-9_-]+)+)$`) })
)

// readTemplate reads a key as a template of a JSON kind with references to the given roots. It returns nil if the key
// is absent.
func readTemplate(o *document.ObjectReader, key string, kind document.Kind, roots ...string) *Template {
	n := o.Value(key)
	if n == nil {
		return nil
	}
	if n.Kind != kind {
		o.Fail(n, "%s must be %s, with references such as {{arguments.path}} in its texts", key, kind)
		return nil
	}
	checkTemplate(o, n, roots)
	return &Template{document.ReadTrusted(n.JSON())}
}

func checkTemplate(o *document.ObjectReader, n *document.Node, roots []string) {
	for _, m := range n.Members {
		checkTemplate(o, m.Value, roots)
	}
	for _, item := range n.Items {
		checkTemplate(o, item, roots)
	}
	if n.Kind != document.String {
		return
	}
	rest := n.Text
	for _, found := range referencePattern().FindAllStringSubmatch(n.Text, -1) {
		rest = strings.Replace(rest, found[0], "", 1)
		if path := fieldPattern().FindStringSubmatch(strings.TrimSpace(found[1])); path == nil || !slices.Contains(roots, path[1]) {
			o.Fail(n, "%s is not a reference: write {{%s.field}}, with dots between the names of nested fields", found[0], strings.Join(roots, ".field}}, {{"))
		}
	}
	if strings.Contains(rest, "{{") {
		o.Fail(n, "a reference in %q is not closed with }}", n.Text)
	}
}

// Values are the values that references resolve to.
type Values struct {
	Arguments, Principal, Result document.JSON
}

// find returns the value of a reference, or the zero JSON if it does not exist.
func (v Values) find(reference string) document.JSON {
	root, path, _ := strings.Cut(strings.TrimSpace(reference), ".")
	doc := map[string]document.JSON{rootArguments: v.Arguments, rootPrincipal: v.Principal, rootResult: v.Result}[root]
	return doc.At(strings.Split(path, ".")...)
}

func (t *Template) hasReferences() bool { return referencePattern().Match(t.value.Raw()) }

// Fill resolves the template's references. A string that is a single reference becomes the value itself, with the
// digits of numbers unchanged. Members and items that refer to a missing value are omitted.
func (t *Template) Fill(v Values) json.RawMessage {
	filled, _ := fillTemplate(t.value, v)
	return filled
}

func fillTemplate(t document.JSON, v Values) (filled json.RawMessage, ok bool) {
	switch t.Kind() {
	case document.Object, document.Array:
		b, end := []byte{'{'}, byte('}')
		if t.Kind() == document.Array {
			b, end = []byte{'['}, ']'
		}
		add := func(name []byte, member document.JSON) {
			value, ok := fillTemplate(member, v)
			if !ok {
				return
			}
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(append(b, name...), value...)
		}
		for name, member := range t.Members() {
			add(append(slices.Clone(name.Raw()), ':'), member)
		}
		for _, item := range t.Elements() {
			add(nil, item)
		}
		return append(b, end), true
	case document.String:
		return fillText(t.Text(), v, func(s string) string { return s })
	default:
		return t.Raw(), true
	}
}

// fillText fills a string. Strings inserted into a longer text pass through quote.
func fillText(text string, v Values, quote func(string) string) (json.RawMessage, bool) {
	places := referencePattern().FindAllStringSubmatchIndex(text, -1)
	if len(places) == 1 && places[0][0] == 0 && places[0][1] == len(text) {
		found := v.find(text[places[0][2]:places[0][3]])
		return found.Raw(), found.Kind() != 0
	}
	var b strings.Builder
	at := 0
	for _, m := range places {
		found := v.find(text[m[2]:m[3]])
		b.WriteString(text[at:m[0]])
		switch found.Kind() {
		case 0, document.Object, document.Array, document.Null:
			return nil, false
		case document.String:
			b.WriteString(quote(found.Text()))
		default:
			b.Write(found.Raw())
		}
		at = m[1]
	}
	b.WriteString(text[at:])
	return document.AppendQuote(nil, b.String()), true
}

// maxSubject limits a subject, in bytes.
const maxSubject = 200

// SubjectOf returns the subject of a call. If the template has several references, each string value is quoted, so
// that different values cannot join to the same subject. problem is one sentence, or "".
func (g Gate) SubjectOf(v Values) (subject, problem string) {
	text := g.Subject.value.Text()
	quote := func(s string) string { return s }
	if len(referencePattern().FindAllString(text, -1)) > 1 {
		quote = func(s string) string { return string(document.AppendQuote(nil, s)) }
	}
	filled, ok := fillText(text, v, quote)
	found := document.ReadTrusted(filled)
	switch {
	case !ok || found.Kind() == document.Object || found.Kind() == document.Array || found.Kind() == document.Null:
		return "", fmt.Sprintf("The arguments must say which %s the call belongs to: %s must be a string or a number.", g.Workflow, g.Subject.listReferences())
	case found.Kind() == document.String:
		subject = found.Text()
	default:
		subject = string(found.Raw())
	}
	if subject == "" || len(subject) > maxSubject {
		return "", fmt.Sprintf("The arguments must say which %s the call belongs to: %s must have 1 to %d bytes.", g.Workflow, g.Subject.listReferences(), maxSubject)
	}
	return subject, ""
}

// listReferences returns the template's references, for use in a sentence.
func (t *Template) listReferences() string {
	var out []string
	for _, found := range referencePattern().FindAllStringSubmatch(string(t.value.Raw()), -1) {
		out = append(out, strings.TrimSpace(found[1]))
	}
	return strings.Join(out, ", ")
}
