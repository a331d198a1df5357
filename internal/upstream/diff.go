package upstream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
)

// itemKey identifies an item of one upstream.
type itemKey struct {
	kind Kind
	name string
}

func (i Item) key() itemKey { return itemKey{i.Kind, i.Name} }

// The changes of a Difference.
const (
	ChangeAdded   = "added"   // not pinned
	ChangeRemoved = "removed" // no longer offered by the upstream
	ChangeChanged = "changed"
	ChangeTwice   = "twice" // offered twice under the same name
)

// Difference is one item whose current definition differs from its pin.
type Difference struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Change is changed, added (not pinned), removed (no longer offered) or twice (offered twice under the same
	// name).
	Change string `json:"change"`
	// Members lists the changed members of the definition, sorted.
	Members []string `json:"members,omitempty"`
	// Pinned and Now are the definitions; null if there is none.
	Pinned json.RawMessage `json:"pinned"`
	Now    json.RawMessage `json:"now"`
}

// compareItems returns the differences between the pinned and the current items, sorted.
func compareItems(pinned, now []Item) []Difference {
	before, after, count := byKey(pinned), byKey(now), map[itemKey]int{}
	all := slices.Clone(pinned)
	for _, item := range now {
		if count[item.key()]++; count[item.key()] == 1 {
			if _, there := before[item.key()]; !there {
				all = append(all, item)
			}
		}
	}
	sortItems(all)
	var out []Difference
	for _, item := range all {
		old, known := before[item.key()]
		current, there := after[item.key()]
		d := Difference{Kind: item.Kind, Name: item.Name, Pinned: old.Raw, Now: current.Raw}
		switch {
		case count[item.key()] > 1:
			d.Change = ChangeTwice
		case !there:
			d.Change = ChangeRemoved
		case !known:
			d.Change = ChangeAdded
		default:
			if d.Members = changedMembers(old, current); len(d.Members) == 0 {
				continue
			}
			d.Change = ChangeChanged
		}
		out = append(out, d)
	}
	return out
}

func compareDifferences(a, b Difference) int {
	return cmp.Or(cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), cmp.Compare(a.Name, b.Name))
}

func byKey(items []Item) map[itemKey]Item {
	out := make(map[itemKey]Item, len(items))
	for _, item := range items {
		out[item.key()] = item
	}
	return out
}

// changedMembers returns the members, of those that pins cover, in which two definitions differ. In schemas, it ignores
// the order of arrays that are unordered in JSON Schema.
func changedMembers(a, b Item) (changed []string) {
	before, after := readChecked(a.Raw), readChecked(b.Raw)
	for _, key := range pinnedKeys {
		write := appendCanonical
		if key == "inputSchema" || key == "outputSchema" {
			write = appendSchema
		}
		if !bytes.Equal(write(nil, before.Get(key)), write(nil, after.Get(key))) {
			changed = append(changed, key)
		}
	}
	return changed
}

// Keywords of JSON Schema: those whose arrays are unordered, those whose value is not a schema, and those whose
// members are named schemas.
var (
	unorderedKeywords = []string{"required", "enum", "type"}
	valueKeywords     = []string{"const", "default", "examples", "example"}
	namingKeywords    = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)

// appendSchema appends a canonical form of a schema. Schemas that differ only in spelling, such as in the order of their
// members, have the same form.
func appendSchema(b []byte, v document.JSON) []byte { return appendKeywords(b, v, true) }

// appendKeywords appends a value inside a schema in the same form. hasKeywords reports whether the names of the value's
// members are keywords.
func appendKeywords(b []byte, v document.JSON, hasKeywords bool) []byte {
	switch v.Kind() {
	case document.Array:
		b = append(b, '[')
		for _, element := range v.Elements() {
			b = append(appendSchema(b, element), ',')
		}
		return append(b, ']')
	case document.Object:
		b = append(b, '{')
		for name, value := range v.Sorted() {
			b = append(document.AppendQuote(b, name), ':')
			switch is := func(keywords []string) bool { return hasKeywords && slices.Contains(keywords, name) }; {
			case is(valueKeywords):
				b = appendCanonical(b, value)
			case is(unorderedKeywords) && value.Kind() == document.Array:
				var elements [][]byte
				for _, element := range value.Elements() {
					elements = append(elements, appendCanonical(nil, element))
				}
				slices.SortFunc(elements, bytes.Compare)
				b = append(append(append(b, '['), bytes.Join(elements, []byte{','})...), ']')
			default:
				b = appendKeywords(b, value, !is(namingKeywords))
			}
			b = append(b, ',')
		}
		return append(b, '}')
	default:
		return appendCanonical(b, v)
	}
}
