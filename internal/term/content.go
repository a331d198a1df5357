package term

import (
	"bytes"
	"encoding/json"
	"strings"
)

// PrintBlock prints text that did not come from gavel. Each line starts with a bar, so that the text cannot
// imitate gavel's output.
func (t *Terminal) PrintBlock(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		t.Printf("  | %s\n", strings.TrimRight(line, "\n"))
	}
}

// PrintContent prints a source's response: multi-line output or a multi-line body as text, everything else as
// JSON.
func (t *Terminal) PrintContent(raw json.RawMessage) {
	var parts map[string]json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		t.PrintBlock(IndentJSON(raw))
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
		t.PrintBlock(IndentJSON(rest))
		t.Printf("%s\n", key)
		t.PrintBlock(text)
		return
	}
	t.PrintBlock(IndentJSON(raw))
}

// IndentJSON indents JSON and keeps its order.
func IndentJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
