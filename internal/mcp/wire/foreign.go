package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Kind is a kind of list entry.
type Kind string

// The list kinds.
const (
	Tool     Kind = "tool"
	Resource Kind = "resource"
	Template Kind = "template"
	Prompt   Kind = "prompt"
)

// Foreign offers the tools, resources and prompts of other servers next to this server's own. They reach the client
// as raw JSON, so no member is lost.
type Foreign interface {
	// List returns the entries of a kind that a principal may see, in listing order. It does not block.
	List(p engine.Principal, kind Kind) []Item
	// Find returns one entry that the context's caller may see.
	Find(ctx context.Context, kind Kind, name string) (Item, bool)
	// Ask answers a request. It returns ErrNotForeign if the request concerns nothing that the principal may see
	// here. Any other error has the meaning of an error from Tools.Call.
	Ask(context.Context, engine.Principal, Request) (Reply, error)
	// Changed returns a channel that is closed once List may return something different for the principal, or nil if
	// that never happens.
	Changed(p engine.Principal, kind Kind) <-chan struct{}
}

// Item is one entry of a list.
type Item struct {
	Name string // the URI for a resource or a template
	JSON json.RawMessage
}

// Request is a request about a listed entry: tools/call, resources/read, prompts/get or completion/complete.
type Request struct {
	Method string
	Kind   Kind
	Name   string          // as listed; for a resource, the requested URI
	Params json.RawMessage // as the client sent them
}

// Reply is another server's response. Exactly one of the two fields is set.
type Reply struct {
	Result, Error json.RawMessage
}

// ErrNotForeign is returned by Foreign.Ask for requests that this server must answer itself.
var ErrNotForeign = errors.New("no tool or resource of another server has this name")

const (
	methodListTools     = string(mcp.MethodToolsList)
	methodListResources = string(mcp.MethodResourcesList)
	methodListTemplates = string(mcp.MethodResourcesTemplatesList)
	methodListPrompts   = string(mcp.MethodPromptsList)
	methodReadResource  = string(mcp.MethodResourcesRead)
	methodGetPrompt     = string(mcp.MethodPromptsGet)
	methodComplete      = string(mcp.MethodCompletionComplete)
)

// answerForeign lets another server answer. It returns false if the request does not concern one.
func (w *Wire) answerForeign(r *request, m message) (outcome, bool) {
	if w.cfg.Foreign == nil || m.wrongType != nil {
		return outcome{}, false
	}
	ask := Request{Method: m.method, Name: m.name, Params: m.params}
	switch m.method {
	case methodCallTool:
		ask.Kind = Tool
	case methodGetPrompt:
		ask.Kind = Prompt
	case methodReadResource:
		ask.Kind = Resource
	case methodComplete:
		ref := document.ReadTrusted(m.params).Get("ref")
		ask.Kind, ask.Name = Prompt, ref.Get("name").Text()
		if ref.Get("type").Is("ref/resource") {
			ask.Kind, ask.Name = Template, ref.Get("uri").Text()
		}
	default:
		return outcome{}, false
	}
	reply, err := w.cfg.Foreign.Ask(r.ctx, CallerOf(r.ctx), ask)
	switch {
	case errors.Is(err, ErrNotForeign):
		return outcome{}, false
	case err != nil:
		return outcome{err: w.explain(r.ctx, m.method, err)}, true
	case reply.Error != nil:
		return w.relayError(r.ctx, m.method, reply.Error), true
	}
	result := document.ReadTrusted(reply.Result) // Raw also puts it on one line
	if result.Kind() != document.Object {
		return outcome{err: w.explain(r.ctx, m.method, fmt.Errorf("a reply whose result is %s", result.Kind()))}, true
	}
	if r.modern {
		return outcome{result: w.decorateForeign(result, m.method)}, true
	}
	return outcome{result: result.Raw()}, true
}

func (w *Wire) relayError(ctx context.Context, method string, raw json.RawMessage) outcome {
	doc := document.ReadTrusted(raw)
	e := &Error{Message: doc.Get("message").Text(), raw: doc.Raw()}
	if json.Unmarshal(doc.Get("code").Raw(), &e.Code) != nil || len(raw) > maxAnswer {
		return outcome{err: w.explain(ctx, method, fmt.Errorf("a reply of %d bytes whose error has no code, or is too large", len(raw)))}
	}
	return outcome{err: e}
}

// decorateForeign adds members that 2026-07-28 requires and that an older server did not send. It makes any cache
// scope private: access depends on the caller, so caches must not share the result.
func (w *Wire) decorateForeign(result document.JSON, method string) json.RawMessage {
	const private = `"` + string(mcp.CacheScopePrivate) + `"`
	cached := method == methodReadResource
	doc := result.Edit(func(name string, value document.JSON) json.RawMessage {
		if name == "cacheScope" {
			return json.RawMessage(private)
		}
		return value.Raw()
	})
	add := func(name string, wanted bool, value []byte) {
		if !wanted || result.Get(name).Kind() != 0 {
			return
		}
		doc = doc[:len(doc)-1]
		if len(doc) > 1 {
			doc = append(doc, ',')
		}
		doc = append(document.AppendQuote(doc, name), ':')
		doc = append(append(doc, value...), '}')
	}
	add("resultType", true, []byte(`"`+string(mcp.ResultTypeComplete)+`"`))
	add("_meta", true, encodeJSON(map[string]any{mcp.MetaKeyServerInfo: w.cfg.Info}))
	add("ttlMs", cached, []byte("0"))
	add("cacheScope", cached, []byte(private))
	return doc
}

// listedBy returns the kind of entry that a list method returns, and the name of that member in its result.
func listedBy(method string) (kind Kind, member string) {
	switch method {
	case methodListTools:
		return Tool, "tools"
	case methodListResources:
		return Resource, "resources"
	case methodListTemplates:
		return Template, "resourceTemplates"
	case methodListPrompts:
		return Prompt, "prompts"
	default:
		return "", ""
	}
}

// list answers a list request: this server's own entries first, then those of other servers.
func (w *Wire) list(r *request, m message, kind Kind, member string) outcome {
	out := w.handle(r, m)
	if w.cfg.Foreign == nil || out.err != nil {
		return out
	}
	items := w.cfg.Foreign.List(CallerOf(r.ctx), kind)
	if len(items) == 0 {
		return out
	}
	own, err := document.Marshal(out.result)
	if err != nil {
		return outcome{err: w.explain(r.ctx, m.method, err)}
	}
	return outcome{result: document.ReadTrusted(own).Edit(func(name string, value document.JSON) json.RawMessage {
		doc := value.Raw()
		if name != member {
			return doc
		}
		all := append([]byte{'['}, doc[1:len(doc)-1]...)
		for _, item := range items {
			if len(all) > 1 {
				all = append(all, ',')
			}
			all = append(all, adaptToEra(r.modern, kind, item.JSON)...)
		}
		return append(all, ']')
	})}
}

// adaptToEra removes an outputSchema whose type is not object from a tool, for clients that use initialize. Their
// protocol versions allow only objects, and their SDKs reject the whole list otherwise.
func adaptToEra(modern bool, kind Kind, definition json.RawMessage) json.RawMessage {
	if modern || kind != Tool || !bytes.Contains(definition, []byte(`"outputSchema"`)) {
		return definition
	}
	return document.ReadTrusted(definition).Edit(func(name string, value document.JSON) json.RawMessage {
		if name == "outputSchema" && !value.Get("type").Is("object") {
			return nil
		}
		return value.Raw()
	})
}

// changing is a list that may change for a principal, with the notification that announces it.
type changing struct {
	method string
	again  func() <-chan struct{}
	once   <-chan struct{} // returned by again before the client could read the list
}

// changingLists returns the lists that may change for a principal. A non-nil follows restricts them to those the
// client asked for.
func (w *Wire) changingLists(p engine.Principal, follows *mcp.SubscriptionFilter) (lists []changing) {
	if follows == nil {
		follows = &mcp.SubscriptionFilter{ToolsListChanged: true, ResourcesListChanged: true, PromptsListChanged: true}
	}
	add := func(wanted bool, method string, again func() <-chan struct{}) {
		if !wanted {
			return
		}
		if once := again(); once != nil {
			lists = append(lists, changing{method, again, once})
		}
	}
	add(follows.ToolsListChanged, mcp.MethodNotificationToolsListChanged, func() <-chan struct{} { return w.cfg.Tools.Changed(p) })
	if f := w.cfg.Foreign; f != nil {
		of := func(kind Kind) func() <-chan struct{} { return func() <-chan struct{} { return f.Changed(p, kind) } }
		add(follows.ToolsListChanged, mcp.MethodNotificationToolsListChanged, of(Tool))
		add(follows.ResourcesListChanged, mcp.MethodNotificationResourcesListChanged, of(Resource))
		add(follows.ResourcesListChanged, mcp.MethodNotificationResourcesListChanged, of(Template))
		add(follows.PromptsListChanged, mcp.MethodNotificationPromptsListChanged, of(Prompt))
	}
	return lists
}

// announceLists notifies a client of list changes until ctx ends.
func announceLists(ctx context.Context, lists []changing, stream json.RawMessage, write func(line []byte) error) {
	var background sync.WaitGroup
	for _, list := range lists {
		background.Go(func() {
			for changed := list.once; ; {
				select {
				case <-ctx.Done():
					return
				case <-changed:
				}
				changed = list.again()
				if write(notificationLine(list.method, stream, nil)) != nil {
					return
				}
			}
		})
	}
	background.Wait()
}
