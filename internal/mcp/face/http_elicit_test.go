package face_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// askedOverHTTP returns a client whose instance waits for a person, with the stream of that call and the form.
func askedOverHTTP(t *testing.T) (ann visitor, calling *stream, f reviewForm) {
	t.Helper()
	s := serveHTTP(t, newEngine(t, withReviews), withForms)
	hello := s.post(strings.Replace(helloHTTP, `"capabilities":{}`, `"capabilities":`+shows, 1))
	ann = visitor{s, []string{"Mcp-Session-Id", hello.header.Get("Mcp-Session-Id")}}
	ann.call("workflow.define", strings.ReplaceAll(release, "\n", ""))
	id := ann.call("workflow.start", `{"type":"release"}`).StructuredContent["id"].(string)
	calling = ann.open(ann.request(http.MethodPost, `{"jsonrpc":"2.0","id":90071992547409931234,"method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"`+id+`","action":"ship","data":{"to":"all"}}}}`, ann.headers...))
	if line := calling.next(); json.Unmarshal([]byte(line), &f) != nil || f.Method != "elicitation/create" || f.ID == "" {
		t.Fatalf("no form: %s", line)
	}
	return ann, calling, f
}

// A person is asked over the stream of the call itself, and only the session that was asked can answer.
func TestHTTPElicitation(t *testing.T) {
	ann, calling, f := askedOverHTTP(t)
	word := `{"jsonrpc":"2.0","id":"` + f.ID + `","result":` + approves("looks right") + `}`
	for name, v := range map[string]visitor{"bob": ann.site.hello("Who", "bob"), "another session of ann's": ann.site.hello()} {
		if a := v.ask(word); a.status != http.StatusBadRequest {
			t.Errorf("%s answers for ann: %d %s", name, a.status, a.body)
		}
	}
	if a := ann.post(word, "Mcp-Session-Id", ann.headers[1], "Who", "bob"); a.status != http.StatusNotFound {
		t.Errorf("bob answers in ann's session: %d %s", a.status, a.body)
	}
	if a := ann.ask(word); a.status != http.StatusAccepted {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := ann.ask(word); a.status != http.StatusBadRequest {
		t.Errorf("a second answer is taken: %d %s", a.status, a.body)
	}
	got := calling.next()
	if !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":90071992547409931234,"result":`) || !strings.Contains(got, `\"channel\":\"human_via_client\",\"reason\":\"looks right\"`) {
		t.Errorf("%.400s", got)
	}
}

// The end of the server is not an answer: the move keeps waiting.
func TestHTTPElicitationEndsWithTheServer(t *testing.T) {
	ann, calling, _ := askedOverHTTP(t)
	ann.endpoint.EndStreams()
	if got := calling.next(); !strings.Contains(got, `\"status\":\"open\"`) || !strings.Contains(got, "there was no answer") {
		t.Errorf("%.400s", got)
	}
}

// Without sessions, the question is the answer to the call, and the client repeats the call. The returned state is
// valid only for the same principal and call.
func TestHTTPElicitationOfTheModernEra(t *testing.T) {
	s := serveHTTP(t, newEngine(t, withReviews), withForms)
	ann := s.hello()
	ann.call("workflow.define", strings.ReplaceAll(release, "\n", ""))
	id := ann.call("workflow.start", `{"type":"release"}`).StructuredContent["id"].(string)
	ship := func(more string, headers ...string) string {
		r := s.modernRequest("1", "tools/call", "workflow.advance", "", headers...)
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + shows +
			`},"name":"workflow.advance","arguments":{"id":"` + id + `","action":"ship","data":{"to":"all"}}` + more + `}}`
		out := s.request(http.MethodPost, body)
		out.Header = r.Header
		return string(s.do(out).body)
	}
	var m struct {
		Result struct {
			ResultType, RequestState string
			InputRequests            map[string]json.RawMessage
		}
	}
	if line := ship(""); json.Unmarshal([]byte(line), &m) != nil || m.Result.ResultType != "input_required" || m.Result.RequestState == "" || len(m.Result.InputRequests) != 1 {
		t.Fatal(line)
	}
	var key string
	for key = range m.Result.InputRequests {
	}
	again := `,"requestState":"` + m.Result.RequestState + `","inputResponses":{"` + key + `":` + approves("fine") + `}`
	if got := ship(again, "Who", "bob"); strings.Contains(got, "shipped") {
		t.Errorf("bob's answer counts: %.300s", got)
	}
	if got := ship(strings.Replace(again, `"requestState":"`, `"requestState":"x`, 1)); strings.Contains(got, "shipped") {
		t.Errorf("a forged state counts: %.300s", got)
	}
	if got := ship(again); !strings.Contains(got, `\"channel\":\"human_via_client\",\"reason\":\"fine\"`) {
		t.Errorf("%.400s", got)
	}
}
