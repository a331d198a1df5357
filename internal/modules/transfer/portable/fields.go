package portable

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// members are the members of a JSON object by name, with their values as written.
type members = map[string]json.RawMessage

// membersOf reads an object that was checked before; nil has no members.
func membersOf(doc json.RawMessage) members {
	out := members{}
	for name, value := range document.ReadTrusted(doc).Members() {
		out[name.Text()] = value.Raw()
	}
	return out
}

// encodeObject writes members in the order of their keys.
func encodeObject(fields members) json.RawMessage {
	out, _ := document.Marshal(fields) // it fails only for invalid JSON, and all members were parsed
	return out
}

// nameMembers lists member names for a message, without the values, which may be sensitive.
func nameMembers(of members) string {
	return fmt.Sprintf("%.200q", strings.Join(slices.Sorted(maps.Keys(of)), ", "))
}

// diffContexts returns the patch that turns one context into another. A null member counts as absent; in
// the patch, null removes a member.
func diffContexts(from, to json.RawMessage) members {
	before, after := document.ReadTrusted(from), document.ReadTrusted(to)
	findBefore, findAfter := before.Finder(), after.Finder()
	patch := members{}
	for name := range before.Members() {
		if findAfter(name).Kind() == 0 {
			patch[name.Text()] = json.RawMessage("null")
		}
	}
	for name, value := range after.Members() {
		was := findBefore(name)
		if !value.Equal(was) && (value.Kind() != document.Null || was.Kind() != 0) {
			patch[name.Text()] = value.Raw()
		}
	}
	return patch
}

func quoteJSON(text string) json.RawMessage {
	out, _ := json.Marshal(text) // a string always marshals
	return out
}
