package chain

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// callFunc is a Caller that answers with a function.
type callFunc func(req upstream.Request) (upstream.Reply, error)

func (f callFunc) Call(_ context.Context, _ engine.Principal, req upstream.Request) (upstream.Reply, error) {
	return f(req)
}

func (callFunc) List(engine.Principal, upstream.Kind) []upstream.Item { return nil }

// TestExecutor checks the outcome of a step for each kind of answer from a server.
func TestExecutor(t *testing.T) {
	for _, row := range []struct {
		name, result, failure string
		kind                  Kind
		err                   error
		want                  string
	}{
		{"a text", `{"content":[{"type":"text","text":"hi"}]}`, "", KindTool, nil, `{"value":"hi"}`},
		{"structured", `{"content":[{"type":"text","text":"{}"}],"structuredContent":{"n":1.50}}`, "", KindTool, nil, `{"value":{"n":1.50},"text":"{}"}`},
		{"several parts", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "", KindTool, nil, `{"value":[{"text":"a","type":"text"},{"text":"b","type":"text"}],"text":"a\nb"}`},
		{"no parts", `{"content":[]}`, "", KindTool, nil, `{"value":[]}`},
		{"nothing", `{}`, "", KindTool, nil, `{}`},
		{"a resource", `{"contents":[{"uri":"x","text":"PNG"}]}`, "", KindResource, nil, `{"value":"PNG"}`},
		{"a prompt", `{"messages":[{"role":"user"}]}`, "", KindPrompt, nil, `{"value":[{"role":"user"}]}`},
		{"a question", `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create"}},"requestState":"s"}`, "", KindTool, nil, `{"value":{"inputRequests":{"q":{"method":"elicitation/create"}},"requestState":"s"},"err":{"code":"input_required","message":"the server asks for input","final":true}}`},
		{"a question for a model", `{"resultType":"input_required","inputRequests":{"q":{"method":"sampling/createMessage"}}}`, "", KindTool, nil, `{"err":{"code":"upstream_protocol","message":"the server asks for input \"q\" with the method \"sampling/createMessage\", which a run cannot answer","final":true,"mayHaveRun":true}}`},
		{"a state that is to be sent back", `{"resultType":"input_required","requestState":"s"}`, "", KindTool, nil, `{"value":{"requestState":"s"},"err":{"code":"input_required","message":"the server asks for input","final":true}}`},
		{"isError", `{"isError":true,"content":[{"type":"text","text":"disk full"}]}`, "", KindTool, nil, `{"err":{"code":"tool_error","message":"disk full","mayHaveRun":true}}`},
		{"isError without a word", `{"isError":true,"content":[]}`, "", KindTool, nil, `{"err":{"code":"tool_error","message":"the tool failed without a reason","mayHaveRun":true}}`},
		{"garbage", `[1]`, "", KindTool, nil, `{"err":{"code":"upstream_protocol","message":"the server answered with a list, not with a result","mayHaveRun":true}}`},
		{"an error of JSON-RPC", ``, `{"code":-32602,"message":"no such prompt"}`, KindPrompt, nil, `{"err":{"code":"server_error","message":"the server answered with an error: no such prompt","mayHaveRun":true}}`},
		{"a refusal of a gate", ``, ``, KindTool, &upstream.Error{Code: upstream.CodeCallRefused, Message: "Refused.", Hint: "Ask for less."}, `{"err":{"code":"call_refused","message":"Refused. Ask for less.","final":true}}`},
		{"a lost answer", ``, ``, KindTool, &upstream.Error{Code: upstream.CodeLost, Message: "Lost.", MayHaveRun: true}, `{"err":{"code":"upstream_lost","message":"Lost.","mayHaveRun":true}}`},
		{"a server that is down", ``, ``, KindTool, &upstream.Error{Code: upstream.CodeUnavailable, Message: "Down."}, `{"err":{"code":"upstream_unavailable","message":"Down."}}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			var asked upstream.Request
			d := Executor{Upstreams: callFunc(func(req upstream.Request) (upstream.Reply, error) {
				asked = req
				return upstream.Reply{Result: json.RawMessage(row.result), Error: json.RawMessage(row.failure)}, row.err
			})}
			o := d.Do(context.Background(), Command{Op: OpCall, Kind: row.kind, Server: "s", Name: "n", Step: "a", Run: "run-1", Key: "l#3/a~2"})
			if got := marshal(o); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			const meta = `{"_meta":{"gavel/idempotencyKey":"run-1/l#3/a~2","io.github.gavel-mcp/step":{"attempt":2,"iteration":[3],"run":"run-1","step":"a"}}`
			want := map[Kind]string{
				KindTool: `tools/call ` + meta + `,"arguments":{}}`, KindPrompt: `prompts/get ` + meta + `,"arguments":{}}`, KindResource: `resources/read ` + meta + `}`,
			}[row.kind]
			if got := asked.Method + " " + marshal(decodeJSON(asked.Params)); got != want {
				t.Errorf("the server is asked %s, want %s", got, want)
			}
		})
	}
}

// TestAnswerInput checks what a server receives for a person's answer.
func TestAnswerInput(t *testing.T) {
	for _, row := range []struct {
		name     string
		requests []string
		accepted bool
		output   string
		want     string
	}{
		{"one form", []string{"q"}, true, `{"city":"Ulm"}`, `{"q":{"action":"accept","content":{"city":"Ulm"}}}`},
		{"one form by its name", []string{"q"}, true, `{"q":{"city":"Ulm"}}`, `{"q":{"action":"accept","content":{"city":"Ulm"}}}`},
		{"one form without fields", []string{"q"}, true, `null`, `{"q":{"action":"accept","content":{}}}`},
		{"one of two", []string{"q", "r"}, true, `{"r":{"n":1}}`, `{"q":{"action":"decline"},"r":{"action":"accept","content":{"n":1}}}`},
		{"declined", []string{"q", "r"}, false, `{"r":{"n":1}}`, `{"q":{"action":"decline"},"r":{"action":"decline"}}`},
	} {
		in := &Input{Requests: map[string]any{}, State: "s"}
		for _, name := range row.requests {
			in.Requests[name] = map[string]any{"method": "elicitation/create"}
		}
		var asked upstream.Request
		d := Executor{AsksPeople: true, Upstreams: callFunc(func(req upstream.Request) (upstream.Reply, error) {
			asked = req
			return upstream.Reply{Result: json.RawMessage(`{"content":[]}`)}, nil
		})}
		d.Do(context.Background(), Command{Op: OpCall, Kind: KindTool, Server: "s", Name: "n", Input: in.answer(row.accepted, decodeJSON(json.RawMessage(row.output)))})
		params, _ := decodeJSON(asked.Params).(map[string]any)
		if got := marshal(params["inputResponses"]); got != row.want || params["requestState"] != "s" || string(asked.Capabilities) != `{"elicitation":{}}` {
			t.Errorf("%s: the server gets %s, %s", row.name, asked.Params, asked.Capabilities)
		}
	}
}
