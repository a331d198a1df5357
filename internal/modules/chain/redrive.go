package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/google/uuid"
)

// Redrive runs a failed run again from the failed step, as a new run, and returns the new id. The id is
// derived from that of the failed run, so that a run is redriven only once. A repeated call returns the
// same id, or an error if that run has failed too.
//
// Steps that ended before the failure keep their outcomes. For a non-repeatable call that may have been
// done, a person is asked before the call is made again.
func (r *Runs) Redrive(ctx context.Context, run, by, why string) (string, error) {
	s, err := r.Get(ctx, run)
	if err != nil {
		return "", err
	}
	if s.Status != StatusFailed || s.Result == nil || s.Result.Err == nil || s.Result.Err.Key == "" {
		return "", fmt.Errorf("the run %s has no failed step to continue from: it is %s", run, s.Status)
	}
	from, err := r.findRestart(ctx, run, s.Result.Err)
	if err != nil {
		return "", err
	}
	id := "run-" + uuid.NewSHA1(uuid.Nil, []byte(run)).String()
	if IsTickRun(run) { // like the original, the new run ends when runAs no longer names its principal
		id = TickRun(run, s.Ended)
	}
	switch again, err := r.Get(ctx, id); {
	case err == nil && again.Status == StatusFailed:
		return "", fmt.Errorf("the run %s repeated %s and failed too; redrive the newer run", id, run)
	case err == nil, !errors.Is(err, ErrUnknownRun):
		return id, err
	}
	c, done := r.within(ctx)
	defer done()
	n := RunNote{By: by, Why: why, At: time.Now().UTC()}
	// Write this before the new run begins: its record names the requester, and it starts with a copy of
	// these attributes.
	err = r.mark(ctx, run, map[string]any{"redriven": redriven{id, n}, attrCancelled: false, attrState: liveState{}})
	if err == nil {
		_, err = dbos.ForkWorkflow[string](c, dbos.ForkWorkflowInput{
			OriginalWorkflowID: run, ForkedWorkflowID: id, StartStep: uint(from), ApplicationVersion: version, QueueName: s.queue.queue, QueuePartitionKey: s.queue.partition,
		})
	}
	if err != nil {
		if _, other := r.Get(ctx, id); other == nil { // a concurrent request has started it
			return id, nil
		}
		return "", fmt.Errorf("run %s again: %w", run, err)
	}
	return id, r.mark(ctx, id, map[string]any{attrNote: n})
}

// namePage is the page size when steps are read without their outputs.
const namePage = 5000

// findRestart returns the first record of a failed run that the new run does not keep. It does not read
// outputs from before the failed step: they may be gigabytes.
func (r *Runs) findRestart(ctx context.Context, run string, failed *StepError) (int, error) {
	begin, p := 0, restart{failed: failed, doubts: map[string]int{}, doneAt: -1, failedAt: -1}
	for {
		names, err := r.readSteps(ctx, run, begin, namePage, false)
		if err != nil {
			return 0, err
		}
		at := slices.IndexFunc(names, func(s dbos.StepInfo) bool {
			_, key, _ := strings.Cut(s.StepName, " ")
			return isWithin(key, failed.Key)
		})
		if at >= 0 {
			begin, p.first = begin+at, names[at].StepID
			break
		}
		if begin += len(names); len(names) < namePage {
			return 0, fmt.Errorf("the run %s failed before the first call of %q, and would fail again; start a new run", run, failed.Step)
		}
	}
	for {
		page, err := r.readSteps(ctx, run, begin, resultPage, true)
		if err != nil {
			return 0, err
		}
		for _, step := range page {
			op, key, _ := strings.Cut(step.StepName, " ")
			p.pass(step.StepID, op, key, r.readOutcome(ctx, step.Output))
		}
		if begin += len(page); len(page) < resultPage {
			break
		}
	}
	from, err := p.find()
	if err != nil {
		return 0, fmt.Errorf("the run %s cannot continue from %q: %w; start a new run", run, failed.Step, err)
	}
	return from, nil
}

// readOutcome decodes a recorded outcome. If it is unreadable, the returned outcome is an error of a call
// that may have been done.
func (r *Runs) readOutcome(ctx context.Context, recorded any) (o Outcome) {
	text, err := r.open(ctx, unquote(recorded))
	if err == nil {
		err = json.Unmarshal([]byte(text), &o)
	}
	if err != nil {
		return Outcome{Err: &StepError{Code: CodeOutput, Message: err.Error(), MayHaveRun: true}}
	}
	return o
}

// restart finds where a failed run continues: at the first record of the failed step, or after the records
// of non-repeatable calls that were or may have been done.
type restart struct {
	failed *StepError
	first  int // the first record of the failed step
	// doubts holds the calls that may have been done, by key. The value is the first record that must be
	// dropped so that a person is asked.
	doubts   map[string]int
	done     string // the last call that was done
	doneAt   int    // its record; -1 if there is none
	failedAt int    // the last record of a failure; -1 for none
}

// pass processes the next record, of the failed step or of a parallel branch. It ignores the run's
// callback, which is called again if the new run fails.
func (p *restart) pass(id int, op, key string, o Outcome) {
	switch within := isWithin(key, p.failed.Key); {
	case !within && strings.HasPrefix(key, callbackPrefix), op == "until": // "until" records hold a time
		return
	case op == "begin":
		p.doubts[key] = id + 1
		return
	case within && o.Err != nil:
		p.failedAt = id
	}
	call := strings.TrimSuffix(key, "!") // an OpAsk record has the key of its call with "!" appended
	if _, may := p.doubts[call]; !may {
		return
	}
	said, _ := o.Value.(map[string]any)
	switch {
	case Op(op) == OpCall && o.Err.isDoubt():
		p.doubts[call] = id
	case Op(op) == OpCall && o.Err == nil, Op(op) == OpAsk && o.Err == nil && said["answer"] == AnswerHappened:
		delete(p.doubts, call)
		p.done, p.doneAt = call, id
	case Op(op) == OpCall, o.Err == nil && said["answer"] == AnswerAgain:
		delete(p.doubts, call)
	}
}

// isDoubt reports whether a call that failed with this error may have been done anyway. A failure that the
// server itself reported leaves no doubt.
func (e *StepError) isDoubt() bool {
	return e != nil && e.MayHaveRun && e.Code != CodeToolError && e.Code != CodeServerError
}

// find returns the first record that the new run does not keep. For a call that may have been done, it
// keeps the "begin" record. That record names another execution, so a person is asked.
func (p *restart) find() (int, error) {
	from := max(p.first, p.doneAt+1)
	beside := ""
	if !isWithin(p.done, p.failed.Key) {
		beside = p.done
	}
	for _, call := range slices.Sorted(maps.Keys(p.doubts)) {
		from = max(from, p.doubts[call])
		if !isWithin(call, p.failed.Key) {
			beside = call
		}
	}
	switch {
	case beside != "" && p.failedAt < from: // records are kept as a prefix, so the failure would be kept too
		return 0, fmt.Errorf("%q, which began later, may have been done, and may not run twice", beside)
	case from > p.doneAt+1 || p.failedAt >= from || p.done == "":
		return from, nil
	case p.failed.Code == CodeOutput && isAttempt(p.done, p.failed.Key): // a person may supply a better output
		return p.doneAt, nil
	}
	return 0, fmt.Errorf("%q was done and may not run twice", p.done)
}

// isAttempt reports whether key is the key of a call made by the step itself.
func isAttempt(key, step string) bool {
	rest, ok := strings.CutPrefix(key, step)
	return ok && (rest == "" || strings.Contains("~+", rest[:1]) && !strings.ContainsAny(rest, "/#:>?!"))
}

// isWithin reports whether a key belongs to a step or to something inside it: an attempt, a branch, an
// iteration, a test, or a handler.
func isWithin(key, step string) bool {
	rest, ok := strings.CutPrefix(key, step)
	return ok && (rest == "" || strings.Contains("/#:~+>?!", rest[:1]))
}

// redriven is an attribute of a failed run. It names the run that redrives it, and who asked for that.
type redriven struct {
	Run  string  `json:"run"`
	Note RunNote `json:"note"`
}

// describeOrigin returns what the record of a run states about the run that it repeats: its id, who asked
// for that, and why.
func (r *Runs) describeOrigin(ctx context.Context, run, original string) (map[string]any, error) {
	w, err := r.findRow(ctx, original)
	if err != nil && !errors.Is(err, ErrUnknownRun) {
		return nil, err
	}
	var again redriven
	decodeAttribute(w, "redriven", &again)
	if again.Run != run {
		return map[string]any{"run": original}, nil
	}
	return map[string]any{"run": original, "by": again.Note.By, "why": again.Note.Why}, nil
}
