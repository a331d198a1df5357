package chain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
)

// StartEntry implements EntryStarter. The run acts for p, the owner of the instance.
func (s *Service) StartEntry(ctx context.Context, p engine.Principal, e Entry) error {
	run := EntryRun(e.Instance, e.Revision)
	known, err := s.hasRun(ctx, run)
	if err != nil {
		return err
	}
	if !known {
		d := s.config.Chains()[e.OnEnter.Chain]
		if d == nil {
			return unknownChain(e.OnEnter.Chain)
		}
		input, err := fillEntry(e, d)
		if err == nil {
			_, err = d.CheckInput(input)
		}
		if err != nil {
			return &engine.Error{Code: engine.CodeInvalidData, Path: "/input", Message: upperFirst(err.Error()) + ".", Hint: "Change the onEnter of the state, or the chain."}
		}
		if _, err := s.config.Runs.Start(ctx, StartRequest{Run: run, Definition: d, Input: input, Principal: p, Entry: &e}); err != nil {
			return engine.StoreError("start the run", err)
		}
	}
	if !e.OnEnter.Wait {
		return nil
	}
	if _, err = beginEntry(ctx, s.config.Engine, p, run, e); err != nil && !isFinal(err) {
		return err
	}
	return nil // an instance that was cancelled by now is not waiting
}

// withoutContext returns the parts of an entry that its run stores.
func withoutContext(e *Entry) *Entry {
	if e == nil {
		return nil
	}
	kept, on := *e, *e.OnEnter
	on.Input = nil
	kept.Context, kept.OnEnter = nil, &on
	return &kept
}

// hasRun reports whether a run was ever started, even if its rows have been deleted.
func (s *Service) hasRun(ctx context.Context, run string) (bool, error) {
	_, err := s.config.Runs.Get(ctx, run)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, ErrUnknownRun) {
		return false, engine.StoreError("read the run", err)
	}
	switch _, _, err = s.readRecord(ctx, systemPrincipal, run); {
	case isCode(err, engine.CodeUnknownInstance):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// endEntry settles the entry of a run that has ended (see settleEntry), and retries until the store accepts
// that. A permanent rejection is only logged, because the run has ended anyway.
func (x *execution) endEntry(begun recordedRun, result *Result) error {
	if begun.Entry == nil || x.record.ledger == nil {
		return nil
	}
	err := x.record.persist(x.stopped, func(ctx context.Context) error { return x.settleEntry(ctx, begun, result.Err == nil) })
	if _, refused := errors.AsType[*engine.Error](err); err != nil && (!refused || x.stopped.Err() != nil) {
		return err // another process continues
	}
	if err != nil {
		x.config.Logger.Warn("cannot report the end of a run to the state that started it", "run", x.run, "instance", begun.Entry.Instance, "error", err)
	}
	return nil
}

func (r *Runs) settleEntry(ctx context.Context, begun recordedRun, done bool) error {
	return settleEntry(ctx, r.config.Ledger, begun.Principal, EntryRun(begun.Entry.Instance, begun.Entry.Revision), *begun.Entry, done)
}

// cancelEntry settles the entry of a run that is about to be cancelled, as failed. It is called before the
// run is cancelled, so that the caller can retry if it fails.
func (r *Runs) cancelEntry(ctx context.Context, run string) error {
	if !strings.HasPrefix(run, entryPrefix) || r.config.Ledger == nil {
		return nil
	}
	begun, _, err := r.readBegun(ctx, run)
	switch {
	case errors.Is(err, ErrUnknownRun), isLost(err): // the entry is unknown
		return nil
	case err != nil:
		return err
	case begun.Entry == nil:
		return nil
	}
	if err := r.settleEntry(ctx, begun, false); isTemporary(err) {
		return fmt.Errorf("notify the instance %s: %w", begun.Entry.Instance, err)
	} else if err != nil {
		r.config.Logger.Warn("cannot report the end of a run to the state that started it", "run", run, "instance", begun.Entry.Instance, "error", err)
	}
	return nil
}
