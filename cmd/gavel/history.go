package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

type historyCmd struct {
	Search historySearchCmd `cmd:"" help:"Find decisions, newest first."`
	Stats  historyStatsCmd  `cmd:"" help:"Count decisions per transition."`
	Export historyExportCmd `cmd:"" help:"Write decisions as JSON Lines."`
}

func (historyCmd) Help() string {
	return `Every judgement is recorded, refused and parked ones too, and what was only asked.
These commands look through those of all instances; gavel instances history shows one
instance's. Sensitive values are masked everywhere.`
}

// decisionFilter is what decisions are chosen by; all that is given must hold.
type decisionFilter struct {
	Text      string   `name:"text" placeholder:"WORDS" help:"Only where reasoning and findings hold all of these words."`
	Workflow  string   `name:"workflow" placeholder:"NAME" help:"Only of this workflow."`
	Instance  string   `name:"instance" placeholder:"ID" help:"Only about this instance."`
	Owner     string   `name:"owner" placeholder:"PRINCIPAL" help:"Only about instances that this principal started."`
	Principal string   `name:"principal" placeholder:"PRINCIPAL" help:"Only what this principal asked for."`
	Action    string   `name:"action" placeholder:"ACTION" help:"Only about this action."`
	Outcome   string   `name:"outcome" enum:",approve,reject,escalate" default:"" placeholder:"OUTCOME" help:"Only approve, reject or escalate."`
	DecidedBy string   `name:"decided-by" placeholder:"LAYER" help:"Only what this layer settled: fields, schema, script, model, reviewer, ..."`
	Assurance string   `name:"assurance" placeholder:"ASSURANCE" help:"Only where this was examined: none, structural, validators, llm, llm_calibrated, human."`
	Code      string   `name:"code" placeholder:"CODE" help:"Only with this code of a refusal or escalation."`
	Kind      []string `name:"kind" placeholder:"KIND" help:"Only of these kinds: started, advanced, refused, prechecked, escalated, reviewed."`
	Degraded  bool     `name:"degraded" help:"Only decisions made without a judge that the workflow asks for."`
	Least     *float64 `name:"min-confidence" placeholder:"C" help:"Only with at least this confidence, 0 to 1."`
	Most      *float64 `name:"max-confidence" placeholder:"C" help:"Only with at most this confidence, 0 to 1."`
	timeFilter
}

type timeFilter struct {
	Since string `name:"since" placeholder:"WHEN" help:"Only from then on: how long ago (24h, 7d), a date (2026-03-01) or a time (RFC 3339)."`
	Until string `name:"until" placeholder:"WHEN" help:"Only before then, written as for --since."`
}

func (f timeFilter) times(now time.Time) (since, until time.Time, err error) {
	if since, err = parseMoment("--since", f.Since, now); err != nil {
		return since, until, err
	}
	until, err = parseMoment("--until", f.Until, now)
	return since, until, err
}

// parseMoment reads a time: how long before now, a date (its beginning in UTC), or RFC 3339.
func parseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, term.UsageErrorf("write it as 24h, 7d, 2026-03-01 or 2026-03-01T09:30:00Z", "%s %q is no time", flag, text)
}

func (f decisionFilter) query(now time.Time) (store.DecisionQuery, error) {
	q := store.DecisionQuery{
		Text: f.Text, Workflow: f.Workflow, Instance: f.Instance, Owner: f.Owner, Principal: f.Principal, Action: f.Action,
		Outcome: judge.Outcome(f.Outcome), DecidedBy: judge.LayerName(f.DecidedBy), Assurance: judge.Assurance(f.Assurance),
		Code: f.Code, MinConfidence: f.Least, MaxConfidence: f.Most,
	}
	if f.Degraded {
		q.Degraded = &f.Degraded
	}
	for _, k := range f.Kind {
		q.Kinds = append(q.Kinds, record.Kind(k))
	}
	var err error
	q.Since, q.Until, err = f.times(now)
	return q, err
}

type historySearchCmd struct {
	decisionFilter
	Limit int    `name:"limit" default:"50" placeholder:"N" help:"At most this many, 1 to 1000."`
	After string `name:"after" placeholder:"CURSOR" help:"Continue where a list ended."`
	JSON  bool   `name:"json" help:"Print JSON, with data, findings and every layer's opinion."`
	placeFlags
}

func (historySearchCmd) Help() string {
	return `Words are found whatever their case, accents and order. The first search after much was
written takes longer: it brings the index up to date.

Examples:

    gavel history search --outcome reject --since 24h
    gavel history search --text 'missing comments' --workflow document-review
    gavel history search --decided-by model --max-confidence 0.7 --json | jq '.decisions[].reasoning'`
}

func (c *historySearchCmd) Run(ctx context.Context, con *console) error {
	if err := checkLimit(c.Limit, 1000); err != nil {
		return err
	}
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	found, err := ask(ctx, con, c.placeFlags, operation.Decisions, engine.DecisionsRequest{Query: q, Cursor: c.After, Limit: c.Limit})
	if err != nil {
		return err
	}
	return con.printList(c.JSON, found, foundRows(found.Decisions), "no such decisions", formatCursorFlag("--after", found.NextCursor), "ASSURANCE", "CONFIDENCE", "FROM", "DECIDED BY")
}

func foundRows(decisions []engine.FoundDecision) [][]string {
	rows := [][]string{{"WHEN", "INSTANCE", "WORKFLOW", "ACTION", "FROM", "OUTCOME", "DECIDED BY", "CONFIDENCE", "ASSURANCE", "REASON"}}
	for _, d := range decisions {
		rows = append(rows, []string{
			formatTime(d.Time), d.Instance, fmt.Sprintf("%s v%d", d.Workflow, d.Version), actionOf(d.HistoryEntry), orNone(d.From), string(d.Outcome),
			string(d.DecidedBy), judge.FormatConfidence(d.Confidence), string(d.Assurance), truncateText(reasonOf(d.HistoryEntry), 60),
		})
	}
	return rows
}

type historyStatsCmd struct {
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only of this workflow."`
	timeFilter
	JSON bool `name:"json" help:"Print JSON."`
	placeFlags
}

func (historyStatsCmd) Help() string {
	return `Questions (judge.validate) are counted apart, and in no other figure. TOOK is how
long half of the decisions took at most and P95 95 of 100, within 2 percent.

Examples:

    gavel history stats
    gavel history stats --workflow document-review --since 7d
    gavel history stats --json | jq '.transitions[] | select(.rejections > .approvals)'`
}

func (c *historyStatsCmd) Run(ctx context.Context, con *console) error {
	since, until, err := c.times(time.Now())
	if err != nil {
		return err
	}
	stats, err := ask(ctx, con, c.placeFlags, operation.Statistics, engine.StatisticsRequest{Workflow: c.Workflow, Since: since, Until: until})
	if err != nil {
		return err
	}
	if stats.NotShown > 0 && !c.JSON {
		con.err.Printf("%d decisions about further transitions are not shown\n", stats.NotShown)
	}
	return con.printList(c.JSON, stats, statsRows(stats.Transitions), "no such decisions", "", "P95", "TOOK", "CONFIDENCE (QUARTILES)", "ASKED ONLY", "DEGRADED", "DECIDED BY")
}

func statsRows(all []engine.TransitionStatistics) [][]string {
	rows := [][]string{{
		"WORKFLOW", "STATE", "ACTION", "DECIDED", "APPROVED", "REJECTED", "ESCALATED", "DEGRADED", "ASKED ONLY",
		"TOOK", "P95", "CONFIDENCE (QUARTILES)", "DECIDED BY", "REFUSED FOR",
	}}
	for _, t := range all {
		action := t.Action
		if t.State == "" && action == "" {
			action = "start"
		}
		rows = append(rows, []string{
			t.Workflow, orNone(t.State), orNone(action), fmt.Sprint(t.Decisions), fmt.Sprint(t.Approved), fmt.Sprint(t.Rejected),
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
	return orNone(truncateText(strings.Join(out, ", "), 80))
}

func shortMs(ms float64) string { return shortDuration(time.Duration(ms * float64(time.Millisecond))) }

const exportPage = 200

type historyExportCmd struct {
	decisionFilter
	Out string `name:"out" placeholder:"FILE" help:"Write to this file, which appears when it is complete; standard output when left out."`
	storeFlag
}

func (historyExportCmd) Help() string {
	return `One decision per line as JSON, newest first, with the same fields in the same order each
time. Sensitive values are masked; there is no way to have them plain. Of evidence
there is that it was fetched, when, and its digest.

Examples:

    gavel history export --out decisions.jsonl
    gavel history export --workflow document-review --since 2026-01-01 | jq -c '{time, outcome, code}'`
}

func (c *historyExportCmd) Run(ctx context.Context, con *console) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	sys, err := openForReading(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := sys.completeInstance(ctx, &q.Instance); err != nil {
		return err
	}
	export := func(w io.Writer) error { return exportDecisions(ctx, sys.Engine, q, w) }
	if c.Out == "" {
		return export(con.rawOut)
	}
	return writeWhole(c.Out, export)
}

// exportDecisions writes decisions page by page. What a terminal would obey is escaped,
// so standard output may be one.
func exportDecisions(ctx context.Context, e *engine.Engine, q store.DecisionQuery, w io.Writer) error {
	out := bufio.NewWriter(w)
	for req := (engine.DecisionsRequest{Query: q, Limit: exportPage, BareEvidence: true}); ; {
		page, err := e.Decisions(ctx, localCLI, req)
		if err != nil {
			return engineFailure(err)
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

// writeWhole makes a file appear with all of its content, on the disk, or not at all.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".gavel-export-*") // 0600
	if err != nil {
		return term.UsageErrorf("choose a place that you can write to", "cannot write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error is the one to tell
		}
	}()
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return term.UnknownErrorf("free some space, or choose another place", "cannot write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return term.UsageErrorf("choose a place that you can write to", "cannot write %s: %w", path, err)
	}
	if err := record.SyncDir(dir); err != nil {
		return fmt.Errorf("make %s last: %w", path, err)
	}
	return nil
}
