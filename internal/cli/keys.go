package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/term"
)

// ListRotatable lists the instances with a key that is not destroyed.
func (s *System) ListRotatable(ctx context.Context) (ids []string, err error) {
	for row, err := range s.Store.DataKeys(ctx, "", 0) {
		if err != nil {
			return nil, engine.StoreError("list the keys", err)
		}
		if len(row.Wrapped) > 0 && (len(ids) == 0 || ids[len(ids)-1] != row.Instance) {
			ids = append(ids, row.Instance)
		}
	}
	return ids, nil
}

// MakeStoreKey creates a key file if there is none.
func MakeStoreKey(value string) (made bool, err error) {
	if _, err := os.Stat(value); IsKeyText(value) || !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	if err := WriteNewFile(value, hex.EncodeToString(key), 0o600); err != nil {
		return false, term.UsageErrorf("give another --store-key", "cannot write the key: %w", err)
	}
	return true, nil
}

// WriteNewFile writes a line to a new file and syncs it. The file must not exist.
func WriteNewFile(path, line string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}
