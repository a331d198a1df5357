package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

type instancesCmd struct {
	List     instancesListCmd     `cmd:"" help:"List instances, newest first."`
	Show     instancesShowCmd     `cmd:"" help:"Show the state and context of an instance, now or at an earlier revision."`
	History  instancesHistoryCmd  `cmd:"" help:"Show every judgement of an instance, oldest first."`
	Timeline instancesTimelineCmd `cmd:"" help:"Show everything that happened to an instance, oldest first."`
	Undo     instancesUndoCmd     `cmd:"" help:"Take the last move of an instance back."`
	Redo     instancesRedoCmd     `cmd:"" help:"Make the last undone move again."`
	Release  instancesReleaseCmd  `cmd:"" help:"Let another instance be about the subject of this one."`
}

func (instancesCmd) Help() string {
	return `On the store's machine you are its operator (local:cli) and see every
instance. Reading a store that a server has open is fine. With --server
the server is asked, and you see what your token lets you see.`
}

type instancesListCmd struct {
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only instances of this workflow."`
	State    string `name:"state" placeholder:"STATE" help:"Only instances in this state."`
	Status   string `name:"status" enum:",running,complete,cancelled" default:"" placeholder:"STATUS" help:"Only running, complete or cancelled ones."`
	Limit    int    `name:"limit" default:"50" placeholder:"N" help:"At most this many, 1 to 500."`
	After    string `name:"after" placeholder:"ID" help:"Continue after this instance."`
	JSON     bool   `name:"json" help:"Print JSON."`
	placeFlags
}

func (instancesListCmd) Help() string {
	return `Examples:

    gavel instances list
    gavel instances list --workflow document-review --status running
    gavel instances list --server https://gavel.example --token-file ~/.gavel-token
    gavel instances list --json | jq -r '.instances[].id'`
}

func (c *instancesListCmd) Run(ctx context.Context, con *console) error {
	if err := checkLimit(c.Limit, 500); err != nil {
		return err
	}
	result, err := ask(ctx, con, c.placeFlags, operation.Instances, engine.InstancesRequest{
		Workflow: c.Workflow, State: c.State, Status: record.Status(c.Status), Cursor: c.After, Limit: c.Limit,
	})
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "WORKFLOW", "STATE", "STATUS", "REVISION", "OWNER", "UPDATED"}}
	for _, i := range result.Instances {
		rows = append(rows, []string{
			i.ID, versionOf(i.Position), i.State, string(i.Status),
			fmt.Sprint(i.Revision), i.Owner, i.UpdatedAt.Format(time.RFC3339),
		})
	}
	return con.printList(c.JSON, result, rows, "no instances", formatCursorFlag("--after", result.NextCursor))
}

type instancesShowCmd struct {
	ID   string `arg:"" name:"id" help:"The instance: its id, or the beginning of it."`
	JSON bool   `name:"json" help:"Print JSON."`
	pastFlags
	placeFlags
}

func (instancesShowCmd) Help() string {
	return `With --revision or --at it shows the past: state, context and what was known then, under the
version of the workflow that the instance had then.

Examples:

    gavel instances show wf-019bc6b0-f7db-79d3-922c-004710d1043a
    gavel instances show wf-019bc6b0-f7db-79d3-922c-004710d1043a --revision 3
    gavel instances show wf-019bc6b0-f7db-79d3-922c-004710d1043a --at 2026-01-15T09:30:00Z
    gavel instances show wf-019bc6b0-f7db-79d3-922c-004710d1043a --json | jq .context`
}

func (c *instancesShowCmd) Run(ctx context.Context, con *console) error {
	when, err := c.when()
	if err != nil {
		return err
	}
	g, done, err := c.open(ctx, con, openForReading)
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
		con.out.Table(forPerson(con.out, reviewRows(more.AllReviews, true)))
	}
	return nil
}

type eventFlags struct {
	ID    string `arg:"" name:"id" help:"The instance: its id, or the beginning of it."`
	After int64  `name:"after-seq" default:"0" placeholder:"SEQ" help:"Only events after this number."`
	Limit int    `name:"limit" default:"100" placeholder:"N" help:"At most this many, 1 to 1000."`
	JSON  bool   `name:"json" help:"Print JSON, with everything that is recorded of each event."`
	pastFlags
	placeFlags
}

// eventPage is what a page of events has in common.
type eventPage[Event any] struct {
	events *[]Event
	count  *int
	next   *int64
}

// askEvents asks for as many events as the flags say: a page of a busy server may end before.
func askEvents[Res, Event any](ctx context.Context, con *console, f eventFlags, op operation.Typed[engine.HistoryRequest, Res], page func(*Res) eventPage[Event]) (res Res, err error) {
	if err := checkLimit(f.Limit, 1000); err != nil {
		return res, err
	}
	req := engine.HistoryRequest{ID: f.ID, AfterSeq: f.After, Limit: f.Limit}
	if req.Until, err = f.when(); err != nil {
		return res, err
	}
	g, done, err := f.placeFlags.open(ctx, con, openForReading)
	if err != nil {
		return res, err
	}
	defer done()
	res, err = op.Do(ctx, g, req)
	all := page(&res)
	for err == nil && *all.next != 0 && len(*all.events) < f.Limit {
		req.AfterSeq, req.Limit = *all.next, f.Limit-len(*all.events)
		var more Res
		if more, err = op.Do(ctx, g, req); err == nil {
			found := page(&more)
			*all.events, *all.count, *all.next = append(*all.events, *found.events...), *all.count+*found.count, *found.next
		}
	}
	return res, engineFailure(err)
}

type instancesHistoryCmd struct{ eventFlags }

func (instancesHistoryCmd) Help() string {
	return `Examples:

    gavel instances history wf-019bcc48-006e-771f-94e2-7d7e1167078d
    gavel instances history wf-019bcc48-006e-771f-94e2-7d7e1167078d --json | jq '.decisions[].opinions'`
}

func (c *instancesHistoryCmd) Run(ctx context.Context, con *console) error {
	h, err := askEvents(ctx, con, c.eventFlags, operation.History, func(h *engine.HistoryResult) eventPage[engine.HistoryEntry] {
		return eventPage[engine.HistoryEntry]{&h.Decisions, &h.Count, &h.NextAfter}
	})
	if err != nil {
		return err
	}
	return con.printList(c.JSON, h, decisionRows(h.Decisions), "no decisions", formatCursorFlag("--after-seq", h.NextAfter), "ASSURANCE", "CONFIDENCE", "FROM")
}

// decisionRows is the table of decisions; the demo prints the same one.
func decisionRows(decisions []engine.HistoryEntry) [][]string {
	rows := [][]string{{"SEQ", "ACTION", "FROM", "TO", "OUTCOME", "DECIDED BY", "CONFIDENCE", "ASSURANCE", "REASON"}}
	for _, d := range decisions {
		to := d.To
		if !d.Applied {
			to = d.From
		}
		rows = append(rows, []string{
			fmt.Sprint(d.Seq), actionOf(d), orNone(d.From), orNone(to), string(d.Outcome), string(d.DecidedBy),
			judge.FormatConfidence(d.Confidence), string(d.Assurance), truncateText(reasonOf(d), 60),
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
	return orNone(action)
}

func reasonOf(d engine.HistoryEntry) string {
	if len(d.Violations) > 0 {
		return strings.Join(d.Violations, "; ")
	}
	return d.Reasoning
}

func orNone(s string) string { return cmp.Or(s, "-") }

func truncateText(s string, n int) string {
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
	engine.Evidence
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
	for page := (engine.ReviewsRequest{Instance: c.ID, Status: "all", Limit: 500}); ; {
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

func evidenceOfDecisions(decisions []engine.HistoryEntry) (all []fetchedFor) {
	for _, d := range decisions {
		for _, e := range d.Evidence {
			all = append(all, fetchedFor{d.Seq, d.Action, e})
		}
	}
	return all
}

// historyTables are the tables that show a history.
func historyTables(h engine.HistoryResult) [][][]string {
	tables := [][][]string{decisionRows(h.Decisions)}
	if fetched := evidenceOfDecisions(h.Decisions); len(fetched) > 0 {
		tables = append(tables, fetchedRows(fetched))
	}
	return tables
}

// fetchedRows is the table of evidence; the content is in --json and in gavel review show.
func fetchedRows(all []fetchedFor) [][]string {
	rows := [][]string{{"SEQ", "ACTION", "NAME", "SOURCE", "FETCHED", "TOOK", "SIZE", "DIGEST"}}
	for _, e := range all {
		size, digest := fmt.Sprint(e.Size), cmp.Or(e.Digest, "-") // not shown to agents
		if e.Failure != "" {
			size, digest = "-", truncateText(fmt.Sprintf("failed (%s): %s", e.Failure, e.Detail), 100)
		}
		rows = append(rows, []string{fmt.Sprint(e.Seq), e.Action, e.Name, e.Source, formatTime(e.At), shortDuration(e.Took.Duration()), size, digest})
	}
	return rows
}

type pastFlags struct {
	Revision int64  `name:"revision" placeholder:"N" help:"As it was at this revision. gavel instances timeline lists them."`
	At       string `name:"at" placeholder:"TIME" help:"As it was at this time, RFC 3339: 2026-03-10T09:30:00Z."`
}

// when is the point that is asked for, the zero value for now.
func (f pastFlags) when() (engine.When, error) {
	w := engine.When{Revision: f.Revision}
	switch {
	case f.Revision < 0:
		return w, term.UsageErrorf("", "--revision is 1 or more, not %d", f.Revision)
	case f.At == "":
		return w, nil
	case f.Revision > 0:
		return w, term.UsageErrorf("give one of them", "--revision and --at were both given")
	}
	var err error
	if w.At, err = time.Parse(time.RFC3339Nano, f.At); err != nil || w.At.IsZero() {
		return w, term.UsageErrorf("write it like 2026-03-10T09:30:00Z, with the zone", "--at is no time: %s", term.Clean(f.At))
	}
	return w, nil
}

type instancesTimelineCmd struct{ eventFlags }

func (instancesTimelineCmd) Help() string {
	return `Every event in its order: judgements, and checkpoints, rollbacks, undone moves, reviews
and migrations too. A revision is a change of state or context; instances show --revision
tells what it was.

Examples:

    gavel instances timeline wf-019bd1df-0901-74e1-9a10-6d37d9570722
    gavel instances timeline wf-019bd1df-0901-74e1-9a10-6d37d9570722 --at 2026-02-03T17:45:00Z`
}

func (c *instancesTimelineCmd) Run(ctx context.Context, con *console) error {
	all, err := askEvents(ctx, con, c.eventFlags, operation.Timeline, func(t *engine.TimelineResult) eventPage[engine.TimelineEntry] {
		return eventPage[engine.TimelineEntry]{&t.Events, &t.Count, &t.NextAfter}
	})
	if err != nil {
		return err
	}
	rows := [][]string{{"SEQ", "REVISION", "TIME", "WHAT", "STATE", "BY", "NOTE"}}
	for _, e := range all.Events {
		rows = append(rows, []string{
			fmt.Sprint(e.Seq), fmt.Sprint(e.Revision), e.Time.Format("2006-01-02T15:04:05.000000Z07:00"), whatHappened(e), e.To, e.Principal, truncateText(orNone(eventNote(e)), 60),
		})
	}
	return con.printList(c.JSON, all, rows, "no events", formatCursorFlag("--after-seq", all.NextAfter))
}

// whatHappened is the kind of an event, and what it was about.
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

// turning is what undo and redo have in common.
type turning struct {
	ID       string `arg:"" name:"id" help:"The instance: its id, or the beginning of it."`
	Expected *int64 `name:"expected-revision" placeholder:"N" help:"Only if the instance is at this revision."`
	Key      string `name:"idempotency-key" placeholder:"KEY" help:"The same call with the same key is answered and not repeated."`
	JSON     bool   `name:"json" help:"Print JSON."`
	placeFlags
}

type instancesUndoCmd struct{ turning }

func (instancesUndoCmd) Help() string {
	return `State and context are again what they were before the move; called again, the move before
that is taken back. What a move did outside is not undone. The history is kept: undoing is
an event like any other. Reviews that wait become stale.

Examples:

    gavel instances undo wf-019bd776-1194-7ef4-9469-880929f82c0f

Exit codes: 0 undone, 1 there is nothing to undo, 2 wrong usage, 3 could not find out.`
}

func (c *instancesUndoCmd) Run(ctx context.Context, con *console) error {
	return c.turn(ctx, con, operation.Undo)
}

type instancesReleaseCmd struct {
	ID     string `arg:"" name:"instance" help:"The instance that has the subject."`
	Reason string `name:"reason" placeholder:"TEXT" help:"Why, for the record."`
	JSON   bool   `name:"json" help:"Print JSON."`
	placeFlags
}

func (instancesReleaseCmd) Help() string {
	return `A gate with a subject calls its tool for one instance at a time: until that ends with
success, no other one can be started for the same, even after a cancel. Release it after
you have looked at what the instance did.

Examples:

    gavel instances release wf-019bd776-1194-7ef4-9469-880929f82c0f --reason "nothing was deployed"`
}

func (c *instancesReleaseCmd) Run(ctx context.Context, con *console) error {
	g, done, err := c.open(ctx, con, openForWriting)
	if err != nil {
		return err
	}
	defer done()
	r, err := operation.Release.Do(ctx, g, engine.ReleaseRequest{ID: c.ID, Reason: c.Reason})
	if err != nil {
		return badEnd(err, engine.CodeCallOpen, engine.CodeConflict)
	}
	return con.print(c.JSON, r, func() { con.out.Printf("%s\n", r.Message) })
}

type instancesRedoCmd struct{ turning }

func (instancesRedoCmd) Help() string {
	return `The move that was undone last is made again, exactly as it was; nothing is judged again.
After another move, a rollback or a migration there is nothing to redo.

Examples:

    gavel instances redo wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2

Exit codes: 0 made again, 1 there is nothing to redo, 2 wrong usage, 3 could not find out.`
}

func (c *instancesRedoCmd) Run(ctx context.Context, con *console) error {
	return c.turn(ctx, con, operation.Redo)
}

func (c turning) turn(ctx context.Context, con *console, op operation.Typed[engine.UndoRequest, engine.UndoResult]) error {
	g, done, err := c.open(ctx, con, openForWriting)
	if err != nil {
		return err
	}
	defer done()
	r, err := op.Do(ctx, g, engine.UndoRequest{ID: c.ID, Key: c.Key, ExpectedRevision: c.Expected})
	if err != nil {
		return badEnd(err, engine.CodeNothingToUndo, engine.CodeInstanceEnded, engine.CodeConflict, engine.CodeValuesDestroyed)
	}
	return con.print(c.JSON, r, func() { con.out.Printf("%s\n%s\n", r.Message, r.Progress) })
}
