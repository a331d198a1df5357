package workflow

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
)

// RemoveJudgeSettings returns a definition without some settings of its judge, wherever the grammar
// has them: in judgeConfig and in transitions. Schemas, scripts and what else a definition
// carries may have keys of the same names, and keep them. cut are those that were there, in
// the order of keys. The document is one that Parse has read.
func RemoveJudgeSettings(doc json.RawMessage, keys ...string) (open json.RawMessage, cut []string, err error) {
	root, err := document.Parse("definition", doc, document.Limits{})
	if err != nil {
		return nil, nil, err
	}
	places := []*document.Node{root.Get("judgeConfig")}
	states := root.Get("states")
	for _, name := range states.Keys() {
		transitions := states.At(name, "transitions")
		for _, action := range transitions.Keys() {
			places = append(places, transitions.Get(action))
		}
	}
	found := map[string]bool{}
	for _, place := range places {
		if place == nil {
			continue
		}
		place.Members = slices.DeleteFunc(place.Members, func(m document.Member) bool {
			gone := slices.Contains(keys, m.Key)
			found[m.Key] = found[m.Key] || gone
			return gone
		})
	}
	for _, key := range keys {
		if found[key] {
			cut = append(cut, key)
		}
	}
	return root.JSON(), cut, nil
}
