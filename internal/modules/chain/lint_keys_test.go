package chain

import (
	"fmt"
	"strings"
	"testing"
)

// TestLintTakes: definitions that look like the mistakes in testdata/bad.golden but are correct.
func TestLintTakes(t *testing.T) {
	for name, doc := range map[string]string{
		"a default of the handler":       steps(strings.Replace(first, "execute", `execute, on_error: {step: b, arguments: {x: "{{saved.x}}"}}`, 1), `{id: b, type: tool, server: code-mcp, action: execute, save_output_to: saved.x, default: {saved.x: 1}}`),
		"a default of the callback":      steps(first, `{id: b, type: tool, server: code-mcp, action: execute, save_output_to: saved.x, default: {saved.x: 1}}`) + "on_error: {step: b, arguments: {x: \"{{saved.x}}\"}}\n",
		"a default of items":             steps(`{id: f, type: forEach, items: "{{saved.x}}", default: {saved.x: []}, steps: [{id: b, type: tool, server: code-mcp, action: execute, save_output_to: saved.x}]}`),
		"an error in the callback":       steps(first, `{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{error.message}}"}}`) + "on_error: b\n",
		"braces of Python and templates": steps(first, `{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: ["{{'a': 1}} {{a: 1}} {{ }} {{}} {{user.name | upper}} {{b.", "{{a.output}}"]}}`),
		"two handlers":                   steps(`{id: a, type: tool, server: code-mcp, action: execute, retry: {max_attempts: 1, on_fail: b}, on_error: c}`, `{id: b, type: tool, server: code-mcp, action: execute}`, `{id: c, type: tool, server: code-mcp, action: execute}`),
		"a timeout of a signal":          steps(`{id: w, type: wait, signal: go, timeout: 5s}`),
		"a cron over the end of a week":  withSchedule(`{type: cron, expression: "0 9 * * fri-7,0-sun"}`),
		"a cron in a zone":               withSchedule(`{type: cron, expression: "0 9 * * *", timezone: Europe/Berlin}`),
		"all outputs":                    "sensitive: [/steps/a/output/x, /steps/*/output, /steps/a, /output/*]\n" + steps(first),
	} {
		t.Run(name, func(t *testing.T) {
			if issues := parse(t, doc).Lint(LintOptions{Servers: knownServers}); len(issues) > 0 {
				t.Errorf("found %v in\n%s", issues, doc)
			}
		})
	}
}

// TestScriptSeesNullItem: a script sees the item of the innermost forEach, even if it is null.
func TestScriptSeesNullItem(t *testing.T) {
	m := NewMachine(parse(t, steps(`{id: f, type: forEach, items: [outer], steps: [{id: g, type: forEach, items: [null], steps: [{id: s, type: switch, cases: [{when: {script: "data.item === null"}, steps: [`+first+`]}]}]}]}`)), MachineOptions{Input: map[string]any{}})
	defer m.Close()
	commands := m.Commands()
	if len(commands) != 1 || commands[0].Op != OpTest {
		t.Fatalf("%+v", commands)
	}
	data, _ := commands[0].Arguments.(map[string]any)
	if item, ok := data["item"]; !ok || item != nil {
		t.Errorf("the item is %v", item)
	}
}

// TestFilledIsBounded: a definition of 256 KiB can refer thousands of times to an input of 256 KiB.
func TestFilledIsBounded(t *testing.T) {
	for name, value := range map[string]string{
		"a text":  `"` + strings.Repeat("{{variables.input.x}}", 1000) + `"`,
		"a list":  `[` + strings.Repeat(`"{{variables.input.x}}", `, 1000) + `]`,
		"default": `["{{variables.input.x}}` + strings.Repeat("{{saved.y}}", 1000) + `"]`,
	} {
		t.Run(name, func(t *testing.T) {
			long := strings.Repeat("y", 100_000)
			d := parse(t, "variables: {input: {x: 1}}\n"+steps(`{id: a, type: tool, server: s, action: x, arguments: {x: `+value+`}, default: {saved.y: `+long+`}}`))
			m := NewMachine(d, MachineOptions{Input: map[string]any{"x": long}})
			defer m.Close()
			r := m.Result()
			if r == nil || r.Err == nil || r.Err.Code != CodeReference || !strings.Contains(r.Err.Message, "exceed 64 MiB in total") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestHandlersKeepMessageShort: with two handlers per handler, the message would double at each level.
func TestHandlersKeepMessageShort(t *testing.T) {
	var list []string
	const deep = 10
	for i := range deep {
		for _, c := range []string{"x", "y"} {
			handled := fmt.Sprintf(", retry: {max_attempts: 1, on_fail: x%d}, on_error: y%d", i+1, i+1)
			if i == deep-1 {
				handled = ""
			}
			list = append(list, fmt.Sprintf("{id: %s%d, type: tool, server: s, action: x%s}", c, i, handled))
		}
	}
	list = append(list, "{id: a, type: tool, server: s, action: x, retry: {max_attempts: 1, on_fail: x0}, on_error: y0}")
	m := NewMachine(parse(t, steps(list...)), MachineOptions{Input: map[string]any{}})
	defer m.Close()
	for m.Result() == nil {
		for _, c := range m.Commands() {
			m.Resolve(c.ID, Outcome{Err: &StepError{Code: CodeToolError, Message: strings.Repeat("no ", 100), Final: true}})
		}
	}
	if n := len(m.Result().Err.Message); n < 1000 || n > 2*maxJoined {
		t.Errorf("the message has %d bytes", n)
	}
}
