package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/values"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// recorder is the principal that records runs.
const recorder = "gavel:chains"

func init() { engine.AddRecorder(recorder, WorkflowPrefix) }

// NewLedger returns a Ledger that records runs with an engine.
func NewLedger(e *engine.Engine) *engine.Recorder { return e.Recorder(recorder) }

// Ledger records each run as an instance; *engine.Recorder implements it.
type Ledger interface {
	BeginRun(ctx context.Context, p engine.Principal, req engine.RunRequest) error
	RecordStep(ctx context.Context, req engine.StepRecord) error
	AskStep(ctx context.Context, q engine.StepQuestion) (review string, a *engine.StepAnswer, err error)
	callRecorder
	DigestStep(owner, workflow string, output []byte) string
	ListOpenRuns(ctx context.Context) ([]string, error)
	Values() *values.Keyring
	Watcher
}

const (
	// maxRecorded is the maximum size of a recorded input or output, in bytes. Longer ones are recorded as
	// digests.
	maxRecorded = 4 << 10
	// maxWaiting is the maximum size of the recorded description of everything a run waits for, in bytes.
	maxWaiting = 32 << 10
	// maxRecordKey is the maximum length of a record's key.
	maxRecordKey = 200
)

// The actions in the record of a run.
const (
	actionStep     = "step"
	actionWait     = "wait"     // waits for a signal or a person
	actionContinue = "continue" // the awaited value has arrived
	actionNote     = "note"     // the run was paused, resumed or signalled
	actionAnswer   = "answer"   // a person stated what happened to a call
	actionFinish   = "finish"
	actionFail     = "fail"
	actionCancel   = "cancel"
)

// Workflow returns the workflow definition of the instances that record the chain's runs.
func (d *Definition) Workflow() (*workflow.Definition, error) {
	moves := func(targets map[string]string) map[string]any {
		out := map[string]any{}
		for action, state := range targets {
			out[action] = map[string]any{"target": state, "roles": []string{workflow.RoleInterpreter}}
		}
		return map[string]any{"transitions": out}
	}
	final := func(outcome string) map[string]any { return map[string]any{"final": true, "outcome": outcome} }
	doc := map[string]any{
		"name": WorkflowPrefix + d.Name, "description": d.Description, "tags": map[string]any{"chain": d.Hash}, "initialState": "running",
		"states": map[string]any{
			"running": moves(map[string]string{
				actionStep: "running", actionNote: "running", actionAnswer: "running", actionWait: "waiting",
				actionFinish: "done", actionFail: "failed", actionCancel: "cancelled",
			}),
			"waiting": moves(map[string]string{
				actionStep: "waiting", actionNote: "waiting", actionAnswer: "waiting", actionWait: "waiting", actionContinue: "running",
				actionFail: "failed", actionCancel: "cancelled",
			}),
			"done": final("success"), "failed": final("failure"), "cancelled": final("cancelled"),
		},
	}
	if len(d.Sensitive) > 0 {
		doc["sensitive"] = d.Sensitive
	}
	raw, err := document.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return workflow.Parse("chain.json", raw)
}

// runRecord is the record of one run, as used by its execution. Without a ledger it writes nothing, but
// still tracks the sensitive values.
type runRecord struct {
	ledger     Ledger // may be nil
	run        string
	principal  engine.Principal
	actsFor    string // the principal whose rights the steps use, or "" for principal
	definition *workflow.Definition
	logger     *slog.Logger
	// origin describes the run that this one retries, and who asked for that; nil if it is not a retry.
	origin map[string]any
	// waiting holds what the run waits for, by key.
	waiting map[string]any
	// secrets are the documents whose sensitive values must not appear in any text.
	secrets []json.RawMessage
	scrub   func(string) string
	// fence returns the context for a write to the store, or an error if the execution may not write now.
	fence func(context.Context) (context.Context, error)
	// known holds the entries of outcomes that an earlier execution recorded in DBOS. The store may not have
	// them yet.
	known []recordEntry
}

// recordEntry is one entry of a record.
type recordEntry struct {
	key, action string
	data        json.RawMessage
}

// beginRecord creates the record of a new run, so that the caller that starts the run sees a rejection by
// the store. A temporary error is ignored: the run itself waits for the store.
func (r *Runs) beginRecord(ctx context.Context, run string, req StartRequest, input map[string]any) error {
	l, err := r.newRecord(run, req.Principal, req.Definition)
	if err != nil {
		return err
	}
	l.actsFor = actorID(req.ActsFor)
	switch err = l.open(ctx, req.Definition, input); {
	case err == nil || isTemporary(err):
		return nil
	case isCode(err, engine.CodeKeyReused): // another request already used the id
		return err
	}
	return errors.Join(err, r.recordRejected(run, err))
}

// openRecord creates the record of a run unless it exists.
func (r *Runs) openRecord(x *execution, d *Definition, input map[string]any) (*runRecord, error) {
	l, err := r.newRecord(x.run, x.principal, d)
	if err != nil {
		return nil, err
	}
	if x.redrives != "" {
		if l.origin, err = r.describeOrigin(x.stopped, x.run, x.redrives); err != nil {
			return nil, err
		}
	}
	l.fence, l.actsFor = x.fence, actorID(x.actsFor)
	return l, l.persist(x.stopped, func(ctx context.Context) error { return l.open(ctx, d, input) })
}

func (r *Runs) newRecord(run string, p engine.Principal, d *Definition) (*runRecord, error) {
	w, err := r.findWorkflow(d)
	if err != nil {
		return nil, fmt.Errorf("the workflow of the chain %q: %w", d.Name, err)
	}
	l := &runRecord{ledger: r.config.Ledger, run: run, principal: p, definition: w, waiting: map[string]any{}, scrub: func(text string) string { return text }}
	l.fence = func(ctx context.Context) (context.Context, error) { return ctx, nil }
	l.logger = r.config.Logger.With("run", run)
	return l, nil
}

// maxWorkflows limits the cached workflows of chains.
const maxWorkflows = 100

// findWorkflow returns the workflow of a chain from a cache. The runs share it, because each copy takes
// some 20 KiB.
func (r *Runs) findWorkflow(d *Definition) (*workflow.Definition, error) {
	r.mu.Lock()
	known := r.workflows[d.Hash]
	r.mu.Unlock()
	if known != nil {
		return known, nil
	}
	made, err := d.Workflow()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.workflows) >= maxWorkflows {
		clear(r.workflows)
	}
	r.workflows[d.Hash] = made
	return made, nil
}

func (l *runRecord) open(ctx context.Context, d *Definition, input map[string]any) error {
	l.learn(map[string]any{"input": input})
	begun := map[string]any{"chain": d.Name, "run": l.run, "input": l.shorten(input)}
	if l.actsFor != "" {
		begun["actsFor"] = l.actsFor
	}
	if l.origin != nil {
		begun["redrives"] = l.shorten(l.origin)
	}
	if l.ledger == nil {
		l.learn(begun)
		return nil
	}
	return l.ledger.BeginRun(ctx, l.principal, engine.RunRequest{
		Run: l.run, Definition: l.definition.Document, Workflow: l.definition.Name, Context: l.prepare(begun),
	})
}

// isTemporary reports whether the store may accept the same request later.
func isTemporary(err error) bool {
	return slices.Contains([]engine.Code{engine.CodeUnavailable, engine.CodeBusy, engine.CodeInternal, engine.CodeCancelled, engine.CodeUntrustedRules}, engine.CodeOf(err))
}

// persist retries do until the store accepts it: a run must not continue without its record. It returns an
// error only if ctx ends or retrying cannot help.
func (l *runRecord) persist(ctx context.Context, do func(context.Context) error) error {
	const longest = 5 * time.Second
	for wait := 50 * time.Millisecond; ; wait = min(wait*2, longest) {
		fenced, err := l.fence(ctx)
		if err == nil {
			err = do(fenced)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !isTemporary(err):
			return fmt.Errorf("the store rejects the record of the run: %w", err)
		}
		l.logger.WarnContext(ctx, "a run waits because its record cannot be written", "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (l *runRecord) write(ctx context.Context, key, action string, data map[string]any) error {
	if l.ledger == nil {
		l.learn(data)
		return nil
	}
	if err := l.writeKnown(ctx); err != nil {
		return err
	}
	return l.put(ctx, recordEntry{digestLong(key, maxRecordKey), action, l.prepare(data)})
}

func (l *runRecord) put(ctx context.Context, w recordEntry) error {
	return l.persist(ctx, func(ctx context.Context) error {
		return l.ledger.RecordStep(ctx, engine.StepRecord{Run: l.run, Key: w.key, Action: w.action, Data: w.data})
	})
}

// writeKnown writes the known entries, which the store may not have yet.
func (l *runRecord) writeKnown(ctx context.Context) error {
	for _, w := range l.known {
		if err := l.put(ctx, w); err != nil {
			return err
		}
	}
	l.known = nil
	return nil
}

// maxKnown limits the number of known entries that are not written yet.
const maxKnown = 1000

// writeKnown writes the known entries of the record. It ends the run if the store rejects them.
func (x *execution) writeKnown() error { return x.cancelRejected(x.record.writeKnown(x.stopped)) }

// dropKnown discards the known entries. It is called when a recorded step is found that began after all
// these commands had ended, so the store already has their entries.
func (l *runRecord) dropKnown() {
	if l.origin == nil { // a redriven run copies steps that the store has only for the original run
		l.known = nil
	}
}

// isRecorded reports whether the outcome of a command is part of the record.
func isRecorded(c Command) bool {
	return slices.Contains([]Op{OpCall, OpComplete, OpMove, OpWait, OpAsk}, c.Op)
}

// begin records that a run waits, if the command is a wait.
func (l *runRecord) begin(ctx context.Context, c Command) error {
	if c.Op != OpWait && c.Op != OpAsk {
		return nil
	}
	what := map[string]any{"step": c.Step, "for": "signal", "name": c.Name}
	if c.Op == OpAsk {
		what = map[string]any{"step": c.Step, "for": "person", "server": c.Server, "name": c.Name, "arguments": l.shorten(c.Arguments)}
		if c.Input != nil {
			what["requests"] = l.shorten(c.Input.Requests)
		}
	}
	l.waiting[c.Key] = what
	return l.write(ctx, "wait "+c.Key, actionWait, map[string]any{"waiting": l.describeWaiting()})
}

// end records the outcome of a command. known reports that the outcome was already recorded when the run
// was taken up.
func (l *runRecord) end(ctx context.Context, c Command, o Outcome, known bool) error {
	if !isRecorded(c) {
		return nil
	}
	what := map[string]any{"key": c.Key, "op": string(c.Op), "status": "done"}
	switch {
	case o.Err != nil && o.Err.Code == CodeInput && o.Value != nil:
		what["status"] = "asked"
	case o.Err != nil:
		what["status"], what["error"] = "failed", l.describeError(o.Err)
	case c.Op != OpAsk: // the answer to an OpAsk is already recorded
		what["output"] = l.shorten(o.Value)
		l.learn(map[string]any{"steps": map[string]any{c.Step: map[string]any{"output": o.Value}}})
	}
	data, action := map[string]any{"steps": map[string]any{c.Step: what}}, actionStep
	if _, waited := l.waiting[c.Key]; waited {
		delete(l.waiting, c.Key)
		data["waiting"] = l.describeWaiting()
		if len(l.waiting) == 0 {
			action, data["waiting"] = actionContinue, nil
		}
	}
	if known && l.ledger != nil && len(l.known) < maxKnown {
		l.known = append(l.known, recordEntry{digestLong("step "+c.Key, maxRecordKey), action, l.prepare(data)})
		return nil
	}
	return l.write(ctx, "step "+c.Key, action, data)
}

// finish records how the run ended.
func (l *runRecord) finish(ctx context.Context, result *Result) error {
	l.learn(map[string]any{"output": result.Output})
	data, action := map[string]any{"output": l.shorten(result.Output)}, actionFinish
	if result.Err != nil {
		action, data["error"] = actionFail, l.describeError(result.Err)
	}
	return l.write(ctx, "end", action, data)
}

func (l *runRecord) describeError(e *StepError) map[string]any {
	message := script.Clean(l.scrub(e.Message), maxRecorded)
	if !isRecordable(message) {
		message = strconv.Quote(message)
	}
	return map[string]any{"code": e.Code, "message": message, "step": e.Step}
}

// shorten returns a value as it is recorded. A value that is too long, or that an instance may not hold, is
// replaced by its digest and size.
func (l *runRecord) shorten(value any) any {
	if l.ledger == nil {
		return value
	}
	raw, err := document.Marshal(value)
	if err != nil || len(raw) <= maxRecorded && isRecordable(value) {
		return value
	}
	return l.digest(value)
}

// digest replaces a value by its digest and size.
func (l *runRecord) digest(value any) any {
	raw, err := document.Marshal(value)
	if err != nil || l.ledger == nil {
		return value
	}
	return map[string]any{"digest": l.ledger.DigestStep(l.principal.ID, l.definition.Name, raw), "bytes": len(raw)}
}

// isRecordable reports whether an instance may hold a value at the depth that a record uses.
func isRecordable(value any) bool {
	raw, err := document.Marshal(map[string]any{"steps": map[string]any{"id": map[string]any{"output": value}}})
	if err == nil {
		_, err = workflow.ReadDocument(raw)
	}
	return err == nil
}

// describeWaiting returns what the run waits for as it is recorded: its digest if it is too long.
func (l *runRecord) describeWaiting() any {
	if raw, err := document.Marshal(l.waiting); err == nil && len(raw) > maxWaiting {
		return l.digest(l.waiting)
	}
	return maps.Clone(l.waiting)
}

// learn remembers the sensitive values in a document.
func (l *runRecord) learn(doc any) {
	if len(l.definition.Sensitive) == 0 {
		return
	}
	raw, err := document.Marshal(doc)
	if err != nil {
		return
	}
	if masked, err := l.definition.Mask(raw, nil); err == nil && string(masked) != string(raw) {
		l.secrets = append(l.secrets, raw)
		l.scrub = l.definition.Scrubber(l.secrets...)
	}
}

// prepare returns data as it is recorded. Sensitive values remain in their declared places, for the store
// to seal, and are masked everywhere else.
func (l *runRecord) prepare(data map[string]any) json.RawMessage {
	l.learn(data)
	raw, err := document.Marshal(data)
	if err != nil || len(l.secrets) == 0 {
		return raw
	}
	var kept []json.RawMessage
	const placeholder = "\u0000gavel:"
	masked, err := l.definition.Mask(raw, func(_ string, value json.RawMessage) string {
		kept = append(kept, slices.Clone(value))
		return placeholder + strconv.Itoa(len(kept)-1)
	})
	if err != nil {
		return raw
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case string:
			if n, err := strconv.Atoi(strings.TrimPrefix(v, placeholder)); err == nil && strings.HasPrefix(v, placeholder) && n < len(kept) {
				return kept[n]
			}
			return l.scrub(v)
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			out := map[string]any{}
			for name, member := range v {
				out[l.scrub(name)] = walk(member)
			}
			return out
		}
		return v
	}
	scrubbed, err := document.Marshal(walk(decodeJSON(masked)))
	if err != nil {
		return masked
	}
	return scrubbed
}

// maskAll masks sensitive values in every text of a value.
func (l *runRecord) maskAll(value any) any {
	if len(l.secrets) == 0 {
		return value
	}
	return mapValues(value, func(v any) any {
		if text, ok := v.(string); ok {
			return l.scrub(text)
		}
		return v
	})
}

// maskError masks sensitive values in an error; nil stays nil.
func (l *runRecord) maskError(e *StepError) *StepError {
	if e == nil {
		return nil
	}
	masked := *e
	masked.Message = l.scrub(e.Message)
	return &masked
}

// findReviewAnswer asks a person what happened to a call, and returns the answer once there is one.
func (r *Runs) findReviewAnswer(ctx context.Context, c Command) (Outcome, bool) {
	arguments, err := document.Marshal(c.Arguments)
	if err != nil {
		arguments = nil
	}
	review, a, err := r.config.Ledger.AskStep(ctx, engine.StepQuestion{
		Run: c.Run, Key: c.Key, Step: c.Step, Principal: c.Principal, Server: c.Server, Tool: c.Name, Arguments: arguments, Input: c.Input != nil,
	})
	switch {
	case err != nil:
		if ctx.Err() == nil {
			r.config.Logger.WarnContext(ctx, "a run waits because the question to a person cannot be stored", "run", c.Run, "error", err)
		}
		return Outcome{}, false
	case a == nil:
		r.noteReview(c, review)
		return Outcome{}, false
	}
	said := map[string]any{"answer": AnswerGiveUp}
	for answer, decision := range decisions {
		if decision == a.Decision {
			said["answer"] = answer
		}
	}
	if len(a.Output) > 0 {
		said["output"] = decodeJSON(a.Output)
	}
	return Outcome{Value: said}, true
}

// recordNote records in the store who did what to a run, and why.
func (r *Runs) recordNote(ctx context.Context, run, key, action string, n RunNote, what map[string]any) error {
	if r.config.Ledger == nil {
		return nil
	}
	what["by"] = n.By
	if n.Why != "" {
		what["why"] = n.Why
	}
	raw, err := document.Marshal(map[string]any{"note": what})
	if err != nil {
		return err
	}
	why := fmt.Sprintf("The run was cancelled %s", n)
	if n.Why == "" {
		why += "."
	}
	err = r.config.Ledger.RecordStep(ctx, engine.StepRecord{Run: run, Key: key, Action: action, Data: raw, Why: why})
	if engine.CodeOf(err) == engine.CodeInstanceEnded {
		return nil // the run notices that its record has ended
	}
	return err
}

// cancelRejected ends a run whose record the store rejects.
func (x *execution) cancelRejected(err error) error {
	if _, refused := errors.AsType[*engine.Error](err); refused && x.stopped.Err() == nil {
		return errors.Join(err, x.recordRejected(x.run, err))
	}
	return err
}

// isUnreadable reports whether a run cannot be read or interpreted as it was recorded.
func isUnreadable(err error) bool {
	return isLost(err) || errors.Is(err, &dbos.Error{Code: dbos.ErrorCodeUnexpectedStep}) || errors.Is(err, &dbos.Error{Code: dbos.ErrorCodeUnexpectedWorkflow})
}

// recordLost records that a run ends because it cannot be interpreted, and returns why. The run gets no
// other final record: DBOS does not run it again.
func (r *Runs) recordLost(ctx context.Context, s *session, run string, why error) error {
	if r.config.Ledger == nil {
		return why
	}
	raw, err := document.Marshal(map[string]any{"error": map[string]any{"code": CodeRun, "message": script.Clean(why.Error(), maxRecorded)}})
	if err != nil {
		return errors.Join(why, err)
	}
	l := &runRecord{ledger: r.config.Ledger, run: run, logger: r.config.Logger.With("run", run), fence: (&execution{session: s}).fence}
	err = l.persist(ctx, func(ctx context.Context) error {
		if err := r.cancelEntry(ctx, run); err != nil {
			return err
		}
		return l.ledger.RecordStep(ctx, engine.StepRecord{Run: run, Key: "end", Action: actionFail, Data: raw})
	})
	if ctx.Err() != nil {
		return ctx.Err() // another session does it
	}
	if err != nil && !isCode(err, engine.CodeInstanceEnded) {
		r.config.Logger.WarnContext(ctx, "cannot end the record of a run that cannot be interpreted", "run", run, "error", err)
	}
	return why
}

// recordRejected cancels a run whose record the store rejects, and notes why.
func (r *Runs) recordRejected(run string, err error) error {
	why := err.Error()
	if e, ok := errors.AsType[*engine.Error](err); ok {
		why = e.Message
	}
	n := RunNote{By: "gavel", Why: script.Clean("the store rejects its record: "+why+" Its last call may have been made: check it, then start a new run.", maxRecorded), At: time.Now().UTC()}
	r.config.Logger.Warn("cancelled a run because the store rejects its record", "run", run, "error", err)
	if err := r.cancelEntry(context.Background(), run); err != nil {
		r.config.Logger.Warn("cannot report the end of a run to the state that started it", "run", run, "error", err)
	}
	if !isCode(err, engine.CodeKeyReused) { // in that case the record belongs to another run
		if err := r.recordNote(context.Background(), run, "end", actionCancel, n, map[string]any{"did": "cancel"}); err != nil && !isCode(err, engine.CodeUnknownInstance) {
			r.config.Logger.Warn("cannot end the record of a cancelled run", "run", run, "error", err)
		}
	}
	return r.cancelRow(context.Background(), run, n)
}

// instance returns the id of the instance that records a run, or "" without a ledger.
func (r *Runs) instance(run string) string {
	if r.config.Ledger == nil {
		return ""
	}
	return engine.RunInstance(run)
}
