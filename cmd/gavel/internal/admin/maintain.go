package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// MigrateCommand pins instances to another version of their workflow.
type MigrateCommand struct {
	Workflow string            `arg:"" name:"workflow" help:"The workflow."`
	From     int               `name:"from" placeholder:"N" help:"Only instances of this version. Default: any."`
	To       int               `name:"to" placeholder:"N" help:"The version to migrate to. Default: the newest."`
	State    map[string]string `name:"state" mapsep:"none" placeholder:"OLD=NEW" help:"Map the state OLD to NEW in the new version. Repeatable."`
	Instance []string          `name:"instance" placeholder:"ID" help:"Only this instance. Repeatable. Default: all running ones."`
	DryRun   bool              `name:"dry-run" help:"Print what would happen; change nothing."`
	JSON     bool              `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

// Run migrates the instances and prints the result of each.
func (c *MigrateCommand) Run(ctx context.Context, con *cli.Console) error {
	open := cli.OpenForWriting
	if c.DryRun {
		open = cli.OpenForReading
	}
	sys, err := open(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := sys.CompleteInstances(ctx, c.Instance); err != nil {
		return err
	}
	r, err := sys.Engine.Migrate(ctx, gavel.Operator, engine.MigrateRequest{
		Workflow: c.Workflow, FromVersion: c.From, ToVersion: c.To, States: c.State, Instances: c.Instance, DryRun: c.DryRun,
	})
	if err != nil && len(r.Entries) == 0 {
		return cli.EngineFailure(err)
	}
	err = errors.Join(cli.EngineFailure(err), con.Print(c.JSON, r, func() { printMigration(con.Out, r) }))
	return cmp.Or(err, cli.ExitBadUnless(r.Refused == 0))
}

func printMigration(out *term.Terminal, r engine.MigrateResult) {
	rows := [][]string{{"INSTANCE", "OUTCOME", "VERSION", "STATE", "NOTE"}}
	for _, e := range r.Entries {
		if e.Outcome == engine.MigrateUnchanged {
			continue
		}
		state := e.State
		if e.NewState != "" && e.NewState != e.State {
			state += " -> " + e.NewState
		}
		rows = append(rows, []string{e.ID, string(e.Outcome), fmt.Sprintf("%d -> %d", e.From, e.To), term.OrNone(state), term.OrNone(migrationNote(e))})
	}
	if len(rows) > 1 {
		out.Table(rows)
	}
	verb := "migrated"
	if r.DryRun {
		verb = "would be migrated"
	}
	out.Printf("%s to version %d: %d %s, %d unchanged, %d refused\n", r.Workflow, r.To, r.Migrated, verb, r.Unchanged, r.Refused)
}

func migrationNote(e engine.InstanceMigration) string {
	notes := make([]string, 0, 3)
	if e.Reason != "" {
		notes = append(notes, e.Reason)
	}
	if e.Completes {
		notes = append(notes, "It becomes complete.")
	}
	if len(e.Stale) > 0 {
		notes = append(notes, "These become stale: "+strings.Join(e.Stale, ", ")+".")
	}
	if len(e.Blocked) > 0 {
		notes = append(notes, "It can no longer enter: "+strings.Join(e.Blocked, ", ")+".")
	}
	return strings.Join(notes, " ")
}

// RetainCommand removes what the retention rules of definitions no longer keep.
type RetainCommand struct {
	Workflow string        `name:"workflow" placeholder:"NAME" help:"Only instances of this workflow."`
	DryRun   bool          `name:"dry-run" short:"n" help:"Print what would be removed; remove nothing."`
	Limit    int           `name:"limit" default:"10000" placeholder:"N" help:"At most this many histories."`
	After    time.Duration `name:"forgotten-after" default:"720h" placeholder:"TIME" help:"Report a cursor that has not moved for this time although there are newer events. Default: 720h."`
	Pass     bool          `name:"pass-forgotten" help:"Also remove what only such cursors, and dead letters of that age, need."`
	Key      string        `name:"anchor-key" placeholder:"FILE" help:"Sign removals with this key, the same that signs anchors. Required if the store has anchors. The variable may hold the key itself."`
	JSON     bool          `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

// Run removes what is due, or with --dry-run only prints it.
func (c *RetainCommand) Run(ctx context.Context, con *cli.Console) error {
	switch {
	case c.Limit < 1:
		return term.UsageErrorf("", "--limit must be 1 or more, not %d", c.Limit)
	case c.After <= 0:
		return term.UsageErrorf("", "--forgotten-after must be more than 0, not %s", c.After)
	}
	open := func(ctx context.Context, con *cli.Console, flag cli.StoreFlag) (*cli.System, error) {
		return cli.OpenToSign(ctx, con, flag, c.Key)
	}
	if c.DryRun {
		open = cli.OpenForReading
	}
	sys, err := open(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	r, err := sys.Auditor.Retain(ctx, gavel.Operator, audit.RetainRequest{Workflow: c.Workflow, DryRun: c.DryRun, Limit: c.Limit, ForgottenAfter: c.After, PassForgotten: c.Pass})
	if err != nil {
		return cli.EngineFailure(err)
	}
	if err := con.Print(c.JSON, r, func() { printRetained(con, r) }); err != nil {
		return err
	}
	if len(r.Broken) > 0 {
		return &term.ExitError{
			Code: term.ExitBad, Hint: "run gavel verify for details",
			Err: fmt.Errorf("%s not changed, because verification fails: %s", term.Count(len(r.Broken), "history"), strings.Join(r.Broken, ", ")),
		}
	}
	return nil
}

var keptFor = map[string]string{
	audit.KeptNotDue: "ended too recently", audit.KeptDone: "nothing left to remove", audit.KeptReview: "a review is open", audit.KeptCall: "a call is not settled",
	audit.KeptCheckpoint: "a checkpoint needs it", audit.KeptYoung: "younger than a week", audit.KeptRestored: "a later rollback needs it", audit.KeptRemoval: "records an earlier removal",
	audit.KeptUnexported: "not exported yet: gavel cursor list", audit.KeptMoved: "changed during the run; run it again", audit.KeptBroken: "does not verify",
}

func printRetained(con *cli.Console, r audit.RetainResult) {
	if len(r.Histories) > 0 {
		rows := [][]string{{"ID", "WORKFLOW", "ENDED", "REMOVED", "LEFT", "BECAUSE"}}
		for _, h := range r.Histories {
			rows = append(rows, []string{h.ID, h.Workflow, cli.FormatTime(h.EndedAt), fmt.Sprint(h.Events), fmt.Sprint(h.Left), term.OrNone(keptFor[h.Pinned])})
		}
		con.Out.Table(rows)
	}
	did := "removed"
	if r.DryRun {
		did = "would remove"
	}
	con.Out.Printf("%s %s of %s\n", did, term.Count(r.Events, "event"), term.Count(len(r.Histories), "history"))
	for _, why := range slices.Sorted(maps.Keys(r.Kept)) {
		con.Out.Printf("kept %d unchanged: %s\n", r.Kept[why], keptFor[why])
	}
	for _, c := range r.Forgotten {
		con.Err.Printf("the cursor %s has not moved since %s: drop it with gavel cursor drop if its reader is gone, or ignore it with --pass-forgotten\n", c.Name, cli.FormatTime(c.MovedAt))
	}
	if r.More {
		con.Err.Printf("more is left; run it again\n")
	}
}

// SealCommand checks the seals of definitions or renews them.
type SealCommand struct {
	Accept bool `name:"accept" help:"Seal all rules as they are now. Without it, gavel seal only lists them."`
	JSON   bool `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

// Run checks all seals. With --accept it seals all rules again.
func (c *SealCommand) Run(ctx context.Context, con *cli.Console) error {
	open := cli.OpenToCheck
	if c.Accept {
		open = cli.OpenForWriting
	}
	sys, err := open(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	if sys.Location.IsDatabase() && sys.Location.Key == nil {
		return cli.StoreFailure(gavel.ErrNoStoreKey, "")
	}
	if key := sys.Location.MissingKey(); key != "" {
		con.Log.Warn("the key of this store is not next to it, so no seal can be checked; put the key back, or use --accept, which makes a new key", "missing", key)
	}
	r, err := sys.Engine.SealRules(ctx, gavel.Operator, engine.SealRequest{DryRun: !c.Accept})
	if err != nil {
		return cli.EngineFailure(err)
	}
	err = con.Print(c.JSON, r, func() { printSealed(con, r, c.Accept) })
	return cmp.Or(err, cli.ExitBadUnless(r.Sealed == 0 || c.Accept))
}

func printSealed(con *cli.Console, r engine.SealResult, accepted bool) {
	rows := [][]string{{"WORKFLOW", "WHAT", "BY", "TIME", "SEAL"}}
	for _, rule := range r.Rules {
		what, by, seal := fmt.Sprintf("version %d", rule.Version), rule.Principal, "valid"
		if rule.Revision > 0 {
			what = fmt.Sprintf("judge configuration %d", rule.Revision)
		}
		if rule.Operator {
			by += " (operator)"
		}
		if rule.Wrong != "" {
			seal = rule.Wrong
		}
		rows = append(rows, []string{rule.Workflow, what, by, rule.At.UTC().Format(time.RFC3339), seal})
	}
	con.Out.Table(rows)
	total := term.Count(int64(len(r.Rules)), "rule")
	switch {
	case r.Sealed == 0:
		con.Out.Printf("%s, %s\n", total, con.Out.Green("all sealed"))
	case accepted:
		con.Out.Printf("%s, %d sealed now\n", total, r.Sealed)
	default:
		con.Out.Printf("%s, %s\n", total, con.Out.Red(fmt.Sprintf("%d not sealed", r.Sealed)))
	}
}
