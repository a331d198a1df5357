package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// DecisionLog is an engine.Observer that writes one line for each decision: at level info if a move or start was
// refused or waits for a person, otherwise at debug. A line names the request and who decided. It never contains
// data, context, or text about them.
type DecisionLog struct {
	Logger *slog.Logger
}

// Committed implements engine.Observer.
func (l DecisionLog) Committed(ctx context.Context, events []record.Event) {
	for i := range events {
		l.write(ctx, &events[i])
	}
}

// Changed implements engine.Observer.
func (DecisionLog) Changed(context.Context, record.Instance) {}

// Unrecorded implements engine.Observer.
func (l DecisionLog) Unrecorded(ctx context.Context, ev record.Event) { l.write(ctx, &ev) }

func (l DecisionLog) write(ctx context.Context, ev *record.Event) {
	d := ev.Decision
	if d == nil {
		return
	}
	level, message := slog.LevelInfo, "refused"
	switch {
	case ev.Kind == record.Prechecked:
		level, message = slog.LevelDebug, "pre-checked"
	case d.Applied:
		level, message = slog.LevelDebug, "decided"
	case d.Outcome == judge.Escalate:
		message = "escalated"
	}
	if !l.Logger.Enabled(ctx, level) {
		return
	}
	line := []slog.Attr{
		slog.String("workflow", ev.Workflow), slog.Int("version", ev.Version), slog.String("operation", operationOf(ev)),
		slog.String("action", actionOf(ev)), slog.String("from", ev.From), slog.String("outcome", string(d.Outcome)),
		slog.String("decidedBy", string(d.DecidedBy)), slog.String("code", d.Code), slog.Int64("revision", ev.Revision),
		slog.Float64("ms", float64(d.Took.Duration().Round(time.Microsecond).Microseconds())/1000),
		slog.String("principal", ev.Principal), slog.String("role", ev.Role),
		slog.String("id", ev.Instance), slog.Int64("seq", ev.Seq), slog.String("decisionId", d.ID),
	}
	if ev.Review != nil {
		line = append(line, slog.String("reviewId", ev.Review.ID))
	}
	l.Logger.LogAttrs(ctx, level, message, line...) //nolint:sloglint // one of four constants
}

// actionOf returns the requested action. An illegal action can be arbitrary text from the caller, so it is omitted
// unless it looks like a name.
func actionOf(ev *record.Event) string {
	const most = 64
	if ev.Decision.Code == workflow.CodeIllegalAction && (len(ev.Action) > most || strings.ContainsFunc(ev.Action, isInvalidNameRune)) {
		return ""
	}
	return ev.Action
}

func isInvalidNameRune(c rune) bool {
	return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '-' && c != '_' && c != '.'
}
