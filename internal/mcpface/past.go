package mcpface

import (
	"context"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// when is the point in the past that is asked for, the zero value for now.
func (a arguments) when() (engine.When, error) {
	w := engine.When{Revision: a.integer("revision")}
	text := optional[string](a, "at")
	if text == nil {
		return w, nil
	}
	var err error
	if w.At, err = time.Parse(time.RFC3339Nano, *text); err != nil || w.At.IsZero() {
		return w, wrong("at", fmt.Sprintf("The argument \"at\" is no time: %s.", clipped(*text)), "Write it as RFC 3339 says: 2026-01-02T15:04:05Z.")
	}
	return w, nil
}

// statusAt shows the past; its line says nothing of reviews, which need not wait any more.
func (f *Face) statusAt(ctx context.Context, id string, when engine.When) (answer, error) {
	r, err := f.cfg.Engine.StatusAt(ctx, callerOf(ctx), id, when)
	if err != nil {
		return answer{}, err
	}
	return answer{line: r.Progress, content: r}, nil
}

func undoRequest(a arguments) engine.UndoRequest {
	return engine.UndoRequest{ID: a.text("id"), Key: a.text("idempotencyKey"), ExpectedRevision: a.revision()}
}

func runUndo(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Undo(ctx, callerOf(ctx), undoRequest(a))
	if err != nil {
		return answer{}, err
	}
	return answer{line: r.Message + " " + r.Progress, content: r}, nil
}

func runRedo(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Redo(ctx, callerOf(ctx), undoRequest(a))
	if err != nil {
		return answer{}, err
	}
	return answer{line: r.Message + " " + r.Progress, content: r}, nil
}
