package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, line string
		code       int    // 0: accepted
		id         string // usable in an answer
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 0, "1"},
		{"spaces", ` { "method" : "ping" , "jsonrpc" : "2.0" , "id" : "x" } `, 0, `"x"`},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 0, ""},
		{"answer to nothing", `{"jsonrpc":"2.0","id":{},"result":null}`, 0, ""},
		{"not UTF-8, id before", "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\xff\"}", codeParse, "7"},
		{"not UTF-8 in the id", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", codeParse, ""},
		{"not UTF-8 and not JSON", "\xff", codeParse, ""},
		{"params twice", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}`, codeInvalidRequest, "1"},
		{"params in another case", `{"jsonrpc":"2.0","id":1,"method":"tools/call","Params":{"name":"a","name":"b"}}`, codeInvalidRequest, "1"},
		{"method with a letter that folds", `{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":{}}`, codeInvalidRequest, "1"},
		{"unknown key in two cases", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"aK":1,"A\u212a":2}}`, codeInvalidRequest, "1"},
		{"unknown keys", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"aK":1,"bK":2},"more":1}`, 0, "1"},
		{"unknown key that is no strict JSON", `{"jsonrpc":"2.0","id":1,"method":"ping","more":"\ud800"}`, codeInvalidRequest, "1"},
		{"a known key and another case of it", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","NAME":"b"}}`, codeInvalidRequest, "1"},
		{"name with an escape", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.list","n\u0061me":"workflow.define"}}`, codeInvalidRequest, "1"},
		{"deep outside the arguments", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}}`, codeInvalidRequest, "1"},
		{"duplicates deep in params", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"_meta":{"a":1,"a":2}}}`, codeInvalidRequest, "1"},
		{"duplicates in a tool's arguments are the tool's", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.list","arguments":{"a":1,"a":2}}}`, 0, "1"},
		{"arguments of a prompt are not", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"arguments":{"a":1,"a":2}}}`, codeInvalidRequest, "1"},
		{"id of bytes that are no text", `{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`, codeInvalidRequest, ""},
		{"id with an exponent", `{"jsonrpc":"2.0","id":1e3,"method":"ping"}`, codeInvalidRequest, "1e3"},
		{"id true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, codeInvalidRequest, ""},
		{"progress token that would change", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":90071992547409931234}}}`, codeInvalidRequest, "1"},
	} {
		m, bad := parseMessage([]byte(strings.TrimSpace(c.line)))
		code := 0
		if bad != nil {
			code = bad.Code
			if data := bad.Data.(ErrorData); data.Message == "" || data.Hint == "" || data.Code == "" {
				t.Errorf("%s: %+v says too little", c.name, bad)
			}
		}
		if code != c.code || string(m.id) != c.id {
			t.Errorf("%s: code %d, id %q; want %d, %q", c.name, code, m.id, c.code, c.id)
		}
	}
}

// A line that is too long is answered with its id, if the id is where common clients write it.
func TestFindID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ head, tail, want string }{
		{`{"jsonrpc":"2.0","id":12,"method":"tools/call","par`, `xxx"}}}`, "12"},
		{`{ "id" : "a-b" , "meth`, `xxx"}}}`, `"a-b"`},
		{`{"method":"tools/call","params":{"x":"`, `xxx"}},"jsonrpc":"2.0","id":41}` + "\r\n", "41"},
		{`{"method":"x","params":{"id":3,"x":"`, `"}},"id":null}`, ""},
		{`{"params":{"id":5,`, `,"id":6}}}`, ""}, // these ids are within params
		{`zzzz`, `zzzz`, ""},
	} {
		if got := string(findID([]byte(c.head), []byte(c.tail))); got != c.want {
			t.Errorf("%s ... %s: id %q, want %q", c.head, c.tail, got, c.want)
		}
	}
}

func TestKeysOfIDs(t *testing.T) {
	t.Parallel()
	for id, kept := range map[string]bool{
		`1`: true, `-9007199254740992`: true, `"x"`: true, `"9007199254740993"`: true,
		`9007199254740993`: false, `-0`: false, `007`: false, `5.0`: false, `123456789012345678901234567890`: false,
	} {
		if got := survivesFloat(json.RawMessage(id)); got != kept {
			t.Errorf("%s is kept: %v", id, got)
		}
	}
	if idKey([]byte(`"\u0041"`)) != idKey([]byte(`"A"`)) || idKey([]byte(`"1"`)) == idKey([]byte(`1`)) {
		t.Error("keys tell apart what is one id, or do not tell apart what are two")
	}
}

// Every accepted message is one object in which mcp-go finds the same members as parseMessage.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"id":"\ud800"}`, "\xff", `[]`, `{`, `{"a":{"b":[1,"]}",{"c":"\\\""}]},"id":5.0}`,
		`{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"workflow.list","arguments":{"x":1}}}`,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\r\"params\":{\"requestId\":\"\\u0041\"}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		line := bytes.Trim(data, " \t\r\n")
		if len(line) == 0 {
			return
		}
		m, bad := parseMessage(line)
		if m.id != nil && !json.Valid(m.id) {
			t.Fatalf("id %q", m.id)
		}
		if bad != nil || m.response {
			return
		}
		var lib struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name      any             `json:"name"`
				RequestID json.RawMessage `json:"requestId"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &lib); err != nil {
			var typeError *json.UnmarshalTypeError
			if !errors.As(err, &typeError) {
				t.Fatalf("passed on what does not decode: %v", err)
			}
		}
		if lib.Method != m.method || !bytes.Equal(lib.ID, m.id) {
			t.Fatalf("the library reads id %q method %q, the reader %q %q", lib.ID, lib.Method, m.id, m.method)
		}
		if name, ok := lib.Params.Name.(string); m.method == methodCallTool && ok && name != m.name {
			t.Fatalf("the library reads tool %q, the reader %q", name, m.name)
		}
	})
}
