package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/export"
	"github.com/gavel-mcp/gavel/internal/term"
)

// command implements gavel webhook.
type command struct {
	List   listCommand   `cmd:"" help:"List the webhooks of a configuration, with their positions."`
	Dead   deadCommand   `cmd:"" help:"List the messages that receivers did not accept."`
	Resend resendCommand `cmd:"" help:"Send dead letters again."`
	Test   testCommand   `cmd:"" help:"Send a message to a webhook to try it."`
}

func (command) Help() string {
	return `Servers post each event to the webhooks of their configuration (section webhooks), signed, at
least once and in the order of each instance. See docs/webhooks.md.`
}

// readFlag returns the receivers in the file that a flag names.
func readFlag(flag cli.ConfigFlag) ([]export.Webhook, error) {
	file, err := flag.Load()
	if err != nil {
		return nil, err
	}
	all, err := read(file)
	return all, module.ConfigError(err)
}

// find returns the receiver with a name.
func find(flag cli.ConfigFlag, name string) (export.Webhook, error) {
	all, err := readFlag(flag)
	if err != nil {
		return export.Webhook{}, err
	}
	at := slices.IndexFunc(all, func(h export.Webhook) bool { return h.Name == name })
	if at < 0 {
		return export.Webhook{}, term.UsageErrorf("give the file that declares it: --config FILE", "no webhook %q is configured here", name)
	}
	return all[at], nil
}

// webhookView is a webhook with its position.
type webhookView struct {
	Name   string        `json:"name"`
	To     string        `json:"to"` // the host, or the program of a command
	Filter export.Filter `json:"filter"`
	// Position is that of its cursor; nil before a server created it.
	Position *int64 `json:"position"`
	Behind   int64  `json:"behind"`
	MovedAt  string `json:"movedAt,omitempty"`
	Dead     int    `json:"deadLetters"`
}

type listCommand struct {
	JSON bool `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (listCommand) Help() string {
	return `Example:

    gavel webhook list --config gavel.yaml`
}

func (c *listCommand) Run(ctx context.Context, con *cli.Console) error {
	all, err := readFlag(c.ConfigFlag)
	if err != nil {
		return err
	}
	sys, err := cli.OpenForReading(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer func() { _ = sys.Close() }() // its writes are durable
	cursors, err := sys.Store.Cursors(ctx)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the store: %w", err)
	}
	last, err := sys.Store.LastPosition(ctx)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the store: %w", err)
	}
	views := []webhookView{}
	rows := [][]string{{"NAME", "TO", "POSITION", "BEHIND", "MOVED AT", "DEAD LETTERS", "FILTER"}}
	for _, h := range all {
		v := webhookView{Name: h.Name, To: h.To(), Filter: h.Filter}
		position, behind := "", ""
		if i := slices.IndexFunc(cursors, func(c store.Cursor) bool { return c.Name == h.Cursor() }); i >= 0 {
			at := cursors[i]
			v.Position, v.Behind, v.MovedAt = &at.Position, max(0, last-at.Position), at.MovedAt.Format(time.RFC3339)
			position, behind = fmt.Sprint(at.Position), fmt.Sprint(v.Behind)
		}
		letters, err := listDeadLetters(ctx, sys, h.Cursor())
		if err != nil {
			return err
		}
		v.Dead = len(letters)
		views = append(views, v)
		rows = append(rows, []string{v.Name, v.To, cmp.Or(position, "-"), cmp.Or(behind, "-"), cmp.Or(v.MovedAt, "-"), fmt.Sprint(v.Dead), cmp.Or(h.Filter.String(), "-")})
	}
	return con.PrintList(c.JSON, map[string]any{"webhooks": views}, rows, "no webhooks are configured; give the file that declares them with --config", "")
}

func listDeadLetters(ctx context.Context, sys *cli.System, cursor string) ([]store.DeadLetter, error) {
	letters := []store.DeadLetter{}
	for l, err := range sys.Store.DeadLetters(ctx, cursor) {
		if err != nil {
			return nil, term.UnknownErrorf("", "cannot read the store: %w", err)
		}
		letters = append(letters, l)
	}
	return letters, nil
}

type deadCommand struct {
	Name     string  `arg:"" name:"name" optional:"" help:"Only those of this webhook."`
	Position []int64 `name:"position" placeholder:"N" help:"Only this one. Repeatable."`
	Drop     bool    `name:"drop" help:"Forget them: they are never sent again."`
	JSON     bool    `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (deadCommand) Help() string {
	return `A message becomes a dead letter after its last try (tries) if its receiver accepted others in the
meantime, or refused the message itself (400, 413, 415, 422). Later messages are still sent.

Examples:

    gavel webhook dead
    gavel webhook dead audit --position 1204 --drop`
}

func (c *deadCommand) Run(ctx context.Context, con *cli.Console) error {
	open := cli.OpenForReading
	if c.Drop {
		open = cli.OpenForWriting
	}
	sys, err := open(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer func() { _ = sys.Close() }() // its writes are durable
	letters, err := selectDeadLetters(ctx, sys, c.Name, c.Position)
	if err != nil {
		return err
	}
	if c.Drop {
		for _, l := range letters {
			if err := sys.Store.DropDeadLetter(ctx, l.Cursor, l.Position); err != nil && !errors.Is(err, store.ErrNotFound) {
				return term.UnknownErrorf("", "cannot drop a dead letter: %w", err)
			}
		}
	}
	rows := [][]string{{"CURSOR", "POSITION", "INSTANCE", "EVENT", "TRIES", "SINCE", "CAUSE"}}
	for _, l := range letters {
		rows = append(rows, []string{l.Cursor, fmt.Sprint(l.Position), l.Instance, fmt.Sprint(l.Seq), fmt.Sprint(l.Tries), l.At.Format(time.RFC3339), l.Cause})
	}
	if err := con.PrintList(c.JSON, map[string]any{"deadLetters": letters}, rows, "there are no dead letters", ""); err != nil || !c.Drop {
		return err
	}
	con.Err.Printf("%s dropped\n", term.Count(len(letters), "dead letter"))
	return nil
}

// selectDeadLetters returns the dead letters of a webhook at the given positions. Without a name it considers all
// webhooks, and without positions all dead letters. It fails if there is none at one of the positions.
func selectDeadLetters(ctx context.Context, sys *cli.System, name string, positions []int64) ([]store.DeadLetter, error) {
	cursor := ""
	if name != "" {
		cursor = export.CursorPrefix + name
	}
	letters, err := listDeadLetters(ctx, sys, cursor)
	if err != nil || len(positions) == 0 {
		return letters, err
	}
	for _, p := range positions {
		if !slices.ContainsFunc(letters, func(l store.DeadLetter) bool { return l.Position == p }) {
			return nil, term.UsageErrorf("gavel webhook dead lists them", "there is no dead letter at position %d", p)
		}
	}
	return slices.DeleteFunc(letters, func(l store.DeadLetter) bool { return !slices.Contains(positions, l.Position) }), nil
}

type resendCommand struct {
	Name     string  `arg:"" name:"name" help:"The webhook."`
	Position []int64 `name:"position" placeholder:"N" help:"Only this dead letter. Repeatable."`
	JSON     bool    `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (resendCommand) Help() string {
	return `Sends the dead letters of a webhook once, in the order of the log and with the same ids. Accepted ones
are no longer dead letters. A server may have the store open.

Examples:

    gavel webhook resend audit --config gavel.yaml
    gavel webhook resend audit --position 1204 --config gavel.yaml

Exit codes: 0 all were accepted, 1 some were not, 2 wrong usage, 3 could not find out.`
}

// resent is the result of sending a dead letter again.
type resent struct {
	store.DeadLetter
	// Failure is the reason why it was not accepted; "" if it was.
	Failure string `json:"failure,omitempty"`
}

func (c *resendCommand) Run(ctx context.Context, con *cli.Console) error {
	hook, err := find(c.ConfigFlag, c.Name)
	if err != nil {
		return err
	}
	sys, err := cli.OpenForWriting(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer func() { _ = sys.Close() }() // its writes are durable
	letters, err := selectDeadLetters(ctx, sys, c.Name, c.Position)
	if err != nil {
		return err
	}
	all, bad := []resent{}, 0
	rows := [][]string{{"POSITION", "INSTANCE", "EVENT", "RESULT"}}
	for _, l := range letters {
		r := resent{DeadLetter: l}
		if err := export.Resend(ctx, sys.Engine, sys.Store, hook, l); err != nil {
			r.Failure, bad = strings.ReplaceAll(err.Error(), "\n", "; "), bad+1
		}
		all = append(all, r)
		result := r.Failure
		if result == "" {
			result = "accepted"
		}
		rows = append(rows, []string{fmt.Sprint(l.Position), l.Instance, fmt.Sprint(l.Seq), result})
	}
	if err := con.PrintList(c.JSON, map[string]any{"deadLetters": all}, rows, "there are no dead letters", ""); err != nil {
		return err
	}
	if bad > 0 {
		return term.ErrBad
	}
	return nil
}

type testCommand struct {
	Name string `arg:"" name:"name" help:"The webhook."`
	cli.ConfigFlag
}

func (testCommand) Help() string {
	return `Posts a signed message of the type gavel.test, once.

Example:

    gavel webhook test audit --config gavel.yaml

Exit codes: 0 it was accepted, 1 it was not, 2 wrong usage.`
}

func (c *testCommand) Run(ctx context.Context, con *cli.Console) error {
	hook, err := find(c.ConfigFlag, c.Name)
	if err != nil {
		return err
	}
	end, err := hook.Open()
	if err != nil {
		return module.ConfigError(err)
	}
	end.Close()
	if err := export.Test(ctx, hook); err != nil {
		return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("%s did not accept the message: %w", hook.To(), err)}
	}
	con.Out.Printf("%s accepted the message\n", hook.To())
	return nil
}
