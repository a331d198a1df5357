package engine

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
)

// room refuses what would be recorded when an instance has had as many events since its
// last move as one may have: who asks again and again for what is refused fills a disk,
// and costs a judgement each time. A move makes room, and operators always have it.
func (e *Engine) room(ctx context.Context, p Principal, inst record.Instance, l loaded) error {
	if err := e.ledger.bytesLeft(p); err != nil {
		return err
	}
	most := int64(e.cfg.Limits.Events)
	if p.Role == RoleOperator || inst.Seq <= most {
		return nil
	}
	// Revisions never fall along a history: if the event that many places back has the
	// present one, none of those after it was a move.
	for ev, err := range e.cfg.Store.Events(ctx, EventQuery{Instance: inst.ID, AfterSeq: inst.Seq - most - 1, Limit: 1}) {
		switch {
		case err != nil:
			return storeError("read the history", err)
		case ev.Seq == inst.Seq-most && ev.Revision == inst.Revision:
			pos := position(inst, l.def, p.Role)
			return &Error{
				Code: CodeTooManyEvents, Current: &pos,
				Message: fmt.Sprintf("The instance has had %d refusals and other events since its last move; nothing more is judged or recorded.", most),
				Hint:    "Do not repeat the request. Ask an operator to make the move or to roll back, or cancel the instance and start another.",
			}
		}
	}
	return nil
}
