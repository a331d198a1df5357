package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Parse reads a definition, JSON or YAML. source is the document's name for
// messages; where the text does not tell which of the two it is, its extension
// does. Nothing is ignored: an unknown key, a value of the wrong kind and a
// document that could be read in two ways are refused.
//
// The error is a *ParseError with everything that is wrong. What parses may still
// make no sense: see Lint.
func Parse(source string, doc []byte) (*Definition, error) {
	root, err := document.Parse(formName(source, doc), doc, document.Limits{Bytes: MaxDefinition})
	if err != nil {
		return nil, &ParseError{Source: source, Issues: issuesOf(err)}
	}
	p := parser{ObjectReader: document.NewObject(root)}
	d := p.document(root)
	if issues := append(issuesOf(p.Err()), p.issues...); len(issues) > 0 {
		sortIssues(issues)
		return nil, &ParseError{Source: source, Issues: atMost(issues, p.dropped)}
	}
	sum := sha256.Sum256(root.Canonical())
	d.Hash = "sha256:" + hex.EncodeToString(sum[:])
	if d.Document = root.JSON(); len(d.Document) > MaxDefinition { // it is read again from there
		return nil, &ParseError{Source: source, Issues: []Issue{{
			Rule: "size", Severity: SeverityError, Message: fmt.Sprintf("the definition has %d bytes as JSON; at most %d are allowed", len(d.Document), MaxDefinition),
		}}}
	}
	d.lines = root.Lines()
	d.masks = newMaskTree(d.Sensitive)
	return d, nil
}

// formName tells the reader to read what is JSON as JSON, whatever its name says:
// a workflow may be called "release.yaml".
func formName(source string, doc []byte) string {
	if json.Valid(doc) {
		return "definition.json"
	}
	return source
}

// issuesOf turns the issues of the reader into those of this package.
func issuesOf(err error) []Issue {
	if err == nil {
		return nil
	}
	var all document.Errors
	var one *document.Issue
	switch {
	case errors.As(err, &all):
	case errors.As(err, &one):
		all = document.Errors{one}
	default:
		return []Issue{{Rule: "syntax", Severity: SeverityError, Message: err.Error()}}
	}
	out := make([]Issue, len(all))
	for i, s := range all {
		out[i] = Issue{
			Rule:     strings.ReplaceAll(string(s.Rule), "_", "-"),
			Severity: SeverityError, Path: s.Path, Line: s.Line, Message: s.Message,
		}
	}
	return out
}

// maxIssues bounds a report; what comes after is counted, not listed.
const maxIssues = 50

func atMost(issues []Issue, dropped int) []Issue {
	listed := issues[:min(len(issues), maxIssues):min(len(issues), maxIssues)]
	if dropped += len(issues) - len(listed); dropped == 0 {
		return listed
	}
	return append(listed, Issue{Rule: "size", Severity: SeverityError, Message: fmt.Sprintf("and %d more", dropped)})
}

// parser reads one document. The reader collects what is of the wrong kind,
// issues what else is wrong.
type parser struct {
	*document.ObjectReader
	issues  []Issue
	dropped int // issues that nobody would read
}

// mostFound bounds the issues that are collected: more than are listed, so that
// those of the first lines are among them.
const mostFound = 4 * maxIssues

// longestPath is how long the path of an issue may be before its keys are cut.
const longestPath = 1 << 10

func (p *parser) add(rule string, n *document.Node, line int, format string, args ...any) {
	if len(p.issues) == mostFound {
		p.dropped++
		return
	}
	path := n.Path()
	if len(path) > longestPath {
		path = n.ShownPath()
	}
	p.issues = append(p.issues, Issue{
		Rule: rule, Severity: SeverityError, Path: path, Line: line, Message: fmt.Sprintf(format, args...),
	})
}

func (p *parser) refuse(n *document.Node, format string, args ...any) {
	p.add("value", n, n.Line, format, args...)
}

// only refuses the keys that the grammar does not know and misses those that it
// demands.
func (p *parser) only(o *document.ObjectReader, g *object) {
	if o.Node() == nil {
		return
	}
	known := g.names()
	for _, m := range o.Node().Members {
		what, expected := notSupported[m.Key]
		switch {
		case slices.Contains(known, m.Key):
		case expected:
			p.add("not-supported", m.Value, m.Line, "the key %q is not supported: this judge does without %s", m.Key, what)
		default:
			p.add("unknown-key", m.Value, m.Line, "unknown key %s%s", shown(m.Key), didYouMean(m.Key, known))
		}
	}
	o.Require(g.required...)
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func (p *parser) document(root *document.Node) *Definition {
	o := p.ObjectReader
	p.only(o, &documentObject)
	d := &Definition{
		Name: o.String("name"), Description: o.String("description"), Comment: o.String("comment"),
		Tags: o.StringMap("tags"), InitialState: p.label(o, "initialState"), InputSchema: p.schema(o, "inputSchema"),
		Sensitive: o.Strings("sensitive"),
		States:    map[string]*State{},
	}
	if n := o.Value("name"); n != nil && n.Kind == document.String && !nameForm.MatchString(d.Name) {
		p.refuse(n, "the name must be 1 to %d letters, digits, dots, underscores or hyphens", MaxName)
	}
	for _, m := range o.Entries("states") {
		p.isLabel(m.Key, m.Value, "the name of a state")
		d.States[m.Key] = p.state(m.Key, o.Sub(m.Value))
		d.StateNames = append(d.StateNames, m.Key)
	}
	if n := root.Get("states"); n != nil && n.Kind == document.Object && len(n.Members) == 0 {
		p.refuse(n, "a workflow has at least one state")
	}
	if o.Has("judgeConfig") {
		c := o.Object("judgeConfig")
		p.only(c, &judgeObject)
		s := p.settings(c)
		d.Judge = &s
	}
	p.keyed(d)
	d.Retention = p.retention(o)
	return d
}

// keyed reads the sections whose keys are names of states and actions.
func (p *parser) keyed(d *Definition) {
	o := p.ObjectReader
	if o.Has("stateValidators") {
		d.StateValidators = map[string]StateChecks{}
	}
	for _, m := range o.Entries("stateValidators") {
		c := o.Sub(m.Value)
		p.only(c, &stateValidatorObject)
		d.StateValidators[m.Key] = StateChecks{RequiredFields: p.names(c, "requiredFields"), Schema: p.schema(c, "schema")}
	}
	if o.Has("transitionValidators") {
		d.TransitionValidators = map[string]string{}
	}
	scripts := o.Object("transitionValidators")
	for _, key := range scripts.Node().Keys() {
		d.TransitionValidators[key] = p.script(scripts, key)
	}
	if o.Has("mustPassThrough") {
		d.MustPassThrough = map[string][]string{}
	}
	must := o.Object("mustPassThrough")
	for _, key := range must.Node().Keys() {
		d.MustPassThrough[key] = p.names(must, key)
	}
}

func (p *parser) state(name string, o *document.ObjectReader) *State {
	p.only(o, &stateObject)
	s := &State{
		Name: name, Description: o.String("description"), Final: o.Bool("final"), Outcome: p.label(o, "outcome"),
		Transitions: map[string]*Transition{},
	}
	for _, m := range o.Entries("transitions") {
		p.isLabel(m.Key, m.Value, "the name of an action")
		s.Transitions[m.Key] = p.transition(m.Key, m.Value)
		s.Actions = append(s.Actions, m.Key)
	}
	return s
}

// transition reads the three forms: a state, a list of routes, an object.
func (p *parser) transition(action string, n *document.Node) *Transition {
	t := &Transition{Action: action}
	if n.Kind != document.Object {
		t.Routes = p.target(n, "a state, a list of routes or an object")
		return t
	}
	o := p.Sub(n)
	p.only(o, &transitionObject)
	t.Description = o.String("description")
	t.RequiredFields = p.names(o, "requiredFields")
	t.Schema = p.schema(o, "schema")
	t.Validator = p.script(o, "validator")
	t.Judge = p.settings(o)
	t.Reference, t.Exemplars = p.reference(o), p.exemplars(o)
	t.Roles = p.roles(o)
	t.NotBy = p.filled(o.OneOrMore("notBy"), o.Value("notBy"))
	t.Writes = p.names(o, "writes")
	t.Freezes = o.Strings("freezes")
	t.Evidence = p.evidence(o)
	if v := o.Value("target"); v != nil {
		t.Routes = p.target(v, "a state or a list of routes")
	}
	return t
}

// maxReference is the longest reference in characters: every prompt holds it.
const maxReference = 4000

func (p *parser) reference(o *document.ObjectReader) string {
	text := o.String("reference")
	if len([]rune(text)) > maxReference {
		p.refuse(o.Value("reference"), "the reference has more than %d characters", maxReference)
	}
	return text
}

func (p *parser) exemplars(o *document.ObjectReader) []judge.Exemplar {
	items := o.Items("exemplars")
	if len(items) > judge.MaxExemplars {
		p.refuse(o.Value("exemplars"), "a transition has at most %d exemplars", judge.MaxExemplars)
	}
	var out []judge.Exemplar
	for _, item := range items {
		e := p.Sub(item)
		p.only(e, &exemplarObject)
		one := judge.Exemplar{Why: e.String("why")}
		if outcome := enum(e, "outcome", judge.Approve, judge.Reject); outcome != nil {
			one.Outcome = *outcome
		}
		if e.Object("data").Node() != nil {
			one.Data = e.Raw("data")
		}
		out = append(out, one)
	}
	return out
}

// target reads where a transition leads.
func (p *parser) target(n *document.Node, want string) []Route {
	switch n.Kind {
	case document.String:
		p.isLabel(n.Text, n, "the name of a state")
		return []Route{{Target: n.Text}}
	case document.Array:
		if len(n.Items) == 0 {
			p.refuse(n, "a list of routes has at least one")
		}
		routes := make([]Route, 0, len(n.Items))
		for _, item := range n.Items {
			routes = append(routes, p.route(item))
		}
		return routes
	}
	p.add("type", n, n.Line, "%s is expected, found %s", want, n.Kind)
	return nil
}

func (p *parser) route(n *document.Node) Route {
	o := p.Sub(n)
	p.only(o, &routeObject)
	return Route{Condition: p.script(o, "condition"), Target: p.label(o, "target"), Description: o.String("description")}
}

func (p *parser) settings(o *document.ObjectReader) JudgeSettings {
	s := JudgeSettings{
		Enabled: o.BoolPtr("enabled"), UseLLM: o.BoolPtr("useLLM"), StrictMode: o.BoolPtr("strictMode"),
		MinConfidence:      o.FloatPtr("minConfidence"),
		Mode:               enum(o, "mode", judge.Enforce, judge.Shadow),
		OnJudgeUnavailable: enum(o, "onJudgeUnavailable", judge.UnavailableEscalate, judge.UnavailableStructural, judge.UnavailableReject),
		RequireAssurance:   enum(o, "requireAssurance", assurances...),
		Risk:               enum(o, "risk", "normal", judge.RiskHigh),
		Criteria:           p.names(o, "criteria"),
		Model:              o.StringPtr("model"),
		Samples:            o.IntPtr("samples"),
		OnEvidenceMissing:  enum(o, "onEvidenceMissing", judge.Reject, judge.Escalate),
		Review:             p.review(o),
	}
	if n := s.Samples; n != nil && (*n < 1 || *n > judge.MaxSamples || *n%2 == 0) {
		p.refuse(o.Value("samples"), "samples is an odd number from 1 to %d", judge.MaxSamples)
	}
	if s.MinConfidence != nil && (*s.MinConfidence < 0 || *s.MinConfidence > 1) {
		p.refuse(o.Value("minConfidence"), "minConfidence must be from 0 to 1")
	}
	if s.Risk != nil && *s.Risk == "normal" {
		normal := judge.RiskNormal
		s.Risk = &normal
	}
	if s.Model != nil && *s.Model == "" {
		p.refuse(o.Value("model"), "the name of a model is empty")
	}
	return s
}

// assurances in rising order.
var assurances = []judge.Assurance{
	judge.AssuranceNone, judge.AssuranceStructural, judge.AssuranceValidators,
	judge.AssuranceLLM, judge.AssuranceLLMCalibrated, judge.AssuranceHuman,
}

// enum reads one of a few words, nil when absent or wrong.
func enum[T ~string](o *document.ObjectReader, name string, allowed ...T) *T {
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	text := o.Enum(name, words...)
	if text == "" {
		return nil
	}
	v := T(text)
	return &v
}
