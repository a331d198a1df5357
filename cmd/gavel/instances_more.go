package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// instanceMore is what the command line tells of an instance beside its status.
type instanceMore struct {
	// Evidence is what was fetched for its decisions, oldest first.
	Evidence []fetchedFor `json:"evidence"`
	// AllReviews are its reviews, the closed ones too.
	AllReviews []engine.ReviewSummary `json:"allReviews"`
}

// fetchedFor is evidence with the decision that it was fetched for.
type fetchedFor struct {
	Seq    int64  `json:"seq"`
	Action string `json:"action"`
	judge.Evidence
}

// more reads all of an instance's history and reviews, as far as the status goes.
func (c *instancesShowCmd) more(ctx context.Context, g operation.Caller, until engine.When, s engine.StatusResult) (instanceMore, error) {
	out := instanceMore{Evidence: []fetchedFor{}, AllReviews: []engine.ReviewSummary{}}
	for page := (engine.HistoryRequest{ID: c.ID, Limit: 1000, Until: until}); ; {
		h, err := operation.History.Do(ctx, g, page)
		if err != nil {
			return out, engineFailure(err)
		}
		out.Evidence = append(out.Evidence, evidenceOfDecisions(h.Decisions)...)
		if page.AfterSeq = h.NextAfter; h.NextAfter == 0 {
			break
		}
	}
	for page := (engine.ReviewsRequest{WorkflowID: c.ID, Status: "all", Limit: 500}); ; {
		r, err := operation.Reviews.Do(ctx, g, page)
		if err != nil {
			return out, engineFailure(err)
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

// evidenceOfDecisions returns what was fetched for decisions, in their order.
func evidenceOfDecisions(decisions []engine.HistoryEntry) (all []fetchedFor) {
	for _, d := range decisions {
		for _, e := range d.Evidence {
			all = append(all, fetchedFor{d.Seq, d.Action, e})
		}
	}
	return all
}

// fetchedRows is the table of evidence; the content is in --json and in gavel review show.
func fetchedRows(all []fetchedFor) [][]string {
	rows := [][]string{{"SEQ", "ACTION", "NAME", "SOURCE", "FETCHED", "TOOK", "SIZE", "DIGEST"}}
	for _, e := range all {
		size, digest := fmt.Sprint(e.Size), cmp.Or(e.Digest, "-") // not shown to agents
		if e.Failure != "" {
			size, digest = "-", cut(fmt.Sprintf("failed (%s): %s", e.Failure, e.Detail), 100)
		}
		rows = append(rows, []string{fmt.Sprint(e.Seq), e.Action, e.Name, e.Source, moment(e.At), short(e.Took), size, digest})
	}
	return rows
}
