package record_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
)

func TestDerivedKeysAreIndependent(t *testing.T) {
	master := bytes.Repeat([]byte{7}, 32)
	keys := map[string]string{}
	for name, key := range map[string][]byte{
		"no part":        record.DeriveKey(master, "gavel/a/v1"),
		"another":        record.DeriveKey(master, "gavel/b/v1"),
		"an empty part":  record.DeriveKey(master, "gavel/a/v1", ""),
		"two parts":      record.DeriveKey(master, "gavel/a/v1", "x", "y"),
		"joined":         record.DeriveKey(master, "gavel/a/v1", "xy"),
		"split":          record.DeriveKey(master, "gavel/a/v1", "", "xy"),
		"in the purpose": record.DeriveKey(master, "gavel/a/v1xy"),
		"another master": record.DeriveKey(bytes.Repeat([]byte{8}, 32), "gavel/a/v1"),
		"the master":     master,
	} {
		if len(key) != 32 {
			t.Errorf("%s: %d bytes", name, len(key))
		}
		if other, dup := keys[string(key)]; dup {
			t.Errorf("%s and %s have the same key", name, other)
		}
		keys[string(key)] = name
	}
}

// Stores hold data under derived keys; another derivation would lose it.
func TestDerivedKeyStaysTheSame(t *testing.T) {
	got := hex.EncodeToString(record.DeriveKey(bytes.Repeat([]byte{7}, 32), "gavel/a/v1", "x", "y"))
	if want := "e2fbc8cbdb7901909eae0625cfa8aedb5698b894308b835857709e5cc9f638f7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
