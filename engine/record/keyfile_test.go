package record_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
)

// A saved key is read back, and never replaces another key.
func TestKeyIsSaved(t *testing.T) {
	dir := t.TempDir()
	key, other := bytes.Repeat([]byte{0xab}, 32), bytes.Repeat([]byte{0xcd}, 32)
	older := filepath.Join(dir, "older", "gavel.key")
	if err := errors.Join(os.Mkdir(filepath.Dir(older), 0o700), os.WriteFile(older, []byte(strings.Repeat("ab", 32)+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "new", "gavel.key"), older} {
		if err := record.SaveKey(path, key); err != nil {
			t.Fatal(err)
		}
		if err := record.SaveKey(path, other); !errors.Is(err, record.ErrKeyFile) {
			t.Errorf("another key over it: %v", err)
		}
		if read, err := record.LoadOrCreateKey(path); err != nil || !bytes.Equal(read, key) {
			t.Errorf("the key is %x, %v", read, err)
		}
	}
}
