package face_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gavel-mcp/gavel/internal/mcp/face"
)

// TestTranscripts compares conversations on the wire byte for byte. Each file of an archive is one conversation with
// a new server: "> " is what the client sends, "< " the response, "# " a comment. A line "= ROLE" continues with
// another client of that role over the same store; this client can resolve reviews. -update rewrites the responses.
func TestTranscripts(t *testing.T) {
	archives, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range archive.Files {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar")+"/"+f.Name, func(t *testing.T) {
				got := converse(t, f)
				if !*update {
					sameLines(t, string(got), string(f.Data))
				}
				archive.Files[i].Data = got
			})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func sameLines(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("line %d went otherwise; read the difference after -update\ngot  %s\nwant %s",
				i+1, strings.Join(g[min(i, len(g)):min(i+1, len(g))], ""), strings.Join(w[min(i, len(w)):min(i+1, len(w))], ""))
		}
	}
}

// sandboxGaps matches the list of sandbox features that the test machine lacks, in both encodings.
var sandboxGaps = regexp.MustCompile(`,\\*"sandbox\\*":\[[^\]]*\]`)

// converse plays the client's lines and records the responses. The name of a file may end with the style of tool
// names: "x.underscore".
func converse(t *testing.T, f txtar.File) []byte {
	t.Helper()
	style := face.ToolNames(strings.TrimPrefix(filepath.Ext(f.Name), "."))
	configure := func(c *face.Config) {
		c.Limits.MaxLine = 1 << 14
		if style != "" {
			c.ToolNames = style
		}
	}
	e := newEngine(t, withReviews)
	w := serve(t, e, configure)
	var out bytes.Buffer
	for i, line := range strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n") {
		said, isRequest := strings.CutPrefix(line, "> ")
		if strings.HasPrefix(line, "< ") {
			continue
		}
		out.WriteString(line + "\n")
		if role, ok := strings.CutPrefix(line, "= "); ok {
			w.end()
			w = serve(t, e, configure, withReviewTools, as(role))
		}
		if !isRequest {
			continue
		}
		w.send(said)
		for _, answer := range w.answers(said, fmt.Sprintf("sync-%d", i)) {
			out.WriteString("< " + sandboxGaps.ReplaceAllString(answer, "") + "\n")
		}
	}
	w.end()
	return out.Bytes()
}

// answers returns the responses to one line: for a request, everything up to its answer; otherwise, everything up to
// the answer to a following ping.
func (w *session) answers(said, sync string) []string {
	w.t.Helper()
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if json.Unmarshal([]byte(said), &m) == nil && m.Method != "" && len(m.ID) > 0 {
		return []string{string(w.nextLine())}
	}
	w.send(`{"jsonrpc":"2.0","id":"` + sync + `","method":"ping"}`)
	var out []string
	for {
		line := w.nextLine()
		if bytes.Contains(line, []byte(`"id":"`+sync+`"`)) {
			return out
		}
		out = append(out, string(line))
	}
}
