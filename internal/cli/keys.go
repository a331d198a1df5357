package cli

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
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
