package engine_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// loadingStore counts the instances that are loaded from it.
type loadingStore struct {
	*memory.Store
	loads atomic.Int64
}

func (s *loadingStore) Load(ctx context.Context, id string) (record.Instance, error) {
	s.loads.Add(1)
	return s.Store.Load(ctx, id)
}

// Streams that are behind catch up without a store access for each event of an instance that has moved
// since: lagging streams must not have more work than others.
func TestLaggingStreamsCostNoLoads(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		definition string
		most       int64 // loads
	}{
		"nothing sensitive":   {walkFlow, 0},
		"something sensitive": {`{"name":"walk","initialState":"a","sensitive":["/secret"],"states":{"a":{"transitions":{"go":"b"}},"b":{"transitions":{"back":"a"}}}}`, 1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const streams, instances, moves = 16, 5, 40
			db := &loadingStore{Store: memory.New()}
			b := newBenchOn(t, db)
			b.define(agent, tt.definition)
			feed := b.Feed()
			var followers []*engine.Follower
			for range streams {
				followers = append(followers, feed.Follow(0))
			}
			for _, f := range followers {
				defer f.Unfollow()
			}
			var ids []string
			for range instances {
				ids = append(ids, b.start(agent, "walk", `{"secret":"tangerine"}`).ID)
			}
			for n := range moves {
				for _, id := range ids {
					if n%2 == 0 {
						b.moved(agent, id, "go", `{"n":1}`, "b")
					} else {
						b.moved(agent, id, "back", `{"n":2}`, "a")
					}
				}
			}
			last, err := db.LastPosition(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for changed := followers[0].Changed(); feed.Lag().Events < last; changed = followers[0].Changed() {
				if feed.Lag().Events < last {
					<-changed
				}
			}
			before := db.loads.Load()
			for _, f := range followers {
				shown := 0
				for after, more := int64(0), true; more; {
					page, err := feed.Page(t.Context(), agent, engine.TailRequest{After: after})
					if err != nil {
						t.Fatal(err)
					}
					shown, after, more = shown+len(page.Items), page.Next, page.More
					f.MarkSent(after)
				}
				if shown != instances*(moves+1) {
					t.Fatalf("%d events are shown", shown)
				}
			}
			if n := db.loads.Load() - before; n > tt.most {
				t.Errorf("%d streams loaded %d instances for %d events", streams, n, last)
			}
			if lag := feed.Lag(); lag.Events != 0 {
				t.Errorf("the lag is %+v", lag)
			}
		})
	}
}
