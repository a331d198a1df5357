package instance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// HistoryCommand has the commands that search, count and export decisions.
type HistoryCommand struct {
	Search cli.OperationCommand `cmd:"" help:"Find decisions, newest first."`
	Stats  cli.OperationCommand `cmd:"" help:"Count decisions per transition."`
	Export historyExportCmd     `cmd:"" help:"Write decisions as JSON Lines."`
}

func foundRows(decisions []engine.FoundDecision) [][]string {
	rows := [][]string{{"WHEN", "INSTANCE", "WORKFLOW", "ACTION", "FROM", "OUTCOME", "DECIDED BY", "CONFIDENCE", "ASSURANCE", "REASON"}}
	for _, d := range decisions {
		rows = append(rows, []string{
			cli.FormatTime(d.Time), d.Instance, fmt.Sprintf("%s v%d", d.Workflow, d.Version), cli.FormatAction(d.HistoryEntry), term.OrNone(d.From), string(d.Outcome),
			string(d.DecidedBy), judge.FormatConfidence(d.Confidence), string(d.Assurance), term.Truncate(cli.FormatReason(d.HistoryEntry), 60),
		})
	}
	return rows
}

func statsRows(r engine.StatisticsResult) [][]string {
	rows := [][]string{{
		"WORKFLOW", "STATE", "ACTION", "DECIDED", "APPROVED", "REJECTED", "ESCALATED", "DEGRADED", "ASKED ONLY",
		"TOOK", "P95", "CONFIDENCE (QUARTILES)", "DECIDED BY", "REFUSED FOR",
	}}
	for _, t := range r.Transitions {
		action := t.Action
		if t.State == "" && action == "" {
			action = "start"
		}
		rows = append(rows, []string{
			t.Workflow, term.OrNone(t.State), term.OrNone(action), fmt.Sprint(t.Decisions), fmt.Sprint(t.Approved), fmt.Sprint(t.Rejected),
			fmt.Sprint(t.Escalated), fmt.Sprint(t.Degraded), fmt.Sprint(t.Prechecks),
			shortMs(t.TookMedianMs), shortMs(t.TookP95Ms),
			fmt.Sprintf("%s %s %s", judge.FormatConfidence(t.ConfidenceLower), judge.FormatConfidence(t.ConfidenceMedian), judge.FormatConfidence(t.ConfidenceUpper)),
			joinCounts(t.DecidedBy), joinCounts(t.Codes),
		})
	}
	return rows
}

func joinCounts(all []engine.Counted) string {
	out := make([]string, len(all))
	for i, c := range all {
		out[i] = fmt.Sprintf("%s %d", c.Name, c.Count)
	}
	return term.OrNone(term.Truncate(strings.Join(out, ", "), 80))
}

func shortMs(ms float64) string {
	return term.ShortDuration(time.Duration(ms * float64(time.Millisecond)))
}

const exportPage = 200

type historyExportCmd struct {
	cli.OperationFlags
	Out string `name:"out" placeholder:"FILE" help:"Write to this file, which appears once it is complete. Default: standard output."`
	cli.StoreFlag
}

func (c *historyExportCmd) Run(ctx context.Context, con *cli.Console) error {
	asked, err := c.BuildRequest(time.Now())
	if err != nil {
		return err
	}
	req, _ := asked.(*engine.DecisionsRequest)
	sys, err := cli.OpenForReading(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := sys.CompleteInstance(ctx, &req.Query.Instance); err != nil {
		return err
	}
	export := func(w io.Writer) error { return exportDecisions(ctx, sys.Engine, req.Query, w) }
	if c.Out == "" {
		return export(con.RawOut)
	}
	return cli.WriteFileAtomically(c.Out, export)
}

// exportDecisions writes decisions page by page. It escapes control sequences, so that standard output may be a
// terminal.
func exportDecisions(ctx context.Context, e *engine.Engine, q store.DecisionQuery, w io.Writer) error {
	out := bufio.NewWriter(w)
	for req := (engine.DecisionsRequest{Query: q, Limit: exportPage, BareEvidence: true}); ; {
		page, err := e.Decisions(ctx, gavel.Operator, req)
		if err != nil {
			return cli.EngineFailure(err)
		}
		for _, d := range page.Decisions {
			line, err := document.Marshal(d)
			if err != nil {
				return term.UnknownErrorf("", "cannot encode decision %d of %s: %w", d.Seq, d.Instance, err)
			}
			if _, err := out.WriteString(term.EscapeJSON(string(line)) + "\n"); err != nil {
				return term.UnknownErrorf("", "cannot write the export: %w", err)
			}
		}
		if req.Cursor = page.NextCursor; req.Cursor == "" {
			if err := out.Flush(); err != nil {
				return term.UnknownErrorf("", "cannot write the export: %w", err)
			}
			return nil
		}
	}
}
