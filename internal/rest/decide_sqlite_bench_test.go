package rest_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/rest"
)

// BenchmarkDecideOnSQLite measures /v1/decide with the definition in a file, one request at a time.
func BenchmarkDecideOnSQLite(b *testing.B) {
	_, a := newSQLiteBench(b)
	a.define(operator, paper)
	body := `{"workflow":"paper","state":"draft","action":"submit","data":{"title":"T"},"context":{"who":"ann"}}`
	a.ask(agent, "POST /v1/decide", body).is(http.StatusOK)
	b.ReportAllocs()
	posts(b, a.http, []byte(body))
}

// newSQLiteBench returns an engine on a store in a file, and its API.
func newSQLiteBench(b *testing.B) (*engine.Engine, *api) {
	b.Helper()
	store, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "gavel.db")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	e := newEngine(b, func(c *engine.Config) { c.Store = store })
	return e, newAPI(b, func(c *rest.Config) { c.Engine = e })
}
