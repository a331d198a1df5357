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

// A key file of an older version is marked once; its key stays what it was.
func TestKeyFileIsMarked(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gavel.key")
	if err := os.WriteFile(path, []byte(strings.Repeat("ab", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := record.LoadOrCreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if marked, err := record.KeySealsRules(path); err != nil || marked {
		t.Fatalf("marked %v, %v", marked, err)
	}
	for range 2 {
		if err := record.MarkKeySealsRules(path); err != nil {
			t.Fatal(err)
		}
		if marked, err := record.KeySealsRules(path); err != nil || !marked {
			t.Fatalf("marked %v, %v", marked, err)
		}
	}
	if after, err := record.LoadOrCreateKey(path); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("the key is %x, %v", after, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("ab", 32)+"\nsomething else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := record.KeySealsRules(path); !errors.Is(err, record.ErrKeyFile) {
		t.Errorf("another mark: %v", err)
	}
}

// A new key is marked from the beginning: no older store can have used it.
func TestNewKeyIsMarked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gavel.key")
	if _, err := record.LoadOrCreateKey(path); err != nil {
		t.Fatal(err)
	}
	if marked, err := record.KeySealsRules(path); err != nil || !marked {
		t.Errorf("marked %v, %v", marked, err)
	}
}
