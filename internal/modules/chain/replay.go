package chain

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// replay holds the records that a run had when it was taken up. DBOS would read each step in its own
// transaction, which takes seconds for a long loop; replay reads whole pages. Records never change, so
// copies are safe. DBOS handles steps that replay lacks.
type replay struct {
	read   func(offset, limit int) ([]dbos.StepInfo, error)
	known  map[int]dbos.StepInfo // by id; read but not yet used
	offset int
	limit  int
	last   int // the highest id read so far
	whole  bool
}

// Pages with short records are larger, because the tables must skip all earlier records for each page.
const (
	maxPage  = 1000    // records
	longPage = 1 << 20 // bytes above which pages do not grow
)

// newReplay returns a replay of a run that reads its records within ctx.
func (r *Runs) newReplay(ctx context.Context, run string) *replay {
	return &replay{known: map[int]dbos.StepInfo{}, limit: resultPage, last: -1, read: func(offset, limit int) ([]dbos.StepInfo, error) {
		return r.readSteps(ctx, run, offset, limit, true)
	}}
}

// find returns and forgets the record of a step.
func (p *replay) find(id int) (step dbos.StepInfo, ok bool, err error) {
	for !p.whole && p.last < id {
		page, err := p.read(p.offset, p.limit)
		if err != nil {
			return dbos.StepInfo{}, false, err
		}
		bytes := 0
		for _, step := range page {
			text, _ := step.Output.(string)
			bytes += len(text)
			if step.StepID > p.last { // otherwise an earlier step has ended since, and shifted this record to this page
				p.known[step.StepID], p.last = step, step.StepID
			}
		}
		p.offset, p.whole = p.offset+len(page), len(page) < p.limit
		if p.limit = resultPage; bytes < longPage {
			p.limit = maxPage
		}
	}
	step, ok = p.known[id]
	delete(p.known, id)
	return step, ok, nil
}

// replayStep decodes into value what the next step of a run has recorded under name, and advances the step
// counter. It returns false if DBOS must handle the step.
func (x *execution) replayStep(name string, value any) (bool, error) {
	last, err := dbos.GetStepID(x.ctx)
	if err != nil {
		return false, err
	}
	step, ok, err := x.replay.find(last + 1)
	text, isText := step.Output.(string)
	if err != nil || !ok || !isText || step.StepName != name || step.Error != nil || json.Unmarshal([]byte(text), value) != nil {
		return false, errors.Join(err, x.writeKnown())
	}
	x.record.dropKnown()
	_, err = x.ctx.Go(replayedStep{x.ctx}, nil)
	return err == nil, err
}

// replayedStep is the context of a step whose outcome was already read. DBOS numbers the step but does not run it.
type replayedStep struct{ dbos.Context }

func (replayedStep) RunAsStep(dbos.Context, dbos.StepFunc, ...dbos.StepOption) (any, error) {
	return nil, nil
} //nolint:nilnil // nobody receives it

// noteStep returns a value that the interpreter records in its own step, or has already recorded.
func noteStep[T any](x *execution, name string, find func(context.Context) (T, error)) (value T, err error) {
	if known, err := x.replayStep(name, &value); known || err != nil {
		return value, err
	}
	return dbos.RunAsStep(x.ctx, find, dbos.WithStepName(name))
}
