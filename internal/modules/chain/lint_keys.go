package chain

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// These rules find keys that are valid, but have no effect where they appear. They are not part of Parse,
// so that runs of earlier definitions continue.

// hasKey reports whether the document has a key at a path.
func (l *linter) hasKey(path, key string) bool {
	_, ok := l.lines[path+"/"+key]
	return ok
}

// checkEmpty finds empty names: a wait for the signal "" would wait for nothing, and the model "" would
// answer no prompt.
func checkEmpty(l *linter, s *Step) {
	for _, v := range []struct {
		key   string
		empty bool
	}{
		{"server", s.Server == ""},
		{"action", s.Action == ""},
		{"uri", isEmptyText(s.URI)},
		{"prompt_name", isEmptyText(s.PromptName)},
		{"complete/model", s.Model == ""},
		{"signal", s.Signal == ""},
		{"review", isEmptyText(s.Review)},
		{"workflow", s.Workflow == ""},
		{"instance", isEmptyText(s.Instance)},
		{"perform", s.Perform == ""},
		{"state", s.State == ""},
	} {
		if v.empty && l.hasKey(s.path, v.key) {
			l.addIssue(s.path+"/"+v.key, "%q is empty; give it a value", v.key[strings.LastIndexByte(v.key, '/')+1:])
		}
	}
}

func isEmptyText(t template) bool {
	text, fixed := t.(literal)
	return fixed && text.value == ""
}

// conditionalNamePattern excludes the characters that separate names in the key of a step, and control
// characters, because terminals show the key.
var conditionalNamePattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[\p{L}\p{N}_][\p{L}\p{N} ._-]{0,63}$`)
})

func checkConditionalNames(l *linter) {
	for _, c := range l.Conditionals {
		if !conditionalNamePattern().MatchString(c.Name) {
			l.addIssue(c.path, "the name of a conditional must be a letter or digit, then letters, digits, spaces, dots, underscores or hyphens, at most 64 characters, not %s", quoteName(c.Name))
		}
	}
}

// moveKeys lists the keys of a workflow step by its action.
var moveKeys = map[string][]string{moveStart: {"workflow", "data"}, moveAdvance: {"instance", "perform", "data"}, "wait": {"instance", "state"}}

func checkUnused(l *linter) {
	l.visitSteps(func(s *Step) {
		if s.Kind == KindWorkflow {
			for _, key := range []string{"workflow", "instance", "perform", "data", "state"} {
				if known := moveKeys[s.Action]; l.hasKey(s.path, key) && !slices.Contains(known, key) {
					l.addIssue(s.path+"/"+key, "%q has no effect with the action %s, which takes %s; remove it", key, s.Action, strings.Join(known, ", "))
				}
			}
		}
		if s.Kind == KindWait && l.hasKey(s.path, "seconds") && s.Timeout > 0 {
			l.addIssue(s.path+"/timeout", "\"timeout\" has no effect in a wait of seconds; remove it")
		}
		for _, h := range s.handlers() {
			l.checkHandled(h)
		}
	})
	if l.OnError != nil {
		l.checkHandled(l.OnError)
		if l.hasKey(l.OnError.path, "then") {
			l.addIssue(l.OnError.path+"/then", "\"then\" has no effect in the callback of the run, which has already failed; remove it")
		}
	}
	if l.Schedule != nil && l.Schedule.Type != "cron" && l.hasKey("/schedule", "timezone") {
		l.addIssue("/schedule/timezone", "\"timezone\" has no effect in a schedule of the type %s; remove it", l.Schedule.Type)
	}
}

// checkHandled finds arguments for steps that take none.
func (l *linter) checkHandled(h *Handler) {
	if s := l.steps[h.Step]; s != nil && h.Arguments != nil && s.Kind != KindTool && s.Kind != KindPrompt {
		l.addIssue(h.path+"/arguments", "the step %q has the type %s, which takes no \"arguments\" from here; name a step of the type tool or prompt, or remove them", s.ID, s.Kind)
	}
}

// checkTwice finds handlers whose executions would have the same key.
func checkTwice(l *linter, s *Step) {
	if h := s.handlers(); len(h) == 2 && h[0].Step == h[1].Step {
		l.addIssue(h[1].path, "\"on_fail\" also names the step %q, which is not tried a second time if it fails; name another step, or remove one of them", h[1].Step)
	}
}

func checkDefaults(l *linter) {
	read := map[string][]string{} // by step
	for _, u := range l.uses {
		if u.fills != nil {
			read[u.fills.ID] = append(read[u.fills.ID], u.text)
		}
	}
	l.visitSteps(func(s *Step) {
		for _, path := range slices.Sorted(maps.Keys(s.Defaults)) {
			if !slices.Contains(read[s.ID], path) {
				l.addIssue(s.path+"/default", "the step has no reference %s, so this default is unused%s", quoteName(path), suggestName(path, read[s.ID]))
			}
		}
	})
}

// bracesPattern matches text that begins like a reference.
var bracesPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\{\{\s*([A-Za-z_][A-Za-z0-9_-]*)[.\[|][^{}]*\}\}`)
})

// checkTexts finds text in braces that looks like a reference but is not one, such as
// {{check.output['x']}}.
func checkTexts(l *linter) {
	l.visitSteps(func(s *Step) {
		for key, t := range s.templates() {
			l.checkText(s.path+"/"+key, t)
		}
		for _, h := range s.handlers() {
			l.checkText(h.path, h.Arguments)
		}
	})
	if l.OnError != nil {
		l.checkText(l.OnError.path, l.OnError.Arguments)
	}
}

func (l *linter) checkText(path string, t template) {
	if t == nil {
		return
	}
	t.visit(func(reference) {}, func(text string) {
		for _, m := range bracesPattern().FindAllStringSubmatch(text, -1) {
			if !referencePattern().MatchString(m[0]) && (slices.Contains(reservedNames, m[1]) || l.stepOf(reference{segments: m[1:2]}) != nil) {
				l.addIssue(path, "%s is not a reference and is not replaced; a path has only keys and indexes, such as {{check.output.items[0].name}}", quoteName(m[0]))
			}
		}
	})
}
