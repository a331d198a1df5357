package chain

import (
	"context"
	"fmt"
	"strings"
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

// boundPlace is the place of the runs of a chain with a bound: a queue of its own, whose bound holds over all
// processes and may change. It has one part, because DBOS asks a queue with parts only once where nothing waits in it.
func boundPlace(chain string) place { return place{queueName + "/" + chain, chain} }

// placeOf is the place of the runs of a chain.
func (r *Runs) placeOf(d *Definition) (place, error) {
	if d.Concurrency == 0 {
		return place{queue: queueName}, nil
	}
	p := boundPlace(d.Name)
	r.mu.Lock()
	known := r.bounds[p.queue] == d.Concurrency
	r.mu.Unlock()
	if !known {
		return p, r.setBound(p.queue, d.Concurrency)
	}
	return p, r.registerQueue(p.queue, dbos.QueueConflictNeverUpdate, dbos.WithPartitionQueue(), dbos.WithGlobalConcurrency(d.Concurrency)) // another process may have deleted it
}

// setBound makes the queue of a chain, or changes how many of its runs may be under way; 0 is no bound.
func (r *Runs) setBound(queue string, bound int) error {
	options := []dbos.QueueOption{dbos.WithPartitionQueue()}
	if bound > 0 {
		options = append(options, dbos.WithGlobalConcurrency(bound))
	}
	if err := r.registerQueue(queue, dbos.QueueConflictAlwaysUpdate, options...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bounds[queue] = bound
	return nil
}

// registerQueue makes a queue; whether it changes one that is there, conflict says.
func (r *Runs) registerQueue(name string, conflict dbos.QueueConflictResolution, options ...dbos.QueueOption) error {
	c, done := r.within(context.Background())
	defer done()
	options = append(options, dbos.WithQueueBasePollingInterval(queuePoll), dbos.WithQueueOnConflict(conflict))
	if _, err := dbos.RegisterQueue(c, name, options...); err != nil {
		return fmt.Errorf("make the queue of runs: %w", err)
	}
	return nil
}

// SetBounds has the queues of chains hold the bounds of now, also for runs that wait already, and deletes those that no
// chain needs and no run is in.
func (r *Runs) SetBounds(ctx context.Context, chains map[string]*Definition) error {
	c, done := r.within(ctx)
	defer done()
	queues, err := dbos.ListQueues(c)
	if err != nil {
		return fmt.Errorf("list the queues of runs: %w", err)
	}
	rows, err := dbos.GetWorkflowAggregates(c, dbos.GetWorkflowAggregatesInput{
		GroupByQueueName: true, SelectCount: true, Name: []string{runName},
		Status: []dbos.WorkflowStatusType{dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusPending, dbos.WorkflowStatusDelayed},
	})
	if err != nil {
		return fmt.Errorf("look for runs in queues: %w", err)
	}
	bounds := map[string]int{} // of the queues that are there
	for _, q := range queues {
		bounds[q.GetName()] = 0
		if bound := q.GetGlobalConcurrency(); bound != nil {
			bounds[q.GetName()] = *bound
		}
	}
	inUse := map[string]bool{}
	for _, row := range rows {
		for _, queue := range row.Group {
			if queue != nil {
				inUse[*queue] = true
			}
		}
	}
	for name, d := range chains {
		queue := boundPlace(name).queue
		bound, there := bounds[queue]
		if needed := inUse[queue] || there && d.Concurrency > 0; needed && !(there && bound == d.Concurrency) {
			if err := r.setBound(queue, d.Concurrency); err != nil {
				return err
			}
		}
	}
	for queue := range bounds {
		name, ofChain := strings.CutPrefix(queue, queueName+"/")
		isBound := ofChain && chains[name] != nil && chains[name].Concurrency > 0
		if isBound || inUse[queue] || !ofChain && !strings.HasPrefix(queue, oldQueues) {
			continue
		}
		if err := dbos.DeleteQueue(c, queue); err != nil {
			return fmt.Errorf("delete a queue of runs that holds none: %w", err)
		}
	}
	return nil
}

// oldQueues begin the names of queues of earlier versions, one for each bound.
const oldQueues = queueName + "-"

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
