package export

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/endpoint"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ErrRemoved is returned if retention has removed the event of a dead letter.
var ErrRemoved = errors.New("the event was removed by retention")

// Resend sends the event of a dead letter once more, with the same id, and drops the letter if the receiver accepts
// it.
func Resend(ctx context.Context, e *engine.Engine, db store.DeadLetters, h Webhook, l store.DeadLetter) error {
	unfiltered := h
	unfiltered.Filter = Filter{}
	page, err := e.Feed().Page(ctx, viewer(h), engine.TailRequest{After: l.Position - 1, Instance: l.Instance})
	if err != nil {
		return err //nolint:wrapcheck // the error is already specific
	}
	if len(page.Items) == 0 || page.Items[0].Position != l.Position {
		return ErrRemoved
	}
	d, err := newDelivery(ctx, e, unfiltered, page.Items[0])
	if err != nil {
		return err
	}
	if d == nil {
		return ErrRemoved
	}
	if err := sendOnce(ctx, h, d.message); err != nil {
		return err
	}
	return db.DropDeadLetter(ctx, l.Cursor, l.Position) //nolint:wrapcheck // the error is already specific
}

// Test sends a message of type gavel.test once.
func Test(ctx context.Context, h Webhook) error {
	body, err := document.Marshal(payload{Type: "gavel.test", Timestamp: time.Now().UTC(), Data: json.RawMessage(`{}`)})
	if err != nil {
		return err //nolint:wrapcheck // strings and times always encode
	}
	return sendOnce(ctx, h, endpoint.Message{ID: "test_" + rand.Text(), Body: body})
}

func sendOnce(ctx context.Context, h Webhook, m endpoint.Message) error {
	end, err := h.Open()
	if err != nil {
		return err
	}
	defer end.Close()
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	return end.Send(ctx, m) //nolint:wrapcheck // the error is already specific
}
