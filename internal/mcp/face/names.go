package face

import (
	"context"
	"strings"

	"github.com/gavel-mcp/gavel/internal/mcp/wire"
)

// ToolNames is the style in which tools are listed. Calls are accepted in both.
type ToolNames string

// The styles. Auto lists underscores for clients known to refuse dots.
const (
	Auto       ToolNames = "auto"
	Dotted     ToolNames = "dotted"
	Underscore ToolNames = "underscore"
)

func (n ToolNames) isKnown() bool { return n == Auto || n == Dotted || n == Underscore }

// dotless are words in the names of clients that refuse a whole request for one
// tool with a dot in its name, or leave the tool out: Claude Desktop
// (barryw/ImmichMCP#4), Copilot in its CLI and JetBrains' editors
// (github/copilot-cli#2581), Codex (openai/codex#8174), Cursor
// (bavix/gripmock#875, webstudio-is/webstudio#5960), and the AI SDK's client,
// which hands names to the provider as they are.
var dotless = []string{"claude-ai", "claude-desktop", "claude desktop", "copilot", "codex", "cursor", "ai-sdk"}

func refusesDots(client string) bool {
	client = strings.ToLower(client)
	for _, word := range dotless {
		if strings.Contains(client, word) {
			return true
		}
	}
	return false
}

// underscores reports whether the client of a request sees tool names with underscores. One that does
// not say who it is may be any, over HTTP, and underscores suit all.
func (f *Face) underscores(ctx context.Context) bool {
	if f.cfg.ToolNames != Auto {
		return f.cfg.ToolNames == Underscore
	}
	c := wire.ClientOf(ctx)
	return refusesDots(c.Name) || c.Remote && c.Name == ""
}

// styleNames puts the names of tools in a text into the client's style.
func (f *Face) styleNames(ctx context.Context, text string) string {
	if f.underscores(ctx) {
		return f.rewriter.Replace(text)
	}
	return text
}

// underscoreName is a tool's name without dots.
func underscoreName(name string) string { return strings.ReplaceAll(name, ".", "_") }
