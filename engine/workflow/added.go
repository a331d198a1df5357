package workflow

import (
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// StateKey is a key that a module adds to the states of definitions. Its value is an object.
type StateKey struct {
	// Name is the key. Doc describes it, and About its value, on the reference page of the format.
	Name, Doc, About string
	// Keys are the keys of the value, Required those that must be present.
	Keys     []ObjectKey
	Required []string
	// Parse reads the value; the result goes into State.Added.
	Parse func(*StateReader) any
	// FindHold returns what keeps an instance in a state with this value; nil for nothing.
	FindHold func(value any, s *State, f Facts) *Hold
	// Rules are added to those of Lint.
	Rules []Rule
	// Codes documents the codes of its findings.
	Codes []CodeInfo
}

// Hold is a reason why an instance may not move: a call must be made first.
type Hold struct {
	Gate    string // of the call
	Finding validators.Finding
}

// StateReader reads the value of a StateKey.
type StateReader struct {
	*document.ObjectReader
	parser *parser
}

// Label reads a string that obeys the rules for names of actions; "" if absent.
func (r *StateReader) Label(key string) string { return r.parser.parseLabel(r.ObjectReader, key) }

// Reject reports a value that is not allowed.
func (r *StateReader) Reject(n *document.Node, message string) {
	r.parser.rejectValue(n, "%s", message)
}

// NewRule returns a rule of Lint. operator reports whether an operator owns the definition, report adds an
// issue at a JSON pointer.
func NewRule(id string, severity Severity, doc string, check func(d *Definition, operator bool, report func(path, format string, args ...any))) Rule {
	return Rule{id, severity, doc, func(s *linter) { check(s.Definition, s.trusted, s.addIssue) }}
}

var (
	addedKeys  []StateKey
	addedRules []Rule
)

// AddStateKey adds a key to the format of definitions. Call it from an init function.
func AddStateKey(k StateKey) {
	if slices.Contains(stateObject.listKeys(), k.Name) {
		panic(fmt.Sprintf("states already have a key %q", k.Name))
	}
	addedKeys, addedRules, Codes = append(addedKeys, k), append(addedRules, k.Rules...), append(Codes, k.Codes...)
	stateObject.keys = append(stateObject.keys, ObjectKey{k.Name, k.Doc, `{"$ref":"#/$defs/` + k.Name + `"}`})
	objects = slices.Insert(objects, slices.Index(objects, &stateObject)+1, &objectGrammar{k.Name, k.About, k.Keys, k.Required})
}

// parseAdded reads the keys of a state that modules added, nil for none.
func (p *parser) parseAdded(o *document.ObjectReader) (added map[string]any) {
	for _, k := range addedKeys {
		if !o.Has(k.Name) {
			continue
		}
		value := o.Object(k.Name)
		p.checkKeys(value, &objectGrammar{keys: k.Keys, required: k.Required})
		if added == nil {
			added = map[string]any{}
		}
		added[k.Name] = k.Parse(&StateReader{value, p})
	}
	return added
}

// FindHold returns what keeps an instance with these facts in a state; nil for nothing.
func (d *Definition) FindHold(state string, f Facts) *Hold {
	s := d.States[state]
	if s == nil {
		return nil
	}
	for _, k := range addedKeys {
		if value, ok := s.Added[k.Name]; ok && k.FindHold != nil {
			if h := k.FindHold(value, s, f); h != nil {
				return h
			}
		}
	}
	return nil
}
