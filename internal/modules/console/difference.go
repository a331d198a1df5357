package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Change is one difference between two documents: a part that was added (no Before), removed (no After) or changed.
type Change struct {
	// Path is the part's place, such as "order.items[2]".
	Path, Before, After string
	Added, Removed      bool
	// More, if not 0, counts the differences that are left out here. The other fields are then empty.
	More int
}

// maxChanges limits the differences that a page shows.
const maxChanges = 200

// compareJSON returns the differences between two JSON documents, in the order of their paths. If there are more than
// maxChanges, the last element counts the others.
func compareJSON(before, after json.RawMessage) []Change {
	var changes []Change
	collectChanges("", readJSON(before), readJSON(after), &changes)
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
		if b, a := writeJSON(before), writeJSON(after); b != a {
			*out = append(*out, Change{Path: path, Before: b, After: a})
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

func writeJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // it was read from JSON
	return strings.TrimSpace(b.String())
}
