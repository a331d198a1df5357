package chain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// RuleUnknownChain is the rule that a state breaks whose chain does not exist.
const RuleUnknownChain = "unknown-chain"

// CheckEntries compares the chains that states of workflows start with the chains that there are, and returns
// what is wrong by the name of the workflow: chains that are not known, inputs that they do not take or that
// would show what the workflow calls sensitive, and chains that lead back into a state which starts them. What is started by workflows that are not among these
// is not seen.
func CheckEntries(workflows []*workflow.Definition, chains map[string]*Definition) map[string][]Issue {
	c := entryChecker{workflows, chains, map[string][]Issue{}}
	for _, w := range workflows {
		for _, name := range w.StateNames {
			if s := w.States[name]; s.OnEnter != nil {
				c.check(w, s)
			}
		}
	}
	return c.found
}

type entryChecker struct {
	workflows []*workflow.Definition
	chains    map[string]*Definition
	found     map[string][]Issue
}

func (c entryChecker) check(w *workflow.Definition, s *workflow.State) {
	add := func(rule string, severity workflow.Severity, key, format string, args ...any) {
		path := "/states/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(s.Name) + "/onEnter/" + key
		c.found[w.Name] = append(c.found[w.Name], Issue{Rule: rule, Severity: severity, Path: path, Line: w.FindLine(path), Message: fmt.Sprintf(format, args...)})
	}
	if t, err := parseEntryInput(s.OnEnter.Input, func(err error) { add("chain-input", workflow.SeverityError, "input", "%v", err) }); err != nil {
		add("chain-input", workflow.SeverityError, "input", "%v", err)
	} else if d := c.chains[s.OnEnter.Chain]; d != nil {
		if err := checkExposed(t, w.Sensitive, d); err != nil {
			add("chain-input", workflow.SeverityError, "input", "%v", err)
		}
		for _, key := range t.keys {
			if _, known := d.Input[key]; !known && d.inputSchema == nil {
				add("chain-input", workflow.SeverityError, "input", "the chain %q has no input %s%s", d.Name, quoteName(key), suggestName(key, slices.Sorted(maps.Keys(d.Input))))
			}
		}
	}
	if c.chains[s.OnEnter.Chain] == nil {
		add(RuleUnknownChain, workflow.SeverityError, "chain", "there is no chain %s%s; declare it in the section chains of the configuration file, or remove onEnter", quoteName(s.OnEnter.Chain), suggestName(s.OnEnter.Chain, slices.Sorted(maps.Keys(c.chains))))
		return
	}
	if way, sure := c.findWayBack(s.OnEnter.Chain); way != nil {
		severity, may := workflow.SeverityError, "enters"
		if !sure {
			severity, may = workflow.SeverityWarning, "may enter"
		}
		add("chain-reenters", severity, "chain", "the chain %s %s a state that starts it: %s", quoteName(s.OnEnter.Chain), may, strings.Join(way, ", "))
	}
}

// entering is a step that enters, or may enter, a state that starts a chain.
type entering struct {
	chain string
	sure  bool
	says  string
}

// listEntered are the states with chains that the steps of a chain enter. The instance of an advance is known
// when it runs only, so each workflow with such an action counts.
func (c entryChecker) listEntered(d *Definition) (out []entering) {
	enter := func(s *Step, w *workflow.Definition, state string, sure bool) {
		if at := w.States[state]; at != nil && at.OnEnter != nil {
			out = append(out, entering{at.OnEnter.Chain, sure, fmt.Sprintf("the step %s of %s enters %s of %s", quoteName(s.ID), quoteName(d.Name), quoteName(state), quoteName(w.Name))})
		}
	}
	d.visitSteps(func(s *Step) {
		if s.Kind != KindWorkflow {
			return
		}
		for _, w := range c.workflows {
			switch s.Action {
			case moveStart:
				if s.Workflow == w.Name {
					enter(s, w, w.InitialState, true)
				}
			case moveAdvance:
				for _, from := range w.StateNames {
					if t := w.States[from].Transitions[s.Perform]; t != nil {
						for _, target := range t.Targets() {
							if target != from {
								enter(s, w, target, false)
							}
						}
					}
				}
			}
		}
	})
	return out
}

// findWayBack is how a chain comes to a state that starts it, nil where it does not; sure says that every step
// of the way is a start.
func (c entryChecker) findWayBack(chain string) (way []string, sure bool) {
	type place struct {
		chain string
		sure  bool
		way   []string
	}
	seen := map[string]bool{}
	for queue := []place{{chain, true, nil}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		d := c.chains[at.chain]
		if d == nil {
			continue
		}
		for _, e := range c.listEntered(d) {
			next := place{e.chain, at.sure && e.sure, append(slices.Clip(at.way), e.says)}
			if e.chain == chain {
				return next.way, next.sure
			}
			if !seen[e.chain] {
				seen[e.chain] = true
				queue = append(queue, next)
			}
		}
	}
	return nil, false
}
