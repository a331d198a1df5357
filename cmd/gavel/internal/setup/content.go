package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/internal/term"
)

// SizeRows returns the table rows for the size and digest of a content.
func SizeRows(bytes int, truncated bool, digest string) [][]string {
	size := fmt.Sprintf("%d bytes", bytes)
	if truncated {
		size += ", shortened"
	}
	return [][]string{{"size", size}, {"digest", digest}}
}

// PrintBlock prints text that did not come from gavel. Each line starts with a bar, so that the text cannot
// imitate gavel's output.
func PrintBlock(out *term.Terminal, text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		out.Printf("  | %s\n", strings.TrimRight(line, "\n"))
	}
}

// PrintContent prints a source's response: multi-line output or a multi-line body as text, everything else as
// JSON.
func PrintContent(out *term.Terminal, raw json.RawMessage) {
	var parts map[string]json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		PrintBlock(out, IndentJSON(raw))
		return
	}
	for _, key := range []string{"output", "body"} { // the text fields of command and HTTP sources
		var text string
		if json.Unmarshal(parts[key], &text) != nil || !strings.Contains(text, "\n") {
			continue
		}
		delete(parts, key)
		rest, err := json.Marshal(parts)
		if err != nil {
			break
		}
		PrintBlock(out, IndentJSON(rest))
		out.Printf("%s\n", key)
		PrintBlock(out, text)
		return
	}
	PrintBlock(out, IndentJSON(raw))
}

// IndentJSON indents JSON and keeps its order.
func IndentJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// FormatBool formats a bool as yes or no.
func FormatBool(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
