package mcpwire

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

// Kind is a kind of what a server lists.
type Kind string

// The kinds.
const (
	Tool     Kind = "tool"
	Resource Kind = "resource"
	Template Kind = "template"
	Prompt   Kind = "prompt"
)

// Foreign is what is offered next to the server's own tools, resources and prompts: those of
// other servers. It goes to the client as raw JSON, so that nothing of it is lost.
type Foreign interface {
	// List returns what a principal sees of a kind, in the order in which it is listed. It
	// waits for nobody.
	List(p engine.Principal, kind Kind) []Item
	// Find returns one of those that the caller of the context sees.
	Find(ctx context.Context, kind Kind, name string) (Item, bool)
	// Ask has a request answered. ErrNotForeign: it is about nothing that the principal sees
	// here; any other error is as one of Tools.Call.
	Ask(context.Context, engine.Principal, Request) (Reply, error)
	// Changed returns a channel that is closed once List may answer the principal something
	// else than now; nil if it never does.
	Changed(p engine.Principal, kind Kind) <-chan struct{}
}

// Item is one entry of a list.
type Item struct {
	Name string // of a resource or template its URI
	JSON json.RawMessage
}

// Request is a request about a thing that is listed: tools/call, resources/read, prompts/get
// or completion/complete.
type Request struct {
	Method string
	Kind   Kind
	Name   string          // as listed; of a resource the URI that was asked for
	Params json.RawMessage // as the client sent them
}

// Reply is the answer of another server, one of the two: a result or an error.
type Reply struct {
	Result, Error json.RawMessage
}

// ErrNotForeign is the error of Foreign.Ask for what this server has to answer itself.
var ErrNotForeign = errors.New("nothing of another server has this name")

const (
	methodListTools     = string(mcp.MethodToolsList)
	methodListResources = string(mcp.MethodResourcesList)
	methodListTemplates = string(mcp.MethodResourcesTemplatesList)
	methodListPrompts   = string(mcp.MethodPromptsList)
	methodReadResource  = string(mcp.MethodResourcesRead)
	methodGetPrompt     = string(mcp.MethodPromptsGet)
	methodComplete      = string(mcp.MethodCompletionComplete)
)

// answerForeign has another server answer; false for what is not about one.
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
		ref := document.Known(m.params).Get("ref")
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
	result := document.Known(reply.Result) // and in one line
	if result.Kind() != document.Object {
		return outcome{err: w.explain(r.ctx, m.method, fmt.Errorf("a reply whose result is %s", result.Kind()))}, true
	}
	if r.modern {
		return outcome{result: w.decorateForeign(result, m.method)}, true
	}
	return outcome{result: result.Raw()}, true
}

func (w *Wire) relayError(ctx context.Context, method string, raw json.RawMessage) outcome {
	doc := document.Known(raw)
	e := &Error{Message: doc.Get("message").Text(), raw: doc.Raw()}
	if json.Unmarshal(doc.Get("code").Raw(), &e.Code) != nil || len(raw) > maxAnswer {
		return outcome{err: w.explain(ctx, method, fmt.Errorf("a reply of %d bytes whose error has no code, or is too large", len(raw)))}
	}
	return outcome{err: e}
}

// decorateForeign adds what the era without sessions wants in a result and an older server did not
// say. Who may read it depends on the caller, so that no cache may share it.
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

// listedBy is what the lists of a method hold, and the member of its result that they are.
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

// list answers a list: what is this server's own, and then what is not.
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
	return outcome{result: document.Known(own).Edit(func(name string, value document.JSON) json.RawMessage {
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

// adaptToEra leaves an outputSchema that is not of an object out of a tool for clients of the era of
// initialize, in which there is none such: their SDKs refuse the whole list for one.
func adaptToEra(modern bool, kind Kind, definition json.RawMessage) json.RawMessage {
	if modern || kind != Tool || !bytes.Contains(definition, []byte(`"outputSchema"`)) {
		return definition
	}
	return document.Known(definition).Edit(func(name string, value document.JSON) json.RawMessage {
		if name == "outputSchema" && !value.Get("type").Is("object") {
			return nil
		}
		return value.Raw()
	})
}

// changing is a list that may change for a principal, and how that is told.
type changing struct {
	method string
	again  func() <-chan struct{}
	once   <-chan struct{} // what again returned before the client could see the list
}

// changingLists are those that may change for a principal; of a client that says which it
// follows, these.
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

// announceLists tells a client that lists changed, until ctx ends.
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
