package chain

import (
	"slices"
	"strings"
	"testing"
)

const (
	reads      = `{id: r, type: tool, server: s, action: x, arguments: {x: "{{variables.global.v}}"}}`
	writes     = `{id: w, type: tool, server: s, action: x, save_output_to: variables.global.v}`
	other      = `{id: o, type: tool, server: s, action: x}`
	readsOrNot = `{id: r, type: tool, server: s, action: x, on_error: o, arguments: {x: "{{variables.global.v}}"}}`
	readsW     = `{id: r, type: tool, server: s, action: x, arguments: {x: "{{w.output}}"}}`
)

// TestLintOrder: reports variables and outputs that only a step in a later position writes, and nothing that
// is read in another round, task or branch.
func TestLintOrder(t *testing.T) {
	decide := func(condition, step string) string {
		return `conditionals: {c: {condition: "` + condition + `", if_true: [` + step + `]}}` + "\n"
	}
	inside := func(container string, list ...string) string {
		return "{id: in, " + container + ": [" + strings.Join(list, ", ") + "]}"
	}
	const loop, each, eachInTurn, parallel = "type: loop, max_iterations: 2, steps", "type: forEach, items: [1, 2], steps", "type: forEach, items: [1, 2], maxConcurrent: 1, steps", "type: parallel, tasks"
	unless := func(step string) string { return `{id: u, type: switch, cases: [], else: [` + step + `]}` }
	for name, row := range map[string]struct {
		doc  string
		rule string // "" means no issue
	}{
		"a later step":                         {steps(reads, writes), "unwritten-variable"},
		"an earlier step":                      {steps(writes, reads), ""},
		"the step itself":                      {steps(strings.Replace(reads, "x,", "x, save_output_to: variables.global.v,", 1)), "unwritten-variable"},
		"a value at the beginning":             {"variables: {global: {v: 1}}\n" + steps(reads, writes), ""},
		"a default":                            {steps(strings.Replace(reads, "x,", `x, default: {"variables.global.v": 1},`, 1), writes), ""},
		"a saved variable":                     {"variables: {saved: {v: 1}}\n" + steps(strings.Replace(reads, "global", "saved", 1), strings.Replace(writes, "variables.global", "saved", 1)), ""},
		"a condition before":                   {steps(other, writes) + decide("{{o.output}} == {{variables.global.v}}", "w"), ""},
		"a condition at the end":               {steps(other, writes) + "conditionals: {c: {condition: \"{{variables.global.v}} == 1\"}}\n", ""},
		"a task that begins with it":           {steps(inside(parallel, writes, reads)), ""},
		"a task that begins later":             {steps(inside("maxConcurrent: 1, "+parallel, writes, reads)), ""},
		"a task that begins before it":         {steps(inside("maxConcurrent: 1, "+parallel, other, reads), writes), "unwritten-variable"},
		"inside a task":                        {steps(inside(parallel, writes, unless(other+", "+reads))), ""},
		"behind a task":                        {steps(inside(parallel, writes), reads), ""},
		"a later step of a loop":               {steps(inside(loop, reads, writes)), ""},
		"behind a loop":                        {steps(inside(loop, writes), reads), ""},
		"until of a loop":                      {steps(strings.Replace(inside(loop, writes), "steps", `until: "{{variables.global.v}} == 1", steps`, 1)), ""},
		"a later step of a loop, under a case": {steps(inside(loop, unless(reads), writes)), ""},
		"a later step of a loop that goes on":  {steps(inside(loop, readsOrNot, writes), other), ""},
		"a later item":                         {steps(inside(each, reads, writes)), ""},
		"a later item in turn":                 {steps(inside(eachInTurn, reads, writes)), ""},
		"a handler":                            {steps(strings.Replace(other, "x}", "x, on_error: w}", 1), reads, writes), ""},
		"a handler of a handler":               {steps(`{id: a, type: tool, server: s, action: x, on_error: o}`, strings.Replace(other, "x}", "x, on_error: w}", 1), reads, writes), ""},
		"a handler inside a loop":              {steps(inside(loop, strings.Replace(other, "x}", "x, on_error: w}", 1)), reads, writes), ""},
		"in a handler":                         {steps(strings.Replace(other, "x}", "x, on_error: r}", 1), reads, writes), ""},
		"in the callback":                      {steps(other, writes, reads) + "on_error: {step: r}\n", ""},
		"what a conditional runs":              {steps(other, reads, writes) + decide("{{o.output}} == 1", "w"), ""},
		"what a conditional runs later":        {steps(reads, other, writes) + decide("{{o.output}} == 1", "w"), ""},
		"what a conditional runs, inside":      {steps(inside(parallel, other), reads, writes) + decide("{{o.output}} == 1", "w"), ""},
		"what an unsure conditional runs":      {steps(`{id: a, type: tool, server: s, action: x, on_error: o}`, other, reads, writes) + decide("{{o.output}} == 1", "w"), ""},
		"what a second conditional runs":       {steps(other, reads, writes) + `conditionals: {a: {condition: "{{variables.input.x}} == {{o.output}}", if_true: [w]}}` + "\n", ""},

		"a conditional before":              {steps(other, writes, readsW) + decide("{{o.output}} == 1", "r"), ""},
		"a conditional behind":              {steps(other, writes, readsW) + decide("{{w.output}} == 1", "r"), ""},
		"a conditional behind both":         {steps(other, writes, readsW) + decide("{{o.output}} == {{w.output}}", "r"), ""},
		"a conditional at the end":          {steps(other, writes, readsW) + "conditionals: {c: {condition: {script: \"true\"}, if_true: [r]}}\n", ""},
		"a conditional and a handler":       {steps(other, strings.Replace(writes, "x,", "x, on_error: r,", 1), readsW) + decide("{{o.output}} == 1", "r"), ""},
		"two conditionals, one behind":      {steps(other, writes, readsW) + `conditionals: {a: {condition: "{{o.output}} == 1", if_true: [r]}, b: {condition: "{{w.output}} == 1", if_true: [r]}}` + "\n", ""},
		"the branch itself":                 {steps(other, writes, readsW) + decide("{{o.output}} == 1", "w, r"), ""},
		"the branch itself, turned":         {steps(other, writes, readsW) + decide("{{o.output}} == 1", "r, w"), ""},
		"a conditional over a loop's step":  {steps(inside(loop, other), readsW, writes) + decide("{{o.output}} == 1", "r"), ""},
		"a variable, in a conditional":      {steps(other, writes, reads) + decide("{{o.output}} == 1", "r"), ""},
		"a variable, in a late conditional": {steps(other, writes, reads) + decide("{{w.output}} == 1", "r"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			issues := slices.DeleteFunc(parse(t, row.doc).Lint(LintOptions{}), func(i Issue) bool {
				return i.Rule != "early-reference" && i.Rule != "unwritten-variable" || strings.Contains(i.Message, "variables.input")
			})
			if row.rule == "" && len(issues) > 0 || row.rule != "" && (len(issues) == 0 || issues[0].Rule != row.rule) {
				t.Errorf("want %q, found %v in\n%s", row.rule, issues, row.doc)
			}
		})
	}
}
