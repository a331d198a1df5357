package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// tool calls a tool of another MCP server.
type tool struct {
	Tool
	limit  int
	output Output
	door   func() (*upstream.Manager, error)
}

func (t *tool) warnings() []string { return nil }

func (t *tool) prepare(r judge.EvidenceRequest, given document.JSON) (fetch, string) {
	p := engine.Principal{ID: r.Principal, Role: engine.Role(r.Role)}
	params := json.RawMessage(`{"arguments":` + string(given.Raw()) + `}`)
	return func(ctx context.Context) (judge.FetchResult, error) { return t.call(ctx, p, params) }, ""
}

// call asks as the principal whose move is judged. A call that ended because the upstreams
// were read again says nothing of the tool.
func (t *tool) call(ctx context.Context, p engine.Principal, params json.RawMessage) (judge.FetchResult, error) {
	door, err := t.door()
	if err != nil {
		return failedFetch(judge.FailureUnavailable, "the upstreams cannot be used: %v", err), nil
	}
	reply, err := door.Call(ctx, p, upstream.Request{
		Upstream: t.Server, Method: "tools/call", Kind: upstream.KindTool, Name: t.Name, Params: params,
		Progress: func(json.RawMessage) {}, // with it the source's timeout is the one that counts
	})
	if err == nil {
		return t.read(reply), nil
	}
	if now, _ := t.door(); now != door {
		return judge.FetchResult{}, fmt.Errorf("%w: the upstreams were read again", judge.ErrBusy)
	}
	return callFailure(ctx, err)
}

// callFailure says why there is no answer.
func callFailure(ctx context.Context, err error) (judge.FetchResult, error) {
	e, ok := errors.AsType[*upstream.Error](err)
	switch {
	case ctx.Err() != nil || !ok:
		return failedFetch(judge.FailureTimeout, ""), nil
	case e.Code == upstream.CodeBusy:
		return judge.FetchResult{}, fmt.Errorf("%w: %s", judge.ErrBusy, e.Message)
	}
	failures := map[upstream.Code]judge.EvidenceFailure{
		upstream.CodeInvalid: judge.FailureArgument, upstream.CodeUnavailable: judge.FailureUnavailable, upstream.CodeLost: judge.FailureUnavailable,
		upstream.CodeTimeout: judge.FailureTimeout, upstream.CodeProtocol: judge.FailureMalformed,
	}
	failure, known := failures[e.Code]
	switch {
	case e.Code == upstream.CodeUnknown:
		return failedFetch(judge.FailureRefused, "the tool is not there, or not allowed to whoever asked for the move"), nil
	case failure == judge.FailureArgument: // the message has names of keys
		return failedFetch(failure, "the server cannot be asked with these arguments: they can be read in two ways, or are too long"), nil
	case !known:
		failure = judge.FailureRefused
	}
	return failedFetch(failure, "%s", e.Message), nil
}

// read takes what the tool gave: its structured content or its text.
func (t *tool) read(reply upstream.Reply) judge.FetchResult {
	if reply.Error != nil {
		return failedFetch(judge.FailureRefused, "the server answered with the error %s", document.Known(reply.Error).Get("code").Raw())
	}
	result := document.Known(reply.Result)
	if result.Get("isError").Kind() == document.True {
		return failedFetch(judge.FailureRefused, "the tool answered that it failed (isError)")
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
		return failedFetch(judge.FailureMalformed, "the answer of the tool %s", problem)
	}
	d.set("result", json.RawMessage(text))
	return judge.FetchResult{Content: d.end()}
}

// joinTexts is the text of a result, nil where it has none. Images, sounds and links are left
// out.
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
