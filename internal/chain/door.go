package chain

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Caller is the one door to other servers; *upstream.Manager implements it.
type Caller interface {
	Call(ctx context.Context, p engine.Principal, req upstream.Request) (upstream.Reply, error)
}

// Door does what runs ask for: calls through the upstreams, with the rights of whom the run acts
// for, and scripts in the sandbox.
type Door struct {
	Upstreams Caller
	Scripts   script.Runner
}

// metaStep is the member of _meta that tells a server which execution of a step calls: the same
// key comes with the same call.
const metaStep = "io.github.gavel-mcp/step"

// Do implements Effects.
func (d Door) Do(ctx context.Context, c Command) Outcome {
	switch c.Op {
	case OpCall:
		return d.call(ctx, c)
	case OpTest:
		return d.test(ctx, c)
	case OpComplete, OpMove, OpSleep, OpWait, OpAsk:
	}
	return Outcome{Err: &StepError{Code: CodeNotAllowed, Message: "this run has nothing that could do that: " + string(c.Op), Final: true}}
}

// requests are the method and kind of what each kind of step calls.
var requests = map[Kind]upstream.Request{
	KindTool:     {Method: "tools/call", Kind: upstream.KindTool},
	KindResource: {Method: "resources/read", Kind: upstream.KindResource},
	KindPrompt:   {Method: "prompts/get", Kind: upstream.KindPrompt},
}

func (d Door) call(ctx context.Context, c Command) Outcome {
	params := map[string]any{"_meta": map[string]any{metaStep: c.Run + "/" + c.Key}}
	if c.Kind != KindResource {
		params["arguments"] = c.Arguments
		if c.Arguments == nil {
			params["arguments"] = map[string]any{}
		}
	}
	raw, err := document.Marshal(params)
	if err != nil {
		return Outcome{Err: &StepError{Code: string(upstream.CodeInvalid), Message: "the arguments are not JSON: " + err.Error(), Final: true}}
	}
	req := requests[c.Kind]
	req.Upstream, req.Name, req.Params = c.Server, c.Name, raw
	reply, err := d.Upstreams.Call(ctx, c.Principal, req)
	switch failure, known := errors.AsType[*upstream.Error](err); {
	case known:
		return Outcome{Err: &StepError{Code: string(failure.Code), Message: strings.TrimSpace(failure.Message + " " + failure.Hint), Final: !isTransient[failure.Code], MayHaveRun: failure.MayHaveRun}}
	case err != nil:
		return Outcome{Err: &StepError{Code: CodeTimeout, Message: "the call was given up: " + err.Error(), MayHaveRun: true}}
	case len(reply.Error) > 0:
		answer, _ := decodeJSON(reply.Error).(map[string]any)
		text, _ := answer["message"].(string)
		return Outcome{Err: &StepError{Code: "server_error", Message: "the server answered with an error: " + script.Clean(text, maxServerText), MayHaveRun: true}}
	}
	return readReply(c.Kind, decodeJSON(reply.Result))
}

// isTransient are the failures after which the same call may succeed.
var isTransient = map[upstream.Code]bool{
	upstream.CodeUnavailable: true, upstream.CodeBusy: true, upstream.CodeTimeout: true, upstream.CodeLost: true, upstream.CodeProtocol: true,
}

// maxServerText is how many bytes of a server's own words an error repeats.
const maxServerText = 2 << 10

// readReply takes the output out of a result: of a tool its structured content, else its text; of a
// resource its text; of a prompt its messages. What has several parts, or others, is a list.
func readReply(kind Kind, result any) Outcome {
	reply, ok := result.(map[string]any)
	if !ok {
		return Outcome{Err: &StepError{Code: string(upstream.CodeProtocol), Message: "the server answered with " + describeKind(result) + ", not with a result", MayHaveRun: true}}
	}
	switch kind {
	case KindResource:
		return Outcome{Value: joinParts(reply["contents"])}
	case KindPrompt:
		return Outcome{Value: reply["messages"]}
	case KindTool, KindParallel, KindLoop, KindForEach, KindSwitch, KindWait, KindWorkflow:
	}
	if failed, _ := reply["isError"].(bool); failed {
		text, ok := joinParts(reply["content"]).(string)
		if !ok || text == "" {
			text = "the tool failed without saying why"
		}
		return Outcome{Err: &StepError{Code: CodeToolError, Message: script.Clean(text, maxServerText), MayHaveRun: true}}
	}
	if structured, ok := reply["structuredContent"]; ok {
		return Outcome{Value: structured}
	}
	return Outcome{Value: joinParts(reply["content"])}
}

// joinParts is the text of one part, or all parts.
func joinParts(parts any) any {
	if list, ok := parts.([]any); ok && len(list) == 1 {
		if part, ok := list[0].(map[string]any); ok {
			if text, ok := part["text"].(string); ok {
				return text
			}
		}
	}
	return parts
}

// test runs a condition in the sandbox.
func (d Door) test(ctx context.Context, c Command) Outcome {
	fail := func(message string) Outcome {
		return Outcome{Err: &StepError{Code: CodeCondition, Message: message, Final: true}}
	}
	if d.Scripts == nil {
		return fail("there is no sandbox to run the script in")
	}
	raw, err := document.Marshal(c.Arguments)
	if err != nil {
		return fail("the variables are not JSON: " + err.Error())
	}
	reply, err := d.Scripts.Run(ctx, script.Batch{
		Caller: c.Principal.ID, Owner: script.Owner{ID: c.Principal.ID},
		Routes: []script.Script{{Name: c.Key, Kind: script.Condition, Source: c.Source}}, Data: json.RawMessage(raw),
	})
	switch {
	case err != nil:
		return Outcome{Err: &StepError{Code: CodeCondition, Message: err.Error()}}
	case reply.RouteFault != nil:
		return fail("the script of the condition failed: " + reply.RouteFault.Detail)
	}
	return Outcome{Value: reply.Route == 0}
}
