package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/operation"
)

type instancesCmd struct {
	List     instancesListCmd     `cmd:"" help:"List instances, newest first."`
	Show     instancesShowCmd     `cmd:"" help:"Show where an instance stands and what it knows, or stood and knew."`
	History  instancesHistoryCmd  `cmd:"" help:"Show every judgement of an instance, oldest first."`
	Timeline instancesTimelineCmd `cmd:"" help:"Show everything that happened to an instance, oldest first."`
	Undo     instancesUndoCmd     `cmd:"" help:"Take the last move of an instance back."`
	Redo     instancesRedoCmd     `cmd:"" help:"Make the last undone move again."`
}

// Help says who the reader is.
func (instancesCmd) Help() string {
	return `Whoever can run this on the store's machine is its operator (local:cli) and
sees every instance. Reading a store that a server has open is fine. With --server
the server is asked, and you see what your token lets you see.`
}

type instancesListCmd struct {
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only instances of this workflow."`
	State    string `name:"state" placeholder:"STATE" help:"Only instances in this state."`
	Status   string `name:"status" enum:",running,complete,cancelled" default:"" placeholder:"STATUS" help:"Only running, complete or cancelled ones."`
	Limit    int    `name:"limit" default:"50" placeholder:"N" help:"At most this many, 1 to 500."`
	After    string `name:"after" placeholder:"ID" help:"Continue below this instance."`
	JSON     bool   `name:"json" help:"Print JSON."`
	placeFlags
}

// Help shows examples.
func (instancesListCmd) Help() string {
	return `Examples:

    gavel instances list
    gavel instances list --workflow document-review --status running
    gavel instances list --server https://gavel.example --token-file ~/.gavel-token
    gavel instances list --json | jq -r '.instances[].id'`
}

// Run lists instances.
func (c *instancesListCmd) Run(ctx context.Context, con *console) error {
	if c.Limit < 1 {
		return term.UsageErrorf("", "--limit is 1 to 500, not %d", c.Limit)
	}
	g, done, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	result, err := operation.Instances.Do(ctx, g, engine.InstancesRequest{
		Workflow: c.Workflow, State: c.State, Status: record.Status(c.Status), Cursor: c.After, Limit: c.Limit,
	})
	if err != nil {
		return engineFailure(err)
	}
	if c.JSON {
		return con.out.JSON(result)
	}
	if len(result.Instances) == 0 {
		con.err.Printf("no instances\n")
		return nil
	}
	rows := [][]string{{"ID", "WORKFLOW", "STATE", "STATUS", "REVISION", "OWNER", "UPDATED"}}
	for _, i := range result.Instances {
		rows = append(rows, []string{
			i.ID, versionOf(i.Position), i.State, string(i.Status),
			fmt.Sprint(i.Revision), i.Owner, i.UpdatedAt.Format(time.RFC3339),
		})
	}
	con.out.Table(rows)
	if result.NextCursor != "" {
		con.err.Printf("more with --after %s\n", result.NextCursor)
	}
	return nil
}

type instancesShowCmd struct {
	ID   string `arg:"" name:"id" help:"The instance."`
	JSON bool   `name:"json" help:"Print JSON."`
	pastFlags
	placeFlags
}

// Help shows examples.
func (instancesShowCmd) Help() string {
	return `With --revision or --at it shows the past: state, context and what was known then, under the
version of the workflow that the instance had then.

Examples:

    gavel instances show wf-01926f0e-7c1a-7000-8000-000000000000
    gavel instances show wf-01926f0e-7c1a-7000-8000-000000000000 --revision 3
    gavel instances show wf-01926f0e-7c1a-7000-8000-000000000000 --at 2026-01-02T15:04:05Z
    gavel instances show wf-01926f0e-7c1a-7000-8000-000000000000 --json | jq .context`
}

// Run shows one instance.
func (c *instancesShowCmd) Run(ctx context.Context, con *console) error {
	when, err := c.when()
	if err != nil {
		return err
	}
	g, done, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	s, err := operation.Status.Do(ctx, g, operation.StatusRequest{ID: c.ID, When: when})
	if err != nil {
		return engineFailure(err)
	}
	more, err := c.more(ctx, g, when, s)
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
		{"next actions", orNone(strings.Join(s.NextActions, ", "))},
		{"visited", strings.Join(s.Visited, " -> ")},
		{"revision", fmt.Sprintf("%d (%d events)", s.Revision, s.Seq)},
		{"owner", s.Owner},
		{"started", s.CreatedAt.Format(time.RFC3339)},
		{"updated", s.UpdatedAt.Format(time.RFC3339)},
	}
	if s.Past != nil {
		rows = append(rows, []string{"now", fmt.Sprintf("in %s, at revision %d", s.Past.State, s.Past.Revision)})
	}
	con.out.Table(rows)
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
		con.out.Table(reviewRows(more.AllReviews, true))
	}
	return nil
}

type instancesHistoryCmd struct {
	ID    string `arg:"" name:"id" help:"The instance."`
	After int64  `name:"after-seq" default:"0" placeholder:"SEQ" help:"Only events behind this number."`
	Limit int    `name:"limit" default:"100" placeholder:"N" help:"At most this many, 1 to 1000."`
	JSON  bool   `name:"json" help:"Print JSON, with data, findings and every layer's opinion."`
	pastFlags
	placeFlags
}

// Help shows examples.
func (instancesHistoryCmd) Help() string {
	return `Examples:

    gavel instances history wf-01926f0e-7c1a-7000-8000-000000000000
    gavel instances history wf-01926f0e-7c1a-7000-8000-000000000000 --json | jq '.decisions[].opinions'`
}

// Run shows the decisions of one instance.
func (c *instancesHistoryCmd) Run(ctx context.Context, con *console) error {
	if c.Limit < 1 {
		return term.UsageErrorf("", "--limit is 1 to 1000, not %d", c.Limit)
	}
	until, err := c.when()
	if err != nil {
		return err
	}
	g, done, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	h, err := operation.History.Do(ctx, g, engine.HistoryRequest{ID: c.ID, AfterSeq: c.After, Limit: c.Limit, Until: until})
	if err != nil {
		return engineFailure(err)
	}
	if c.JSON {
		return con.out.JSON(h)
	}
	con.out.Table(decisionRows(h.Decisions))
	if h.NextAfter > 0 {
		con.err.Printf("more with --after-seq %d\n", h.NextAfter)
	}
	return nil
}

// decisionRows is the table of decisions; the demo prints the same one.
func decisionRows(decisions []engine.HistoryEntry) [][]string {
	rows := [][]string{{"SEQ", "ACTION", "FROM", "TO", "OUTCOME", "DECIDED BY", "CONFIDENCE", "ASSURANCE", "REASON"}}
	for _, d := range decisions {
		action := d.Action
		if d.Kind == record.Started {
			action = "start"
		}
		if d.Precheck {
			action += " (asked only)"
		}
		to := d.To
		if !d.Applied {
			to = d.From
		}
		rows = append(rows, []string{
			fmt.Sprint(d.Seq), action, orNone(d.From), orNone(to), string(d.Outcome), string(d.DecidedBy),
			fmt.Sprintf("%.2f", d.Confidence), string(d.Assurance), cut(reasonOf(d), 60),
		})
	}
	return rows
}

func reasonOf(d engine.HistoryEntry) string {
	if len(d.Violations) > 0 {
		return strings.Join(d.Violations, "; ")
	}
	return d.Reasoning
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cut shortens text to at most n characters.
func cut(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return strings.TrimRight(string(runes[:n-3]), " ,;.") + "..."
}

// versionOf names the version of the workflow that an instance follows, and says when it is
// not an operator's.
func versionOf(p engine.Position) string {
	out := fmt.Sprintf("%s v%d", p.Workflow, p.Version)
	if p.DefinitionOwner != engine.OwnedByOperator {
		out += " (an agent's)"
	}
	return out
}
