package expose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Tool is a workflow or a chain as a separate tool.
type Tool struct {
	Name string
	// Workflow or Chain names the source; the other is "".
	Workflow, Chain string
	// Description is the description of the chain, or of the workflow with its comment and states.
	Description string
	// InputSchema is the schema of the start context or the input, always of type "object".
	InputSchema json.RawMessage
	// Wrapped reports that the context or input is the argument WrapKey.
	Wrapped bool
	Mode    Mode
	Wait    time.Duration // of an express call
}

// of returns the name of the source and whether it is a workflow or a chain.
func (t Tool) of() (name, noun string) {
	if t.Chain != "" {
		return t.Chain, nounChain
	}
	return t.Workflow, nounWorkflow
}

// Select returns the tools for the selected definitions and chains, by name. bad reports tools that are
// left out because their name collides with another one or with gavel's own tools. missing reports listed
// names that do not exist, and an empty selection.
func (c Config) Select(definitions []*workflow.Definition, chains []operation.Procedure) (tools []Tool, bad, missing document.Errors) {
	named := map[string][]Tool{}
	var workflowNames, chainNames []string
	for _, d := range definitions {
		workflowNames = append(workflowNames, d.Name)
		if mode, ok := c.selectNamed(d.Name, d.Tags, c.Workflows, true); ok {
			name := toolName(d.Name)
			schema, wrapped := inputSchema(d)
			named[name] = append(named[name], Tool{Name: name, Workflow: d.Name, Description: describeWorkflow(d), InputSchema: schema, Wrapped: wrapped, Mode: mode, Wait: c.Wait})
		}
	}
	for _, v := range chains {
		chainNames = append(chainNames, v.Name)
		if mode, ok := c.selectNamed(v.Name, v.Tags, c.Chains, c.TagKey != ""); ok {
			name := toolName(v.Name)
			schema, wrapped := chainSchema(v.InputSchema)
			named[name] = append(named[name], Tool{Name: name, Chain: v.Name, Description: truncateDescription(strings.TrimSpace(v.Description)), InputSchema: schema, Wrapped: wrapped, Mode: mode, Wait: c.Wait})
		}
	}
	own := ownNames()
	for name, same := range named {
		switch of, noun := same[0].of(); {
		case own[name]:
			bad = append(bad, c.issue(same[0], "the %s %q would be the tool %q, which is gavel's own; rename the %s, or do not expose it", noun, of, name, noun))
		case len(same) > 1:
			last, all := nameTools(same)
			bad = append(bad, c.issue(last, "%s would have the same tool name %q; rename or expose only one", all, name))
		default:
			tools = append(tools, same[0])
		}
	}
	sort.Slice(tools, func(i, j int) bool { return tools[i].Name < tools[j].Name })
	slices.SortFunc(bad, func(a, b *document.Issue) int { return cmp.Compare(a.Message, b.Message) })
	for _, w := range c.Workflows {
		if !slices.Contains(workflowNames, w.Name) {
			missing = append(missing, c.missing(Tool{Workflow: w.Name}, "no workflow of an operator has the name", workflowNames))
		}
	}
	for _, l := range c.Chains {
		if !slices.Contains(chainNames, l.Name) {
			missing = append(missing, c.missing(Tool{Chain: l.Name}, "no chain of the section chains has the name", chainNames))
		}
	}
	switch {
	case c.half != nil:
		i := c.issue(Tool{}, "%q alone is an incomplete filter, so nothing is exposed; add %q, or remove %q to select by name alone", c.halfKey, c.missingKey, c.halfKey)
		i.Path, i.Line, i.Column = c.half.Path(), c.half.Line, c.half.Column
		missing = append(missing, i)
	case c.section != nil && len(named) == 0 && missing == nil:
		missing = append(missing, c.issue(Tool{}, "no operator's workflow and no chain matches the section, so nothing is exposed"))
	}
	return tools, bad, missing
}

func (c Config) missing(t Tool, what string, names []string) *document.Issue {
	name, _ := t.of()
	i := c.issue(t, "%s %q", what, name)
	if i.Suggestion = document.Suggest(name, names); i.Suggestion != "" {
		i.Message += fmt.Sprintf("; did you mean %q?", i.Suggestion)
	}
	return i
}

// issue returns an issue at the place where a workflow or chain is listed, or at the section.
func (c Config) issue(t Tool, format string, args ...any) *document.Issue {
	at, list := c.section, c.Workflows
	name, noun := t.of()
	if noun == nounChain {
		list = c.Chains
	}
	if i := findListed(list, name); i >= 0 && list[i].node != nil {
		at = list[i].node
	}
	i := &document.Issue{Rule: document.RuleValue, Source: at.Source(), Path: at.Path(), Message: fmt.Sprintf(format, args...)}
	if at != nil {
		i.Line, i.Column = at.Line, at.Column
	}
	return i
}

// nameTools lists all sources of the same tool name. It returns the second one, where the collision is
// reported.
func nameTools(same []Tool) (second Tool, all string) {
	same = slices.Clone(same)
	sort.Slice(same, func(i, j int) bool {
		return cmp.Or(cmp.Compare(same[i].Workflow, same[j].Workflow), cmp.Compare(same[i].Chain, same[j].Chain)) < 0
	})
	var names, nouns []string
	for _, t := range same {
		name, noun := t.of()
		names, nouns = append(names, name), append(nouns, noun)
	}
	if first := nouns[0]; !slices.ContainsFunc(nouns, func(noun string) bool { return noun != first }) {
		return same[1], fmt.Sprintf("the %ss %s", first, strings.Join(names, " and "))
	}
	for i := range names {
		names[i] = fmt.Sprintf("the %s %s", nouns[i], names[i])
	}
	return same[1], strings.Join(names, " and ")
}

var underscores = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`_{2,}`) })

// toolName makes a workflow's name safe for tools. It never contains "__", which is used in the names of
// other servers' tools.
func toolName(workflow string) string {
	return underscores().ReplaceAllString(upstream.SafeName("", workflow), "_")
}

// ownNames holds the names of gavel's own tools, as toolName writes them.
var ownNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, op := range operation.All() {
		if op.Tool.Name != "" {
			names[toolName(op.Tool.Name)] = true
		}
	}
	return names
})

// Limits for descriptions, because every client puts them into its model's context.
const (
	maxDescription = 2000 // bytes, for each of description and comment
	maxStates      = 30
)

// describeWorkflow returns the description and comment of a definition, and its states in document order.
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
