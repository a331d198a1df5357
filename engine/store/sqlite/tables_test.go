package sqlite

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// Every table and column that a migration adds is either copied or listed here.
func TestAllTablesAreCopied(t *testing.T) {
	derived := []string{"decision_index", "decision_terms", "decision_times", "leases"}
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "all.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var copied []string
	for _, table := range rows.Tables {
		for _, c := range table.Columns {
			copied = append(copied, table.Name+"."+c.Name)
		}
	}
	found, err := queryAll(t.Context(), s.readers, scanOne[string], `SELECT t.name || '.' || c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'`)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		if isDerived := func(of string) bool { return strings.HasPrefix(name, of) }; !slices.Contains(copied, name) && !slices.ContainsFunc(derived, isDerived) {
			t.Errorf("%s is not copied: name it in rows.Tables, or here if it says nothing of what a store holds", name)
		}
	}
}
