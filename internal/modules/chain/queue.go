package chain

import (
	"context"
	"errors"
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
// processes and may change. It has one part: DBOS writes nothing where no part of a queue has a run that waits.
func boundPlace(chain string) place { return place{queueName + "/" + chain, chain} }

// placeOf is the place of the runs of a chain, whose queue has its bound of now. SetBounds may delete it until a run is in
// it; see keepQueue.
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

// findTurn is when a run of an owner begins among those that wait in a bounded queue: behind the last one of the owner,
// and else behind the ones that are under way. So owners take turns, however many runs one of them has waiting.
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
			return 0, fmt.Errorf("find the turn of a run: %w", err)
		}
		for _, w := range list {
			last = max(last, w.Priority)
		}
	}
	return uint(last) + 1, nil //nolint:gosec // not negative
}

// keepQueue makes the queue of a run that was left in it, where SetBounds deleted it before. A deletion that comes after
// it looks again itself.
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

// makeQueue makes a queue with the bound that the definition of a run in it has.
func (r *Runs) makeQueue(ctx context.Context, run, queue string) error {
	bound := 1
	switch d, err := r.ReadDefinition(ctx, run); {
	case err == nil:
		bound = d.Concurrency
	case !lacksDefinition(err): // else the run fails in its turn
		return fmt.Errorf("read the definition of the run %s: %w", run, err)
	}
	return r.setBound(queue, bound)
}

// setBound makes the queue of a chain, or changes how many of its runs may be under way; 0 is no bound.
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

// registerQueue makes a queue, or changes it.
func (r *Runs) registerQueue(name string, options ...dbos.QueueOption) error {
	c, done := r.within(context.Background())
	defer done()
	options = append(options, dbos.WithQueueBasePollingInterval(queuePoll), dbos.WithQueueOnConflict(dbos.QueueConflictAlwaysUpdate))
	if _, err := dbos.RegisterQueue(c, name, options...); err != nil {
		return fmt.Errorf("make the queue of runs: %w", err)
	}
	return nil
}

// deleteQueue deletes a queue that held no run when it was looked at.
func (r *Runs) deleteQueue(ctx context.Context, queue string) error {
	c, done := r.within(ctx)
	defer done()
	if err := dbos.DeleteQueue(c, queue); err != nil {
		return fmt.Errorf("delete a queue of runs that holds none: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.bounds, queue)
	return nil
}

// SetBounds has the queues of chains hold the bounds of now, also for runs that wait already. It makes those that a run
// is in and that are not there, and deletes those that no chain needs and no run is in.
func (r *Runs) SetBounds(ctx context.Context, chains map[string]*Definition) error {
	at, err := r.readQueues(ctx)
	if err != nil {
		return err
	}
	return r.setBoundsAt(ctx, at, chains)
}

// setBoundsAt is SetBounds after a look. After a deletion it looks again: a run may have been left in the queue since.
func (r *Runs) setBoundsAt(ctx context.Context, at queues, chains map[string]*Definition) error {
	deleted, err := r.applyBounds(ctx, at, chains)
	if err != nil || !deleted {
		return err
	}
	return r.SetBounds(ctx, chains)
}

// openInTables are the statuses of runs that have not ended.
var openInTables = []dbos.WorkflowStatusType{dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusPending, dbos.WorkflowStatusDelayed}

// queues are the queues of runs at a look.
type queues struct {
	bounds map[string]int  // of those that are there; 0 is none
	inUse  map[string]bool // those that a run is in
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

// applyBounds makes, changes and deletes queues as a look found them, and says whether it deleted one.
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

// remakeQueue makes a queue of a chain that is gone for the runs in it: their start was killed before keepQueue, or the
// process that deleted it before its next look.
func (r *Runs) remakeQueue(ctx context.Context, queue string) error {
	list, err := r.listRows(ctx, dbos.WithFilterName(runName), dbos.WithFilterQueueName(queue), dbos.WithFilterStatus(openInTables...), dbos.WithFilterSortDesc(), dbos.WithFilterLimit(1))
	switch {
	case err != nil:
		return fmt.Errorf("read the runs of a queue: %w", err)
	case len(list) == 0: // they have ended meanwhile
		return nil
	}
	return r.makeQueue(ctx, list[0].ID, queue)
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
