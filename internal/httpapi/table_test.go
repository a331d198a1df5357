package httpapi

import (
	"net/http"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// TestStatuses: every code has a status, and what may succeed later has one that says so.
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

// TestTable: names are used once, and what a path names is read from it.
func TestTable(t *testing.T) {
	ids := map[string]bool{}
	for _, op := range operations() {
		about := op.route()
		req, _ := op.types()
		if ids[about.ID] {
			t.Errorf("the operation id %s stands twice", about.ID)
		}
		ids[about.ID] = true
		if about.Summary == "" || about.Description == "" || !slices.ContainsFunc(tags, func(o object) bool { return o["name"] == about.Tag }) {
			t.Errorf("%s: no summary, description or known tag", about.ID)
		}
		if about.Method == http.MethodGet && (len(planOf(req)[inJSON]) > 0 || len(planOf(req)[inBody]) > 0) {
			t.Errorf("%s: a GET has no body", about.ID)
		}
	}
}
