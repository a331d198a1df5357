package upstream

import (
	"bytes"
	"encoding/json"
	"slices"
)

// itemKey finds an item of one upstream.
type itemKey struct {
	kind Kind
	name string
}

func (i Item) key() itemKey { return itemKey{i.Kind, i.Name} }

// The changes of a Difference.
const (
	changeAdded   = "added"   // it is not pinned
	changeRemoved = "removed" // the upstream no longer has it
	changeChanged = "changed"
	changeTwice   = "twice" // the upstream has two of the name
)

// Difference is one item that an upstream has otherwise than it is pinned.
type Difference struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Change is changed, added (it is not pinned), removed (the upstream no longer has it) or
	// twice (it has two of the name).
	Change string `json:"change"`
	// Members are what changed of a definition, sorted.
	Members []string `json:"members,omitempty"`
	// Pinned and Now are the definitions, null where there is none.
	Pinned json.RawMessage `json:"pinned"`
	Now    json.RawMessage `json:"now"`
}

// compare lists the differences between pinned items and those an upstream has now, sorted.
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
			d.Change = changeTwice
		case !there:
			d.Change = changeRemoved
		case !known:
			d.Change = changeAdded
		case old.Hash() != current.Hash():
			d.Change, d.Members = changeChanged, changedMembers(old, current)
		default:
			continue
		}
		out = append(out, d)
	}
	return out
}

func byKey(items []Item) map[itemKey]Item {
	out := make(map[itemKey]Item, len(items))
	for _, item := range items {
		out[item.key()] = item
	}
	return out
}

// changedMembers are the pinned members that two definitions have different.
func changedMembers(a, b Item) (changed []string) {
	before, after := readChecked(a.Raw), readChecked(b.Raw)
	for _, key := range pinnedKeys {
		if !bytes.Equal(appendCanonical(nil, before.Get(key)), appendCanonical(nil, after.Get(key))) {
			changed = append(changed, key)
		}
	}
	return changed
}
