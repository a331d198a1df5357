package face_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// withReviews makes the engine park moves that a person must decide, and lets the client ask a person.
func withReviews(c *engine.Config) { c.ReviewPath, c.ClientReviews = true, true }

func withReviewTools(c *face.Config) { c.Reviews = true }

func as(role string) option {
	return func(c *face.Config) {
		c.Principal = engine.Principal{ID: "local:" + role, Role: engine.Role(role)}
	}
}

func asReviewer(c *face.Config) {
	withReviewTools(c)
	as("reviewer")(c)
}

// release is a workflow whose second step a person decides, if the data contain "to".
const release = `{"name":"release","initialState":"built","states":{
"built":{"transitions":{"ship":{"target":"shipped","description":"Goes to customers.","requireAssurance":"human","requiredFields":["to"]},"fix":"built"}},
"shipped":{"final":true}}}`

// started defines a workflow and starts an instance of it.
func (w *session) started(definition, name string) string {
	w.t.Helper()
	if r := w.call("workflow.define", definition); r.IsError {
		w.t.Fatal(r.text())
	}
	r := w.call("workflow.start", `{"type":"`+name+`"}`)
	id, ok := r.StructuredContent["id"].(string)
	if !ok {
		w.t.Fatal(r.text())
	}
	return id
}

// parked requests the move that a person decides, and returns the review's id.
func (w *session) parked(id string) string {
	w.t.Helper()
	r := w.call("workflow.advance", `{"id":"`+id+`","action":"ship","data":{"to":"all"}}`)
	if !r.IsError || r.outcome() != "escalate" {
		w.t.Fatal(r.text())
	}
	return r.review()["reviewId"].(string)
}

func (r result) review() map[string]any {
	review, _ := r.StructuredContent["review"].(map[string]any)
	return review
}

func TestParkedMoves(t *testing.T) {
	e := newEngine(t, withReviews)
	w := serve(t, e, withReviewTools)
	w.hello("test")
	id := w.started(release, "release")
	r := w.call("workflow.advance", `{"id":"`+id+`","action":"ship","data":{"to":"all"},"idempotencyKey":"k"}`)
	review, _ := r.review()["reviewId"].(string)
	if next, _ := r.review()["next"].(string); review == "" || !strings.Contains(next, "workflow.status") {
		t.Errorf("it does not say where to look: %s", r.text())
	}
	if !r.IsError || r.outcome() != "escalate" || r.StructuredContent["state"] != "built" {
		t.Errorf("parked: %s", r.text())
	}
	if again := w.call("workflow.advance", `{"id":"`+id+`","action":"ship","data":{"to":"all"}}`); again.review()["reviewId"] != review {
		t.Errorf("the same data get another review: %s", again.text())
	}
	if s := w.call("workflow.status", `{"id":"`+id+`"}`); !strings.Contains(s.text(), review) {
		t.Errorf("status does not show the review: %s", s.text())
	}
	if l := w.call("workflow.review.list", `{"id":"`+id+`"}`); l.StructuredContent["count"] != 1.0 || !strings.Contains(l.text(), review) {
		t.Errorf("list: %s", l.text())
	}
	v := w.call("workflow.review.list", `{"reviewId":"`+review+`"}`)
	if data, _ := v.StructuredContent["data"].(map[string]any); data["to"] != "all" || v.StructuredContent["description"] != "Goes to customers." {
		t.Errorf("the whole review: %s", v.text())
	}
	if bad := w.call("workflow.review.list", `{"reviewId":"`+review+`","limit":1}`); bad.code() != "invalid_argument" {
		t.Errorf("a review and a list at once: %s", bad.text())
	}
	w.send(`{"jsonrpc":"2.0","id":"r","method":"resources/read","params":{"uri":"workflow://reviews/` + review + `"}}`)
	if m := fmt.Sprint(w.next()["result"]); !strings.Contains(m, "requestedBy") {
		t.Errorf("the resource: %s", m)
	}
	w.send(`{"jsonrpc":"2.0","id":"r","method":"resources/read","params":{"uri":"workflow://reviews/rev-nope"}}`)
	if m := w.next(); m["error"].(map[string]any)["code"] != -32002.0 {
		t.Errorf("a review that is not there: %v", m)
	}
	w.send(`{"jsonrpc":"2.0","id":"c","method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"workflow://reviews/{id}"},"argument":{"name":"id","value":"rev-"}}}`)
	if m := fmt.Sprint(w.next()["result"]); !strings.Contains(m, review) {
		t.Errorf("completion: %s", m)
	}
	w.end()

	boss := serve(t, e, asReviewer)
	boss.hello("test")
	if r := boss.call("workflow.review.resolve", `{"reviewId":"`+review+`","decision":"approve","reason":"checked"}`); r.IsError || r.StructuredContent["applied"] != true || r.StructuredContent["state"] != "shipped" {
		t.Errorf("resolve: %s", r.text())
	}
	if r := boss.call("workflow.review.resolve", `{"reviewId":"`+review+`","decision":"reject","reason":"no"}`); r.code() != "review_closed" {
		t.Errorf("twice: %s", r.text())
	}
	boss.end()

	w = serve(t, e, withReviewTools)
	w.hello("test")
	replay := w.call("workflow.advance", `{"id":"`+id+`","action":"ship","data":{"to":"all"},"idempotencyKey":"k"}`)
	if replay.IsError || replay.review()["by"] != "local:reviewer" || replay.review()["reason"] != "checked" || replay.StructuredContent["replayed"] != true {
		t.Errorf("the replay shows what became of it: %s", replay.text())
	}
}

func TestResolving(t *testing.T) {
	for name, c := range map[string]struct {
		decision string
		code     any
		before   func(w *session, id string)
	}{
		"reject": {"reject", nil, nil},
		"stale": {"approve", "review_closed", func(w *session, id string) {
			w.call("workflow.advance", `{"id":"`+id+`","action":"fix"}`)
		}},
	} {
		e := newEngine(t, withReviews)
		w := serve(t, e, withReviewTools)
		w.hello("test")
		id := w.started(release, "release")
		review := w.parked(id)
		if c.before != nil {
			c.before(w, id)
		}
		w.end()
		boss := serve(t, e, asReviewer)
		boss.hello("test")
		r := boss.call("workflow.review.resolve", `{"reviewId":"`+review+`","decision":"`+c.decision+`","reason":"not on a Friday"}`)
		if r.IsError != (c.code != nil) || r.code() != c.code || c.code == nil && r.StructuredContent["applied"] != false {
			t.Errorf("%s: isError %v, %s", name, r.IsError, r.text())
		}
		boss.end()
	}
}

// An approval that the rules no longer allow is reported as such.
func TestApprovalThatCannotBeCarriedOut(t *testing.T) {
	r := engine.ResolveResult{
		Position: scripted{}.position(), Message: "Not approved: the rules.",
		Review:   engine.ReviewSummary{ID: "rev-1", Status: record.ReviewStale, Action: "go", From: "a", Instance: "wf-1", Reason: "The rules do not allow it any more"},
		Decision: decided("reject", false),
	}
	w := serve(t, resolves{newEngine(t), r}, asReviewer)
	w.hello("test")
	got := w.call("workflow.review.resolve", `{"reviewId":"rev-1","decision":"approve","reason":"x"}`)
	if !got.IsError || got.StructuredContent["applied"] != false || got.review()["status"] != "stale" || got.review()["reason"] != "The rules do not allow it any more" {
		t.Errorf("got %s", got.text())
	}
}

// An agent does not see the tool and may not use it.
func TestAgentsDoNotResolve(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withReviewTools)
	w.hello("test")
	id := w.started(release, "release")
	review := w.parked(id)
	for _, tool := range []string{"workflow.review.resolve", "workflow_review_resolve"} {
		if r := w.call(tool, `{"reviewId":"`+review+`","decision":"approve","reason":"I say so"}`); r.code() != "forbidden" {
			t.Errorf("%s: %s", tool, r.text())
		}
	}
	if s := w.call("workflow.status", `{"id":"`+id+`"}`); s.StructuredContent["state"] != "built" {
		t.Errorf("it moved: %s", s.text())
	}
}

// Without reviews the tools do not exist, and an agent's client sees none of them.
func TestReviewToolsAreOptional(t *testing.T) {
	w := serve(t, newEngine(t))
	w.hello("test")
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.review.list","arguments":{}}}`)
	if m := w.next(); !strings.Contains(fmt.Sprint(m["error"]), "unknown_tool") {
		t.Errorf("got %v", m)
	}
	id := w.started(release, "release")
	if r := w.call("workflow.advance", `{"id":"`+id+`","action":"ship","data":{"to":"all"}}`); r.outcome() != "reject" {
		t.Errorf("without a review path: %s", r.text())
	}
}

// Names in the text of a parked move are in the client's style.
func TestParkedMovesInStyle(t *testing.T) {
	c := dial(t, newEngine(t, withReviews), "claude-ai", true, withReviewTools, withSchemas)
	for _, step := range []struct {
		tool string
		args map[string]any
	}{{"workflow_define", jsonObject(t, release)}, {"workflow_start", map[string]any{"type": "release"}}} {
		var req mcp.CallToolRequest
		req.Params.Name, req.Params.Arguments = step.tool, step.args
		r, err := c.CallTool(t.Context(), req)
		if err != nil || r.IsError {
			t.Fatalf("%s: %v %v", step.tool, err, r)
		}
		if step.tool == "workflow_define" {
			continue
		}
		req.Params.Name = "workflow_advance"
		req.Params.Arguments = map[string]any{"id": r.StructuredContent.(map[string]any)["id"], "action": "ship", "data": map[string]any{"to": "all"}}
		if r, err = c.CallTool(t.Context(), req); err != nil || !strings.Contains(r.Content[0].(mcp.TextContent).Text, "check with workflow_status") {
			t.Errorf("%v %v", err, r)
		}
	}
}

// resolves answers every resolution with one result.
type resolves struct {
	operation.Engine
	result engine.ResolveResult
}

func (r resolves) Resolve(context.Context, engine.Principal, engine.ResolveRequest) (engine.ResolveResult, error) {
	return r.result, nil
}

func jsonObject(t *testing.T, doc string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(doc), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
