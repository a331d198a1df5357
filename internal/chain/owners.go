package chain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// Rows of the name storeName that lists are made by; no run has their ids. Each owner of runs has one, so
// that the runs of a chain are those of some owners: DBOS filters by whole owners only.
const (
	ownerPrefix = "/owner/"
	// indexes are those of the file that lists are made by: DBOS has none that finds a run by its status, which it
	// compares with parameters, or by its owner, and SQLite reads every row instead.
	indexes = `CREATE INDEX IF NOT EXISTS gavel_runs_by_status ON workflow_status (status, name, created_at);
CREATE INDEX IF NOT EXISTS gavel_runs_by_owner ON workflow_status (authenticated_user, created_at);
CREATE INDEX IF NOT EXISTS gavel_runs_by_owner_and_status ON workflow_status (authenticated_user, status, name, created_at);
CREATE INDEX IF NOT EXISTS gavel_suspended_runs ON workflow_status (created_at) WHERE ` + suspendedInFile
	// mostOwners is how many owners one list is asked by.
	mostOwners = 500
)

// ownerStatuses are those that the row of an owner has: it is enqueued, and ends at once.
var ownerStatuses = []dbos.WorkflowStatusType{dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusPending, dbos.WorkflowStatusSuccess}

// ownerRow is the id of the row of an owner.
func ownerRow(owner string) string {
	chain, principal, _ := strings.Cut(owner, "\n")
	return ownerPrefix + chain + "/" + digestLong(principal, maxKey)
}

// noteOwner makes the row of an owner.
func (r *Runs) noteOwner(ctx context.Context, owner string) error {
	r.mu.Lock()
	known := r.owners[owner]
	r.mu.Unlock()
	if known {
		return nil
	}
	if err := r.enqueue(ctx, place{queue: queueName}, storeName, ownerRow(owner), "", dbos.WithEnqueueAuthenticatedUser(owner)); err != nil {
		return fmt.Errorf("note whose the runs of %q are: %w", chainOf(owner), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners[owner] = true
	return nil
}

func chainOf(owner string) string {
	chain, _, _ := strings.Cut(owner, "\n")
	return chain
}

// keepOwner makes the row of an owner again whose run has begun, where a sweep deleted it before. A sweep that deletes it
// after that looks again itself.
func (r *Runs) keepOwner(ctx context.Context, owner string) error {
	rows := map[string]bool{ownerRow(owner): false}
	if err := r.markPresent(ctx, rows); err != nil || rows[ownerRow(owner)] {
		return err
	}
	r.forgetOwner(owner)
	return r.noteOwner(ctx, owner)
}

func (r *Runs) forgetOwner(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owners, owner)
}

// sweepOwners deletes the rows of before a time whose owners have no run any more.
func (r *Runs) sweepOwners(ctx context.Context, before time.Time) error {
	gone := map[string]bool{}
	_, err := r.sweepRows(ctx, sweptRows, func(rows []dbos.WorkflowStatus, keep map[string]bool) (err error) {
		for _, w := range rows {
			if keep[w.ID], err = r.hasRuns(ctx, w.AuthenticatedUser); err != nil {
				return err
			}
			if !keep[w.ID] {
				gone[w.AuthenticatedUser] = true
			}
		}
		return nil
	}, dbos.WithFilterName(storeName), dbos.WithFilterStatus(dbos.WorkflowStatusSuccess), dbos.WithFilterWorkflowIDPrefix(ownerPrefix), dbos.WithFilterCreatedBefore(before))
	for owner := range gone {
		r.forgetOwner(owner)
		again, failed := r.hasRuns(ctx, owner)
		if again {
			failed = r.noteOwner(ctx, owner)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// hasRuns reports whether an owner has any run.
func (r *Runs) hasRuns(ctx context.Context, owner string) (bool, error) {
	list, err := r.listRows(ctx, dbos.WithFilterUser(owner), dbos.WithFilterName(runName), dbos.WithFilterLimit(1))
	if err != nil {
		return false, fmt.Errorf("look for runs of %q: %w", chainOf(owner), err)
	}
	return len(list) > 0, nil
}

// listOwners returns the owners of the runs of a chain. all is false where there are too many to ask by.
func (r *Runs) listOwners(ctx context.Context, chain string) (owners []string, all bool, err error) {
	list, err := r.listRows(ctx, dbos.WithFilterName(storeName), dbos.WithFilterStatus(ownerStatuses...), dbos.WithFilterWorkflowIDPrefix(ownerPrefix+chain+"/"), dbos.WithFilterLimit(mostOwners+1))
	if err != nil || len(list) > mostOwners {
		return nil, false, err
	}
	for _, w := range list {
		if strings.HasPrefix(w.AuthenticatedUser, chainOwner(chain, "")) { // in a prefix, _ and % stand for anything
			owners = append(owners, w.AuthenticatedUser)
		}
	}
	return owners, true, nil
}
