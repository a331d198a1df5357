package admin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
)

func TestPublicKeysOfAFile(t *testing.T) {
	t.Parallel()
	var lines []string
	for range 2 {
		key, err := record.GenerateSigner("test")
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, key.Verifier().String())
	}
	path := filepath.Join(t.TempDir(), "keys")
	for text, want := range map[string]int{
		lines[0]: 1, "# the old one\n" + strings.Join(lines, "\n\n") + "\n": 2, "": -1, "# nothing\n": -1, lines[0] + "\nx\n": -1,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := readVerifiers([]string{path})
		if want < 0 && err == nil || want >= 0 && (err != nil || len(keys) != want) {
			t.Errorf("%q: %d keys, %v", text, len(keys), err)
		}
	}
}
