package gateway

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/gavel-mcp/gavel/internal/mcpwire"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// nameMember is the member of a definition that clients name it by.
var nameMember = map[upstream.Kind]string{
	upstream.KindTool: "name", upstream.KindPrompt: "name", upstream.KindResource: "uri", upstream.KindTemplate: "uriTemplate",
}

// publish is an item under the name that clients know it by.
func publishItem(item upstream.Item) mcpwire.Item {
	doc := document.Known(item.Raw).Edit(func(name string, value document.JSON) json.RawMessage {
		if name == nameMember[item.Kind] {
			return document.AppendQuote(nil, item.Public)
		}
		return value.Raw()
	})
	return mcpwire.Item{Name: item.Public, JSON: doc}
}

// prefixURIs puts the server's name in front of the URIs in a result, by which clients read
// what they name: those of contents that were read, of embedded resources, and of links. A link
// to a page stays as it is: clients follow it themselves.
func prefixURIs(server string, kind mcpwire.Kind, result json.RawMessage) json.RawMessage {
	if !bytes.Contains(result, []byte(`"uri"`)) {
		return result
	}
	doc, e := document.Known(result), uriEditor{prefix: server + "+"}
	if doc.Kind() != document.Object {
		return result
	}
	list, edit := "content", e.block
	switch kind {
	case mcpwire.Resource:
		list, edit = "contents", e.resource
	case mcpwire.Prompt:
		list, edit = "messages", e.message
	case mcpwire.Tool, mcpwire.Template:
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

// member edits one member of an object, if it is of a kind.
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
