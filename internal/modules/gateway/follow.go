package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// operator is the principal that reads definitions and the events that other processes commit.
var operator = engine.Principal{ID: "local:gateway", Role: engine.RoleOperator}

// tailRetryDelay is the delay before committed events are read again after a failure.
const tailRetryDelay = time.Second

// follow starts to announce moves if a gate has gate.ListLegal, because lists of tools then depend on the states
// of workflows.
func (g *gateway) follow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.engine.Load()
	if e == nil || g.stopFollowing != nil || !slices.ContainsFunc(g.gates.Gates, func(t gate.Gate) bool { return t.List == gate.ListLegal }) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	feed := e.Feed().Follow(-1)
	g.stopFollowing = func() {
		cancel()
		<-ended
		feed.Unfollow()
	}
	go func() {
		defer close(ended)
		g.announceMoves(ctx, e, feed)
	}()
}

// announceMoves announces committed moves until ctx ends.
func (g *gateway) announceMoves(ctx context.Context, e *engine.Engine, feed *engine.Follower) {
	failing := false
	for after := int64(-1); ; {
		changed := feed.Changed()
		page, err := e.Tail(ctx, operator, engine.TailRequest{After: after})
		var again <-chan time.Time
		switch {
		case err == nil:
			if failing && after < 0 { // moves since the start may be missing, so notify every client
				g.Announce(upstream.Change{Kind: upstream.KindTool, Affects: func(engine.Principal) bool { return true }})
			}
			for _, ev := range page.Events {
				g.announceMove(ctx, e, ev)
			}
			after, failing = page.Next, false
		case ctx.Err() == nil:
			if !failing {
				g.log.Warn("cannot read which tools may be called now; trying again, clients are notified later", "cause", err.Error())
			}
			again, failing = time.After(tailRetryDelay), true
		}
		if err == nil && page.More {
			continue
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// announceMove notifies the principals who can see an instance if a move changed their lists.
func (g *gateway) announceMove(ctx context.Context, e *engine.Engine, ev engine.EventView) {
	if ev.To == "" && ev.Status == record.Running || !g.rules().ListsChange(ev.Workflow, ev.From, ev.To, ev.Status == record.Running) {
		return
	}
	status, err := e.Status(ctx, operator, ev.Instance)
	if err != nil {
		return // the instance was removed
	}
	shared, _ := e.IsShared(ctx, ev.Workflow)
	g.Announce(upstream.Change{Kind: upstream.KindTool, Affects: func(p engine.Principal) bool {
		return shared || p.ID == status.Owner || p.Role != engine.RoleAgent
	}})
}
