package chain

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// doorFunc is a door that a function answers at.
type doorFunc func(req upstream.Request) (upstream.Reply, error)

func (f doorFunc) Call(_ context.Context, _ engine.Principal, req upstream.Request) (upstream.Reply, error) {
	return f(req)
}

// TestDoor is what a step gets for what a server answers.
func TestDoor(t *testing.T) {
	for _, row := range []struct {
		name, result, failure string
		kind                  Kind
		err                   error
		want                  string
	}{
		{"a text", `{"content":[{"type":"text","text":"hi"}]}`, "", KindTool, nil, `{"value":"hi"}`},
		{"structured", `{"content":[{"type":"text","text":"{}"}],"structuredContent":{"n":1.50}}`, "", KindTool, nil, `{"value":{"n":1.50}}`},
		{"several parts", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "", KindTool, nil, `{"value":[{"text":"a","type":"text"},{"text":"b","type":"text"}]}`},
		{"no parts", `{"content":[]}`, "", KindTool, nil, `{"value":[]}`},
		{"nothing", `{}`, "", KindTool, nil, `{}`},
		{"a resource", `{"contents":[{"uri":"x","text":"PNG"}]}`, "", KindResource, nil, `{"value":"PNG"}`},
		{"a prompt", `{"messages":[{"role":"user"}]}`, "", KindPrompt, nil, `{"value":[{"role":"user"}]}`},
		{"isError", `{"isError":true,"content":[{"type":"text","text":"disk full"}]}`, "", KindTool, nil, `{"err":{"code":"tool_error","message":"disk full","mayHaveRun":true}}`},
		{"isError without a word", `{"isError":true,"content":[]}`, "", KindTool, nil, `{"err":{"code":"tool_error","message":"the tool failed without saying why","mayHaveRun":true}}`},
		{"garbage", `[1]`, "", KindTool, nil, `{"err":{"code":"upstream_protocol","message":"the server answered with a list, not with a result","mayHaveRun":true}}`},
		{"an error of JSON-RPC", ``, `{"code":-32602,"message":"no such prompt"}`, KindPrompt, nil, `{"err":{"code":"server_error","message":"the server answered with an error: no such prompt","mayHaveRun":true}}`},
		{"a refusal of a gate", ``, ``, KindTool, &upstream.Error{Code: upstream.CodeCallRefused, Message: "Refused.", Hint: "Ask for less."}, `{"err":{"code":"call_refused","message":"Refused. Ask for less.","final":true}}`},
		{"a lost answer", ``, ``, KindTool, &upstream.Error{Code: upstream.CodeLost, Message: "Lost.", MayHaveRun: true}, `{"err":{"code":"upstream_lost","message":"Lost.","mayHaveRun":true}}`},
		{"a server that is down", ``, ``, KindTool, &upstream.Error{Code: upstream.CodeUnavailable, Message: "Down."}, `{"err":{"code":"upstream_unavailable","message":"Down."}}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			var asked upstream.Request
			d := Door{Upstreams: doorFunc(func(req upstream.Request) (upstream.Reply, error) {
				asked = req
				return upstream.Reply{Result: json.RawMessage(row.result), Error: json.RawMessage(row.failure)}, row.err
			})}
			o := d.Do(context.Background(), Command{Op: OpCall, Kind: row.kind, Server: "s", Name: "n", Run: "run-1", Key: "a~2"})
			if got := marshal(o); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			want := map[Kind]string{
				KindTool: `tools/call {"_meta":{"io.github.gavel-mcp/step":"run-1/a~2"},"arguments":{}}`, KindPrompt: `prompts/get {"_meta":{"io.github.gavel-mcp/step":"run-1/a~2"},"arguments":{}}`,
				KindResource: `resources/read {"_meta":{"io.github.gavel-mcp/step":"run-1/a~2"}}`,
			}[row.kind]
			if got := asked.Method + " " + marshal(decodeJSON(asked.Params)); got != want {
				t.Errorf("the server is asked %s, want %s", got, want)
			}
		})
	}
}
