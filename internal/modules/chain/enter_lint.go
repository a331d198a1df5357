package chain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// RuleUnknownChain is the lint rule for states that start a chain which does not exist.
const RuleUnknownChain = "unknown-chain"

// CheckEntries checks the chains that the states of workflows start, and returns the issues by the name of
// the workflow. It reports unknown chains, and chains that lead back to a state that starts them. It also
// reports inputs that a chain does not accept, or that would expose the workflow's sensitive values. It
// cannot see cycles through workflows that are not in the list.
func CheckEntries(workflows []*workflow.Definition, chains map[string]*Definition) map[string][]Issue {
	c := entryChecker{workflows, chains, map[string][]Issue{}}
	for _, w := range workflows {
		for _, name := range w.StateNames {
			if s := w.States[name]; findOnEnter(s) != nil {
				c.check(w, s, findOnEnter(s))
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

func (c entryChecker) check(w *workflow.Definition, s *workflow.State, o *OnEnter) {
	add := func(rule string, severity workflow.Severity, key, format string, args ...any) {
		path := string(document.PointerOf("states", s.Name, keyOnEnter, key))
		c.found[w.Name] = append(c.found[w.Name], Issue{Rule: rule, Severity: severity, Path: path, Line: w.FindLine(path), Message: fmt.Sprintf(format, args...)})
	}
	if t, err := parseEntryInput(o.Input, func(err error) { add("chain-input", workflow.SeverityError, "input", "%v", err) }); err != nil {
		add("chain-input", workflow.SeverityError, "input", "%v", err)
	} else if d := c.chains[o.Chain]; d != nil {
		if err := checkExposed(t, w.Sensitive, d); err != nil {
			add("chain-input", workflow.SeverityError, "input", "%v", err)
		}
		for _, key := range t.keys {
			if _, known := d.Input[key]; !known && d.inputSchema == nil {
				add("chain-input", workflow.SeverityError, "input", "the chain %q has no input %s%s", d.Name, quoteName(key), suggestName(key, slices.Sorted(maps.Keys(d.Input))))
			}
		}
	}
	if c.chains[o.Chain] == nil {
		add(RuleUnknownChain, workflow.SeverityError, "chain", "unknown chain %s%s; declare it in the section chains of the configuration file, or remove onEnter", quoteName(o.Chain), suggestName(o.Chain, slices.Sorted(maps.Keys(c.chains))))
		return
	}
	if way, sure := c.findWayBack(o.Chain); way != nil {
		severity, may := workflow.SeverityError, "enters"
		if !sure {
			severity, may = workflow.SeverityWarning, "may enter"
		}
		add("chain-reenters", severity, "chain", "the chain %s %s a state that starts it: %s", quoteName(o.Chain), may, strings.Join(way, ", "))
	}
}

// entryStep is a step that enters, or may enter, a state that starts a chain.
type entryStep struct {
	chain string
	sure  bool
	says  string
}

// listEntered returns the states with chains that the steps of a chain enter. The instance of an advance is
// known only at run time, so every workflow with such an action counts.
func (c entryChecker) listEntered(d *Definition) (out []entryStep) {
	enter := func(s *Step, w *workflow.Definition, state string, sure bool) {
		if o := findOnEnter(w.States[state]); o != nil {
			out = append(out, entryStep{o.Chain, sure, fmt.Sprintf("the step %s of %s enters %s of %s", quoteName(s.ID), quoteName(d.Name), quoteName(state), quoteName(w.Name))})
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

// findWayBack returns the steps by which a chain leads back to a state that starts it, or nil. sure reports
// that each of these steps certainly enters its state.
func (c entryChecker) findWayBack(chain string) (way []string, sure bool) {
	next := func(at entryStep) []entryStep {
		if d := c.chains[at.chain]; d != nil {
			return c.listEntered(d)
		}
		return nil
	}
	sure = true
	for i, e := range findWay(entryStep{chain: chain}, next, func(e entryStep) bool { return e.chain == chain }) {
		if i > 0 {
			way, sure = append(way, e.says), sure && e.sure
		}
	}
	return way, sure
}
