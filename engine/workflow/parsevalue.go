package workflow

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// parseLabel reads the name of a state or an outcome, "" when absent.
func (p *parser) parseLabel(o *document.ObjectReader, name string) string {
	text := o.String(name)
	if n := o.Value(name); n != nil && n.Kind == document.String {
		p.checkLabel(text, n, quoteName(name))
	}
	return text
}

// checkLabel refuses names that cannot be shown as they are.
func (p *parser) checkLabel(text string, n *document.Node, what string) {
	switch {
	case text == "":
		p.rejectValue(n, "%s is empty", what)
	case script.Clean(text, len(text)) != text:
		p.rejectValue(n, "%s contains control or invisible characters; remove them", what)
	case len([]rune(text)) > MaxLabel:
		p.rejectValue(n, "%s has more than %d characters", what, MaxLabel)
	}
}

// parseNames reads a list of strings that are not empty, nil when absent.
func (p *parser) parseNames(o *document.ObjectReader, name string) []string {
	return p.rejectEmpty(o.Strings(name), o.Value(name))
}

func (p *parser) rejectEmpty(list []string, n *document.Node) []string {
	if slices.Contains(list, "") {
		p.rejectValue(n, "empty string where a name is expected; remove it")
	}
	return list
}

// parseSchema reads a JSON Schema, nil when absent. Whether it compiles is Lint's to say.
func (p *parser) parseSchema(o *document.ObjectReader, name string) json.RawMessage {
	if o.Object(name).Node() == nil {
		return nil
	}
	return o.Raw(name)
}

// parseScript reads the source of a validator or condition, "" when absent.
func (p *parser) parseScript(o *document.ObjectReader, name string) string {
	text := o.String(name)
	if n := o.Value(name); n != nil {
		p.checkScript(n)
	}
	return text
}

func (p *parser) checkScript(n *document.Node) {
	switch {
	case n.Kind != document.String: // reported by the reader
	case n.Text == "":
		p.rejectValue(n, "the script is empty")
	case len(n.Text) > MaxScript:
		p.addIssue("size", n, n.Line, "the script has %d bytes; at most %d are allowed", len(n.Text), MaxScript)
	}
}

func (p *parser) parseRoles(o *document.ObjectReader) []string {
	list := o.Strings("roles")
	if list != nil && len(list) == 0 {
		p.rejectValue(o.Value("roles"), "roles is empty: name a role, or leave the key out")
	}
	for i, role := range list {
		if n := o.Value("roles"); !slices.Contains(Roles, role) && i < len(n.Items) {
			p.rejectValue(n.Items[i], "unknown role %s%s", quoteName(role), suggestName(role, Roles))
		}
	}
	return list
}
