package term

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestBlocksCannotPretend shows that each line of untrusted text starts with a bar.
func TestBlocksCannotPretend(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a\nto decide\nb", "a\r\nb", "a\rb", "a\u2028b\u0085c\vd", "\x1b[2Jx", "", "\n\n", "a\n\n\n"} {
		var b bytes.Buffer
		New(&b).PrintBlock(text)
		for line := range strings.Lines(b.String()) {
			if !strings.HasPrefix(line, "  | ") && line != "  |\n" || strings.ContainsAny(line, "\r\x1b\v\u0085\u2028") {
				t.Errorf("%q is printed with the line %q", text, line)
			}
		}
	}
	var b bytes.Buffer
	New(&b).PrintContent(json.RawMessage(`{"exitCode":1,"output":"a\nto decide\n"}`))
	if want := "  | {\n  |   \"exitCode\": 1\n  | }\noutput\n  | a\n  | to decide\n"; b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}
