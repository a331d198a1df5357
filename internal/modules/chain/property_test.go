package chain

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/validators/document"
)

// plain interprets a chain without failures, recursively and one step at a time. The machine must produce
// the same result in whichever order its commands are answered.
type plain struct {
	definition *Definition
	output     map[string]any
	calls      []string
	decided    map[*Conditional]bool
	ended      map[string]bool
}

func runPlain(d *Definition) (output map[string]any, calls []string) {
	p := &plain{definition: d, output: cloneValues(d.Output), decided: map[*Conditional]bool{}, ended: map[string]bool{}}
	values := map[string]any{}
	for _, s := range d.Steps {
		if s.Named {
			continue
		}
		p.step(s, values)
		p.ended[s.ID] = true
		p.conditionals(values)
	}
	slices.Sort(p.calls)
	return p.output, p.calls
}

func (p *plain) conditionals(values map[string]any) {
	for _, c := range p.definition.Conditionals {
		ready := !p.decided[c]
		c.Condition.visit(func(r reference) { ready = ready && p.ended[r.segments[0]] })
		if !ready {
			continue
		}
		p.decided[c] = true
		branch := c.IfFalse
		if p.holds(c.Condition, values) {
			branch = c.IfTrue
		}
		for _, id := range branch {
			if !p.ended[id] {
				p.step(p.definition.steps[id], values)
				p.ended[id] = true
			}
		}
	}
}

func (p *plain) holds(c *Condition, values map[string]any) bool {
	holds, err := c.evaluate(find(values))
	if err != nil {
		panic(err)
	}
	return holds
}

func find(values map[string]any) lookup {
	return func(r reference) (any, error) {
		if r.segments[0] == "item" || r.segments[0] == "index" {
			return values[r.segments[0]], nil
		}
		return walkPath(map[string]any{"output": values[strings.TrimPrefix(r.segments[0], "step_")]}, r, 1)
	}
}

func with(values map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range values {
		out[k] = v
	}
	return out
}

func (p *plain) sequence(steps []*Step, values map[string]any) (last any) {
	for _, s := range steps {
		last = p.step(s, values)
	}
	return last
}

func (p *plain) step(s *Step, values map[string]any) any {
	var out any
	switch s.Kind {
	case KindParallel:
		outputs := map[string]any{}
		for _, task := range s.Tasks {
			outputs[task.ID] = p.step(task, values)
		}
		out = outputs
	case KindForEach:
		items, err := s.Items.fill(find(values))
		if err != nil {
			panic(err)
		}
		list := []any{}
		for i, item := range items.([]any) {
			inner := with(values)
			inner["item"], inner["index"] = item, json.Number(fmt.Sprint(i))
			list = append(list, p.sequence(s.Steps, inner))
		}
		out = list
	case KindLoop:
		for n := 1; ; n++ {
			inner := with(values)
			p.sequence(s.Steps, inner)
			if s.Until == nil && n == s.MaxIterations || s.Until != nil && p.holds(s.Until, inner) {
				last := map[string]any{}
				for _, step := range s.Steps {
					visitSteps([]*Step{step}, func(step *Step) {
						if v, ok := inner[step.ID]; ok {
							last[step.ID] = v
						}
					})
				}
				out = map[string]any{"iterations": json.Number(fmt.Sprint(n)), "steps": last}
				break
			}
		}
	case KindSwitch:
		branch := s.Else
		for _, c := range slices.Backward(s.Cases) {
			if p.holds(c.When, values) {
				branch = c.Steps
			}
		}
		out = p.sequence(branch, values)
	default:
		arguments, err := s.Arguments.fill(find(values))
		if err != nil {
			panic(err)
		}
		p.calls = append(p.calls, s.ID+" "+marshal(arguments))
		out = answerOf(s.ID, arguments)
	}
	values[s.ID] = out
	if s.SaveOutputTo != nil {
		p.output[s.SaveOutputTo.name] = out
	}
	return out
}

// answerOf returns the server's answer, derived from the request.
func answerOf(step string, arguments any) any {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, step, marshal(arguments))
	return map[string]any{"n": json.Number(fmt.Sprint(h.Sum32() % 7)), "text": fmt.Sprintf("t%d", h.Sum32()%100), "list": []any{"a", json.Number("1")}}
}

// chainMaker generates definitions.
type chainMaker struct {
	t     *rapid.T
	count int
	// handler is a step that handles failures, of which there are none; "" if there is no handler.
	handler string
}

func (g *chainMaker) id() string {
	g.count++
	return fmt.Sprintf("s%d", g.count)
}

// steps generates a sequence; known holds the steps that have ended before it, and grows.
func (g *chainMaker) steps(known *[]string, depth int, inItem bool) []any {
	var out []any
	for range rapid.IntRange(1, 3).Draw(g.t, "steps") {
		out = append(out, g.step(known, depth, inItem))
	}
	return out
}

func (g *chainMaker) reference(known []string, inItem bool) string {
	choices := []string{"plain"}
	for _, id := range known {
		choices = append(choices, "{{"+id+".output}}", "{{"+id+".output.n}}", "{{step_"+id+".output.list[1]}}", "say {{"+id+".output.text}} and {{"+id+".output}}")
	}
	if inItem {
		choices = append(choices, "{{item}}", "{{index}}: {{item}}")
	}
	return rapid.SampledFrom(choices).Draw(g.t, "reference")
}

func (g *chainMaker) condition(known []string) string {
	if len(known) == 0 {
		return rapid.SampledFrom([]string{"1 < 2", "'a' == 'b'"}).Draw(g.t, "condition")
	}
	id := rapid.SampledFrom(known).Draw(g.t, "of")
	return "{{" + id + ".output.n}} " + rapid.SampledFrom([]string{"< 3", ">= 2", "!= 0"}).Draw(g.t, "condition")
}

func (g *chainMaker) tool(known *[]string, inItem bool) map[string]any {
	id := g.id()
	s := map[string]any{"id": id, "type": "tool", "server": "s", "action": "x", "arguments": map[string]any{"a": g.reference(*known, inItem), "b": []any{g.reference(*known, inItem)}}}
	if g.handler != "" && rapid.Bool().Draw(g.t, "handled") {
		s["on_error"] = g.handler
		s["retry"] = map[string]any{"max_attempts": 3, "on_fail": g.handler}
	}
	*known = append(*known, id)
	return s
}

func (g *chainMaker) step(known *[]string, depth int, inItem bool) map[string]any {
	kind := "tool"
	if depth > 0 {
		kind = rapid.SampledFrom([]string{"tool", "tool", "parallel", "loop", "forEach", "switch"}).Draw(g.t, "kind")
	}
	if kind == "tool" {
		s := g.tool(known, inItem)
		if rapid.Bool().Draw(g.t, "saved") && !inItem { // of concurrent items, the last one would win
			s["save_output_to"] = "variables.output." + s["id"].(string)
		}
		return s
	}
	s := map[string]any{"id": g.id(), "type": kind}
	inner := func() *[]string {
		c := slices.Clone(*known)
		return &c
	}
	switch kind {
	case "parallel":
		var tasks []any
		var after []string
		for range rapid.IntRange(1, 4).Draw(g.t, "tasks") {
			mine := inner()
			if rapid.Bool().Draw(g.t, "nested") {
				tasks = append(tasks, g.step(mine, depth-1, inItem))
			} else {
				tasks = append(tasks, g.tool(mine, inItem))
				after = append(after, (*mine)[len(*mine)-1])
			}
		}
		s["tasks"], s["maxConcurrent"] = tasks, rapid.IntRange(1, 3).Draw(g.t, "bound")
		*known = append(*known, after...)
	case "loop":
		s["steps"], s["max_iterations"] = g.steps(inner(), depth-1, inItem), rapid.IntRange(1, 3).Draw(g.t, "iterations")
	case "forEach":
		s["items"] = rapid.SampledFrom([]any{[]any{}, []any{1, "x", nil}, []any{g.reference(*known, inItem)}}).Draw(g.t, "items")
		s["steps"], s["maxConcurrent"] = g.steps(inner(), depth-1, true), rapid.IntRange(1, 3).Draw(g.t, "bound")
	case "switch":
		s["cases"] = []any{map[string]any{"when": g.condition(*known), "steps": g.steps(inner(), depth-1, inItem)}, map[string]any{"when": g.condition(*known), "steps": g.steps(inner(), depth-1, inItem)}}
		s["else"] = g.steps(inner(), depth-1, inItem)
	}
	return s
}

// TestMachineAgreesWithPlain: on random chains without failures, the machine makes the same calls as the
// plain interpreter, and produces the same output, in whichever order they are answered.
func TestMachineAgreesWithPlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &chainMaker{t: t}
		handles := rapid.Bool().Draw(t, "handler")
		if handles {
			g.handler = "handler"
		}
		var known []string
		list := g.steps(&known, 3, false)
		doc := map[string]any{"name": "random"}
		if handles {
			list = append(list, map[string]any{"id": "handler", "type": "tool", "server": "s", "action": "x", "arguments": map[string]any{"a": "{{error.message}}"}})
			doc["on_error"] = map[string]any{"step": "handler"}
		}
		doc["steps"] = list
		if len(known) > 0 && rapid.Bool().Draw(t, "conditional") {
			id := rapid.SampledFrom(known).Draw(t, "of")
			if top := slices.ContainsFunc(list, func(s any) bool { return s.(map[string]any)["id"] == id }); top {
				yes, no := g.tool(&known, false), g.tool(&[]string{}, false)
				doc["steps"] = append(list, yes, no)
				yes["arguments"] = map[string]any{"a": "{{" + id + ".output.n}}"}
				doc["conditionals"] = map[string]any{"c": map[string]any{"condition": "{{" + id + ".output.n}} < 3", "if_true": []any{yes["id"]}, "if_false": []any{no["id"]}}}
			}
		}
		raw, err := document.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Parse("random.json", raw)
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		wantOutput, wantCalls := runPlain(d)

		m := NewMachine(d, MachineOptions{})
		defer m.Close()
		var open []Command
		var calls []string
		for m.Result() == nil {
			open = append(open, m.Commands()...)
			at := rapid.IntRange(0, len(open)-1).Draw(t, "answered")
			c := open[at]
			open = slices.Delete(open, at, at+1)
			calls = append(calls, c.Step+" "+marshal(c.Arguments))
			m.Resolve(c.ID, Outcome{Value: answerOf(c.Step, c.Arguments)})
		}
		slices.Sort(calls)
		if m.Result().Err != nil {
			t.Fatalf("the machine failed: %v\n%s", m.Result().Err, raw)
		}
		if diff := cmp.Diff(wantCalls, calls); diff != "" {
			t.Fatalf("the calls differ: %s\n%s", diff, raw)
		}
		if want, got := marshal(wantOutput), marshal(m.Result().Output); want != got {
			t.Fatalf("the outputs differ: want %s, got %s\n%s", want, got, raw)
		}
	})
}

// TestReplay: replaying the outcomes of a run in order brings a new machine to the same commands and
// result, wherever the first one stopped.
func TestReplay(t *testing.T) {
	d := parse(t, steps(
		`{id: p, type: parallel, tasks: [{id: a, type: tool, server: s, action: x}, {id: l, type: loop, max_iterations: 3, steps: [{id: b, type: tool, server: s, action: x, arguments: {p: "v"}}]}]}`,
		`{id: c, type: tool, server: s, action: x, arguments: {a: "{{a.output}}"}, save_output_to: variables.output.c}`))
	type step struct {
		id      int
		outcome Outcome
	}
	run := func(log []step, choose func(open []Command) int) (commands []string, all []step, result *Result) {
		m := NewMachine(d, MachineOptions{})
		defer m.Close()
		var open []Command
		for n := 0; m.Result() == nil; n++ {
			for _, c := range m.Commands() {
				commands = append(commands, fmt.Sprint(c.ID, " ", c.Key, " ", marshal(c.Arguments)))
				open = append(open, c)
			}
			var next step
			if n < len(log) {
				next = log[n]
			} else {
				c := open[choose(open)]
				next = step{c.ID, Outcome{Value: answerOf(c.Step, c.Arguments)}}
			}
			open = slices.DeleteFunc(open, func(c Command) bool { return c.ID == next.id })
			all = append(all, next)
			m.Resolve(next.id, next.outcome)
		}
		return commands, all, m.Result()
	}
	commands, log, result := run(nil, func(open []Command) int { return len(open) - 1 })
	for left := range log {
		again, _, end := run(log[:left], func(open []Command) int { return len(open) - 1 })
		if diff := cmp.Diff(commands, again); diff != "" || marshal(end.Output) != marshal(result.Output) {
			t.Fatalf("left after %d outcomes: %s", left, diff)
		}
	}
	if !strings.Contains(strings.Join(commands, "\n"), "p/l#3/b") {
		t.Errorf("the third iteration is missing: %v", commands)
	}
}
