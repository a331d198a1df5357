//go:build unix

package postgres_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store/rows"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// Every table and column that a migration adds is either copied or listed here.
func TestAllTablesAreCopied(t *testing.T) {
	derived := []string{"counter.id", "counter.last", "events.terms", "blocks.block", "blocks.first", "blocks.last", "figures.block", "figures.removed", "figures.body", "entries.name", "entries.version", "entries.body", "leases.name", "leases.owner", "leases.number", "leases.ends"}
	server, schema := pgtest.Shared(t), newSchema(t)
	if err := openAt(t, server.Fast, schema).Close(); err != nil {
		t.Fatal(err)
	}
	var copied []string
	for _, table := range rows.Tables {
		for _, c := range table.Columns {
			copied = append(copied, table.Name+"."+c.Name)
		}
	}
	conn, err := pgx.Connect(t.Context(), server.Fast)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	found, err := conn.Query(t.Context(), `SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = $1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil || len(names) < len(copied) {
		t.Fatalf("%d columns, %v", len(names), err)
	}
	for _, name := range names {
		if !slices.Contains(copied, name) && !slices.Contains(derived, name) {
			t.Errorf("%s is not copied: name it in rows.Tables, or here if it says nothing of what a store holds", name)
		}
	}
}
