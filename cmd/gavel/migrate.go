package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
)

type migrateCmd struct {
	Workflow string            `arg:"" name:"workflow" help:"The workflow."`
	From     int               `name:"from" placeholder:"N" help:"Only instances of this version. Default: any."`
	To       int               `name:"to" placeholder:"N" help:"The version to migrate to. Default: the newest."`
	State    map[string]string `name:"state" mapsep:"none" placeholder:"OLD=NEW" help:"The state OLD is called NEW in the new version. Repeatable."`
	Instance []string          `name:"instance" placeholder:"ID" help:"Only this instance. Repeatable. Default: all that run."`
	DryRun   bool              `name:"dry-run" help:"Say what would happen, and change nothing."`
	JSON     bool              `name:"json" help:"Print JSON."`
	storeFlag
}

// Help shows examples.
func (migrateCmd) Help() string {
	return `Instances stay with the version of their workflow that they were started with, until
somebody migrates them. Each is migrated by an event of its own; cut short, a migration is
taken up by running it again. A server may have the store open.

An instance is refused, and stays as it is, when the new version does not have its state,
or would not let an instance with its context and its history be in it (stateValidators,
mustPassThrough). Reviews that wait become stale. Moves before a migration are not undone.

Examples:

    gavel migrate document-review --dry-run
    gavel migrate document-review --from 1 --to 3 --state reviewing=review
    gavel migrate document-review --instance wf-01926f0e-7c1a-7000-8000-000000000000

Exit codes: 0 all are of the version now, 1 some were refused, 2 wrong usage,
3 could not find out.`
}

// Run migrates instances.
func (c *migrateCmd) Run(ctx context.Context, con *console) error {
	open := openForWriting
	if c.DryRun {
		open = openForReading
	}
	sys, err := open(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	r, err := sys.engine.Migrate(ctx, localCLI, engine.MigrateRequest{
		Workflow: c.Workflow, FromVersion: c.From, ToVersion: c.To, States: c.State, Instances: c.Instance, DryRun: c.DryRun,
	})
	if err != nil && len(r.Entries) == 0 {
		return engineFailure(err)
	}
	if c.JSON {
		err = errors.Join(engineFailure(err), con.out.JSON(r))
	} else {
		printMigration(con.out, r)
		err = engineFailure(err)
	}
	if err == nil && r.Refused > 0 {
		return term.ErrBad
	}
	return err
}

// printMigration lists what changes and what was refused, and counts the rest.
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
		rows = append(rows, []string{e.ID, string(e.Outcome), fmt.Sprintf("%d -> %d", e.From, e.To), orNone(state), orNone(migrationNote(e))})
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

// migrationNote says why, or what else comes of it.
func migrationNote(e engine.InstanceMigration) string {
	notes := make([]string, 0, 3)
	if e.Reason != "" {
		notes = append(notes, e.Reason)
	}
	if e.Completes {
		notes = append(notes, "It is complete then.")
	}
	if len(e.Stale) > 0 {
		notes = append(notes, "Stale then: "+strings.Join(e.Stale, ", ")+".")
	}
	if len(e.Blocked) > 0 {
		notes = append(notes, "Can never enter then: "+strings.Join(e.Blocked, ", ")+".")
	}
	return strings.Join(notes, " ")
}
