package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// DecisionRows returns the table of decisions, which the demo prints too.
func DecisionRows(decisions []engine.HistoryEntry) [][]string {
	rows := [][]string{{"SEQ", "ACTION", "FROM", "TO", "OUTCOME", "DECIDED BY", "CONFIDENCE", "ASSURANCE", "REASON"}}
	for _, d := range decisions {
		to := d.To
		if !d.Applied {
			to = d.From
		}
		rows = append(rows, []string{
			fmt.Sprint(d.Seq), FormatAction(d), term.OrNone(d.From), term.OrNone(to), string(d.Outcome), string(d.DecidedBy),
			judge.FormatConfidence(d.Confidence), string(d.Assurance), term.Truncate(FormatReason(d), 100),
		})
	}
	return rows
}

// FormatAction returns a decision's action as tables show it.
func FormatAction(d engine.HistoryEntry) string {
	action := d.Action
	switch {
	case d.Kind == record.Started:
		action = "start"
	case action == "" && d.Tool == "":
		action = EndMark
	}
	if d.Precheck {
		action += " (asked only)"
	}
	return term.OrNone(action)
}

// FormatReason returns a decision's violations, or its reasoning.
func FormatReason(d engine.HistoryEntry) string {
	if len(d.Violations) > 0 {
		return strings.Join(d.Violations, "; ")
	}
	if d.Reasoning == "" { // over MCP, a refusal has only its findings
		var all []string
		for _, f := range d.Findings {
			all = append(all, f.Message)
		}
		return strings.Join(all, "; ")
	}
	return d.Reasoning
}

// FormatVersion formats the workflow and version that an instance follows, and notes if an agent defined it.
func FormatVersion(p engine.Position) string {
	out := fmt.Sprintf("%s v%d", p.Workflow, p.Version)
	if p.DefinitionOwner != engine.OwnedByOperator {
		out += " (an agent's)"
	}
	return out
}

// FetchedFor is evidence with its decision.
type FetchedFor struct {
	Seq    int64  `json:"seq"`
	Action string `json:"action"`
	judge.Evidence
}

// ListFetched returns the evidence of all decisions.
func ListFetched(decisions []engine.HistoryEntry) (all []FetchedFor) {
	for _, d := range decisions {
		for _, e := range d.Evidence {
			all = append(all, FetchedFor{d.Seq, d.Action, e})
		}
	}
	return all
}

// HistoryTables returns the tables that show a history.
func HistoryTables(h engine.HistoryResult) [][][]string {
	tables := [][][]string{DecisionRows(h.Decisions)}
	if fetched := ListFetched(h.Decisions); len(fetched) > 0 {
		tables = append(tables, FetchedRows(fetched))
	}
	return tables
}

// FetchedRows returns the table of evidence. The content is shown by --json and gavel review show.
func FetchedRows(all []FetchedFor) [][]string {
	rows := [][]string{{"SEQ", "ACTION", "NAME", "SOURCE", "FETCHED", "TOOK", "SIZE", "DIGEST"}}
	for _, e := range all {
		size, digest := fmt.Sprint(e.Size), cmp.Or(e.Digest, "-") // agents do not get the digest
		if e.Failure != "" {
			size, digest = "-", term.Truncate(fmt.Sprintf("failed (%s): %s", e.Failure, e.Detail), 100)
		}
		rows = append(rows, []string{fmt.Sprint(e.Seq), e.Action, e.Name, e.Source, FormatTime(e.At), term.ShortDuration(e.Took.Duration()), size, digest})
	}
	return rows
}

// FormatEvent returns the kind of an event and its action.
func FormatEvent(e engine.TimelineEntry) string {
	about := e.Action
	if e.Stop {
		about = EndMark
	}
	return strings.TrimSpace(string(e.Kind) + " " + about)
}

// DescribeEvent returns the note about an event for a table.
func DescribeEvent(e engine.TimelineEntry) string {
	switch e.Kind {
	case record.RolledBack, record.Undone, record.Redone:
		return fmt.Sprintf("as revision %d was", e.Restores)
	case record.Migrated:
		return fmt.Sprintf("from version %d to %d", e.FromVersion, e.Version)
	case record.Truncated:
		return fmt.Sprintf("%d earlier events were removed", e.Removed)
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

// EndMark is shown as the action of an agent's request to end.
const EndMark = "(end)"

// ReviewRows returns the table of reviews. It has a status column if any of them is closed.
func ReviewRows(reviews []engine.ReviewSummary) [][]string {
	ended := slices.ContainsFunc(reviews, func(r engine.ReviewSummary) bool { return r.Status != record.ReviewOpen })
	head := []string{"ID", "PRIORITY", "WORKFLOW", "ACTION", "MOVE", "REQUESTED BY", "WAITS SINCE", "EXPIRES"}
	if ended {
		head = append(head, "STATUS")
	}
	rows := [][]string{head}
	for _, r := range reviews {
		row := []string{
			r.ID, string(r.Priority), r.Workflow, cmp.Or(r.Action, EndMark), r.From + " -> " + term.OrNone(r.Target), r.RequestedBy,
			FormatTime(r.ParkedAt), DescribeExpiry(r),
		}
		if ended {
			row = append(row, term.Truncate(DescribeEnd(r), 80))
		}
		rows = append(rows, row)
	}
	return rows
}

// DescribeEnd briefly describes the result of a review.
func DescribeEnd(r engine.ReviewSummary) string {
	if r.Status != record.ReviewResolved {
		return string(r.Status)
	}
	if r.Decision == engine.GiveUp {
		return "given up by " + r.By + ": " + r.Reason
	}
	if r.Decision != judge.Approve {
		return "rejected by " + r.By + ": " + r.Reason
	}
	return "approved by " + r.By
}

// DescribeExpiry returns when a review expires.
func DescribeExpiry(r engine.ReviewSummary) string {
	if r.ExpiresAt.IsZero() {
		return "never"
	}
	return FormatTime(r.ExpiresAt)
}

// FormatTime formats a time for tables.
func FormatTime(t time.Time) string { return t.Format(time.RFC3339) }
