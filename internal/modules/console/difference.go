package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Change is one difference between two documents: a part that was added (no Before), removed (no After) or changed.
type Change struct {
	// Path is the part's place, such as "order.items[2]".
	Path, Before, After string
	Added, Removed      bool
	// Hidden reports that both sides are masked alike, so that nobody can see here whether it changed.
	Hidden bool
	// More, if not 0, counts the differences that are left out here. The other fields are then empty.
	More int
}

// maxChanges limits the differences that a page shows.
const maxChanges = 200

// compareJSON returns the differences between two JSON documents, in the order of their paths. A part that is masked
// on both sides is among them, because its value may differ. If there are more than maxChanges, the last element counts
// the others.
func compareJSON(before, after json.RawMessage) []Change {
	return limitChanges(listChanges(before, after))
}

func listChanges(before, after json.RawMessage) (changes []Change) {
	collectChanges("", readJSON(before), readJSON(after), &changes)
	return changes
}

// compareMove is compareJSON for the contexts before and after a move, which cannot have changed a masked part that its
// data does not name.
func compareMove(before, after, data json.RawMessage) []Change {
	changes := listChanges(before, after)
	if asked, ok := readJSON(data).(map[string]any); ok && len(data) > 0 {
		changes = slices.DeleteFunc(changes, func(c Change) bool { return c.Hidden && !isNamed(asked, c.Path) })
	}
	return limitChanges(changes)
}

// isNamed reports whether a path is in a member of an object. The name of a member may have dots itself.
func isNamed(object map[string]any, path string) bool {
	for name := range object {
		if rest, ok := strings.CutPrefix(path, name); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

func limitChanges(changes []Change) []Change {
	if n := len(changes); n > maxChanges {
		changes = append(changes[:maxChanges], Change{More: n - maxChanges})
	}
	return changes
}

// readJSON reads a document and keeps the digits of its numbers.
func readJSON(raw json.RawMessage) any {
	if len(raw) == 0 {
		return map[string]any{}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	return v
}

func collectChanges(path string, before, after any, out *[]Change) {
	old, oldIs := before.(map[string]any)
	new, newIs := after.(map[string]any)
	if oldIs && newIs {
		names := map[string]bool{}
		for name := range old {
			names[name] = true
		}
		for name := range new {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			collectMember(strings.TrimPrefix(path+"."+name, "."), old, new, name, out)
		}
		return
	}
	oldList, oldIs := before.([]any)
	newList, newIs := after.([]any)
	if !oldIs || !newIs {
		b, a := writeJSON(before), writeJSON(after)
		if hidden := b == a && hasMask(b); hidden || b != a {
			*out = append(*out, Change{Path: path, Before: b, After: a, Hidden: hidden})
		}
		return
	}
	for i := range max(len(oldList), len(newList)) {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(oldList):
			*out = append(*out, Change{Path: at, After: writeJSON(newList[i]), Added: true})
		case i >= len(newList):
			*out = append(*out, Change{Path: at, Before: writeJSON(oldList[i]), Removed: true})
		default:
			collectChanges(at, oldList[i], newList[i], out)
		}
	}
}

func collectMember(path string, old, new map[string]any, name string, out *[]Change) {
	before, had := old[name]
	after, has := new[name]
	switch {
	case !had:
		*out = append(*out, Change{Path: path, After: writeJSON(after), Added: true})
	case !has:
		*out = append(*out, Change{Path: path, Before: writeJSON(before), Removed: true})
	default:
		collectChanges(path, before, after, out)
	}
}

// hasMask reports whether a value, or a part of a text, is masked.
func hasMask(value string) bool {
	return strings.Contains(value, workflow.Masked) || strings.Contains(value, workflow.Destroyed)
}

func writeJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // it was read from JSON
	return strings.TrimSpace(b.String())
}
