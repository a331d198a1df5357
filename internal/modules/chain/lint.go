package chain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// LintOptions are the parts of the configuration that Lint uses.
type LintOptions struct {
	// Servers are the pinned items of each configured server. If nil, they are unknown, and the rules about
	// them are skipped.
	Servers map[string]ServerItems
	// Writer returns the tool that writes the resources of a server; nil means there are none.
	Writer func(server string) (Writer, bool)
	// Models are the configured models; nil if unknown.
	Models []string
	// Now is compared with the time of a schedule; zero skips the check.
	Now time.Time
	// Flags are appended to the commands that an issue suggests, such as " --config gavel.yaml".
	Flags string
}

// ServerItems are the names of the pinned items of a server.
type ServerItems struct {
	Tools, Prompts []string
	// OutputSchemas are the output schemas of the tools that have one, by tool name.
	OutputSchemas map[string]json.RawMessage
	// Unknown reports that the items are pinned on first use, and the server has not been used yet.
	Unknown bool
}

// Rule documents one kind of Issue.
type Rule struct {
	ID       string
	Severity workflow.Severity
	// Doc describes in one sentence what the rule finds.
	Doc   string
	check func(*linter)
}

// Rules returns all rules of Lint. Issues found by Parse have the rules of workflow definitions, and
// "reference".
func Rules() []Rule {
	const e, w = workflow.SeverityError, workflow.SeverityWarning
	return []Rule{
		{"reserved-id", e, "A step has the id that is reserved for the run's callback.", checkReserved},
		{"empty-value", e, "A required name or id in a step is empty.", eachStep(checkEmpty)},
		{"conditional-name", e, "The name of a conditional is too long, or has characters that are reserved in step keys.", checkConditionalNames},
		{"misspelt-keyword", e, "A JSON Schema has a misspelt keyword, so the intended check is not made.", checkKeywords},
		{"unused-key", e, "A key has no effect with the other keys of its step, handler or schedule.", checkUnused},
		{"unused-default", w, "A step has a default for a path that it does not refer to.", checkDefaults},
		{"unread-reference", w, "A text looks like a reference but is not one, so it is not replaced.", checkTexts},
		{"handler-twice", e, "on_fail and on_error of a step name the same step.", eachStep(checkTwice)},
		{"unknown-step", e, "on_error, on_fail or a conditional names a step that does not exist.", checkNames},
		{"out-of-reach", e, "A handler or a conditional names a step inside another step, which cannot run from there.", checkReach},
		{"handler-cycle", e, "Handlers lead back to the step that failed.", checkCycles},
		{"unknown-reference", e, "A reference names an unknown step or variable.", eachUse(checkReferences)},
		{"early-reference", e, "A reference reads a step that has not ended yet.", eachUse(checkOrder)},
		{"unwritten-variable", e, "A reference reads a variable that has no initial value and that no earlier step writes.", eachUse(checkVariables)},
		{"unknown-server", e, "A step names a server that is not configured.", eachStep(checkServers)},
		{"unpinned-item", e, "A step names a tool or prompt that is not pinned.", eachStep(checkItems)},
		{"unmapped-write", e, "A step writes a resource of a server for which chains.writers names no tool.", eachStep(checkWrites)},
		{"unknown-model", e, "A prompt names a model that is not configured.", eachStep(checkModels)},
		{"unknown-sensitive", w, "A sensitive pointer names an input, output or step that does not exist.", checkSensitive},
		{"never-true", w, "A condition can never be true, according to the pinned outputSchema of a tool.", checkNeverTrue},
		{"decided-never", w, "A conditional waits for a step that may never run.", checkDecided},
		{"saved-first-run", w, "A saved variable has no value in the first run.", eachUse(checkSaved)},
		{"schedule-past", w, "The time of a schedule is in the past.", checkOnce},
		{"schedule-input", w, "The chain's input schema rejects the input of scheduled runs.", checkScheduledInput},
		{"schedule-overlap", w, "A schedule with missed: all skips most missed ticks.", checkMissed},
	}
}

// Lint finds mistakes that parse but cannot work. It returns issues in the order of their lines.
func (d *Definition) Lint(o LintOptions) []Issue {
	l := &linter{Definition: d, options: o}
	l.uses = l.listUses()
	for _, rule := range Rules() {
		l.rule = rule
		rule.check(l)
	}
	return limitIssues(l.issues)
}

type linter struct {
	*Definition
	options LintOptions
	uses    []use
	rule    Rule
	issues  []Issue
}

// eachStep turns a check of one step into a check of every step of the chain.
func eachStep(check func(*linter, *Step)) func(*linter) {
	return func(l *linter) { l.visitSteps(func(s *Step) { check(l, s) }) }
}

// eachUse turns a check of one reference into a check of every reference in the chain.
func eachUse(check func(*linter, use)) func(*linter) {
	return func(l *linter) {
		for _, u := range l.uses {
			check(l, u)
		}
	}
}

func (l *linter) addIssue(path, format string, args ...any) {
	if len(l.issues) < maxCollected {
		l.issues = append(l.issues, Issue{Rule: l.rule.ID, Severity: l.rule.Severity, Path: path, Line: l.findLine(path), Message: fmt.Sprintf(format, args...)})
	}
}

// findLine returns the line of a path, or of its nearest ancestor that has one.
func (l *linter) findLine(path string) int {
	for {
		if n, ok := l.lines[path]; ok || path == "" {
			return n
		}
		path = path[:strings.LastIndexByte(path, '/')]
	}
}

func (l *linter) listIDs() []string { return slices.Sorted(maps.Keys(l.steps)) }

// stepRef is a place that names a step.
type stepRef struct {
	step string
	path string
	from *Step // nil for the chain itself
}

func (l *linter) listStepRefs() []stepRef {
	var out []stepRef
	l.visitSteps(func(s *Step) {
		for _, h := range s.handlers() {
			out = append(out, stepRef{h.Step, h.path, s})
		}
	})
	for _, c := range l.Conditionals {
		for i, id := range c.IfTrue {
			out = append(out, stepRef{id, fmt.Sprintf("%s/if_true/%d", c.path, i), nil})
		}
		for i, id := range c.IfFalse {
			out = append(out, stepRef{id, fmt.Sprintf("%s/if_false/%d", c.path, i), nil})
		}
	}
	if l.OnError != nil {
		out = append(out, stepRef{l.OnError.Step, l.OnError.path, nil})
	}
	return out
}

// checkReserved is not part of Parse, so that runs of earlier definitions continue.
func checkReserved(l *linter) {
	if s := l.steps[callbackID]; s != nil {
		l.addIssue(s.path+"/id", "the id %q is reserved for the callback of the run; choose another, such as \"handle_error\"", s.ID)
	}
}

func checkNames(l *linter) {
	for _, n := range l.listStepRefs() {
		if l.steps[n.step] == nil {
			l.addIssue(n.path, "unknown step %s%s", quoteName(n.step), suggestName(n.step, l.listIDs()))
		}
	}
}

// checkReach requires that a named step is in the same sequence as the step that names it, or in an
// enclosing one.
func checkReach(l *linter) {
	for _, n := range l.listStepRefs() {
		s := l.steps[n.step]
		if s == nil || s.parent == nil {
			continue
		}
		reached := false
		for at := n.from; at != nil; at = at.parent {
			reached = reached || at.parent == s.parent
		}
		if !reached {
			l.addIssue(n.path, "the step %q is inside %q and cannot run from here; move it out", s.ID, s.parent.ID)
		}
	}
}

func checkCycles(l *linter) {
	next := func(s *Step) (out []*Step) {
		for _, h := range s.handlers() {
			if handler := l.steps[h.Step]; handler != nil {
				out = append(out, handler)
			}
		}
		return append(out, slices.Concat(s.lists()...)...)
	}
	reported := map[*Step]bool{}
	l.visitSteps(func(s *Step) {
		way := findWay(s, next, func(at *Step) bool { return at == s })
		if way == nil || reported[s] {
			return
		}
		names := make([]string, len(way))
		for i, at := range way {
			names[i], reported[at] = at.ID, true
		}
		l.addIssue(s.path, "handlers form a cycle: %s", strings.Join(names, " -> "))
	})
}

// findWay returns the shortest path from a node to one that matches, including both, or nil if there is
// none. The path has at least one edge.
func findWay[T comparable](from T, next func(T) []T, matches func(T) bool) []T {
	before := map[T]T{}
	for queue := []T{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range next(queue[0]) {
			if matches(to) {
				way := []T{to}
				for at := queue[0]; at != from; at = before[at] {
					way = append(way, at)
				}
				way = append(way, from)
				slices.Reverse(way)
				return way
			}
			if _, seen := before[to]; !seen {
				before[to] = queue[0]
				queue = append(queue, to)
			}
		}
	}
	return nil
}

// stepOf returns the step that a reference names, or nil. {{step_check.output}} names the step check,
// unless a step has the full name.
func (d *Definition) stepOf(r reference) *Step {
	if s := d.steps[r.segments[0]]; s != nil {
		return s
	}
	if name, ok := strings.CutPrefix(r.segments[0], "step_"); ok {
		return d.steps[name]
	}
	return nil
}

func checkReferences(l *linter, u use) {
	first := u.segments[0]
	switch {
	case first == "variables":
		l.checkScope(u)
	case first == "saved":
		if len(u.segments) < 2 {
			l.addIssue(u.path, "{{%s}} names no variable; write {{saved.x}}", u.text)
		}
	case first == "item" || first == "index":
		if !u.inItem {
			l.addIssue(u.path, "{{%s}} has a value only inside forEach", u.text)
		} else if first == "index" && len(u.segments) > 1 {
			l.addIssue(u.path, "{{%s}} names a part of a number; write {{index}}", u.text)
		}
	case first == "error" || first == "failed_step":
		l.checkFailure(u)
	case first == runReference && l.stepOf(u.reference) == nil:
		if len(u.segments) != 2 || u.segments[1] != "id" && u.segments[1] != "startedAt" {
			l.addIssue(u.path, "{{%s}} is unknown; write {{run.id}} or {{run.startedAt}}", u.text)
		}
	case l.stepOf(u.reference) == nil:
		l.addIssue(u.path, "{{%s}} names the unknown step %s%s", u.text, quoteName(first), suggestName(first, append(l.listIDs(), reservedNames...)))
	case len(u.segments) < 2 || u.segments[1] != "output":
		l.addIssue(u.path, "{{%s}} is not a value of the step; write {{%s.output}}", u.text, first)
	}
}

func (l *linter) checkScope(u use) {
	scopes := []string{"input", "global", "saved"}
	switch {
	case len(u.segments) < 3:
		l.addIssue(u.path, "{{%s}} names no variable; write {{variables.input.x}}", u.text)
	case u.segments[1] == "output":
		l.addIssue(u.path, "{{%s}} cannot be read: variables.output is write-only; also save to variables.global.%s, or refer to the step", u.text, u.segments[2])
	case !slices.Contains(scopes, u.segments[1]):
		l.addIssue(u.path, "{{%s}} names the unknown scope %s%s", u.text, quoteName(u.segments[1]), suggestName(u.segments[1], scopes))
	}
}

func (l *linter) checkFailure(u use) {
	want := map[string]string{"error": "message", "failed_step": "id"}[u.segments[0]]
	switch {
	case !u.failing:
		l.addIssue(u.path, "{{%s}} has a value only in a step that handles a failure", u.text)
	case len(u.segments) != 2 || u.segments[1] != want:
		l.addIssue(u.path, "{{%s}} is unknown; write {{%s.%s}}", u.text, u.segments[0], want)
	}
}

func checkOrder(l *linter, u use) {
	s := l.stepOf(u.reference)
	if s == nil {
		return
	}
	switch ended, _ := l.canFollow(u.reader, s); {
	case ended:
	case u.step == s:
		l.addIssue(u.path, "{{%s}} is the output of this step itself, which has none yet", u.text)
	default:
		l.addIssue(u.path, "{{%s}} is read before the step %q has ended, or from outside its loop", u.text, s.ID)
	}
}

// variableOf returns the scope and name of the variable that a reference names.
func variableOf(r reference) (scope, name string) {
	switch {
	case r.segments[0] == "saved" && len(r.segments) > 1:
		return "saved", r.segments[1]
	case r.segments[0] == "variables" && len(r.segments) > 2:
		return r.segments[1], r.segments[2]
	}
	return "", ""
}

func (l *linter) listWritten(scope string) []string {
	var out []string
	l.visitSteps(func(s *Step) {
		if t := s.SaveOutputTo; t != nil && t.scope == scope {
			out = append(out, t.name)
		}
	})
	return out
}

func hasDefault(u use) bool {
	if u.fills == nil {
		return false
	}
	_, ok := u.fills.Defaults[u.text]
	return ok
}

// suggestDefault returns a hint to add a default, if one would apply.
func suggestDefault(u use) string {
	switch {
	case u.fills == nil:
		return ""
	case u.fills == u.step:
		return ", or give the step a \"default\""
	default:
		return fmt.Sprintf(", or give the step %q a \"default\"", u.fills.ID)
	}
}

func checkVariables(l *linter, u use) {
	scope, name := variableOf(u.reference)
	values := map[string]map[string]any{"input": l.Input, "global": l.Global, "saved": l.Saved}[scope]
	if _, begins := values[name]; values == nil || begins || hasDefault(u) || scope == "input" && len(l.InputSchema) > 0 || scope == "global" && name == startTime {
		return
	}
	known, written, before := slices.Sorted(maps.Keys(values)), false, false
	l.visitSteps(func(s *Step) {
		if t := s.SaveOutputTo; t != nil && t.scope == scope {
			known = append(known, t.name)
			if t.name == name {
				_, follows := l.canFollow(u.reader, s)
				written, before = true, before || follows
			}
		}
	})
	hint := fmt.Sprintf("; declare it in variables.%s%s", scope, suggestDefault(u))
	switch {
	case scope == "global" && written && !before:
		l.addIssue(u.path, "{{%s}} is read before any step has written it%s", u.text, hint)
	case !written:
		if len(known) > 0 {
			hint = suggestName(name, known)
		}
		l.addIssue(u.path, "{{%s}} has no value: no step writes it and variables.%s has no %s%s", u.text, scope, quoteName(name), hint)
	}
}

func checkSaved(l *linter, u use) {
	scope, name := variableOf(u.reference)
	if _, begins := l.Saved[name]; scope == "saved" && !begins && !hasDefault(u) && slices.Contains(l.listWritten("saved"), name) {
		hint := suggestDefault(u)
		if hint != "" {
			hint += fmt.Sprintf(": {%q: null}", u.text)
		}
		l.addIssue(u.path, "{{%s}} has no value in the first run; declare it in variables.saved%s", u.text, hint)
	}
}

func checkOnce(l *linter) {
	if s := l.Schedule; s != nil && s.Type == "once" && !l.options.Now.IsZero() && !s.At.After(l.options.Now) {
		l.addIssue("/schedule/at", "this time is in the past: a server that has not seen the schedule before never runs it; set a future time, or remove the schedule")
	}
}

func checkScheduledInput(l *linter) {
	if l.Schedule == nil {
		return
	}
	if _, err := l.CheckInput(nil); err != nil {
		l.addIssue("/schedule", "scheduled runs cannot start, because their input is the defaults alone: %v; add defaults in variables.input", err)
	}
}

func checkMissed(l *linter) {
	if s := l.Schedule; s != nil && s.Missed == missedAll && (s.Overlap == "" || s.Overlap == overlapSkip) {
		l.addIssue("/schedule/missed", "missed ticks follow each other immediately, so most are skipped because a run is under way; set \"overlap\" to queue (at most %d wait) or allow", maxQueued)
	}
}

func checkServers(l *linter, s *Step) {
	if l.options.Servers == nil {
		return
	}
	if s.Server == "" {
		return
	}
	if _, ok := l.options.Servers[s.Server]; !ok {
		known := slices.Sorted(maps.Keys(l.options.Servers))
		hint := suggestName(s.Server, known)
		if len(known) == 0 {
			hint = "; declare it in the section upstreams"
		}
		l.addIssue(s.path+"/server", "unknown server %s%s", quoteName(s.Server), hint)
	}
}

func checkItems(l *linter, s *Step) {
	items, ok := l.options.Servers[s.Server]
	if !ok || items.Unknown {
		return
	}
	tool, isCall := l.toolOf(s)
	name, fixed := s.PromptName.(literal)
	text, _ := name.value.(string)
	switch {
	case isCall && !slices.Contains(items.Tools, tool):
		l.addIssue(s.path+"/action", "the tool %s of the server %q is not pinned%s", quoteName(tool), s.Server, l.suggestPinned(tool, s.Server, items.Tools))
	case s.Kind == KindPrompt && fixed && !slices.Contains(items.Prompts, text):
		l.addIssue(s.path+"/prompt_name", "the prompt %s of the server %q is not pinned%s", quoteName(text), s.Server, l.suggestPinned(text, s.Server, items.Prompts))
	}
}

func (l *linter) suggestPinned(name, server string, known []string) string {
	if len(known) == 0 {
		return fmt.Sprintf("; pin its items with gavel upstream pin %s%s", server, l.options.Flags)
	}
	return suggestName(name, known)
}

// toolOf returns the tool that a step calls, or false if it calls none.
func (l *linter) toolOf(s *Step) (tool string, isCall bool) {
	w, writes := MachineOptions{Writer: l.options.Writer}.writerOf(s)
	switch {
	case writes:
		return w.Tool, true
	default:
		return s.Action, s.Kind == KindTool
	}
}

func checkWrites(l *linter, s *Step) {
	if l.options.Servers == nil {
		return
	}
	if _, isCall := l.toolOf(s); s.Writes && !isCall {
		l.addIssue(s.path+"/action", "no tool writes resources of the server %q; name one in chains.writers, or call it in a step of the type \"tool\"", s.Server)
	}
}

func checkModels(l *linter, s *Step) {
	if l.options.Models == nil {
		return
	}
	if s.Model != "" && !slices.Contains(l.options.Models, s.Model) {
		l.addIssue(s.path+"/complete/model", "unknown model %s%s", quoteName(s.Model), suggestName(s.Model, l.options.Models))
	}
}

func checkSensitive(l *linter) {
	for i, pointer := range l.Sensitive {
		parts := strings.Split(pointer, "/") // "", input, output or steps, and a name
		if len(parts) > 3 && parts[1] == "steps" && parts[3] != "output" && parts[3] != "*" {
			l.addIssue(fmt.Sprintf("/sensitive/%d", i), "%q is not a value of a step; write /steps/%s/output", pointer, parts[2])
			continue
		}
		if len(parts) < 3 || parts[2] == "*" {
			continue
		}
		var known []string
		switch {
		case parts[1] == "steps":
			known = l.listIDs()
		case parts[1] == "input" && l.inputSchema == nil:
			known = slices.Sorted(maps.Keys(l.Input))
		case parts[1] == "output":
			known = append(slices.Sorted(maps.Keys(l.Output)), l.listWritten("output")...)
		default:
			continue
		}
		if !slices.Contains(known, parts[2]) {
			l.addIssue(fmt.Sprintf("/sensitive/%d", i), "%q is not in the chain%s", pointer, suggestName(parts[2], known))
		}
	}
}

// checkDecided finds conditionals that depend on steps which only run when named.
func checkDecided(l *linter) {
	for _, c := range l.Conditionals {
		if c.Condition == nil {
			continue
		}
		c.Condition.visit(func(r reference) {
			if s := l.stepOf(r); s != nil && s.Named {
				l.addIssue(c.path+"/condition", "the step %q runs only if a handler or conditional names it, so this may never be decided", s.ID)
			}
		})
	}
}
