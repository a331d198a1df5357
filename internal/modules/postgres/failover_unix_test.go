//go:build unix

//nolint:thelper // what takes a T here is part of the test, not a helper

package postgres_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// When a standby takes over, stores whose URL names both servers continue on the new server without being reopened,
// and find everything that was acknowledged.
func TestFailover(t *testing.T) {
	storetest.SkipUnlessLong(t)
	primary := pgtest.New(t)
	standby := primary.Standby(t)
	first, err := url.Parse(primary.URL)
	if err != nil {
		t.Fatal(err)
	}
	second, err := url.Parse(standby.URL)
	if err != nil {
		t.Fatal(err)
	}
	first.Host += "," + second.Host
	both := first.String()
	stores := []store.Store{openAt(t, both, ""), openAt(t, both, "")}
	defer stores[0].Close()
	defer stores[1].Close()
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		ctx := context.Background()
		grow := func(by int64) {
			seen, err := stores[0].LastPosition(ctx)
			for last := seen; t.Context().Err() == nil && (err != nil || last < seen+by); {
				last, err = stores[0].LastPosition(ctx)
			}
		}
		grow(50)
		primary.Kill()
		standby.Promote(t)
		if err := pgtest.Execute(standby.URL, `ALTER SYSTEM SET synchronous_standby_names = ''`, `SELECT pg_reload_conf()`); err != nil {
			t.Error(err)
			return
		}
		grow(50)
	}()
	acknowledged := writeUntil(t, stores, 8, stop)
	t.Logf("%d events, none lost", requireWhole(t, stores[1], acknowledged))
}
