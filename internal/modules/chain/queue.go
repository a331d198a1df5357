package chain

import (
	"context"
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

// queuePlace is the queue in which a run waits for a process to execute it.
type queuePlace struct{ queue, partition string }

// limitedQueue returns the queue of the runs of a chain with a concurrency limit: its own queue, whose limit
// applies across all processes and may change. The queue has a single partition, because DBOS writes
// nothing if no partition of a queue has waiting runs. The queue is never deleted, so that every run in it
// has its turn.
func limitedQueue(chain string) queuePlace { return queuePlace{queueName + "/" + chain, chain} }

// findQueue returns the queue of a chain's runs, and applies the current limit to its queue.
func (r *Runs) findQueue(d *Definition) (queuePlace, error) {
	if d.Concurrency == 0 {
		return queuePlace{queue: queueName}, nil
	}
	p := limitedQueue(d.Name)
	return p, r.setLimit(p.queue, d.Concurrency)
}

// findPriority returns the priority of a new run in a bounded queue: after the owner's last run, or else
// after the runs in progress. Owners therefore take turns, no matter how many runs one of them has waiting.
func (r *Runs) findPriority(ctx context.Context, p queuePlace, owner string) (uint, error) {
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

// setLimit creates the queue of a chain, or changes its concurrency limit; 0 means no limit.
func (r *Runs) setLimit(queue string, bound int) error {
	if bound == 0 {
		return r.registerQueue(queue)
	}
	return r.registerQueue(queue, dbos.WithPartitionConcurrency(bound))
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

// SetLimits applies the current concurrency limits of chains to the queues that exist, including for runs
// that already wait.
func (r *Runs) SetLimits(ctx context.Context, chains map[string]*Definition) error {
	c, done := r.within(ctx)
	defer done()
	queues, err := dbos.ListQueues(c)
	if err != nil {
		return fmt.Errorf("list the queues of runs: %w", err)
	}
	for _, q := range queues {
		name, ofChain := strings.CutPrefix(q.GetName(), queueName+"/")
		d, bound := chains[name], 0
		if known := q.GetPartitionConcurrency(); known != nil {
			bound = *known
		}
		if ofChain && d != nil && d.Concurrency != bound {
			if err := r.setLimit(q.GetName(), d.Concurrency); err != nil {
				return err
			}
		}
	}
	return nil
}

// openInTables lists the statuses of runs that have not ended.
var openInTables = []dbos.WorkflowStatusType{dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusPending, dbos.WorkflowStatusDelayed}

// enqueue queues a workflow for an executing process. If several have the same id, only the first one is
// kept.
func (r *Runs) enqueue(ctx context.Context, p queuePlace, workflow, id, text string, options ...dbos.EnqueueOption) error {
	c, done := r.within(ctx)
	defer done()
	options = append(options, dbos.WithEnqueueWorkflowID(id), dbos.WithEnqueueApplicationVersion(version))
	if p.partition != "" {
		options = append(options, dbos.WithEnqueueQueuePartitionKey(p.partition))
	}
	_, err := dbos.Enqueue[string](c, p.queue, workflow, text, options...)
	return err
}
