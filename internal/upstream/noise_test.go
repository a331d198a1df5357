package upstream

import (
	"strings"
	"testing"
)

// TestNoiseFailsNoCall shows that other output of a server is never treated as an answer, whatever it looks like.
func TestNoiseFailsNoCall(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for _, line := range []string{
		`recv {"method":"tools/call","params":{},"id":5}`,
		`{"jsonrpc":"2.0","params":` + deep + `,"method":"notifications/message"}`,
	} {
		_, err := parseFrame([]byte(line))
		if err == nil {
			t.Fatalf("%.60s is a frame", line)
		}
		if id, failure := explainUnreadable([]byte(line), err); failure != nil {
			t.Errorf("%.60s fails the call %q: %v", line, id, failure)
		}
	}
}
