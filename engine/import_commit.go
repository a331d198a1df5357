package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// check says which part of the plan cannot be kept, and what comes of the instance.
func (pl *plan) check() (reason string, err error) {
	inst, reason, err := pl.seal(func(ev record.Event, _ record.Instance, _ bool) error {
		pl.out.Events++
		if ev.Kind == record.Checkpointed {
			pl.out.Checkpoints++
		}
		return nil
	})
	if reason == "" && err == nil {
		pl.conclude(inst)
	}
	return reason, err
}

// commit writes the plan, which passed check. It is sealed anew for that: with each
// commit goes the context that it leads to, and all of them together would be too much.
func (pl *plan) commit(ctx context.Context) error {
	c := store.Commit{Expect: pl.here.inst.Seq}
	flush := func(snapshot bool) error {
		if len(c.Events) == 0 {
			return nil
		}
		c.Snapshot = snapshot
		if err := pl.im.e.cfg.Store.Commit(ctx, c); err != nil {
			return err
		}
		pl.im.e.observe(ctx, c.Events...)
		c = store.Commit{Expect: c.Next.Seq}
		return nil
	}
	_, reason, err := pl.seal(func(ev record.Event, next record.Instance, named bool) error {
		c.Events, c.Next = append(c.Events, ev), next
		if named || len(c.Events) >= eventsPerCommit {
			return flush(named)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case reason != "":
		return internal("seal an imported event", errors.New(reason))
	}
	return flush(false)
}

// seal makes the steps events, one after the other, and gives each away with where it
// leads to; named says that it is a checkpoint. It says which line cannot be kept.
func (pl *plan) seal(give func(ev record.Event, next record.Instance, named bool) error) (inst record.Instance, reason string, err error) {
	inst = pl.here.inst
	put := func(ev record.Event, line int) (string, error) {
		sealed, next, err := record.Seal(inst, ev, nil)
		switch {
		case errors.Is(err, record.ErrTooLarge):
			at := pl.in.File
			if line > 0 {
				at = fmt.Sprintf("%s:%d", pl.in.Log, line)
			}
			return fmt.Sprintf("%s: %v", at, err), nil
		case err != nil:
			return "", internal("seal an imported event", err)
		}
		inst = next
		return "", give(sealed, next, ev.Kind == record.Checkpointed)
	}
	for _, s := range slices.Concat([]step{pl.base}, pl.steps) {
		if s.ev.Kind != "" {
			if reason, err := put(s.ev, s.line); reason != "" || err != nil {
				return inst, reason, err
			}
		}
		for _, cp := range s.checkpoints {
			if reason, err := put(cp, 0); reason != "" || err != nil {
				return inst, reason, err
			}
		}
	}
	return inst, "", nil
}

// conclude says what came of the instance.
func (pl *plan) conclude(inst record.Instance) {
	out := pl.out
	out.State, out.Version = inst.State, inst.Version
	switch {
	case out.Events == 0:
		out.Status = ImportPresent
	case pl.here.inst.Seq > 0:
		out.Status = ImportContinued
	default:
		out.Status = ImportNew
	}
	if out.Events == 0 || pl.im.req.Counts || inst.Status != record.Running || len(pl.l.def.MustPassThrough) == 0 {
		return
	}
	remark(&out.Notes, "the definition has states that must be passed through, and what was visited elsewhere does not count")
}
