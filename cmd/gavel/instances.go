package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

type instancesCmd struct {
	List     operationCmd     `cmd:"" help:"List instances, newest first."`
	Show     instancesShowCmd `cmd:"" help:"Show the state and context of an instance, now or at an earlier revision."`
	History  operationCmd     `cmd:"" help:"Show every judgement of an instance, oldest first."`
	Timeline operationCmd     `cmd:"" help:"Show everything that happened to an instance, oldest first."`
	Undo     operationCmd     `cmd:"" help:"Take the last move of an instance back."`
	Redo     operationCmd     `cmd:"" help:"Make the last undone move again."`
	Release  operationCmd     `cmd:"" help:"Let another instance be about the subject of this one."`
}

func instanceRows(r engine.InstancesResult) [][]string {
	rows := [][]string{{"ID", "WORKFLOW", "STATE", "STATUS", "REVISION", "OWNER", "UPDATED"}}
	for _, i := range r.Instances {
		rows = append(rows, []string{i.ID, versionOf(i.Position), i.State, string(i.Status), fmt.Sprint(i.Revision), i.Owner, formatTime(i.UpdatedAt)})
	}
	return rows
}

type instancesShowCmd struct{ operationCmd }

func (c *instancesShowCmd) Run(ctx context.Context, con *console) error {
	found, err := c.request(time.Now())
	if err != nil {
		return err
	}
	req, _ := found.(*operation.StatusRequest)
	g, done, err := c.open(ctx, con, openForReading)
	if err != nil {
		return err
	}
	defer done()
	s, err := operation.Status.Do(ctx, g, *req)
	if err != nil {
		return module.EngineFailure(err)
	}
	more, err := readMore(ctx, g, *req, s)
	if err != nil {
		return err
	}
	if c.JSON {
		return con.out.JSON(struct {
			engine.StatusResult
			instanceMore
		}{s, more})
	}
	rows := [][]string{
		{"id", s.ID},
		{"workflow", versionOf(s.Position)},
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
	con.out.Table(rows)
	printCalls(con.out, s.Calls)
	con.out.Printf("context\n")
	if err := con.out.JSON(s.Context); err != nil {
		return err
	}
	if len(more.Evidence) > 0 {
		con.out.Printf("\nevidence that the gate fetched\n")
		con.out.Table(fetchedRows(more.Evidence))
	}
	if len(more.AllReviews) > 0 {
		con.out.Printf("\nreviews\n")
		con.out.Table(forPerson(con.out, reviewRows(more.AllReviews)))
	}
	return nil
}

// decisionRows returns the table of decisions, which the demo prints too.
func decisionRows(decisions []engine.HistoryEntry) [][]string {
	rows := [][]string{{"SEQ", "ACTION", "FROM", "TO", "OUTCOME", "DECIDED BY", "CONFIDENCE", "ASSURANCE", "REASON"}}
	for _, d := range decisions {
		to := d.To
		if !d.Applied {
			to = d.From
		}
		rows = append(rows, []string{
			fmt.Sprint(d.Seq), actionOf(d), term.OrNone(d.From), term.OrNone(to), string(d.Outcome), string(d.DecidedBy),
			judge.FormatConfidence(d.Confidence), string(d.Assurance), term.Truncate(reasonOf(d), 60),
		})
	}
	return rows
}

func actionOf(d engine.HistoryEntry) string {
	action := d.Action
	switch {
	case d.Kind == record.Started:
		action = "start"
	case action == "" && d.Tool == "":
		action = endMark
	}
	if d.Precheck {
		action += " (asked only)"
	}
	return term.OrNone(action)
}

func reasonOf(d engine.HistoryEntry) string {
	if len(d.Violations) > 0 {
		return strings.Join(d.Violations, "; ")
	}
	return d.Reasoning
}

// versionOf formats the workflow and version that an instance follows, and notes if an agent defined it.
func versionOf(p engine.Position) string {
	out := fmt.Sprintf("%s v%d", p.Workflow, p.Version)
	if p.DefinitionOwner != engine.OwnedByOperator {
		out += " (an agent's)"
	}
	return out
}

// instanceMore is what the command line shows of an instance in addition to its status.
type instanceMore struct {
	// Evidence was fetched for the instance's decisions, oldest first.
	Evidence []fetchedFor `json:"evidence"`
	// AllReviews includes closed reviews.
	AllReviews []engine.ReviewSummary `json:"allReviews"`
}

// fetchedFor is evidence with its decision.
type fetchedFor struct {
	Seq    int64  `json:"seq"`
	Action string `json:"action"`
	engine.Evidence
}

// readMore reads the instance's history and reviews, up to the revision that the status shows.
func readMore(ctx context.Context, g operation.Caller, req operation.StatusRequest, s engine.StatusResult) (instanceMore, error) {
	out := instanceMore{Evidence: []fetchedFor{}, AllReviews: []engine.ReviewSummary{}}
	for page := (engine.HistoryRequest{ID: req.ID, Limit: 1000, Until: req.When}); ; {
		h, err := operation.History.Do(ctx, g, page)
		if err != nil {
			return out, module.EngineFailure(err)
		}
		out.Evidence = append(out.Evidence, evidenceOfDecisions(h.Decisions)...)
		if page.AfterSeq = h.NextAfter; h.NextAfter == 0 {
			break
		}
	}
	for page := (engine.ReviewsRequest{Instance: req.ID, Status: "all", Limit: 500}); ; {
		r, err := operation.Reviews.Do(ctx, g, page)
		if err != nil {
			return out, module.EngineFailure(err)
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

func evidenceOfDecisions(decisions []engine.HistoryEntry) (all []fetchedFor) {
	for _, d := range decisions {
		for _, e := range d.Evidence {
			all = append(all, fetchedFor{d.Seq, d.Action, e})
		}
	}
	return all
}

// historyTables returns the tables that show a history.
func historyTables(h engine.HistoryResult) [][][]string {
	tables := [][][]string{decisionRows(h.Decisions)}
	if fetched := evidenceOfDecisions(h.Decisions); len(fetched) > 0 {
		tables = append(tables, fetchedRows(fetched))
	}
	return tables
}

// fetchedRows returns the table of evidence. The content is shown by --json and gavel review show.
func fetchedRows(all []fetchedFor) [][]string {
	rows := [][]string{{"SEQ", "ACTION", "NAME", "SOURCE", "FETCHED", "TOOK", "SIZE", "DIGEST"}}
	for _, e := range all {
		size, digest := fmt.Sprint(e.Size), cmp.Or(e.Digest, "-") // agents do not get the digest
		if e.Failure != "" {
			size, digest = "-", term.Truncate(fmt.Sprintf("failed (%s): %s", e.Failure, e.Detail), 100)
		}
		rows = append(rows, []string{fmt.Sprint(e.Seq), e.Action, e.Name, e.Source, formatTime(e.At), term.ShortDuration(e.Took.Duration()), size, digest})
	}
	return rows
}

func timelineRows(r engine.TimelineResult) [][]string {
	rows := [][]string{{"SEQ", "REVISION", "TIME", "WHAT", "STATE", "BY", "NOTE"}}
	for _, e := range r.Events {
		rows = append(rows, []string{
			fmt.Sprint(e.Seq), fmt.Sprint(e.Revision), e.Time.Format("2006-01-02T15:04:05.000000Z07:00"), whatHappened(e), e.To, e.Principal, term.Truncate(term.OrNone(eventNote(e)), 60),
		})
	}
	return rows
}

// whatHappened returns the kind of an event and its action.
func whatHappened(e engine.TimelineEntry) string {
	about := e.Action
	if e.Stop {
		about = endMark
	}
	return strings.TrimSpace(string(e.Kind) + " " + about)
}

func eventNote(e engine.TimelineEntry) string {
	switch e.Kind {
	case record.RolledBack, record.Undone, record.Redone:
		return fmt.Sprintf("as revision %d was", e.Restores)
	case record.Migrated:
		return fmt.Sprintf("from version %d to %d", e.FromVersion, e.Version)
	case record.Truncated:
		return fmt.Sprintf("%d events before were removed", e.Removed)
	case record.Checkpointed:
		return e.CheckpointID
	case record.Escalated:
		return e.ReviewID
	case record.Called:
		return e.Tool + ", " + e.CallID
	case record.Settled:
		return fmt.Sprintf("%s: %s", e.Tool, e.CallOutcome)
	default:
		return e.Reason
	}
}
