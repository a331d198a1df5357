// Package webhook is the module that posts recorded events to other programs, and notifies an operator's address or
// program of moves that wait for a person. It provides sections "webhooks" and "notify" of the configuration file,
// the sending service of a server, and gavel webhook.
package webhook

import (
	"context"
	_ "embed"
	"os/exec"
	"time"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/export"
	"github.com/gavel-mcp/gavel/internal/telemetry"
)

//go:embed schema.json
var schemas []byte

const (
	sectionWebhooks = "webhooks"
	sectionNotify   = "notify"
)

func init() {
	module.Register(module.Module{
		Name: "webhook",
		Commands: []module.Command{{
			Name: "webhook", Group: "watch", Help: "Test webhooks, and resend events that were not accepted.",
			New: func() any { return &command{} },
		}},
		Sections: []module.Section{
			{Name: sectionWebhooks, About: "Receivers of every event, by name: [webhooks](../webhooks.md). A name is up to 32 lower-case letters and digits with single hyphens between them."},
			{Name: sectionNotify, About: "An address, a program or both that get a message when a move waits for a person: [reviews](../reviews.md#know-that-one-waits)."},
		},
		Schemas: schemas,
		Check:   check,
		Serve:   serve,
	})
}

// read returns the receivers in a configuration file.
func read(file *config.File) ([]export.Webhook, error) {
	return export.ParseConfig(file.Section(sectionWebhooks), file.Section(sectionNotify))
}

// check checks that the secret files of every receiver can be read.
func check(c module.Check) error {
	all, err := read(c.File)
	for _, h := range all {
		if bad := h.CheckSecrets(); bad != nil && err == nil {
			err = bad
		}
	}
	return err
}

// serve creates the sending service.
func serve(host module.Host) (*module.Service, error) {
	x := export.New(host.Engine, host.Store, host.Log)
	prepare := func(_ context.Context, file *config.File) (take func(), err error) {
		all, err := read(file)
		if err != nil {
			return nil, err
		}
		for i, h := range all {
			all[i].ReviewBase = host.ReviewBase
			if len(h.Command) == 0 {
				continue
			}
			if _, err := exec.LookPath(h.Command[0]); err != nil {
				host.Log.Warn("the program of notify does not exist or cannot be run; no one is notified through it", "command", h.Command[0])
			}
		}
		return x.Prepare(all)
	}
	return &module.Service{
		Sections: []string{sectionWebhooks, sectionNotify},
		Files: func(file *config.File) (files []string) {
			all, _ := read(file) // Prepare reports the mistakes
			for _, h := range all {
				files = append(files, h.SecretFiles...)
			}
			return files
		},
		Prepare: prepare,
		Run:     x.Run,
		Metrics: func(tell telemetry.MetricFunc) { writeStats(tell, x) },
	}, nil
}

// statsTime limits how long reading the metrics waits for the store.
const statsTime = 2 * time.Second

func writeStats(tell telemetry.MetricFunc, x *export.Exporter) {
	ctx, cancel := context.WithTimeout(context.Background(), statsTime)
	defer cancel()
	for _, s := range x.Stats(ctx) {
		const help = "Messages to a webhook by result: accepted, tried without success, or dead letters."
		for result, n := range map[string]uint64{"delivered": s.Delivered, "failed": s.Failed, "dead": s.Dead} {
			tell("webhook_messages_total", help, telemetry.Counter, float64(n), "result", result, "webhook", s.Webhook)
		}
		sending := 0.
		if s.Sending {
			sending = 1
		}
		tell("webhook_sending", "1 in the process that sends to the webhook.", telemetry.Gauge, sending, "webhook", s.Webhook)
		if s.Known {
			tell("webhook_behind_events", "Positions of the log that the webhook has not passed, those that its filter leaves out included.", telemetry.Gauge, float64(s.Behind), "webhook", s.Webhook)
			tell("webhook_behind_seconds", "How long the webhook has not moved while events waited.", telemetry.Gauge, s.Waited.Seconds(), "webhook", s.Webhook)
		}
	}
}
