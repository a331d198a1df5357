package console

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

//go:embed assets/now.html
var nowTemplates string

// Limits of the first page.
const (
	nowReviews   = 20
	nowRefusals  = 15
	nowInstances = 25
	// recently is how far back the first page shows refusals.
	recently = time.Hour
)

// nowData is what the first page shows.
type nowData struct {
	Warnings  []module.Warning
	Problem   *engine.Error        // nil if the rest could be read
	Reviews   engine.ReviewsResult // the oldest
	Waiting   int                  // how many wait, up to queueLength
	Refusals  engine.DecisionsResult
	Instances engine.InstancesResult
	// Connect is the configuration of a client; "" once there has been a call.
	Connect string
	// Definitions counts the workflows.
	Definitions int
}

// IsEmpty reports whether nothing is going on.
func (d nowData) IsEmpty() bool {
	return d.Connect == "" && d.Problem == nil && len(d.Reviews.Reviews)+len(d.Refusals.Decisions)+len(d.Instances.Instances) == 0
}

// nowPage shows what is going on: what waits, what was refused, and who works.
func nowPage(host module.SiteHost) module.Page {
	return module.Page{
		Path: "", Title: "Now", Place: module.InMenu, Order: 10, Needs: engine.RightRead,
		Templates: nowTemplates, Regions: []string{"warnings", "problem", "first", "attention", "working", "quiet"},
		Load: func(ctx context.Context, v module.Visit) (any, error) { return loadNow(ctx, host, v) },
	}
}

func loadNow(ctx context.Context, host module.SiteHost, v module.Visit) (d nowData, err error) {
	// Warnings name workflows, servers and files of everybody, so visitors who may use only some workflows get none.
	if v.Call.Caller.Workflows == "" {
		d.Warnings = host.Warnings(ctx)
	}
	if err = d.load(ctx, host, v); err != nil && len(d.Warnings) > 0 && ctx.Err() == nil {
		d.Problem, _ = operation.Explain(err) // the warnings may explain it
		return d, nil
	}
	return d, err
}

func (d *nowData) load(ctx context.Context, host module.SiteHost, v module.Visit) (err error) {
	if d.Reviews, err = ask(ctx, v, operation.Reviews, engine.ReviewsRequest{Limit: queueLength}); err != nil {
		return err
	}
	slices.SortStableFunc(d.Reviews.Reviews, func(a, b engine.ReviewSummary) int { return a.ParkedAt.Compare(b.ParkedAt) })
	d.Waiting = len(d.Reviews.Reviews)
	d.Reviews.Reviews = d.Reviews.Reviews[:min(d.Waiting, nowReviews)]
	refused := store.DecisionQuery{Outcome: judge.Reject, Since: now().Add(-recently)}
	if d.Refusals, err = ask(ctx, v, operation.Decisions, engine.DecisionsRequest{Query: refused, Limit: nowRefusals}); err != nil {
		return err
	}
	if d.Instances, err = ask(ctx, v, operation.Instances, engine.InstancesRequest{Status: record.Running, Limit: nowInstances}); err != nil {
		return err
	}
	if len(d.Instances.Instances)+len(d.Refusals.Decisions)+len(d.Reviews.Reviews) > 0 {
		return nil
	}
	earlier, err := ask(ctx, v, operation.Instances, engine.InstancesRequest{Limit: 1})
	if err != nil || len(earlier.Instances) > 0 {
		return err
	}
	d.Connect = host.Connect
	defined, err := ask(ctx, v, operation.List, operation.Empty{})
	d.Definitions = defined.Count
	return err
}
