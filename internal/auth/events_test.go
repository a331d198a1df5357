package auth

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// one authenticates everyone as the same caller.
type one Identity

func (o one) Authenticate(context.Context, string) (Identity, error) { return Identity(o), nil }

// A credential for hook events may only post them, and no other credential may.
func TestHookCredential(t *testing.T) {
	t.Parallel()
	agent := engine.Principal{ID: "token:ci", Role: engine.RoleAgent}
	operator := engine.Principal{ID: "token:ops", Role: engine.RoleOperator}
	isHook := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/hooks/") }
	for _, c := range []struct {
		name   string
		who    Identity
		isHook func(*http.Request) bool
		hook   int
		other  int
		says   string
	}{
		{"a token for hooks", Identity{Principal: agent, Kind: KindToken, Events: "/repo"}, isHook, 200, 403, "may only post events"},
		{"an operator's token for hooks", Identity{Principal: operator, Kind: KindToken, Events: "/"}, isHook, 200, 403, "may only post events"},
		{"an agent's token", Identity{Principal: agent, Kind: KindToken}, isHook, 403, 200, "--hooks FOLDER"},
		{"an operator's token", Identity{Principal: operator, Kind: KindToken}, isHook, 403, 200, "--hooks FOLDER"},
		{"an issuer's token", Identity{Principal: agent, Kind: KindJWT}, isHook, 403, 200, "--hooks FOLDER"},
		{"a program's caller", Identity{Principal: agent, Kind: KindProgram}, isHook, 403, 200, "--hooks FOLDER"},
		{"nobody is told apart", Identity{Principal: agent, Kind: KindNone}, isHook, 200, 200, ""},
		{"a server that takes no events", Identity{Principal: agent, Kind: KindToken, Events: "/repo"}, nil, 403, 403, "may only post events"},
	} {
		h := gate(t, one(c.who), Options{IsEvent: c.isHook})
		for path, want := range map[string]int{"/v1/hooks/claude-code": c.hook, "/v1/whoami": c.other, "/mcp": c.other, "/v1/hooks": c.other} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, http.NoBody))
			if w.Code != want || want != http.StatusOK && !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%s, %s: %d %s", c.name, path, w.Code, w.Body)
			}
		}
	}
}

// Tokens for hooks keep their folder, and an older gavel does not take them for unrestricted tokens.
func TestHookTokens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), TokensFile)
	tokens := open(t, path)
	create(t, tokens, NewToken{Name: "before"})
	version := func() (v struct{ Version int }) {
		t.Helper()
		raw, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(raw, &v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := version(); v.Version != 1 {
		t.Errorf("without a token for hooks the version is %d", v.Version)
	}
	folder := filepath.Join(t.TempDir(), "repo")
	bearer, made := create(t, tokens, NewToken{Name: "hooks", Events: folder + "/sub/../"})
	if v := version(); v.Version != 2 {
		t.Errorf("with a token for hooks the version is %d", v.Version)
	}
	who, err := open(t, path).Authenticate(t.Context(), bearer)
	if err != nil || who.Events != folder || !who.MayPostEvents() || who.ID != "token:hooks" {
		t.Errorf("read again: %+v, %v", who, err)
	}
	for _, folder := range []string{"repo", ".", "~/repo", "/repo\n", "/" + strings.Repeat("x", maxFolder)} {
		if _, _, err := tokens.Create(NewToken{Name: "bad", Role: engine.RoleAgent, Events: folder}); !errors.Is(err, ErrBadToken) {
			t.Errorf("%.20q: %v", folder, err)
		}
	}
	if err := tokens.Forget(made.ID); err != nil || version().Version != 1 {
		t.Errorf("once it is gone: version %d, %v", version().Version, err)
	}

	fresh := open(t, "")
	create(t, fresh, NewToken{Name: "hooks", Events: folder})
	if _, made, err := fresh.CreateFirst(NewToken{Name: "first", Role: engine.RoleOperator}); err != nil || len(made) != 1 {
		t.Errorf("the first token beside one for hooks: %v, %v", made, err)
	}
	if _, made, err := fresh.CreateFirst(NewToken{Name: "second", Role: engine.RoleOperator}); err != nil || len(made) != 0 {
		t.Errorf("a second first token: %v, %v", made, err)
	}
}
