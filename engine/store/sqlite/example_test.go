package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
)

// A store is a single file, which Open creates if it does not exist.
func Example() {
	dir, err := os.MkdirTemp("", "gavel")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "gavel.db")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	_, err = db.Load(ctx, "wf-unknown")
	fmt.Println(errors.Is(err, store.ErrNotFound), err)
	// Output: true not found: instance wf-unknown
}
