package chain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
)

// scopeMark separates the run id that a principal chose from the digest of the principal.
const scopeMark = "@"

// ScopeRun returns the id under which a run with a chosen id is stored, so that two principals may choose
// the same id.
func ScopeRun(principal, run string) string {
	sum := sha256.Sum256([]byte(principal))
	return run + scopeMark + hex.EncodeToString(sum[:8])
}

// displayRunID returns the id of a run as a principal sees it: its owner sees the chosen id.
func displayRunID(p engine.Principal, owner, run string) string {
	if p.ID != owner {
		return run
	}
	return strings.TrimSuffix(run, ScopeRun(owner, ""))
}

// candidateRuns returns the ids that a principal may mean, with its own chosen id first.
func candidateRuns(p engine.Principal, run string) []string {
	return []string{ScopeRun(p.ID, run), run}
}

// find returns a run if the principal may see it.
func (s *Service) find(ctx context.Context, p engine.Principal, right engine.Right, run string) (RunState, error) {
	if err := engine.Authorize(p, right); err != nil {
		return RunState{}, err
	}
	known, err := s.config.Runs.findVisible(ctx, p, candidateRuns(p, run)...)
	switch {
	case err == nil:
		return known, nil
	case !errors.Is(err, ErrUnknownRun):
		return RunState{}, engine.StoreError("read the run", err)
	}
	for _, id := range candidateRuns(p, run) {
		v, _, err := s.readRecord(ctx, p, id)
		if !isCode(err, engine.CodeUnknownInstance) {
			return RunState{RunView: v, swept: true}, err
		}
	}
	if p.Role == engine.RoleAgent {
		return RunState{}, unknownRun(run)
	}
	return s.findChosen(ctx, p, run)
}

// findVisible returns the first of the given runs that exists and that the principal may see, or
// ErrUnknownRun.
func (r *Runs) findVisible(ctx context.Context, p engine.Principal, runs ...string) (RunState, error) {
	list, err := r.listRows(ctx, dbos.WithFilterWorkflowIDs(runs...), dbos.WithFilterName(runName), dbos.WithFilterLoadOutput(true))
	if err != nil {
		return RunState{}, err
	}
	for _, run := range runs {
		for _, w := range list {
			if known := r.describeRun(w); w.ID == run && canSee(p, known) {
				return known, nil
			}
		}
	}
	return RunState{}, ErrUnknownRun
}

// findChosen returns the run for which another principal chose an id, for principals that see all runs.
func (s *Service) findChosen(ctx context.Context, p engine.Principal, run string) (RunState, error) {
	if !runID.MatchString(run) {
		return RunState{}, unknownRun(run)
	}
	list, err := s.config.Runs.listRows(ctx, dbos.WithFilterWorkflowIDPrefix(run+scopeMark), dbos.WithFilterName(runName), dbos.WithFilterLoadOutput(true))
	if err != nil {
		return RunState{}, engine.StoreError("read the run", err)
	}
	var found []RunState
	for _, w := range list {
		if known := s.config.Runs.describeRun(w); w.ID == ScopeRun(known.Principal, run) && canSee(p, known) {
			found = append(found, known)
		}
	}
	switch len(found) {
	case 0:
		return RunState{}, unknownRun(run)
	case 1:
		return found[0], nil
	}
	return RunState{}, &engine.Error{
		Code: engine.CodeConflict, Path: "/run", Message: fmt.Sprintf("%d principals have a run %q.", len(found), run),
		Hint: fmt.Sprintf("Use the full id, such as %s of %s.", found[0].Run, found[0].Principal),
	}
}
