package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/export"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/webhook"
)

// readWebhooks reads what a configuration file declares of webhooks, nothing without a file.
func (f configFlag) readWebhooks() ([]export.Webhook, error) {
	if f.Config == "" {
		return nil, nil
	}
	file, err := config.Load(f.Config)
	if err != nil {
		return nil, badConfig(err)
	}
	all, err := export.ParseConfig(file.Section(config.SectionWebhooks))
	return all, badConfig(err)
}

// checkWebhooks finds all that can be told of a file's webhooks without variables.
func checkWebhooks(path string) error {
	all, err := configFlag{Config: path}.readWebhooks()
	for _, h := range all {
		for _, file := range h.SecretFiles {
			if bad := checkReadable(file); bad != nil && err == nil {
				err = term.UsageErrorf("", "%s: the webhook %s: %w", path, h.Name, bad)
			}
		}
	}
	return err
}

// openWebhooks makes what sends to the webhooks of the configuration.
func (f configFlag) openWebhooks(log *slog.Logger, sys *system) (*export.Exporter, error) {
	x := export.New(sys.Engine, sys.Store, log)
	all, err := f.readWebhooks()
	if err != nil {
		return nil, err
	}
	if err := badConfig(x.Load(all)); err != nil {
		return nil, err
	}
	sys.metered.exporting(x)
	return x, nil
}

// watchWebhooks takes over changed webhooks, and secrets in their files.
func (f configFlag) watchWebhooks(x *export.Exporter) *configPart {
	return &configPart{
		section: config.SectionWebhooks,
		files: func(file *config.File) (files []string) {
			all, _ := export.ParseConfig(file.Section(config.SectionWebhooks)) // prepare says what is wrong
			for _, h := range all {
				files = append(files, h.SecretFiles...)
			}
			return files
		},
		prepare: func(context.Context, *configChange) (take func(), err error) {
			all, err := f.readWebhooks()
			if err != nil {
				return nil, err
			}
			return x.Prepare(all)
		},
	}
}

// exporting has the figures of webhooks shown.
func (m *metered) exporting(x *export.Exporter) {
	if m != nil {
		m.exporter.Store(x)
	}
}

// webhookStats are those of the webhooks; none where the store cannot tell in time.
func (m *metered) webhookStats() []telemetry.WebhookStats {
	x := m.exporter.Load()
	if x == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), reviewStatsTime)
	defer cancel()
	var out []telemetry.WebhookStats
	for _, s := range x.Stats(ctx) {
		out = append(out, telemetry.WebhookStats(s))
	}
	return out
}

type webhookCmd struct {
	List   webhookListCmd   `cmd:"" help:"List the webhooks of a configuration, and where each is."`
	Dead   webhookDeadCmd   `cmd:"" help:"List the messages that receivers did not accept."`
	Resend webhookResendCmd `cmd:"" help:"Send such messages once more."`
	Test   webhookTestCmd   `cmd:"" help:"Send a message to a webhook to try it."`
}

func (webhookCmd) Help() string {
	return `Servers post each event to the webhooks of their configuration (section webhooks), signed, at
least once and in the order of each instance. docs/webhooks.md is the whole story.`
}

// findWebhook is the webhook of the configuration with a name.
func (f configFlag) findWebhook(name string) (export.Webhook, error) {
	all, err := f.readWebhooks()
	if err != nil {
		return export.Webhook{}, err
	}
	at := slices.IndexFunc(all, func(h export.Webhook) bool { return h.Name == name })
	if at < 0 {
		return export.Webhook{}, term.UsageErrorf("give the file that has it: --config FILE", "no webhook %q is configured here", name)
	}
	return all[at], nil
}

// webhookView is a webhook with where it is.
type webhookView struct {
	Name   string        `json:"name"`
	To     string        `json:"to"` // the host
	Filter export.Filter `json:"filter"`
	// Position is that of its cursor, nil before a server made it.
	Position *int64 `json:"position"`
	Behind   int64  `json:"behind"`
	MovedAt  string `json:"movedAt,omitempty"`
	Dead     int    `json:"deadLetters"`
}

type webhookListCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
	storeFlag
}

func (webhookListCmd) Help() string {
	return `Example:

    gavel webhook list --config gavel.yaml`
}

func (c *webhookListCmd) Run(ctx context.Context, con *console) error {
	all, err := c.readWebhooks()
	if err != nil {
		return err
	}
	sys, err := openForReading(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	cursors, _, err := readCursors(ctx, sys)
	if err != nil {
		return err
	}
	views := []webhookView{}
	rows := [][]string{{"NAME", "TO", "POSITION", "BEHIND", "MOVED AT", "DEAD LETTERS", "FILTER"}}
	for _, h := range all {
		v := webhookView{Name: h.Name, To: webhook.Host(h.URL), Filter: h.Filter}
		position, behind := "", ""
		if at, err := findCursor(cursors, h.Cursor()); err == nil {
			v.Position, v.Behind, v.MovedAt = &at.Position, at.Behind, formatTime(at.MovedAt)
			position, behind = fmt.Sprint(at.Position), fmt.Sprint(at.Behind)
		}
		letters, err := listDeadLetters(ctx, sys, h.Cursor())
		if err != nil {
			return err
		}
		v.Dead = len(letters)
		views = append(views, v)
		rows = append(rows, []string{v.Name, v.To, orNone(position), orNone(behind), orNone(v.MovedAt), fmt.Sprint(v.Dead), orNone(h.Filter.String())})
	}
	return con.printList(c.JSON, map[string]any{"webhooks": views}, rows, "no webhooks are configured: give the file that has them with --config", "")
}

func listDeadLetters(ctx context.Context, sys *system, cursor string) ([]store.DeadLetter, error) {
	letters := []store.DeadLetter{}
	for l, err := range sys.Store.DeadLetters(ctx, cursor) {
		if err != nil {
			return nil, term.UnknownErrorf("", "cannot read the store: %w", err)
		}
		letters = append(letters, l)
	}
	return letters, nil
}

type webhookDeadCmd struct {
	Name     string  `arg:"" name:"name" optional:"" help:"Only those of this webhook."`
	Position []int64 `name:"position" placeholder:"N" help:"Only this one. Repeatable."`
	Drop     bool    `name:"drop" help:"Forget them: they are never sent again."`
	JSON     bool    `name:"json" help:"Print JSON."`
	storeFlag
}

func (webhookDeadCmd) Help() string {
	return `A message becomes a dead letter when its receiver did not accept it often enough (tries) while it
accepted others, or refused the message itself (400, 413, 415, 422). What follows it goes on.

Examples:

    gavel webhook dead
    gavel webhook dead audit --position 1204 --drop`
}

func (c *webhookDeadCmd) Run(ctx context.Context, con *console) error {
	open := openForReading
	if c.Drop {
		open = openForWriting
	}
	sys, err := open(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
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
		rows = append(rows, []string{l.Cursor, fmt.Sprint(l.Position), l.Instance, fmt.Sprint(l.Seq), fmt.Sprint(l.Tries), formatTime(l.At), l.Cause})
	}
	if err := con.printList(c.JSON, map[string]any{"deadLetters": letters}, rows, "there are no dead letters", ""); err != nil || !c.Drop {
		return err
	}
	con.err.Printf("%s dropped\n", term.Count(len(letters), "dead letter"))
	return nil
}

// selectDeadLetters are those of a webhook, of all for "", at some positions, at all for none.
func selectDeadLetters(ctx context.Context, sys *system, name string, positions []int64) ([]store.DeadLetter, error) {
	cursor := ""
	if name != "" {
		cursor = export.CursorPrefix + name
	}
	letters, err := listDeadLetters(ctx, sys, cursor)
	if err != nil || len(positions) == 0 {
		return letters, err
	}
	letters = slices.DeleteFunc(letters, func(l store.DeadLetter) bool { return !slices.Contains(positions, l.Position) })
	if len(letters) < len(positions) {
		return nil, term.UsageErrorf("gavel webhook dead lists them", "there is no dead letter at some of these positions")
	}
	return letters, nil
}

type webhookResendCmd struct {
	Name     string  `arg:"" name:"name" help:"The webhook."`
	Position []int64 `name:"position" placeholder:"N" help:"Only this dead letter. Repeatable."`
	JSON     bool    `name:"json" help:"Print JSON."`
	storeFlag
}

func (webhookResendCmd) Help() string {
	return `Sends the dead letters of a webhook in the order of the log, each once, with the id that they had; one
that is accepted is a dead letter no more. A server may have the store open.

Examples:

    gavel webhook resend audit --config gavel.yaml
    gavel webhook resend audit --position 1204 --config gavel.yaml

Exit codes: 0 all were accepted, 1 some were not, 2 wrong usage, 3 could not find out.`
}

// resent is what became of a dead letter that was sent again.
type resent struct {
	store.DeadLetter
	// Failure is why it was not accepted, "" where it was.
	Failure string `json:"failure,omitempty"`
}

func (c *webhookResendCmd) Run(ctx context.Context, con *console) error {
	hook, err := c.findWebhook(c.Name)
	if err != nil {
		return err
	}
	sys, err := openForWriting(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	letters, err := selectDeadLetters(ctx, sys, c.Name, c.Position)
	if err != nil {
		return err
	}
	all, bad := []resent{}, 0
	rows := [][]string{{"POSITION", "INSTANCE", "EVENT", "RESULT"}}
	for _, l := range letters {
		r := resent{DeadLetter: l}
		if err := export.Resend(ctx, sys.Engine, sys.Store, hook, l); err != nil {
			r.Failure, bad = oneLine(badConfig(err)), bad+1
		}
		all = append(all, r)
		result := r.Failure
		if result == "" {
			result = "accepted"
		}
		rows = append(rows, []string{fmt.Sprint(l.Position), l.Instance, fmt.Sprint(l.Seq), result})
	}
	if err := con.printList(c.JSON, map[string]any{"deadLetters": all}, rows, "there are no dead letters", ""); err != nil {
		return err
	}
	return badUnless(bad == 0)
}

type webhookTestCmd struct {
	Name string `arg:"" name:"name" help:"The webhook."`
	configFlag
}

func (webhookTestCmd) Help() string {
	return `Posts a signed message of the type gavel.test, once.

Example:

    gavel webhook test audit --config gavel.yaml

Exit codes: 0 it was accepted, 1 it was not, 2 wrong usage.`
}

func (c *webhookTestCmd) Run(ctx context.Context, con *console) error {
	hook, err := c.findWebhook(c.Name)
	if err != nil {
		return err
	}
	end, err := hook.OpenEndpoint()
	if err != nil {
		return badConfig(err)
	}
	end.Close()
	if err := export.Test(ctx, hook); err != nil {
		return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("%s did not accept the message: %w", webhook.Host(hook.URL), err)}
	}
	con.out.Printf("%s accepted the message\n", webhook.Host(hook.URL))
	return nil
}
