package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// pastFlags choose a point in the past.
type pastFlags struct {
	Revision int64  `name:"revision" placeholder:"N" help:"As it was at this revision. gavel instances timeline lists them."`
	At       string `name:"at" placeholder:"TIME" help:"As it was at this time, RFC 3339: 2026-01-02T15:04:05Z."`
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
		return w, term.UsageErrorf("write it like 2026-01-02T15:04:05Z, with the zone", "--at is no time: %s", term.Clean(f.At))
	}
	return w, nil
}

type instancesTimelineCmd struct {
	ID    string `arg:"" name:"id" help:"The instance."`
	After int64  `name:"after-seq" default:"0" placeholder:"SEQ" help:"Only events behind this number."`
	Limit int    `name:"limit" default:"100" placeholder:"N" help:"At most this many, 1 to 1000."`
	JSON  bool   `name:"json" help:"Print JSON."`
	pastFlags
	placeFlags
}

// Help shows examples.
func (instancesTimelineCmd) Help() string {
	return `Every event in its order: judgements, and checkpoints, rollbacks, undone moves, reviews
and migrations too. A revision is a change of state or context; instances show --revision
tells what it was.

Examples:

    gavel instances timeline wf-01926f0e-7c1a-7000-8000-000000000000
    gavel instances timeline wf-01926f0e-7c1a-7000-8000-000000000000 --at 2026-01-02T15:04:05Z`
}

// Run lists what happened to an instance.
func (c *instancesTimelineCmd) Run(ctx context.Context, con *console) error {
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
	all, err := operation.Timeline.Do(ctx, g, engine.HistoryRequest{ID: c.ID, AfterSeq: c.After, Limit: c.Limit, Until: until})
	if err != nil {
		return engineFailure(err)
	}
	if c.JSON {
		return con.out.JSON(all)
	}
	rows := [][]string{{"SEQ", "REVISION", "TIME", "WHAT", "STATE", "BY", "NOTE"}}
	for _, e := range all.Events {
		what := string(e.Kind)
		if e.Action != "" {
			what += " " + e.Action
		}
		rows = append(rows, []string{
			fmt.Sprint(e.Seq), fmt.Sprint(e.Revision), e.Time.Format("2006-01-02T15:04:05.000000Z07:00"), what, e.To, e.Principal, cut(orNone(eventNote(e)), 60),
		})
	}
	con.out.Table(rows)
	if all.NextAfter > 0 {
		con.err.Printf("more with --after-seq %d\n", all.NextAfter)
	}
	return nil
}

// eventNote is what else an event says.
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
	default:
		return e.Reason
	}
}
