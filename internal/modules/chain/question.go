package chain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// RunQuestion is something that a run waits for, or that is under way in it.
type RunQuestion struct {
	// Kind is one of the kinds below, or of what is under way the Op.
	Kind string `json:"kind"`
	// Key is that of the answer; of a signal it is its name, of all else that of the step's execution.
	Key  string `json:"key"`
	Step string `json:"step"`
	// Server and Name say what is called, or may have been: a tool, a model or a workflow. What a reference
	// may have put there is left out.
	Server string    `json:"server,omitempty"`
	Name   string    `json:"name,omitempty"`
	Since  time.Time `json:"since"`
	// Until is when it ends at the latest, zero for never.
	Until time.Time `json:"until,omitzero"`
	// Review is the review that waits for the answer.
	Review string `json:"reviewId,omitempty"`
	// Instance is waited for until it is in State.
	Instance string `json:"id,omitempty"`
	State    string `json:"state,omitempty"`
}

// The kinds of what a run waits for.
const (
	QuestionSignal = "signal"
	QuestionStep   = "step"   // a person's word on a call that may have run
	QuestionInput  = "input"  // what the server of a call asks a person for
	QuestionReview = "review" // a person's decision of a move, or of a call behind a gate
	QuestionState  = "state"  // of another instance
	QuestionSleep  = "sleep"
)

// isUnderWay reports whether a step does something, and does not only wait.
func (q RunQuestion) isUnderWay() bool {
	return slices.Contains([]Op{OpCall, OpComplete, OpTest, OpMove}, Op(q.Kind))
}

// isAboutCall reports whether a person is asked about a call, with Runs.Answer.
func (q RunQuestion) isAboutCall() bool { return q.Kind == QuestionStep || q.Kind == QuestionInput }

// isForOthers reports whether others have to do something, who are shown it at once.
func (q RunQuestion) isForOthers() bool { return q.Kind == QuestionSignal || q.isAboutCall() }

// newQuestion is what is shown of a command that is under way.
func newQuestion(c *Command) *RunQuestion {
	q := &RunQuestion{Kind: string(c.Op), Key: c.Key, Step: c.Step, Server: c.Server, Name: c.Name, Since: time.Now().UTC()}
	if c.Timeout > 0 {
		q.Until = q.Since.Add(cmp.Or(c.Rest, c.Timeout))
	}
	switch c.Op {
	case OpWait:
		q.Kind, q.Key, q.Name = QuestionSignal, c.Name, ""
	case OpAsk:
		q.Kind = QuestionStep
		if c.Input != nil {
			q.Kind = QuestionInput
		}
	case OpSleep:
		q.Kind = QuestionSleep
	case OpCall:
		if c.Kind != KindTool {
			q.Name = ""
		}
	case OpComplete, OpTest, OpMove:
	}
	return q
}

// ask notes that a command is under way; answered forgets it.
func (r *Runs) ask(c *Command) (q *RunQuestion, answered func()) {
	q, signal := newQuestion(c), c.Run+"/"+c.Key
	r.mu.Lock()
	defer r.mu.Unlock()
	under := r.control[c.Run]
	if under == nil {
		return q, func() {}
	}
	q.Since = under.sinceOf(q)
	under.questions = append(under.questions, q)
	if q.isForOthers() {
		r.awaited[signal] = c.Run
		r.touchBoard(under)
	}
	return q, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		under.questions = slices.DeleteFunc(under.questions, func(other *RunQuestion) bool { return other == q })
		delete(under.looked, q)
		if q.isForOthers() {
			delete(r.awaited, signal)
			r.touchBoard(under)
		}
	}
}

// sinceOf is since when a run has waited for something, also before this execution. The caller holds mu.
func (c *control) sinceOf(q *RunQuestion) time.Time {
	if c != nil {
		for _, before := range c.before {
			if before.Step == q.Step && before.Key == q.Key {
				return before.Since
			}
		}
	}
	return q.Since
}

// noteReview notes the review that waits for a person's answer.
func (r *Runs) noteReview(c Command, review string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	under := r.control[c.Run]
	if under == nil {
		return
	}
	for _, q := range under.questions {
		if q.isAboutCall() && q.Key == c.Key && q.Review != review {
			q.Review = review
			r.touchBoard(under)
		}
	}
}

// Show implements Waiter.
func (r *Runs) Show(ctx context.Context, c Command) (shown context.Context, over func()) {
	q, over := r.ask(&c)
	ctx = context.WithValue(ctx, lookKey{}, func() { r.noteLook(c.Run, q) })
	return context.WithValue(ctx, waitKey{}, func(now RunQuestion) (before RunQuestion) {
		r.mu.Lock()
		defer r.mu.Unlock()
		before, *q = *q, now
		return before
	}), over
}

// waitKey is the key of what a context has to show what a step waits for.
type waitKey struct{}

// showWait shows that what is done in a context waits for something, until over is called.
func showWait(ctx context.Context, kind string, describe func(q *RunQuestion)) (over func()) {
	show, ok := ctx.Value(waitKey{}).(func(RunQuestion) RunQuestion)
	if !ok {
		return func() {}
	}
	q := show(RunQuestion{})
	before := q
	q.Kind = kind
	describe(&q)
	show(q)
	return func() { show(before) }
}

// lookKey is the key of what a context has to note that what is waited for was looked for.
type lookKey struct{}

func noteLook(ctx context.Context) {
	if note, ok := ctx.Value(lookKey{}).(func()); ok {
		note()
	}
}

// noteLook notes that what a run waits for was looked for, and is not there. Before that it is not suspended.
func (r *Runs) noteLook(run string, q *RunQuestion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if under := r.control[run]; under != nil {
		under.looked[q] = true
	}
}

// leastShown is how long something is under way before it is shown: what is shorter costs no write.
const leastShown = 250 * time.Millisecond

// listQuestions are copies of what a run waits for, or has been doing for a while. The caller holds mu.
func (c *control) listQuestions() (out []RunQuestion) {
	for _, q := range c.questions {
		if q.isForOthers() || time.Since(q.Since) >= leastShown {
			out = append(out, *q)
		}
	}
	return out
}

// questions are what some runs wait for, or do, by run: those that execute here, and elsewhere.
func (r *Runs) questions(ctx context.Context, runs ...string) (map[string][]RunQuestion, error) {
	out, others := map[string][]RunQuestion{}, []string{}
	r.mu.Lock()
	for _, run := range runs {
		if c := r.control[run]; c != nil {
			out[run] = c.listQuestions()
		} else {
			others = append(others, run)
		}
	}
	r.mu.Unlock()
	if len(others) == 0 {
		return out, nil
	}
	list, err := r.listRows(ctx, dbos.WithFilterWorkflowIDs(others...))
	if err != nil {
		return nil, fmt.Errorf("read what runs wait for: %w", err)
	}
	for _, w := range list {
		if b := readBoard(w); len(b.Waiting) > 0 {
			out[w.ID] = b.Waiting
		}
	}
	return out, nil
}
