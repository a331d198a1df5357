package review

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

type reviewWatchCmd struct {
	Workflow string        `name:"workflow" placeholder:"NAME" help:"Only reviews of this workflow."`
	Every    time.Duration `name:"every" default:"2s" placeholder:"TIME" help:"How often to check. Default: 2s."`
	JSON     bool          `name:"json" help:"Print JSON, one object a line."`
	cli.TargetFlags
}

func (c *reviewWatchCmd) Run(ctx context.Context, con *cli.Console) error {
	if c.Every < 100*time.Millisecond {
		return term.UsageErrorf("", "--every must be 100ms or more, not %v", c.Every)
	}
	at, done, err := c.Open(ctx, con, cli.OpenForReading)
	if err != nil {
		return err
	}
	defer done()
	w := reviewWatch{at: at, workflow: c.Workflow, report: func(event string, r engine.ReviewSummary) { printWatched(con.Out, event, r) }}
	if c.JSON {
		w.report = func(event string, r engine.ReviewSummary) { printWatchedJSON(con.Out, event, r) }
	}
	if err := w.poll(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return cli.EngineFailure(err)
	}
	if !c.JSON && len(w.waiting) == 0 {
		con.Err.Printf("nothing waits for a person yet; checking every %v\n", c.Every)
	}
	w.follow(ctx, c.Every, func(err error) { con.Err.Printf("cannot check now, trying again: %s\n", cli.EngineFailure(err)) })
	return nil
}

// reviewWatch keeps the open reviews and reports changes.
type reviewWatch struct {
	at       operation.Caller
	workflow string
	waiting  map[string]engine.ReviewSummary // by id
	report   func(event string, r engine.ReviewSummary)
}

// Reported events.
const (
	reviewOpened = "opened"
	reviewRaised = "raised"
	reviewClosed = "closed"
)

// follow polls until ctx ends. A failure is reported once until polling works again.
func (w *reviewWatch) follow(ctx context.Context, every time.Duration, trouble func(error)) {
	failing := false
	for tick := time.NewTicker(every); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		err := w.poll(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			trouble(err)
		}
		failing = err != nil
	}
}

// poll reports reviews that were opened, raised or closed since the last look.
func (w *reviewWatch) poll(ctx context.Context) error {
	now := map[string]engine.ReviewSummary{}
	var order []string
	for page := (engine.ReviewsRequest{Status: string(record.ReviewOpen), Workflow: w.workflow, Limit: 500}); ; {
		r, err := operation.Reviews.Do(ctx, w.at, page)
		if err != nil {
			return err //nolint:wrapcheck // an *engine.Error
		}
		for _, review := range r.Reviews {
			now[review.ID] = review
			order = append(order, review.ID)
		}
		if page.Cursor = r.NextCursor; page.Cursor == "" {
			break
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.waiting)) {
		if _, waits := now[id]; waits {
			continue
		}
		view, err := operation.Review.Do(ctx, w.at, operation.IDRequest{ID: id})
		switch {
		case err != nil && engine.CodeOf(err) != engine.CodeUnknownReview:
			return err //nolint:wrapcheck // an *engine.Error; the changes reported so far stay reported
		case err != nil: // the caller may no longer see it
		case view.Status == record.ReviewOpen: // the pages read just now missed it
			now[id] = view.ReviewSummary
			continue
		default:
			w.report(reviewClosed, view.ReviewSummary)
		}
		delete(w.waiting, id)
	}
	for _, id := range order {
		was, known := w.waiting[id]
		switch {
		case !known:
			w.report(reviewOpened, now[id])
		case was.Priority.Rank() < now[id].Priority.Rank():
			w.report(reviewRaised, now[id])
		}
	}
	w.waiting = now
	return nil
}

func printWatched(out *term.Terminal, event string, r engine.ReviewSummary) {
	at, id := r.ParkedAt, r.ID
	switch {
	case event == reviewClosed && !r.ClosedAt.IsZero():
		at = r.ClosedAt
	case event == reviewRaised:
		at = time.Now().UTC()
	}
	if out.IsTerminal() {
		id = cli.ShortenID(id)
	}
	what := fmt.Sprintf("%s %s, %s -> %s, asked by %s", r.Workflow, cmp.Or(r.Action, cli.EndMark), r.From, term.OrNone(r.Target), r.RequestedBy)
	switch event {
	case reviewClosed:
		out.Printf("%s  %s  %s  %s: %s\n", cli.FormatTime(at), out.Dim(event), id, what, out.Outcome(cli.DescribeEnd(r)))
	default:
		out.Printf("%s  %s  %s  %s, %s, expires %s\n", cli.FormatTime(at), out.Bold(event), id, what, string(r.Priority), expiryOf(out, r))
	}
}

func expiryOf(out *term.Terminal, r engine.ReviewSummary) string {
	if out.IsTerminal() && !r.ExpiresAt.IsZero() {
		return cli.FormatDistance(r.ExpiresAt, time.Now())
	}
	return cli.DescribeExpiry(r)
}

func printWatchedJSON(out *term.Terminal, event string, r engine.ReviewSummary) {
	line, err := document.Marshal(struct {
		Event  string               `json:"event"`
		Review engine.ReviewSummary `json:"review"`
	}{event, r})
	if err != nil {
		return // strings, numbers and times always encode
	}
	out.Text(term.EscapeJSON(strings.TrimRight(string(line), "\n")) + "\n")
}
