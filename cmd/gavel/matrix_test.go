package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// The callers of the matrix. What they ask is about a workflow and an instance of ada's,
// but in the second column: there the workflow is an operator's and the instance hers.
var matrixCallers = []struct {
	name, principal, role, workflows string
	operators                        bool
}{
	{name: "owner", principal: "ada", role: "agent"},
	{name: "owner on an operator's workflow", principal: "ada", role: "agent", operators: true},
	{name: "another agent", principal: "bob", role: "agent"},
	{name: "operator", principal: "eve", role: "operator"},
	{name: "reviewer", principal: "rob", role: "reviewer"},
	{name: "auditor", principal: "ann", role: "auditor"},
	{name: "the owner, out of scope", principal: "ada", role: "agent", workflows: "else-*"},
	{name: "nobody"},
}

// matrixScene is what one cell is about.
type matrixScene struct{ workflow, id, checkpoint, review, reviewed string }

// fill puts the scene into a path or a document.
func (s matrixScene) fill(text string) string {
	return strings.NewReplacer("$WF", s.workflow, "$ID", s.id, "$CP", s.checkpoint, "$REV", s.review).Replace(text)
}

// matrixRow is an operation with what each caller is answered: "" for allowed, or a code.
type matrixRow struct {
	name string
	// operation is the REST operation's id, with its query and body; "" when there is none.
	operation, query, body string
	// tool is the MCP tool with its arguments; "" when there is none.
	tool, arguments string
	want            [7]engine.Code // of all callers but nobody
}

const (
	mayNot     = engine.CodeForbidden
	noInstance = engine.CodeUnknownInstance
	noWorkflow = engine.CodeUnknownWorkflow
	noReview   = engine.CodeUnknownReview
)

// Whether somebody may see what is in a scene, and whether it may act on it.
var (
	allMay      = [7]engine.Code{}
	maySee      = [7]engine.Code{"", "", noInstance, "", "", "", noInstance}
	mayMove     = [7]engine.Code{"", "", noInstance, "", "", mayNot, noInstance}
	ownerMay    = [7]engine.Code{"", "", noInstance, "", mayNot, mayNot, noInstance}
	governorMay = [7]engine.Code{"", mayNot, noInstance, "", mayNot, mayNot, noInstance}
	mayKnow     = [7]engine.Code{"", "", noWorkflow, "", "", "", noWorkflow}
)

const matrixState = `{"name":%q,"initialState":"a","states":{
	"a":{"transitions":{"go":"b","ask":{"target":"b","requireAssurance":"human"}}},
	"b":{"transitions":{"back":"a"}}}}`

func matrixRows() []matrixRow {
	return []matrixRow{
		{
			"redefine", "putDefinition", "", `{"name":"$WF","initialState":"z","states":{"z":{"final":true}}}`, "workflow.define", `{"name":"$WF","initialState":"z","states":{"z":{"final":true}}}`,
			[7]engine.Code{"", mayNot, mayNot, "", mayNot, mayNot, mayNot},
		},
		{
			"define another", "define", "", `{"name":"$WF-new","initialState":"z","states":{"z":{"final":true}}}`, "workflow.define", `{"name":"$WF-newer","initialState":"z","states":{"z":{"final":true}}}`,
			[7]engine.Code{"", "", "", "", mayNot, mayNot, mayNot},
		},
		{"list", "listDefinitions", "", "", "workflow.list", `{}`, allMay},
		{"describe", "getDefinition", "", "", "workflow.describe", `{"name":"$WF"}`, mayKnow},
		{"describe an instance's", "instanceDefinition", "", "", "workflow.describe", `{"id":"$ID"}`, maySee},
		{"diagram", "definitionDiagram", "", "", "workflow.diagram", `{"name":"$WF"}`, mayKnow},
		{"diagram of an instance", "instanceDiagram", "", "", "workflow.diagram", `{"id":"$ID"}`, maySee},
		{"read the judge", "getJudge", "", "", "", "", mayKnow},
		{
			"disable the judge", "patchJudge", "", `{"enabled":false}`, "workflow.judge.config", `{"name":"$WF","enabled":false}`,
			[7]engine.Code{"", mayNot, noWorkflow, "", mayNot, mayNot, noWorkflow},
		},
		{
			"loosen the judge", "patchJudge", "", `{"minConfidence":0.1}`, "workflow.judge.config", `{"name":"$WF","minConfidence":0.1}`,
			[7]engine.Code{"", mayNot, noWorkflow, "", mayNot, mayNot, noWorkflow},
		},
		{
			"tighten the judge", "patchJudge", "", `{"strictMode":true}`, "workflow.judge.config", `{"name":"$WF","strictMode":true}`,
			[7]engine.Code{"", "", noWorkflow, "", mayNot, mayNot, noWorkflow},
		},
		{"start", "start", "", `{"type":"$WF"}`, "workflow.start", `{"type":"$WF"}`, [7]engine.Code{"", "", noWorkflow, "", mayNot, mayNot, noWorkflow}},
		{"list instances", "listInstances", "", "", "workflow.instances", `{}`, allMay},
		{"status", "getInstance", "", "", "workflow.status", `{"id":"$ID"}`, maySee},
		{"status in the past", "getInstance", "?revision=1", "", "workflow.status", `{"id":"$ID","revision":1}`, maySee},
		{"can execute", "canExecute", "?state=a", "", "workflow.canExecute", `{"id":"$ID","states":["a"]}`, maySee},
		{"advance", "advance", "", `{"action":"back"}`, "workflow.advance", `{"id":"$ID","action":"back"}`, mayMove},
		{"validate", "validate", "", `{"action":"back"}`, "workflow.judge.validate", `{"id":"$ID","action":"back"}`, mayMove},
		{"cancel", "cancel", "", `{}`, "workflow.cancel", `{"id":"$ID"}`, ownerMay},
		{"undo", "undo", "", "", "workflow.undo", `{"id":"$ID"}`, governorMay},
		{"redo", "redo", "", "", "workflow.redo", `{"id":"$ID"}`, [7]engine.Code{engine.CodeNothingToUndo, mayNot, noInstance, engine.CodeNothingToUndo, mayNot, mayNot, noInstance}},
		{"checkpoint", "checkpoint", "", `{}`, "workflow.checkpoint", `{"id":"$ID"}`, ownerMay},
		{"list checkpoints", "listCheckpoints", "", "", "workflow.listCheckpoints", `{"id":"$ID"}`, maySee},
		{"rollback", "rollback", "", `{"checkpointId":"$CP"}`, "workflow.rollback", `{"id":"$ID","checkpointId":"$CP"}`, governorMay},
		{"history", "history", "", "", "workflow.judge.history", `{"id":"$ID"}`, maySee},
		{"timeline", "timeline", "", "", "", "", maySee},
		{"events of an instance", "instanceEvents", "", "", "", "", maySee},
		{"events", "events", "", "", "", "", allMay},
		{"search", "decisions", "", "", "workflow.judge.history", `{"outcome":"approve"}`, allMay},
		{"search one instance", "decisions", "?instance=$ID", "", "", "", maySee},
		{"statistics", "statistics", "", "", "workflow.judge.statistics", `{}`, allMay},
		{"decide", "decide", "", `{"workflow":"$WF","state":"a","action":"go"}`, "", "", [7]engine.Code{"", "", noWorkflow, "", "", mayNot, noWorkflow}},
		{
			"decide by a definition of one's own", "decide", "", `{"definition":{"name":"$WF","initialState":"a","states":{"a":{"transitions":{"go":"a"}}}},"state":"a","action":"go"}`, "", "",
			[7]engine.Code{"", mayNot, "", "", mayNot, mayNot, mayNot},
		},
		{"list reviews", "listReviews", "", "", "workflow.review.list", `{}`, allMay},
		{"review", "getReview", "", "", "workflow.review.list", `{"reviewId":"$REV"}`, [7]engine.Code{"", "", noReview, "", "", "", noReview}},
		{
			"approve a review", "resolve", "", `{"decision":"approve","reason":"it is fine"}`, "workflow.review.resolve", `{"reviewId":"$REV","decision":"approve","reason":"it is fine"}`,
			[7]engine.Code{mayNot, mayNot, mayNot, "", "", mayNot, mayNot},
		},
		{"sources", "listSources", "", "", "", "", allMay},
		{"who am I", "whoami", "", "", "", "", allMay},
	}
}

// Every operation, asked by everybody, over REST and over MCP.
func TestAccessOverBothFaces(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--quota-definitions", "0", "--quota-instances", "0", "--rate", "0")
	tokens := make([]string, len(matrixCallers))
	for i, c := range matrixCallers {
		if c.role == "" {
			continue
		}
		args := []string{fmt.Sprintf("matrix-%d", i), "--principal", c.principal, "--role", c.role}
		if c.workflows != "" {
			args = append(args, "--workflows", c.workflows)
		}
		tokens[i] = s.token(args...)
	}
	ada := tokens[0]
	routes := s.restRoutes()
	scenes := 0
	for _, row := range matrixRows() {
		for i, caller := range matrixCallers {
			want, owner := engine.CodeUnauthenticated, ada
			if caller.operators {
				owner = s.owner
			}
			if caller.role != "" {
				want = row.want[i]
			}
			for _, face := range []string{"REST", "MCP"} {
				if face == "REST" && row.operation == "" || face == "MCP" && row.tool == "" {
					continue
				}
				scenes++
				scene := s.scene(owner, ada, fmt.Sprintf("w%d", scenes))
				var got engine.Code
				if face == "REST" {
					got = s.rest(tokens[i], routes[row.operation], scene, row)
				} else {
					got = s.mcp(tokens[i], row.tool, scene.fill(row.arguments))
				}
				s.must(s.owner, http.MethodPost, "/v1/instances/"+scene.reviewed+"/cancel", `{}`) // so that not too many reviews wait
				if got != want {
					t.Errorf("%s of %s over %s: got %q, want %q", row.name, caller.name, face, got, want)
				}
			}
		}
	}
}

// What a new operation may be asked by whom has to be said in the matrix.
func TestMatrixIsWhole(t *testing.T) {
	t.Parallel()
	have := map[string]bool{}
	for _, row := range matrixRows() {
		have[row.operation], have[row.tool] = true, true
	}
	s := serveGavel(t)
	for id := range s.restRoutes() {
		if !have[id] {
			t.Errorf("the operation %s is not in the matrix", id)
		}
	}
	status, answer := s.modern(s.owner, "tools/list", "", "")
	result, _ := answer["result"].(object)
	tools, _ := result["tools"].([]any)
	if status != http.StatusOK || len(tools) == 0 {
		t.Fatalf("%d %v", status, answer)
	}
	for _, one := range tools {
		name, _ := one.(object)["name"].(string)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(have)), func(known string) bool { return strings.ReplaceAll(known, ".", "_") == name || known == name }) {
			t.Errorf("the tool %s is not in the matrix", name)
		}
	}
}

// scene makes what a cell is about: an instance in b with a checkpoint, and a review that
// waits for a person.
func (s *served) scene(owner, starter, name string) matrixScene {
	s.t.Helper()
	s.must(owner, http.MethodPost, "/v1/definitions", fmt.Sprintf(matrixState, name))
	id := s.begin(starter, name)
	at := "/v1/instances/" + id
	checkpoint, _ := s.must(starter, http.MethodPost, at+"/checkpoints", `{}`)["checkpointId"].(string)
	s.must(starter, http.MethodPost, at+"/advance", `{"action":"go"}`)
	other := s.begin(starter, name)
	review, _ := s.must(starter, http.MethodPost, "/v1/instances/"+other+"/advance", `{"action":"ask"}`)["review"].(object)
	reviewID, _ := review["reviewId"].(string)
	if checkpoint == "" || reviewID == "" {
		s.t.Fatalf("no scene: checkpoint %q, review %v", checkpoint, review)
	}
	return matrixScene{workflow: name, id: id, checkpoint: checkpoint, review: reviewID, reviewed: other}
}

// rest asks over REST and returns the code of the problem, "" for none.
func (s *served) rest(token string, route restRoute, scene matrixScene, row matrixRow) engine.Code {
	s.t.Helper()
	id := scene.id
	if strings.HasPrefix(route.path, "/v1/reviews") {
		id = scene.review
	}
	path := strings.NewReplacer("{id}", id, "{name}", scene.workflow).Replace(route.path) + scene.fill(row.query)
	status, answer := s.ask(token, route.method, path, scene.fill(row.body))
	code, _ := answer["code"].(string)
	switch {
	case status/100 == 2:
		return ""
	case status == http.StatusUnauthorized && code == "":
		s.t.Errorf("%s %s: 401 without a code", route.method, path)
	}
	return engine.Code(code)
}

// mcp calls a tool and returns the code of the error, "" for none. A refusal of the judge
// is none.
func (s *served) mcp(token, tool, arguments string) engine.Code {
	s.t.Helper()
	status, answer := s.modern(token, "tools/call", tool, `,"name":"`+tool+`","arguments":`+arguments)
	if code, ok := answer["code"].(string); ok && status == http.StatusUnauthorized {
		return engine.Code(code)
	}
	if failed, ok := answer["error"].(object); ok {
		data, _ := failed["data"].(object)
		code, _ := data["code"].(string)
		return engine.Code("protocol: " + code)
	}
	result, _ := answer["result"].(object)
	content, _ := result["structuredContent"].(object)
	failed, _ := content["error"].(object)
	code, _ := failed["code"].(string)
	return engine.Code(code)
}

// modern sends a request of the protocol without sessions; params begin with a comma.
func (s *served) modern(token, method, name, params string) (int, object) {
	s.t.Helper()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + meta + params + `}}`
	if !json.Valid([]byte(body)) {
		s.t.Fatalf("no JSON: %s", body)
	}
	status, answer, err := s.tryWith(token, http.MethodPost, "/mcp", body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
	if err != nil {
		s.t.Fatal(err)
	}
	return status, answer
}

// tryWith is try with headers, pairs of name and value.
func (s *served) tryWith(token, method, path, body string, headers ...string) (int, object, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	var answer object
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return resp.StatusCode, nil, fmt.Errorf("%s %s: %s: %w", method, path, resp.Status, err)
	}
	return resp.StatusCode, answer, nil
}

// restRoute is where an operation is.
type restRoute struct{ method, path string }

// restRoutes are the operations that the server's own document tells of, by id.
func (s *served) restRoutes() map[string]restRoute {
	s.t.Helper()
	out := map[string]restRoute{}
	paths, _ := s.must("", http.MethodGet, "/openapi.json", "")["paths"].(object)
	for path, item := range paths {
		methods, _ := item.(object)
		for method, operation := range methods {
			if o, ok := operation.(object); ok {
				if id, ok := o["operationId"].(string); ok {
					out[id] = restRoute{strings.ToUpper(method), path}
				}
			}
		}
	}
	if len(out) < 20 {
		s.t.Fatalf("the document tells of %d operations", len(out))
	}
	return out
}

// What else an agent could try, over the wire.
func TestAttacksOverBothFaces(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	ada, bob := s.token("ada", "--principal", "ada", "--role", "agent"), s.token("bob", "--principal", "bob", "--role", "agent")
	scene := s.scene(s.owner, ada, "refund")
	define := func(name string) string { return fmt.Sprintf(matrixState, name) }

	for _, name := range []string{"Refund", "re-fund", "refund_"} {
		if status, answer := s.ask(ada, http.MethodPost, "/v1/definitions", define(name)); status != http.StatusForbidden {
			t.Errorf("a look-alike name %s over REST: %d %v", name, status, answer)
		}
		if code := s.mcp(ada, "workflow.define", define(name)); code != mayNot {
			t.Errorf("a look-alike name %s over MCP: %q", name, code)
		}
	}

	// The same key of two principals is two keys, and so are those of two operations.
	start := func(token string) object {
		status, answer, err := s.tryWith(token, http.MethodPost, "/v1/instances", `{"type":"refund"}`, "Idempotency-Key", "k")
		if err != nil || status/100 != 2 {
			t.Fatalf("%d %v %v", status, answer, err)
		}
		return answer
	}
	first, again, others := start(ada), start(ada), start(bob)
	if first["id"] != again["id"] || again["replayed"] != true || others["id"] == first["id"] || others["replayed"] == true {
		t.Errorf("first %v, again %v, another's %v", first, again, others)
	}

	// A reviewer's credential of who asked for the move decides nothing of its own.
	adaReviews := s.token("ada-reviews", "--principal", "ada", "--role", "reviewer")
	if status, answer := s.ask(adaReviews, http.MethodPost, "/v1/reviews/"+scene.review+"/resolve", `{"decision":"approve","reason":"mine"}`); status != http.StatusForbidden {
		t.Errorf("its own review: %d %v", status, answer)
	}
	if status, answer := s.ask(s.owner, http.MethodGet, "/v1/reviews/"+scene.review, ""); status != http.StatusOK || answer["status"] != "open" {
		t.Errorf("the review is %d %v", status, answer["status"])
	}
	// Another principal sees neither the instance nor the review, in no list either.
	for _, path := range []string{"/v1/instances", "/v1/reviews", "/v1/decisions", "/v1/events"} {
		_, answer := s.ask(bob, http.MethodGet, path, "")
		if raw, err := json.Marshal(answer); err != nil || strings.Contains(string(raw), scene.id) || strings.Contains(string(raw), scene.review) || strings.Contains(string(raw), scene.reviewed) {
			t.Errorf("%s shows what is another's: %s %v", path, raw, err)
		}
	}
}
