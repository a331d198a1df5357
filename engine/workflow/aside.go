package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// SetAside changes an invalid definition so that instances of it can be kept: nothing that its
// errors affect can happen until someone fixes it. A script that does not compile rejects every
// move, and so does a transition to an unknown state. If whole is set, or other errors may affect
// any move, every transition is rejected and only the states are kept. SetAside returns nil if
// that is impossible, or would lose settings of a definition written for gavel.
func SetAside(source string, doc []byte, invalid []Issue, whole bool) []byte {
	root, err := document.Parse(chooseName(source, doc), doc, document.Limits{Bytes: MaxDefinition})
	if err != nil || root.Kind != document.Object || root.Get("states") == nil {
		return nil
	}
	if whole {
		return setAsideWhole(root, invalid)
	}
	for _, i := range invalid {
		at, done := slices.Collect(document.Pointer(i.Path).Tokens()), false
		switch {
		case i.Severity != SeverityError:
			done = true
		case i.Rule == "script-invalid" && len(at) == 2 && at[0] == "transitionValidators":
			done = replaceMember(root.Get(at[0]), at[1], quoteJSON(rejectScript(i.Message)))
		case (i.Rule == "script-invalid" || i.Rule == "unknown-target") && len(at) >= 4 && at[0] == "states" && at[2] == "transitions":
			done = replaceMember(root.At(at[:3]...), at[3], rejectTransition(at[1], i.Message))
		}
		if !done {
			return nil
		}
	}
	return root.JSON()
}

func setAsideWhole(root *document.Node, invalid []Issue) []byte {
	isMask := func(key string) bool { return document.Suggest(key, []string{"sensitive"}) != "" }
	if hasOwnKeys(root) || slices.ContainsFunc(root.Keys(), isMask) {
		return nil // a dropped key may list sensitive fields
	}
	why := ""
	for _, i := range slices.Backward(invalid) {
		if i.Severity == SeverityError {
			why = i.Message
		}
	}
	states := root.Get("states")
	names := states.Keys()
	known := newSet(names)
	add := func(name *document.Node) {
		if name != nil && name.Kind == document.String && !known[name.Text] {
			known[name.Text] = true
			names = append(names, name.Text)
		}
	}
	add(root.Get("initialState"))
	for _, state := range membersOf(states) {
		for _, t := range membersOf(state.Value.Get("transitions")) {
			add(t.Value)
		}
	}
	var members []string
	for _, name := range names {
		var transitions []string
		for _, action := range states.At(name, "transitions").Keys() {
			target := states.At(name, "transitions", action)
			if target.Kind != document.String {
				target = &document.Node{Kind: document.String, Text: name}
			}
			transitions = append(transitions, quoteJSON(action)+":"+rejectTransition(target.Text, why))
		}
		state := `{"final":true}`
		if final := states.At(name, "final"); final == nil || final.Kind != document.True {
			if len(transitions) == 0 { // a state must be final or have a transition
				transitions = []string{`"set-aside":` + rejectTransition(name, why)}
			}
			state = `{"transitions":{` + strings.Join(transitions, ",") + `}}`
		}
		members = append(members, quoteJSON(name)+":"+state)
	}
	if !replaceMember(root, "states", "{"+strings.Join(members, ",")+"}") {
		return nil
	}
	root.Members = slices.DeleteFunc(root.Members, func(m document.Member) bool {
		return !slices.Contains([]string{"name", "description", "initialState", "states"}, m.Key)
	})
	return root.JSON()
}

// maxQuotedError limits how many bytes of an error a rejection quotes.
const maxQuotedError = 300

func rejectScript(why string) string {
	reason := fmt.Sprintf("This action is disabled because the imported definition is not valid (%.*s). Ask an operator to fix it.", maxQuotedError, why)
	return "() => ({ valid: false, reason: " + quoteJSON(reason) + " })"
}

func rejectTransition(target, why string) string {
	return `{"target":` + quoteJSON(target) + `,"validator":` + quoteJSON(rejectScript(why)) + `}`
}

// replaceMember replaces the value of a key with value, which is JSON. It returns false if
// there is no such key or value does not parse within MaxDefinition.
func replaceMember(n *document.Node, key, value string) bool {
	at := slices.Index(n.Keys(), key)
	v, err := document.Parse("x.json", []byte(value), document.Limits{Bytes: MaxDefinition})
	if at < 0 || err != nil {
		return false
	}
	n.Members[at].Value = v
	return true
}
