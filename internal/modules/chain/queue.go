package chain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// queueName is the queue from which executing processes take the runs, signals and answers that other
// processes enqueue.
const queueName = "chains"

// queuePoll is the polling interval of a queue.
const queuePoll = 250 * time.Millisecond

// place is the queue in which a run waits for a process to execute it.
type place struct{ queue, partition string }

// boundPlace returns the place of the runs of a chain with a concurrency limit: its own queue, whose limit
// applies across all processes and may change. The queue has a single partition, because DBOS writes
// nothing if no partition of a queue has waiting runs.
func boundPlace(chain string) place { return place{queueName + "/" + chain, chain} }

// placeOf returns the place of a chain's runs, and applies the current limit to its queue. SetBounds may
// delete the queue until it contains a run; see keepQueue.
func (r *Runs) placeOf(d *Definition) (place, error) {
	if d.Concurrency == 0 {
		return place{queue: queueName}, nil
	}
	p := boundPlace(d.Name)
	r.mu.Lock()
	known := r.bounds[p.queue] == d.Concurrency
	r.mu.Unlock()
	if known {
		return p, nil
	}
	return p, r.setBound(p.queue, d.Concurrency)
}

// findTurn returns the priority of a new run in a bounded queue: after the owner's last run, or else after
// the runs in progress. Owners therefore take turns, however many runs one of them has waiting.
func (r *Runs) findTurn(ctx context.Context, p place, owner string) (uint, error) {
	if p.partition == "" {
		return 0, nil
	}
	last := 0
	for _, filter := range [][]dbos.ListWorkflowsOption{
		{dbos.WithFilterStatus(dbos.WorkflowStatusPending)},
		{dbos.WithFilterStatus(openInTables...), dbos.WithFilterUser(owner)},
	} {
		list, err := r.listRows(ctx, append(filter, dbos.WithFilterName(runName), dbos.WithFilterQueueName(p.queue))...)
		if err != nil {
			return 0, fmt.Errorf("find the queue position of a run: %w", err)
		}
		for _, w := range list {
			last = max(last, w.Priority)
		}
	}
	return uint(last) + 1, nil //nolint:gosec // not negative
}

// keepQueue recreates the queue of an enqueued run if SetBounds has deleted it. A deletion that happens
// later checks again itself.
func (r *Runs) keepQueue(ctx context.Context, run string, p place) error {
	if p.partition == "" {
		return nil
	}
	c, done := r.within(ctx)
	defer done()
	if _, err := dbos.RetrieveQueue(c, p.queue); !errors.Is(err, dbos.ErrQueueNotFound) {
		return err
	}
	return r.makeQueue(ctx, run, p.queue)
}

// makeQueue creates a queue, with the limit from the definition of a run in it.
func (r *Runs) makeQueue(ctx context.Context, run, queue string) error {
	bound := 1
	switch d, err := r.ReadDefinition(ctx, run); {
	case err == nil:
		bound = d.Concurrency
	case !lacksDefinition(err): // otherwise the run fails when its turn comes
		return fmt.Errorf("read the definition of the run %s: %w", run, err)
	}
	return r.setBound(queue, bound)
}

// setBound creates the queue of a chain, or changes its concurrency limit; 0 means no limit.
func (r *Runs) setBound(queue string, bound int) error {
	var options []dbos.QueueOption
	if bound > 0 {
		options = append(options, dbos.WithPartitionConcurrency(bound))
	}
	if err := r.registerQueue(queue, options...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bounds[queue] = bound
	return nil
}

// registerQueue creates or updates a queue.
func (r *Runs) registerQueue(name string, options ...dbos.QueueOption) error {
	c, done := r.within(context.Background())
	defer done()
	options = append(options, dbos.WithQueueBasePollingInterval(queuePoll), dbos.WithQueueOnConflict(dbos.QueueConflictAlwaysUpdate))
	if _, err := dbos.RegisterQueue(c, name, options...); err != nil {
		return fmt.Errorf("create the queue of runs: %w", err)
	}
	return nil
}

// deleteQueue deletes a queue that was empty when it was checked.
func (r *Runs) deleteQueue(ctx context.Context, queue string) error {
	c, done := r.within(ctx)
	defer done()
	if err := dbos.DeleteQueue(c, queue); err != nil {
		return fmt.Errorf("delete an empty queue of runs: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.bounds, queue)
	return nil
}

// SetBounds applies the current concurrency limits of chains to their queues, including for runs that
// already wait. It recreates missing queues that contain runs, and deletes empty ones that no chain needs.
func (r *Runs) SetBounds(ctx context.Context, chains map[string]*Definition) error {
	at, err := r.readQueues(ctx)
	if err != nil {
		return err
	}
	return r.setBoundsAt(ctx, at, chains)
}

// setBoundsAt is SetBounds with a given snapshot. After a deletion it checks again, because a run may have
// been enqueued in between.
func (r *Runs) setBoundsAt(ctx context.Context, at queues, chains map[string]*Definition) error {
	deleted, err := r.applyBounds(ctx, at, chains)
	if err != nil || !deleted {
		return err
	}
	return r.SetBounds(ctx, chains)
}

// openInTables lists the statuses of runs that have not ended.
var openInTables = []dbos.WorkflowStatusType{dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusPending, dbos.WorkflowStatusDelayed}

// queues is a snapshot of the queues of runs.
type queues struct {
	bounds map[string]int  // limits of the existing queues; 0 is none
	inUse  map[string]bool // queues that contain a run
}

func (r *Runs) readQueues(ctx context.Context) (queues, error) {
	c, done := r.within(ctx)
	defer done()
	there, err := dbos.ListQueues(c)
	if err != nil {
		return queues{}, fmt.Errorf("list the queues of runs: %w", err)
	}
	rows, err := dbos.GetWorkflowAggregates(c, dbos.GetWorkflowAggregatesInput{
		GroupByQueueName: true, SelectCount: true, Name: []string{runName}, Status: openInTables,
	})
	if err != nil {
		return queues{}, fmt.Errorf("look for runs in queues: %w", err)
	}
	out := queues{bounds: map[string]int{}, inUse: map[string]bool{}}
	for _, q := range there {
		out.bounds[q.GetName()] = 0
		if bound := q.GetPartitionConcurrency(); bound != nil {
			out.bounds[q.GetName()] = *bound
		}
	}
	for _, row := range rows {
		for _, queue := range row.Group {
			if queue != nil {
				out.inUse[*queue] = true
			}
		}
	}
	return out, nil
}

// applyBounds creates, changes and deletes queues according to a snapshot, and reports whether it deleted
// one.
func (r *Runs) applyBounds(ctx context.Context, at queues, chains map[string]*Definition) (deleted bool, err error) {
	for name, d := range chains {
		queue := boundPlace(name).queue
		bound, there := at.bounds[queue]
		if needed := at.inUse[queue] || there && d.Concurrency > 0; needed && !(there && bound == d.Concurrency) {
			if err := r.setBound(queue, d.Concurrency); err != nil {
				return false, err
			}
		}
	}
	for queue := range at.inUse {
		name, ofChain := strings.CutPrefix(queue, queueName+"/")
		if _, there := at.bounds[queue]; there || !ofChain || chains[name] != nil {
			continue
		}
		if err := r.remakeQueue(ctx, queue); err != nil {
			return false, err
		}
	}
	for queue := range at.bounds {
		name, ofChain := strings.CutPrefix(queue, queueName+"/")
		isBound := ofChain && chains[name] != nil && chains[name].Concurrency > 0
		if isBound || at.inUse[queue] || !ofChain {
			continue
		}
		if err := r.deleteQueue(ctx, queue); err != nil {
			return deleted, err
		}
		deleted = true
	}
	return deleted, nil
}

// remakeQueue recreates the queue of a removed chain for the runs still in it. This happens if a start was
// killed before keepQueue, or the process that deleted the queue before its next check.
func (r *Runs) remakeQueue(ctx context.Context, queue string) error {
	list, err := r.listRows(ctx, dbos.WithFilterName(runName), dbos.WithFilterQueueName(queue), dbos.WithFilterStatus(openInTables...), dbos.WithFilterSortDesc(), dbos.WithFilterLimit(1))
	switch {
	case err != nil:
		return fmt.Errorf("read the runs of a queue: %w", err)
	case len(list) == 0: // they have ended since
		return nil
	}
	return r.makeQueue(ctx, list[0].ID, queue)
}

// enqueue leaves a workflow for an executing process. The first one with an id is kept.
func (r *Runs) enqueue(ctx context.Context, p place, workflow, id, text string, options ...dbos.EnqueueOption) error {
	c, done := r.within(ctx)
	defer done()
	options = append(options, dbos.WithEnqueueWorkflowID(id), dbos.WithEnqueueApplicationVersion(version))
	if p.partition != "" {
		options = append(options, dbos.WithEnqueueQueuePartitionKey(p.partition))
	}
	_, err := dbos.Enqueue[string](c, p.queue, workflow, text, options...)
	return err
}
