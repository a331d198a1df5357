package gate_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// release is the workflow of the gates: authenticate, validate, deploy, and reset after an error.
const release = `
name: release
initialState: idle
judgeConfig: {useLLM: true}
states:
  idle: {transitions: {authenticate: ready}}
  ready: {transitions: {check: validating, approve: {target: approved, roles: [reviewer], freezes: [/plan]}}}
  validating: {transitions: {valid: {target: validated, useLLM: false}, invalid: {target: error, useLLM: false}, judged: validated}}
  validated: {transitions: {deploy: deploying}}
  approved: {transitions: {deploy: deploying}}
  deploying: {transitions: {deployed: {target: deployed, useLLM: false}, failed: {target: error, useLLM: false}}}
  error: {transitions: {reset: {target: idle, useLLM: false}}}
  deployed: {final: true, outcome: success}
`

const gates = `gates:
  - {tool: ops__authenticate, workflow: release, states: idle, action: authenticate}
  - {tool: ops__validate, workflow: release, states: [ready], action: check, success: valid, error: invalid}
  - {tool: ops__deploy, workflow: release, states: [validated, approved], action: deploy, success: deployed, error: failed, bind: {/plan: /plan/id}}
  - {tool: ops__reset, workflow: release, states: [error], success: reset}
`

func define(t testing.TB, text string) *workflow.Definition {
	t.Helper()
	d, err := workflow.Parse("release.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// parse parses the section "gates" of a file.
func parse(t testing.TB, text string) (gate.Config, error) {
	t.Helper()
	root, err := document.Parse("gavel.yaml", []byte(text), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return gate.ParseConfig(root.Get("gates"))
}

func mustParse(t testing.TB, text string) gate.Config {
	t.Helper()
	c, err := parse(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	const fine = "tool: ops__deploy, workflow: release, states: [validated]"
	for _, c := range []struct{ name, gates, want string }{
		{"fine", gates, ""},
		{"none", "gates: []", ""},
		{"an object", "gates: {}", `gavel.yaml:1:8: /gates: expected an array of gates: "- {tool: SERVER__TOOL, workflow: NAME, states: [STATE]}"`},
		{"an unknown key", "gates:\n  - {" + fine + ", acton: deploy}", `gavel.yaml:2:65: /gates/0/acton: unknown key "acton"; did you mean "action"?`},
		{"a missing key", "gates:\n  - {tool: ops__deploy, workflow: release}", `gavel.yaml:2:5: /gates/0: missing key "states"`},
		{"two of a tool", "gates:\n  - {" + fine + "}\n  - {" + fine + "}", `gavel.yaml:3:12: /gates/1/tool: the tool "ops__deploy" already has a gate at line 2; remove one of them`},
		{"no server", "gates: [{tool: deploy, workflow: release, states: [validated]}]", `gavel.yaml:1:16: /gates/0/tool: write the name that clients use, SERVER__TOOL; gavel upstream list prints the names`},
		{"no state", "gates: [{tool: ops__deploy, workflow: release, states: []}]", `/gates/0/states: name at least one state in which the tool may be called`},
		{"an unknown state", "gates:\n  - {tool: ops__deploy, workflow: release, states: [validated, aproved]}", `gavel.yaml:2:64: /gates/0/states/1: the workflow release has no state "aproved"; did you mean "approved"?`},
		{"a final state", "gates: [{tool: ops__deploy, workflow: release, states: deployed}]", `/gates/0/states: the state "deployed" is final, so no tool can be called in it`},
		{"an unknown action", "gates: [{" + fine + ", action: deploi}]", `/gates/0/action: the state "validated" of the workflow release has no action "deploi"; did you mean "deploy"?`},
		{"an unknown end", "gates: [{" + fine + ", action: deploy, success: deploy}]", `/gates/0/success: after the call the workflow release is in the state "deploying", which has no action "deploy"; did you mean "deployed"?`},
		{"an end that a model judges", "gates: [{tool: ops__v, workflow: release, states: [ready], action: check, success: judged}]", `/gates/0/success: the action "judged" in the state "validating" asks a model, but the call is already done; only fields, schemas and scripts may judge it`},
		{"bind to what may change", "gates: [{" + fine + ", bind: {/plan: /plam}}]", `/gates/0/bind/~1plan: no transition of the workflow release freezes /plam, so it may change after it was approved; add it to a transition's freezes; did you mean "/plan"?`},
		{"bind to no pointer", "gates: [{" + fine + ", bind: {plan: /plan}}]", `/gates/0/bind/plan: "plan" is not a JSON pointer to an argument; write /plan`},
		{"arguments of no size", "gates: [{" + fine + ", maxArguments: 0}]", `/gates/0/maxArguments: maxArguments is a number of bytes from 1 to 1048576; without it, that many are allowed`},
		{"no maximum", "gates: [{" + fine + ", maxCalls: 0}]", `/gates/0/maxCalls: maxCalls is a number from 1 to 1000000; without it, any number of calls is allowed`},
		{"a reference to nothing", "gates: [{" + fine + ", action: deploy, data: {a: '{{data.x}}'}}]", `/gates/0/data/a: {{data.x}} is not a reference: write {{arguments.field}}, {{principal.field}}, with dots between the names of nested fields`},
		{"a reference without end", "gates: [{" + fine + ", subject: '{{arguments.x'}]", `/gates/0/subject: a reference in "{{arguments.x" is not closed with }}`},
		{"a result before the call", "gates: [{" + fine + ", subject: '{{result.x}}'}]", `/gates/0/subject: {{result.x}} is not a reference`},
		{"one subject for all", "gates: [{" + fine + ", subject: all}]", `/gates/0/subject: the subject refers to no argument, so all calls would share one workflow; write {{arguments.NAME}}`},
		{"data for nothing", "gates: [{" + fine + ", data: {}}]", `/gates/0/data: "data" needs "action"`},
		{"a result for nothing", "gates: [{" + fine + ", result: {}}]", `/gates/0/result: "result" needs "success" or "error"`},
		{"start elsewhere", "gates: [{" + fine + ", subject: '{{arguments.x}}', start: true}]", `/gates/0/start: the workflow release begins in "idle", in which ops__deploy cannot be called; set start on the gate of a tool that can be called there`},
		{"start without subject", "gates: [{" + fine + ", start: true}]", `/gates/0/start: start needs "subject", by which later calls find the workflow that the first call started`},
		{"a builtin tool", "gates: [{tool: 'builtin:shell', workflow: release, states: idle, start: true, when: [{program: git, args: [push], path: 'a/**', host: x.org}]}]", ""},
		{"a builtin tool twice", "gates:\n  - {tool: 'builtin:edit', workflow: release, states: idle}\n  - {tool: 'builtin:edit', name: a, workflow: release, states: idle}", `gavel.yaml:3:12: /gates/1/tool: builtin:edit already has a gate at line 2; give each its own "name"`},
		{"two of a name", "gates:\n  - {tool: 'builtin:edit', name: a, workflow: release, states: idle}\n  - {tool: 'builtin:edit', name: a, workflow: release, states: idle}", `builtin:edit already has a gate at line 2; give each its own "name"`},
		{"two names", "gates:\n  - {tool: 'builtin:edit', name: a, workflow: release, states: idle}\n  - {tool: 'builtin:edit', name: b-2, workflow: release, states: idle}", ""},
		{"no builtin tool", "gates: [{tool: 'builtin:sell', workflow: release, states: idle}]", `unknown builtin tool "builtin:sell"; use one of builtin:edit, builtin:fetch, builtin:read, builtin:shell`},
		{"a name with spaces", "gates: [{tool: 'builtin:edit', name: a b, workflow: release, states: idle}]", `/gates/0/name: a name must have 1 to 40 lowercase letters, digits and single hyphens`},
		{"a name for another's tool", "gates: [{" + fine + ", name: a}]", `/gates/0/name: "name" applies only to gates on builtin:edit, builtin:fetch, builtin:read, builtin:shell; a gate on another server's tool reads the tool's arguments`},
		{"a subject of a builtin tool", "gates: [{tool: 'builtin:edit', workflow: release, states: idle, subject: '{{arguments.a}}'}]", `/gates/0/subject: a gate on a builtin tool has no "subject": which workflow it belongs to follows from the folder or the session; see hooks.instance`},
		{"a list of a builtin tool", "gates: [{tool: 'builtin:edit', workflow: release, states: idle, list: legal}]", `/gates/0/list: a gate on a builtin tool has no "list": the client lists its own tools`},
		{"an entry of another tool", "gates: [{tool: 'builtin:edit', workflow: release, states: idle, when: [{host: a}]}]", `/gates/0/when/0/host: an entry for builtin:edit may have "path", but not "host"`},
		{"an entry without anything", "gates: [{tool: 'builtin:shell', workflow: release, states: idle, when: [{}]}]", `/gates/0/when/0: an entry needs at least one of "program", "args", "path", "host"`},
		{"an unknown key of an entry", "gates: [{tool: 'builtin:shell', workflow: release, states: idle, when: [{programm: git}]}]", `/gates/0/when/0/programm: unknown key "programm"; did you mean "program"?`},
		{"no entry", "gates: [{tool: 'builtin:shell', workflow: release, states: idle, when: []}]", `/gates/0/when: "when" needs at least one entry; without the key, the gate covers every use of builtin:shell`},
		{"no argument", "gates: [{tool: 'builtin:shell', workflow: release, states: idle, when: [{args: []}]}]", `/gates/0/when/0/args: "args" needs at least one value`},
		{"arguments in one text", "gates: [{tool: 'builtin:shell', workflow: release, states: idle, when: [{program: git, args: push --force}]}]", `/gates/0/when/0/args: an argument must be one word; write each as an item, [push, origin]`},
		{"a program with a folder", "gates: [{tool: 'builtin:shell', workflow: release, states: idle, when: [{program: [rm, /bin/rm]}]}]", `/gates/0/when/0/program/1: a program is named without its folder and without arguments; write the arguments as "args"`},
		{"a host with a scheme", "gates: [{tool: 'builtin:fetch', workflow: release, states: idle, when: [{host: 'https://x.org'}]}]", `/gates/0/when/0/host: a host is a name such as example.com or *.example.com`},
		{"a pattern that leaves", "gates: [{tool: 'builtin:edit', workflow: release, states: idle, when: [{path: a/../../b}]}]", `/gates/0/when/0/path: a pattern has no "..": it begins at the project's folder, / or ~/`},
		{"a pattern of another's home", "gates: [{tool: 'builtin:edit', workflow: release, states: idle, when: [{path: ~bob/a}]}]", `only ~/ is supported`},
		{"a negated pattern", "gates: [{tool: 'builtin:edit', workflow: release, states: idle, when: [{path: '!a'}]}]", `a pattern cannot be negated; name the paths that the gate covers`},
		{"a broken pattern", "gates: [{tool: 'builtin:edit', workflow: release, states: idle, when: [{path: 'a[b'}]}]", `invalid pattern: a bracket is not closed, or it ends with a backslash`},
		{"a slash in braces", "gates: [{tool: 'builtin:edit', workflow: release, states: idle, when: [{path: '{a/b,c}'}]}]", `the pattern has a / in braces; write a pattern for each`},
		{"a builtin tool's start elsewhere", "gates: [{tool: 'builtin:edit', workflow: release, states: ready, start: true}]", `/gates/0/start: the workflow release begins in "idle", in which builtin:edit cannot be called; set start on the gate of a tool that can be called there`},
		{"a way of listing", "gates: [{" + fine + ", list: never}]", `/gates/0/list: "list" must be one of "always", "legal"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := parse(t, c.gates)
			if err == nil {
				err = cfg.CheckDefinition(define(t, release))
			}
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if all, ok := err.(document.Errors); ok && len(all) > 1 { //nolint:errorlint // this very type
				t.Errorf("one mistake, told as %v", err)
			}
		})
	}
	if err := mustParse(t, gates).Check(map[string]*workflow.Definition{"relaese": define(t, release)}, true); err == nil ||
		!strings.Contains(err.Error(), `gavel.yaml:2:41: /gates/0/workflow: no operator has defined the workflow "release"; did you mean "relaese"?`) {
		t.Errorf("a workflow that nobody defined: %v", err)
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	read := func(text string) (gate.Hooks, error) {
		root, err := document.Parse("gavel.yaml", []byte(text), document.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		h, err := gate.ParseHooks(root.Get("hooks"))
		if err == nil {
			err = h.Check(map[string]*workflow.Definition{"release": define(t, strings.Replace(release, "states:", "states:\n  lost: {final: true}", 1))}, true)
		}
		return h, err
	}
	for _, c := range []struct{ hooks, want string }{
		{"instance: file", `gavel.yaml:1:19: /hooks/instance: "instance" must be one of "folder", "session"`},
		{"unknownTools: allow", `/hooks/unknownTools: "unknownTools" must be one of "ask", "deny", "neutral"`},
		{"unknowntools: deny", `/hooks/unknowntools: unknown key "unknowntools"; did you mean "unknownTools"?`},
		{"finish: {}", `/hooks/finish: missing key "workflow"`},
		{"finish: {workflow: release}", `/hooks/finish: missing key "states"`},
		{"finish: {workflow: release, states: []}", `/hooks/finish/states: name at least one state in which the agent may stop`},
		{"finish: {workflow: relase, states: deployed}", `/hooks/finish/workflow: no operator has defined the workflow "relase"; did you mean "release"?`},
		{"finish: {workflow: release, states: [idle, deployd]}", `/hooks/finish/states/1: the workflow release has no state "deployd"; did you mean "deployed"?`},
		{"finish: {workflow: release, states: lost}", `/hooks/finish/states: no transition leads to the state "lost" of the workflow release, so no session could stop there`},
		{"finish: {workflow: release, states: deployed, attempts: 0}", `/hooks/finish/attempts: attempts is a number from 1 to 100: how often an agent is kept from stopping; without it, 3`},
		{"finish: {workflow: release, states: deployed, start: 'yes'}", `/hooks/finish/start: `},
		{"finish: 1", `/hooks/finish: `},
	} {
		if _, err := read("hooks: {" + c.hooks + "}"); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") && c.hooks != "finish: {}" {
			t.Errorf("%s:\ngot  %v\nwant %s", c.hooks, err, c.want)
		}
	}
	h, err := read("hooks: {instance: session, unknownTools: deny, finish: {workflow: release, states: [deployed], start: true}}")
	if err != nil || h.Instance != gate.InstanceSession || h.UnknownTools != gate.UnknownDeny || h.Finish.Attempts != 3 || !h.Finish.Start {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err = gate.ParseHooks(nil); err != nil || h.Instance != gate.InstanceFolder || h.UnknownTools != gate.UnknownAsk || h.Check(nil, true) != nil {
		t.Errorf("no section: %+v, %v", h, err)
	}
}

func TestTools(t *testing.T) {
	t.Parallel()
	pinned := map[string]document.JSON{"ops__deploy": document.ReadTrusted([]byte(`{"inputSchema":{"properties":{"WorkflowID":{}}}}`))}
	tools := func(server string) (map[string]document.JSON, bool) { return pinned, server == "ops" }
	for _, c := range []struct{ gate, want string }{
		{"{tool: new__deploy, workflow: w, states: s}", ""},
		{"{tool: op__deploy, workflow: w, states: s}", `there is no upstream "op"; did you mean "ops"?`},
		{"{tool: ops__deplo, workflow: w, states: s}", `the upstream "ops" has no pinned tool "ops__deplo"; did you mean "ops__deploy"?`},
		{"{tool: ops__deploy, workflow: w, states: s, subject: '{{arguments.a}}'}", ""},
		{"{tool: ops__deploy, workflow: w, states: s}", `the tool has its own argument "WorkflowID", which gavel needs to identify the workflow, so the tool cannot have a gate`},
	} {
		err := mustParse(t, "gates: ["+c.gate+"]").CheckTools([]string{"new", "ops"}, tools)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), ": "+c.want) {
			t.Errorf("%s: %v", c.gate, err)
		}
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	v := gate.Values{
		Arguments: document.ReadTrusted([]byte(`{"path":"a/b","n":90071992547409931234,"deep":{"list":[1.0,{"x":"<&>"}]},"no":null}`)),
		Principal: gate.PrincipalValue(engine.Principal{ID: `an"n`, Role: engine.RoleAgent}),
		Result:    document.ReadTrusted([]byte(`{"isError":false,"content":[{"type":"text","text":"done"}]}`)),
	}
	for _, c := range []struct{ template, want string }{
		{`{}`, `{}`},
		{`{a: '{{arguments.n}}'}`, `{"a":90071992547409931234}`},
		{`{a: '{{ arguments.deep }}'}`, `{"a":{"list":[1.0,{"x":"<&>"}]}}`},
		{`{a: '{{arguments.deep.list.1.x}}!', b: [1.50, true, '{{result.content.0.text}}']}`, `{"a":"<&>!","b":[1.50,true,"done"]}`},
		{`{a: 'no {{arguments.n}} of {{principal.id}} ({{principal.role}})'}`, `{"a":"no 90071992547409931234 of an\"n (agent)"}`},
		{`{a: '{{arguments.nothing}}', b: ['{{arguments.nothing}}', 1], c: 'x{{arguments.deep}}', d: '{{arguments.no}}'}`, `{"b":[1],"d":null}`},
	} {
		cfg := mustParse(t, "gates: [{tool: a__b, workflow: w, states: s, success: x, result: "+c.template+"}]")
		if got := string(cfg.Gates[0].ResultOf(v)); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.template, got, c.want)
		}
	}
	cfg := mustParse(t, "gates: [{tool: a__b, workflow: w, states: s, action: x, bind: {/path: /path, /none: /none, /deep/list/0: /n}}]")
	if got := string(cfg.Gates[0].DataOf(v)); !strings.HasPrefix(got, `{"call":{"tool":"a__b","digest":"sha256:`) || !strings.HasSuffix(got, `","bound":{"/path":"a/b","/deep/list/0":1.0}}}`) {
		t.Errorf("the usual data: %s", got)
	}
	for _, c := range []struct{ subject, want, problem string }{
		{"{{arguments.path}}", "a/b", ""},
		{"repo {{arguments.n}}", "repo 90071992547409931234", ""},
		{"{{arguments.n}}", "90071992547409931234", ""},
		{"{{arguments.path}} {{principal.id}}", `"a/b" "an\"n"`, ""},
		{"{{arguments.nothing}}", "", "The arguments must say which w the call belongs to: arguments.nothing must be a string or a number."},
		{"{{arguments.deep}}", "", "The arguments must say which w the call belongs to: arguments.deep must be a string or a number."},
	} {
		cfg := mustParse(t, "gates: [{tool: a__b, workflow: w, states: s, subject: '"+c.subject+"'}]")
		if got, problem := cfg.Gates[0].SubjectOf(v); got != c.want || problem != c.problem {
			t.Errorf("%s: %q, %q", c.subject, got, problem)
		}
	}
}

// Subjects built from different texts differ.
func TestSubjectsDiffer(t *testing.T) {
	t.Parallel()
	g := mustParse(t, "gates: [{tool: a__b, workflow: w, states: s, subject: '{{arguments.a}}/{{arguments.b}}'}]").Gates[0]
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 8, 12)
		subject := func() (string, [2]string) {
			parts := [2]string{text.Draw(t, "a"), text.Draw(t, "b")}
			raw, err := json.Marshal(map[string]string{"a": parts[0], "b": parts[1]})
			if err != nil {
				t.Fatal(err)
			}
			s, _ := g.SubjectOf(gate.Values{Arguments: document.ReadTrusted(raw)})
			var read map[string]string // as encoding/json repairs it
			_ = json.Unmarshal(raw, &read)
			return s, [2]string{read["a"], read["b"]}
		}
		one, a := subject()
		other, b := subject()
		if (one == other) != (a == b) {
			t.Fatalf("%q and %q: %q, %q", a, b, one, other)
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	cfg, d := mustParse(t, gates), define(t, release)
	for _, c := range []struct {
		tool, state string
		status      record.Status
		deny        string
		message     string
		hint        string
		tools, acts []string
	}{
		{"ops__deploy", "idle", record.Running, "", `ops__deploy needs the state "validated" or "approved"; the workflow release (wf-1) is in "idle".`, "Next: call ops__authenticate.", []string{"ops__authenticate"}, nil},
		{"ops__deploy", "ready", record.Running, "", "", "Next: call ops__validate.", []string{"ops__validate"}, nil},
		{"ops__deploy", "ready", record.Running, "ops__validate", "", "Next: ask for the action approve (role reviewer).", nil, nil},
		{"ops__deploy", "validating", record.Running, "", "", "Next: perform the action judged.", nil, []string{"judged"}},
		{"ops__deploy", "error", record.Running, "", "", "Next: call ops__reset.", []string{"ops__reset"}, nil},
		{"ops__reset", "idle", record.Running, "", `ops__reset needs the state "error"; the workflow release (wf-1) is in "idle".`, "No action leads there from here: cancel it and start another one, or ask an operator.", []string{"ops__authenticate"}, nil},
		{"ops__deploy", "deployed", record.Complete, "", `ops__deploy needs the state "validated" or "approved"; the workflow release (wf-1) has ended in "deployed".`, "Start another one with workflow.start.", nil, nil},
	} {
		at := engine.Position{ID: "wf-1", Workflow: "release", State: c.state, Status: c.status}
		r := cfg.Refuse(*cfg.GateOf(c.tool), d, at, engine.RoleAgent, func(tool string) bool { return tool != c.deny })
		if c.message != "" && r.Message != c.message || r.Hint != c.hint || !slices.Equal(r.Tools, c.tools) || !slices.Equal(r.Actions, c.acts) {
			t.Errorf("%s in %s: %+v", c.tool, c.state, r)
		}
	}
	reviewed := define(t, strings.Replace(release, "check: validating, ", "", 1))
	r := cfg.Refuse(*cfg.GateOf("ops__deploy"), reviewed, engine.Position{Workflow: "release", State: "ready", Status: record.Running}, engine.RoleAgent, func(string) bool { return true })
	if r.Hint != "Next: ask for the action approve (role reviewer)." {
		t.Errorf("a reviewer's action: %+v", r)
	}
}

// agentGates bind a coding agent's own tools to the workflow release.
const agentGates = `gates:
  - {tool: "builtin:shell", name: login, workflow: release, states: idle, action: authenticate, when: [{program: [gh, glab], args: [auth, login]}]}
  - {tool: "builtin:edit", workflow: release, states: [ready, error]}
  - {tool: "builtin:edit", name: notes, workflow: other, states: x, when: [{path: [NEWS, "docs/**"]}]}
  - {tool: "builtin:shell", name: deploy, workflow: release, states: [validated, approved], action: deploy, success: deployed, error: failed, when: [{program: make, args: [deploy]}, {program: git, args: [push], host: x.org}, {path: [/etc]}, {args: [a]}]}
  - {tool: "builtin:fetch", name: docs, workflow: release, states: [error], success: reset, when: [{host: [a.org, b.org]}]}
  - {tool: "builtin:read", name: keys, workflow: release, states: [error], when: [{path: "~/.ssh/**"}]}
`

func TestRefusalsOfAgentsOwnTools(t *testing.T) {
	t.Parallel()
	// Both gates on edits are here only for their wording; one of them needs another name.
	cfg, d := mustParse(t, strings.Replace(agentGates, `edit", workflow`, `edit", name: all, workflow`, 1)), define(t, release)
	for _, c := range []struct{ tool, state, message, hint string }{
		{"builtin:shell deploy", "idle", "`make deploy` or `git push` (of x.org) or lines about `/etc` or the like needs the state \"validated\" or \"approved\"; the workflow release (wf-1) is in \"idle\".", "Next: run `gh|glab auth login`."},
		{"builtin:edit all", "idle", "Any file needs the state \"ready\" or \"error\";", "Next: run `gh|glab auth login`."},
		{"builtin:fetch docs", "idle", "`a.org` or `b.org` needs the state", "Next: run `gh|glab auth login`."},
		{"builtin:shell login", "error", "`gh|glab auth login` needs", "Next: fetch `a.org` or `b.org`."},
		{"builtin:read keys", "ready", "`~/.ssh/**` needs the state", "Next: perform the action check."},
		{"builtin:shell deploy", "ready", "", "Next: perform the action check."},
		{"builtin:shell deploy", "deployed", "`make deploy` or `git push` (of x.org) or lines about `/etc` or the like needs the state \"validated\" or \"approved\"; the workflow release (wf-1) has ended in \"deployed\".", "If it has to be done again, ask an operator to release it."},
	} {
		at := engine.Position{ID: "wf-1", Workflow: "release", State: c.state, Status: record.Running}
		if c.state == "deployed" {
			at.Status = record.Complete
		}
		r := cfg.Refuse(*cfg.GateOf(c.tool), d, at, engine.RoleAgent, func(string) bool { return false })
		if !strings.HasPrefix(r.Message, c.message) || !strings.HasPrefix(r.Hint, c.hint) {
			t.Errorf("%s in %s: %+v", c.tool, c.state, r)
		}
	}
	if got := cfg.GateOf("builtin:edit all").RefuseParked().Message; got != "No file was edited: a person has to decide first." {
		t.Error(got)
	}
	if got := cfg.GateOf("builtin:shell login").RefuseKnown("").Message; got != "`gh|glab auth login` was not run again: the same call has not been answered yet." {
		t.Error(got)
	}
	if got := cfg.Describe("builtin:edit notes") + ", " + cfg.Describe("ops__x"); got != "edit `NEWS` or `docs/**`, ops__x" {
		t.Error(got)
	}
	tools, _ := cfg.ListPossible(engine.Position{Workflow: "release", State: "error", Status: record.Running}, nil, func(string) bool { return false })
	if want := []string{"builtin:edit all", "builtin:fetch docs", "builtin:read keys"}; !slices.Equal(tools, want) {
		t.Errorf("possible: %q", tools)
	}
}

func TestNextStep(t *testing.T) {
	t.Parallel()
	cfg, d := mustParse(t, strings.Replace(agentGates, `edit", workflow`, `edit", name: all, workflow`, 1)), define(t, release)
	for _, c := range []struct {
		state  string
		status record.Status
		role   engine.Role
		states []string
		want   string
		own    bool
	}{
		{"idle", record.Running, engine.RoleAgent, []string{"deployed"}, "Next: run `gh|glab auth login`.", true},
		{"ready", record.Running, engine.RoleAgent, []string{"deployed", "error"}, "Next: perform the action check.", true},
		{"validating", record.Running, engine.RoleAgent, []string{"error"}, "Next: perform the action invalid.", true},
		{"approved", record.Running, engine.RoleAgent, []string{"deployed"}, "Next: run `make deploy` or", true},
		{"ready", record.Running, engine.RoleAgent, []string{"approved"}, "Next: ask for the action approve (role reviewer).", false},
		{"deploying", record.Running, engine.RoleAgent, []string{"idle"}, "No action leads there from here: ask an operator.", false},
		{"deployed", record.Complete, engine.RoleAgent, []string{"idle"}, "", false},
		{"idle", record.Running, engine.RoleAgent, []string{"ready", "idle"}, "", false},
	} {
		at := engine.Position{ID: "wf-1", Workflow: "release", State: c.state, Status: c.status}
		got, own := cfg.NextStep(c.states, d, at, c.role, func(string) bool { return false })
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || own != c.own {
			t.Errorf("%s to %q: %q, %v", c.state, c.states, got, own)
		}
	}
}

// A caller that follows the hints reaches a state in which the tool may be called.
func TestHintsLeadThere(t *testing.T) {
	t.Parallel()
	cfg, d := mustParse(t, gates), define(t, release)
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SampledFrom(cfg.Gates).Draw(t, "gate")
		at := engine.Position{Workflow: "release", Status: record.Running, State: rapid.SampledFrom(d.StateNames).Draw(t, "state")}
		for range len(d.StateNames) {
			if g.Allows(at) || d.States[at.State].Final {
				return
			}
			r := cfg.Refuse(g, d, at, engine.RoleReviewer, func(string) bool { return true })
			if strings.HasPrefix(r.Hint, "No action leads there") {
				return
			}
			moved := false
			for _, other := range cfg.Gates {
				if strings.Contains(r.Hint, " "+other.Tool+".") {
					for _, action := range []string{other.Action, other.Success} {
						if action != "" {
							at.State, moved = d.States[at.State].Transitions[action].Targets()[0], true
						}
					}
				}
			}
			for _, action := range d.States[at.State].Actions {
				if !moved && strings.Contains(r.Hint, "the action "+action+".") || strings.Contains(r.Hint, "the action "+action+" ") {
					at.State, moved = d.States[at.State].Transitions[action].Targets()[0], true
				}
			}
			if !moved {
				t.Fatalf("nothing to do in %s: %+v", at.State, r)
			}
		}
		t.Fatalf("%s is not reached", g.Tool)
	})
}

func TestListsChange(t *testing.T) {
	t.Parallel()
	cfg := mustParse(t, "gates: [{tool: a__b, workflow: w, states: [one, two], list: legal}, {tool: a__c, workflow: w, states: [three]}]")
	for _, c := range []struct {
		workflow, from, to string
		running, want      bool
	}{
		{"w", "", "one", true, true},
		{"w", "zero", "one", true, true},
		{"w", "one", "two", true, false},
		{"w", "one", "zero", true, true},
		{"w", "one", "one", false, true}, // cancelled
		{"w", "zero", "zero", false, false},
		{"w", "zero", "three", true, false}, // its tool is always listed
		{"v", "zero", "one", true, false},
	} {
		if got := cfg.ListsChange(c.workflow, c.from, c.to, c.running); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
