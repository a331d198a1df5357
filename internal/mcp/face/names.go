package face

import (
	"context"
	"strings"

	"github.com/gavel-mcp/gavel/internal/mcp/wire"
)

// ToolNames is the style of tool names in lists. Calls are accepted in both styles.
type ToolNames string

// The styles. Auto lists underscores for clients that are known to reject dots.
const (
	Auto       ToolNames = "auto"
	Dotted     ToolNames = "dotted"
	Underscore ToolNames = "underscore"
)

func (n ToolNames) isKnown() bool { return n == Auto || n == Dotted || n == Underscore }

// clientsWithoutDots lists words in client names. These clients omit a tool with a dot in its name, or reject the whole request
// because of it:
//   - Claude Desktop (barryw/ImmichMCP#4)
//   - Copilot in its CLI and in JetBrains' editors (github/copilot-cli#2581)
//   - Codex (openai/codex#8174)
//   - Cursor (bavix/gripmock#875, webstudio-is/webstudio#5960)
//   - the AI SDK's client, which passes names to the provider unchanged
var clientsWithoutDots = []string{"claude-ai", "claude-desktop", "claude desktop", "copilot", "codex", "cursor", "ai-sdk"}

func rejectsDots(client string) bool {
	client = strings.ToLower(client)
	for _, word := range clientsWithoutDots {
		if strings.Contains(client, word) {
			return true
		}
	}
	return false
}

// underscores reports whether the client of a request gets tool names with underscores. An unidentified client over
// HTTP gets underscores, because all clients accept them.
func (f *Face) underscores(ctx context.Context) bool {
	if f.cfg.ToolNames != Auto {
		return f.cfg.ToolNames == Underscore
	}
	c := wire.ClientOf(ctx)
	return rejectsDots(c.Name) || c.Remote && c.Name == ""
}

// styleNames converts the tool names in a text to the client's style.
func (f *Face) styleNames(ctx context.Context, text string) string {
	if f.underscores(ctx) {
		return f.rewriter.Replace(text)
	}
	return text
}

// underscoreName returns a tool's name with underscores instead of dots.
func underscoreName(name string) string { return strings.ReplaceAll(name, ".", "_") }
