package suite

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// Coverage is how much of a definition the tests have reached.
type Coverage struct {
	// States that were entered.
	States Share `json:"states"`
	// Transitions that were made, and Refusals that were seen, for transitions that can be refused for
	// reasons other than legality.
	Transitions Share `json:"transitions"`
	Refusals    Share `json:"refusals"`
	// Validators that agreed and that refused: transitions with scripts count twice.
	Validators Share `json:"validators"`
}

// Share counts the reached items of a set and lists the missing ones.
type Share struct {
	Reached int      `json:"reached"`
	All     int      `json:"all"`
	Missing []string `json:"missing"` // never nil
}

// Percent is 0..100; it is 100 if there is nothing to reach.
func (s Share) Percent() float64 {
	if s.All == 0 {
		return 100
	}
	return 100 * float64(s.Reached) / float64(s.All)
}

type coverage struct {
	states, transitions, refusals, validators *marks
}

// marks are items in the order of the document, each reached or not.
type marks struct {
	order   []string
	reached map[string]bool
}

func newMarks() *marks { return &marks{reached: map[string]bool{}} }

func (m *marks) expect(name string) {
	if _, ok := m.reached[name]; !ok {
		m.order = append(m.order, name)
		m.reached[name] = false
	}
}

func (m *marks) reach(name string) {
	if _, ok := m.reached[name]; ok {
		m.reached[name] = true
	}
}

func (m *marks) coveredShare() Share {
	s := Share{All: len(m.order), Missing: []string{}}
	for _, name := range m.order {
		if m.reached[name] {
			s.Reached++
		} else {
			s.Missing = append(s.Missing, name)
		}
	}
	return s
}

// newCoverage lists everything that can be reached.
func newCoverage(definition json.RawMessage) (*coverage, error) {
	d, err := workflow.Parse("definition.json", definition)
	if err != nil {
		return nil, fmt.Errorf("read the definition: %w", err)
	}
	c := &coverage{newMarks(), newMarks(), newMarks(), newMarks()}
	for _, name := range d.StateNames {
		c.states.expect(name)
		s := d.States[name]
		for _, action := range s.Actions {
			t := s.Transitions[action]
			at := name + "." + action
			c.transitions.expect(at)
			scripted := t.Validator != "" || d.TransitionValidators[action] != "" || d.TransitionValidators[at] != ""
			if scripted {
				c.validators.expect(at + " agrees")
				c.validators.expect(at + " refuses")
			}
			if scripted || len(t.RequiredFields) > 0 || len(t.Schema) > 0 || len(t.Evidence) > 0 || entryChecked(d, t) {
				c.refusals.expect(at)
			}
		}
	}
	return c, nil
}

// entryChecked reports whether a target state of the transition checks the context.
func entryChecked(d *workflow.Definition, t *workflow.Transition) bool {
	return slices.ContainsFunc(t.Routes, func(r workflow.Route) bool {
		_, checked := d.StateValidators[r.Target]
		return checked || len(d.MustPassThrough[r.Target]) > 0
	})
}

func (c *coverage) add(history []engine.HistoryEntry) {
	for _, e := range history {
		at := e.From + "." + e.Action
		switch {
		case e.Kind == record.Started, e.Kind == record.Advanced:
			c.states.reach(e.To)
			c.transitions.reach(at)
		case e.Outcome != judge.Approve && e.DecidedBy != judge.LayerTransition:
			c.refusals.reach(at)
		}
		for _, op := range e.Opinions {
			if op.Layer != judge.LayerScript {
				continue
			}
			if op.Outcome == judge.Approve {
				c.validators.reach(at + " agrees")
			} else {
				c.validators.reach(at + " refuses")
			}
		}
	}
}

func (c *coverage) result() Coverage {
	return Coverage{
		States: c.states.coveredShare(), Transitions: c.transitions.coveredShare(),
		Refusals: c.refusals.coveredShare(), Validators: c.validators.coveredShare(),
	}
}
