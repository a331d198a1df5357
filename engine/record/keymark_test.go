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

// A saved key is read back, and takes the place of no other one.
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
		if marked, err := record.KeySealsRules(path); err != nil || !marked {
			t.Errorf("marked %v, %v", marked, err)
		}
	}
}
