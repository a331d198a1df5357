package chain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// Rows of the name storeName that lists are made by; no run has their ids. Each owner of runs has one, so
// that the runs of a chain are those of some owners: DBOS filters by whole owners only.
const (
	ownerPrefix = "/owner/"
	// listedID is the row that was made when every owner had one, and runs that fail began to have the
	// status ERROR.
	listedID = "/listed"
	// indexes are those of the file that lists are made by: DBOS has none that finds a run by its status, which it
	// compares with parameters, or by its owner, and SQLite reads every row instead.
	indexes = `CREATE INDEX IF NOT EXISTS gavel_runs_by_status ON workflow_status (status, name, created_at);
CREATE INDEX IF NOT EXISTS gavel_runs_by_owner ON workflow_status (authenticated_user, created_at);
CREATE INDEX IF NOT EXISTS gavel_runs_by_owner_and_status ON workflow_status (authenticated_user, status, name, created_at)`
	// mostOwners is how many owners one list is asked by.
	mostOwners = 500
)

// ownerStatuses are those that the row of an owner has: it is enqueued, and ends at once.
var ownerStatuses = []dbos.WorkflowStatusType{dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusPending, dbos.WorkflowStatusSuccess}

// noteOwner makes the row of an owner.
func (r *Runs) noteOwner(ctx context.Context, owner string) error {
	r.mu.Lock()
	known := r.owners[owner]
	r.mu.Unlock()
	if known {
		return nil
	}
	chain, principal, _ := strings.Cut(owner, "\n")
	id := ownerPrefix + chain + "/" + digestLong(principal, maxKey)
	if err := r.enqueue(ctx, place{queue: queueName}, storeName, id, "", dbos.WithEnqueueAuthenticatedUser(owner)); err != nil {
		return fmt.Errorf("note whose the runs of %q are: %w", chain, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners[owner] = true
	return nil
}

// noteOwners makes the rows of all owners, once for tables that an earlier version of gavel made.
func (r *Runs) noteOwners(ctx context.Context) error {
	if since, err := r.listedSince(ctx); err != nil || !since.IsZero() {
		return err
	}
	const page = 1000
	for offset, n := 0, page; n == page; offset += page {
		c, done := r.within(ctx)
		list, err := dbos.ListWorkflows(c, dbos.WithFilterName(runName), dbos.WithFilterLimit(page), dbos.WithFilterOffset(offset), dbos.WithFilterLoadInput(false), dbos.WithFilterLoadOutput(false))
		done()
		if err != nil {
			return fmt.Errorf("read whose runs there are: %w", err)
		}
		for _, w := range list {
			if err := r.noteOwner(ctx, w.AuthenticatedUser); err != nil {
				return err
			}
		}
		n = len(list)
	}
	return r.enqueue(ctx, place{queue: queueName}, storeName, listedID, "")
}

// listedSince is the time since when every run that failed has the status ERROR; zero for none.
func (r *Runs) listedSince(ctx context.Context) (time.Time, error) {
	r.mu.Lock()
	since := r.listed
	r.mu.Unlock()
	if !since.IsZero() {
		return since, nil
	}
	c, done := r.within(ctx)
	defer done()
	list, err := dbos.ListWorkflows(c, dbos.WithFilterWorkflowIDs(listedID), dbos.WithFilterLoadInput(false), dbos.WithFilterLoadOutput(false))
	if err != nil || len(list) == 0 {
		return time.Time{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed = list[0].CreatedAt
	return r.listed, nil
}

// listOwners returns the owners of the runs of a chain. all is false where there are too many to ask by, or
// not all are known.
func (r *Runs) listOwners(ctx context.Context, chain string) (owners []string, all bool, err error) {
	if since, err := r.listedSince(ctx); err != nil || since.IsZero() {
		return nil, false, err
	}
	c, done := r.within(ctx)
	defer done()
	list, err := dbos.ListWorkflows(c, dbos.WithFilterName(storeName), dbos.WithFilterStatus(ownerStatuses...), dbos.WithFilterWorkflowIDPrefix(ownerPrefix+chain+"/"),
		dbos.WithFilterLimit(mostOwners+1), dbos.WithFilterLoadInput(false), dbos.WithFilterLoadOutput(false))
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
