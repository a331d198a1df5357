package chain

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

var update = flag.Bool("update", false, "write golden files")

// writers are the tools that write resources.
var writers = &Settings{Writers: map[string]Writer{"code-mcp": {Tool: "execute", URI: "uri", Data: "data"}, "prompts-engine": {Tool: "put", URI: "uri", Data: "data"}}}

// knownServers are the servers of the seed, as they would be pinned.
var knownServers = map[string]ServerItems{
	"vision-agent-mcp": {Tools: []string{"navigate", "screenshot", "verify", "fill_form", "alert"}, Prompts: []string{"analyze_dashboard", "compare_multiple_sites", "send_alert"}, OutputSchemas: map[string]json.RawMessage{"fill_form": json.RawMessage(wrapperSchema(`"type":"string"`))}},
	"code-mcp":         {Tools: []string{"execute"}},
	"prompts-engine":   {Prompts: []string{"summarize"}},
}

func parse(t testing.TB, doc string) *Definition {
	t.Helper()
	d, err := Parse("chain.yaml", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// steps returns a definition with the given steps in YAML flow style.
func steps(list ...string) string {
	return "name: c\nsteps:\n- " + strings.Join(list, "\n- ") + "\n"
}

const first = `{id: a, type: tool, server: code-mcp, action: execute}`

// badDefinitions are definitions that must be rejected; testdata/bad.golden holds the messages.
var badDefinitions = []struct{ name, doc string }{
	{"misspelt keywords", "inputSchema: {type: object, requred: [site], properties: {site: {minlength: 3}}}\n" + steps(`{id: a, type: tool, server: code-mcp, action: execute, outputSchema: {typ: object}}`)},
	{"empty", ""},
	{"not an object", "[]"},
	{"no steps", "name: c\n"},
	{"empty steps", "name: c\nsteps: []\n"},
	{"no name", "steps:\n- " + first},
	{"bad name", "name: a chain\nsteps:\n- " + first},
	{"duplicate key", "name: c\nname: d\nsteps:\n- " + first},
	{"unknown key", steps(first) + "timezone: UTC\n"},
	{"misspelt key", "name: c\nstep:\n- " + first},
	{"steps as an object", "name: c\nsteps: {a: 1}\n"},
	{"no id", steps(`{type: tool, server: s, action: x}`)},
	{"no type", steps(`{id: a, server: s, action: x}`)},
	{"unknown type", steps(`{id: a, type: tol, server: s, action: x}`)},
	{"bad id", steps(`{id: 1a, type: tool, server: s, action: x}`)},
	{"reserved id", steps(`{id: item, type: tool, server: s, action: x}`)},
	{"id of the callback", steps(`{id: on_error, type: tool, server: code-mcp, action: execute}`) + "on_error: {step: on_error}\n"},
	{"id of the callback in a loop", steps(`{id: l, type: loop, max_iterations: 2, steps: [{id: on_error, type: tool, server: code-mcp, action: execute}]}`)},
	{"duplicate id", steps(first, first)},
	{"duplicate id in a loop", steps(first, `{id: l, type: loop, max_iterations: 2, steps: [`+first+`]}`)},
	{"tool without a server", steps(`{id: a, type: tool, action: x}`)},
	{"key of another type", steps(`{id: a, type: tool, server: s, action: x, uri: "file:///x"}`)},
	{"misspelt key of a step", steps(`{id: a, type: tool, server: s, action: x, argument: {}}`)},
	{"arguments as a list", steps(`{id: a, type: tool, server: s, action: x, arguments: [1]}`)},
	{"resource that writes nothing", steps(`{id: a, type: resource, server: s, action: write, uri: "input/screenshot"}`)},
	{"resource that is read with data", steps(`{id: a, type: resource, server: s, uri: "input/screenshot", data: 1}`)},
	{"resource that is deleted", steps(`{id: a, type: resource, server: s, action: delete, uri: "input/screenshot"}`)},
	{"resource that no tool writes", steps(`{id: a, type: resource, server: vision-agent-mcp, action: write, uri: "input/screenshot", data: 1}`)},
	{"resource that an unpinned tool writes", steps(`{id: a, type: resource, server: prompts-engine, action: write, uri: "input/screenshot", data: 1}`)},
	{"prompt without a name", steps(`{id: a, type: prompt, server: s, action: execute}`)},
	{"complete without a model", steps(`{id: a, type: prompt, server: s, prompt_name: p, complete: {}}`)},
	{"empty parallel", steps(`{id: a, type: parallel, tasks: []}`)},
	{"parallel of 900", steps(`{id: p, type: parallel, tasks: [` + numberedSteps(900) + `]}`)},
	{"parallel of 1,000", steps(`{id: p, type: parallel, tasks: [` + numberedSteps(1000) + `]}`)},
	{"10,000 steps", steps(strings.ReplaceAll(numberedSteps(10_000), "},{", "}\n- {"))},
	{"5000 steps", steps(strings.ReplaceAll(numberedSteps(5000), "},{", "}\n- {"))},
	{"nested too deep", nestedLoops(9)},
	{"no steps where they would be too deep", strings.Replace(nestedLoops(9), "{id: l1, type: loop, max_iterations: 2, steps:", "{id: l1, type: loop, max_iterations: 2, stepz:", 1)},
	{"mode", steps(`{id: p, type: parallel, mode: any, tasks: [` + first + `]}`)},
	{"loop without an end", steps(`{id: l, type: loop, steps: [` + first + `]}`)},
	{"loop of no iteration", steps(`{id: l, type: loop, max_iterations: 0, steps: [` + first + `]}`)},
	{"loop of a million iterations", steps(`{id: l, type: loop, max_iterations: 1000000, steps: [` + first + `]}`)},
	{"negative delay", steps(`{id: l, type: loop, max_iterations: 2, delay_seconds: -1, steps: [` + first + `]}`)},
	{"until without an operator", steps(`{id: l, type: loop, max_iterations: 2, until: "{{a.output}} includes 'x'", steps: [` + first + `]}`)},
	{"condition as a program", steps(`{id: l, type: loop, max_iterations: 2, until: "a.output == 1 or true", steps: [` + first + `]}`)},
	{"condition with a bad number", steps(`{id: l, type: loop, max_iterations: 2, until: "{{a.output}} > 1e999", steps: [` + first + `]}`)},
	{"items as a text", steps(`{id: f, type: forEach, items: "a,b", steps: [` + first + `]}`)},
	{"switch without cases", steps(`{id: s, type: switch}`)},
	{"wait for nothing", steps(`{id: w, type: wait}`)},
	{"wait for two things", steps(`{id: w, type: wait, seconds: 1, signal: go}`)},
	{"workflow without an instance", steps(`{id: w, type: workflow, action: advance, perform: submit}`)},
	{"timeout as a number", steps(`{id: a, type: tool, server: s, action: x, timeout: 30}`)},
	{"timeout without a unit", steps(`{id: a, type: tool, server: s, action: x, timeout: "30"}`)},
	{"retry of none", steps(`{id: a, type: tool, server: s, action: x, retry: {max_attempts: 0}}`)},
	{"retry without a number", steps(`{id: a, type: tool, server: s, action: x, retry: {delay_seconds: 1}}`)},
	{"backoff", steps(`{id: a, type: tool, server: s, action: x, retry: {max_attempts: 2, backoff: quadratic}}`)},
	{"output schema", steps(`{id: a, type: tool, server: s, action: x, outputSchema: {type: strin}}`)},
	{"saved to the input", steps(`{id: a, type: tool, server: s, action: x, save_output_to: variables.input.x}`)},
	{"saved to nowhere", steps(`{id: a, type: tool, server: s, action: x, save_output_to: output.x}`)},
	{"path with 1000 dots", steps(`{id: a, type: tool, server: s, action: x, arguments: {x: "{{a` + strings.Repeat(".a", 1000) + `}}"}}`)},
	{"path with __proto__", steps(`{id: a, type: tool, server: s, action: x, arguments: {x: "{{variables.input.__proto__.y}}"}}`)},
	{"nothing to keep", steps(`{id: a, type: tool, server: s, action: x, keep: [""]}`)},
	{"keep of an empty key", steps("{id: a, type: tool, server: s, action: x, keep:\n  [total,\n  a..b]}")},
	{"keep of an index first", steps(`{id: a, type: tool, server: s, action: x, keep: ["[0].name"]}`)},
	{"keep of two paths in one", steps(`{id: a, type: tool, server: s, action: x, keep: ["a}}{{b"]}`)},
	{"keep of __proto__", steps(`{id: a, type: tool, server: s, action: x, keep: [__proto__]}`)},
	{"keep of a path with 33 keys", steps(`{id: a, type: tool, server: s, action: x, keep: [a` + strings.Repeat(".a", 32) + `]}`)},
	{"keep of 1000 parts", steps(`{id: a, type: tool, server: s, action: x, keep: [a` + strings.Repeat(", a", 999) + `]}`)},
	{"keep of numbers", steps(`{id: a, type: tool, server: s, action: x, keep: [1]}`)},
	{"cron of six fields", withSchedule(`{type: cron, expression: "0 0 9 * * *"}`)},
	{"cron at reboot", withSchedule(`{type: cron, expression: "@reboot"}`)},
	{"cron on 31 February", withSchedule(`{type: cron, expression: "0 9 31 2 *"}`)},
	{"cron at minute 60", withSchedule(`{type: cron, expression: "60 9 * * *"}`)},
	{"cron with a range that ends before", withSchedule(`{type: cron, expression: "0 17-9 * * *"}`)},
	{"cron over the end of the week", withSchedule(`{type: cron, expression: "0 9 * * fri-sun"}`)},
	{"cron with a step of none", withSchedule(`{type: cron, expression: "*/0 * * * *"}`)},
	{"cron with a sign", withSchedule(`{type: cron, expression: "0 +9 * * *"}`)},
	{"cron with a step with a sign", withSchedule(`{type: cron, expression: "*/+5 * * * *"}`)},
	{"once at a time that is over", withSchedule(`{type: once, at: "2026-02-04T14:30:00Z"}`)},
	{"missed ticks that are skipped", withSchedule(`{type: interval, seconds: 60, missed: all}`)},
	{"scheduled without its input", "inputSchema: {type: object, required: [site], properties: {site: {type: string}}}\n" + withSchedule(`{type: interval, seconds: 60}`)},
	{"unknown zone", withSchedule(`{type: cron, expression: "0 9 * * *", timezone: Europe/Berlln}`)},
	{"cron without an expression", withSchedule(`{type: cron}`)},
	{"interval with an expression", withSchedule(`{type: interval, seconds: 5, expression: "0 9 * * *"}`)},
	{"interval of nothing", withSchedule(`{type: interval, seconds: 0}`)},
	{"once without a zone", withSchedule(`{type: once, at: "2026-02-04 14:30"}`)},
	{"schedule of another type", withSchedule(`{type: hourly}`)},

	{"unknown server", steps(`{id: a, type: tool, server: code-mpc, action: execute}`)},
	{"unknown tool", steps(`{id: a, type: tool, server: code-mcp, action: exec}`)},
	{"unknown prompt", steps(`{id: a, type: prompt, server: vision-agent-mcp, prompt_name: send_alarm}`)},
	{"unknown model", steps(`{id: a, type: prompt, server: vision-agent-mcp, prompt_name: send_alert, complete: {model: gpt}}`)},
	{"unknown fallback", steps(`{id: a, type: tool, server: code-mcp, action: execute, on_error: alert}`)},
	{"unknown step of a conditional", steps(first) + "conditionals: {c: {condition: \"{{a.output}} == 1\", if_true: [b]}}\n"},
	{"unknown callback", steps(first) + "on_error: {step: alert}\n"},
	{"fallback of itself", steps(`{id: a, type: tool, server: code-mcp, action: execute, on_error: a}`)},
	{"fallbacks in a circle", steps(`{id: a, type: tool, server: code-mcp, action: execute, on_error: b}`, `{id: b, type: tool, server: code-mcp, action: execute, on_error: a}`)},
	{"fallback to its own loop", steps(`{id: l, type: loop, max_iterations: 2, steps: [{id: a, type: tool, server: code-mcp, action: execute, on_error: l}]}`)},
	{"fallback inside a loop", steps(`{id: b, type: tool, server: code-mcp, action: execute, on_error: a}`, `{id: l, type: loop, max_iterations: 2, steps: [`+first+`]}`)},
	{"reference to a later step", steps(`{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{a.output}}"}}`, first)},
	{"reference to itself", steps(`{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{b.output}}"}}`)},
	{"reference to a sibling task", steps(`{id: p, type: parallel, tasks: [` + first + `, {id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{a.output}}"}}]}`)},
	{"reference into a loop", steps(`{id: l, type: loop, max_iterations: 2, steps: [`+first+`]}`, `{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{a.output}}"}}`)},
	{"unknown reference", steps(first, `{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{aa.output}}"}}`)},
	{"reference to no part of a step", steps(first, `{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{a.result}}"}}`)},
	{"item outside forEach", steps(`{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{item}}"}}`)},
	{"error outside a handler", steps(`{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{error.message}}"}}`)},
	{"reading the output", steps(`{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{variables.output.x}}"}}`)},
	{"unknown scope", steps(`{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{variables.inputs.x}}"}}`)},
	{"undeclared input", "variables: {input: {site_url: x}}\n" + steps(`{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{variables.input.siteurl}}"}}`)},
	{"unwritten global", steps(`{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{variables.global.x}}"}}`)},
	{"saved in the first run", steps(`{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{saved.x}}"}, save_output_to: saved.x}`)},
	{"sensitive output of no step", "sensitive: [/steps/aa/output, /input/x]\n" + steps(first)},
	{"sensitive part of a step that has none", "sensitive: [/steps/a/outptu, /steps/*/result, /output/y]\n" + steps(strings.Replace(first, "execute", "execute, save_output_to: variables.output.x", 1))},
	{"callback that stops", steps(first) + "on_error: {step: a, then: stop}\n"},
	{"until a text is a number", steps(`{id: l, type: loop, max_iterations: 2, until: "{{b.output}} > 3", steps: [{id: b, type: tool, server: vision-agent-mcp, action: fill_form}]}`)},
	{"script of nothing", steps(`{id: l, type: loop, max_iterations: 2, until: {script: " "}, steps: [` + first + `]}`)},
	{"timeout of nothing", steps(`{id: w, type: wait, signal: go, timeout: 0s}`)},
	{"timeout of 800 hours", steps(`{id: w, type: wait, signal: go, timeout: 800h}`)},
	{"signal without a name", steps(`{id: w, type: wait, signal: ""}`)},
	{"server and tool without a name", steps(`{id: a, type: tool, server: "", action: ""}`)},
	{"prompt and model without a name", steps(`{id: a, type: prompt, server: vision-agent-mcp, prompt_name: "", complete: {model: ""}}`)},
	{"advance to a state", steps(`{id: w, type: workflow, action: advance, instance: x, perform: submit, state: done}`)},
	{"start of an instance", steps(`{id: w, type: workflow, action: start, workflow: x, instance: y}`)},
	{"timeout of a wait of seconds", steps(`{id: w, type: wait, seconds: 5, timeout: 1s}`)},
	{"interval in a zone", withSchedule(`{type: interval, seconds: 60, timezone: Europe/Berlin}`)},
	{"arguments for a parallel step", steps(`{id: a, type: tool, server: code-mcp, action: execute, on_error: {step: p, arguments: {x: 1}}}`, `{id: p, type: parallel, tasks: [{id: b, type: tool, server: code-mcp, action: execute}]}`)},
	{"fallback to the same step twice", steps(`{id: a, type: tool, server: code-mcp, action: execute, retry: {max_attempts: 1, on_fail: b}, on_error: b}`, `{id: b, type: tool, server: code-mcp, action: execute}`)},
	{"default of no reference", steps(`{id: a, type: tool, server: code-mcp, action: execute, arguments: {x: "{{saved.x}}"}, save_output_to: saved.x, default: {"{{saved.x}}": 1}}`)},
	{"default of the step that failed", steps(`{id: a, type: tool, server: code-mcp, action: execute, on_error: {step: b, arguments: {x: "{{saved.x}}"}}, default: {saved.x: 1}}`, `{id: b, type: tool, server: code-mcp, action: execute, save_output_to: saved.x}`)},
	{"unwritten in a condition", steps(`{id: s, type: switch, cases: [{when: "{{variables.global.x}} == 1", steps: [` + first + `]}]}`)},
	{"key in quotes", steps(first, `{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: ["{{a.output['k']}}", "{{ }} {{'a': 1}} {{a[}} {{b.c}"]}}`)},
	{"filter", "variables: {input: {x: 1}}\n" + steps(`{id: b, type: tool, server: code-mcp, action: execute, on_error: {step: c, arguments: {x: "{{variables.input.x | upper}}"}}}`, `{id: c, type: tool, server: code-mcp, action: execute}`)},
	{"part of an index", steps(`{id: f, type: forEach, items: [1], steps: [{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{index.x}}"}}]}`)},
	{"error in a step of a conditional", steps(first, `{id: b, type: tool, server: code-mcp, action: execute, arguments: {x: "{{error.message}}"}}`) + "conditionals: {c: {condition: \"{{a.output}} == 1\", if_true: [b]}}\n"},
	{"conditional without a name", steps(first) + "conditionals: {'': {condition: \"{{a.output}} == 1\"}}\n"},
	{"conditional with the name of a key", steps(first) + "conditionals: {\"x/s:1\": {condition: \"{{a.output}} == 1\"}}\n"},
	{"conditional over a named step", steps(`{id: a, type: tool, server: code-mcp, action: execute, on_error: b}`, `{id: b, type: tool, server: code-mcp, action: execute}`, `{id: d, type: tool, server: code-mcp, action: execute}`) + "conditionals: {c: {condition: \"{{b.output}} == 1\", if_true: [d]}}\n"},
}

func numberedSteps(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{id: s%d, type: tool, server: s, action: x}`, i)
	}
	return strings.Join(list, ",")
}

func nestedLoops(depth int) string {
	inner := first
	for i := range depth {
		inner = fmt.Sprintf(`{id: l%d, type: loop, max_iterations: 2, steps: [%s]}`, i, inner)
	}
	return steps(inner)
}

func withSchedule(schedule string) string { return steps(first) + "schedule: " + schedule + "\n" }

func TestBadDefinitions(t *testing.T) {
	var got strings.Builder
	for _, bad := range badDefinitions {
		d, err := Parse("chain.yaml", []byte(bad.doc))
		var issues []Issue
		if wrong, ok := errors.AsType[*ParseError](err); ok {
			issues = wrong.Issues
		} else {
			issues = d.Lint(LintOptions{Servers: knownServers, Models: []string{"small"}, Writer: writers.Writer, Now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)})
		}
		if len(issues) == 0 {
			t.Errorf("%s: nothing is wrong with it", bad.name)
		}
		fmt.Fprintf(&got, "== %s\n", bad.name)
		for _, i := range issues {
			fmt.Fprintf(&got, "%s\n", i)
		}
	}
	compareGolden(t, "bad.golden", got.String())
}

func TestSeedDefinitions(t *testing.T) {
	files, _ := filepath.Glob("testdata/seed/*.json")
	if len(files) < 9 {
		t.Fatalf("%d examples of the seed", len(files))
	}
	format, err := schema.Compile(FormatSchema())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			doc, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d := parse(t, string(doc))
			for _, i := range d.Lint(LintOptions{Servers: knownServers, Writer: writers.Writer}) {
				if i.Severity == "error" {
					t.Error(i)
				}
			}
			again := parse(t, string(d.Document))
			if again.Hash != d.Hash {
				t.Errorf("parsed again it has another hash: %s, %s", d.Hash, again.Hash)
			}
			v, err := document.ReadJSON(doc, document.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if wrong, err := format.Validate(v); err != nil || len(wrong) > 0 {
				t.Errorf("the schema of the format refuses it: %v, %v", wrong, err)
			}
		})
	}
}

func TestHash(t *testing.T) {
	a := parse(t, steps(first))
	if b := parse(t, `{"steps":[{"type":"tool","id":"a","action":"execute","server":"code-mcp"}],"name":"c"}`); a.Hash != b.Hash {
		t.Error("the order of keys and the form of the document change the hash")
	}
	if b := parse(t, strings.Replace(steps(first), "execute", "run", 1)); a.Hash == b.Hash {
		t.Error("another action has the same hash")
	}
}

// FuzzParse: anything that parses is complete, and parses again from its own document.
func FuzzParse(f *testing.F) {
	for _, bad := range badDefinitions {
		if len(bad.doc) < 4096 {
			f.Add([]byte(bad.doc))
		}
	}
	files, _ := filepath.Glob("testdata/seed/*.json")
	for _, file := range files {
		doc, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		d, err := Parse("chain.yaml", doc)
		if err != nil {
			return
		}
		_ = d.Lint(LintOptions{Servers: knownServers})
		again, err := Parse("chain.json", d.Document)
		if err != nil || again.Hash != d.Hash || !json.Valid(d.Document) {
			t.Fatalf("parsed again: %v", err)
		}
		answerSome(d, doc)
	})
}

// answerSome runs a definition for some commands, with outcomes derived from seed. No definition or answer
// may make the interpreter panic or wait for nothing.
func answerSome(d *Definition, seed []byte) {
	m := NewMachine(d, MachineOptions{Input: cloneValues(d.Input)})
	defer m.Close()
	var open []Command
	for n := 0; m.Result() == nil && n < 300; n++ {
		if open = append(open, m.Commands()...); len(open) == 0 {
			panic("the machine waits for nothing")
		}
		by := int(seed[n%len(seed)])
		c := open[by%len(open)]
		open = slices.Delete(open, by%len(open), by%len(open)+1)
		o := Outcome{Value: map[string]any{"a": json.Number("1"), "list": []any{"x", nil}}}
		switch {
		case c.Op == OpTest:
			o.Value = by%2 == 0
		case c.Op == OpAsk:
			o.Value = map[string]any{"answer": []string{AnswerHappened, AnswerAgain, AnswerGiveUp}[by%3]}
		case by%5 == 0:
			o = Outcome{Err: &StepError{Code: []string{CodeToolError, CodeUnknown, CodeTimeout}[by%3], Message: "no", MayHaveRun: by%2 == 0, Final: by%7 == 0}}
		}
		m.Resolve(c.ID, o)
	}
}
