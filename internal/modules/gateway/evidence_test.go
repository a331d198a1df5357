package gateway_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/modules/gateway"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// toolAnswers maps the test server's tools to their answers. ECHO is replaced by the arguments.
var toolAnswers = map[string]string{
	"echo":       `"result":{"content":[],"structuredContent":{"got":ECHO}}`,
	"both":       `"result":{"content":[{"type":"text","text":"{\"in\": \"text\"}"},{"type":"image","data":""},{"type":"text","text":"[1]"}],"structuredContent":{"in":"structure"}}`,
	"words":      `"result":{"content":[{"type":"text","text":" {\"in\": \"text\"}\n"}],"resultType":"complete","structuredContent":null}`,
	"long":       `"result":{"content":[{"type":"text","text":"` + strings.Repeat("0123456789", 20) + `\u001b[2J"}],"structuredContent":{"long":"` + strings.Repeat("x", 200) + `"}}`,
	"twice":      `"result":{"content":[],"structuredContent":{"a":1,"a":2}}`,
	"picture":    `"result":{"content":[{"type":"image","data":""}]}`,
	"failed":     `"result":{"content":[{"type":"text","text":"the secret is 1234"}],"isError":true}`,
	"wants more": `"result":{"content":[{"type":"text","text":"x"}],"resultType":"input_required"}`,
	"task":       `"result":{"task":{"taskId":"1"}}`,
	"error":      `"error":{"code":-32602,"message":"the secret is 1234"}`,
	"hangs":      "",
	"ends":       "",
	"denied":     `"result":{"content":[]}`,
	"operate":    `"result":{"content":[{"type":"text","text":"fine"}]}`,
}

// Environment variables that make a test process an MCP server: its mode, and an address that it dials when its tool
// hangs.
const (
	serverVariable = "GATEWAY_TEST_SERVER"
	hangsVariable  = "GATEWAY_TEST_HANGS"
)

func TestMain(m *testing.M) {
	worker.Main(workflow.AnswerLintRequest)
	if mode := os.Getenv(serverVariable); mode != "" {
		serveTools(mode)
		return
	}
	m.Run()
}

// serveTools runs an MCP server. In mode "drifted" its descriptions differ; in mode "crash" it exits instead.
func serveTools(mode string) {
	if mode == "crash" {
		return
	}
	var tools []string
	for name := range toolAnswers {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"d%s","inputSchema":{"type":"object","properties":{"number":{}},"required":[]}}`, name, mode))
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments json.RawMessage
			}
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			return
		}
		answer := ""
		switch m.Method {
		case "initialize":
			answer = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`
		case "tools/list":
			answer = `"result":{"tools":[` + strings.Join(tools, ",") + `]}`
		case "tools/call":
			switch address := os.Getenv(hangsVariable); {
			case m.Params.Name == "ends":
				return
			case m.Params.Name == "hangs" && address != "":
				called, err := net.Dial("tcp", address)
				if err != nil {
					return
				}
				called.Close()
			}
			answer = strings.ReplaceAll(toolAnswers[m.Params.Name], "ECHO", string(m.Params.Arguments))
		}
		if answer != "" {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", m.ID, answer)
		}
	}
}

// openUpstreams opens the test server in one mode with the pins of another.
func openUpstreams(t testing.TB, mode, pinned string, timeout time.Duration) *upstream.Manager {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	variables := func(mode string) map[string]string {
		return map[string]string{serverVariable: mode, hangsVariable: os.Getenv(hangsVariable)}
	}
	declare := func(set map[string]string) upstream.Config {
		return upstream.Config{Servers: map[string]upstream.Server{"shop": {
			Command: []string{self}, Set: set, CallTimeout: timeout,
			Allow: []upstream.Rule{
				{Tools: []string{"*s", "e*", "both", "long", "twice", "picture", "failed", "wants more", "task"}, Principals: []string{"agent:*"}},
				{Tools: []string{"operate"}, Roles: []engine.Role{engine.RoleOperator}},
			},
		}}}
	}
	pins, err := upstream.LoadPins(filepath.Join(t.TempDir(), "pins.json"))
	if err != nil {
		t.Fatal(err)
	}
	manager, err := upstream.Open(declare(variables(pinned)), upstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := manager.Inspect(t.Context(), "shop")
	manager.Close()
	if err = errors.Join(err, pins.Set("shop", report.Items)); err != nil {
		t.Fatal(err)
	}
	manager, err = upstream.Open(declare(variables(mode)), upstream.Options{Pins: pins})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Close)
	return manager
}

// fetcher returns a manager whose sources are tools of other servers.
func fetcher(t testing.TB, tools evidence.Tools, sources map[string]evidence.Source) *evidence.Manager {
	t.Helper()
	m, err := evidence.New(evidence.Config{Sources: sources}, evidence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.UseTools(tools)
	t.Cleanup(m.Close)
	return m
}

func TestTool(t *testing.T) {
	t.Parallel()
	well, mortal, impatient := openUpstreams(t, "plain", "plain", time.Minute), openUpstreams(t, "plain", "plain", time.Minute), openUpstreams(t, "plain", "plain", 200*time.Millisecond)
	drifted, crash := openUpstreams(t, "drifted", "plain", time.Minute), openUpstreams(t, "crash", "plain", time.Minute)
	whole := evidence.Source{Arguments: map[string]evidence.Argument{"number": {Optional: true, Pattern: "[0-9.]*|true"}, "filter": {Optional: true, MaxLength: 60}}}
	parsed, text := whole, whole
	parsed.Output, text.Output = evidence.OutputJSON, evidence.OutputText
	for name, c := range map[string]struct {
		manager   *upstream.Manager
		source    evidence.Source
		tool      string
		arguments string
		who       string // "" means agent:a
		want      string // the content, or a failure and part of its detail
	}{
		"types are kept":            {tool: "echo", arguments: `{"number":12.50,"filter":{"open":true,"of":["a",1e3,null],"text":"two\nlines"}}`, want: `{"result":{"got":{"number":12.50,"filter":{"open":true,"of":["a",1e3,null],"text":"two\nlines"}}}}`},
		"a text and a boolean":      {tool: "echo", arguments: `{"number":true,"filter":"\u00e9\n"}`, want: `{"result":{"got":{"number":true,"filter":"\u00e9\n"}}}`},
		"no arguments":              {tool: "echo", want: `{"result":{"got":{}}}`},
		"structure before text":     {tool: "both", want: `{"result":{"in":"structure"}}`},
		"text all the same":         {tool: "both", source: text, want: `{"output":"{\"in\": \"text\"}\n[1]"}`},
		"text":                      {tool: "words", want: `{"output":" {\"in\": \"text\"}\n"}`},
		"JSON in a text":            {tool: "words", source: parsed, want: `{"result":{"in":"text"}}`},
		"too long a text":           {tool: "long", source: text, want: "bytes left out"},
		"too long a structure":      {tool: "long", want: "too_large: more than 100 bytes"},
		"a key twice":               {tool: "twice", want: "malformed: not acceptable JSON"},
		"neither":                   {tool: "picture", want: "malformed: neither structured content nor text"},
		"it failed":                 {tool: "failed", want: "refused: reported an error"},
		"input required":            {tool: "wants more", want: "malformed: asks for input"},
		"a task":                    {tool: "task", want: "malformed: a task"},
		"an error":                  {tool: "error", want: "refused: the error -32602"},
		"no answer":                 {tool: "hangs", manager: impatient, want: "timeout: no answer within 200ms"},
		"no answer in its own time": {tool: "hangs", source: evidence.Source{Timeout: 50 * time.Millisecond}, want: "timeout: timed out after 50ms"},
		"it ends":                   {tool: "ends", manager: mortal, want: "unavailable: gave no answer"},
		"a crash":                   {tool: "echo", manager: crash, want: "unavailable: gave no answer"},
		"it drifted":                {tool: "echo", manager: drifted, want: "refused: differs from its pin (description)"},
		"not pinned":                {tool: "nothings", want: "refused: the tool does not exist, or the principal of the move may not use it"},
		"not allowed to anybody":    {tool: "denied", want: "refused: the tool does not exist, or the principal of the move may not use it"},
		"not allowed to the role":   {tool: "operate", want: "refused: the tool does not exist, or the principal of the move may not use it"},
		"another principal":         {tool: "echo", who: "eve", want: "refused: the tool does not exist, or the principal of the move may not use it"},
		"nobody":                    {tool: "echo", who: "-", want: "refused: the tool does not exist, or the principal of the move may not use it"},
		"a pattern":                 {tool: "echo", arguments: `{"number":"12; drop"}`, want: `argument: "number" does not match`},
		"a pattern of an object":    {tool: "echo", arguments: `{"number":{"a":12}}`, want: `argument: "number" has a pattern`},
		"too long an object":        {tool: "echo", arguments: `{"filter":{"a":"` + strings.Repeat("x", 60) + `"}}`, want: `argument: longer than 60 bytes`},
		"not declared":              {tool: "echo", arguments: `{"other":1}`, want: `argument: takes no argument "other"`},
		"a key that can be another": {tool: "echo", arguments: `{"filter":{"a":1,"A":2}}`, want: `argument: they are ambiguous`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.source
			if s.Arguments == nil {
				s.Arguments = whole.Arguments
			}
			s.Upstream, s.MaxOutput = &evidence.Tool{Server: "shop", Name: c.tool}, 100
			manager := cmp.Or(c.manager, well)
			r := judge.EvidenceRequest{Source: "it", Arguments: json.RawMessage(c.arguments), Principal: strings.Trim(cmp.Or(c.who, "agent:a"), "-"), Role: "agent", Caller: "agent:a"}
			f, err := fetcher(t, gateway.Behind(manager), map[string]evidence.Source{"it": s}).Fetch(t.Context(), r, false)
			if err != nil {
				t.Fatal(err)
			}
			if failure, detail, failed := strings.Cut(c.want, ": "); failed && !strings.HasPrefix(c.want, "{") {
				if string(f.Failure) != failure || !strings.Contains(f.Detail, detail) || f.Content != nil || strings.Contains(f.Detail, "1234") {
					t.Errorf("%+v, want %s", f, c.want)
				}
				return
			}
			if got := string(f.Content); got != c.want && (!f.Truncated || !strings.Contains(got, c.want) || strings.Contains(got, "2J")) {
				t.Errorf("%s, %+v, want %s", got, f, c.want)
			}
		})
	}
}

func TestToolIsReadOnlyIfTheOperatorSaysSo(t *testing.T) {
	t.Parallel()
	yes := true
	s := evidence.Source{Upstream: &evidence.Tool{Server: "shop", Name: "words"}}
	marked := s
	marked.ReadOnly = &yes
	m := fetcher(t, gateway.Behind(openUpstreams(t, "plain", "plain", time.Minute)), map[string]evidence.Source{"it": s, "marked": marked})
	for source, want := range map[string]judge.EvidenceFailure{"it": judge.FailureNotReadOnly, "marked": ""} {
		f, err := m.Fetch(t.Context(), judge.EvidenceRequest{Source: source, Principal: "agent:a", Role: "agent"}, true)
		if err != nil || f.Failure != want {
			t.Errorf("%s: %+v, %v", source, f, err)
		}
	}
}

// Reloaded upstreams are used immediately. A call that the reload ended does not affect the decision.
func TestToolBehindChangedUpstreams(t *testing.T) {
	called, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer called.Close()
	t.Setenv(hangsVariable, called.Addr().String())
	before, after := openUpstreams(t, "plain", "plain", time.Minute), openUpstreams(t, "plain", "plain", time.Minute)
	tools := gateway.Behind(before)
	m := fetcher(t, tools, map[string]evidence.Source{
		"words": {Upstream: &evidence.Tool{Server: "shop", Name: "words"}}, "hangs": {Upstream: &evidence.Tool{Server: "shop", Name: "hangs"}},
	})
	ask := func(source string) (judge.FetchResult, error) {
		return m.Fetch(t.Context(), judge.EvidenceRequest{Source: source, Principal: "agent:a", Role: "agent"}, false)
	}
	if f, err := ask("words"); err != nil || f.Failure != "" {
		t.Fatalf("%+v, %v", f, err)
	}
	hanging := make(chan error)
	go func() {
		_, err := ask("hangs")
		hanging <- err
	}()
	if _, err := called.Accept(); err != nil { // the previous server has received the call
		t.Fatal(err)
	}
	tools.Use(after)
	before.Close()
	if err := <-hanging; !errors.Is(err, judge.ErrBusy) {
		t.Error(err)
	}
	if f, err := ask("words"); err != nil || f.Failure != "" {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestCheckSources(t *testing.T) {
	t.Parallel()
	pins, err := upstream.LoadPins(filepath.Join(t.TempDir(), "pins.json"))
	if err != nil {
		t.Fatal(err)
	}
	var items []upstream.Item
	for name, schema := range map[string]string{
		"get_issue": `{"properties":{"number":{},"repo":{}},"required":["number"]}`,
		"search":    `{"properties":{"query":{}},"additionalProperties":false}`,
		"hidden":    `{}`,
		"set_state": `{}`,
	} {
		raw := fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, name, schema)
		items = append(items, upstream.Item{Upstream: "tracker", Kind: upstream.KindTool, Name: name, Public: "tracker__" + name, Raw: json.RawMessage(raw)})
	}
	if err := pins.Set("tracker", items); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ source, want string }{
		{`{upstream: {server: tracker, tool: get_issue}, arguments: {number: {}}}`, ""},
		{`{upstream: {server: tracker, tool: get_issue}, arguments: {number: {}, page: {}}}`, ""}, // the tool may accept more
		{`{upstream: {server: fresh, tool: whatever}}`, ""},
		{`{upstream: {server: traker, tool: get_issue}}`, `conf/gavel.yaml:4:29: /evidence/sources/it/upstream/server: the section upstreams declares no server "traker"; did you mean "tracker"?`},
		{`{upstream: {server: tracker, tool: get_isue}, arguments: {number: {}}}`, `/upstream/tool: the server "tracker" has no pinned tool "get_isue"; did you mean "get_issue"?`},
		{`{upstream: {server: tracker, tool: hidden}}`, `/upstream/tool: no rule of "tracker" allows the tool "hidden"`},
		{`{upstream: {server: tracker, tool: set_state}}`, `/upstream/tool: the tool "set_state" has a gate`},
		{`{upstream: {server: new, tool: x}}`, `/upstream/server: the server "new" has no pinned items; run gavel upstream pin new`},
		{`{upstream: {server: tracker, tool: get_issue}}`, `the tool "get_issue" needs the arguments number`},
		{`{upstream: {server: tracker, tool: get_issue}, arguments: {number: {}, repos: {}}}`, `/arguments/repos: the tool "get_issue" has no argument "repos"; did you mean "repo"?`},
		{`{upstream: {server: tracker, tool: search}, arguments: {page: {}}}`, `/arguments/page: the tool "search" has no argument "page"`},
	} {
		file, err := config.Parse("conf/gavel.yaml", []byte(`upstreams: { tracker: {command: [x], allow: [{tools: ["get*", search, set_state]}]}, new: {command: [x], allow: [{tools: ["*"]}]}, fresh: {command: [x], pinning: first-use, allow: [{tools: ["*"]}]} }
evidence:
  sources:
    it: `+c.source+"\ngates: [{tool: tracker__set_state, workflow: w, states: a}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		err = gateway.CheckSources(file, pins)
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && err != nil {
			t.Errorf("%s: %s, want %s", c.source, got, c.want)
		}
	}
}
