package gate

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// InstanceBy selects the subject of the instances that builtin gates and the finish rule check.
type InstanceBy string

// The instance subjects.
const (
	InstanceFolder  InstanceBy = "folder"  // the project's folder
	InstanceSession InstanceBy = "session" // the client's session
)

// UnknownTools is the answer for a tool that no adapter knows, if a gate covers a builtin tool.
type UnknownTools string

// The answers for unknown tools.
const (
	UnknownAsk     UnknownTools = "ask" // ask the person at the client; deny if it cannot ask
	UnknownDeny    UnknownTools = "deny"
	UnknownNeutral UnknownTools = "neutral"
)

// OnFailure is the answer to an event that gavel cannot read.
type OnFailure string

// The answers for unreadable events.
const (
	OnFailureDeny    OnFailure = "deny"
	OnFailureNeutral OnFailure = "neutral"
)

const (
	defaultAttempts = 3
	maxAttempts     = 100
)

// Hooks is the section "hooks". ParseHooks fills in the defaults.
type Hooks struct {
	Instance     InstanceBy
	UnknownTools UnknownTools
	OnFailure    OnFailure
	Finish       *Finish // nil: an agent may stop at any time

	node *document.Node // source node; nil without a section
}

// Finish names the states in which an agent may stop.
type Finish struct {
	Workflow string
	States   []string
	// Attempts is how often an agent is kept from stopping in other states while the workflow does not move.
	Attempts int
	// Start starts the workflow when the session starts.
	Start bool
}

// ParseHooks parses the section "hooks" of a configuration file; nil yields the defaults. The error is
// document.Errors. Check compares the result with definitions.
func ParseHooks(section *document.Node) (Hooks, error) {
	h := Hooks{Instance: InstanceFolder, UnknownTools: UnknownAsk, OnFailure: OnFailureDeny, node: section}
	if section == nil {
		return h, nil
	}
	o := document.NewObject(section)
	h.Instance = cmp.Or(InstanceBy(o.Enum("instance", string(InstanceFolder), string(InstanceSession))), h.Instance)
	h.UnknownTools = cmp.Or(UnknownTools(o.Enum("unknownTools", string(UnknownAsk), string(UnknownDeny), string(UnknownNeutral))), h.UnknownTools)
	h.OnFailure = cmp.Or(OnFailure(o.Enum("onFailure", string(OnFailureDeny), string(OnFailureNeutral))), h.OnFailure)
	if o.Has("finish") {
		h.Finish = readFinish(o.Object("finish"))
	}
	o.Unknown()
	return h, o.Err()
}

func readFinish(o *document.ObjectReader) *Finish {
	f := &Finish{Workflow: o.String("workflow"), States: o.OneOrMore("states"), Attempts: defaultAttempts, Start: o.Bool("start")}
	if n := o.IntPtr("attempts"); n != nil {
		if f.Attempts = *n; f.Attempts < 1 || f.Attempts > maxAttempts {
			o.Fail(o.Value("attempts"), "attempts is a number from 1 to %d: how often an agent is kept from stopping; without it, %d", maxAttempts, defaultAttempts)
		}
	}
	switch {
	case !o.Has("workflow") || !o.Has("states"): // reported by Require
	case !workflow.IsName(f.Workflow):
		o.Fail(o.Value("workflow"), "workflow must be the name of a definition")
	case len(f.States) == 0:
		o.Fail(o.Value("states"), "name at least one state in which the agent may stop")
	}
	o.Require("workflow", "states")
	o.Unknown()
	return f
}

// Check compares the section with the workflow definitions. definitions must hold, by name, the newest version that an
// operator defined. If all is false, some may be missing, and a missing workflow is not reported. The error is
// document.Errors.
func (h Hooks) Check(definitions map[string]*workflow.Definition, all bool) error {
	if h.Finish == nil {
		return nil
	}
	var faults document.Errors
	fail := func(pointer, format string, args ...any) {
		faults = append(faults, issueAt(h.node, "/finish/"+pointer, format, args...))
	}
	d := definitions[h.Finish.Workflow]
	if d == nil {
		if all {
			fail("workflow", "no operator has defined the workflow %q%s", h.Finish.Workflow, suggestName(h.Finish.Workflow, sortedKeys(definitions)))
		}
	} else {
		reached := listReachable(d)
		for i, name := range h.Finish.States {
			at := "states"
			if h.node.At("finish", "states").Kind == document.Array {
				at += "/" + strconv.Itoa(i)
			}
			switch {
			case d.States[name] == nil:
				fail(at, "the workflow %s has no state %q%s", d.Name, name, suggestName(name, d.StateNames))
			case !slices.Contains(reached, name):
				fail(at, "no transition leads to the state %q of the workflow %s, so no session could stop there", name, d.Name)
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return faults
}

// CheckIn runs Check with the definitions of an engine.
func (h Hooks) CheckIn(ctx context.Context, e Definitions, operator engine.Principal) error {
	if h.Finish == nil {
		return nil
	}
	definitions, err := listDefinitions(ctx, e, operator, h.Finish.Workflow)
	if err != nil {
		return err
	}
	return h.Check(definitions, true)
}

// CheckDefinition runs Check for one workflow.
func (h Hooks) CheckDefinition(d *workflow.Definition) error {
	return h.Check(map[string]*workflow.Definition{d.Name: d}, false)
}

// listReachable returns the states that transitions can reach from the initial state.
func listReachable(d *workflow.Definition) []string {
	reached := []string{d.InitialState}
	for i := 0; i < len(reached); i++ {
		s := d.States[reached[i]]
		if s == nil {
			continue // reported by the definition's lint
		}
		for _, action := range s.Actions {
			for _, target := range s.Transitions[action].Targets() {
				if !slices.Contains(reached, target) {
					reached = append(reached, target)
				}
			}
		}
	}
	return reached
}
