package chain

import (
	"context"
	"fmt"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// queueName is the queue from which a process that executes takes what others leave there: runs,
// signals, answers.
const queueName = "chains"

// queuePoll is how often a process looks into a queue.
const queuePoll = 250 * time.Millisecond

// place is where a run waits for a process that executes it.
type place struct{ queue, partition string }

// placeOf is the place of the runs of a chain. Chains with the same bound share a queue, in which each
// has a part of its own: the bound holds for each part, over all processes.
func (r *Runs) placeOf(d *Definition) (place, error) {
	if d.Concurrency == 0 {
		return place{queue: queueName}, nil
	}
	p := place{fmt.Sprintf("%s-%d", queueName, d.Concurrency), d.Name}
	return p, r.registerQueue(p.queue, dbos.WithPartitionQueue(), dbos.WithGlobalConcurrency(d.Concurrency))
}

// registerQueue makes a queue once.
func (r *Runs) registerQueue(name string, options ...dbos.QueueOption) error {
	r.mu.Lock()
	known := r.queues[name]
	r.mu.Unlock()
	if known {
		return nil
	}
	c, done := r.within(context.Background())
	defer done()
	options = append(options, dbos.WithQueueBasePollingInterval(queuePoll), dbos.WithQueueOnConflict(dbos.QueueConflictAlwaysUpdate))
	if _, err := dbos.RegisterQueue(c, name, options...); err != nil {
		return fmt.Errorf("make the queue of runs: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues[name] = true
	return nil
}

// enqueue leaves something for a process that executes; the first of an id stays.
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
