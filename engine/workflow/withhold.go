package workflow

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
)

// RemoveJudgeSettings removes settings of the judge from judgeConfig and from transitions;
// keys of the same names elsewhere, such as in schemas, stay. cut lists the settings that
// were present, in the order of keys. The document is one that Parse accepted.
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
