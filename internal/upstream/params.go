package upstream

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/validators/document"
)

// maxDepth limits the nesting of messages in both directions.
const maxDepth = 500

// checkKeys rejects valid JSON with a duplicate key in one object, because readers differ in which one they use. If
// fold is set, it also rejects keys that differ only in case, because some readers ignore case.
func checkKeys(v document.JSON, fold bool) error {
	switch v.Kind() {
	case document.Object:
		if twice := v.Duplicate(); twice.Kind() != 0 {
			return fmt.Errorf("duplicate key %s; keep one", shortenKey(twice.Text()))
		}
		folded := map[string]bool{}
		for name, member := range v.Members() {
			if key := foldKey(name.Text()); fold && folded[key] {
				return fmt.Errorf("two keys of an object differ only in case: %s", shortenKey(name.Text()))
			} else if fold {
				folded[key] = true
			}
			if err := checkKeys(member, fold); err != nil {
				return err
			}
		}
	case document.Array:
		for _, element := range v.Elements() {
			if err := checkKeys(element, fold); err != nil {
				return err
			}
		}
	}
	return nil
}

// foldKey maps all spellings of a key that case-insensitive readers treat as equal to one text. For encoding/json,
// "\u017f" also equals s.
func foldKey(key string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, key)
}

// checkCase rejects a key that differs from a declared one only in case, because servers differ in whether they
// accept it.
func checkCase(v document.JSON, declared ...string) error {
	folded := map[string]string{}
	for _, name := range declared {
		folded[foldKey(name)] = name
	}
	for name := range v.Members() {
		text := name.Text()
		if like, known := folded[foldKey(text)]; known && like != text && !slices.Contains(declared, text) {
			return fmt.Errorf("the key %s must be written %q", shortenKey(text), like)
		}
	}
	return nil
}

// checkArguments applies checkCase to a tool's arguments at every depth that its schema describes. It follows items,
// alternatives and local references, but not patternProperties.
func checkArguments(schema, arguments document.JSON) error {
	c := caseCheck{root: schema, left: maxCompared}
	return c.check(arguments, []document.JSON{schema})
}

// maxCompared limits the work: parts of the arguments, times the parts of the schema that describe them.
const maxCompared = 2_000_000

type caseCheck struct {
	root document.JSON
	left int
}

func (c *caseCheck) check(v document.JSON, schemas []document.JSON) error {
	if v.Kind() != document.Object && v.Kind() != document.Array {
		return nil
	}
	schemas = c.expand(schemas)
	if c.left -= 1 + len(schemas); c.left < 0 {
		return errors.New("the arguments have more parts than can be compared with the schema of the tool")
	}
	if v.Kind() == document.Array {
		for i, element := range v.Elements() {
			var next []document.JSON
			for _, s := range schemas {
				next = append(next, s.Get("items"), s.At("prefixItems", formatIndex(i)), s.At("items", formatIndex(i)))
			}
			if err := c.check(element, next); err != nil {
				return err
			}
		}
		return nil
	}
	var declared []string
	described := map[string][]document.JSON{}
	for _, s := range schemas {
		for name, property := range s.Get("properties").Members() {
			declared = append(declared, name.Text())
			described[name.Text()] = append(described[name.Text()], property)
			c.left--
		}
	}
	if err := checkCase(v, declared...); err != nil {
		return err
	}
	for name, member := range v.Members() {
		next := described[name.Text()]
		if next == nil {
			for _, s := range schemas {
				next = append(next, s.Get("additionalProperties"))
			}
		}
		if err := c.check(member, next); err != nil {
			return err
		}
	}
	return nil
}

// expand adds the subschemas that apply to the same value.
func (c *caseCheck) expand(schemas []document.JSON) (out []document.JSON) {
	seen := map[*byte]bool{}
	for len(schemas) > 0 {
		s := schemas[0]
		schemas = schemas[1:]
		if s.Kind() != document.Object || seen[&s.Raw()[0]] {
			continue
		}
		seen[&s.Raw()[0]] = true
		out = append(out, s)
		for _, key := range []string{"allOf", "anyOf", "oneOf"} {
			schemas = append(schemas, listElements(s.Get(key))...)
		}
		schemas = append(schemas, s.Get("if"), s.Get("then"), s.Get("else"))
		for _, dependent := range s.Get("dependentSchemas").Members() {
			schemas = append(schemas, dependent)
		}
		if fragment, ok := strings.CutPrefix(s.Get("$ref").Text(), "#"); ok {
			if pointer, err := url.PathUnescape(fragment); err == nil {
				schemas = append(schemas, c.root.At(slices.Collect(document.Pointer(pointer).Tokens())...))
			}
		}
	}
	return out
}

// readChecked reads JSON that was checked before, keeping its white space.
func readChecked(raw []byte) document.JSON {
	v, err := document.ReadJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: maxDepth, Lax: true, Spaced: true})
	if err != nil {
		return document.JSON{}
	}
	return v
}

// shortenKey returns a key, quoted and cut, for a message.
func shortenKey(key string) string {
	if len(key) > 64 {
		key = strings.ToValidUTF8(key[:64], "") + "..."
	}
	return fmt.Sprintf("%q", key)
}

func formatIndex(i int) string { return strconv.Itoa(i) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
