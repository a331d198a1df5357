package chain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// RunQuestion is something that a run waits for or is doing.
type RunQuestion struct {
	// Kind is one of the kinds below, or the Op of a command in progress.
	Kind string `json:"kind"`
	// Key is the key for the answer: the name of a signal, or otherwise the key of the step's execution.
	Key  string `json:"key"`
	Step string `json:"step"`
	// Server and Name identify what is or may have been called: a tool, a model or a workflow. Parts that a
	// reference may have filled in are omitted.
	Server string    `json:"server,omitempty"`
	Name   string    `json:"name,omitempty"`
	Since  time.Time `json:"since"`
	// Until is the deadline, or zero if there is none.
	Until time.Time `json:"until,omitzero"`
	// Review is the review that collects the answer.
	Review string `json:"reviewId,omitempty"`
	// Instance is the instance that must reach State.
	Instance string `json:"id,omitempty"`
	State    string `json:"state,omitempty"`
}

// The kinds of things that a run waits for.
const (
	QuestionSignal = "signal"
	QuestionStep   = "step"   // a person's answer about a call that may have run
	QuestionInput  = "input"  // input that a server requires from a person
	QuestionReview = "review" // a person's decision on a move, or on a gated call
	QuestionState  = "state"  // the state of another instance
	QuestionSleep  = "sleep"
)

// isUnderWay reports whether a step is doing something rather than only waiting.
func (q RunQuestion) isUnderWay() bool {
	return slices.Contains([]Op{OpCall, OpComplete, OpTest, OpMove}, Op(q.Kind))
}

// isAboutCall reports whether a person must answer a question about a call, with Runs.Answer.
func (q RunQuestion) isAboutCall() bool { return q.Kind == QuestionStep || q.Kind == QuestionInput }

// isForOthers reports whether someone else must act; such questions are published immediately.
func (q RunQuestion) isForOthers() bool { return q.Kind == QuestionSignal || q.isAboutCall() }

// question is a RunQuestion of a run that executes here.
type question struct {
	RunQuestion
	// checked reports that a check has found that what the run waits for has not happened yet. A run is not
	// suspended before such a check.
	checked bool
}

// newQuestion describes a command in progress.
func newQuestion(c *Command) *question {
	q := &question{RunQuestion: RunQuestion{Kind: string(c.Op), Key: c.Key, Step: c.Step, Server: c.Server, Name: c.Name, Since: time.Now().UTC()}}
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

// showQuestion registers a command as in progress; answered removes it.
func (r *Runs) showQuestion(c *Command) (q *question, answered func()) {
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
		r.queuePublish(under)
	}
	return q, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		under.questions = slices.DeleteFunc(under.questions, func(other *question) bool { return other == q })
		if q.isForOthers() {
			delete(r.awaited, signal)
			r.queuePublish(under)
		}
	}
}

// sinceOf returns when a run began to wait for something, possibly in an earlier execution. The caller must
// hold mu.
func (c *control) sinceOf(q *question) time.Time {
	if c != nil {
		for _, before := range c.before {
			if before.Step == q.Step && before.Key == q.Key {
				return before.Since
			}
		}
	}
	return q.Since
}

// noteReview stores the review that collects a person's answer.
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
			r.queuePublish(under)
		}
	}
}

// showWait publishes that a command waits for something, until over is called.
func (a attempt) showWait(kind string, describe func(q *RunQuestion)) (over func()) {
	if a.runs == nil {
		return func() {}
	}
	a.runs.mu.Lock()
	defer a.runs.mu.Unlock()
	before := a.question.RunQuestion
	a.question.Kind = kind
	describe(&a.question.RunQuestion)
	return func() {
		a.runs.mu.Lock()
		defer a.runs.mu.Unlock()
		a.question.RunQuestion = before
	}
}

// noteCheck records that a check has found that what a command waits for has not happened yet.
func (a attempt) noteCheck() {
	if a.runs != nil {
		a.runs.mu.Lock()
		defer a.runs.mu.Unlock()
		a.question.checked = true
	}
}

// minShown is how long a command is in progress before it is shown: shorter ones cost no write.
const minShown = 250 * time.Millisecond

// listQuestions returns copies of what a run waits for, or has been doing for a while. The caller must hold
// mu.
func (c *control) listQuestions() (out []RunQuestion) {
	for _, q := range c.questions {
		if q.isForOthers() || time.Since(q.Since) >= minShown {
			out = append(out, q.RunQuestion)
		}
	}
	return out
}

// questions returns what the given runs wait for or do, whether they execute here or elsewhere.
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
		if b := readLiveState(w); len(b.Waiting) > 0 {
			out[w.ID] = b.Waiting
		}
	}
	return out, nil
}
