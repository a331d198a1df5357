package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

func open(t *testing.T, path string) *Tokens {
	t.Helper()
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func create(t *testing.T, tokens *Tokens, n NewToken) (string, Token) {
	t.Helper()
	if n.Role == "" {
		n.Role = engine.RoleAgent
	}
	bearers, made, err := tokens.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	return bearers[0], made[0]
}

// TestListOrder checks that the oldest come first, and tokens of the same second are sorted by name.
func TestListOrder(t *testing.T) {
	t.Parallel()
	tokens := open(t, filepath.Join(t.TempDir(), TokensFile))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tokens.now = func() time.Time { return at }
	var asked []NewToken
	for _, name := range []string{"h", "c", "a", "g", "b", "e", "d", "f"} {
		asked = append(asked, NewToken{Name: name, Role: engine.RoleAgent})
	}
	if _, _, err := tokens.Create(asked...); err != nil {
		t.Fatal(err)
	}
	at = at.Add(-time.Hour)
	create(t, tokens, NewToken{Name: "z"})
	all, err := tokens.List()
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, token := range all {
		names += token.Name
	}
	if names != "zabcdefgh" {
		t.Errorf("the order is %s", names)
	}
}

// TestTwoProcesses checks that changes by one opener of a file are immediately visible to another.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", TokensFile)
	server, command := open(t, path), open(t, path)
	bearer, token := create(t, command, NewToken{Name: "ci", Role: engine.RoleReviewer, Workflows: " deploy  refund-* "})
	got, err := server.Authenticate(t.Context(), bearer)
	want := Identity{Principal: engine.Principal{ID: "token:ci", Role: engine.RoleReviewer, Workflows: "deploy refund-*"}, Kind: KindToken, Credential: token.ID}
	if err != nil || got != want {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	if err := server.RecordUse(); err != nil {
		t.Fatal(err)
	}
	if all, err := command.List(); err != nil || len(all) != 1 || all[0].LastUsed == nil {
		t.Errorf("%+v, %v: the last use is not known", all, err)
	}
	if revoked, err := command.Revoke(token.ID); err != nil || revoked.Status(time.Now()) != "revoked" {
		t.Fatal(revoked, err)
	}
	if _, err := server.Authenticate(t.Context(), bearer); !errors.Is(err, ErrBadCredential) {
		t.Errorf("revoked, and %v", err)
	}
	if err := command.Forget(token.ID); err != nil {
		t.Fatal(err)
	}
	if all, err := server.List(); err != nil || len(all) != 0 {
		t.Errorf("forgotten, and %v %v", all, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Authenticate(t.Context(), bearer); !errors.Is(err, ErrBadCredential) {
		t.Errorf("without a file: %v", err)
	}
}

// TestNothingSecretIsKept checks that the file contains only digests, and that only its owner may read it.
func TestNothingSecretIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), TokensFile)
	bearer, token := create(t, open(t, path), NewToken{Name: "a"})
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimPrefix(bearer, "gvl_"+token.ID+"_")
	if len(secret) != 43 || strings.Contains(string(raw), secret) || !strings.Contains(string(raw), token.ID) {
		t.Errorf("%q is in\n%s", secret, raw)
	}
	if info, err := os.Stat(path); err != nil || (runtime.GOOS != "windows" && info.Mode().Perm() != 0o600) {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestRefusedTokens(t *testing.T) {
	t.Parallel()
	tokens := open(t, "")
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tokens.now = func() time.Time { return now }
	good, token := create(t, tokens, NewToken{Name: "a", Expires: now.Add(time.Hour)})
	other, _ := create(t, tokens, NewToken{Name: "b"})
	if id, err := tokens.Authenticate(t.Context(), good); err != nil || !id.Expires.Equal(now.Add(time.Hour)) {
		t.Fatal(id, err)
	}
	_, otherSecret, _ := strings.Cut(strings.TrimPrefix(other, "gvl_"), "_")
	for name, bearer := range map[string]string{
		"another's secret": "gvl_" + token.ID + "_" + otherSecret,
		"unknown":          "gvl_0000000000000000_" + otherSecret,
		"cut short":        good[:len(good)-1],
		"longer":           good + "A",
		"last letter":      good[:len(good)-1] + map[bool]string{true: "A", false: "E"}[strings.HasSuffix(good, "E")],
		"prefix only":      "gvl_",
		"digest":           token.Digest,
		"capitals":         strings.ToUpper(good),
		"JWT":              "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.",
	} {
		if _, err := tokens.Authenticate(t.Context(), bearer); !errors.Is(err, ErrBadCredential) || strings.Contains(err.Error(), bearer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tokens.Authenticate(t.Context(), ""); !errors.Is(err, ErrNoCredential) {
		t.Errorf("none: %v", err)
	}
	now = now.Add(time.Hour)
	if _, err := tokens.Authenticate(t.Context(), good); !errors.Is(err, ErrBadCredential) {
		t.Errorf("expired: %v", err)
	}
}

func TestNewTokens(t *testing.T) {
	t.Parallel()
	tokens := open(t, "")
	for name, n := range map[string]NewToken{
		"no name":         {Role: engine.RoleAgent},
		"name":            {Name: "a b", Role: engine.RoleAgent},
		"no role":         {Name: "a"},
		"role":            {Name: "a", Role: "root"},
		"local principal": {Name: "a", Role: engine.RoleAgent, Principal: "local:cli"},
		"Local principal": {Name: "a", Role: engine.RoleAgent, Principal: "LOCAL:operator"},
		"control":         {Name: "a", Role: engine.RoleAgent, Principal: "a\x1b[2J"},
		"turned around":   {Name: "a", Role: engine.RoleAgent, Principal: "a\u202eb"},
		"long":            {Name: "a", Role: engine.RoleAgent, Principal: strings.Repeat("x", 201)},
		"workflows":       {Name: "a", Role: engine.RoleAgent, Workflows: "fine not/fine"},
		"over":            {Name: "a", Role: engine.RoleAgent, Expires: time.Now().Add(-time.Second)},
	} {
		if _, _, err := tokens.Create(n); !errors.Is(err, ErrBadToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := tokens.List(); err != nil || len(all) != 0 {
		t.Errorf("%v %v", all, err)
	}
	if _, _, err := tokens.Create(NewToken{Name: "a", Role: engine.RoleAgent}, NewToken{Name: "b"}); err == nil {
		t.Error("half of what was asked was made")
	}
	if all, _ := tokens.List(); len(all) != 0 {
		t.Errorf("half of what was asked was kept: %v", all)
	}
	first := NewToken{Name: "first", Role: engine.RoleAgent, Principal: "local:agent", Local: true}
	for want := 1; want >= 0; want-- {
		if _, made, err := tokens.CreateFirst(first); err != nil || len(made) != want {
			t.Errorf("%v %v, want %d", made, err, want)
		}
	}
}

// TestBadFiles checks that a file that cannot be trusted admits no one, even if it becomes bad later.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), TokensFile)
	server := open(t, path)
	bearer, token := create(t, server, NewToken{Name: "a"})
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"not JSON":     "gvl",
		"newer":        `{"version":3, "tokens": []}`,
		"no digest":    `{"version": 1, "tokens": [{"id": "x", "principal": "y", "role": "agent"}]}`,
		"unknown role": strings.Replace(string(good), `"agent"`, `"root"`, 1),
		"twice":        strings.Replace(string(good), `"tokens": [`, `"tokens": [{"id": "`+token.ID+`", "principal": "x", "role": "operator", "sha256": "`+token.Digest+`"},`, 1),
	} {
		if err := writeFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time it is known to be bad
			if _, err := server.Authenticate(t.Context(), bearer); !errors.Is(err, ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := OpenTokens(path); err == nil {
			t.Errorf("%s: opened", name)
		}
		if _, _, err := server.Create(NewToken{Name: "b", Role: engine.RoleAgent}); err == nil {
			t.Errorf("%s: overwritten", name)
		}
	}
	if err := writeFile(path, good); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Authenticate(t.Context(), bearer); err != nil {
		t.Errorf("mended: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.WriteFile(path+"2", good, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTokens(path + "2"); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("others may read it: %v", err)
	}
	for _, turn := range []struct {
		mode os.FileMode
		want error
	}{{0o644, ErrUnavailable}, {0o600, nil}} { // a running server notices both
		if err := os.Chmod(path, turn.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Authenticate(t.Context(), bearer); !errors.Is(err, turn.want) {
			t.Errorf("mode %o: %v", turn.mode, err)
		}
	}
}

// TestManyWriters checks that no change of any process is lost.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), TokensFile)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			tokens, err := OpenTokens(path)
			if err != nil {
				t.Error(err)
				return
			}
			for j := range 2 {
				bearers, made, err := tokens.Create(NewToken{Name: fmt.Sprintf("t-%d-%d", i, j), Role: engine.RoleAgent})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := tokens.Authenticate(context.Background(), bearers[0]); err != nil {
					t.Error(err)
				}
				if j%2 == 1 {
					if _, err := tokens.Revoke(made[0].ID); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	all, err := open(t, path).List()
	revoked := 0
	for _, token := range all {
		if token.RevokedAt != nil {
			revoked++
		}
	}
	if err != nil || len(all) != 8 || revoked != 4 {
		t.Errorf("%d tokens, %d revoked, %v; want 8 and 4", len(all), revoked, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".gavel*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
