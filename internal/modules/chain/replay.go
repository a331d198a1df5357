package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// replay is what a run had recorded when it was taken up. DBOS asks for each of its steps in a transaction
// of its own, which takes seconds for a long loop; replay reads them a page at a time. What is recorded
// never changes, so that a copy is as good. What it does not have, DBOS is asked for.
type replay struct {
	read   func(offset, limit int) ([]dbos.StepInfo, error)
	known  map[int]dbos.StepInfo // by id; those that were read and not taken
	offset int
	limit  int
	last   int // the last id that was read
	whole  bool
}

// Pages of short records have more of them: the tables count off those before a page each time.
const (
	maxPage  = 1000    // records
	longPage = 1 << 20 // bytes, behind which pages do not grow
)

// newReplay reads the records of a run in ctx.
func (r *Runs) newReplay(ctx context.Context, run string) *replay {
	return &replay{known: map[int]dbos.StepInfo{}, limit: resultsAtOnce, last: -1, read: func(offset, limit int) ([]dbos.StepInfo, error) {
		c, done := r.within(ctx)
		defer done()
		return dbos.GetWorkflowSteps(c, run, dbos.WithStepsLoadOutput(true), dbos.WithStepsOffset(offset), dbos.WithStepsLimit(limit))
	}}
}

// find returns the record of a step, and keeps it no longer.
func (p *replay) find(id int) (step dbos.StepInfo, ok bool, err error) {
	for !p.whole && p.last < id {
		page, err := p.read(p.offset, p.limit)
		if err != nil {
			return dbos.StepInfo{}, false, fmt.Errorf("read what the run has recorded: %w", err)
		}
		bytes := 0
		for _, step := range page {
			text, _ := step.Output.(string)
			bytes += len(text)
			if step.StepID > p.last { // an earlier one has ended since, and moved it into this page
				p.known[step.StepID], p.last = step, step.StepID
			}
		}
		p.offset, p.whole = p.offset+len(page), len(page) < p.limit
		if p.limit = resultsAtOnce; bytes < longPage {
			p.limit = maxPage
		}
	}
	step, ok = p.known[id]
	delete(p.known, id)
	return step, ok, nil
}

// take decodes into value what the next step of a run has recorded under a name, and counts the step. It
// returns false where DBOS has to run it, or knows better.
func (x *execution) take(name string, value any) (bool, error) {
	last, err := dbos.GetStepID(x.ctx)
	if err != nil {
		return false, err
	}
	step, ok, err := x.replay.find(last + 1)
	text, isText := step.Output.(string)
	if err != nil || !ok || !isText || step.StepName != name || step.Error != nil || json.Unmarshal([]byte(text), value) != nil {
		return false, errors.Join(err, x.writeKnown())
	}
	x.record.hasKnown()
	_, err = x.ctx.Go(taken{x.ctx}, nil)
	return err == nil, err
}

// taken is the context of a step whose outcome was read: DBOS numbers the step, and does not run it.
type taken struct{ dbos.Context }

func (taken) RunAsStep(dbos.Context, dbos.StepFunc, ...dbos.StepOption) (any, error) { return nil, nil } //nolint:nilnil // nobody receives it

// noteStep returns what the interpreter itself notes in a step, or has noted.
func noteStep[T any](x *execution, name string, find func(context.Context) (T, error)) (value T, err error) {
	if known, err := x.take(name, &value); known || err != nil {
		return value, err
	}
	return dbos.RunAsStep(x.ctx, find, dbos.WithStepName(name))
}
