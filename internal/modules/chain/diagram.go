package chain

import (
	"io"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// WriteMermaid draws the chain as a Mermaid diagram, with the renderer of workflows.
func (d *Definition) WriteMermaid(w io.Writer) error {
	return d.draw().WriteMermaid(w, workflow.Marks{})
}

// WriteDOT draws the chain in the DOT language of Graphviz.
func (d *Definition) WriteDOT(w io.Writer) error { return d.draw().WriteDOT(w, workflow.Marks{}) }

// WriteSVG draws the chain as an SVG image.
func (d *Definition) WriteSVG(w io.Writer) error { return d.draw().WriteSVG(w, workflow.Marks{}) }

// draw converts a chain to the states of a workflow. Each step becomes a state, with an arrow to the next
// step, to its handlers and to its inner steps.
func (d *Definition) draw() *workflow.Definition {
	p := drawing{&workflow.Definition{Name: d.Name, States: map[string]*workflow.State{}}}
	d.visitSteps(func(s *Step) { p.add(s.ID) })
	p.add("end").Final = true
	last := p.sequence(d.Steps, "", "")
	p.connect(last, "end", "done")
	for _, c := range d.Conditionals {
		from := ""
		c.Condition.visit(func(r reference) {
			if s := d.stepOf(r); s != nil {
				from = s.ID
			}
		})
		for _, id := range c.IfTrue {
			p.connect(from, id, "if "+c.Condition.text)
		}
		for _, id := range c.IfFalse {
			p.connect(from, id, "if not "+c.Condition.text)
		}
	}
	d.visitSteps(func(s *Step) {
		for _, h := range s.handlers() {
			p.connect(s.ID, h.Step, "failed")
		}
	})
	return p.Definition
}

type drawing struct{ *workflow.Definition }

func (p drawing) add(name string) *workflow.State {
	if p.States[name] == nil {
		p.States[name] = &workflow.State{Name: name, Transitions: map[string]*workflow.Transition{}}
		p.StateNames = append(p.StateNames, name)
	}
	return p.States[name]
}

func (p drawing) connect(from, to, label string) {
	s := p.States[from]
	if s == nil || p.States[to] == nil {
		return
	}
	for s.Transitions[label] != nil {
		label += " " // the transitions of a state need distinct names
	}
	s.Transitions[label] = &workflow.Transition{Action: label, Routes: []workflow.Route{{Target: to}}}
	s.Actions = append(s.Actions, label)
}

// sequence connects steps and their inner steps, and returns the last one.
func (p drawing) sequence(steps []*Step, before, label string) string {
	for _, s := range steps {
		if s.Named {
			continue
		}
		if before == "" {
			p.InitialState = s.ID
		} else {
			p.connect(before, s.ID, label)
		}
		for _, list := range s.lists() {
			label := map[Kind]string{KindParallel: "at once", KindLoop: "each time", KindForEach: "each item", KindSwitch: "case"}[s.Kind]
			if end := p.sequence(list, s.ID, label); end != s.ID && s.Kind != KindSwitch {
				p.connect(end, s.ID, "back")
			}
		}
		before, label = s.ID, "done"
	}
	return before
}
