package upstream

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// maxDepth bounds the nesting of what passes, in either direction.
const maxDepth = 500

// checkKeys refuses a value, already valid JSON, with a key that occurs twice in one object:
// readers differ in which of them they take. With fold, two spellings of one key are refused
// too: some readers do not look at case.
func checkKeys(v document.JSON, fold bool) error {
	switch v.Kind() {
	case document.Object:
		if twice := v.Duplicate(); twice.Kind() != 0 {
			return fmt.Errorf("duplicate key %s; keep one", shortenKey(twice.Text()))
		}
		folded := map[string]bool{}
		for name, member := range v.Members() {
			if key := strings.ToLower(name.Text()); fold && folded[key] {
				return fmt.Errorf("two keys of one object differ in case only: %s", shortenKey(name.Text()))
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

// read reads JSON that was checked before, and keeps its white space.
func read(raw []byte) document.JSON {
	v, err := document.ReadJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: maxDepth, Lax: true, Spaced: true})
	if err != nil {
		return document.JSON{}
	}
	return v
}

// shortened is a key for a message.
func shortenKey(key string) string {
	if len(key) > 64 {
		key = strings.ToValidUTF8(key[:64], "") + "..."
	}
	return fmt.Sprintf("%q", key)
}

func index(i int) string { return strconv.Itoa(i) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
