package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Compiler compiles schemas and scripts safely; *validators.Compiler implements it.
type Compiler interface {
	Compile(ctx context.Context, caller string, owner validators.Owner, checks validators.Checks) (*validators.Set, []validators.Problem, error)
}

// LintOptions are the inputs of Lint in addition to the definition.
type LintOptions struct {
	// Compiler checks that schemas and scripts compile. Required.
	Compiler Compiler
	// Owner wrote the definition. Compiling is charged to it.
	Owner validators.Owner
	// Models are the names of the models that an operator configured. Empty means that useLLM
	// cannot work.
	Models []string
	// Try runs each script once in the sandbox, on the least data that the definition requires.
	Try bool
	// Sources are the names of the configured evidence sources; nil if unknown, which skips
	// their rule.
	Sources []string
}

// Rule documents one kind of Issue.
type Rule struct {
	// ID is stable.
	ID       string
	Severity Severity
	// Doc is one sentence that describes what the rule finds.
	Doc string
	// check is nil for the rules of Parse.
	check func(*linter)
}

// Rules returns all rules of Parse and Lint, in the order of the reference page.
func Rules() []Rule {
	return slices.Concat(listParseRules(), listLintRules(), addedRules)
}

func listParseRules() []Rule {
	out := []Rule{
		{ID: "syntax", Doc: "The document is not well-formed JSON or YAML."},
		{ID: "utf8", Doc: "The document has bytes or escapes that are not valid Unicode."},
		{ID: "nul", Doc: "The document contains the character NUL."},
		{ID: "duplicate-key", Doc: "A key appears twice in one object."},
		{ID: "number", Doc: "A number would change when read as a 64-bit float."},
		{ID: "depth", Doc: "Objects and arrays are nested too deep."},
		{ID: "size", Doc: "The definition, one of its scripts or the list of issues is too long."},
		{ID: "file", Doc: "A file that the definition names cannot be read, or the definition was not loaded from disk by an operator and must not name files."},
		{ID: "unsupported", Doc: "The document uses a part of YAML that JSON cannot express."},
		{ID: "unknown-key", Doc: "A key is not part of the format."},
		{ID: "not-supported", Doc: "A key names a feature of other judges that this one does not have."},
		{ID: "missing", Doc: "A required key is missing."},
		{ID: "type", Doc: "A value has the wrong type."},
		{ID: "value", Doc: "A value has the right type but is not allowed."},
	}
	for i := range out {
		out[i].Severity = SeverityError
	}
	return out
}

// Lint finds what parses but cannot work, or may not work as its author expects. Issues are in the
// order of their lines. An error means that linting itself failed (the sandbox is down, ctx ended).
func (d *Definition) Lint(ctx context.Context, o LintOptions) ([]Issue, error) {
	if o.Compiler == nil {
		return nil, fmt.Errorf("lint workflow %q: a Compiler is required", d.Name)
	}
	problems, err := d.compileParts(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("lint workflow %q: %w", d.Name, err)
	}
	return d.lintProblems(ctx, o, append(problems, d.tryScripts(ctx, o, problems)...))
}

// lintProblems runs the rules on the definition and the given problems, without compiling.
func (d *Definition) lintProblems(ctx context.Context, o LintOptions, problems []problem) ([]Issue, error) {
	s := &linter{Definition: d, ended: ctx.Err, graph: newGraph(d), models: o.Models, sources: o.Sources, trusted: o.Owner.Trusted, problems: problems, reads: map[string][]string{}}
	return s.runRules(ctx, append(listLintRules(), addedRules...))
}

func (l *linter) runRules(ctx context.Context, rules []Rule) ([]Issue, error) {
	for _, r := range rules {
		l.rule = r
		l.found = map[string]bool{}
		r.check(l)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("lint workflow %q: %w", l.Name, context.Cause(ctx))
		}
	}
	sortIssues(l.issues)
	return l.issues, nil
}

// linter is a definition that is being checked. The rules only read it and call addIssue.
type linter struct {
	*Definition
	ended    func() error // Err of the caller's context
	graph    *graph
	models   []string
	sources  []string
	trusted  bool // the owner is an operator
	problems []problem

	rule   Rule
	found  map[string]bool     // issues of this rule so far
	reads  map[string][]string // by script; see listUnguardedReads
	issues []Issue
}

// addIssue reports an issue of the current rule, once per path and message. After maxIssues of a rule, a
// last issue reports that the rest is left out.
func (l *linter) addIssue(path, format string, args ...any) {
	if len(l.found) > maxIssues {
		return
	}
	message := fmt.Sprintf(format, args...)
	if len(l.found) == maxIssues {
		message = "further issues of this rule are left out"
	}
	if id := path + "\n" + message; !l.found[id] {
		l.found[id] = true
		l.issues = append(l.issues, Issue{
			Rule: l.rule.ID, Severity: l.rule.Severity, Path: path, Line: l.FindLine(path), Message: message,
		})
	}
}

// FindLine returns the line of a path in the document, or of its nearest known ancestor.
func (d *Definition) FindLine(path string) int {
	for {
		if n, ok := d.lines[path]; ok {
			return n
		}
		if path == "" {
			return 0
		}
		path = parentPointer(path)
	}
}

// statePath and transitionPath are JSON pointers into the document.
func statePath(state string) string { return joinPointer("/states", state) }

func transitionPath(state, action string) string {
	return joinPointer(statePath(state), "transitions", action)
}

// routePath returns the path of one route's target or condition.
func (d *Definition) routePath(s *State, t *Transition, route int, key string) string {
	path := transitionPath(s.Name, t.Action)
	if _, ok := d.lines[path+"/target"]; ok {
		path += "/target"
	}
	if t.Conditional() {
		path = joinPointer(path, strconv.Itoa(route), key)
	}
	return path
}

// settingPath returns the path at which a judge setting of a transition was written: in the
// transition, or else in judgeConfig.
func (d *Definition) settingPath(s *State, t *Transition, key string) string {
	path := joinPointer(transitionPath(s.Name, t.Action), key)
	if _, ok := d.lines[path]; ok {
		return path
	}
	return joinPointer("/judgeConfig", key)
}

// suggestKnown is suggestName, but skips the costly search for issues that the report leaves out.
func (l *linter) suggestKnown(name string, names []string) string {
	if len(l.found) >= maxIssues {
		return ""
	}
	return suggestName(name, names)
}

// maxCompared limits how many known names a wrong name is compared with.
const maxCompared = 500

// suggestName returns the end of a message about an unknown name: the nearest known name, or
// all known names.
func suggestName(name string, known []string) string {
	if near := document.Suggest(name, known[:min(len(known), maxCompared)]); near != "" {
		return "; did you mean " + quoteName(near) + "?"
	}
	return "; known are " + quoteNames(known)
}

// LintRequest asks another process to parse and lint an untrusted definition. Encode returns the
// request, AnswerLintRequest answers it there, and ParseAnswer checks the answer.
type LintRequest struct {
	// Source and Document are the arguments of Parse.
	Source   string `json:"source"`
	Document []byte `json:"document"`
	// Bounds limit the definition.
	Bounds Bounds `json:"bounds"`
	// Models and Sources are as in LintOptions.
	Models  []string `json:"models"`
	Sources []string `json:"sources"`
	// Trusted is Owner.Trusted of LintOptions.
	Trusted bool `json:"trusted,omitempty"`
}

// lintAnswer is the answer to a LintRequest: the definition as compact JSON, unless it does not
// parse, and its issues. Nothing was compiled.
type lintAnswer struct {
	Document json.RawMessage `json:"document,omitempty"`
	Lines    map[string]int  `json:"lines,omitempty"`
	Issues   []Issue         `json:"issues,omitempty"`
}

// Encode returns the request for AnswerLintRequest.
func (r LintRequest) Encode() ([]byte, error) { return json.Marshal(r) }

// AnswerLintRequest runs in a sandbox worker, because a hostile document may take unlimited time and
// memory.
func AnswerLintRequest(request []byte) []byte {
	answer, err := json.Marshal(answerRequest(request))
	if err != nil {
		panic(err) // only strings and numbers; the caller sees the worker's exit
	}
	return answer
}

func answerRequest(request []byte) lintAnswer {
	var r LintRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return lintAnswer{Issues: []Issue{{Rule: "syntax", Severity: SeverityError, Message: "unreadable lint request"}}}
	}
	d, err := Parse(r.Source, r.Document)
	if pe := (*ParseError)(nil); errors.As(err, &pe) {
		return lintAnswer{Issues: pe.Issues}
	}
	if issues := d.CheckBounds(r.Bounds); len(issues) > 0 {
		return lintAnswer{Issues: issues}
	}
	issues, err := d.lintProblems(context.Background(), LintOptions{Models: r.Models, Sources: r.Sources, Owner: validators.Owner{Trusted: r.Trusted}}, nil)
	if err != nil {
		issues = []Issue{{Rule: "size", Severity: SeverityError, Message: err.Error()}}
	}
	return lintAnswer{Document: d.Document, Lines: d.lines, Issues: issues}
}

// ParseAnswer returns the definition, nil if it does not parse, with the issues that Lint found
// without compiling. The answer is not trusted: ParseAnswer parses the definition again, checks
// the bounds, and drops issues of unknown rules. An error means that the answer is malformed.
func (r LintRequest) ParseAnswer(answer []byte) (*Definition, []Issue, error) {
	var from lintAnswer
	if err := json.Unmarshal(answer, &from); err != nil {
		return nil, nil, fmt.Errorf("unreadable answer to a lint request: %w", err)
	}
	issues := filterIssues(from.Issues)
	if len(from.Document) == 0 {
		if len(issues) == 0 {
			return nil, nil, errors.New("the answer to a lint request holds neither a definition nor issues")
		}
		return nil, issues, nil
	}
	d, err := Parse("definition.json", from.Document)
	if err != nil {
		return nil, nil, fmt.Errorf("the answer to a lint request holds an invalid definition: %w", err)
	}
	if exceeded := d.CheckBounds(r.Bounds); len(exceeded) > 0 {
		return nil, exceeded, nil
	}
	maps.DeleteFunc(from.Lines, func(path string, line int) bool { return line < 1 })
	d.lines = from.Lines
	return d, issues, nil
}

func filterIssues(issues []Issue) []Issue {
	rules := map[string]Severity{}
	for _, r := range Rules() {
		rules[r.ID] = r.Severity
	}
	var out []Issue
	for _, i := range issues[:min(len(issues), (maxIssues+1)*len(rules))] {
		severity, ok := rules[i.Rule]
		if !ok {
			continue
		}
		out = append(out, Issue{
			Rule: i.Rule, Severity: severity, Path: script.Clean(i.Path, maxPath), Line: max(i.Line, 0), Message: script.Clean(i.Message, maxMessage),
		})
	}
	return out
}

// maxMessage limits the length in bytes of a message from another process.
const maxMessage = 4 << 10

// FinishLint completes Lint for a definition from ParseAnswer: it compiles schemas and scripts
// and adds their issues to the known ones.
func (d *Definition) FinishLint(ctx context.Context, o LintOptions, known []Issue) ([]Issue, error) {
	problems, err := d.compileParts(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("lint workflow %q: %w", d.Name, err)
	}
	rules := listCompileRules()
	problems = append(problems, d.tryScripts(ctx, o, problems)...)
	s := &linter{Definition: d, problems: problems, issues: known, ended: ctx.Err}
	return s.runRules(ctx, rules[:])
}

// problem is a schema, a field or a script that does not compile or run, with its place in the definition.
type problem struct {
	kind    problemKind
	path    string
	message string
}

type problemKind uint8

const (
	badField problemKind = iota
	badSchema
	badScript
	throwingScript
)

// compileParts compiles all scripts in one call, and each pair of schema and required fields
// in one call. No script is sent to the sandbox twice.
func (d *Definition) compileParts(ctx context.Context, o LintOptions) ([]problem, error) {
	var out []problem
	for _, part := range d.listParts() {
		_, found, err := o.Compiler.Compile(ctx, o.Owner.ID, o.Owner, part.checks)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			located := part.locateProblem(p)
			if file := d.files[located.path]; file != "" {
				located.message = file + ": " + located.message
			}
			out = append(out, located)
		}
	}
	return out, nil
}

// part is one call of the compiler.
type part struct {
	checks validators.Checks
	// fields and schema are the paths of both in the definition; scripts carry their path as
	// their name.
	fields, schema string
}

func (p part) locateProblem(found validators.Problem) problem {
	switch found.Part {
	case "requiredFields":
		return problem{badField, p.fields + found.Path, found.Message}
	case "schema":
		return problem{badSchema, p.schema + found.Path, "the schema does not compile: " + found.Message}
	}
	message := "the script does not compile: " + found.Message
	switch {
	case found.Ran:
		message = "the script compiles, but fails its trial run on {}: " + found.Message
	case found.Line > 0:
		message = fmt.Sprintf("the script does not compile at its line %d, column %d: %s", found.Line, found.Column, found.Message)
	}
	return problem{badScript, found.Part, message}
}

// SchemaPlace describes where a schema of a definition runs.
type SchemaPlace struct {
	// Path and Line locate the schema, as in an Issue.
	Path string `json:"path"`
	Line int    `json:"line,omitempty"`
	// Sandbox is false if the schema runs in gavel's own process.
	Sandbox bool `json:"sandbox"`
	// Why is a clause that begins with "it".
	Why string `json:"why"`
}

// ListSchemas returns for each schema where it runs when owner loads the definition.
func (d *Definition) ListSchemas(owner validators.Owner) []SchemaPlace {
	out := []SchemaPlace{}
	for _, part := range d.listParts() {
		if len(part.checks.Schema) == 0 {
			continue
		}
		place := SchemaPlace{Path: part.schema, Line: d.FindLine(part.schema), Why: validators.FindSandboxing(owner, part.checks.Schema)}
		if place.Sandbox = place.Why != ""; !place.Sandbox {
			place.Why = "its running time is proportional to the data"
		}
		out = append(out, place)
	}
	return out
}

// listConditions returns the conditions of the criteria in settings, which may be nil.
func listConditions(s *JudgeSettings, at string) (out []script.Script) {
	if s == nil {
		return nil
	}
	for i, text := range s.Criteria {
		if when := s.Terms[text].When; when != "" {
			out = append(out, script.Script{Name: fmt.Sprintf("%s/criteria/%d/when", at, i), Kind: script.Condition, Source: when})
		}
	}
	return out
}

func (d *Definition) listParts() []part {
	var out []part
	add := func(fields []string, schema json.RawMessage, at string, schemaKey string) {
		if len(fields) > 0 || len(schema) > 0 {
			out = append(out, part{
				checks: validators.Checks{RequiredFields: fields, Schema: schema},
				fields: at + "/requiredFields", schema: at + "/" + schemaKey,
			})
		}
	}
	add(nil, d.InputSchema, "", "inputSchema")
	var scripts validators.Checks
	d.visitTransitions(func(s *State, t *Transition) {
		at := transitionPath(s.Name, t.Action)
		add(t.RequiredFields, t.Schema, at, "schema")
		if t.Validator != "" {
			scripts.Validators = append(scripts.Validators, script.Script{Name: at + "/validator", Kind: script.Validator, Source: t.Validator})
		}
		scripts.Validators = append(scripts.Validators, listConditions(&t.Judge, at)...)
		if !t.Conditional() {
			return
		}
		for i, r := range t.Routes {
			scripts.Routes = append(scripts.Routes, script.Script{Name: d.routePath(s, t, i, "condition"), Kind: script.Condition, Source: r.Condition})
		}
	})
	scripts.Validators = append(scripts.Validators, listConditions(d.Judge, "/judgeConfig")...)
	for _, state := range sortedKeys(d.StateValidators) {
		v := d.StateValidators[state]
		add(v.RequiredFields, v.Schema, joinPointer("/stateValidators", state), "schema")
	}
	for _, name := range sortedKeys(d.TransitionValidators) {
		scripts.Validators = append(scripts.Validators, script.Script{
			Name: joinPointer("/transitionValidators", name), Kind: script.Validator, Source: d.TransitionValidators[name],
		})
	}
	if len(scripts.Validators)+len(scripts.Routes) > 0 {
		out = append(out, part{checks: scripts})
	}
	return out
}
