package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/gate"
)

// Calls records the uses of gated tools.
type Calls interface {
	FindCall(ctx context.Context, p engine.Principal, id, key string) (callID string, err error)
	BeginCall(ctx context.Context, p engine.Principal, req engine.CallRequest) (engine.CallResult, error)
	SettleCall(ctx context.Context, p engine.Principal, req engine.SettleRequest) (engine.SettleResult, error)
	SettleOverdue(ctx context.Context) (int, error)
}

// Engine is the part of *engine.Engine that a Decider uses.
type Engine interface {
	gate.Subjects
	Calls
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
	LoadDefinition(ctx context.Context, p engine.Principal, right engine.Right, name string, version int) (store.Definition, *workflow.Definition, error)
	Finish(ctx context.Context, p engine.Principal, req engine.FinishRequest) (engine.FinishResult, error) // decides whether an agent may stop
	AddTranscript(ctx context.Context, p engine.Principal, req engine.TranscriptRequest) (engine.TranscriptResult, error)
}

// Rules is the operator's configuration for hooks.
type Rules struct {
	Gates gate.Config
	Hooks gate.Hooks
	// Transcripts are the sources of evidence that hold what the user said.
	Transcripts []string
}

// IsIdle reports whether hooks have nothing to decide.
func (r Rules) IsIdle() bool {
	return !r.Gates.HasBuiltin() && r.Hooks.Finish == nil && len(r.Transcripts) == 0
}

// DeciderConfig configures a Decider.
type DeciderConfig struct {
	// Rules returns the current rules. It is called for each event, so that a server can replace the rules.
	Rules func() Rules
	// Engine opens the engine. It is called only when something must be decided.
	Engine func(context.Context) (Engine, error)
	// Answered, if not nil, is called with the verdict of each answer.
	OnAnswer func(client string, v Verdict)
	Logger   *slog.Logger
}

// Decider answers the hook events of all clients.
type Decider struct {
	DeciderConfig
	lateUndos sync.WaitGroup // decisions that outlive their request
}

// NewDecider returns a Decider. It does not open the engine.
func NewDecider(cfg DeciderConfig) *Decider { return &Decider{DeciderConfig: cfg} }

// ruleReader is the principal with which the Decider itself reads definitions, because whether a gate applies must
// not depend on what a caller may see.
var ruleReader = engine.Principal{ID: "local:hook", Role: engine.RoleOperator}

const (
	// callTimeout is how long a recorded use may take. It is longer than clients let a command run.
	callTimeout = 15 * time.Minute
	// undoTimeout limits how long it may take to undo a call whose answer came too late.
	undoTimeout = 5 * time.Second
)

// Decide decides about an event of p's agent before ctx ends. It returns no error: undecided events are denied,
// with advice for the agent.
func (d *Decider) Decide(ctx context.Context, p engine.Principal, e Event) Answer {
	began := time.Now()
	a := d.decideInTime(ctx, p, e)
	if a.NeedsTranscript { // this is no answer yet
		return a
	}
	if d.OnAnswer != nil {
		d.OnAnswer(e.Client, a.Verdict)
	}
	d.Logger.InfoContext(ctx, "hook", "client", e.Client, "phase", string(e.Phase), "tool", e.Tool, "verdict", string(a.Verdict), "took", time.Since(began).Round(time.Microsecond))
	return a
}

// Wait waits until all decisions that came too late have been undone.
func (d *Decider) Wait() { d.lateUndos.Wait() }

// decision is one event, and the state of its decision.
type decision struct {
	Event
	decider   *Decider
	rules     Rules
	principal engine.Principal
	engine    Engine
	// unheard is a sentence about why what the user said is not known, or "".
	unheard string
	// undo reverts what was recorded if the answer comes too late; nil if nothing was.
	undo func(context.Context)
}

// decideInTime returns when ctx ends at the latest. If the decision comes later, its effects are undone.
func (d *Decider) decideInTime(ctx context.Context, p engine.Principal, e Event) Answer {
	c := &decision{Event: e, decider: d, principal: p}
	done := make(chan Answer) // unbuffered, so that sending an answer means that it was received
	d.lateUndos.Go(func() {
		a := c.decide(ctx)
		select {
		case done <- a:
		case <-ctx.Done():
			if c.undo != nil {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
				defer cancel()
				c.undo(ctx)
			}
		}
	})
	select {
	case a := <-done:
		return a
	case <-ctx.Done():
		return c.failureAnswer(context.Cause(ctx))
	}
}

// decide returns the answer to the event, even if deciding panics.
func (d *decision) decide(ctx context.Context) (a Answer) {
	defer func() {
		if r := recover(); r != nil {
			d.decider.Logger.ErrorContext(ctx, "a hook crashed; this is a bug in gavel", "client", d.Client, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			a = d.failureAnswer(errors.New("gavel crashed while it decided"))
		}
	}()
	if reason := d.checkSession(); reason != "" {
		return Refuse(d.Event, reason)
	}
	d.rules = d.decider.Rules()
	if d.rules.IsIdle() {
		return Answer{Verdict: Neutral}
	}
	var err error
	switch d.Phase {
	case PhaseStart:
		a, err = d.beginSession(ctx)
	case PhaseBefore:
		a, err = d.beforeUse(ctx)
	case PhaseAfter:
		a, err = d.afterUse(ctx)
	case PhaseStop:
		a, err = d.decideStop(ctx)
	default:
		return Answer{Verdict: Neutral}
	}
	if errors.Is(err, errUnread) {
		return Answer{Verdict: Deny, Reason: "gavel did not get the transcript.", NeedsTranscript: true}
	}
	if err != nil {
		return d.failureAnswer(err)
	}
	a.Verdict = cmp.Or(a.Verdict, Neutral)
	return a
}

// failureAnswer returns the answer for an event that could not be decided.
func (d *decision) failureAnswer(err error) Answer {
	if engine.CodeOf(err) == engine.CodeBusy { // evidence is still being fetched
		return Refuse(d.Event, describeError(err))
	}
	d.decider.Logger.Error("a hook could not be answered", "client", d.Client, "phase", string(d.Phase), "tool", d.Tool, "error", err, "cause", errors.Unwrap(err))
	return Refuse(d.Event, DescribeFailure(d.Client, err))
}

// DescribeFailure returns the text for an agent whose event gavel could not decide.
func DescribeFailure(client string, err error) string {
	return fmt.Sprintf(UndecidedText+" about this, so it is denied: %s Tell the person who runs you; gavel hook doctor %s shows details.", describeError(err), client)
}

// Refuse denies an event, or passes the reason to the agent if the event can no longer be denied. A stop that
// could not be decided is refused only once: the agent then continues and informs its user, and can do no more.
func Refuse(e Event, reason string) Answer {
	switch {
	case e.Phase == PhaseStop && !e.Continued && !e.Subagent:
		return Answer{Verdict: Continue, Reason: reason}
	case e.Phase == PhaseBefore:
		return Answer{Verdict: Deny, Reason: reason}
	default:
		return Answer{Verdict: Neutral, Context: reason}
	}
}

func describeError(err error) string {
	switch known, ok := errors.AsType[*engine.Error](err); {
	case ok:
		return strings.TrimSpace(known.Message + " " + known.Hint)
	case errors.Is(err, context.DeadlineExceeded):
		return "The client's time limit for hooks was exceeded."
	case errors.Is(err, context.Canceled):
		return "gavel was stopped."
	default:
		return EndSentence(err.Error())
	}
}

// EndSentence adds a period to a text that does not end with punctuation.
func EndSentence(text string) string {
	if text = strings.TrimSpace(text); text == "" || strings.ContainsAny(text[len(text)-1:], ".?!") {
		return text
	}
	return text + "."
}

// open opens the engine once.
func (d *decision) open(ctx context.Context) (err error) {
	if d.engine == nil {
		d.engine, err = d.decider.Engine(ctx)
	}
	return err
}

// key returns the idempotency key of a use, or "" if the client has no id for it.
func (d *decision) key() string {
	if d.CallID == "" {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", d.Client, d.Session, d.CallID))
	return "hook:" + hex.EncodeToString(sum[:])
}

// mayUse reports that every tool can be suggested as a next step: an agent may use its own gated tools, and
// those that its client lists.
func mayUse(string) bool { return true }

// explain returns the text of a refusal: the problem, the next step, and what is possible.
func (d *decision) explain(r gate.Refusal, at engine.Position) string {
	text := strings.TrimSpace(r.Message + " " + r.Hint)
	if at.ID == "" {
		return text
	}
	if !strings.Contains(text, at.ID) {
		text += fmt.Sprintf(" The workflow %s (%s) is in %q.", at.Workflow, at.ID, at.State)
	}
	return text + d.describePossible(at.ID, r.Actions, r.Tools)
}

// describePossible describes what the agent can do now and how, or returns "".
func (d *decision) describePossible(id string, actions, tools []string) (text string) {
	if len(actions) > 0 {
		text += fmt.Sprintf(" Possible with workflow.advance (id %s): %s.", id, strings.Join(actions, ", "))
	}
	if len(tools) > 0 {
		var can []string
		for _, tool := range tools {
			can = append(can, d.rules.Gates.Describe(tool))
		}
		text += fmt.Sprintf(" You can now: %s.", strings.Join(can, "; "))
	}
	return text
}
