package chain

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

// Parse parses a definition in JSON or YAML; source names it in messages. It rejects unknown keys and
// values of the wrong type. The error is a *ParseError that lists all problems. A definition that parses
// may still be wrong: see Lint.
func Parse(source string, doc []byte) (*Definition, error) {
	name := source
	if json.Valid(doc) {
		name = "chain.json"
	}
	root, err := document.Parse(name, doc, document.Limits{Bytes: MaxDefinition})
	if err != nil {
		return nil, &ParseError{Source: source, Issues: convertIssues(err)}
	}
	p := parser{ObjectReader: document.NewObject(root), ids: map[string]*Step{}}
	d := p.parseDocument(root)
	if issues := append(convertIssues(p.Err()), p.issues...); len(issues) > 0 {
		return nil, &ParseError{Source: source, Issues: limitIssues(issues)}
	}
	sum := sha256.Sum256(root.Canonical())
	d.Hash = "sha256:" + hex.EncodeToString(sum[:])
	d.Document, d.lines = root.JSON(), root.Lines()
	return d, nil
}

func convertIssues(err error) []Issue {
	all, _ := errors.AsType[document.Errors](err)
	if one, ok := errors.AsType[*document.Issue](err); ok && all == nil {
		all = document.Errors{one}
	}
	var out []Issue
	for _, i := range all {
		out = append(out, Issue{Rule: strings.ReplaceAll(string(i.Rule), "_", "-"), Severity: workflow.SeverityError, Path: i.Path, Line: i.Line, Message: i.Message})
	}
	return out
}

// maxIssues limits the issues in a report; further ones are only counted.
const maxIssues = 50

func limitIssues(issues []Issue) []Issue {
	sortIssues(issues)
	if more := len(issues) - maxIssues; more > 0 {
		issues = append(issues[:maxIssues:maxIssues], Issue{Rule: "size", Severity: workflow.SeverityError, Message: fmt.Sprintf("and %d more", more)})
	}
	return issues
}

func sortIssues(issues []Issue) {
	slices.SortStableFunc(issues, func(a, b Issue) int { return cmp.Compare(a.Line, b.Line) })
}

// parser parses one document. The embedded reader collects type errors, issues all others.
type parser struct {
	*document.ObjectReader
	issues  []Issue
	ids     map[string]*Step
	count   int
	nesting int
}

// maxCollected limits the issues that are collected; only maxIssues of them are listed.
const maxCollected = 4 * maxIssues

func (p *parser) addIssue(rule string, n *document.Node, line int, format string, args ...any) {
	if len(p.issues) < maxCollected {
		p.issues = append(p.issues, Issue{Rule: rule, Severity: workflow.SeverityError, Path: n.ShownPath(), Line: line, Message: fmt.Sprintf(format, args...)})
	}
}

func (p *parser) rejectValue(n *document.Node, format string, args ...any) {
	p.addIssue("value", n, n.Line, format, args...)
}

func (p *parser) checkKeys(o *document.ObjectReader, g *objectGrammar) {
	if o.Node() == nil {
		return
	}
	known := g.listKeys()
	for _, m := range o.Node().Members {
		if slices.Contains(known, m.Key) {
			continue
		}
		if kinds := listKindsWith(m.Key); strings.HasSuffix(g.name, "Step") && len(kinds) > 0 {
			p.addIssue("unknown-key", m.Value, m.Line, "a step of the type %s has no key %q; types that have it are %s", strings.TrimSuffix(g.name, "Step"), m.Key, strings.Join(kinds, ", "))
			continue
		}
		p.addIssue("unknown-key", m.Value, m.Line, "unknown key %s%s", quoteName(m.Key), suggestName(m.Key, known))
	}
	o.Require(g.required...)
}

// listKindsWith returns the kinds of steps that have a key.
func listKindsWith(key string) []string {
	var out []string
	for _, kind := range kinds {
		if slices.ContainsFunc(stepKeys[kind], func(k keyGrammar) bool { return k.name == key }) {
			out = append(out, string(kind))
		}
	}
	return out
}

// suggestName returns a hint with the closest known name, or with the known names.
func suggestName(name string, known []string) string {
	if near := document.Suggest(name, known[:min(len(known), 500)]); near != "" {
		return "; did you mean " + quoteName(near) + "?"
	}
	if len(known) == 0 {
		return ""
	}
	quoted := make([]string, 0, maxListedKeys+1)
	for _, k := range known[:min(len(known), maxListedKeys)] {
		quoted = append(quoted, quoteName(k))
	}
	if more := len(known) - len(quoted); more > 0 {
		quoted = append(quoted, fmt.Sprintf("and %d more", more))
	}
	return "; known are " + strings.Join(quoted, ", ")
}

var (
	chainNamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,58}$`) })
	stepNamePattern  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`) })
	targetPattern    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:variables\.(output|global|saved)|(saved))\.([A-Za-z_][A-Za-z0-9_-]{0,63})$`)
	})
)

// reservedNames have another meaning in references.
var reservedNames = []string{"variables", "saved", "item", "index", "error", "failed_step"}

func (p *parser) parseDocument(root *document.Node) *Definition {
	o := p.ObjectReader
	p.checkKeys(o, &documentObject)
	_, _ = o.String("$schema"), o.String("comment")
	d := &Definition{Name: o.String("name"), Description: o.String("description"), Tags: o.StringMap("tags"), InputSchema: o.Raw("inputSchema")}
	if n := o.Value("name"); n != nil && n.Kind == document.String && !chainNamePattern().MatchString(d.Name) {
		p.rejectValue(n, "the name must be 1 to 58 letters, digits, dots, underscores or hyphens")
	}
	d.inputSchema = p.parseSchema(o, "inputSchema")
	v := o.Object("variables")
	p.checkKeys(v, &variablesObject)
	d.Input, d.Output, d.Global, d.Saved = p.parseValues(v, "input"), p.parseValues(v, "output"), p.parseValues(v, "global"), p.parseValues(v, "saved")
	d.Steps = p.parseSteps(o, "steps", nil)
	d.steps = p.ids
	if n := root.Get("steps"); p.count > MaxSteps {
		p.issues = slices.DeleteFunc(p.issues, func(i Issue) bool { return strings.HasPrefix(i.Path, "/steps/") })
		p.addIssue("size", n, n.Line, "the chain has %d steps; at most %d are allowed: split it into several", p.count, MaxSteps)
	}
	for _, m := range o.Entries("conditionals") {
		d.Conditionals = append(d.Conditionals, p.parseConditional(m))
	}
	d.OnError = p.parseHandler(o, "on_error")
	d.Schedule = p.parseSchedule(o)
	d.Sensitive = p.parseSensitive(o)
	d.Concurrency = p.parseCount(o, "concurrency", 0, MaxIterations)
	markNamed(d)
	return d
}

// parseSensitive parses pointers to the recorded values of runs.
func (p *parser) parseSensitive(o *document.ObjectReader) []string {
	pointers := o.Strings("sensitive")
	for i, pointer := range pointers {
		first, rest, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
		if n := o.Value("sensitive"); i < len(n.Items) && (!strings.HasPrefix(pointer, "/") || rest == "" || !slices.Contains([]string{"input", "steps", "output"}, first)) {
			p.rejectValue(n.Items[i], "%q is not a value of a run; write /input/NAME, /output/NAME or /steps/ID/output", pointer)
		}
	}
	return pointers
}

// markNamed marks the steps that run only when named.
func markNamed(d *Definition) {
	mark := func(id string) {
		if s := d.steps[id]; s != nil {
			s.Named = true
		}
	}
	d.visitSteps(func(s *Step) {
		for _, h := range s.handlers() {
			mark(h.Step)
		}
	})
	for _, c := range d.Conditionals {
		for _, id := range slices.Concat(c.IfTrue, c.IfFalse) {
			mark(id)
		}
	}
	if d.OnError != nil {
		mark(d.OnError.Step)
	}
}

func (p *parser) parseValues(o *document.ObjectReader, key string) map[string]any {
	out := map[string]any{}
	for _, m := range o.Entries(key) {
		out[m.Key] = decodeJSON(m.Value.JSON())
	}
	return out
}

func (p *parser) parseSchema(o *document.ObjectReader, key string) *schema.Schema {
	n := o.Object(key).Node()
	if n == nil {
		return nil
	}
	compiled, err := schema.Compile(n.JSON())
	if err != nil {
		p.rejectValue(n, "the schema does not compile: %v", err)
		return nil
	}
	if !schema.Simple(n.JSON()) {
		p.rejectValue(n, "the schema may take too long: %s", schema.FindCost(n.JSON()))
	}
	return compiled
}

func (p *parser) parseSteps(o *document.ObjectReader, key string, parent *Step) []*Step {
	n := o.Value(key)
	items := o.Items(key)
	if n != nil && n.Kind == document.Array && len(items) == 0 {
		p.rejectValue(n, "%q needs at least one step", key)
	}
	if p.nesting++; p.nesting > MaxNesting && n != nil {
		p.rejectValue(n, "steps may be nested at most %d deep", MaxNesting)
		items = nil
	}
	defer func() { p.nesting-- }()
	var out []*Step
	for _, item := range items {
		if p.count++; p.count <= MaxSteps {
			out = append(out, p.parseStep(item, parent))
		}
	}
	return out
}

func (p *parser) parseStep(n *document.Node, parent *Step) *Step {
	o := p.Sub(n)
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	o.Require("type")
	s := &Step{ID: o.String("id"), Kind: Kind(o.Enum("type", names...)), path: n.Path(), parent: parent}
	_ = o.String("description")
	p.checkID(o, s)
	if s.Kind == "" {
		return s // its keys depend on the type
	}
	p.checkKeys(o, grammarOf(s.Kind))
	s.OnError = p.parseHandler(o, "on_error")
	s.SaveOutputTo = p.parseTarget(o)
	s.OutputSchema, s.outputSchema = o.Raw("outputSchema"), p.parseSchema(o, "outputSchema")
	s.Timeout, s.Retry, s.Defaults = p.parseSpan(o, "timeout"), p.parseRetry(o), p.parseValues(o, "default")
	s.Keep = p.parseKeep(o)
	s.Server, s.Action = o.String("server"), o.String("action")
	s.MaxConcurrent = p.parseCount(o, "maxConcurrent", DefaultConcurrent, MaxTasks)
	s.RunAll = o.Enum("mode", "failFast", "all") == "all"
	switch s.Kind {
	case KindTool:
		s.Arguments = p.parseArguments(o, "arguments")
	case KindResource:
		s.Writes = o.Enum("action", "read", "write") == "write"
		s.URI = p.parseText(o, "uri")
		data := o.Value("data")
		if data != nil {
			s.Data = parseTemplate(data, p.reportReference)
		}
		if s.Writes != (data != nil) {
			p.rejectValue(n, "a resource step has \"data\" if its action is \"write\", and only then")
		}
	case KindPrompt:
		_ = o.Enum("action", "execute")
		s.PromptName, s.Arguments = p.parseText(o, "prompt_name"), p.parseArguments(o, "arguments")
		complete := o.Object("complete")
		p.checkKeys(complete, &completeObject)
		s.Model = complete.String("model")
	case KindParallel:
		s.Tasks = p.parseSteps(o, "tasks", s)
		if len(s.Tasks) > MaxTasks {
			p.rejectValue(o.Value("tasks"), "a parallel step may have at most %d tasks, not %d; use forEach with \"maxConcurrent\"", MaxTasks, len(s.Tasks))
		}
	case KindLoop:
		s.Steps = p.parseSteps(o, "steps", s)
		s.MaxIterations = p.parseCount(o, "max_iterations", 0, MaxIterations)
		s.Delay = p.parseSeconds(o, "delay_seconds", 0)
		s.Until = p.parseCondition(o, "until")
	case KindForEach:
		s.Steps = p.parseSteps(o, "steps", s)
		s.Items = p.parseItems(o)
	case KindSwitch:
		for _, item := range o.Items("cases") {
			c := p.Sub(item)
			p.checkKeys(c, &caseObject)
			s.Cases = append(s.Cases, Case{When: p.parseCondition(c, "when"), Steps: p.parseSteps(c, "steps", s)})
		}
		s.Else = p.parseSteps(o, "else", s)
	case KindWait:
		s.Wait, s.Signal, s.Review = p.parseSeconds(o, "seconds", 0), o.String("signal"), p.parseText(o, "review")
		named := slices.DeleteFunc([]string{"seconds", "signal", "review"}, func(key string) bool { return !o.Has(key) })
		if len(named) != 1 {
			p.rejectValue(n, "a wait needs exactly one of \"seconds\", \"signal\" and \"review\"")
		}
	case KindWorkflow:
		p.parseWorkflowStep(o, s)
	}
	return s
}

func (p *parser) checkID(o *document.ObjectReader, s *Step) {
	n := o.Value("id")
	if n == nil || n.Kind != document.String {
		return
	}
	other := p.ids[s.ID]
	switch {
	case !stepNamePattern().MatchString(s.ID):
		p.rejectValue(n, "the id must be a letter, then letters, digits, underscores or hyphens, at most 64")
	case slices.Contains(reservedNames, s.ID):
		p.rejectValue(n, "the id %q is reserved in references; choose another", s.ID)
	case other != nil:
		p.rejectValue(n, "duplicate id %q, already used at %s; ids are unique in the chain", s.ID, other.path)
	default:
		p.ids[s.ID] = s
	}
}

func (p *parser) parseWorkflowStep(o *document.ObjectReader, s *Step) {
	s.Action = o.Enum("action", "start", "advance", "wait")
	s.Workflow, s.Perform, s.State = o.String("workflow"), o.String("perform"), o.String("state")
	s.Instance, s.Data = p.parseText(o, "instance"), p.parseArguments(o, "data")
	for _, key := range map[string][]string{"start": {"workflow"}, "advance": {"instance", "perform"}, "wait": {"instance", "state"}}[s.Action] {
		if !o.Has(key) {
			p.addIssue("missing", o.Node(), o.Node().Line, "missing key %q, which the action %s needs", key, s.Action)
		}
	}
}

func (p *parser) reportReference(n *document.Node, err error) {
	p.addIssue("reference", n, n.Line, "%v", err)
}

// parseArguments parses an object with references; nil if absent.
func (p *parser) parseArguments(o *document.ObjectReader, key string) template {
	if n := o.Object(key).Node(); n != nil {
		return parseTemplate(n, p.reportReference)
	}
	return nil
}

// parseText parses a text with references; nil if absent.
func (p *parser) parseText(o *document.ObjectReader, key string) template {
	if o.StringPtr(key) == nil {
		return nil
	}
	return parseTemplate(o.Value(key), p.reportReference)
}

func (p *parser) parseItems(o *document.ObjectReader) template {
	n := o.Value("items")
	if n == nil {
		return nil
	}
	t := parseTemplate(n, p.reportReference)
	if _, one := t.(whole); !one && n.Kind != document.Array {
		p.rejectValue(n, "\"items\" must be a list, or one reference to a list such as \"{{variables.input.sites}}\"")
	}
	if len(n.Items) > MaxIterations {
		p.rejectValue(n, "forEach may have at most %d items, not %d", MaxIterations, len(n.Items))
	}
	return t
}

func (p *parser) parseTarget(o *document.ObjectReader) *target {
	text := o.StringPtr("save_output_to")
	if text == nil {
		return nil
	}
	m := targetPattern().FindStringSubmatch(*text)
	if m == nil {
		hint := "it must be variables.output.x, variables.global.x or saved.x"
		if strings.HasPrefix(*text, "variables.input") {
			hint = "the input cannot be written; use variables.global.x"
		}
		p.rejectValue(o.Value("save_output_to"), "an output cannot be saved there: %s", hint)
		return nil
	}
	return &target{cmp.Or(m[1], m[2]), m[3]}
}

// parseHandler parses a step's id, or an object that also replaces its arguments.
func (p *parser) parseHandler(o *document.ObjectReader, key string) *Handler {
	n := o.Value(key)
	switch {
	case n == nil:
		return nil
	case n.Kind == document.String:
		return &Handler{Step: n.Text, path: n.Path()}
	}
	c := o.Object(key)
	p.checkKeys(c, &callbackObject)
	return &Handler{Step: c.String("step"), Arguments: p.parseArguments(c, "arguments"), Stops: c.Enum("then", "continue", "stop") == "stop", path: n.Path()}
}

// parseKeep parses paths below an output. It rejects invalid ones here, before any call is made.
func (p *parser) parseKeep(o *document.ObjectReader) []string {
	paths := o.Strings("keep")
	n := o.Value("keep")
	if len(paths) > MaxKept {
		p.rejectValue(n, "a step may keep at most %d parts of its output, not %d; keep larger parts", MaxKept, len(paths))
		return nil
	}
	for i, path := range paths {
		if err := checkKept(path); err != nil && i < len(n.Items) {
			p.addIssue("reference", n.Items[i], n.Items[i].Line, "%v", err)
		}
	}
	return paths
}

func (p *parser) parseRetry(o *document.ObjectReader) *Retry {
	if !o.Has("retry") {
		return nil
	}
	r := o.Object("retry")
	p.checkKeys(r, &retryObject)
	return &Retry{
		MaxAttempts: p.parseCount(r, "max_attempts", 1, MaxAttempts), Delay: p.parseSeconds(r, "delay_seconds", time.Second),
		Backoff: r.Enum("backoff", "fixed", "linear", "exponential"), OnFail: p.parseHandler(r, "on_fail"),
	}
}

func (p *parser) parseConditional(m document.Member) *Conditional {
	o := p.Sub(m.Value)
	p.checkKeys(o, &conditionalObject)
	return &Conditional{Name: m.Key, Condition: p.parseCondition(o, "condition"), IfTrue: o.Strings("if_true"), IfFalse: o.Strings("if_false"), path: m.Value.Path()}
}

// parseCondition parses a comparison or a script; nil if absent or invalid.
func (p *parser) parseCondition(o *document.ObjectReader, key string) *Condition {
	n := o.Value(key)
	if n == nil {
		return nil
	}
	if n.Kind == document.Object {
		s := o.Object(key)
		p.checkKeys(s, &scriptObject)
		source := s.String("script")
		switch {
		case s.Has("script") && strings.TrimSpace(source) == "":
			p.rejectValue(n, "the script is empty; write one expression that is true or false, such as data.check.output.length > 3")
		case len(source) > workflow.MaxScript:
			p.rejectValue(n, "the script has %d bytes; at most %d are allowed", len(source), workflow.MaxScript)
		}
		return &Condition{Script: source, text: source}
	}
	text := o.StringPtr(key)
	if text == nil {
		return nil
	}
	c, err := parseCondition(*text)
	if err != nil {
		p.rejectValue(n, "%v", err)
		return nil
	}
	return c
}

func (p *parser) parseCount(o *document.ObjectReader, key string, absent, most int) int {
	n := o.IntPtr(key)
	if n == nil {
		return absent
	}
	if *n < 1 || *n > most {
		p.rejectValue(o.Value(key), "%q must be 1 to %d", key, most)
	}
	return *n
}

// maxSeconds is the longest delay: 30 days.
const maxSeconds = 30 * 24 * 60 * 60

func (p *parser) parseSeconds(o *document.ObjectReader, key string, absent time.Duration) time.Duration {
	n := o.FloatPtr(key)
	if n == nil {
		return absent
	}
	if *n < 0 || *n > maxSeconds {
		p.rejectValue(o.Value(key), "%q must be 0 to %d, which is 30 days", key, maxSeconds)
		return absent
	}
	return time.Duration(*n * float64(time.Second))
}

func (p *parser) parseSpan(o *document.ObjectReader, key string) time.Duration {
	text := o.StringPtr(key)
	if text == nil {
		return 0
	}
	d, err := time.ParseDuration(*text)
	if err != nil || d <= 0 || d > maxSeconds*time.Second {
		p.rejectValue(o.Value(key), "%q must be a time such as 30s, 5m or 2h, above 0 and at most 720h", key)
		return 0
	}
	return d
}

// parseSchedule parses a schedule; nil if absent.
func (p *parser) parseSchedule(o *document.ObjectReader) *Schedule {
	if !o.Has("schedule") {
		return nil
	}
	r := o.Object("schedule")
	p.checkKeys(r, &scheduleObject)
	s := &Schedule{
		Type: r.Enum("type", "cron", "interval", "once"), Expression: r.String("expression"), Timezone: time.UTC,
		Missed: r.Enum("missed", "latest", "all", "skip"), Overlap: r.Enum("overlap", "skip", "queue", "replace", "allow"),
		MissedWithin: cmp.Or(p.parseSpan(r, "missedWithin"), 24*time.Hour), Jitter: p.parseSpan(r, "jitter"),
		Interval: time.Duration(p.parseCount(r, "seconds", 0, maxSeconds)) * time.Second,
	}
	needs := map[string]string{"cron": "expression", "interval": "seconds", "once": "at"}
	for _, kind := range []string{"cron", "interval", "once"} {
		key := needs[kind]
		switch {
		case s.Type == kind && !r.Has(key):
			p.addIssue("missing", r.Node(), r.Node().Line, "missing key %q, which a schedule of the type %s needs", key, kind)
		case s.Type != "" && s.Type != kind && r.Has(key):
			p.rejectValue(r.Value(key), "%q belongs to a schedule of the type %s, not %s", key, kind, s.Type)
		}
	}
	if zone := r.StringPtr("timezone"); zone != nil {
		location, err := time.LoadLocation(*zone)
		if err != nil || *zone == "" || *zone == "Local" {
			p.rejectValue(r.Value("timezone"), "unknown time zone %s; use a name such as Europe/Berlin or UTC", quoteName(*zone))
		} else {
			s.Timezone = location
		}
	}
	if at := r.StringPtr("at"); at != nil {
		var err error
		if s.At, err = time.Parse(time.RFC3339, *at); err != nil {
			p.rejectValue(r.Value("at"), "\"at\" must be a date, a time and a zone, such as 2026-02-04T14:30:00Z")
		}
	}
	if s.Type == "cron" && r.StringPtr("expression") != nil {
		var err error
		if s.cron, err = parseCron(s.Expression); err != nil {
			p.rejectValue(r.Value("expression"), "%v", err)
		}
	}
	return s
}
