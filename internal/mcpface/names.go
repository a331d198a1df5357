package mcpface

import "strings"

// ToolNames is the style in which tools are listed. Calls are accepted in both.
type ToolNames string

// The styles. Auto lists underscores for clients known to refuse dots.
const (
	Auto       ToolNames = "auto"
	Dotted     ToolNames = "dotted"
	Underscore ToolNames = "underscore"
)

func (n ToolNames) known() bool { return n == Auto || n == Dotted || n == Underscore }

// dotless are words in the client names of those that refuse a whole request
// when one tool's name has a dot (barryw/ImmichMCP#4, github/copilot-cli#2581,
// openai/codex#8174).
var dotless = []string{"claude-ai", "claude-desktop", "copilot", "codex"}

func refusesDots(client string) bool {
	client = strings.ToLower(client)
	for _, word := range dotless {
		if strings.Contains(client, word) {
			return true
		}
	}
	return false
}

// underscored is a tool's name without dots.
func underscored(name string) string { return strings.ReplaceAll(name, ".", "_") }

// canonicalName is the dotted name of a tool called in either style; an unknown
// name stays as it is.
func canonicalName(name string) string {
	if dotted, ok := byUnderscore[name]; ok {
		return dotted
	}
	return name
}

var byUnderscore = func() map[string]string {
	m := map[string]string{}
	for _, t := range tools {
		m[underscored(t.name)] = t.name
	}
	return m
}()
