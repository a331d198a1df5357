package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/sqlitestore"
)

// A store is one file, which is created when it is not there.
func Example() {
	dir, err := os.MkdirTemp("", "gavel")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, sqlitestore.Config{Path: filepath.Join(dir, "gavel.db")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	_, err = store.Load(ctx, "wf-unknown")
	fmt.Println(errors.Is(err, engine.ErrNotFound), err)
	// Output: true not found: instance wf-unknown
}
