package face_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// An answer contains its JSON once, as text or as structured content: models pay for each copy.
func TestAnswersHoldTheJSONOnce(t *testing.T) {
	for _, c := range []struct {
		name       string
		options    []option
		structured bool
	}{
		{"as the seed's clients read it", nil, false},
		{"as an output schema demands", []option{withSchemas}, true},
	} {
		w := serve(t, newEngine(t), c.options...)
		w.hello("test")
		w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.define","arguments":` + strings.ReplaceAll(documentReview, "\n", " ") + `}}`)
		var m struct{ Result result }
		if err := json.Unmarshal(w.nextLine(), &m); err != nil {
			t.Fatal(err)
		}
		if !json.Valid([]byte(m.Result.Content[0].Text)) || (m.Result.StructuredContent != nil) != c.structured || len(m.Result.Content) != 1 {
			t.Errorf("%s: %+v", c.name, m.Result)
		}
		w.end()
	}
}

// journey calls every tool, with accepted and with rejected arguments, and passes the answers to look.
func journey(t *testing.T, look func(tool string, r result), options ...option) {
	t.Helper()
	e := newEngine(t, withReviews)
	w := serve(t, e, append([]option{withReviewTools}, options...)...)
	w.hello("test")
	called := map[string]bool{}
	call := func(tool, arguments string) result {
		t.Helper()
		r := w.call(tool, arguments)
		called[tool] = true
		look(tool, r)
		return r
	}
	call("workflow.define", documentReview)
	call("workflow.define", `{"name":"bad","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"c":{"transitions":{"go":"d"}}}}`)
	call("workflow.define", `{"name":"ask","initialState":"a","states":{"a":{"transitions":{"go":{"target":"b","requireAssurance":"human"}}},"b":{"final":true}}}`)
	call("workflow.list", `{}`)
	call("workflow.describe", `{"name":"document-review"}`)
	call("workflow.diagram", `{"name":"document-review"}`)
	id := call("workflow.start", `{"type":"document-review"}`).StructuredContent["id"].(string)
	is := `{"id":"` + id + `"`
	call("workflow.judge.validate", is+`,"action":"submit"}`)
	call("workflow.advance", is+`,"action":"submit"}`)
	call("workflow.advance", is+`,"action":"approve"}`)
	call("workflow.advance", is+`,"action":"submit","reviewer":"ada"}`)
	call("workflow.advance", is+`,"action":"submit","data":{"documentId":"D-1","reviewer":"ada"}}`)
	call("workflow.advance", is+`,"action":"approve","data":{"comments":"ok"},"expectedRevision":1}`)
	call("workflow.advance", is+`,"action":"approve","data":{"comments":"ok"}}`)
	call("workflow.judge.validate", is+`,"action":"approve","data":{"comments":"ok"}}`)
	cp := call("workflow.checkpoint", is+`}`).StructuredContent["checkpointId"].(string)
	call("workflow.listCheckpoints", is+`}`)
	call("workflow.status", is+`}`)
	call("workflow.canExecute", is+`,"action":"submit"}`)
	call("workflow.undo", is+`}`)
	call("workflow.redo", is+`}`)
	call("workflow.rollback", is+`,"checkpointId":"`+cp+`"}`)
	call("workflow.judge.config", `{"name":"document-review","minConfidence":0.9}`)
	call("workflow.judge.history", is+`}`)
	call("workflow.judge.history", `{"outcome":"reject"}`)
	call("workflow.judge.statistics", `{}`)
	call("workflow.cancel", is+`}`)
	call("workflow.cancel", is+`}`)
	waits := call("workflow.start", `{"type":"ask"}`).StructuredContent["id"].(string)
	parked := call("workflow.advance", `{"id":"`+waits+`","action":"go"}`)
	review := parked.StructuredContent["review"].(map[string]any)["reviewId"].(string)
	call("workflow.review.list", `{}`)
	call("workflow.review.list", `{"reviewId":"`+review+`"}`)
	call("workflow.status", `{"id":"`+waits+`"}`)
	call("workflow.instances", `{}`)
	w.end()
	w = serve(t, e, append([]option{withReviewTools, as("operator")}, options...)...)
	w.hello("test")
	call("workflow.judge.clear", `{"workflow":"ask"}`)
	call("workflow.review.resolve", `{"reviewId":"`+review+`","decision":"reject","reason":"Not now."}`)
	for _, tool := range documented() {
		if !called[tool] {
			t.Errorf("%s is not tried", tool)
		}
	}
}

// A violation appears once in the text and in the structured content.
func TestViolationAppearsOnce(t *testing.T) {
	journey(t, func(tool string, r result) {
		if tool == "workflow.judge.history" || tool == "workflow.review.list" { // several decisions
			return
		}
		doc, err := json.Marshal(r.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		for _, violation := range []string{`\"documentId\" is required`, `Detailed comments required`, `is not possible in state`, `unknown state \"b\"`, `unknown state \"d\"`} {
			if n := strings.Count(string(doc), violation); n > 1 {
				t.Errorf("%s says %q %d times: %s", tool, violation, n, doc)
			}
		}
	})
}

// Tools outside the toolset cannot be called; the error gives the reason.
func TestToolsetIsClosed(t *testing.T) {
	w := serve(t, newEngine(t), func(c *face.Config) { c.Toolset = face.CoreTools })
	w.hello("test")
	for _, name := range []string{"workflow.undo", "workflow_undo"} {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{"id":"wf-1"}}}`)
		if line := string(w.nextLine()); !strings.Contains(line, `is not in the operator's toolset \"core\"`) || strings.Contains(line, "judge.config") {
			t.Errorf("got %s", line)
		}
	}
	for _, op := range operation.All() { // texts about missing tools would mislead
		if op.Tool.Name == "" || slices.Contains([]string{"list", "describe", "start", "advance", "status", "judge.validate"}, strings.TrimPrefix(op.Tool.Name, "workflow.")) {
			continue
		}
		w.send(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"follow-workflow"}}`)
		if line := w.nextLine(); strings.Contains(string(line), op.Tool.Name+" ") {
			t.Errorf("the prompt names %s: %s", op.Tool.Name, line)
		}
	}
}

// The lists of tools stay as small as documented. A token of these texts is at least four bytes (docs/benchmarks.md
// counts them), so the test limits bytes.
func TestToolListsStaySmall(t *testing.T) {
	for set, most := range map[face.Toolset]int{face.CoreTools: 2500, face.SeedTools: 4500, face.AllTools: 7000} {
		w := serve(t, newEngine(t, withReviews), withReviewTools, as("operator"), func(c *face.Config) { c.Toolset = set })
		w.hello("test")
		size := 0
		for _, tool := range w.listRaw() {
			size += len(tool) + 1
		}
		if size > 4*most {
			t.Errorf("%s: %d bytes, about %s tokens; the goal is %d", set, size, fmt.Sprint(size/4), most)
		}
		w.end()
	}
}
