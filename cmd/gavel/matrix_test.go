package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// matrixCaller is a column of the matrix. Its requests concern a workflow and an instance of ada's. If of is set,
// the workflow belongs to an operator, who may share it, and the instance to ada.
type matrixCaller struct {
	name, principal, role, workflows, of string
	// ended is why its token is invalid: expired or revoked.
	ended string
}

var matrixCallers = []matrixCaller{
	{name: "owner", principal: "ada", role: "agent"},
	{name: "owner, operator's workflow", principal: "ada", role: "agent", of: "operator"},
	{name: "another agent", principal: "bob", role: "agent"},
	{name: "another agent, operator's workflow", principal: "bob", role: "agent", of: "operator"},
	{name: "another agent, shared workflow", principal: "bob", role: "agent", of: "operator, shared"},
	{name: "operator", principal: "eve", role: "operator"},
	{name: "reviewer", principal: "rob", role: "reviewer"},
	{name: "auditor", principal: "ann", role: "auditor"},
	{name: "proxy", principal: "pat", role: "proxy"},
	{name: "owner, in scope", principal: "ada", role: "agent", workflows: "w* chain.w*"},
	{name: "owner, out of scope", principal: "ada", role: "agent", workflows: "else-*"},
	{name: "operator, in scope", principal: "eve", role: "operator", workflows: "w* chain.w*"},
	{name: "operator, out of scope", principal: "eve", role: "operator", workflows: "else-*"},
	{name: "another agent, shared workflow out of scope", principal: "bob", role: "agent", workflows: "else-*", of: "operator, shared"},
	{name: "expired token", principal: "ada", role: "agent", ended: "expired"},
	{name: "revoked token", principal: "ada", role: "agent", ended: "revoked"},
	{name: "nobody"},
}

// matrixScene holds the objects that one cell uses.
type matrixScene struct{ workflow, id, checkpoint, review, reviewed, run string }

// fill inserts the scene's ids into a path or a document.
func (s matrixScene) fill(text string) string {
	return strings.NewReplacer("$WF", s.workflow, "$ID", s.id, "$CP", s.checkpoint, "$REV", s.review, "$RUN", s.run).Replace(text)
}

// matrixRow is an operation.
type matrixRow struct {
	name string
	// operation is the REST operation's id, with its query and body; "" for none.
	operation, query, body string
	// tool is the MCP tool with its arguments, or the URI of a resource; "" for none.
	tool, arguments string
	// ownName means that the caller may choose the names in it.
	ownName bool
}

// matrixChain is a scheduled chain whose runs wait.
const matrixChain = `{"name":"w-chain","schedule":{"type":"once","at":"2999-01-01T00:00:00Z"},"steps":[{"id":"wait","type":"wait","signal":"go"}]}`

// writeChains writes chain definitions and a configuration file that loads them.
func writeChains(t *testing.T, definitions ...string) (file string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "chains"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, text := range definitions {
		writeFile(t, filepath.Join(dir, "chains", fmt.Sprintf("%d.json", i)), text)
	}
	file = filepath.Join(dir, "gavel.yaml")
	writeFile(t, file, "chains: {definitions: chains, openRuns: 100000, runAs: {principal: night, workflows: [\"*\"]}}\n")
	return file
}

const matrixState = `{"name":%q,%s"initialState":"a","states":{
	"a":{"transitions":{"go":"b","ask":{"target":"b","requireAssurance":"human"}}},
	"b":{"transitions":{"back":"a"}}}}`

func matrixRows() []matrixRow {
	rows := []matrixRow{
		{"redefine", "putDefinition", "", `{"name":"$WF","initialState":"z","states":{"z":{"final":true}}}`, "workflow.define", `{"name":"$WF","initialState":"z","states":{"z":{"final":true}}}`, false},
		{"define another", "define", "", `{"name":"$WF-new","initialState":"z","states":{"z":{"final":true}}}`, "workflow.define", `{"name":"$WF-newer","initialState":"z","states":{"z":{"final":true}}}`, true},
		{"list", "listDefinitions", "", "", "workflow.list", `{}`, false},
		{"describe", "getDefinition", "", "", "workflow.describe", `{"name":"$WF"}`, false},
		{"describe an instance's", "instanceDefinition", "", "", "workflow.describe", `{"id":"$ID"}`, false},
		{"diagram", "definitionDiagram", "", "", "workflow.diagram", `{"name":"$WF"}`, false},
		{"diagram of an instance", "instanceDiagram", "", "", "workflow.diagram", `{"id":"$ID"}`, false},
		{"read the judge", "getJudge", "", "", "", "", false},
		{"disable the judge", "patchJudge", "", `{"enabled":false}`, "workflow.judge.config", `{"name":"$WF","enabled":false}`, false},
		{"loosen the judge", "patchJudge", "", `{"minConfidence":0.1}`, "workflow.judge.config", `{"name":"$WF","minConfidence":0.1}`, false},
		{"tighten the judge", "patchJudge", "", `{"strictMode":true}`, "workflow.judge.config", `{"name":"$WF","strictMode":true}`, false},
		{"lift the loop guard", "clearRefusals", "", `{"workflow":"$WF"}`, "workflow.judge.clear", `{"workflow":"$WF"}`, false},
		{"start", "start", "", `{"type":"$WF"}`, "workflow.start", `{"type":"$WF"}`, false},
		{"list instances", "listInstances", "", "", "workflow.instances", `{}`, false},
		{"status", "getInstance", "", "", "workflow.status", `{"id":"$ID"}`, false},
		{"status in the past", "getInstance", "?revision=1", "", "workflow.status", `{"id":"$ID","revision":1}`, false},
		{"can execute", "canExecute", "?state=a", "", "workflow.canExecute", `{"id":"$ID","states":["a"]}`, false},
		{"advance", "advance", "", `{"action":"back"}`, "workflow.advance", `{"id":"$ID","action":"back"}`, false},
		{"validate", "validate", "", `{"action":"back"}`, "workflow.judge.validate", `{"id":"$ID","action":"back"}`, false},
		{"cancel", "cancel", "", `{}`, "workflow.cancel", `{"id":"$ID"}`, false},
		{"undo", "undo", "", "", "workflow.undo", `{"id":"$ID"}`, false},
		{"redo", "redo", "", "", "workflow.redo", `{"id":"$ID"}`, false},
		{"checkpoint", "checkpoint", "", `{}`, "workflow.checkpoint", `{"id":"$ID"}`, false},
		{"list checkpoints", "listCheckpoints", "", "", "workflow.listCheckpoints", `{"id":"$ID"}`, false},
		{"rollback", "rollback", "", `{"checkpointId":"$CP"}`, "workflow.rollback", `{"id":"$ID","checkpointId":"$CP"}`, false},
		{"add the user's messages", "addTranscript", "", `{"messages":["yes"]}`, "", "", false},
		{"history", "history", "", "", "workflow.judge.history", `{"id":"$ID"}`, false},
		{"timeline", "timeline", "", "", "", "", false},
		{"events of an instance", "instanceEvents", "", "", "", "", false},
		{"events", "events", "", "", "", "", false},
		{"search", "decisions", "", "", "workflow.judge.history", `{"outcome":"approve"}`, false},
		{"search one instance", "decisions", "?id=$ID", "", "", "", false},
		{"statistics", "statistics", "", "", "workflow.judge.statistics", `{}`, false},
		{"decide", "decide", "", `{"workflow":"$WF","state":"a","action":"go"}`, "", "", false},
		{"decide by a definition of one's own", "decide", "", `{"definition":{"name":"$WF","initialState":"a","states":{"a":{"transitions":{"go":"a"}}}},"state":"a","action":"go"}`, "", "", true},
		{"list reviews", "listReviews", "", "", "workflow.review.list", `{}`, false},
		{"review", "getReview", "", "", "workflow.review.list", `{"reviewId":"$REV"}`, false},
		{"approve a review", "resolve", "", `{"decision":"approve","reason":"it is fine"}`, "workflow.review.resolve", `{"reviewId":"$REV","decision":"approve","reason":"it is fine"}`, false},
		{"list chains", "listChains", "", "", "chain.list", `{}`, false},
		{"run a chain", "startRun", "", `{"chain":"w-chain"}`, "chain.start", `{"chain":"w-chain"}`, true},
		{"wait for the result of a run", "getRunResult", "?wait=0", "", "chain.result", `{"run":"$RUN","wait":0}`, false},
		{"say what became of a call", "answerRun", "", `{"key":"wait","answer":"again"}`, "", "", false},
		{"signal a run", "signalRun", "", `{"name":"go"}`, "", "", true},
		{"sources", "listSources", "", "", "", "", false},
		{"who am I", "whoami", "", "", "", "", false},
		{"figures", metricsOperation, "", "", "", "", false},
		{"the resource of all workflows", "", "", "", "workflow://definitions", "", false},
		{"the resource of a workflow", "", "", "", "workflow://definitions/$WF", "", false},
		{"the resource of all instances", "", "", "", "workflow://instances", "", false},
		{"the resource of an instance", "", "", "", "workflow://instances/$ID", "", false},
		{"the resource of its decisions", "", "", "", "workflow://instances/$ID/history", "", false},
		{"the resource of its diagram", "", "", "", "workflow://instances/$ID/diagram", "", false},
		{"the resource of its drawing", "", "", "", "workflow://instances/$ID/diagram.svg", "", false},
		{"the resource of a review", "", "", "", "workflow://reviews/$REV", "", false},
	}
	said := map[string]bool{}
	for _, row := range rows {
		said[row.operation] = true
	}
	for _, op := range operation.All() {
		for i := range op.Routes {
			if r := &op.Routes[i]; !said[r.ID] {
				rows = append(rows, plainRow(op, r))
			}
		}
	}
	return rows
}

// plainRow requests an operation for the scene with its required fields only.
func plainRow(op *operation.Operation, r *operation.Route) matrixRow {
	document := func(fields []*operation.Field, name func(*operation.Field) string) string {
		members := object{}
		for _, f := range fields {
			if f.Required {
				members[name(f)] = sampleOf(f)
			}
		}
		raw, err := json.Marshal(members)
		if err != nil {
			panic(err)
		}
		return string(raw)
	}
	row := matrixRow{name: strings.ToLower(op.Title[:1]) + op.Title[1:], operation: r.ID, tool: op.Tool.Name}
	query := url.Values{}
	for _, f := range r.Fields(operation.InQuery) {
		if f.Required {
			query.Set(f.HTTP(), fmt.Sprint(sampleOf(f)))
		}
	}
	if len(query) > 0 {
		row.query = "?" + query.Encode()
	}
	if !r.Reads() {
		row.body = document(r.Fields(operation.InBody), (*operation.Field).HTTP)
	}
	if op.Tool.Name != "" {
		row.arguments = document(op.ToolFields(), func(f *operation.Field) string { return f.Name })
	}
	return row
}

// sampleOf returns a value for a field: the scene's object of that name, or any valid value.
func sampleOf(f *operation.Field) any {
	scene := map[string]string{"id": "$ID", "name": "$WF", "type": "$WF", "workflow": "$WF", "checkpointId": "$CP", "reviewId": "$REV", "run": "$RUN"}
	if known := scene[f.Name]; known != "" {
		return known
	}
	if len(f.Enum) > 0 {
		return f.Enum[0]
	}
	return map[operation.Kind]any{
		operation.String: "w-other", operation.Time: "2026-01-02T15:04:05Z", operation.Object: object{}, operation.Integer: 1,
		operation.Number: 1, operation.Boolean: true, operation.Strings: []string{"a"},
	}[f.Kind]
}

// rolesPage documents which role may do what.
var rolesPage = filepath.Join("..", "..", "docs", "reference", "roles.md")

// Every caller requests every operation over REST and over MCP. docs/reference/roles.md holds the results.
// neverAllows lists what must always be refused.
func TestAccessOverBothFaces(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--quota-definitions", "0", "--quota-instances", "0", "--rate", "0", "--config", writeChains(t, matrixChain))
	tokens := s.matrixTokens()
	routes := s.restRoutes()
	scenes, rows := 0, matrixRows()
	workflows := map[string]string{} // by owner; reused until something changes them
	cells := make([][]string, len(rows))
	for i, row := range rows {
		reads := strings.HasPrefix(row.tool, "workflow://") || routes[row.operation].method == http.MethodGet
		ofInstance := strings.HasPrefix(routes[row.operation].path, "/v1/instances/{id}") || strings.HasPrefix(routes[row.operation].path, "/v1/reviews/{id}")
		kept := map[string]matrixScene{} // by workflow owner; reused until something changes them
		for j, caller := range matrixCallers {
			owner := tokens[0]
			if caller.of != "" {
				owner = s.owner
			}
			answers := map[string]engine.Code{}
			for _, face := range []string{"REST", "MCP"} {
				if face == "REST" && row.operation == "" || face == "MCP" && row.tool == "" {
					continue
				}
				scene, made := kept[caller.of]
				if !made {
					if scenes++; scenes%15 == 0 {
						s.cancelReviews(tokens[0])
						clear(kept)
					}
					if workflows[caller.of] == "" {
						workflows[caller.of] = s.matrixWorkflow(owner, fmt.Sprintf("w%d", scenes), caller.of == "operator, shared")
					}
					scene = s.scene(tokens[0], workflows[caller.of])
					kept[caller.of] = scene
				}
				if strings.Contains(routes[row.operation].path, "{run}") {
					scene.run, _ = s.must(tokens[0], http.MethodPost, "/v1/runs", `{"chain":"w-chain"}`)["run"].(string)
				}
				switch row.operation {
				case "pauseSchedule": // a paused schedule cannot be paused
					s.ask(s.owner, http.MethodPost, "/v1/schedules/w-chain/resume", "")
				case "resumeSchedule":
					s.ask(s.owner, http.MethodPost, "/v1/schedules/w-chain/pause", "")
				}
				if face == "REST" {
					answers[face] = s.rest(tokens[j], routes[row.operation], scene, row)
				} else {
					answers[face] = s.mcp(tokens[j], scene.fill(row.tool), scene.fill(row.arguments))
				}
				if !reads && !slices.Contains([]string{"forbidden", "not found", "401"}, cellOf(answers[face])) {
					delete(kept, caller.of)
					if !ofInstance {
						delete(workflows, caller.of)
					}
				}
				if what := row.neverAllows(caller); what != "" && answers[face] == "" {
					t.Errorf("%s of %s over %s is allowed: %s", row.name, caller.name, face, what)
				}
			}
			rest, overREST := answers["REST"]
			mcp, overMCP := answers["MCP"]
			if overREST && overMCP && cellOf(rest) != cellOf(mcp) {
				t.Errorf("%s of %s: %q over REST, %q over MCP", row.name, caller.name, rest, mcp)
			}
			if !overREST {
				rest = mcp
			}
			cells[i] = append(cells[i], cellOf(rest))
		}
	}
	if t.Failed() {
		return
	}
	text := writeRoles(rows, cells)
	if *update {
		if err := os.WriteFile(rolesPage, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(rolesPage); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%s is not what the server answers (%v). If that is meant: go test ./cmd/gavel -run TestAccessOverBothFaces -update, and read the diff:\n%s", rolesPage, err, text)
	}
}

// cancelReviews cancels the instances with a caller's open reviews, so that these stay below the limit.
func (s *served) cancelReviews(token string) {
	s.t.Helper()
	waiting, _ := s.must(token, http.MethodGet, "/v1/reviews?status=open", "")["reviews"].([]any)
	for _, one := range waiting {
		id, _ := one.(object)["id"].(string)
		s.must(s.owner, http.MethodPost, "/v1/instances/"+id+"/cancel", `{}`)
	}
}

// matrixTokens returns the callers' tokens; "" for a caller without one.
func (s *served) matrixTokens() []string {
	s.t.Helper()
	tokens := make([]string, len(matrixCallers))
	for i, c := range matrixCallers {
		if c.role == "" {
			continue
		}
		args := []string{fmt.Sprintf("matrix-%d", i), "--principal", c.principal, "--role", c.role}
		if c.workflows != "" {
			args = append(args, "--workflows", c.workflows)
		}
		if c.ended == "expired" {
			args = append(args, "--expires", "1h")
		}
		tokens[i] = s.token(args...)
		switch c.ended {
		case "expired":
			s.expire(tokens[i])
		case "revoked":
			runGavel(s.t, "token", "revoke", "--store", s.store, strings.Split(tokens[i], "_")[1])
		}
	}
	return tokens
}

// neverAllows returns why a caller must be refused regardless of the page; "" if there is no such reason.
func (r matrixRow) neverAllows(c matrixCaller) string {
	names := strings.Contains(r.query+r.body+r.tool+r.arguments, "$") || strings.HasSuffix(r.operation, "Run") || strings.HasSuffix(r.operation, "Schedule") || slices.Contains([]string{"timeline", "instanceEvents", "getJudge"}, r.operation)
	switch {
	case c.role == "" || c.ended != "":
		return "it has no valid credential"
	case c.workflows == "else-*" && names:
		return "the workflow is out of its scope"
	case c.name == "another agent" && names && !r.ownName:
		return "the workflow and the instance are another agent's"
	}
	return ""
}

// cellOf summarises a response in a word.
func cellOf(code engine.Code) string {
	switch code {
	case "", engine.CodeNothingToUndo: // allowed, although there is nothing to undo
		return "yes"
	case engine.CodeForbidden:
		return "forbidden"
	case engine.CodeUnknownInstance, engine.CodeUnknownWorkflow, engine.CodeUnknownReview:
		return "not found"
	case engine.CodeUnauthenticated, "invalid_token", "too_many_failures": // bad tokens are counted per address
		return "401"
	}
	return "`" + string(code) + "`"
}

func writeRoles(rows []matrixRow, cells [][]string) []byte {
	var b bytes.Buffer
	b.WriteString(`<!-- Generated by: go test ./cmd/gavel -run TestAccessOverBothFaces -update -->

# Who may do what

What a running server answers each caller, over REST and over MCP alike: *yes*, *forbidden* (403), *not found* (404: its
existence is not shown), *401*. Unless a column says otherwise, the workflow was defined by the owner, an agent, who also started the
instance and asked for the review. *In scope* and *out of scope* are tokens with ` + "`--workflows`" + `. A run is the owner's, of an operator's chain. Lists and
searches hold what the caller may see.

`)
	head, line := "| operation |", "|---|"
	for _, c := range matrixCallers {
		head, line = head+" "+c.name+" |", line+"---|"
	}
	fmt.Fprintf(&b, "%s over |\n%s---|\n", head, line)
	for i, row := range rows {
		var over []string
		if row.operation != "" {
			over = append(over, "REST `"+row.operation+"`")
		}
		if row.tool != "" {
			over = append(over, "MCP `"+strings.NewReplacer("$ID", "{id}", "$WF", "{name}", "$REV", "{id}").Replace(row.tool)+"`")
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.name, strings.Join(cells[i], " | "), strings.Join(over, ", "))
	}
	return b.Bytes()
}

// The matrix covers everything that the server announces to clients.
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
	fields := strings.NewReplacer("{name}", "$WF", "reviews/{id}", "reviews/$REV", "{id}", "$ID")
	for _, kind := range [][3]string{{"resources/list", "resources", "uri"}, {"resources/templates/list", "resourceTemplates", "uriTemplate"}} {
		_, answer := s.modern(s.owner, kind[0], "", "")
		result, _ := answer["result"].(object)
		all, _ := result[kind[1]].([]any)
		if len(all) == 0 {
			t.Errorf("%s: %v", kind[0], answer)
		}
		for _, one := range all {
			if uri, _ := one.(object)[kind[2]].(string); !have[fields.Replace(uri)] {
				t.Errorf("the resource %s is not in the matrix", uri)
			}
		}
	}
}

// matrixWorkflow defines a workflow for scenes.
func (s *served) matrixWorkflow(owner, name string, shared bool) string {
	s.t.Helper()
	access := ""
	if shared {
		access = `"access":"shared",`
	}
	s.must(owner, http.MethodPost, "/v1/definitions", fmt.Sprintf(matrixState, name, access))
	return name
}

// scene creates the objects of a cell: an instance in b with a checkpoint, and an open review.
func (s *served) scene(starter, name string) matrixScene {
	s.t.Helper()
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

// metricsOperation represents the metrics endpoint, which is not part of the API.
const metricsOperation = "GET /metrics"

// rest makes a REST request and returns the code of the problem; "" for none.
func (s *served) rest(token string, route restRoute, scene matrixScene, row matrixRow) engine.Code {
	s.t.Helper()
	if row.operation == metricsOperation {
		switch status, text := s.figures(token); status {
		case http.StatusOK:
			return ""
		case http.StatusForbidden:
			return engine.CodeForbidden
		case http.StatusUnauthorized, http.StatusTooManyRequests:
			return engine.CodeUnauthenticated
		default:
			s.t.Errorf("%d %s", status, text)
		}
	}
	id := scene.id
	if strings.HasPrefix(route.path, "/v1/reviews") {
		id = scene.review
	}
	path := strings.NewReplacer("{id}", id, "{reviewId}", id, "{name}", scene.workflow, "{run}", scene.run, "{chain}", "w-chain").Replace(route.path) + scene.fill(row.query)
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

// mcp calls a tool and returns the code of the error; "" for none. A refusal by the judge is not an error.
func (s *served) mcp(token, tool, arguments string) engine.Code {
	s.t.Helper()
	method, params := "tools/call", `,"name":"`+tool+`","arguments":`+arguments
	if strings.HasPrefix(tool, "workflow://") {
		method, params = "resources/read", `,"uri":"`+tool+`"`
	}
	status, answer := s.modern(token, method, tool, params)
	if code, ok := answer["code"].(string); ok && (status == http.StatusUnauthorized || status == http.StatusTooManyRequests) {
		return engine.Code(code)
	}
	if failed, ok := answer["error"].(object); ok {
		data, _ := failed["data"].(object)
		code, _ := data["code"].(string)
		if method == "resources/read" {
			return engine.Code(code)
		}
		return engine.Code("protocol: " + code)
	}
	result, _ := answer["result"].(object)
	content := answerOf(result)
	failed, _ := content["error"].(object)
	code, _ := failed["code"].(string)
	return engine.Code(code)
}

// answerOf parses a tool's text result as JSON.
func answerOf(result object) object {
	content, _ := result["content"].([]any)
	if len(content) != 1 {
		return nil
	}
	text, _ := content[0].(object)["text"].(string)
	var out object
	if json.Unmarshal([]byte(text), &out) != nil {
		return nil
	}
	return out
}

// modern sends a request of the protocol version without sessions. params begin with a comma.
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

// tryWith is try with headers, given as pairs of name and value.
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

// restRoute is the route of an operation.
type restRoute struct{ method, path string }

// restRoutes returns the operations in the server's OpenAPI document, by id.
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

// Further attacks by an agent over the wire.
func TestAttacksOverBothFaces(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	ada, bob := s.token("ada", "--principal", "ada", "--role", "agent"), s.token("bob", "--principal", "bob", "--role", "agent")
	scene := s.scene(ada, s.matrixWorkflow(s.owner, "refund", false))
	define := func(name string) string { return fmt.Sprintf(matrixState, name, "") }

	for _, name := range []string{"Refund", "re-fund", "refund_"} {
		if status, answer := s.ask(ada, http.MethodPost, "/v1/definitions", define(name)); status != http.StatusForbidden {
			t.Errorf("a look-alike name %s over REST: %d %v", name, status, answer)
		}
		if code := s.mcp(ada, "workflow.define", define(name)); code != engine.CodeForbidden {
			t.Errorf("a look-alike name %s over MCP: %q", name, code)
		}
	}

	// The same idempotency key of two principals is two keys; likewise for two operations.
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

	// A principal who requested a move cannot decide it with a reviewer's credential.
	adaReviews := s.token("ada-reviews", "--principal", "ada", "--role", "reviewer")
	if status, answer := s.ask(adaReviews, http.MethodPost, "/v1/reviews/"+scene.review+"/resolve", `{"decision":"approve","reason":"mine"}`); status != http.StatusForbidden {
		t.Errorf("its own review: %d %v", status, answer)
	}
	if status, answer := s.ask(s.owner, http.MethodGet, "/v1/reviews/"+scene.review, ""); status != http.StatusOK || answer["status"] != "open" {
		t.Errorf("the review is %d %v", status, answer["status"])
	}
	// Other principals see neither the instance nor the review, in any list.
	for _, path := range []string{"/v1/instances", "/v1/reviews", "/v1/decisions", "/v1/events"} {
		_, answer := s.ask(bob, http.MethodGet, path, "")
		if raw, err := json.Marshal(answer); err != nil || strings.Contains(string(raw), scene.id) || strings.Contains(string(raw), scene.review) || strings.Contains(string(raw), scene.reviewed) {
			t.Errorf("%s shows what is another's: %s %v", path, raw, err)
		}
	}
}
