package record_test

import (
	"errors"
	"fmt"
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

func TestDigestsOfScopes(t *testing.T) {
	d := record.NewDigester([]byte("a key"))
	scope := record.Scope{Purpose: "gavel/value/v1", Owner: "agent:ada", Workflow: "bank", Path: "/pin"}
	value := []byte(`"1234"`)
	seen := map[string]string{"unscoped": d.Digest(value)}
	for name, change := range map[string]func(*record.Scope){
		"the scope": func(*record.Scope) {}, "purpose": func(s *record.Scope) { s.Purpose = "gavel/review/v2" },
		"owner": func(s *record.Scope) { s.Owner = "agent:bob" }, "workflow": func(s *record.Scope) { s.Workflow = "guess" },
		"path": func(s *record.Scope) { s.Path = "/code" }, "moved": func(s *record.Scope) { s.Workflow, s.Path = "bank/", "pin" },
	} {
		s := scope
		change(&s)
		got := d.DigestIn(s, value)
		for other, was := range seen {
			if was == got {
				t.Errorf("%s and %s have one digest", name, other)
			}
		}
		seen[name] = got
		if salt, ok := record.IsDigest(got); !ok || salt != "" {
			t.Errorf("%s: %s is not recognised", name, got)
		}
		if !d.Matches(got, s, value) || d.Matches(seen["unscoped"], s, value) || d.Matches(got, s, []byte(`"1235"`)) || name != "the scope" && d.Matches(got, scope, value) {
			t.Errorf("%s: %s does not compare", name, got)
		}
	}
	// Stores hold digests that were made this way.
	if got, want := seen["the scope"], "hmac-sha256-v2:050e1c040742d815ac6fb1bc635aed1d70a4e012cc5fcb662c2dcd27c37b73c1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	salt := record.NewSalt()
	salted := d.Salt(salt, seen["the scope"])
	if got, ok := record.IsDigest(salted); !ok || got != salt || salted == d.Salt(record.NewSalt(), seen["the scope"]) || salted != d.Salt(salt, seen["the scope"]) {
		t.Errorf("salted: %s", salted)
	}
}

// A digester caches keys and drops them: each digest equals that of a new digester.
func TestDigestsOfManyScopes(t *testing.T) {
	d := record.NewDigester([]byte("a key"))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range 3000 {
				s := record.Scope{Purpose: "gavel/context/v1", Owner: fmt.Sprint(i % 1500), Workflow: "bank"}
				if got, want := d.DigestIn(s, []byte("{}")), record.NewDigester([]byte("a key")).DigestIn(s, []byte("{}")); got != want {
					t.Errorf("%v: got %s, want %s", s, got, want)
				}
			}
		})
	}
	wg.Wait()
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
