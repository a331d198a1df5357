package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/notify"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/webhook"
)

// notifyFlags say who is told that a move waits for a person.
type notifyFlags struct {
	URL     string   `name:"notify-url" placeholder:"URL" help:"Post a message to this address when a review is opened, and when nobody decided it in time."`
	Secret  string   `name:"notify-secret-file" placeholder:"FILE" help:"Sign these messages with the secret in this file, in the form of Standard Webhooks: whsec_ and base64."`
	Command []string `name:"notify-command" sep:"none" placeholder:"WORD" help:"Run this program for each such message, which it reads from stdin. One flag for the program, and one for each of its arguments; no shell reads them."`
}

// check is what can be told of the flags without reading the secret.
func (f notifyFlags) check() error {
	if f.Secret != "" && f.URL == "" {
		return term.UsageErrorf("", "--notify-secret-file signs what --notify-url gets, which is missing")
	}
	if len(f.Command) > 0 && strings.TrimSpace(f.Command[0]) == "" {
		return term.UsageErrorf("", "--notify-command begins with a program")
	}
	if f.URL != "" {
		if err := webhook.CheckAddress(f.URL); err != nil {
			return term.UsageErrorf("", "--notify-url: %w", err)
		}
	}
	return nil
}

// open returns what tells, nil where nobody is told.
func (f notifyFlags) open(log *slog.Logger, reviews bool) (*notify.Notifier, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if !reviews {
		if f.URL != "" || len(f.Command) > 0 {
			log.Warn("nobody is notified: with --no-reviews no move waits for a person")
		}
		return nil, nil //nolint:nilnil // nobody is told
	}
	if len(f.Command) > 0 {
		if _, err := exec.LookPath(f.Command[0]); err != nil {
			log.Warn("nobody is told through the program of --notify-command: it does not exist or cannot be run", "command", f.Command[0])
		}
	}
	cfg := notify.Config{URL: f.URL, Command: f.Command, Run: evidence.RunProgram, Logger: log}
	if f.Secret != "" {
		raw, err := os.ReadFile(f.Secret)
		if err != nil {
			return nil, term.UsageErrorf("", "--notify-secret-file: %w", err)
		}
		if cfg.Secret = strings.TrimSpace(string(raw)); cfg.Secret == "" {
			return nil, term.UsageErrorf("", "--notify-secret-file: %s is empty", f.Secret)
		}
	}
	n, err := notify.New(cfg)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot notify anybody: %w", err)
	}
	return n, nil
}

// observers are told one after the other.
type observers []engine.Observer

// Committed implements engine.Observer.
func (all observers) Committed(ctx context.Context, events []record.Event) {
	for _, o := range all {
		o.Committed(ctx, events)
	}
}

// Changed implements engine.Observer.
func (all observers) Changed(ctx context.Context, inst record.Instance) {
	for _, o := range all {
		o.Changed(ctx, inst)
	}
}

// Unrecorded implements engine.Observer.
func (all observers) Unrecorded(ctx context.Context, event record.Event) {
	for _, o := range all {
		o.Unrecorded(ctx, event)
	}
}
