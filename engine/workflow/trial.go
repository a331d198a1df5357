package workflow

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Trier runs scripts once, on data that a definition allows; *validators.Compiler implements it.
type Trier interface {
	Try(ctx context.Context, b script.Batch) ([]validators.Problem, error)
}

// maxTrial limits the total time of the trials of one definition.
const maxTrial = time.Second

// sample is the value of required fields without a schema; many is for plural names such as "items".
type sample struct{ single, many string }

// samples are tried in this order: most data are strings and lists.
var samples = []sample{
	{`"text"`, `[{}]`}, {`"text"`, `["text"]`}, {`"text"`, `"text"`}, {`1`, `1`}, {`[{}]`, `[{}]`}, {`{}`, `{}`}, {`true`, `true`},
}

func (f sample) valueOf(name string) json.RawMessage {
	if strings.HasSuffix(name, "s") {
		return json.RawMessage(f.many)
	}
	return json.RawMessage(f.single)
}

// tryScripts finds the scripts that compile but give no answer on the least data that a move can
// have: {} if nothing is required, else only the required fields. It reports no script that
// answers for some value of a field, and no failure of the sandbox itself.
func (d *Definition) tryScripts(ctx context.Context, o LintOptions, known []problem) []problem {
	trier, ok := o.Compiler.(Trier)
	if !ok || !o.Try {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxTrial)
	defer cancel()
	bad := map[string]bool{}
	for _, p := range known {
		bad[p.path] = true
	}
	var promised []requirements
	d.visitTransitions(func(_ *State, t *Transition) { promised = append(promised, requirements{t.RequiredFields, t.Schema}) })
	for _, v := range d.StateValidators {
		promised = append(promised, requirements{v.RequiredFields, v.Schema})
	}
	promised = append(promised, requirements{nil, d.InputSchema})
	var out []problem
	d.visitTransitions(func(s *State, t *Transition) {
		scripts := slices.DeleteFunc(d.listScripts(s, t), func(s script.Script) bool { return bad[s.Name] })
		of := requirements{t.RequiredFields, t.Schema}
		var found []validators.Problem
		for _, fill := range samples {
			if len(scripts) == 0 {
				break
			}
			var err error
			found, err = trier.Try(ctx, script.Batch{
				Caller: o.Owner.ID, Owner: o.Owner, Validators: scripts,
				Data: sampleDocument(fill, of), Context: sampleDocument(fill, promised...), Evidence: t.sampleEvidence(),
			})
			if err != nil {
				return
			}
			// Scripts that answered are fine; the others are tried on the next sample.
			scripts = slices.DeleteFunc(scripts, func(s script.Script) bool {
				return !slices.ContainsFunc(found, func(p validators.Problem) bool { return p.Part == s.Name })
			})
		}
		for _, p := range found {
			bad[p.Part] = true // report a keyed script once
			on := "the data {}"
			if names := listPromisedFields(of.fields, of.schema); len(names) > 0 {
				on = "data with " + quoteNames(names) + " alone"
			}
			out = append(out, problem{throwingScript, p.Part, "on " + on + " the script gives no answer, which would refuse the move as a fault of the workflow: " + p.Message})
		}
	})
	return out
}

// listScripts returns the validators and conditions of a transition, named after their places.
func (d *Definition) listScripts(s *State, t *Transition) []script.Script {
	var out []script.Script
	add := func(kind script.Kind, at, source string) {
		if source != "" {
			out = append(out, script.Script{Name: at, Kind: kind, Source: source})
		}
	}
	add(script.Validator, transitionPath(s.Name, t.Action)+"/validator", t.Validator)
	for _, key := range []string{t.Action, s.Name + "." + t.Action} {
		add(script.Validator, joinPointer("/transitionValidators", key), d.TransitionValidators[key])
	}
	out = append(out, listConditions(&t.Judge, transitionPath(s.Name, t.Action))...)
	out = append(out, listConditions(d.Judge, "/judgeConfig")...)
	if t.Conditional() {
		for i, r := range t.Routes {
			add(script.Condition, d.routePath(s, t, i, "condition"), r.Condition)
		}
	}
	return out
}

// requirements is what a document must contain.
type requirements struct {
	fields []string
	schema json.RawMessage
}

// sampleDocument returns a document with only the required fields, filled according to their schemas.
func sampleDocument(f sample, of ...requirements) json.RawMessage {
	top := map[string]any{}
	for _, p := range of {
		if sample, ok := sampleValue(p.schema, "", f).(map[string]any); ok && len(p.schema) > 0 {
			maps.Copy(top, sample)
		}
		var s struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		_ = json.Unmarshal(p.schema, &s) // leaves Properties empty if the schema has none
		for _, field := range p.fields {
			tokens, err := splitPointer(field)
			if err != nil {
				tokens = strings.Split(field, ".")
			}
			into, known := top, s.Properties[tokens[0]]
			if len(tokens) > 1 {
				known = nil
			}
			for _, token := range tokens[:len(tokens)-1] {
				next, ok := into[token].(map[string]any)
				if !ok {
					next = map[string]any{}
					into[token] = next
				}
				into = next
			}
			if last := tokens[len(tokens)-1]; into[last] == nil {
				into[last] = sampleValue(known, last, f)
			}
		}
	}
	out, err := json.Marshal(top)
	if err != nil {
		return nil // an invalid literal in the schema; {} is tried
	}
	return out
}

// sampleValue returns a value that a schema of the usual form accepts, else one of the fill.
func sampleValue(raw json.RawMessage, name string, f sample) any {
	var s struct {
		Type       string                     `json:"type"`
		Const      json.RawMessage            `json:"const"`
		Enum       []json.RawMessage          `json:"enum"`
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
		Items      json.RawMessage            `json:"items"`
		MinItems   int                        `json:"minItems"`
	}
	if json.Unmarshal(raw, &s) != nil {
		return f.valueOf(name)
	}
	switch {
	case s.Const != nil:
		return s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type == "object" || len(s.Required) > 0:
		out := map[string]any{}
		for _, name := range s.Required {
			out[name] = sampleValue(s.Properties[name], name, f)
		}
		return out
	case s.Type == "array":
		return slices.Repeat([]any{sampleValue(s.Items, name, f)}, min(max(s.MinItems, 0), 100))
	case s.Type == "string":
		return "text"
	case s.Type == "number", s.Type == "integer":
		return 1
	case s.Type == "boolean":
		return true
	}
	return f.valueOf(name)
}

// sampleEvidence returns the answer of sources that succeed with little content.
func (t *Transition) sampleEvidence() json.RawMessage {
	out := map[string]any{}
	for _, e := range t.Evidence {
		out[e.Name] = map[string]any{"exitCode": 0, "output": "", "result": map[string]any{}, "status": 200, "body": map[string]any{}}
	}
	sample, _ := json.Marshal(out) // strings and numbers always encode
	return sample
}
