package engine

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
)

// makesRoom are the kinds of events behind which an instance has room again. What goes
// back and forth is among them when it is an operator's: others could do it for ever.
var makesRoom = []record.Kind{
	record.Started, record.Advanced, record.Migrated, record.Imported, record.Reconciled,
	record.RolledBack, record.Undone, record.Redone,
}

// room refuses what would be recorded when an instance has had as many events since its
// last move as one may have: who asks again and again for what is refused, or takes back
// and makes again, fills a disk, and costs a judgement each time. A move makes room, and
// operators always have it.
func (e *Engine) room(ctx context.Context, p Principal, inst record.Instance, l loaded) error {
	if err := e.ledger.bytesLeft(p); err != nil {
		return err
	}
	most := int64(e.cfg.Limits.Events)
	if p.Role == RoleOperator || inst.Seq <= most {
		return nil
	}
	for ev, err := range e.cfg.Store.Events(ctx, EventQuery{Instance: inst.ID, AfterSeq: inst.Seq - most, Kinds: makesRoom}) {
		switch {
		case err != nil:
			return storeError("read the history", err)
		case ev.Rollback == nil || ev.Role == string(RoleOperator):
			return nil
		}
	}
	pos := position(inst, l.def, p.Role)
	return &Error{
		Code: CodeTooManyEvents, Current: &pos,
		Message: fmt.Sprintf("The instance has had %d refusals and other events since its last move; nothing more is judged or recorded.", most),
		Hint:    "Do not repeat the request. Ask an operator to make the move or to roll back, or cancel the instance and start another.",
	}
}
