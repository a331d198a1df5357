package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Tools calls tools of other MCP servers.
type Tools interface {
	// CallTool calls a tool with the rights of a principal. params are those of tools/call. As with judge.Fetcher, an
	// error does not concern the tool itself.
	CallTool(ctx context.Context, p engine.Principal, server, tool string, params json.RawMessage) (ToolReply, error)
}

// ToolReply is the server's response, either a result or a JSON-RPC error, or the reason why there is none.
type ToolReply struct {
	Result, Error json.RawMessage
	Failure       judge.EvidenceFailure
	Detail        string // of the failure; "" for a timeout of the source
}

// tool calls a tool of another MCP server.
type tool struct {
	Tool
	limit   int
	output  Output
	manager *Manager
}

func (t *tool) warnings() []string { return nil }

func (t *tool) prepare(r judge.EvidenceRequest, given document.JSON) (fetch, string) {
	p := engine.Principal{ID: r.Principal, Role: engine.Role(r.Role)}
	params := json.RawMessage(`{"arguments":` + string(given.Raw()) + `}`)
	return func(ctx context.Context) (judge.FetchResult, error) { return t.call(ctx, p, params) }, ""
}

// call calls the tool as the principal whose move is judged.
func (t *tool) call(ctx context.Context, p engine.Principal, params json.RawMessage) (judge.FetchResult, error) {
	if t.manager.tools == nil {
		return failedFetch(judge.FailureUnavailable, "this program cannot call tools of other servers"), nil
	}
	reply, err := t.manager.tools.CallTool(ctx, p, t.Server, t.Name, params)
	switch {
	case err != nil:
		return judge.FetchResult{}, err
	case reply.Failure != "":
		return judge.FetchResult{Failure: reply.Failure, Detail: reply.Detail}, nil
	}
	return t.read(reply), nil
}

// read extracts the content from a reply: the structured content or the text.
func (t *tool) read(reply ToolReply) judge.FetchResult {
	if reply.Error != nil {
		return failedFetch(judge.FailureRefused, "the server answered with the error %s", document.ReadTrusted(reply.Error).Get("code").Raw())
	}
	result := document.ReadTrusted(reply.Result)
	if result.Get("isError").Kind() == document.True {
		return failedFetch(judge.FailureRefused, "the tool reported an error (isError)")
	}
	structured, text := result.Get("structuredContent"), joinTexts(result)
	isStructured := structured.Kind() != 0 && structured.Kind() != document.Null
	var d objectWriter
	switch {
	case !isStructured && text == nil:
		return failedFetch(judge.FailureMalformed, "the tool answered with neither structured content nor text")
	case isStructured && t.output != OutputText:
		text = structured.Raw()
	case t.output != OutputJSON:
		sink := newCapture(t.limit)
		sink.Write(text) //nolint:errcheck // it takes everything
		kept, truncated := sink.text()
		d.set("output", kept)
		return judge.FetchResult{Content: d.end(), Truncated: truncated}
	}
	text = bytes.TrimSpace(text)
	if len(text) > t.limit {
		return failedFetch(judge.FailureTooLarge, "the tool answered with more than %d bytes", t.limit)
	}
	if problem := checkJSON(text, t.limit); problem != "" {
		return failedFetch(judge.FailureMalformed, "the tool's answer %s", problem)
	}
	d.set("result", json.RawMessage(text))
	return judge.FetchResult{Content: d.end()}
}

// joinTexts returns the text of a result; nil if it has none. It ignores images, sounds and links.
func joinTexts(result document.JSON) []byte {
	var texts []string
	for _, block := range result.Get("content").Elements() {
		if block.Get("type").Is("text") {
			texts = append(texts, block.Get("text").Text())
		}
	}
	if texts == nil {
		return nil
	}
	return []byte(strings.Join(texts, "\n"))
}
