package foreign

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// nameMember maps a kind to the member of its definitions that holds the name for clients.
var nameMember = map[upstream.Kind]string{
	upstream.KindTool: "name", upstream.KindPrompt: "name", upstream.KindResource: "uri", upstream.KindTemplate: "uriTemplate",
}

var isAbsoluteURI = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`) })

// isListable reports whether strict clients accept an item in a list. They reject a whole list if the URI of one resource
// has no scheme. Chains, and callers that know its URI, can still read such a resource.
func isListable(item upstream.Item) bool {
	return item.Kind != upstream.KindResource || isAbsoluteURI().MatchString(item.Public)
}

// publishItem returns an item with its public name and, for a tool with a gate, the gate's additions.
func publishItem(item upstream.Item) wire.Item {
	doc := document.ReadTrusted(item.Raw).Edit(func(name string, value document.JSON) json.RawMessage {
		if name == nameMember[item.Kind] {
			return document.AppendQuote(nil, item.Public)
		}
		return value.Raw()
	})
	if item.Gate != nil {
		doc = describeGate(doc, *item.Gate)
	}
	return wire.Item{Name: item.Public, JSON: doc}
}

// describeGate adds to a tool's definition the states in which its gate allows calls and, unless the gate has a
// subject, the handle as a required argument.
func describeGate(doc json.RawMessage, g gate.Gate) json.RawMessage {
	tool := document.ReadTrusted(doc)
	description := strings.TrimSpace(tool.Get("description").Text() + "\n\n" + g.Describe())
	doc = setMember(tool, "description", document.AppendQuote(nil, description))
	if g.Subject != nil {
		return doc
	}
	schema := tool.Get("inputSchema")
	handle := document.AppendQuote([]byte(`{"type":"string","description":`), g.DescribeHandle())
	properties := setMember(schema.Get("properties"), gate.Handle, append(handle, '}'))
	required := []byte{'['}
	for _, name := range schema.Get("required").Elements() {
		required = append(append(required, name.Raw()...), ',')
	}
	required = append(document.AppendQuote(required, gate.Handle), ']')
	if schema.Kind() != document.Object {
		schema = document.ReadTrusted([]byte(`{"type":"object"}`))
	}
	schema = document.ReadTrusted(setMember(schema, "properties", properties))
	return setMember(document.ReadTrusted(doc), "inputSchema", setMember(schema, "required", required))
}

// setMember returns the object with a member replaced, or added before all others.
func setMember(object document.JSON, name string, value json.RawMessage) json.RawMessage {
	if object.Get(name).Kind() != 0 {
		return object.Edit(func(key string, old document.JSON) json.RawMessage {
			if key == name {
				return value
			}
			return old.Raw()
		})
	}
	b := append([]byte{'{'}, document.AppendQuote(nil, name)...)
	b = append(append(b, ':'), value...)
	for key, old := range object.Members() {
		b = append(append(append(append(b, ','), key.Raw()...), ':'), old.Raw()...)
	}
	return append(b, '}')
}

// prefixURIs adds the server's name to the URIs in a result by which clients read resources: those of resource
// contents, embedded resources and resource links. It leaves http and https links alone, because clients follow them
// without gavel.
func prefixURIs(server string, kind wire.Kind, result json.RawMessage) json.RawMessage {
	if !bytes.Contains(result, []byte(`"uri"`)) {
		return result
	}
	doc, e := document.ReadTrusted(result), uriEditor{prefix: server + "+"}
	if doc.Kind() != document.Object {
		return result
	}
	list, edit := "content", e.block
	switch kind {
	case wire.Resource:
		list, edit = "contents", e.resource
	case wire.Prompt:
		list, edit = "messages", e.message
	case wire.Tool, wire.Template:
	}
	return e.member(doc, list, document.Array, func(blocks document.JSON) json.RawMessage {
		return blocks.Edit(func(_ string, block document.JSON) json.RawMessage {
			if block.Kind() != document.Object {
				return block.Raw()
			}
			return edit(block)
		})
	})
}

type uriEditor struct{ prefix string }

// member edits one member of an object, if the member has the given kind.
func (e uriEditor) member(object document.JSON, name string, kind document.Kind, edit func(document.JSON) json.RawMessage) json.RawMessage {
	return object.Edit(func(key string, value document.JSON) json.RawMessage {
		if key == name && value.Kind() == kind {
			return edit(value)
		}
		return value.Raw()
	})
}

func (e uriEditor) uri(v document.JSON) json.RawMessage {
	return document.AppendQuote(nil, e.prefix+v.Text())
}

func (e uriEditor) link(v document.JSON) json.RawMessage {
	scheme, _, _ := strings.Cut(v.Text(), ":")
	if strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http") {
		return v.Raw()
	}
	return e.uri(v)
}

func (e uriEditor) resource(v document.JSON) json.RawMessage {
	return e.member(v, "uri", document.String, e.uri)
}

func (e uriEditor) block(v document.JSON) json.RawMessage {
	switch {
	case v.Get("type").Is("resource_link"):
		return e.member(v, "uri", document.String, e.link)
	case v.Get("type").Is("resource"):
		return e.member(v, "resource", document.Object, e.resource)
	default:
		return v.Raw()
	}
}

func (e uriEditor) message(v document.JSON) json.RawMessage {
	return e.member(v, "content", document.Object, e.block)
}
