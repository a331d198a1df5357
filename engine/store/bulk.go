package store

import (
	"context"
)

type bulkKey struct{}

// IsBulkRead reports whether a read is one that nothing else may wait for. A driver with
// few connections gives such reads their own.
func IsBulkRead(ctx context.Context) bool { return ctx.Value(bulkKey{}) != nil }

// BulkRead marks the reads that are made with a context as bulk reads. They take no permit:
// it is for work in the background.
func BulkRead(ctx context.Context) context.Context {
	return context.WithValue(ctx, bulkKey{}, true)
}
