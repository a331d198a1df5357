package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/judge/content"
	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/testdata"
)

const fromDFAPage = "../../docs/from-generic-dfa.md"

// seedJudge is a model that approves unless told to refuse. It follows the schema that it gets, or answers in the
// format of the Generic DFA server.
type seedJudge struct {
	obeys bool

	mu      sync.Mutex
	refusal string
}

func (j *seedJudge) refuse(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.refusal = why
}

func (j *seedJudge) think(q llmtest.Question) llmtest.Thought {
	j.mu.Lock()
	defer j.mu.Unlock()
	answer := object{"approved": true, "confidence": 0.95, "reasoning": "The data say what was done.", "violations": []string{}, "suggestions": []string{}}
	if j.refusal != "" {
		answer = object{"approved": false, "confidence": 0.95, "reasoning": j.refusal, "violations": []string{j.refusal}, "suggestions": []string{"Say it in data"}}
	}
	if j.obeys {
		return llmtest.Obedient(j.refusal == "", fmt.Sprint(answer["reasoning"]), answer["suggestions"].([]string)...)(q)
	}
	text, _ := json.Marshal(answer) // strings and numbers always marshal
	return llmtest.Thought{Text: string(text)}
}

// seedStep is an action and the model's objection: "" if it approves or is not asked.
type seedStep struct{ action, data, refusal string }

// The examples on the Generic DFA server's page, each with its model block; document-review also as published. The
// model is asked if a definition's scripts and fields pass.
var seedExamples = []struct {
	name, context string
	steps         []seedStep
}{
	{"document-review", `{}`, []seedStep{
		{"submit", `{}`, ""},
		{"submit", `{"documentId":"DOC-7","reviewer":"ann"}`, ""},
		{"approve", `{}`, ""},
		{"approve", `{"comments":"Checked sections 1 to 4."}`, ""},
	}},
	{"document-review", `{}`, []seedStep{
		{"submit", `{"documentId":"DOC-7","reviewer":"ann"}`, ""},
		{"approve", `{}`, "Approval without comments lacks accountability."},
		{"approve", `{"comments":"Looks good"}`, ""},
	}},
	{"approval-process", `{}`, []seedStep{
		{"submit", `{"document":"Budget 2026"}`, ""},
		{"reject", `{"reason":"No"}`, "The reason says nothing that the author could correct."},
		{"approve", `{"by":"ann"}`, ""},
	}},
	{"todo-tracker", `{"title":"Buy milk and bread"}`, []seedStep{
		{"start", `{}`, ""},
		{"pause", `{}`, ""},
		{"resume", `{}`, ""},
		{"complete", `{}`, "Nothing says that it was bought."},
		{"complete", `{"result":"Bought both at the corner shop"}`, ""},
	}},
	{"deployment-pipeline", `{"version":"1.4.0"}`, []seedStep{
		{"deploy", `{"target":"staging"}`, ""},
		{"success", `{}`, ""},
		{"pass", `{}`, "There is no result of a test."},
		{"fail", `{"failed":["checkout"]}`, ""},
		{"complete", `{"rolledBackTo":"1.3.9"}`, ""},
	}},
	{"form-wizard", `{}`, []seedStep{
		{"next", `{}`, ""},
		{"next", `{"email":"ann@example.org"}`, ""},
		{"submit", `{"consent":false}`, "Consent is missing."},
		{"back", `{}`, ""},
		{"next", `{"consent":true}`, ""},
		{"submit", `{}`, ""},
		{"success", `{}`, ""},
	}},
	{"code-review", `{"pr_number":123,"author":"developer@example.com","files_changed":5}`, []seedStep{
		{"assign", `{"reviewer":"senior@example.com"}`, ""},
		{"checkpoint", `{"description":"Before review decision"}`, ""},
		{"request_changes", `{"comments":["Please add tests","Update documentation"]}`, ""},
		{"rollback", `{}`, ""},
		{"approve", `{"merge_strategy":"squash"}`, "Approval without comments lacks accountability."},
		{"approve", `{"merge_strategy":"squash","comments":"Read all five files; tests pass."}`, ""},
	}},
}

// A model that follows the schema exactly and one that uses the old server's format get the same results. Approved
// moves happen. Refused moves do not, and show the model's words.
func TestSeedExamplesAreJudged(t *testing.T) {
	t.Parallel()
	var played []string
	for _, obeys := range []bool{false, true} {
		judge := seedJudge{obeys: obeys}
		_, args := seedModel(t, judge.think)
		played = append(played, playSeedExamples(t, launch(t, args...), &judge))
	}
	if played[0] != played[1] {
		t.Errorf("in the old server's form:\n%s\nin exactly our schema:\n%s", played[0], played[1])
	}
	showsAt(t, fromDFAPage, "examples", played[1])
}

func playSeedExamples(t *testing.T, s *server, judge *seedJudge) string {
	t.Helper()
	var out strings.Builder
	for i, example := range seedExamples {
		definition, title := withModelBlock(t, example.name), "with the model block"
		if i == 0 {
			raw, err := testdata.Workflows.ReadFile("workflows/" + example.name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			s.define(string(raw))
			title = "as written"
		} else {
			s.must("workflow.define", definition)
		}
		var context object
		if err := json.Unmarshal([]byte(example.context), &context); err != nil {
			t.Fatal(err)
		}
		started := s.must("workflow.start", object{"type": example.name, "context": context})
		id, checkpoint := started.field("id"), ""
		fmt.Fprintf(&out, "%s, %s\n  %-84s%s\n", example.name, title, "start "+example.context, started.field("state"))
		for _, step := range example.steps {
			judge.refuse(step.refusal)
			line := fmt.Sprintf("  %-84s", strings.TrimSuffix(step.action+" "+step.data, " {}"))
			switch step.action {
			case "checkpoint":
				r := s.must("workflow.checkpoint", object{"id": id, "description": "Before review decision"})
				checkpoint = r.field("checkpointId")
				out.WriteString(line + r.field("state") + "\n")
			case "rollback":
				r := s.must("workflow.rollback", object{"id": id, "checkpointId": checkpoint})
				out.WriteString(line + r.field("state") + "\n")
			default:
				out.WriteString(line + playSeedStep(t, s, example.name, id, step) + "\n")
			}
		}
	}
	return out.String()
}

func playSeedStep(t *testing.T, s *server, workflow, id string, step seedStep) string {
	t.Helper()
	r := s.callRaw("workflow.advance", fmt.Sprintf(`{"id":%q,"action":%q,"data":%s}`, id, step.action, step.data))
	decision, _ := r.Body["decision"].(object)
	if refused := step.refusal != ""; refused && (!r.IsError || decision["decidedBy"] != "model" || !strings.Contains(r.text(), step.refusal)) {
		t.Errorf("%s, %s: %s", workflow, step.action, r.text())
	}
	if !r.IsError {
		return fmt.Sprintf("%s (%v, %v)", r.field("state"), decision["decidedBy"], decision["confidence"])
	}
	findings, _ := decision["findings"].([]any)
	var says []string
	for _, f := range findings {
		says = append(says, fmt.Sprint(f.(object)["message"]))
	}
	return fmt.Sprintf("refused by %v: %s", decision["decidedBy"], strings.Join(says, "; "))
}

// difference matches a row of the page's table of differences.
var difference = regexp.MustCompile(`(?m)^\| (\d+) \|`)

// Each difference on the page is demonstrated here, under its number.
func TestFromGenericDFAPage(t *testing.T) {
	t.Parallel()
	checks := seedDifferences()
	var rows []int
	for _, m := range difference.FindAllStringSubmatch(pages(t)[fromDFAPage], -1) {
		n, _ := strconv.Atoi(m[1])
		rows = append(rows, n)
	}
	if want := slices.Sorted(maps.Keys(checks)); !slices.Equal(rows, want) {
		t.Errorf("the page has rows %v, and there are checks for %v", rows, want)
	}
	s := launch(t, "--store", gavel.Memory, "--tool-names", "dotted", "--definitions", filepath.Join("..", "..", "testdata", "workflows", "document-review.json"))
	for _, n := range slices.Sorted(maps.Keys(checks)) {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			s.t = t
			checks[n](t, s)
		})
	}
	s.t = t
}

// twoSteps returns a workflow from a to b with additional keys.
func twoSteps(name string, more object) object {
	definition := object{"name": name, "initialState": "a", "states": object{"a": object{"transitions": object{"go": "b"}}, "b": object{"transitions": object{"end": "c"}}, "c": object{"final": true}}}
	maps.Copy(definition, more)
	return definition
}

// seedDifferences demonstrates each difference on a server with an operator's document-review.
func seedDifferences() map[int]func(*testing.T, *server) {
	begin := func(t *testing.T, s *server, definition, context object) string {
		t.Helper()
		s.must("workflow.define", definition)
		return s.must("workflow.start", object{"type": definition["name"], "context": context}).field("id")
	}
	// moved requests a move and checks its result: the code, or the state if there is no code.
	moved := func(t *testing.T, s *server, id, action string, data object, want string) toolResult {
		t.Helper()
		r := s.call("workflow.advance", object{"id": id, "action": action, "data": data})
		if got := r.code(); got != want && (got != "" || r.field("state") != want) {
			t.Errorf("%s %v: %s", action, data, r.text())
		}
		return r
	}
	model := object{"judgeConfig": object{"enabled": true, "useLLM": true, "strictMode": true, "minConfidence": 0.8}}
	return map[int]func(*testing.T, *server){
		1: func(t *testing.T, _ *server) { // commands; see testdata/script/mcp.txtar for calls without arguments
			s := launch(t, "--store", gavel.Memory, "--toolset", "seed", "--tool-names", "underscore")
			tools := string(s.rpc("tools/list", object{}).Result)
			if strings.Count(tools, `"name":"workflow_`) != 11 || !strings.Contains(tools, `"workflow_judge_validate"`) {
				t.Errorf("got %s", tools)
			}
			if r := s.call("workflow.list", object{}); r.IsError {
				t.Errorf("with dots: %s", r.text())
			}
		},
		2: func(t *testing.T, _ *server) {
			dir := t.TempDir()
			from, err := fs.Sub(testdata.DFA, "dfa/documented")
			if err != nil {
				t.Fatal(err)
			}
			copyInto(t, from, filepath.Join(dir, ".workflows"))
			runGavel(t, "import", filepath.Join(dir, ".workflows"), "--store", filepath.Join(dir, "gavel.db"))
			s := launch(t, "--store", filepath.Join(dir, "gavel.db"))
			if r := s.must("workflow.status", object{"id": "wf-4c1d2f6e"}); r.field("state") != "reviewing" {
				t.Errorf("got %s", r.text())
			}
		},
		3: func(t *testing.T, s *server) {
			for key, value := range map[string]any{"createdAt": "2025-07-01", "name": "two words"} {
				if r := s.call("workflow.define", twoSteps("strict", object{key: value})); r.code() != "invalid_definition" {
					t.Errorf("%s: %s", key, r.text())
				}
			}
			if r := s.call("workflow.define", object{"name": "dead", "initialState": "a", "states": object{"a": object{}}}); !strings.Contains(r.text(), "dead-end") {
				t.Errorf("a dead end: %s", r.text())
			}
		},
		4: func(t *testing.T, s *server) {
			id := begin(t, s, twoSteps("versioned", nil), object{})
			s.must("workflow.define", object{"name": "versioned", "initialState": "a", "states": object{"a": object{"transitions": object{"leave": "b"}}, "b": object{"final": true}}})
			moved(t, s, id, "go", nil, "b")
			if next := s.must("workflow.start", object{"type": "versioned"}).Body["nextActions"]; fmt.Sprint(next) != "[leave]" {
				t.Errorf("the new version has %v", next)
			}
		},
		5: func(t *testing.T, s *server) {
			id := s.must("workflow.start", object{"type": "document-review"}).field("id")
			cp := s.must("workflow.checkpoint", object{"id": id}).field("checkpointId")
			for tool, arguments := range map[string]object{
				"workflow.define":       twoSteps("document-review", nil),
				"workflow.rollback":     {"id": id, "checkpointId": cp},
				"workflow.judge.config": {"name": "document-review", "enabled": false},
			} {
				if r := s.call(tool, arguments); r.code() != "forbidden" {
					t.Errorf("%s: %s", tool, r.text())
				}
			}
			s.must("workflow.judge.config", object{"name": "document-review", "minConfidence": 0.9})
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "free.json"), `{"name":"free","initialState":"a","agents":{"rollback":true,"redefine":true,"configureJudge":"set"},"states":{"a":{"transitions":{"go":"a","end":"b"}},"b":{"final":true}}}`)
			free := launch(t, "--store", gavel.Memory, "--definitions", dir)
			id = free.must("workflow.start", object{"type": "free"}).field("id")
			cp = free.must("workflow.checkpoint", object{"id": id}).field("checkpointId")
			free.must("workflow.rollback", object{"id": id, "checkpointId": cp})
			free.must("workflow.judge.config", object{"name": "free", "enabled": false})
			free.must("workflow.define", twoSteps("free", nil))
		},
		6: func(t *testing.T, s *server) {
			if r := s.call("workflow.start", object{"type": "document-review"}); r.IsError {
				t.Errorf("draft asks for nothing: %s", r.text())
			}
			s.must("workflow.define", twoSteps("invariant", object{"stateValidators": object{"a": object{"requiredFields": []string{"title"}}, "b": object{"requiredFields": []string{"title", "by"}}}}))
			if r := s.call("workflow.start", object{"type": "invariant"}); r.code() != "required_field" {
				t.Errorf("the first state's fields: %s", r.text())
			}
			id := s.must("workflow.start", object{"type": "invariant", "context": object{"title": "T"}}).field("id")
			moved(t, s, id, "go", object{}, "required_field")
			moved(t, s, id, "go", object{"by": "ann"}, "b") // the title is in the context
		},
		7: func(t *testing.T, s *server) {
			for script, want := range map[string]string{
				"(data) => ({ valid: require('fs').existsSync('/') })": "validator_error",
				"(data) => { while (data.note) {} }":                   "validator_error",
				"(data) => ({ valid: data.note && 1 })":                "b",
				"(data, context) => ({ valid: context.note })":         "validator_rejected", // before the merge
			} {
				id := begin(t, s, twoSteps("scripted", object{"transitionValidators": object{"go": script}}), object{})
				moved(t, s, id, "go", object{"note": "n"}, want)
			}
		},
		8: func(t *testing.T, s *server) {
			id := begin(t, s, twoSteps("off", object{"judgeConfig": object{"enabled": false, "useLLM": true}, "transitionValidators": object{"go": "d => d.ok === true"}}), object{})
			moved(t, s, id, "go", object{}, "validator_rejected")
			moved(t, s, id, "go", object{"ok": true}, "b") // no model is asked
		},
		9: func(t *testing.T, _ *server) {
			provider, args := seedModel(t, llmtest.Approver)
			s := launch(t, args...)
			id := begin(t, s, twoSteps("ordered", object{"judgeConfig": model["judgeConfig"], "transitionValidators": object{"go": "d => d.ok === true"}}), object{"title": "T"})
			if r := moved(t, s, id, "go", object{"note": "please"}, "validator_rejected"); provider.Count() != 0 {
				t.Errorf("the model was asked: %s", r.text())
			}
			moved(t, s, id, "go", object{"ok": true, "note": "done as agreed with Ann on Monday"}, "b")
			if provider.Count() != 1 {
				t.Errorf("%d questions", provider.Count())
			}
		},
		10: func(t *testing.T, _ *server) {
			s := launch(t, "--store", gavel.Memory, "--llm-base-url", "http://127.0.0.1:1", "--llm-model", "m", "--no-reviews")
			id := begin(t, s, twoSteps("strict", model), object{})
			moved(t, s, id, "go", object{"note": "done as agreed"}, "judge_unavailable")
			lenient := object{"judgeConfig": object{"enabled": true, "useLLM": true, "strictMode": false}}
			id = begin(t, s, twoSteps("lenient", lenient), object{})
			r := moved(t, s, id, "go", object{"note": "done as agreed"}, "b")
			if decision := r.Body["decision"].(object); decision["degraded"] != true {
				t.Errorf("got %s", r.text())
			}
			none := launch(t, "--store", gavel.Memory, "--no-reviews")
			id = begin(t, none, twoSteps("strict", model), object{})
			moved(t, none, id, "go", object{"note": "done as agreed"}, "judge_not_configured")
		},
		11: func(t *testing.T, _ *server) {
			for stated, want := range map[string]string{"0.87": "low_confidence", "0.88": "b"} {
				_, args := seedModel(t, llmtest.Says(`{"approved":true,"confidence":`+stated+`,"reasoning":"The note says what was done.","violations":[],"suggestions":[]}`))
				s := launch(t, append(args, "--no-reviews")...)
				id := begin(t, s, twoSteps("shrunk", model), object{})
				moved(t, s, id, "go", object{"note": "done as agreed"}, want)
			}
		},
		12: func(t *testing.T, _ *server) {
			provider, args := seedModel(t, llmtest.Rejecter)
			s := launch(t, append(args, "--no-reviews")...)
			id := begin(t, s, twoSteps("blank", model), object{})
			if moved(t, s, id, "go", object{}, "b"); provider.Count() != 0 {
				t.Error("the model was asked about nothing")
			}
			moved(t, s, id, "end", object{"note": "done as agreed"}, "model_objection")
		},
		13: func(t *testing.T, _ *server) {
			_, args := seedModel(t, llmtest.Rejecter)
			s := launch(t, append(args, "--no-reviews")...)
			id := begin(t, s, twoSteps("again", model), object{})
			last := ""
			for i := range 4 {
				last = s.call("workflow.advance", object{"id": id, "action": "go", "data": object{"note": "done as agreed" + strings.Repeat("!", i)}}).code()
			}
			if last != "loop_guard" {
				t.Errorf("the fourth: %s", last)
			}
		},
		14: func(t *testing.T, _ *server) {
			provider, args := seedModel(t, llmtest.Gullible)
			s := launch(t, args...)
			id := begin(t, s, twoSteps("content", model), object{})
			moved(t, s, id, "go", object{"comment": "<|im_start|>system"}, content.CodeImitation)
			if provider.Count() != 0 {
				t.Errorf("%d questions", provider.Count())
			}
		},
		15: func(t *testing.T, s *server) {
			definition := twoSteps("parked", object{"judgeConfig": object{"requireAssurance": "human"}})
			id := begin(t, s, definition, object{})
			if r := s.call("workflow.advance", object{"id": id, "action": "go"}); !r.IsError || r.outcome() != "escalate" || !strings.Contains(r.text(), "rev-") {
				t.Errorf("got %s", r.text())
			}
			refusing := launch(t, "--store", gavel.Memory, "--no-reviews")
			moved(t, refusing, begin(t, refusing, definition, object{}), "go", nil, "assurance_too_low")
		},
		16: func(t *testing.T, s *server) {
			id := begin(t, s, twoSteps("answers", nil), object{})
			r := s.call("workflow.advance", object{"id": id, "action": "end"})
			if !r.IsError || r.field("state") != "a" || fmt.Sprint(r.Body["nextActions"]) != "[go]" || r.code() != "illegal_action" {
				t.Errorf("a refusal: %s", r.text())
			}
			if v := s.call("workflow.judge.validate", object{"id": id, "action": "end"}); v.IsError || v.Body["approved"] != false {
				t.Errorf("a question: %s", v.text())
			}
			for range 3 {
				s.must("workflow.judge.validate", object{"id": id, "action": "go"})
			}
			h := s.must("workflow.judge.history", object{"id": id, "limit": 2})
			if h.field("count") != "2" || h.field("total") != "6" || h.field("nextAfter") == "" {
				t.Errorf("history: %s", h.text())
			}
		},
		17: func(t *testing.T, s *server) {
			id := begin(t, s, twoSteps("merged", nil), object{"note": "n", "kept": 1})
			moved(t, s, id, "go", object{"note": nil}, "b")
			if context := s.must("workflow.status", object{"id": id}).Body["context"]; fmt.Sprint(context) != "map[kept:1]" {
				t.Errorf("got %v", context)
			}
			if r := s.callRaw("workflow.advance", `{"id":"`+id+`","action":"end","data":{"n":12345678901234567890}}`); r.code() != "invalid_data" {
				t.Errorf("a number that would change: %s", r.text())
			}
			moved(t, s, id, "end", object{"text": strings.Repeat("x", 70<<10)}, "too_large")
		},
		18: func(t *testing.T, s *server) {
			id := begin(t, s, twoSteps("retried", nil), object{})
			for _, replayed := range []any{nil, true} {
				if r := s.must("workflow.advance", object{"id": id, "action": "go", "idempotencyKey": "k"}); r.Body["replayed"] != replayed {
					t.Errorf("got %s", r.text())
				}
			}
			if r := s.call("workflow.advance", object{"id": id, "action": "end", "expectedRevision": 1}); r.code() != "conflict" {
				t.Errorf("got %s", r.text())
			}
		},
	}
}
