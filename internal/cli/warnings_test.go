package cli

import (
	"context"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/store"
)

// obedientStore has no definitions, and obeys its context.
type obedientStore struct{ store.Store }

func (obedientStore) Definitions(ctx context.Context) ([]store.Definition, error) {
	return nil, ctx.Err()
}

// A caller that is gone leaves no false alarm for the next one.
func TestWarningsOutliveTheirCaller(t *testing.T) {
	t.Parallel()
	w := &Warnings{Sys: &System{System: &gavel.System{Store: obedientStore{}}}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{gone, t.Context()} {
		if got := w.Find(ctx); len(got) != 0 {
			t.Errorf("warnings of a system without a fault: %+v", got)
		}
	}
}
