package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Adapt converts a definition written for the Generic DFA server so that it behaves here as it did there. That server
// ignored anything it did not know. Adapt removes unknown keys and checks of unknown states and actions, and makes
// states without transitions final. Each change is a warning. Without changes it returns the document as it is.
//
// Adapt removes nothing that may be meant as a guard: an unknown name similar to a known one stays,
// for Parse or Lint to reject. A definition with keys that only gavel has is not changed at all.
func Adapt(source string, doc []byte) (adapted []byte, changes []Issue) {
	root, err := document.Parse(chooseName(source, doc), doc, document.Limits{Bytes: MaxDefinition})
	if err != nil || root.Kind != document.Object || hasOwnKeys(root) {
		return doc, nil
	}
	a := adapter{lines: root.Lines()}
	a.dropUnknownKeys(root, &documentObject)
	a.dropUnknownKeys(root.Get("judgeConfig"), &judgeObject)
	for _, m := range membersOf(root.Get("stateValidators")) {
		a.dropUnknownKeys(m.Value, &stateValidatorObject)
	}
	var actions []string
	for _, m := range membersOf(root.Get("states")) {
		a.dropUnknownKeys(m.Value, &stateObject)
		for _, action := range a.endState(m) {
			actions = append(actions, action, m.Key+"."+action)
		}
	}
	a.dropUnknownChecks(root.Get("stateValidators"), root.Get("states").Keys(), "the checks of the unknown state %s are removed")
	a.dropUnknownChecks(root.Get("transitionValidators"), actions, "the validator of the unknown action %s is removed")
	if len(a.edits) == 0 {
		return doc, nil
	}
	for _, edit := range a.edits {
		edit()
	}
	sortIssues(a.changes)
	if more := len(a.changes) - maxIssues; more > 0 {
		a.changes = append(a.changes[:maxIssues], Issue{Rule: "size", Severity: SeverityWarning, Message: fmt.Sprintf("and %d more changes", more)})
	}
	return root.JSON(), a.changes
}

// seedKeys are the keys that the Generic DFA server knows, and those that are only descriptive.
var seedKeys = map[*objectGrammar][]string{
	&documentObject:       {"name", "description", "states", "initialState", "judgeConfig", "stateValidators", "transitionValidators", "comment", "tags", "$schema"},
	&stateObject:          {"transitions", "final", "description", "outcome"},
	&judgeObject:          {"enabled", "useLLM", "strictMode", "minConfidence"},
	&stateValidatorObject: {"requiredFields"},
}

// hasOwnKeys reports whether a definition was written for gavel.
func hasOwnKeys(root *document.Node) bool {
	own := func(n *document.Node, g *objectGrammar) bool {
		return slices.ContainsFunc(n.Keys(), func(key string) bool {
			return slices.Contains(g.listKeys(), key) && !slices.Contains(seedKeys[g], key)
		})
	}
	if own(root, &documentObject) || own(root.Get("judgeConfig"), &judgeObject) {
		return true
	}
	for _, m := range membersOf(root.Get("stateValidators")) {
		if own(m.Value, &stateValidatorObject) {
			return true
		}
	}
	for _, state := range membersOf(root.Get("states")) {
		if own(state.Value, &stateObject) {
			return true
		}
		for _, t := range membersOf(state.Value.Get("transitions")) {
			if t.Value.Kind != document.String {
				return true
			}
		}
	}
	return false
}

// membersOf returns the members of an object, nil if it is absent.
func membersOf(n *document.Node) []document.Member {
	if n == nil {
		return nil
	}
	return n.Members
}

// adapter collects edits and applies them last, so that paths and lines are those of the original document.
type adapter struct {
	lines   map[string]int
	edits   []func()
	changes []Issue
}

func (a *adapter) change(rule, path string, edit func(), format string, args ...any) {
	a.edits = append(a.edits, edit)
	a.changes = append(a.changes, Issue{Rule: rule, Severity: SeverityWarning, Path: path, Line: a.lines[path], Message: fmt.Sprintf(format, args...)})
}

func removeMember(from *document.Node, keys ...string) func() {
	return func() {
		from.Members = slices.DeleteFunc(from.Members, func(m document.Member) bool { return slices.Contains(keys, m.Key) })
	}
}

// dropUnknownKeys removes the keys of an object that have no meaning here, and optional keys
// that are null.
func (a *adapter) dropUnknownKeys(n *document.Node, g *objectGrammar) {
	known := g.listKeys()
	var unknown []string
	for _, m := range membersOf(n) {
		isKnown := slices.Contains(known, m.Key)
		onlyDescribes := m.Key == "comment" && m.Value.Kind != document.String || m.Key == "tags" && !isStringMap(m.Value)
		switch {
		case isKnown && (onlyDescribes || m.Value.Kind == document.Null && !slices.Contains(g.required, m.Key)):
			a.change("type", m.Value.Path(), removeMember(n, m.Key), "%s is removed: it has a different type here", quoteName(m.Key))
		case !isKnown && notSupported[m.Key] == "" && document.Suggest(m.Key, known) == "":
			unknown = append(unknown, m.Key)
		}
	}
	if len(unknown) > 0 {
		a.change("unknown-key", n.Get(unknown[0]).Path(), removeMember(n, unknown...), "unknown keys are removed: %s", quoteNames(unknown))
	}
}

func isStringMap(n *document.Node) bool {
	return n.Kind == document.Object && !slices.ContainsFunc(n.Members, func(m document.Member) bool { return m.Value.Kind != document.String })
}

// dropUnknownChecks removes checks whose names are neither known nor similar to a known name. They never ran.
func (a *adapter) dropUnknownChecks(n *document.Node, known []string, format string) {
	for _, m := range membersOf(n) {
		if !slices.Contains(known, m.Key) && document.Suggest(m.Key, known[:min(len(known), maxCompared)]) == "" {
			a.change("unknown-validator", m.Value.Path(), removeMember(n, m.Key), format, quoteName(m.Key))
		}
	}
}

// endState makes a state without transitions final, and removes the transitions of a final state.
// It returns the remaining actions.
func (a *adapter) endState(state document.Member) (actions []string) {
	n := state.Value
	if n.Kind != document.Object {
		return nil
	}
	transitions, final := n.Get("transitions"), n.Get("final")
	isFinal := final != nil && final.Kind == document.True
	leaves := transitions != nil && (len(transitions.Members) > 0 || transitions.Kind != document.Object && transitions.Kind != document.Null)
	switch {
	case isFinal && leaves:
		a.change("final-with-transitions", n.Path(), removeMember(n, "transitions"),
			"the transitions of the final state %s are left out: a complete instance cannot move; to keep them, remove \"final\" and import again", quoteName(state.Key))
		return nil
	case !isFinal && !leaves && (final == nil || final.Kind == document.False || final.Kind == document.Null):
		a.change("dead-end", n.Path(), func() {
			removeMember(n, "final")()
			n.Members = append(n.Members, document.Member{Key: "final", Value: &document.Node{Kind: document.True, Text: "true"}})
		}, "the state %s has no transition and becomes final: its instances are complete", quoteName(state.Key))
	}
	return transitions.Keys()
}

// Relocate sets the lines of issues to those that their paths have in a document.
func Relocate(issues []Issue, source string, doc []byte) {
	root, err := document.Parse(chooseName(source, doc), doc, document.Limits{Bytes: MaxDefinition})
	if err != nil {
		return
	}
	d := Definition{lines: root.Lines()}
	for i := range issues {
		issues[i].Line = d.FindLine(issues[i].Path)
	}
	sortIssues(issues)
}

// IsName reports whether name is a valid workflow name.
func IsName(name string) bool { return namePattern().MatchString(name) }

// maxSuggested limits how many bytes of its input SuggestNames reads.
const maxSuggested = 1 << 10

// SuggestNames derives valid workflow names from a string, the closest first. The last one is different for each
// string.
func SuggestNames(text string) []string {
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:4])
	var b strings.Builder
	isLossy := len(text) > maxSuggested
	for _, r := range norm.NFKD.String(strings.ToValidUTF8(text[:min(len(text), maxSuggested)], "")) {
		switch {
		case r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("._-", r):
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r): // an accent
		default:
			isLossy = isLossy || unicode.IsLetter(r) || unicode.IsDigit(r)
			if s := b.String(); s != "" && !strings.HasSuffix(s, "-") {
				b.WriteByte('-')
			}
		}
	}
	near := strings.Trim(b.String(), "-.")
	if near == "" {
		near, isLossy = "workflow", true
	}
	distinct := strings.TrimRight(near[:min(len(near), MaxName-len(digest)-1)], "-.") + "-" + digest
	if isLossy || len(near) > MaxName {
		return []string{distinct}
	}
	return []string{near, distinct}
}
