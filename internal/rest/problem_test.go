package rest

import (
	"net/http"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// TestStatuses checks that every code has a status, and that retryable ones have a suitable one.
func TestStatuses(t *testing.T) {
	later := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	known := map[engine.Code]bool{}
	for _, c := range slices.Concat(engine.Codes, Codes) {
		known[c.Code] = true
		s, ok := statuses[c.Code]
		if !ok {
			t.Errorf("%s has no HTTP status; give it one in statuses", c.Code)
			continue
		}
		if c.Retryable != slices.Contains(later, s) {
			t.Errorf("%s is retryable: %v, and its status is %d", c.Code, c.Retryable, s)
		}
	}
	for code := range statuses {
		if !known[code] {
			t.Errorf("%s has a status, but nobody documents it", code)
		}
	}
}

// TestGroups checks that every operation is in a chapter of the reference.
func TestGroups(t *testing.T) {
	for _, op := range operation.All() {
		if !slices.ContainsFunc(tags, func(o object) bool { return o["name"] == op.Group }) {
			t.Errorf("%s: there is no chapter %q; give tags one", op.ID, op.Group)
		}
	}
}
