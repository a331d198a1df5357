package workflow

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// listLintRules returns the rules of Lint. Each check looks for one problem only.
func listLintRules() []Rule {
	const e, w, n = SeverityError, SeverityWarning, SeverityNote
	return []Rule{
		{"unknown-initial-state", e, "initialState names a state that does not exist.", checkInitialState},
		{"unknown-target", e, "A transition or route leads to a state that does not exist.", checkTargets},
		{"dead-end", e, "A state is not final and has no transition.", checkDeadEnds},
		{"final-with-transitions", e, "A final state has transitions, which could never be taken.", checkFinalStates},
		{"unknown-validator", e, "stateValidators names an unknown state, or transitionValidators an unknown action.", checkValidatorKeys},
		{"unknown-not-by", e, "notBy names an action that does not exist.", checkNotBy},
		{"unknown-must-pass", e, "mustPassThrough names a state that does not exist.", checkMustPassNames},
		{"must-pass-through", e, "Some path enters a state without passing through a state that mustPassThrough requires.", checkMustPassThrough},
		listCompileRules()[0], listCompileRules()[1], listCompileRules()[2],
		{"misspelt-keyword", e, "A key of a JSON Schema resembles a keyword but is none, so the intended check is not made.", checkKeywords},
		{"malformed-pointer", e, "An entry of sensitive or freezes is not a JSON pointer to a field.", checkPointers},
		{"malformed-write", e, "An entry of writes is not a top-level key.", checkWrites},
		{"evidence-not-operator", e, "A definition asks for evidence, and its owner is not an operator.", checkEvidenceOwner},
		{"retention-not-operator", e, "A definition sets retention, and its owner is not an operator.", checkRetentionOwner},
		{"access-not-operator", e, "A definition sets access, and its owner is not an operator.", checkAccessOwner},

		{"agents-not-operator", w, "A definition sets agents, and its owner is not an operator.", checkAgentsOwner},
		{"unreachable-state", w, "No path leads from the initial state to this one.", checkReachable},
		{"no-path-to-final", w, "From this state no final state can be reached, though the definition has one.", checkPathToFinal},
		{"outcome-not-final", w, "A state that is not final has an outcome.", checkOutcomes},
		{"llm-without-model", w, "The judge needs a model that is not configured.", checkModels},
		{"model-not-asked", w, "A move without data on an empty context leaves the model nothing to judge, and no criterion applies: the other layers decide alone.", checkBlankMoves},
		{"criteria-without-llm", w, "Criteria, a reference, exemplars, samples or a panel are given where no model judges.", checkCriteria},
		{"proof-too-strict", w, "No quote from the fields that a transition requires can satisfy a criterion's proof.", checkProofs},
		{"never-approves", w, "The judge's settings rule out every approval.", checkApprovable},
		{"outage-refuses", n, "A criterion takes a quote from fetched evidence, so the structural fallback cannot approve.", checkOutage},
		{"shrunk-confidence", n, "With strictMode an uncalibrated model must state more confidence than minConfidence, because its confidence is shrunk.", checkUncalibrated},
		{"unknown-source", w, "Evidence comes from a source that is not configured.", checkSources},
		{"evidence-unbound", w, "An evidence argument comes from a field that nothing requires, or that agents can set freely.", checkEvidenceArguments},
		{"claimed-evidence", w, "A script of a transition that fetches evidence reads data.evidence or context.evidence, which the agent can write.", checkClaimedEvidence},
		{"required-not-writable", w, "A transition requires a field that its writes do not allow.", checkRequiredWritable},
		listCompileRules()[3],
		{"unchecked-field", w, "A script reads a field of data that nothing requires and does not handle its absence.", checkFieldReads},
	}
}

func listCompileRules() [4]Rule {
	return [...]Rule{
		{"schema-invalid", SeverityError, "A JSON Schema does not compile.", reportProblems(badSchema)},
		{"script-invalid", SeverityError, "A validator or condition does not compile, or does not end within its limits on {}.", reportProblems(badScript)},
		{"field-invalid", SeverityError, "A required field is not a key, dotted name or JSON pointer.", reportProblems(badField)},
		{"script-throws", SeverityWarning, "A script gives no answer for data with only the required fields, or for {} if none is required.", reportProblems(throwingScript)},
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func newSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

func checkInitialState(s *linter) {
	if s.States[s.InitialState] == nil {
		s.addIssue("/initialState", "unknown state %s%s", quoteName(s.InitialState), s.suggestKnown(s.InitialState, s.StateNames))
	}
}

func checkTargets(s *linter) {
	s.visitTransitions(func(from *State, t *Transition) {
		for i, r := range t.Routes {
			if s.States[r.Target] == nil {
				s.addIssue(s.routePath(from, t, i, "target"), "the action %s leads to the unknown state %s%s",
					quoteName(t.Action), quoteName(r.Target), s.suggestKnown(r.Target, s.StateNames))
			}
		}
	})
}

func checkDeadEnds(s *linter) {
	for _, name := range s.StateNames {
		if st := s.States[name]; !st.Final && len(st.Transitions) == 0 {
			s.addIssue(statePath(name), "the state %s is not final and has no transition: no instance could leave it; add a transition, or \"final\": true", quoteName(name))
		}
	}
}

func checkFinalStates(s *linter) {
	for _, name := range s.StateNames {
		if st := s.States[name]; st.Final && len(st.Transitions) > 0 {
			s.addIssue(statePath(name), "the final state %s has transitions, which can never be taken; remove them, or \"final\"", quoteName(name))
		}
	}
}

func checkValidatorKeys(s *linter) {
	for _, state := range sortedKeys(s.StateValidators) {
		if s.States[state] == nil {
			s.addIssue(joinPointer("/stateValidators", state), "unknown state %s%s", quoteName(state), s.suggestKnown(state, s.StateNames))
		}
	}
	known := s.listValidatorKeys()
	exists := newSet(known)
	for _, key := range sortedKeys(s.TransitionValidators) {
		if !exists[key] {
			s.addIssue(joinPointer("/transitionValidators", key), "unknown action (or state.action) %s%s", quoteName(key), s.suggestKnown(key, known))
		}
	}
}

// listValidatorKeys returns the keys that transitionValidators may have, actions first.
func (d *Definition) listValidatorKeys() []string {
	keys := d.listActions()
	d.visitTransitions(func(s *State, t *Transition) { keys = append(keys, s.Name+"."+t.Action) })
	return keys
}

func (d *Definition) listActions() []string {
	var out []string
	seen := map[string]bool{}
	d.visitTransitions(func(_ *State, t *Transition) {
		if !seen[t.Action] {
			seen[t.Action] = true
			out = append(out, t.Action)
		}
	})
	return out
}

func checkNotBy(s *linter) {
	known := s.listActions()
	exists := newSet(known)
	s.visitTransitions(func(from *State, t *Transition) {
		path := joinPointer(transitionPath(from.Name, t.Action), "notBy")
		for i, before := range t.NotBy {
			if !exists[before] {
				s.addIssue(s.locateElement(path, i), "unknown action %s%s", quoteName(before), s.suggestKnown(before, known))
			}
		}
	})
}

func checkMustPassNames(s *linter) {
	for _, target := range sortedKeys(s.MustPassThrough) {
		path := joinPointer("/mustPassThrough", target)
		for _, name := range append([]string{target}, s.MustPassThrough[target]...) {
			if s.States[name] == nil {
				s.addIssue(path, "unknown state %s%s", quoteName(name), s.suggestKnown(name, s.StateNames))
			}
		}
	}
}

func checkMustPassThrough(s *linter) {
	if s.graph.initial == noNode || len(s.MustPassThrough) == 0 {
		return // other rules report unknown states
	}
	known := newDominators(s.graph)
	for _, target := range sortedKeys(s.MustPassThrough) {
		to := s.graph.findState(target)
		if to == noNode || !known.reaches(to) {
			continue
		}
		looked := map[int]bool{}
		for _, name := range s.MustPassThrough[target] {
			through := s.graph.findState(name)
			if through == noNode || looked[through] || through != to && known.dominates(through, to) {
				continue
			}
			looked[through] = true
			if len(s.found) > maxIssues || s.ended() != nil {
				return
			}
			if way, ok := s.graph.findBypass(to, through); ok {
				s.addIssue(joinPointer("/mustPassThrough", target), "%s can be entered without passing through %s: %s", quoteName(target), quoteName(name), way)
			}
		}
	}
}

func reportProblems(kind problemKind) func(*linter) {
	return func(s *linter) {
		for _, p := range s.problems {
			if p.kind == kind {
				s.addIssue(p.path, "%s", p.message)
			}
		}
	}
}

func checkKeywords(s *linter) {
	for _, part := range s.listParts() {
		for _, p := range validators.FindMisspelt(part.checks.Schema) {
			if file := s.files[part.schema]; file != "" {
				p.Message = file + ": " + p.Message
			}
			s.addIssue(part.schema+p.Path, "%s", p.Message)
		}
	}
}

func checkPointers(s *linter) {
	check := func(path, pointer string, wild bool) {
		tokens, err := splitPointer(pointer)
		switch {
		case err != nil:
			s.addIssue(path, "%s is not a JSON pointer to a field: %v", quoteName(pointer), err)
		case !wild && slices.Contains(tokens, wildcard):
			s.addIssue(path, "%s: * works only in sensitive; name the field itself", quoteName(pointer))
		}
	}
	for i, p := range s.Sensitive {
		check(joinPointer("/sensitive", strconv.Itoa(i)), p, true)
	}
	s.visitTransitions(func(from *State, t *Transition) {
		for i, p := range t.Freezes {
			check(joinPointer(transitionPath(from.Name, t.Action), "freezes", strconv.Itoa(i)), p, false)
		}
	})
}

func checkWrites(s *linter) {
	s.visitTransitions(func(from *State, t *Transition) {
		for i, k := range t.Writes {
			if strings.HasPrefix(k, "/") {
				s.addIssue(joinPointer(transitionPath(from.Name, t.Action), "writes", strconv.Itoa(i)),
					"writes takes top-level keys, not pointers: %s instead of %s", quoteName(firstField(k)), quoteName(k))
			}
		}
	})
}

// hasUnknownTarget reports whether a transition has an unknown target. The reachability rules are skipped then.
func (l *linter) hasUnknownTarget() (unknown bool) {
	l.visitTransitions(func(_ *State, t *Transition) {
		for _, r := range t.Routes {
			unknown = unknown || l.States[r.Target] == nil
		}
	})
	return unknown
}

func checkReachable(s *linter) {
	if s.graph.initial == noNode || s.hasUnknownTarget() {
		return
	}
	for i, reached := range s.graph.findReachable() {
		if !reached {
			s.addIssue(statePath(s.StateNames[i]), "no path leads from %s to %s", quoteName(s.InitialState), quoteName(s.StateNames[i]))
		}
	}
}

func checkPathToFinal(s *linter) {
	var finals []int
	for i, name := range s.StateNames {
		if s.States[name].Final {
			finals = append(finals, i)
		}
	}
	if len(finals) == 0 || s.hasUnknownTarget() {
		return // a machine without an intended end
	}
	leads := s.graph.findStatesLeadingTo(finals)
	for i, reached := range s.graph.findReachable() {
		name := s.StateNames[i]
		if reached && !leads[i] && len(s.States[name].Transitions) > 0 {
			s.addIssue(statePath(name), "no final state can be reached from %s", quoteName(name))
		}
	}
}

func checkOutcomes(s *linter) {
	for _, name := range s.StateNames {
		if st := s.States[name]; st.Outcome != "" && !st.Final {
			s.addIssue(joinPointer(statePath(name), "outcome"), "%s is not final, so it cannot have an outcome; remove it, or add \"final\": true", quoteName(name))
		}
	}
}

// locateElement returns the path of a list's element, or the path of the list if the document has a single
// value instead of a list.
func (d *Definition) locateElement(path string, i int) string {
	if at := joinPointer(path, strconv.Itoa(i)); d.lines[at] > 0 {
		return at
	}
	return path
}

// firstField returns the top-level key of a field's name or pointer.
func firstField(name string) string {
	if tokens, err := splitPointer(name); err == nil {
		return tokens[0]
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), ".")
	return first
}

// Limits of confidence that follow from the rules of the judge.
const (
	// maxUncalibrated is the highest confidence that an uncalibrated model's answer can reach:
	// its own figure, at most 0.99, shrunk toward one half.
	maxUncalibrated = 0.5 + (0.99-0.5)*0.8
	// maxFallback is the highest confidence of an approval by the structural fallback.
	maxFallback = 0.5
)

func (d *Definition) visitRubrics(visit func(*State, *Transition, judge.Rubric)) {
	d.visitTransitions(func(s *State, t *Transition) { visit(s, t, d.resolveRubric(t.Judge, nil)) })
}

func checkModels(s *linter) {
	s.visitRubrics(func(from *State, t *Transition, r judge.Rubric) {
		switch {
		case !r.Enabled || !r.UseLLM:
		case len(s.models) == 0:
			s.addIssue(s.settingPath(from, t, "useLLM"), "useLLM needs a model and none is configured: without one %s; configure a model (LLM_JUDGE_MODEL), check with the server's --config, or remove useLLM", describeWithoutModel(r))
		default:
			for _, name := range slices.Compact(r.Models()) {
				if name != "" && !slices.Contains(s.models, name) {
					s.addIssue(s.settingPath(from, t, keyOfModel(r)), "the model %s is not configured%s", quoteName(name), s.suggestKnown(name, s.models))
				}
			}
		}
	})
}

// keyOfModel returns the setting that names the models.
func keyOfModel(r judge.Rubric) string {
	if r.Panel != nil {
		return "panel"
	}
	return "model"
}

// checkBlankMoves follows, from the initial state, the moves that need neither data nor context, and reports those
// that a model would judge. A validator counts as a need, because its requirements are unknown.
func checkBlankMoves(s *linter) {
	if s.graph.initial == noNode || len(listPromisedFields(nil, s.InputSchema)) > 0 || s.needsContext(s.InitialState) {
		return
	}
	reached := map[string]bool{s.InitialState: true}
	for queue := []string{s.InitialState}; len(queue) > 0; queue = queue[1:] {
		from := s.States[queue[0]]
		for _, action := range from.Actions {
			t := from.Transitions[action]
			if len(s.collectChecks(from, t).Validators) > 0 || len(listPromisedFields(t.RequiredFields, t.Schema)) > 0 {
				continue
			}
			enters := false
			for _, target := range t.Targets() {
				if s.States[target] == nil || s.needsContext(target) {
					continue
				}
				enters = true
				if !reached[target] {
					reached[target] = true
					queue = append(queue, target)
				}
			}
			r := s.resolveRubric(t.Judge, nil)
			if enters && r.Enabled && r.UseLLM && len(r.Criteria) == 0 && len(t.Evidence) == 0 {
				s.addIssue(s.settingPath(from, t, "useLLM"), "a move without data on an empty context leaves the model nothing to judge: it is not asked, and the other layers decide; add criteria, requiredFields or an inputSchema with \"required\"")
			}
		}
	}
}

// needsContext reports whether entering a state requires any field of the context.
func (d *Definition) needsContext(state string) bool {
	v := d.StateValidators[state]
	return len(listPromisedFields(v.RequiredFields, v.Schema)) > 0
}

// describeWithoutModel describes what happens to moves that pass the other layers if no model is
// configured.
func describeWithoutModel(r judge.Rubric) string {
	switch {
	case r.OnJudgeUnavailable == judge.UnavailableReject:
		return "every such move is refused"
	case r.OnJudgeUnavailable == judge.UnavailableEscalate:
		return "every such move waits for a person, or is refused where reviews are off"
	case r.EvidenceOnly() != "":
		return "no such move is approved, because only a quote that a model finds in the evidence meets a criterion"
	case r.RequireAssurance.AtLeast(judge.AssuranceLLM) || r.Risk == judge.RiskHigh || r.StrictMode && r.MinConfidence > maxFallback:
		return "no such move is approved, because the other layers cannot reach the required assurance or confidence"
	default:
		return "the other layers decide alone, and the criteria are not judged"
	}
}

func checkCriteria(s *linter) {
	asked := false
	s.visitRubrics(func(from *State, t *Transition, r judge.Rubric) {
		asks := r.Enabled && r.UseLLM
		asked = asked || asks
		if asks {
			return
		}
		for _, given := range []struct {
			key string
			is  bool
		}{
			{"criteria", len(t.Judge.Criteria) > 0 && r.RequireAssurance != judge.AssuranceHuman}, // a reviewer uses them
			{"reference", t.Reference != ""},
			{"exemplars", len(t.Exemplars) > 0},
			{"exemplarsFrom", t.ExemplarsFrom != ""},
			{"samples", t.Judge.Samples != nil},
			{"panel", t.Judge.Panel != nil},
		} {
			if given.is {
				s.addIssue(joinPointer(transitionPath(from.Name, t.Action), given.key), "%s has no effect where no model judges; add \"useLLM\": true", given.key)
			}
		}
	})
	if s.Judge != nil && len(s.Judge.Criteria) > 0 && !asked {
		s.addIssue("/judgeConfig/criteria", "criteria are judged by a model, and no transition uses one; add \"useLLM\": true")
	}
}

// checkUncalibrated reports the confidence that an uncalibrated model has to state.
func checkUncalibrated(s *linter) {
	s.visitRubrics(func(from *State, t *Transition, r judge.Rubric) {
		if len(s.models) > 0 && r.Enabled && r.UseLLM && r.StrictMode && r.MinConfidence > 0.5 && r.MinConfidence <= maxUncalibrated {
			s.addIssue(s.settingPath(from, t, "minConfidence"),
				"with strictMode nothing is approved below %v, and an uncalibrated model's confidence is shrunk: it must state at least %s; calibrate it, or lower minConfidence", r.MinConfidence, judge.StatedFor(r.MinConfidence))
		}
	})
}

func checkOutage(s *linter) {
	s.visitRubrics(func(from *State, t *Transition, r judge.Rubric) {
		text := r.EvidenceOnly()
		if r.Enabled && r.UseLLM && r.OnJudgeUnavailable == judge.UnavailableStructural && text != "" && len(t.Evidence) > 0 {
			s.addIssue(s.settingPath(from, t, "criteria"),
				"while no model is available, such a move is refused (judge_unavailable), because only a quote from fetched evidence meets %s; with \"escalate\" a person decides", quoteName(text))
		}
	})
}

func checkApprovable(s *linter) {
	s.visitRubrics(func(from *State, t *Transition, r judge.Rubric) {
		asks := r.Enabled && r.UseLLM
		if text := r.EvidenceOnly(); asks && text != "" && len(t.Evidence) == 0 {
			s.addIssue(s.settingPath(from, t, "criteria"), "this transition fetches no evidence, but only a quote from fetched evidence proves %s: the criterion is never met; add \"evidence\"", quoteName(text))
		}
		if best := r.BestTogether(); asks && r.StrictMode && r.MinConfidence > best {
			s.addIssue(s.settingPath(from, t, "minConfidence"),
				"with strictMode nothing is approved below %v, and %d answers give at most %.3f; lower it, or ask more often", r.MinConfidence, len(r.Models()), best)
		} else if asks && r.StrictMode && r.MinConfidence > maxUncalibrated {
			s.addIssue(s.settingPath(from, t, "minConfidence"),
				"with strictMode nothing is approved below %v, and an uncalibrated model gives at most %.3f; lower it", r.MinConfidence, maxUncalibrated)
		}
		if asks && r.StrictMode && r.OnJudgeUnavailable == judge.UnavailableStructural && r.MinConfidence > maxFallback {
			s.addIssue(s.settingPath(from, t, "onJudgeUnavailable"),
				"with strictMode nothing is approved below %v, and without the model an approval has at most %v: \"structural\" never approves; use \"escalate\" or \"reject\"", r.MinConfidence, maxFallback)
		}
		s.checkAssurance(from, t, r)
	})
}

// checkAssurance finds a required assurance that nothing in the definition can reach. A person
// reaches any assurance, so a requirement for a person is taken as intended.
func (l *linter) checkAssurance(from *State, t *Transition, r judge.Rubric) {
	need, key := r.RequireAssurance, "requireAssurance"
	if r.Risk == judge.RiskHigh && !need.AtLeast(judge.AssuranceLLMCalibrated) {
		need, key = judge.AssuranceLLMCalibrated, "risk"
	}
	have := l.findBestAssurance(from, t, r)
	if need == judge.AssuranceHuman || have.AtLeast(need) {
		return
	}
	why := "no layer here gives more"
	if !r.Enabled && r.UseLLM {
		why = "\"enabled\": false keeps the model from being asked"
	}
	l.addIssue(l.settingPath(from, t, key), "an approval of %s needs assurance %q and can reach at most %q: %s; only a reviewer could approve it",
		quoteName(t.Action), need, have, why)
}

func (d *Definition) findBestAssurance(from *State, t *Transition, r judge.Rubric) judge.Assurance {
	checks := d.collectChecks(from, t)
	switch {
	case r.Enabled && r.UseLLM:
		return judge.AssuranceLLMCalibrated
	case len(checks.Validators) > 0 || len(checks.Routes) > 0:
		return judge.AssuranceValidators
	case len(checks.RequiredFields) > 0 || len(checks.Schema) > 0 || t.Writes != nil:
		return judge.AssuranceStructural
	}
	for _, target := range t.Targets() {
		if v := d.StateValidators[target]; len(v.RequiredFields) > 0 || len(v.Schema) > 0 || len(d.MustPassThrough[target]) > 0 {
			return judge.AssuranceStructural
		}
	}
	return judge.AssuranceNone
}

func checkRequiredWritable(s *linter) {
	s.visitTransitions(func(from *State, t *Transition) {
		if t.Writes == nil {
			return
		}
		writes := newSet(t.Writes)
		for i, name := range t.RequiredFields {
			if !writes[firstField(name)] && !writes[name] {
				s.addIssue(joinPointer(transitionPath(from.Name, t.Action), "requiredFields", strconv.Itoa(i)),
					"%s is required, but %s may not be written: no data can satisfy both; add it to writes", quoteName(name), quoteName(firstField(name)))
			}
		}
	})
}

// checkFieldReads looks for data.x in scripts where no required field and no schema guarantees x.
// It reads the source as text: it knows the usual ways to handle an absent field, and reports
// nothing if it finds one.
func checkFieldReads(s *linter) {
	s.visitTransitions(func(from *State, t *Transition) {
		promised := listPromisedFields(t.RequiredFields, t.Schema)
		s.visitScripts(from, t, func(path, source string) {
			for _, name := range s.findUnguardedReads(source) {
				if !slices.Contains(promised, name) {
					s.addIssue(path, "the script reads data.%s, which nothing requires: if it is absent, the script sees undefined; add it to requiredFields or write data.%s?.", name, name)
				}
			}
		})
	})
}

var claimPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[^.\w$])(data|context)\s*\??\.\s*evidence\b`)
})

// checkClaimedEvidence looks for scripts that mistake the agent's data for fetched evidence. It skips transitions
// that require a field "evidence" in the data: their scripts mean that field.
func checkClaimedEvidence(s *linter) {
	s.visitTransitions(func(from *State, t *Transition) {
		if len(t.Evidence) == 0 || slices.Contains(listPromisedFields(t.RequiredFields, t.Schema), "evidence") {
			return
		}
		s.visitScripts(from, t, func(path, source string) {
			if m := claimPattern().FindStringSubmatch(blankText(source)); m != nil {
				s.addIssue(path, "the script reads %s.evidence, which the agent can write; fetched evidence is the third argument: (data, context, evidence)", m[1])
			}
		})
	})
}

func (l *linter) visitScripts(from *State, t *Transition, do func(path, source string)) {
	do(transitionPath(from.Name, t.Action)+"/validator", t.Validator)
	for _, key := range [...]string{t.Action, from.Name + "." + t.Action} {
		do(joinPointer("/transitionValidators", key), l.TransitionValidators[key])
	}
	for i, r := range t.Routes {
		do(l.routePath(from, t, i, "condition"), r.Condition)
	}
}

// findUnguardedReads caches its results: one keyed validator can apply to thousands of transitions.
func (l *linter) findUnguardedReads(source string) []string {
	names, ok := l.reads[source]
	if !ok {
		names = listUnguardedReads(source)
		l.reads[source] = names
	}
	return names
}

// listPromisedFields returns the top-level keys that an object has once these checks have passed.
func listPromisedFields(required []string, text json.RawMessage) []string {
	var out []string
	for _, name := range required {
		out = append(out, firstField(name))
	}
	var schema struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(text, &schema) == nil {
		out = append(out, schema.Required...)
	}
	return out
}

// readPattern matches data.name together with what precedes and follows it.
var readPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:\btypeof\s+|!\s*|\.\s*)?\bdata\s*\.\s*([A-Za-z_$][\w$]*)\s*(\?\.|\?\?|&&|\|\||[!=]==?)?`)
})

// maxReads limits how many fields of one script are checked.
const maxReads = 64

func listUnguardedReads(source string) []string {
	if !strings.Contains(source, "data") {
		return nil
	}
	code := blankText(source)
	handled := map[string]bool{}
	var names []string
	for _, m := range readPattern().FindAllStringSubmatchIndex(code, -1) {
		if len(handled)+len(names) >= maxReads {
			break
		}
		name := code[m[2]:m[3]]
		before := code[m[0] : strings.Index(code[m[0]:], "data")+m[0]]
		switch {
		case strings.HasPrefix(before, "."):
			// context.data.x, not the argument
		case before != "", m[4] >= 0, isTested(source, name):
			handled[name] = true
		case !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(n string) bool { return handled[n] })
}

// isTested recognises 'name' in data, and conversions that accept a missing value.
func isTested(source, name string) bool {
	return strings.Contains(source, "'"+name+"' in data") || strings.Contains(source, `"`+name+`" in data`) ||
		slices.ContainsFunc([]string{"Boolean", "Array.isArray", "Number.isFinite", "Number.isInteger", "String"}, func(call string) bool {
			return strings.Contains(source, call+"(data."+name+")")
		})
}

// blankText blanks string literals and comments, so that they are not read as code. It leaves
// regular expression literals as they are, and also blanks the code in a template's ${}.
func blankText(source string) string {
	out := []byte(source)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			out[i] = ' '
		}
	}
	for i := 0; i < len(out); i++ {
		switch c := source[i]; {
		case c == '"' || c == '\'' || c == '`':
			end := findClosingQuote(source, i)
			blank(i+1, end)
			i = end
		case strings.HasPrefix(source[i:], "//"):
			end := i + strings.IndexByte(source[i:]+"\n", '\n')
			blank(i, end)
			i = end
		case strings.HasPrefix(source[i:], "/*"):
			end := len(source)
			if n := strings.Index(source[i+2:], "*/"); n >= 0 {
				end = i + 2 + n + 2
			}
			blank(i, end)
			i = end - 1
		}
	}
	return string(out)
}

func findClosingQuote(source string, start int) int {
	for i := start + 1; i < len(source); i++ {
		switch source[i] {
		case '\\':
			i++
		case source[start]:
			return i
		}
	}
	return len(source)
}
