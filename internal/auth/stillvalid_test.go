package auth_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// Code that holds a request's context for long can see that the credential was revoked.
func TestStillValid(t *testing.T) {
	t.Parallel()
	tokens := must(auth.OpenTokens(filepath.Join(t.TempDir(), "tokens")))
	bearers, made, err := tokens.Create(auth.NewToken{Name: "ci", Role: engine.RoleAgent})
	if err != nil {
		t.Fatal(err)
	}
	var held context.Context
	h := auth.Middleware(tokens, auth.Options{Logger: slog.New(slog.DiscardHandler)})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		held = context.WithoutCancel(r.Context()) //nolint:fatcontext // it is what the test is about
	}))
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+bearers[0])
	h.ServeHTTP(httptest.NewRecorder(), r)
	if held == nil || !auth.StillValid(held) {
		t.Fatal("a good credential is not valid")
	}
	if _, err := tokens.Revoke(made[0].ID); err != nil {
		t.Fatal(err)
	}
	if auth.StillValid(held) {
		t.Error("a revoked credential is valid")
	}
	if !auth.StillValid(t.Context()) {
		t.Error("what no middleware made is not valid")
	}
}
