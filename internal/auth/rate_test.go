package auth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
)

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := auth.RateLimit(2, 5)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		call := func(id string, role engine.Role) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/v1/whoami", nil)
			if id != "" {
				r = r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: engine.Principal{ID: id, Role: role}}))
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		for i := range 5 {
			if w := call("ada", engine.RoleAgent); w.Code != http.StatusOK {
				t.Fatalf("request %d of the burst: %d", i, w.Code)
			}
		}
		w := call("ada", engine.RoleAgent)
		wait, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if w.Code != http.StatusTooManyRequests || err != nil || wait < 1 || !strings.Contains(w.Body.String(), `"rate_limited"`) {
			t.Fatalf("got %d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), w.Body)
		}
		for range 100 { // refused requests do not count
			call("ada", engine.RoleAgent)
		}
		<-time.After(time.Duration(wait) * time.Second)
		if w := call("ada", engine.RoleAgent); w.Code != http.StatusOK {
			t.Errorf("after the time that was told: %d", w.Code)
		}
		if w := call("bob", engine.RoleAgent); w.Code != http.StatusOK {
			t.Errorf("somebody else: %d", w.Code)
		}
		for range 50 {
			if w := call("eve", engine.RoleOperator); w.Code != http.StatusOK {
				t.Fatalf("an operator: %d", w.Code)
			}
		}
		if w := call("", ""); w.Code != http.StatusUnauthorized {
			t.Errorf("nobody: %d", w.Code)
		}
		for i := range 20_000 { // they are all admitted, and forgotten
			if w := call(fmt.Sprint("agent", i), engine.RoleAgent); w.Code != http.StatusOK {
				t.Fatalf("agent %d: %d", i, w.Code)
			}
		}
	})
}
