package chain

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

// Keys of the run's callback begin with callbackPrefix. No step has the id callbackID.
const (
	callbackID     = "on_error"
	callbackPrefix = callbackID + "!"
)

// runChain is the first task: it runs the steps, and the run's callback if they fail.
func (m *Machine) runChain(t *task) {
	err := m.runTop(t)
	if err != nil && err.Code == codeStopped {
		err = nil
	}
	if h := m.definition.OnError; err != nil && h != nil {
		if s := m.definition.steps[h.Step]; s != nil {
			_, failed := m.runStep(t, &scope{parent: m.top, outputs: m.top.outputs, failure: err}, s, h.Arguments, callbackPrefix)
			if failed != nil && failed.Code != codeStopped {
				err.Message += fmt.Sprintf("; the callback %q also failed: %s", s.ID, failed.Message)
			}
		}
	}
	m.result = &Result{Output: m.variables["output"], Saved: m.variables["saved"], Err: err}
}

// codeStopped ends a run as done because a handler requested it. It never leaves the machine.
const codeStopped = "stopped"

// runTop runs the top-level steps. A conditional is decided once the steps in its condition have ended. A
// conditional without step references, or with a script, is decided at the end.
func (m *Machine) runTop(t *task) *StepError {
	for _, s := range m.definition.Steps {
		if s.Named {
			continue
		}
		if _, err := m.runStep(t, m.top, s, nil, ""); err != nil {
			return err
		}
		m.ended[s] = true
		if err := m.decide(t, false); err != nil {
			return err
		}
	}
	return m.decide(t, true)
}

// decide runs the conditionals that are ready.
func (m *Machine) decide(t *task, atEnd bool) *StepError {
	for again := true; again; {
		again = false
		for _, c := range m.definition.Conditionals {
			if m.decided[c] || !m.definition.canDecide(c, m.ended, atEnd) {
				continue
			}
			m.decided[c], again = true, true
			if err := m.runConditional(t, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Definition) canDecide(c *Conditional, ended map[*Step]bool, atEnd bool) bool {
	named, over := 0, 0
	c.Condition.visit(func(r reference) {
		if s := d.stepOf(r); s != nil {
			named++
			if ended[s.top()] {
				over++
			}
		}
	})
	return named > 0 && over == named || named == 0 && atEnd
}

func (m *Machine) runConditional(t *task, c *Conditional) *StepError {
	holds, err := m.test(t, m.top, nil, c.Condition, "if:"+c.Name)
	if err != nil {
		err.Message = fmt.Sprintf("the conditional %q: %s", c.Name, err.Message)
		return err
	}
	branch := c.IfFalse
	if holds {
		branch = c.IfTrue
	}
	for _, id := range branch {
		s := m.definition.steps[id]
		if s == nil || m.ended[s] {
			continue // a step runs once, even if several conditionals name it
		}
		if _, err := m.runStep(t, m.top, s, nil, "if:"+c.Name+"/"); err != nil {
			return err
		}
		m.ended[s] = true
	}
	return nil
}

// test evaluates a condition.
func (m *Machine) test(t *task, sc *scope, s *Step, c *Condition, key string) (bool, *StepError) {
	if c.Script == "" {
		holds, err := c.evaluate(m.lookup(sc, s))
		if err != nil {
			return false, &StepError{Code: CodeCondition, Message: err.Error(), Final: true}
		}
		return holds, nil
	}
	id := ""
	if s != nil {
		id = s.ID
	}
	o := t.perform(Command{Op: OpTest, Key: key + "?", Step: id, Source: c.Script, Arguments: m.describe(sc), Repeatable: true})
	holds, _ := o.Value.(bool)
	return holds, o.Err
}

// runSequence runs steps in order and returns the output of the last.
func (m *Machine) runSequence(t *task, sc *scope, steps []*Step, prefix string) (last any, err *StepError) {
	for _, s := range steps {
		if s.Named {
			continue
		}
		if last, err = m.runStep(t, sc, s, nil, prefix); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// runStep runs a step with its attempts and handlers. If not nil, arguments replaces the step's own.
func (m *Machine) runStep(t *task, sc *scope, s *Step, arguments template, prefix string) (any, *StepError) {
	key := prefix + s.ID
	if err := m.pass(s, key); err != nil {
		return nil, err
	}
	m.report(Progress{Key: key, Step: s.ID, Kind: s.Kind, Event: "started"})
	output, err := m.runAttempts(t, sc, s, arguments, key)
	stops := false
	if err != nil && err.Code != CodeGivenUp && err.Code != codeStopped {
		output, stops, err = m.handle(t, sc, s, err, key)
	}
	if err != nil {
		m.report(Progress{Key: key, Step: s.ID, Kind: s.Kind, Event: "failed", Err: err})
		return nil, err
	}
	sc.outputs[s.ID] = output
	if s.Named && s.parent == nil {
		m.ended[s] = true
	}
	m.save(s.SaveOutputTo, output)
	m.report(Progress{Key: key, Step: s.ID, Kind: s.Kind, Event: "done"})
	if stops {
		return nil, &StepError{Code: codeStopped, Final: true}
	}
	return output, nil
}

// maxJoined limits the message of a failure combined with those of its handlers, in bytes. Without a limit,
// it could double with each handler that has two handlers of its own.
const maxJoined = 16 << 10

// handle runs the handlers of a failed step until one succeeds; its output becomes the output of the step.
// stops reports that the run then ends as done.
func (m *Machine) handle(t *task, sc *scope, s *Step, err *StepError, key string) (output any, stops bool, _ *StepError) {
	for _, h := range s.handlers() {
		handler := m.definition.steps[h.Step]
		if handler == nil {
			continue
		}
		m.report(Progress{Key: key, Step: s.ID, Kind: s.Kind, Event: "handled", Err: err})
		output, failed := m.runStep(t, &scope{parent: sc, outputs: sc.outputs, failure: err}, handler, h.Arguments, key+"!")
		if failed == nil {
			return output, h.Stops, nil
		}
		if failed.Code == CodeGivenUp || failed.Code == codeStopped {
			return nil, false, failed
		}
		joined := *err
		joined.Message = fmt.Sprintf("%s; its handler %q also failed", err.Message, handler.ID)
		if len(joined.Message)+len(failed.Message) < maxJoined {
			joined.Message += ": " + failed.Message
		}
		err = &joined
	}
	return nil, false, err
}

func (m *Machine) runAttempts(t *task, sc *scope, s *Step, arguments template, key string) (any, *StepError) {
	most := 1
	if s.Retry != nil {
		most = s.Retry.MaxAttempts
	}
	for attempt := 1; ; attempt++ {
		attemptKey := key
		if attempt > 1 {
			attemptKey += "~" + strconv.Itoa(attempt)
		}
		output, err := m.runOnce(t, sc, s, arguments, attemptKey)
		if err == nil {
			err = checkOutput(s, output)
		}
		if err == nil {
			return output, nil
		}
		if err.Step == "" {
			err.Step, err.Key = s.ID, key
		}
		answered := err.Code == CodeToolError || err.Code == CodeServerError
		if attempt >= most || err.Final || err.MayHaveRun && !answered && !m.isRepeatable(s) {
			return nil, err
		}
		m.report(Progress{Key: key, Step: s.ID, Kind: s.Kind, Event: "retrying", Err: err, Attempt: attempt + 1})
		if wait := s.Retry.delayBefore(attempt+1, m.options.Run+"/"+key); wait > 0 {
			t.perform(Command{Op: OpSleep, Key: attemptKey + ".", Step: s.ID, Timeout: wait, Repeatable: true})
		}
	}
}

// maxDelay caps the delay between attempts.
const maxDelay = time.Hour

// delayBefore returns the delay before an attempt, with 10% jitter derived from seed.
func (r *Retry) delayBefore(attempt int, seed string) time.Duration {
	delay := r.Delay
	switch r.Backoff {
	case "linear":
		delay *= time.Duration(attempt - 1)
	case "exponential":
		delay <<= attempt - 2
		if delay>>(attempt-2) != r.Delay {
			delay = maxDelay
		}
	}
	delay = min(delay, max(maxDelay, r.Delay))
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s~%d", seed, attempt)
	jitter := float64(h.Sum32())/float64(1<<32)*0.2 - 0.1
	return delay + time.Duration(float64(delay)*jitter)
}

// isRepeatable reports whether a step may run twice. Reading resources and prompts is repeatable, and so
// are workflow steps, because the engine records them under their key.
func (m *Machine) isRepeatable(s *Step) bool {
	if m.options.RepeatableSteps != nil {
		return slices.Contains(m.options.RepeatableSteps, s.ID)
	}
	tool := s.Action
	switch {
	case s.Writes:
		w, _ := m.options.writerOf(s)
		tool = w.Tool
	case s.Kind != KindTool:
		return true
	}
	return m.options.Repeatable != nil && m.options.Repeatable(s.Server, tool)
}

// checkOutput validates an output against the step's schema.
func checkOutput(s *Step, output any) *StepError {
	if s.outputSchema == nil {
		return nil
	}
	raw, err := document.Marshal(valueOf(output))
	wrong := []schema.Violation(nil)
	if err == nil {
		wrong, err = s.outputSchema.Validate(document.ReadTrusted(raw))
	}
	if err != nil || len(wrong) > 0 {
		message := "the output could not be checked"
		if len(wrong) > 0 {
			message = "the output does not match its schema: " + wrong[0].Message
		}
		return &StepError{Code: CodeOutput, Message: message, MayHaveRun: true}
	}
	return nil
}

func (m *Machine) runOnce(t *task, sc *scope, s *Step, arguments template, key string) (any, *StepError) {
	switch s.Kind {
	case KindParallel:
		return m.runParallel(t, sc, s, key)
	case KindLoop:
		return m.runLoop(t, sc, s, key)
	case KindForEach:
		return m.runForEach(t, sc, s, key)
	case KindSwitch:
		return m.runSwitch(t, sc, s, key)
	case KindWait:
		if s.Signal != "" {
			o := t.perform(Command{Op: OpWait, Key: key, Execution: key, Step: s.ID, Name: s.Signal, Timeout: s.Timeout, Repeatable: true})
			return o.Value, o.Err
		}
		if s.Review == nil {
			o := t.perform(Command{Op: OpSleep, Key: key, Step: s.ID, Timeout: s.Wait, Repeatable: true})
			return nil, o.Err
		}
	case KindTool, KindResource, KindPrompt, KindWorkflow:
	}
	c, err := m.prepare(sc, s, arguments, key)
	if err != nil {
		return nil, &StepError{Code: CodeReference, Message: err.Error(), Final: true}
	}
	o := m.performOnce(t, c)
	if o.Err == nil && s.Model != "" {
		o = t.perform(Command{Op: OpComplete, Key: key + ">", Step: s.ID, Name: s.Model, Arguments: o.Value, Timeout: s.Timeout, Keep: s.Keep, Repeatable: true})
	}
	return o.output(), o.Err
}

// performOnce performs a call. It asks a person if the outcome is unknown, or if the server asks for input.
func (m *Machine) performOnce(t *task, c Command) Outcome {
	key := c.Key
	for again := 1; ; again++ {
		o := t.perform(c)
		if o.Err == nil || o.Err.Code != CodeUnknown && o.Err.Code != CodeInput {
			return o
		}
		ask := Command{Op: OpAsk, Key: c.Key + "!", Step: c.Step, Server: c.Server, Name: c.Name, Arguments: c.Arguments, Repeatable: true}
		given := "it is unknown whether the call was done"
		if o.Err.Code == CodeInput {
			if again > maxInputs {
				o.Err.Message = fmt.Sprintf("the server asked for input %d times", again)
				return Outcome{Err: o.Err}
			}
			ask.Input, given = readInput(o.Value), "no one gave the input that the server asked for"
		}
		said := map[string]any{}
		if ask.Input == nil || len(ask.Input.Requests) > 0 {
			answer := t.perform(ask)
			if answer.Err != nil {
				return answer
			}
			said, _ = answer.Value.(map[string]any)
			if said["answer"] != AnswerHappened && said["answer"] != AnswerAgain {
				return Outcome{Err: &StepError{Code: CodeGivenUp, Message: "given up: " + given, Final: true}}
			}
		}
		if ask.Input == nil && said["answer"] == AnswerHappened {
			return Outcome{Value: said["output"]}
		}
		if ask.Input != nil {
			c.Input = ask.Input.answer(said["answer"] == AnswerHappened, said["output"])
		}
		c.Key = fmt.Sprintf("%s+%d", key, again)
	}
}

// prepare fills in the references of a step.
func (m *Machine) prepare(sc *scope, s *Step, arguments template, key string) (Command, error) {
	find := m.lookup(sc, s)
	c := Command{Op: OpCall, Key: key, Step: s.ID, Kind: s.Kind, Server: s.Server, Name: s.Action, Timeout: s.Timeout, Repeatable: m.isRepeatable(s)}
	if s.Model == "" {
		c.Keep = s.Keep
	}
	fill := func(t template) (any, error) {
		if t == nil {
			return nil, nil
		}
		return t.fill(find)
	}
	fillText := func(t template) (string, error) {
		v, err := fill(t)
		if text, ok := v.(string); ok || err != nil || t == nil {
			return text, err
		}
		return "", fmt.Errorf("a name, URI or id must be a text, not %s", describeKind(v))
	}
	if arguments == nil {
		arguments = s.Arguments
	}
	var err error
	switch s.Kind {
	case KindResource:
		if c.Name, err = fillText(s.URI); err == nil && s.Writes {
			w, ok := m.options.writerOf(s)
			if !ok {
				return c, fmt.Errorf("chains.writers names no tool that writes resources of the server %q", s.Server)
			}
			var data any
			data, err = fill(s.Data)
			c.Kind, c.Name, c.Arguments = KindTool, w.Tool, map[string]any{w.URI: c.Name, w.Data: data}
		}
	case KindPrompt:
		if c.Name, err = fillText(s.PromptName); err == nil {
			c.Arguments, err = fillPrompt(arguments, find)
		}
	case KindWait:
		c.Op, c.Action = OpMove, moveReview
		c.Instance, err = fillText(s.Review)
	case KindWorkflow:
		c.Op, c.Action, c.Name, c.Target = OpMove, s.Action, s.Workflow, s.Perform+s.State
		if c.Instance, err = fillText(s.Instance); err == nil {
			c.Arguments, err = fill(s.Data)
		}
	default:
		c.Arguments, err = fill(arguments)
	}
	return c, err
}

// fillPrompt fills in the arguments of a prompt. They are strings in MCP.
func fillPrompt(t template, find lookup) (any, error) {
	all, given := t.(objectOf)
	if !given {
		return nil, nil //nolint:nilnil // no arguments
	}
	out := map[string]any{}
	for i, key := range all.keys {
		v, err := fillOperand(all.values[i], find)
		if err == nil {
			out[key], err = formatText(v)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// runBranches runs bodies concurrently, at most s.MaxConcurrent at a time, and returns their values. After
// a failure it starts no more, unless RunAll is set, and waits for those in progress.
func (m *Machine) runBranches(t *task, s *Step, count int, body func(t *task, place int) (any, *StepError)) ([]any, *StepError) {
	values, collected := make([]any, count), 0
	var failed *StepError
	failedAt := count
	for active, begun := 0, 0; ; {
		for active < s.MaxConcurrent && begun < count && (failed == nil || s.RunAll) {
			place := begun
			m.spawn(t, func(t *task) { t.value, t.err = body(t, place) }).place = place
			active++
			begun++
		}
		if active == 0 {
			return values, failed
		}
		child := t.join()
		active--
		if collected <= MaxCollected {
			values[child.place] = valueOf(child.value)
			collected += measureJSON(values[child.place])
		}
		if collected > MaxCollected && child.err == nil {
			child.err = &StepError{Code: CodeOutput, Final: true, MayHaveRun: true, Message: fmt.Sprintf("the outputs of %q exceed %d MiB in total: keep less of each", s.ID, MaxCollected>>20)}
		}
		if child.err == nil {
			continue
		}
		// Keep the first failure in document order. A failure takes precedence over a stop that ends the
		// run as done.
		if stopped := child.err.Code == codeStopped; failed == nil || stopped == (failed.Code == codeStopped) && child.place < failedAt || !stopped && failed.Code == codeStopped {
			failed, failedAt = child.err, child.place
		}
	}
}

// measureJSON returns the size of a value as JSON in bytes.
func measureJSON(value any) int {
	raw, err := document.Marshal(value)
	if err != nil { // then no step stores it
		return 0
	}
	return len(raw)
}

func (m *Machine) runParallel(t *task, sc *scope, s *Step, key string) (any, *StepError) {
	var tasks []*Step
	for _, inner := range s.Tasks {
		if !inner.Named {
			tasks = append(tasks, inner)
		}
	}
	scopes := make([]*scope, len(tasks))
	values, err := m.runBranches(t, s, len(tasks), func(t *task, place int) (any, *StepError) {
		scopes[place] = m.newScope(sc)
		return m.runStep(t, scopes[place], tasks[place], nil, key+"/")
	})
	output := map[string]any{}
	for i, inner := range tasks {
		output[inner.ID] = values[i]
		if scopes[i] != nil {
			maps.Copy(sc.outputs, scopes[i].outputs)
		}
	}
	if err != nil {
		return nil, err
	}
	return output, nil
}

func (m *Machine) runForEach(t *task, sc *scope, s *Step, key string) (any, *StepError) {
	filled, err := s.Items.fill(m.lookup(sc, s))
	if err != nil {
		return nil, &StepError{Code: CodeReference, Message: err.Error(), Final: true}
	}
	items, ok := filled.([]any)
	if !ok || len(items) > MaxIterations {
		message := fmt.Sprintf("\"items\" is %s; forEach needs a list", describeKind(filled))
		if ok {
			message = fmt.Sprintf("\"items\" has %d items; at most %d are allowed", len(items), MaxIterations)
		}
		return nil, &StepError{Code: CodeReference, Message: message, Final: true}
	}
	values, failed := m.runBranches(t, s, len(items), func(t *task, place int) (any, *StepError) {
		if err := m.pass(s, key); err != nil {
			return nil, err
		}
		inner := m.newScope(sc)
		inner.item = &item{items[place], place}
		return m.runSequence(t, inner, s.Steps, iterationKey(key, place+1))
	})
	return values, failed
}

func iterationKey(key string, n int) string { return key + "#" + strconv.Itoa(n) + "/" }

func (m *Machine) runLoop(t *task, sc *scope, s *Step, key string) (any, *StepError) {
	for n := 1; ; n++ {
		if err := m.pass(s, key); err != nil {
			return nil, err
		}
		inner := m.newScope(sc)
		if _, err := m.runSequence(t, inner, s.Steps, iterationKey(key, n)); err != nil {
			return nil, err
		}
		holds := false
		if s.Until != nil {
			var err *StepError
			if holds, err = m.test(t, inner, s, s.Until, iterationKey(key, n)); err != nil {
				return nil, err
			}
		}
		switch {
		case holds, s.Until == nil && n == s.MaxIterations:
			outputs := map[string]any{}
			for id, output := range inner.outputs {
				outputs[id] = valueOf(output)
			}
			return map[string]any{"iterations": json.Number(strconv.Itoa(n)), "steps": outputs}, nil
		case n == s.MaxIterations:
			return nil, &StepError{Code: CodeExhausted, Message: fmt.Sprintf("the loop %q ended after %d iterations without its condition becoming true: %s", s.ID, n, strings.TrimSpace(s.Until.text))}
		}
		if s.Delay > 0 {
			t.perform(Command{Op: OpSleep, Key: iterationKey(key, n) + ".", Step: s.ID, Timeout: s.Delay, Repeatable: true})
		}
	}
}

func (m *Machine) runSwitch(t *task, sc *scope, s *Step, key string) (any, *StepError) {
	for i, c := range s.Cases {
		holds, err := m.test(t, sc, s, c.When, fmt.Sprintf("%s:%d", key, i+1))
		if err != nil {
			return nil, err
		}
		if holds {
			return m.runSequence(t, sc, c.Steps, key+"/")
		}
	}
	return m.runSequence(t, sc, s.Else, key+"/")
}
