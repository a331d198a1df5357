package expose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Tool is a workflow as a tool of its own.
type Tool struct {
	Name     string
	Workflow string
	// Description is the workflow's, with its comment and its states.
	Description string
	// InputSchema is that of the start context, always of type "object".
	InputSchema json.RawMessage
	Mode        Mode
	Wait        time.Duration // of an express call
}

// Select returns the tools of the definitions that the Config selects, by name. bad names those
// that are left out, because two have one name or one has the name of a tool of gavel's own;
// missing are the listed workflows that are not among the definitions, or that none is selected.
func (c Config) Select(definitions []*workflow.Definition) (tools []Tool, bad, missing document.Errors) {
	named := map[string][]Tool{}
	var names []string
	for _, d := range definitions {
		names = append(names, d.Name)
		mode, ok := c.selectMode(d)
		if !ok {
			continue
		}
		t := Tool{Name: toolName(d.Name), Workflow: d.Name, Description: describeWorkflow(d), InputSchema: inputSchema(d), Mode: mode, Wait: c.Wait}
		named[t.Name] = append(named[t.Name], t)
	}
	own := ownNames()
	for name, same := range named {
		switch of := same[0].Workflow; {
		case own[name]:
			bad = append(bad, c.issue(of, "the workflow %q would be the tool %q, which is gavel's own; rename the workflow, or do not expose it", of, name))
		case len(same) > 1:
			all := workflowsOf(same)
			bad = append(bad, c.issue(all[1], "the workflows %s would all be the tool %q; rename or expose only one of them", strings.Join(all, " and "), name))
		default:
			tools = append(tools, same[0])
		}
	}
	slices.SortFunc(tools, func(a, b Tool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(bad, func(a, b *document.Issue) int { return cmp.Compare(a.Message, b.Message) })
	for _, w := range c.Workflows {
		if slices.Contains(names, w.Name) {
			continue
		}
		i := c.issue(w.Name, "no workflow of an operator has the name %q", w.Name)
		if i.Suggestion = document.Suggest(w.Name, names); i.Suggestion != "" {
			i.Message += fmt.Sprintf("; did you mean %q?", i.Suggestion)
		}
		missing = append(missing, i)
	}
	if c.section != nil && len(named) == 0 && missing == nil {
		missing = append(missing, c.issue("", "no workflow of an operator has what the section asks for, so nothing is exposed"))
	}
	return tools, bad, missing
}

// issue is at the place where a workflow is listed, or at the section.
func (c Config) issue(workflow, format string, args ...any) *document.Issue {
	at := c.section
	if i := slices.IndexFunc(c.Workflows, func(w Workflow) bool { return w.Name == workflow && w.node != nil }); i >= 0 {
		at = c.Workflows[i].node
	}
	i := &document.Issue{Rule: document.RuleValue, Source: at.Source(), Path: at.Path(), Message: fmt.Sprintf(format, args...)}
	if at != nil {
		i.Line, i.Column = at.Line, at.Column
	}
	return i
}

func workflowsOf(tools []Tool) (names []string) {
	for _, t := range tools {
		names = append(names, t.Workflow)
	}
	slices.Sort(names)
	return names
}

var underscores = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`_{2,}`) })

// toolName makes a workflow's name safe. It never holds "__", with which the tools of other
// servers are named.
func toolName(workflow string) string {
	return underscores().ReplaceAllString(upstream.SafeName("", workflow), "_")
}

// ownNames are the names of gavel's own tools, in the characters of toolName.
var ownNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, op := range operation.All() {
		if op.Tool.Name != "" {
			names[toolName(op.Tool.Name)] = true
		}
	}
	return names
})

// The bounds of a description, which every client puts before its model.
const (
	maxDescription = 2000 // bytes of the description and of the comment, each
	maxStates      = 30
)

// describeWorkflow is what a definition says of itself, and its states in the order of the document.
func describeWorkflow(d *workflow.Definition) string {
	var parts []string
	for _, text := range []string{d.Description, d.Comment} {
		if text = strings.TrimSpace(text); text != "" && !slices.Contains(parts, text) {
			parts = append(parts, truncateDescription(text))
		}
	}
	var states []string
	for _, name := range d.StateNames {
		s := d.States[name]
		switch {
		case name == d.InitialState:
			name += " (first)"
		case s.Final && s.Outcome != "":
			name += fmt.Sprintf(" (final, %s)", s.Outcome)
		case s.Final:
			name += " (final)"
		}
		states = append(states, name)
	}
	if more := len(states) - maxStates; more > 0 {
		states = append(states[:maxStates], fmt.Sprintf("and %d more", more))
	}
	parts = append(parts, fmt.Sprintf("States of the workflow %s: %s.", d.Name, strings.Join(states, ", ")))
	if paths := slices.DeleteFunc(d.StartFields(), func(field string) bool { return !strings.ContainsAny(field, "./") }); len(paths) > 0 {
		parts = append(parts, fmt.Sprintf("A start requires %s.", strings.Join(paths, ", ")))
	}
	return strings.Join(parts, "\n\n")
}

func truncateDescription(text string) string {
	if len(text) <= maxDescription {
		return text
	}
	return strings.ToValidUTF8(text[:maxDescription], "") + "..."
}
