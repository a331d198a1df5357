package rows

import (
	"context"
	"iter"
)

// Pages yields rows in pages of at most size rows, up to a limit (0 for none). next reads one page; after is the last
// row so far, nil for the first page. Nothing is held between two pages, so slow or nested consumers block no one.
func Pages[T any](ctx context.Context, limit, size int, next func(ctx context.Context, after *T, n int) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		var after *T
		for left := limit; limit == 0 || left > 0; {
			n := size
			if limit != 0 {
				n = min(n, left)
			}
			page, err := next(ctx, after, n)
			if err != nil {
				yield(zero, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if len(page) < n {
				return
			}
			after = &page[len(page)-1]
			left -= len(page)
		}
	}
}
