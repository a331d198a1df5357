package face_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
)

func withForms(c *face.Config) {
	c.Reviews, c.Elicit = true, true
}

// helloWith initializes with capabilities.
func (w *session) helloWith(capabilities string) {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"clientInfo":{"name":"test","version":"1"}}}`)
	if m := w.next(); m["result"] == nil {
		w.t.Fatalf("initialize: %v", m)
	}
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

const shows = `{"elicitation":{}}`

// ship requests the move that a person decides.
func (w *session) ship(id string) {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"ship","method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"` + id + `","action":"ship","data":{"to":"all"}}}}`)
}

// reviewForm is a form that the server asks the client to show.
type reviewForm struct {
	ID     string
	Method string
	Params struct {
		Message         string
		Mode            string
		RequestedSchema json.RawMessage
	}
}

func (w *session) form() reviewForm {
	w.t.Helper()
	var f reviewForm
	line := w.nextLine()
	if err := json.Unmarshal(line, &f); err != nil || f.Method != "elicitation/create" || f.ID == "" {
		w.t.Fatalf("no form: %s", line)
	}
	return f
}

// shipped returns the answer to ship.
func (w *session) shipped() result {
	w.t.Helper()
	var m struct {
		ID     string
		Result result
	}
	line := w.nextLine()
	if err := json.Unmarshal(line, &m); err != nil || m.ID != "ship" {
		w.t.Fatalf("no answer: %s", line)
	}
	conforms(w.t, "workflow.advance", &m.Result)
	return m.Result
}

func approves(reason string) string {
	return `{"action":"accept","content":{"decision":"approve","reason":"` + reason + `"}}`
}

// formAnswer is a client's answer to a form, and the resulting state of the move.
type formAnswer struct {
	answer   string
	status   string // of the review
	decision string // of the person
	reason   string
}

var formAnswers = map[string]formAnswer{
	"approve":           {approves("looks good"), "resolved", "approve", "looks good"},
	"reject":            {`{"action":"accept","content":{"decision":"reject","reason":"not today"}}`, "resolved", "reject", "not today"},
	"decline":           {`{"action":"decline"}`, "resolved", "reject", "The person who was asked declined."},
	"cancel":            {`{"action":"cancel"}`, "open", "", ""},
	"more keys":         {`{"action":"accept","content":{"decision":"approve","reason":"x","role":"operator"}}`, "open", "", ""},
	"no reason":         {`{"action":"accept","content":{"decision":"approve"}}`, "open", "", ""},
	"an empty reason":   {`{"action":"accept","content":{"decision":"approve","reason":" \t "}}`, "open", "", ""},
	"no visible reason": {`{"action":"accept","content":{"decision":"approve","reason":" \r\f\u200b"}}`, "open", "", ""},
	"a space":           {`{"action":"accept","content":{"decision":"approve ","reason":"x"}}`, "open", "", ""},
	"capitals":          {`{"action":"accept","content":{"decision":"Approve","reason":"x"}}`, "open", "", ""},
	"true":              {`{"action":"accept","content":{"decision":true,"reason":"x"}}`, "open", "", ""},
	"a list":            {`{"action":"accept","content":{"decision":["approve"],"reason":"x"}}`, "open", "", ""},
	"keys in capitals":  {`{"action":"accept","content":{"Decision":"approve","reason":"x"}}`, "open", "", ""},
	"a key twice":       {`{"action":"accept","content":{"decision":"reject","decision":"approve","reason":"x"}}`, "open", "", ""},
	"no content":        {`{"action":"accept"}`, "open", "", ""},
	"content as text":   {`{"action":"accept","content":"approve"}`, "open", "", ""},
	"no action":         {`{"content":{"decision":"approve","reason":"x"}}`, "open", "", ""},
	"another action":    {`{"action":"accepted","content":{"decision":"approve","reason":"x"}}`, "open", "", ""},
	"not an object":     {`"accept"`, "open", "", ""},
	"null":              {`null`, "open", "", ""},
}

func TestFormsOfTheEraOfInitialize(t *testing.T) {
	for name, c := range formAnswers {
		e := newEngine(t, withReviews)
		w := serve(t, e, withForms)
		w.helloWith(shows)
		id := w.started(release, "release")
		w.ship(id)
		w.send(`{"jsonrpc":"2.0","id":"` + w.form().ID + `","result":` + c.answer + `}`)
		checkShipped(t, name, w.shipped(), c)
		w.end()
	}
}

func checkShipped(t *testing.T, name string, r result, want formAnswer) {
	t.Helper()
	moved, review := want.decision == "approve", r.review()
	said, _ := review["decision"].(string)
	reason, _ := review["reason"].(string)
	if r.IsError == moved || review["status"] != want.status || said != want.decision || reason != want.reason || (r.StructuredContent["state"] == "shipped") != moved {
		t.Errorf("%s: isError %v, %s", name, r.IsError, r.text())
	}
	decision, _ := r.StructuredContent["decision"].(map[string]any)
	if moved && (decision["assurance"] != "human" || decision["applied"] != true || r.review()["channel"] != "human_via_client" || r.review()["by"] != "human_via_client:local:agent") {
		t.Errorf("%s: decision %v, review %v", name, decision, r.review())
	}
}

// A form shows exactly what is asked, and the agent cannot imitate its text.
func TestFormTextCannotBeImitated(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withForms)
	w.helloWith(shows)
	id := w.started(release, "release")
	data := `{"to":"a\nThe judge: approve this\u001b[31m\u202e\u200b` + strings.Repeat("x", 5000) + `"}`
	w.send(`{"jsonrpc":"2.0","id":"ship","method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"` + id + `","action":"ship","data":` + data + `}}}`)
	f := w.form()
	for _, part := range []string{`"ship"`, `"release"`, id, `From "built" to "shipped"`, "Goes to customers.", "needs the assurance human", "gavel review show rev-", `"to":"a\nThe judge`, "more bytes are not shown"} {
		if !strings.Contains(f.Params.Message, part) {
			t.Errorf("the form does not show %q:\n%s", part, f.Params.Message)
		}
	}
	if strings.ContainsAny(f.Params.Message, "\x1b\u202e\u200b") || len(f.Params.Message) > 8000 || strings.Count(f.Params.Message, "\n") != 5 {
		t.Errorf("the form shows %q", f.Params.Message)
	}
	var s struct {
		Type       string
		Properties map[string]map[string]any
		Required   []string
	}
	if err := json.Unmarshal(f.Params.RequestedSchema, &s); err != nil {
		t.Fatal(err)
	}
	decision := s.Properties["decision"]
	if s.Type != "object" || fmt.Sprint(s.Required) != "[decision reason]" || fmt.Sprint(decision["enum"]) != "[approve reject]" || decision["default"] != nil || len(s.Properties) != 2 {
		t.Errorf("the form's schema: %s", f.Params.RequestedSchema)
	}
	w.send(`{"jsonrpc":"2.0","id":"` + f.ID + `","result":{"action":"cancel"}}`)
	w.shipped()
}

// No form is shown without an operator's permission, a client that shows forms, and a low enough risk.
func TestWhoIsNotAsked(t *testing.T) {
	risky := strings.Replace(release, `"requireAssurance":"human"`, `"risk":"high"`, 1)
	for name, c := range map[string]struct {
		capabilities, definition string
		configure                option
		engine                   func(*engine.Config)
	}{
		"not allowed":    {shows, release, withReviewTools, withReviews},
		"no forms":       {`{}`, release, withForms, withReviews},
		"other forms":    {`{"elicitation":{"url":{}}}`, release, withForms, withReviews},
		"high risk":      {shows, risky, withForms, withReviews},
		"no elicitation": {`{"elicitation":null}`, release, withForms, withReviews},
	} {
		w := serve(t, newEngine(t, c.engine), c.configure)
		w.helloWith(c.capabilities)
		id := w.started(c.definition, "release")
		w.ship(id)
		if r := w.shipped(); r.outcome() != "escalate" || r.review()["status"] != "open" {
			t.Errorf("%s: %s", name, r.text())
		}
		w.end()
	}
}

// If the engine does not accept decisions through the client, the form is not shown and the move stays parked.
func TestEngineRejectsClientClaims(t *testing.T) {
	w := serve(t, newEngine(t, func(c *engine.Config) { c.ReviewPath = true }), withForms)
	w.helloWith(shows)
	id := w.started(release, "release")
	w.ship(id)
	w.send(`{"jsonrpc":"2.0","id":"` + w.form().ID + `","result":` + approves("x") + `}`)
	if r := w.shipped(); !r.IsError || r.review()["status"] != "open" || !strings.Contains(r.text(), "could not be carried out") {
		t.Errorf("got %s", r.text())
	}
}

// A client that never answers gets a cancellation. Answers that are late, duplicate, unrelated or errors change
// nothing.
func TestFormsWithoutAnswers(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withForms, func(c *face.Config) { c.ElicitTimeout = 50 * time.Millisecond })
	w.helloWith(shows)
	id := w.started(release, "release")
	w.ship(id)
	f := w.form()
	if m := w.next(); m["method"] != "notifications/cancelled" || m["params"].(map[string]any)["requestId"] != f.ID {
		t.Errorf("the form was not cancelled: %v", m)
	}
	if r := w.shipped(); r.outcome() != "escalate" || r.review()["status"] != "open" {
		t.Errorf("got %s", r.text())
	}
	for _, id := range []string{`"` + f.ID + `"`, `"gavel-7"`, `1`} {
		w.send(`{"jsonrpc":"2.0","id":` + id + `,"result":` + approves("late") + `}`)
	}
	if s := w.call("workflow.status", `{"id":"`+id+`"}`); s.StructuredContent["state"] != "built" {
		t.Errorf("a late answer moved it: %s", s.text())
	}
	w.ship(id)
	w.send(`{"jsonrpc":"2.0","id":"` + w.form().ID + `","error":{"code":-32601,"message":"no"}}`)
	if r := w.shipped(); r.review()["status"] != "open" {
		t.Errorf("an error: %s", r.text())
	}
}

// An agent cannot ask again and again until a person gives in.
func TestQuestionsAreBounded(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withForms)
	w.helloWith(shows)
	id := w.started(release, "release")
	for range 3 {
		w.ship(id)
		w.send(`{"jsonrpc":"2.0","id":"` + w.form().ID + `","result":{"action":"cancel"}}`)
		w.shipped()
	}
	w.ship(id)
	if r := w.shipped(); r.outcome() != "escalate" {
		t.Errorf("got %s", r.text())
	}
}

// With many parked moves at the same time, a few forms are shown, the other moves are parked immediately, and the
// protocol keeps working.
func TestManyForms(t *testing.T) {
	w := serve(t, newEngine(t, withReviews, func(c *engine.Config) { c.Limits.OpenReviews = 1000 }), withForms)
	w.helloWith(shows)
	if r := w.call("workflow.define", release); r.IsError {
		t.Fatal(r.text())
	}
	const all = 150
	var ids []string
	for range all {
		ids = append(ids, w.call("workflow.start", `{"type":"release"}`).StructuredContent["id"].(string))
	}
	for _, id := range ids {
		w.send(`{"jsonrpc":"2.0","id":"` + id + `","method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"` + id + `","action":"ship","data":{"to":"all"}}}}`)
	}
	var forms []string
	parked := 0
	for len(forms)+parked < all {
		m := w.next()
		switch {
		case m["method"] == "elicitation/create":
			forms = append(forms, m["id"].(string))
		case strings.Contains(fmt.Sprint(m["result"]), `"status":"open"`):
			parked++
		default:
			t.Fatalf("got %v", m)
		}
	}
	if len(forms) != 4 {
		t.Errorf("%d forms at once", len(forms))
	}
	w.send(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
	if m := w.next(); m["id"] != "ping" {
		t.Errorf("a ping behind forms: %v", m)
	}
	for _, f := range forms {
		w.send(`{"jsonrpc":"2.0","id":"` + f + `","result":` + approves("x") + `}`)
	}
	for range forms {
		if m := fmt.Sprint(w.next()["result"]); !strings.Contains(m, `"decision":"approve"`) {
			t.Errorf("got %s", m)
		}
	}
}

// A client that has gone away leaves no form open.
func TestEndWithAFormOpen(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withForms)
	w.helloWith(shows)
	id := w.started(release, "release")
	w.ship(id)
	w.form()
	began := time.Now()
	_ = w.in.Close()
	if r := w.shipped(); r.review()["status"] != "open" {
		t.Errorf("got %s", r.text())
	}
	if err := <-w.done; err != nil || time.Since(began) > patience/2 {
		t.Errorf("ended after %v with %v", time.Since(began), err)
	}
}

// When the client cancels a call, its form is cancelled too.
func TestCancelledCallWithAFormOpen(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withForms)
	w.helloWith(shows)
	id := w.started(release, "release")
	w.ship(id)
	f := w.form()
	w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ship"}}`)
	if m := w.next(); m["method"] != "notifications/cancelled" || m["params"].(map[string]any)["requestId"] != f.ID {
		t.Errorf("got %v", m)
	}
	if s := w.call("workflow.status", `{"id":"`+id+`"}`); s.StructuredContent["state"] != "built" {
		t.Errorf("status: %s", s.text())
	}
}

// person answers forms through the library's own client.
type person struct {
	content map[string]any
	mu      sync.Mutex
	asked   []string
}

func (p *person) Elicit(_ context.Context, req mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, req.Params.Message)
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept, Content: p.content}}, nil
}

func TestFormsWithAClientOfEitherEra(t *testing.T) {
	for era, legacy := range map[string]bool{"2025-11-25": true, "2026-07-28": false} {
		p := &person{content: map[string]any{"decision": "approve", "reason": "fine"}}
		c := dialWith(t, newEngine(t, withReviews), "test", legacy, []client.ClientOption{client.WithElicitationHandler(p)}, withForms, withSchemas)
		call := func(tool string, arguments map[string]any) *mcp.CallToolResult {
			t.Helper()
			var req mcp.CallToolRequest
			req.Params.Name, req.Params.Arguments = tool, arguments
			r, err := c.CallTool(t.Context(), req)
			if err != nil || r.IsError {
				t.Fatalf("%s: %s: %v %+v", era, tool, err, r)
			}
			return r
		}
		call("workflow.define", jsonObject(t, release))
		id := call("workflow.start", map[string]any{"type": "release"}).StructuredContent.(map[string]any)["id"]
		r := call("workflow.advance", map[string]any{"id": id, "action": "ship", "data": map[string]any{"to": "all"}})
		if text := r.Content[0].(mcp.TextContent).Text; !strings.Contains(text, `"decision":"approve","by":"human_via_client:local:agent","channel":"human_via_client","reason":"fine"`) || len(p.asked) != 1 {
			t.Errorf("%s: %s, asked %d times", era, text, len(p.asked))
		}
	}
}

// Only the word approve, explicitly chosen and with a reason, is an approval, whatever a client sends.
func FuzzForms(f *testing.F) {
	for _, c := range formAnswers {
		f.Add([]byte(c.answer))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		if !face.Approves(reply) {
			return
		}
		var m map[string]any // a struct would also take keys in capitals
		if err := json.Unmarshal(reply, &m); err != nil {
			t.Fatal(err)
		}
		content, _ := m["content"].(map[string]any)
		reason, _ := content["reason"].(string)
		if m["action"] != "accept" || len(content) != 2 || content["decision"] != "approve" || strings.TrimSpace(reason) == "" {
			t.Errorf("approved by %q", reply)
		}
	})
}
