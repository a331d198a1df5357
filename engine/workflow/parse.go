package workflow

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Parse reads a definition in JSON or YAML. source is the document's name for messages; its
// extension selects the format if the text is ambiguous. Nothing is ignored: Parse rejects unknown
// keys, values of the wrong kind and documents that could be read in two ways.
//
// The error is a *ParseError with all problems. A definition that parses may still make no sense:
// see Lint.
func Parse(source string, doc []byte) (*Definition, error) { return ParseWithFiles(source, doc, nil) }

// Files reads a file that a definition names by a slash-separated path below the definition's own
// folder, valid as in fs.ValidPath. It must not leave that folder.
type Files func(name string) ([]byte, error)

// ParseWithFiles is Parse for a definition that an operator loads from disk. It replaces
// {file: NAME}, in place of a validator or a criterion, by the text of that file before anything
// else reads it, so that Document and Hash include the text. With nil files, such an object is
// rejected.
func ParseWithFiles(source string, doc []byte, files Files) (*Definition, error) {
	root, err := document.Parse(chooseName(source, doc), doc, document.Limits{Bytes: MaxDefinition})
	if err != nil {
		return nil, &ParseError{Source: source, Issues: convertIssues(err)}
	}
	p := parser{ObjectReader: document.NewObject(root), files: files, inlined: map[string]string{}}
	d := p.parseDocument(root)
	if issues := append(convertIssues(p.Err()), p.issues...); len(issues) > 0 {
		sortIssues(issues)
		return nil, &ParseError{Source: source, Issues: limitIssues(issues, p.dropped)}
	}
	sum := sha256.Sum256(root.Canonical())
	d.Hash = "sha256:" + hex.EncodeToString(sum[:])
	if d.Document = root.JSON(); len(d.Document) > MaxDefinition { // it is read again from there
		return nil, &ParseError{Source: source, Issues: []Issue{{
			Rule: "size", Severity: SeverityError, Message: fmt.Sprintf("the definition has %d bytes as JSON; at most %d are allowed", len(d.Document), MaxDefinition),
		}}}
	}
	d.lines, d.files = root.Lines(), p.inlined
	d.masks = newMaskTree(d.Sensitive)
	return d, nil
}

// chooseName makes the reader treat JSON as JSON whatever its name: a workflow may be
// called "release.yaml".
func chooseName(source string, doc []byte) string {
	if json.Valid(doc) {
		return "definition.json"
	}
	return source
}

func convertIssues(err error) []Issue {
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

// maxIssues limits a report; further issues are counted, not listed.
const maxIssues = 50

func limitIssues(issues []Issue, dropped int) []Issue {
	listed := issues[:min(len(issues), maxIssues):min(len(issues), maxIssues)]
	if dropped += len(issues) - len(listed); dropped == 0 {
		return listed
	}
	return append(listed, Issue{Rule: "size", Severity: SeverityError, Message: fmt.Sprintf("and %d more", dropped)})
}

// parser reads one document. The embedded reader collects wrong types, issues collects
// everything else.
type parser struct {
	*document.ObjectReader
	issues  []Issue
	dropped int // issues beyond maxCollected
	files   Files
	inlined map[string]string // JSON pointer -> name of the file whose text is there
}

// maxCollected limits the collected issues. It is higher than maxIssues, so that the report
// includes those of the first lines.
const maxCollected = 4 * maxIssues

// maxPath is the length of an issue's path above which its keys are truncated.
const maxPath = 1 << 10

func (p *parser) addIssue(rule string, n *document.Node, line int, format string, args ...any) {
	if len(p.issues) == maxCollected {
		p.dropped++
		return
	}
	path := n.Path()
	if len(path) > maxPath {
		path = n.ShownPath()
	}
	p.issues = append(p.issues, Issue{
		Rule: rule, Severity: SeverityError, Path: path, Line: line, Message: fmt.Sprintf(format, args...),
	})
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
		what, expected := notSupported[m.Key]
		switch {
		case slices.Contains(known, m.Key):
		case expected:
			p.addIssue("not-supported", m.Value, m.Line, "the key %q (%s) is not supported; remove it", m.Key, what)
		default:
			p.addIssue("unknown-key", m.Value, m.Line, "unknown key %s%s", quoteName(m.Key), suggestName(m.Key, known))
		}
	}
	o.Require(g.required...)
}

var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`) })

func (p *parser) parseDocument(root *document.Node) *Definition {
	o := p.ObjectReader
	p.checkKeys(o, &documentObject)
	_ = o.String("$schema") // for editors
	d := &Definition{
		Name: o.String("name"), Description: o.String("description"), Comment: o.String("comment"),
		Tags: o.StringMap("tags"), InitialState: p.parseLabel(o, "initialState"), InputSchema: p.parseSchema(o, "inputSchema"),
		Sensitive: o.Strings("sensitive"),
		States:    map[string]*State{},
	}
	if n := o.Value("name"); n != nil && n.Kind == document.String && !namePattern().MatchString(d.Name) {
		p.rejectValue(n, "the name must be 1 to %d letters, digits, dots, underscores or hyphens; for example %q", MaxName, SuggestNames(d.Name)[0])
	}
	for _, m := range o.Entries("states") {
		p.checkLabel(m.Key, m.Value, "the state name")
		d.States[m.Key] = p.parseState(m.Key, o.Sub(m.Value))
		d.StateNames = append(d.StateNames, m.Key)
	}
	if n := root.Get("states"); n != nil && n.Kind == document.Object && len(n.Members) == 0 {
		p.rejectValue(n, "a workflow needs at least one state")
	}
	if o.Has("judgeConfig") {
		c := o.Object("judgeConfig")
		p.checkKeys(c, &judgeObject)
		s := p.parseSettings(c)
		d.Judge = &s
	}
	p.parseKeyedSections(d)
	d.Retention = p.parseRetention(o)
	d.Access = o.Enum("access", AccessShared)
	d.Agents = p.parseAgents(o)
	return d
}

func (p *parser) parseKeyedSections(d *Definition) {
	o := p.ObjectReader
	if o.Has("stateValidators") {
		d.StateValidators = map[string]StateChecks{}
	}
	for _, m := range o.Entries("stateValidators") {
		c := o.Sub(m.Value)
		p.checkKeys(c, &stateValidatorObject)
		d.StateValidators[m.Key] = StateChecks{RequiredFields: p.parseNames(c, "requiredFields"), Schema: p.parseSchema(c, "schema")}
	}
	if o.Has("transitionValidators") {
		d.TransitionValidators = map[string]string{}
	}
	scripts := o.Object("transitionValidators")
	for _, key := range scripts.Node().Keys() {
		d.TransitionValidators[key] = p.parseValidator(scripts, key)
	}
	if o.Has("mustPassThrough") {
		d.MustPassThrough = map[string][]string{}
	}
	must := o.Object("mustPassThrough")
	for _, key := range must.Node().Keys() {
		d.MustPassThrough[key] = p.parseNames(must, key)
	}
}

func (p *parser) parseState(name string, o *document.ObjectReader) *State {
	p.checkKeys(o, &stateObject)
	s := &State{
		Name: name, Description: o.String("description"), Final: o.Bool("final"), Outcome: p.parseLabel(o, "outcome"),
		Transitions: map[string]*Transition{}, Added: p.parseAdded(o),
	}
	for _, m := range o.Entries("transitions") {
		p.checkLabel(m.Key, m.Value, "the action name")
		s.Transitions[m.Key] = p.parseTransition(m.Key, m.Value)
		s.Actions = append(s.Actions, m.Key)
	}
	return s
}

// parseTransition reads the three forms: a state name, a list of routes, an object.
func (p *parser) parseTransition(action string, n *document.Node) *Transition {
	t := &Transition{Action: action}
	if n.Kind != document.Object {
		t.Routes = p.parseTarget(n, "a state, a list of routes or an object")
		return t
	}
	o := p.Sub(n)
	p.checkKeys(o, &transitionObject)
	t.Description = o.String("description")
	t.RequiredFields = p.parseNames(o, "requiredFields")
	t.Schema = p.parseSchema(o, "schema")
	t.Validator = p.parseValidator(o, "validator")
	t.Judge = p.parseSettings(o)
	t.Reference, t.Exemplars = p.parseReference(o), p.parseExemplars(o)
	t.ExemplarsFrom = o.Enum("exemplarsFrom", judge.FromHistory)
	t.Roles = p.parseRoles(o)
	t.NotBy = p.rejectEmpty(o.OneOrMore("notBy"), o.Value("notBy"))
	t.Writes = p.parseNames(o, "writes")
	t.Freezes = o.Strings("freezes")
	t.Evidence = p.parseEvidence(o)
	if v := o.Value("target"); v != nil {
		t.Routes = p.parseTarget(v, "a state or a list of routes")
	}
	return t
}

// maxReference is the maximum length of a reference in characters: every prompt includes it.
const maxReference = 4000

func (p *parser) parseReference(o *document.ObjectReader) string {
	text := o.String("reference")
	if len([]rune(text)) > maxReference {
		p.rejectValue(o.Value("reference"), "the reference has more than %d characters; shorten it", maxReference)
	}
	return text
}

func (p *parser) parseExemplars(o *document.ObjectReader) []judge.Exemplar {
	items := o.Items("exemplars")
	if len(items) > judge.MaxExemplars {
		p.rejectValue(o.Value("exemplars"), "a transition may have at most %d exemplars", judge.MaxExemplars)
	}
	var out []judge.Exemplar
	for _, item := range items {
		e := p.Sub(item)
		p.checkKeys(e, &exemplarObject)
		one := judge.Exemplar{Why: e.String("why")}
		if outcome := parseEnum(e, "outcome", judge.Approve, judge.Reject); outcome != nil {
			one.Outcome = *outcome
		}
		if e.Object("data").Node() != nil {
			one.Data = e.Raw("data")
		}
		out = append(out, one)
	}
	return out
}

func (p *parser) parseTarget(n *document.Node, want string) []Route {
	switch n.Kind {
	case document.String:
		p.checkLabel(n.Text, n, "the state name")
		return []Route{{Target: n.Text}}
	case document.Array:
		if len(n.Items) == 0 {
			p.rejectValue(n, "a list of routes needs at least one route")
		}
		routes := make([]Route, 0, len(n.Items))
		for _, item := range n.Items {
			routes = append(routes, p.parseRoute(item))
		}
		return routes
	}
	p.addIssue("type", n, n.Line, "expected %s, got %s", want, n.Kind)
	return nil
}

func (p *parser) parseRoute(n *document.Node) Route {
	o := p.Sub(n)
	p.checkKeys(o, &routeObject)
	return Route{Condition: p.parseScript(o, "condition"), Target: p.parseLabel(o, "target"), Description: o.String("description")}
}

func (p *parser) parseSettings(o *document.ObjectReader) JudgeSettings {
	s := JudgeSettings{
		Enabled: o.BoolPtr("enabled"), UseLLM: o.BoolPtr("useLLM"), StrictMode: o.BoolPtr("strictMode"),
		MinConfidence:      o.FloatPtr("minConfidence"),
		Mode:               parseEnum(o, "mode", judge.Enforce, judge.Shadow),
		OnJudgeUnavailable: parseEnum(o, "onJudgeUnavailable", judge.UnavailableEscalate, judge.UnavailableStructural, judge.UnavailableReject),
		RequireAssurance:   parseEnum(o, "requireAssurance", Assurances...),
		Risk:               parseEnum(o, "risk", "normal", judge.RiskHigh),
		Content:            parseEnum(o, "content", "flag", judge.ContentEscalate, judge.ContentReject),
		Model:              o.StringPtr("model"),
		Samples:            o.IntPtr("samples"),
		OnEvidenceMissing:  parseEnum(o, "onEvidenceMissing", judge.Reject, judge.Escalate),
		Review:             p.parseReview(o),
	}
	p.parseCriteria(o, &s)
	s.Panel = p.parsePanel(o)
	if n := s.Samples; n != nil && (*n < 1 || *n > judge.MaxSamples || *n%2 == 0) {
		p.rejectValue(o.Value("samples"), "samples must be an odd number from 1 to %d", judge.MaxSamples)
	}
	if s.MinConfidence != nil && (*s.MinConfidence < 0 || *s.MinConfidence > 1) {
		p.rejectValue(o.Value("minConfidence"), "minConfidence must be from 0 to 1")
	}
	if s.Risk != nil && *s.Risk == "normal" {
		normal := judge.RiskNormal
		s.Risk = &normal
	}
	if s.Content != nil && *s.Content == "flag" {
		s.Content = new(judge.ContentFlag)
	}
	if s.Model != nil && *s.Model == "" {
		p.rejectValue(o.Value("model"), "the model name is empty; leave the key out for the default model")
	}
	return s
}

func (p *parser) parsePanel(o *document.ObjectReader) *judge.Panel {
	if !o.Has("panel") {
		return nil
	}
	s := o.Object("panel")
	p.checkKeys(s, &panelObject)
	if s.Node() == nil {
		return nil
	}
	panel := &judge.Panel{Models: s.Strings("models"), Rule: judge.PanelRule(s.Enum("rule", string(judge.RuleAll), string(judge.RuleMajority)))}
	if err := panel.Validate(); err != nil && s.Has("models") {
		p.rejectValue(s.Node(), "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	for _, other := range []string{"model", "samples"} {
		if o.Has(other) {
			p.rejectValue(o.Value(other), "a panel replaces %s; remove one of the two", other)
		}
	}
	return panel
}

// Assurances lists the levels that a definition may require, in rising order.
var Assurances = []judge.Assurance{
	judge.AssuranceNone, judge.AssuranceStructural, judge.AssuranceValidators,
	judge.AssuranceLLM, judge.AssuranceLLMCalibrated, judge.AssuranceHuman,
}

// parseEnum reads a value from a fixed set of words, nil if absent or wrong.
func parseEnum[T ~string](o *document.ObjectReader, name string, allowed ...T) *T {
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

// parseLabel reads the name of a state or an outcome, "" if absent.
func (p *parser) parseLabel(o *document.ObjectReader, name string) string {
	text := o.String(name)
	if n := o.Value(name); n != nil && n.Kind == document.String {
		p.checkLabel(text, n, quoteName(name))
	}
	return text
}

func (p *parser) checkLabel(text string, n *document.Node, what string) {
	switch {
	case text == "":
		p.rejectValue(n, "%s is empty", what)
	case script.Clean(text, len(text)) != text:
		p.rejectValue(n, "%s contains control or invisible characters; remove them", what)
	case len([]rune(text)) > MaxLabel:
		p.rejectValue(n, "%s has more than %d characters", what, MaxLabel)
	}
}

// parseNames reads a list of non-empty strings, nil if absent.
func (p *parser) parseNames(o *document.ObjectReader, name string) []string {
	return p.rejectEmpty(o.Strings(name), o.Value(name))
}

func (p *parser) rejectEmpty(list []string, n *document.Node) []string {
	if slices.Contains(list, "") {
		p.rejectValue(n, "expected a name, got an empty string; remove it")
	}
	return list
}

// parseSchema reads a JSON Schema, nil if absent. Lint checks whether it compiles.
func (p *parser) parseSchema(o *document.ObjectReader, name string) json.RawMessage {
	if o.Object(name).Node() == nil {
		return nil
	}
	return o.Raw(name)
}

// parseValidator reads the source of a validator, which may be in a file.
func (p *parser) parseValidator(o *document.ObjectReader, name string) string {
	p.inlineFile(o.Value(name))
	return p.parseScript(o, name)
}

// parseCriteria reads a list of criteria into s. Each may be in a file, and each may have a proof and terms.
func (p *parser) parseCriteria(o *document.ObjectReader, s *JudgeSettings) {
	if o.Value("criteria") == nil {
		return
	}
	s.Criteria = []string{}
	for _, item := range o.Items("criteria") {
		var proof judge.Proof
		var terms judge.Terms
		text := item
		if item.Kind == document.Object && item.Get("file") == nil {
			c := p.Sub(item)
			p.checkKeys(c, &criterionObject)
			proof, terms = p.parseProof(c), p.parseTerms(c)
			if text = c.Value("text"); text == nil {
				continue // reported as missing
			}
		}
		p.inlineFile(text)
		plain := proof == (judge.Proof{}) && terms == (judge.Terms{})
		switch {
		case text.Kind != document.String:
			p.addIssue("type", text, text.Line, "expected a string or an object with \"text\", got %s", text.Kind)
			continue
		case text.Text == "":
			p.rejectValue(text, "the criterion is empty; remove it")
		case slices.Contains(s.Criteria, text.Text) && !plain:
			p.rejectValue(text, "the criterion is given twice; keep one, with what belongs to it")
		}
		s.Criteria = append(s.Criteria, text.Text)
		if proof != (judge.Proof{}) {
			s.Proofs = setKey(s.Proofs, text.Text, proof)
		}
		if terms != (judge.Terms{}) {
			s.Terms = setKey(s.Terms, text.Text, terms)
		}
	}
}

func setKey[T any](m map[string]T, key string, value T) map[string]T {
	if m == nil {
		m = map[string]T{}
	}
	m[key] = value
	return m
}

// parseTerms reads what a criterion says besides its text and its proof.
func (p *parser) parseTerms(c *document.ObjectReader) judge.Terms {
	t := judge.Terms{When: p.parseScript(c, "when"), Advisory: c.Bool("advisory"), Each: c.String("each")}
	reject := "each"
	if c.Has("scale") {
		o := c.Object("scale")
		p.checkKeys(o, &scaleObject)
		if o.Node() == nil {
			return t
		}
		t.Scale = &judge.Scale{Grades: o.Strings("grades")}
		setIfPresent(&t.Scale.Of, o.IntPtr("of"))
		setIfPresent(&t.Scale.AtLeast, o.IntPtr("atLeast"))
		reject = "scale"
	}
	if err := t.Validate(); err != nil {
		p.rejectValue(c.Value(reject), "%v", err)
	}
	return t
}

// Limits of a proof.
const (
	maxProofWords   = 50
	maxProofPattern = 500
)

var proofSource = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(data|context|evidence|/(data|context|evidence)/.+)$`)
})

// parseProof reads the proof of a criterion.
func (p *parser) parseProof(c *document.ObjectReader) judge.Proof {
	out := judge.Proof{Basis: c.Enum("basis", judge.BasisEvidence)}
	if !c.Has("proof") {
		return out
	}
	o := c.Object("proof")
	p.checkKeys(o, &proofObject)
	if o.Node() == nil {
		return out
	}
	out.Figure, out.Pattern, out.From = o.Bool("figure"), o.String("pattern"), o.String("from")
	if n := o.IntPtr("minWords"); n != nil {
		if out.MinWords = *n; *n < 1 || *n > maxProofWords {
			p.rejectValue(o.Value("minWords"), "minWords must be from 1 to %d", maxProofWords)
		}
	}
	if _, err := regexp.Compile(out.Pattern); err != nil {
		p.rejectValue(o.Value("pattern"), "the pattern is not a valid regular expression (RE2): %v", err)
	} else if len(out.Pattern) > maxProofPattern {
		p.rejectValue(o.Value("pattern"), "the pattern has %d bytes; at most %d are allowed", len(out.Pattern), maxProofPattern)
	}
	source, _, _ := strings.Cut(strings.TrimPrefix(out.From, "/"), "/")
	switch {
	case out.From == "":
	case !proofSource().MatchString(out.From):
		p.rejectValue(o.Value("from"), "from must be data, context or evidence, or a JSON pointer into one, such as /data/comments")
	case out.Basis == judge.BasisEvidence && source != judge.BasisEvidence:
		p.rejectValue(o.Value("from"), "basis is evidence, so a quote from %s proves nothing; remove one of the two", out.From)
	}
	return out
}

// inlineFile replaces {file: NAME} with the text of the file.
func (p *parser) inlineFile(n *document.Node) {
	if n == nil || n.Kind != document.Object {
		return
	}
	o := p.Sub(n)
	p.checkKeys(o, &fileObject)
	name, text := o.String("file"), ""
	reject := func(format string, args ...any) { p.addIssue("file", n, n.Line, format, args...) }
	switch {
	case name == "":
		if file := n.Get("file"); file != nil && file.Kind == document.String {
			reject("\"file\" is empty; name a file, such as checks/release.js")
		}
	case p.files == nil:
		reject("only a definition that an operator loads from disk can name a file; write the text of %s here", quoteName(name))
	case !fs.ValidPath(name) || strings.Contains(name, `\`):
		reject("%s is not a path below the definition's folder; write it without \"..\", \".\" and a leading slash, such as checks/release.js", quoteName(name))
	default:
		raw, err := p.files(name)
		switch text = strings.TrimRight(strings.ReplaceAll(string(raw), "\r\n", "\n"), " \t\n"); {
		case err != nil:
			reject("cannot read the file %s: %v", quoteName(name), err)
		case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
			reject("the file %s is not UTF-8 text", quoteName(name))
		case text == "":
			reject("the file %s is empty", quoteName(name))
		}
	}
	p.inlined[n.Path()] = name
	n.Kind, n.Text, n.Members = document.String, cmp.Or(text, "file"), nil // prevents further issues about it
}

// parseScript reads the source of a validator or condition, "" if absent.
func (p *parser) parseScript(o *document.ObjectReader, name string) string {
	text := o.String(name)
	if n := o.Value(name); n != nil {
		p.checkScript(n)
	}
	return text
}

func (p *parser) checkScript(n *document.Node) {
	switch {
	case n.Kind != document.String: // reported by the reader
	case n.Text == "":
		p.rejectValue(n, "the script is empty")
	case len(n.Text) > MaxScript:
		p.addIssue("size", n, n.Line, "the script has %d bytes; at most %d are allowed", len(n.Text), MaxScript)
	}
}

func (p *parser) parseRoles(o *document.ObjectReader) []string {
	list := o.Strings("roles")
	if list != nil && len(list) == 0 {
		p.rejectValue(o.Value("roles"), "roles is empty: name a role, or leave the key out")
	}
	for i, role := range list {
		if n := o.Value("roles"); !slices.Contains(Roles, role) && role != RoleInterpreter && i < len(n.Items) {
			p.rejectValue(n.Items[i], "unknown role %s%s", quoteName(role), suggestName(role, Roles))
		}
	}
	return list
}
