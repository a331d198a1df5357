package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// SetAside changes a definition that is not valid so that instances of it can be kept: what its
// errors concern cannot happen until somebody corrects it. A script that does not compile refuses,
// and so does a transition to an unknown state. With whole, or where other errors may concern any
// move, every transition refuses, and only the states are as they were. It returns nil where that
// cannot be done, or would lose what a definition written for gavel says.
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
			done = replaceMember(root.Get(at[0]), at[1], quoteJSON(refusingScript(i.Message)))
		case (i.Rule == "script-invalid" || i.Rule == "unknown-target") && len(at) >= 4 && at[0] == "states" && at[2] == "transitions":
			done = replaceMember(root.At(at[:3]...), at[3], refusingTransition(at[1], i.Message))
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
		return nil // the rest may say what is not to be shown
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
			transitions = append(transitions, quoteJSON(action)+":"+refusingTransition(target.Text, why))
		}
		state := `{"final":true}`
		if final := states.At(name, "final"); final == nil || final.Kind != document.True {
			if len(transitions) == 0 { // it has to have one
				transitions = []string{`"set-aside":` + refusingTransition(name, why)}
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

// maxWhy is how much of an error a refusal says, in bytes.
const maxWhy = 300

func refusingScript(why string) string {
	reason := fmt.Sprintf("An import has set this action aside, because the definition is not valid (%.*s). Ask an operator to correct it.", maxWhy, why)
	return "() => ({ valid: false, reason: " + quoteJSON(reason) + " })"
}

func refusingTransition(target, why string) string {
	return `{"target":` + quoteJSON(target) + `,"validator":` + quoteJSON(refusingScript(why)) + `}`
}

// replaceMember gives a key of an object another value, written as JSON; false where there is no
// such key, or the value is too long.
func replaceMember(n *document.Node, key, value string) bool {
	at := slices.Index(n.Keys(), key)
	v, err := document.Parse("x.json", []byte(value), document.Limits{Bytes: MaxDefinition})
	if at < 0 || err != nil {
		return false
	}
	n.Members[at].Value = v
	return true
}
