package instance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Command has the commands that show and change instances.
type Command struct {
	List     cli.OperationCommand `cmd:"" help:"List instances, newest first."`
	Show     instancesShowCmd     `cmd:"" help:"Show the state and context of an instance, now or at an earlier revision."`
	History  cli.OperationCommand `cmd:"" help:"Show every judgement of an instance, oldest first."`
	Timeline cli.OperationCommand `cmd:"" help:"Show everything that happened to an instance, oldest first."`
	Undo     cli.OperationCommand `cmd:"" help:"Undo the last move of an instance."`
	Redo     cli.OperationCommand `cmd:"" help:"Redo the last undone move."`
	Release  cli.OperationCommand `cmd:"" help:"Release the subject of an instance, so that another instance can have it."`
}

func instanceRows(r engine.InstancesResult) [][]string {
	rows := [][]string{{"ID", "WORKFLOW", "STATE", "STATUS", "REVISION", "OWNER", "UPDATED"}}
	for _, i := range r.Instances {
		rows = append(rows, []string{i.ID, cli.FormatVersion(i.Position), i.State, string(i.Status), fmt.Sprint(i.Revision), i.Owner, cli.FormatTime(i.UpdatedAt)})
	}
	return rows
}

type instancesShowCmd struct{ cli.OperationCommand }

func (c *instancesShowCmd) Run(ctx context.Context, con *cli.Console) error {
	found, err := c.BuildRequest(time.Now())
	if err != nil {
		return err
	}
	req, _ := found.(*operation.StatusRequest)
	g, done, err := c.Open(ctx, con, cli.OpenForReading)
	if err != nil {
		return err
	}
	defer done()
	s, err := operation.Status.Do(ctx, g, *req)
	if err != nil {
		return cli.EngineFailure(err)
	}
	more, err := readMore(ctx, g, *req, s)
	if err != nil {
		return err
	}
	if c.JSON {
		return con.Out.JSON(struct {
			engine.StatusResult
			instanceMore
		}{s, more})
	}
	rows := [][]string{
		{"id", s.ID},
		{"workflow", cli.FormatVersion(s.Position)},
		{"state", s.State},
		{"status", string(s.Status)},
		{"progress", s.Progress},
		{"next actions", term.OrNone(strings.Join(s.NextActions, ", "))},
		{"visited", strings.Join(s.Visited, " -> ")},
		{"revision", fmt.Sprintf("%d (%d events)", s.Revision, s.Seq)},
		{"owner", s.Owner},
		{"started", s.CreatedAt.Format(time.RFC3339)},
		{"updated", s.UpdatedAt.Format(time.RFC3339)},
	}
	if len(s.NextTools) > 0 {
		rows = append(rows, []string{"next tools", strings.Join(s.NextTools, ", ")})
	}
	if s.Past != nil {
		rows = append(rows, []string{"now", fmt.Sprintf("in %s, at revision %d", s.Past.State, s.Past.Revision)})
	}
	con.Out.Table(rows)
	if s.Past == nil {
		drawn, err := operation.Diagram.Do(ctx, g, engine.DiagramRequest{ID: s.ID, Format: "text"})
		if err != nil {
			return cli.EngineFailure(err)
		}
		con.Out.Text(drawn.Diagram)
	}
	cli.PrintCalls(con.Out, s.Calls)
	con.Out.Printf("context\n")
	if err := con.Out.JSON(s.Context); err != nil {
		return err
	}
	if len(more.Evidence) > 0 {
		con.Out.Printf("\nevidence that the gate fetched\n")
		con.Out.Table(cli.FetchedRows(more.Evidence))
	}
	if len(more.AllReviews) > 0 {
		con.Out.Printf("\nreviews\n")
		con.Out.Table(cli.ShortenForTerminal(con.Out, cli.ReviewRows(more.AllReviews)))
	}
	return nil
}

// instanceMore is what gavel instances show prints in addition to the status of an instance.
type instanceMore struct {
	// Evidence was fetched for the instance's decisions, oldest first.
	Evidence []cli.FetchedFor `json:"evidence"`
	// AllReviews includes closed reviews.
	AllReviews []engine.ReviewSummary `json:"allReviews"`
}

// readMore reads the instance's history and reviews, up to the revision that the status shows.
func readMore(ctx context.Context, g operation.Caller, req operation.StatusRequest, s engine.StatusResult) (instanceMore, error) {
	out := instanceMore{Evidence: []cli.FetchedFor{}, AllReviews: []engine.ReviewSummary{}}
	for page := (engine.HistoryRequest{ID: req.ID, Limit: 1000, Until: req.When}); ; {
		h, err := operation.History.Do(ctx, g, page)
		if err != nil {
			return out, cli.EngineFailure(err)
		}
		out.Evidence = append(out.Evidence, cli.ListFetched(h.Decisions)...)
		if page.AfterSeq = h.NextAfter; h.NextAfter == 0 {
			break
		}
	}
	for page := (engine.ReviewsRequest{Instance: req.ID, Status: "all", Limit: 500}); ; {
		r, err := operation.Reviews.Do(ctx, g, page)
		if err != nil {
			return out, cli.EngineFailure(err)
		}
		for _, review := range r.Reviews {
			if s.Past == nil || !review.ParkedAt.After(s.UpdatedAt) {
				out.AllReviews = append(out.AllReviews, review)
			}
		}
		if page.Cursor = r.NextCursor; r.NextCursor == "" {
			return out, nil
		}
	}
}

func timelineRows(r engine.TimelineResult) [][]string {
	rows := [][]string{{"SEQ", "REVISION", "TIME", "WHAT", "STATE", "BY", "NOTE"}}
	for _, e := range r.Events {
		rows = append(rows, []string{
			fmt.Sprint(e.Seq), fmt.Sprint(e.Revision), e.Time.Format("2006-01-02T15:04:05.000000Z07:00"), cli.FormatEvent(e), e.To, e.Principal, term.Truncate(term.OrNone(cli.DescribeEvent(e)), 60),
		})
	}
	return rows
}
