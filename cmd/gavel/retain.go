package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/audit"
)

type retainCmd struct {
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only instances of this workflow."`
	DryRun   bool   `name:"dry-run" short:"n" help:"Say what would be removed, and remove nothing."`
	Limit    int    `name:"limit" default:"10000" placeholder:"N" help:"At most this many histories."`
	Key      string `name:"anchor-key" placeholder:"FILE" help:"Sign what is removed with this key, the one that signs the anchors. Needed where the store has any. The variable may hold the key itself."`
	JSON     bool   `name:"json" help:"Print JSON."`
	storeFlag
}

// Help says what is removed and what never is.
func (retainCmd) Help() string {
	return `Removes what the definitions say need not be kept: the beginning of the history
of an instance that ended longer ago than "retention" in its operator's
definition. What is left verifies, and an event says what is gone.

Never removed: anything of an instance that runs or has an open review, what a
checkpoint needs, the event that ended the instance, anything younger than a
week, and a history that does not verify or is not what was anchored.

Where a store is anchored, a removal has to be signed with the same key: without that
gavel verify cannot tell it from tampering, and reports it. A dry run needs no key.

Examples:

    gavel retain --dry-run
    gavel retain --workflow document-review --anchor-key ~/keys/gavel.anchor`
}

// open opens the store; a dry run only looks.
func (c *retainCmd) open(ctx context.Context, con *console, with equipment) (*system, error) {
	if c.DryRun {
		return openForReading(ctx, con, c.storeFlag)
	}
	path, err := c.storePath(con.log, false)
	if err != nil {
		return nil, err
	}
	return openSystem(ctx, con.log, path, with)
}

// Run removes what may go.
func (c *retainCmd) Run(ctx context.Context, con *console) error {
	if c.Limit < 1 {
		return term.UsageErrorf("", "--limit is 1 or more, not %d", c.Limit)
	}
	var with equipment
	if c.Key != "" {
		key, err := readSigner(con.log, c.Key, c.Store)
		if err != nil {
			return err
		}
		with.anchors = key
	}
	sys, err := c.open(ctx, con, with)
	if err != nil {
		return err
	}
	defer sys.Close()
	r, err := sys.auditor.Retain(ctx, localCLI, audit.RetainRequest{Workflow: c.Workflow, DryRun: c.DryRun, Limit: c.Limit})
	if err != nil {
		return engineFailure(err)
	}
	if c.JSON {
		if err := con.out.JSON(r); err != nil {
			return err
		}
	} else {
		printRetained(con, r)
	}
	if len(r.Broken) > 0 {
		return &term.Failure{
			Code: term.ExitBad, Hint: "gavel verify says what is wrong with it",
			Err: fmt.Errorf("%s left as it is, because it does not verify: %s", term.Count(len(r.Broken), "history"), strings.Join(r.Broken, ", ")),
		}
	}
	return nil
}

// keptFor are the reasons in words.
var keptFor = map[string]string{
	audit.KeptNotDue: "ended too recently", audit.KeptDone: "nothing left to remove", audit.KeptReview: "a review is open",
	audit.KeptCheckpoint: "a checkpoint needs it", audit.KeptYoung: "younger than a week", audit.KeptRestored: "a later rollback needs it", audit.KeptRemoval: "says what was removed before",
	audit.KeptMoved: "changed meanwhile; run it again", audit.KeptBroken: "does not verify",
}

func printRetained(con *console, r audit.RetainResult) {
	if len(r.Histories) > 0 {
		rows := [][]string{{"ID", "WORKFLOW", "ENDED", "REMOVED", "LEFT", "BECAUSE"}}
		for _, h := range r.Histories {
			rows = append(rows, []string{h.ID, h.Workflow, moment(h.EndedAt), fmt.Sprint(h.Events), fmt.Sprint(h.Left), orNone(keptFor[h.Pinned])})
		}
		con.out.Table(rows)
	}
	did := "removed"
	if r.DryRun {
		did = "would remove"
	}
	con.out.Printf("%s %s of %s\n", did, term.Count(r.Events, "event"), term.Count(len(r.Histories), "history"))
	reasons := make([]string, 0, len(r.Kept))
	for why := range r.Kept {
		reasons = append(reasons, why)
	}
	slices.Sort(reasons)
	for _, why := range reasons {
		con.out.Printf("kept %d as they are: %s\n", r.Kept[why], keptFor[why])
	}
	if r.More {
		con.err.Printf("there is more; run it again\n")
	}
}
