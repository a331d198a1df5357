package workflow

import (
	"context"
	"fmt"
	"strconv"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Compiler compiles schemas and scripts where they can do no harm;
// *validators.Compiler implements it.
type Compiler interface {
	Compile(ctx context.Context, caller string, owner validators.Owner, checks validators.Checks) (*validators.Set, []validators.Problem, error)
}

// LintOptions are what Lint needs beside the definition.
type LintOptions struct {
	// Compiler tells whether schemas and scripts compile. Required.
	Compiler Compiler
	// Owner is who wrote the definition, and who asks.
	Owner validators.Owner
	// Models are the names of the models that an operator configured. None means
	// that useLLM cannot be served.
	Models []string
	// Sources are the names of the configured sources of evidence; nil when unknown, which
	// skips their rule.
	Sources []string
}

// Rule documents one kind of Issue.
type Rule struct {
	// ID is stable.
	ID       string
	Severity Severity
	// Doc is one sentence: what the rule finds.
	Doc string
	// check is nil for the rules of Parse.
	check func(*linter)
}

// Rules are all that Parse and Lint look for, in the order of the reference page.
func Rules() []Rule {
	return append(listParseRules(), listLintRules()...)
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

// Lint finds what parses and cannot work, or may not work as its author expects.
// Issues are in the order of their lines. The error means that linting failed (the
// sandbox is down, ctx ended).
func (d *Definition) Lint(ctx context.Context, o LintOptions) ([]Issue, error) {
	if o.Compiler == nil {
		return nil, fmt.Errorf("lint workflow %q: a Compiler is required", d.Name)
	}
	problems, err := d.compile(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("lint workflow %q: %w", d.Name, err)
	}
	return d.lintProblems(ctx, o, problems)
}

// lintProblems is Lint after, or without, compiling.
func (d *Definition) lintProblems(ctx context.Context, o LintOptions, problems []problem) ([]Issue, error) {
	s := &linter{Definition: d, ended: ctx.Err, graph: newGraph(d), models: o.Models, sources: o.Sources, trusted: o.Owner.Trusted, problems: problems, reads: map[string][]string{}}
	return s.runRules(ctx, listLintRules())
}

func (s *linter) runRules(ctx context.Context, rules []Rule) ([]Issue, error) {
	for _, r := range rules {
		s.rule = r
		s.found = map[string]bool{}
		r.check(s)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("lint workflow %q: %w", s.Name, context.Cause(ctx))
		}
	}
	sortIssues(s.issues)
	return s.issues, nil
}

// linter is a definition under examination. The rules only read it and call add.
type linter struct {
	*Definition
	ended    func() error // the caller's context's
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

// addIssue reports an issue of the current rule, once per path and message. Beyond
// maxIssues of one rule it only says that more are left out.
func (s *linter) addIssue(path, format string, args ...any) {
	if len(s.found) > maxIssues {
		return
	}
	message := fmt.Sprintf(format, args...)
	if len(s.found) == maxIssues {
		message = "further issues of this rule are left out"
	}
	if id := path + "\n" + message; !s.found[id] {
		s.found[id] = true
		s.issues = append(s.issues, Issue{
			Rule: s.rule.ID, Severity: s.rule.Severity, Path: path, Line: s.findLine(path), Message: message,
		})
	}
}

// findLine is that of a path, or of the nearest thing around it.
func (d *Definition) findLine(path string) int {
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

// routePath is where one route's target, or condition, stands.
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

// settingPath is where a judge setting of a transition was written: at the
// transition, else in judgeConfig.
func (d *Definition) settingPath(s *State, t *Transition, key string) string {
	path := joinPointer(transitionPath(s.Name, t.Action), key)
	if _, ok := d.lines[path]; ok {
		return path
	}
	return joinPointer("/judgeConfig", key)
}

// suggestKnown is suggestName, skipped for issues that are left out of the report:
// searching is not free.
func (s *linter) suggestKnown(name string, names []string) string {
	if len(s.found) >= maxIssues {
		return ""
	}
	return suggestName(name, names)
}

// maxCompared is how many known names a wrong one is compared with.
const maxCompared = 500

// suggestName ends a message about an unknown name with the nearest known one, or with
// all of them.
func suggestName(name string, known []string) string {
	if near := document.Suggest(name, known[:min(len(known), maxCompared)]); near != "" {
		return "; did you mean " + quoteName(near) + "?"
	}
	return "; known are " + quoteNames(known)
}
