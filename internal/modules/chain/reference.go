package chain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

// referencePattern matches a reference: {{path}}, with a path of identifiers and indexes. Anything else in
// braces is plain text: {{'a': 1}} is Python.
var referencePattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\{\{\s*([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+|\[[0-9]{1,9}\])*)\s*\}\}`)
})

// maxSegments limits the keys and indexes in a path.
const maxSegments = 32

// reference is a path into the variables and outputs of a run.
type reference struct {
	text     string
	segments []string // indexes are decimal digits
}

// parsePath parses a path without its braces.
func parsePath(text string) (reference, error) {
	segments := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(text), ".")
	if len(segments) > maxSegments {
		return reference{}, fmt.Errorf("a path may have at most %d keys and indexes, not %d", maxSegments, len(segments))
	}
	for _, key := range segments {
		if slices.Contains([]string{"__proto__", "constructor", "prototype"}, key) {
			return reference{}, fmt.Errorf("a path may not contain %q", key)
		}
	}
	return reference{text: text, segments: segments}, nil
}

// checkKept checks that a path below an output follows the rules of references.
func checkKept(path string) error {
	below := "output." + path
	if m := referencePattern().FindStringSubmatch("{{" + below + "}}"); m == nil || m[1] != below {
		return fmt.Errorf("%s is not a path in the output; write a path such as total or items[0].name, or 0.name for a list", quoteName(path))
	}
	_, err := parsePath(path)
	return err
}

// template is a JSON value that may contain references.
type template interface {
	// fill returns the value with its references replaced.
	fill(lookup lookup) (any, error)
	// visit calls f for every reference. If text is set, it gets the text around references, and the keys of
	// objects, which cannot contain references.
	visit(f func(reference), text func(string))
}

// lookup returns the value of a reference.
type lookup func(reference) (any, error)

type (
	literal struct{ value any }
	whole   struct{ reference }
	// mixed is text with references inside: parts alternate, text first.
	mixed struct {
		texts      []string
		references []reference
	}
	listOf   []template
	objectOf struct {
		keys   []string
		values []template
	}
)

func (t literal) fill(lookup) (any, error) { return t.value, nil }
func (t whole) fill(find lookup) (any, error) {
	v, err := find(t.reference)
	return valueOf(v), err
}

func (t mixed) fill(find lookup) (any, error) {
	var b strings.Builder
	for i, text := range t.texts {
		b.WriteString(text)
		if i == len(t.references) {
			break
		}
		v, err := find(t.references[i])
		if err != nil {
			return nil, err
		}
		text, err := formatText(v)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// content is the output of a step that has text in addition to its value: the text of the server's reply.
type content struct {
	value any
	text  string // "" if the reply had no text
	// wrapped reports that value was the member "result" of an object added by an SDK. References find it
	// there too.
	wrapped bool
}

// valueOf returns a value without its text.
func valueOf(v any) any {
	if c, ok := v.(content); ok {
		return c.value
	}
	return v
}

// formatText formats a value as text: the text of an output, a string unchanged, anything else as JSON.
func formatText(v any) (string, error) {
	if c, ok := v.(content); ok {
		if v = c.value; c.text != "" {
			v = c.text
		}
	}
	if text, ok := v.(string); ok {
		return text, nil
	}
	raw, err := document.Marshal(v)
	return string(raw), err
}

func (t listOf) fill(find lookup) (any, error) {
	out := make([]any, len(t))
	for i, item := range t {
		v, err := item.fill(find)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (t objectOf) fill(find lookup) (any, error) {
	out := make(map[string]any, len(t.keys))
	for i, key := range t.keys {
		v, err := t.values[i].fill(find)
		if err != nil {
			return nil, err
		}
		out[key] = v
	}
	return out, nil
}

func (t literal) visit(_ func(reference), text func(string)) {
	if s, ok := t.value.(string); ok && text != nil {
		text(s)
	}
}

func (t whole) visit(f func(reference), _ func(string)) { f(t.reference) }

func (t mixed) visit(f func(reference), text func(string)) {
	for _, r := range t.references {
		f(r)
	}
	for _, s := range t.texts {
		literal{s}.visit(f, text)
	}
}

func (t listOf) visit(f func(reference), text func(string)) {
	for _, item := range t {
		item.visit(f, text)
	}
}

func (t objectOf) visit(f func(reference), text func(string)) {
	for i, v := range t.values {
		literal{t.keys[i]}.visit(f, text)
		v.visit(f, text)
	}
}

// parseTemplate parses a value of the document. report gets the errors in references.
func parseTemplate(n *document.Node, report func(*document.Node, error)) template {
	switch n.Kind {
	case document.String:
		t, err := parseText(n.Text)
		if err != nil {
			report(n, err)
		}
		return t
	case document.Array:
		out := make(listOf, len(n.Items))
		for i, item := range n.Items {
			out[i] = parseTemplate(item, report)
		}
		return out
	case document.Object:
		out := objectOf{keys: n.Keys()}
		for _, m := range n.Members {
			out.values = append(out.values, parseTemplate(m.Value, report))
		}
		return out
	default:
		return literal{decodeJSON(n.JSON())}
	}
}

// parseText parses a text that is one reference, contains references, or has none.
func parseText(text string) (template, error) {
	found := referencePattern().FindAllStringSubmatchIndex(text, -1)
	if len(found) == 0 {
		return literal{text}, nil
	}
	out, end := mixed{}, 0
	for _, at := range found {
		r, err := parsePath(text[at[2]:at[3]])
		if err != nil {
			return literal{text}, err
		}
		out.texts = append(out.texts, text[end:at[0]])
		out.references = append(out.references, r)
		end = at[1]
	}
	out.texts = append(out.texts, text[end:])
	if len(found) == 1 && out.texts[0]+out.texts[1] == "" {
		return whole{out.references[0]}, nil
	}
	return out, nil
}

// decodeJSON decodes valid JSON; numbers keep their literal form.
func decodeJSON(raw json.RawMessage) any {
	var v any
	if decodeExact(string(raw), &v) != nil {
		return nil
	}
	return v
}

// decodeExact decodes JSON into a value; numbers without a type keep their literal form.
func decodeExact(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// walkPath follows keys and indexes into a value. The error names where the path ended, and what is there.
func walkPath(v any, r reference, from int) (any, error) {
	for i := from; i < len(r.segments); i++ {
		key := r.segments[i]
		at := cmp.Or(strings.Join(r.segments[:i], "."), "it")
		switch container := v.(type) {
		case map[string]any:
			next, ok := container[key]
			if !ok {
				return nil, &missingError{r.text, fmt.Sprintf("%s has %s", at, listKeys(container))}
			}
			v = next
		case []any:
			n, err := strconv.Atoi(key)
			if err != nil || n >= len(container) {
				return nil, &missingError{r.text, fmt.Sprintf("%s is a list of %d", at, len(container))}
			}
			v = container[n]
		default:
			return nil, &missingError{r.text, fmt.Sprintf("%s is %s", at, describeKind(v))}
		}
	}
	return v, nil
}

// missingError reports a reference to a missing value.
type missingError struct{ path, present string }

func (e *missingError) Error() string {
	return fmt.Sprintf("{{%s}} is missing: %s", e.path, e.present)
}

// maxListedKeys limits how many keys a message lists.
const maxListedKeys = 10

func listKeys[V any](m map[string]V) string {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return "no values"
	}
	quoted := make([]string, 0, maxListedKeys)
	for _, k := range keys[:min(len(keys), maxListedKeys)] {
		quoted = append(quoted, quoteName(k))
	}
	if more := len(keys) - len(quoted); more > 0 {
		quoted = append(quoted, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(quoted, ", ")
}

func describeKind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a text"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case []any:
		return "a list"
	default:
		return "an object"
	}
}

// quoteName quotes a name for a message and truncates long ones.
func quoteName(name string) string {
	if r := []rune(name); len(r) > 64 {
		name = string(r[:63]) + "…"
	}
	return strconv.Quote(name)
}

// copyValue returns a deep copy of a value, so that runs do not share mutable values.
func copyValue(v any) any { return mapValues(v, func(v any) any { return v }) }

// mapValues returns a deep copy of a value in which f replaces everything but lists and objects.
func mapValues(v any, f func(any) any) any {
	switch v := v.(type) {
	case content:
		v.value = mapValues(v.value, f)
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[k] = mapValues(item, f)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = mapValues(item, f)
		}
		return out
	default:
		return f(v)
	}
}

// countBytes returns a lower bound on the size of a value as JSON, in bytes. Unlike measureJSON it does not
// encode the value, because a run that is taken up counts every reference of all its steps again.
func countBytes(v any) int {
	n := 0
	switch v := v.(type) {
	case content:
		n = max(len(v.text), countBytes(v.value))
	case string:
		n = len(v)
	case json.Number:
		n = len(v)
	case map[string]any:
		for k, item := range v {
			n += len(k) + countBytes(item)
		}
	case []any:
		n = len(v)
		for _, item := range v {
			n += countBytes(item)
		}
	}
	return n
}
