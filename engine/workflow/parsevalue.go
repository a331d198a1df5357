package workflow

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// label reads the name of a state or an outcome, "" when absent.
func (p *parser) label(o *document.ObjectReader, name string) string {
	text := o.String(name)
	if n := o.Value(name); n != nil && n.Kind == document.String {
		p.isLabel(text, n, shown(name))
	}
	return text
}

// isLabel refuses names that cannot be shown as they are.
func (p *parser) isLabel(text string, n *document.Node, what string) {
	switch {
	case text == "":
		p.refuse(n, "%s is empty", what)
	case script.Clean(text, len(text)) != text:
		p.refuse(n, "%s has control characters or invisible ones", what)
	case len([]rune(text)) > MaxLabel:
		p.refuse(n, "%s has more than %d characters", what, MaxLabel)
	}
}

// names reads a list of strings that are not empty, nil when absent.
func (p *parser) names(o *document.ObjectReader, name string) []string {
	return p.filled(o.Strings(name), o.Value(name))
}

// filled refuses an empty string in a list.
func (p *parser) filled(list []string, n *document.Node) []string {
	if slices.Contains(list, "") {
		p.refuse(n, "an empty string stands where a name is expected")
	}
	return list
}

// schema reads a JSON Schema, nil when absent. Whether it compiles is Lint's to say.
func (p *parser) schema(o *document.ObjectReader, name string) json.RawMessage {
	if o.Object(name).Node() == nil {
		return nil
	}
	return o.Raw(name)
}

// script reads the source of a validator or condition, "" when absent.
func (p *parser) script(o *document.ObjectReader, name string) string {
	text := o.String(name)
	if n := o.Value(name); n != nil {
		p.isScript(n)
	}
	return text
}

func (p *parser) isScript(n *document.Node) {
	switch {
	case n.Kind != document.String: // reported by the reader
	case n.Text == "":
		p.refuse(n, "the script is empty")
	case len(n.Text) > MaxScript:
		p.add("size", n, n.Line, "the script has %d bytes; at most %d are allowed", len(n.Text), MaxScript)
	}
}

func (p *parser) roles(o *document.ObjectReader) []string {
	list := o.Strings("roles")
	if list != nil && len(list) == 0 {
		p.refuse(o.Value("roles"), "no role may perform this; name one, or leave the key out")
	}
	for i, role := range list {
		if n := o.Value("roles"); !slices.Contains(Roles, role) && i < len(n.Items) {
			p.refuse(n.Items[i], "unknown role %s%s", shown(role), didYouMean(role, Roles))
		}
	}
	return list
}
