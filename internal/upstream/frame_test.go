package upstream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestParseFrame(t *testing.T) {
	for raw, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{ "a": 1.0 }}`:                     "1 { \"a\": 1.0 } ",
		`{"jsonrpc":"2.0","id":"a","error":{"code":1e400}}`:                  `"a"  {"code":1e400}`,
		`{"jsonrpc":"2.0","id":null,"error":{}}`:                             "  {}",
		`{"jsonrpc":"2.0","id":"7","result":{},"error":null}`:                "7 {} ",
		`{"jsonrpc":"2.0","id":7.0,"result":{}}`:                             "7 {} ",
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{}}`:                  "1  {}",
		`{"jsonrpc":"2.0","result":{}}`:                                      " {} ",
		`{"jsonrpc":"2.0","id":"7","method":"m"}`:                            `"7"  `,
		`{"jsonrpc":"2.0","id":1,"result":{"isError":null}}`:                 `1 {"isError":null} `,
		`{"jsonrpc":"2.0","id":1,"result":null}`:                             "the result is null, not an object",
		`{"jsonrpc":"2.0","id":1,"result":[]}`:                               "the result is an array, not an object",
		`{"jsonrpc":"2.0","id":1,"result":{"isError":true,"isError":false}}`: `the result has a duplicate key "isError"`,
		`{"jsonrpc":"2.0","id":1,"result":{"isError":"true"}}`:               "isError of the result is a string, not a boolean",
		`{"jsonrpc":"2.0","id":1,"result":{"IsError":true}}`:                 `in the result the key "IsError" must be written "isError"`,
		`{"jsonrpc":"2.0","method":"m","params":{}}`:                         "  ",
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`:                    "the answer has both a result and an error",
		`{"jsonrpc":"2.0","id":1,"result":{},"result":{}}`:                   `the answer has a duplicate key "result"`,
		`{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`:                  "refused",
		`{"jsonrpc":"2.0","id":1}`:                                           "refused",
		`{"jsonrpc":"2.0","id":1,"error":"x"}`:                               "the error of the answer is a string, not an object",
		`{"id":1,"result":{}}`:                                               `the answer has no "jsonrpc": "2.0"`,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}":                 "refused",
		`[{"jsonrpc":"2.0","id":1,"result":{}}]`:                             "refused",
		strings.Repeat("[", 1_000_000):                                       "refused",
	} {
		id, result, failure, err := upstream.ParseFrame([]byte(raw))
		got := id + " " + string(result) + " " + string(failure)
		if err != nil {
			got = "refused"
			if upstream.IsAnswerError(err) {
				got = err.Error()
			}
		}
		if got != want {
			t.Errorf("%.80s: %q, want %q", raw, got, want)
		}
	}
}

// A line that is too long affects only its own message, and its id is found if it is in a usual place.
func TestReadLines(t *testing.T) {
	long := strings.Repeat("x", upstream.MaxFrame)
	text := "a\r\n" + `{"jsonrpc":"2.0","id":7,"result":"` + long + "\"}\nb\n" + `{"result":"` + long + `","jsonrpc":"2.0","id":8}` + "\n" + long + "xx\n" + long + "\nend\nwithout an end"
	lines, tooLong := upstream.ReadLines(strings.NewReader(text))
	if want := []string{"a", "b", long, "end"}; !slices.Equal(lines, want) {
		t.Errorf("read %d lines", len(lines))
	}
	if want := []string{"7", "8", ""}; !slices.Equal(tooLong, want) {
		t.Errorf("the ids of what was too long are %q", tooLong)
	}
}

// The result of a frame is always a part of the line, and reads as it does in the frame.
func FuzzParseFrame(f *testing.F) {
	for _, seed := range []string{`{"jsonrpc":"2.0","id":1,"result":{ "a": 1.0 }}`, `{"jsonrpc":"2.0","id":null,"error":{}}`, `{"jsonrpc":"2.0","method":"m"}`, "{\"jsonrpc\":\"2.0\",\"id\":\"\\ud800\",\"result\":1}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		id, result, failure, err := upstream.ParseFrame(raw)
		if err != nil {
			return
		}
		var m struct {
			ID            json.RawMessage
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatalf("encoding/json refuses what was taken: %v", err)
		}
		for _, part := range [][]byte{result, failure, []byte(id)} {
			if !bytes.Contains(raw, part) {
				t.Fatalf("%q is no part of %q", part, raw)
			}
		}
	})
}

// A server sees gavel's changes to params and no others, so the judge and the server read the same arguments.
func FuzzRewriteMembers(f *testing.F) {
	f.Add([]byte(`{"name":"a","arguments":{"n": 1.0, "\u0061":[1e400]},"_meta":{}}`), "b")
	f.Fuzz(func(t *testing.T, raw []byte, name string) {
		var before map[string]json.RawMessage
		if json.Unmarshal(raw, &before) != nil || before == nil || bytes.Count(raw, []byte(`\`)) > 0 {
			return
		}
		if document.CheckJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: upstream.MaxDepth, Lax: true}) != nil {
			return // not UTF-8, or too deep: rejected earlier
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		out := upstream.RewriteMembers(raw, map[string]json.RawMessage{"name": quoted, "gone": nil})
		var after map[string]json.RawMessage
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%s became %s: %v", raw, out, err)
		}
		for key, value := range before {
			if key != "name" && key != "gone" && !bytes.Equal(after[key], value) {
				t.Errorf("%q was %s and is %s", key, value, after[key])
			}
		}
		if !bytes.Equal(after["name"], quoted) || after["gone"] != nil {
			t.Errorf("%s became %s", raw, out)
		}
	})
}

// The first answer to a call counts. A second one does not block the reader and is dropped.
func TestSecondAnswerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers, _, waiting := upstream.Receive(1, `{"jsonrpc":"2.0","id":2,"result":{"n":0}}`, `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`, `{"jsonrpc":"2.0","id":1,"result":{"n":2}}`)
		if !slices.Equal(answers, []string{`{"n":1}`}) || waiting != 2 {
			t.Errorf("answered %q, %d calls still wait", answers, waiting)
		}
	})
}

// An answer with an id that was never used fails the oldest pending call immediately, and quotes the answer. A late
// answer fails none.
func TestUnmatchedAnswer(t *testing.T) {
	const said = "the server sent an answer that matches no call: "
	long := `{"jsonrpc":"2.0","result":{"s":"` + strings.Repeat("a", 500) + `"}}`
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"x-1","result":{"n":1}}`:           "9: " + said + `{"jsonrpc":"2.0","id":"x-1","result":{"n":1}}`,
		`{"jsonrpc":"2.0","id":13,"result":{"n":1}}`:              "9: " + said + `{"jsonrpc":"2.0","id":13,"result":{"n":1}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"message":"what?"}}`: "9: " + said + `{"jsonrpc":"2.0","id":null,"error":{"message":"what?"}}`,
		long: "9: " + said + long[:200],
		`{"jsonrpc":"2.0","id":7,"result":{"n":1}}`:    "", // a late answer
		`{"jsonrpc":"2.0","id":10,"result":{"n":1}}`:   "", // a second answer
		`{"jsonrpc":"2.0","id":"11","result":{"n":1}}`: "",
	} {
		answers, failures, waiting := upstream.Receive(9, line)
		if got := strings.Join(failures, "; "); got != want || waiting+len(failures)+len(answers) != 3 || (len(answers) == 1) != strings.Contains(line, `"11"`) {
			t.Errorf("%s: failed %q, want %q; answered %q, %d wait", line, got, want, answers, waiting)
		}
	}
}

// The judge and a server that matches keys in any case read the same arguments.
func FuzzReadParams(f *testing.F) {
	for _, seed := range []string{
		`{"name":"x","arguments":{"text":"a","s":"b","in":{"text":"c"}}}`, `{"arguments":{"Text":"a"}}`, `{"argumentſ":{"text":"a"}}`, `{"arguments":{"s":"a","ſ":"b"}}`,
		`{"arguments":{"text":"a","text":"b"}}`, `{"arguments":{"in":{"TEXT":"\ud800"}}}`, `{"arguments":[]}`, `{"Name":"y","arguments":{"\u0074ext":"a"}}`, "{\"arguments\":{\"text\":\"\xff\"}}",
	} {
		f.Add([]byte(seed))
	}
	definition := `{"name":"t","inputSchema":{"properties":{"text":{},"s":{},"in":{"properties":{"text":{}}}}}}`
	f.Fuzz(func(t *testing.T, params []byte) {
		sent, judged, err := upstream.ReadParams(params, []byte(definition))
		if err != nil {
			return
		}
		var server struct {
			Name      any
			Arguments struct {
				Text, S any
				In      struct{ Text any }
			}
		}
		if err := json.Unmarshal(sent, &server); err != nil {
			if _, other := errors.AsType[*json.UnmarshalTypeError](err); !other {
				t.Fatalf("%q became %q: %v", params, sent, err)
			}
		}
		got := []any{server.Name, server.Arguments.Text, server.Arguments.S, server.Arguments.In.Text}
		if want := []any{"t", judged.Get("text").Any(), judged.Get("s").Any(), judged.At("in", "text").Any()}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: judged are %q, the server reads %q", params, want, got)
		}
	})
}
