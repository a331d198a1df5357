package postgres_test

import (
	"errors"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/postgres"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

func TestInspectGuest(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).NewDatabase(t)
	for _, c := range []struct {
		name, first string
		schema      string
		others      []string
		version     int64
		want        error
	}{
		{"no schema", "", "guest", []string{"postgres"}, 0, nil},
		{"an empty schema", "CREATE SCHEMA guest", "guest", nil, 0, nil},
		{"tables of another", "CREATE TABLE guest.things ()", "guest", nil, 0, postgres.ErrForeignTables},
		{"no version yet", "CREATE TABLE guest.versions (version bigint)", "guest", nil, 0, nil},
		{"its tables", "INSERT INTO guest.versions VALUES (7)", "guest", nil, 7, nil},
		{"a database that is not there", "", "guest", []string{"nowhere"}, 7, postgres.ErrOtherDatabase},
		{"another schema", "", "other", nil, 0, nil},
	} {
		if c.first != "" {
			if err := pgtest.Execute(url, c.first); err != nil {
				t.Fatal(err)
			}
		}
		g, err := postgres.InspectGuest(t.Context(), url, c.schema, "versions", c.others...)
		if !errors.Is(err, c.want) || g.Version != c.version && c.want == nil || g.Proxied {
			t.Errorf("%s: %+v, %v, want version %d, %v", c.name, g, err, c.version, c.want)
		}
	}
	for at, want := range map[string]error{"postgres://127.0.0.1:1/gavel": postgres.ErrUnreachable, "postgres://127.0.0.1:x/gavel": postgres.ErrBadURL} {
		if _, err := postgres.InspectGuest(t.Context(), at, "guest", "versions"); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", at, err, want)
		}
	}
}
