package record_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
)

func TestDigestIsKeyedHMAC(t *testing.T) {
	// RFC 4231, test case 2.
	got := record.NewDigester([]byte("Jefe")).Digest([]byte("what do ya want for nothing?"))
	want := "hmac-sha256:5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	key := []byte("a key")
	d := record.NewDigester(key)
	before := d.Digest([]byte("v"))
	key[0] = 'b'
	if d.Digest([]byte("v")) != before {
		t.Error("the digester shares its key with the caller")
	}
}

func TestKeyIsCreatedOnceByMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "digest.key")
	keys := make([]string, 16)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			key, err := record.LoadOrCreateKey(path)
			if err != nil || len(key) != 32 {
				t.Errorf("a key of %d bytes, %v", len(key), err)
			}
			keys[i] = string(key)
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k != keys[0] {
			t.Fatal("two callers got different keys")
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o, want 600", info.Mode().Perm())
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestKeyFileIsRefused(t *testing.T) {
	write := func(text string, mode os.FileMode) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return err
			}
			return os.Chmod(path, mode)
		}
	}
	good := strings.Repeat("ab", 32) + "\n"
	tests := map[string]struct {
		prepare func(string) error
		ok      bool
	}{
		"readable by the group": {write(good, 0o640), runtime.GOOS == "windows"},
		"readable by all":       {write(good, 0o604), runtime.GOOS == "windows"},
		"too short":             {write("abcd\n", 0o600), false},
		"empty":                 {write("", 0o600), false},
		"no hex":                {write(strings.Repeat("zz", 32), 0o600), false},
		"a directory":           {func(p string) error { return os.Mkdir(p, 0o700) }, false},
		"a good one":            {write(good, 0o600), true},
		"a read-only one":       {write(good, 0o400), true},
	}
	for name, tt := range tests {
		path := filepath.Join(t.TempDir(), "digest.key")
		if err := tt.prepare(path); err != nil {
			t.Fatal(err)
		}
		_, err := record.LoadOrCreateKey(path)
		if tt.ok != (err == nil) || (!tt.ok && !errors.Is(err, record.ErrKeyFile)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
