package workflow

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Evidence is one fact that a transition wants the gate to fetch.
type Evidence struct {
	// Name is a JavaScript identifier: scripts see evidence.<name>.
	Name   string
	Source string
	// Arguments in the order of the document.
	Arguments []Argument
	// Timeout is the limit for the fetch; 0 uses the limit of the source.
	Timeout time.Duration
	// Required is true unless the definition says otherwise.
	Required bool
	MaxAge   time.Duration
}

// Argument is one argument of a request to a source.
type Argument struct {
	Name  string
	value argumentValue
}

// argumentValue is a JSON value whose strings may refer to fields. Exactly one of its fields is set.
type argumentValue struct {
	literal json.RawMessage // as it was written
	parts   []argumentPart  // alternating literal parts and references
	members []Argument      // of an object
	items   []argumentValue // of an array
}

type argumentPart struct {
	text string
	ref  *Reference
}

// Reference names one field of data or context.
type Reference struct {
	Root   string // data or context
	Tokens []string
}

// The limits of evidence.
const (
	// MaxEvidence limits how many facts one transition may fetch.
	MaxEvidence  = 8
	maxArguments = 16
	maxTimeout   = 10 * time.Minute
)

var (
	evidenceNamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`) })
	sourceNamePattern   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`) })
	referencePattern    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{([^{}]*)\}\}`) })
	fieldPathPattern    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(data|context)((?:\.[A-Za-z0-9_-]+)+)$`) })
)

// References returns the fields that the arguments use.
func (e Evidence) References() []Reference { return argumentValue{members: e.Arguments}.references() }

func (v argumentValue) references() (out []Reference) {
	for _, p := range v.parts {
		if p.ref != nil {
			out = append(out, *p.ref)
		}
	}
	for _, m := range v.members {
		out = append(out, m.value.references()...)
	}
	for _, item := range v.items {
		out = append(out, item.references()...)
	}
	return out
}

// UsesContext reports whether an argument refers to the context.
func (e Evidence) UsesContext() bool {
	return slices.ContainsFunc(e.References(), func(r Reference) bool { return r.Root == "context" })
}

// String formats the reference as it is written, such as context.commit.
func (r Reference) String() string { return r.Root + "." + strings.Join(r.Tokens, ".") }

func (e Evidence) buildRequest(c *judge.Case) judge.EvidenceRequest {
	r := judge.EvidenceRequest{Name: e.Name, Source: e.Source, Timeout: e.Timeout, Required: e.Required, MaxAge: e.MaxAge}
	r.Arguments, r.Missing = e.fillArguments(c.Data, c.Context)
	r.MaskedArguments, _ = e.fillArguments(c.MaskedData, c.MaskedContext)
	return r
}

// fillArguments returns the arguments as a JSON object. It also returns the names of those that refer to an absent or
// null field, or to a field that cannot be formatted as text.
func (e Evidence) fillArguments(data, context document.JSON) (json.RawMessage, []string) {
	var missing []string
	out := []byte{'{'}
	for _, a := range e.Arguments {
		next, ok := a.append(out, data, context)
		if !ok {
			missing = append(missing, a.Name)
			continue
		}
		out = next
	}
	return append(out, '}'), missing
}

// append writes the argument as a member of an object.
func (a Argument) append(dst []byte, data, context document.JSON) ([]byte, bool) {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return a.value.append(append(document.AppendQuote(dst, a.Name), ':'), data, context)
}

// append writes the value: a single reference keeps the type of its field; with text around it, it
// becomes part of a string.
func (v argumentValue) append(dst []byte, data, context document.JSON) (_ []byte, ok bool) {
	switch {
	case v.literal != nil:
		return append(dst, v.literal...), true
	case v.members != nil:
		dst, ok = append(dst, '{'), true
		for i := 0; ok && i < len(v.members); i++ {
			dst, ok = v.members[i].append(dst, data, context)
		}
		return append(dst, '}'), ok
	case v.items != nil:
		dst = append(dst, '[')
		for i, item := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, ok = item.append(dst, data, context); !ok {
				return nil, false
			}
		}
		return append(dst, ']'), true
	}
	var text strings.Builder
	for _, p := range v.parts {
		if p.ref == nil {
			text.WriteString(p.text)
			continue
		}
		doc := data
		if p.ref.Root == "context" {
			doc = context
		}
		found := doc.At(p.ref.Tokens...)
		switch kind := found.Kind(); {
		case kind == 0 || kind == document.Null:
			return nil, false
		case len(v.parts) == 1:
			return append(dst, found.Raw()...), true
		case kind == document.Object || kind == document.Array:
			return nil, false
		case kind == document.String:
			text.Write(found.Bytes())
		default:
			text.Write(found.Raw())
		}
	}
	return document.AppendQuote(dst, text.String()), true
}

func (p *parser) parseEvidence(o *document.ObjectReader) []Evidence {
	items := o.Items("evidence")
	if len(items) > MaxEvidence {
		p.rejectValue(o.Value("evidence"), "a transition may request at most %d pieces of evidence", MaxEvidence)
	}
	var out []Evidence
	seen := map[string]bool{}
	for _, item := range items {
		s := p.Sub(item)
		p.checkKeys(s, &evidenceObject)
		e := Evidence{
			Name: s.String("name"), Source: s.String("source"), Required: true,
			Timeout: p.parseDuration(s, "timeout", maxTimeout), MaxAge: p.parseDuration(s, "maxAge", maxDuration),
		}
		if required := s.BoolPtr("required"); required != nil {
			e.Required = *required
		}
		if n := s.Value("name"); n != nil && n.Kind == document.String {
			switch {
			case !evidenceNamePattern().MatchString(e.Name):
				p.rejectValue(n, "an evidence name must be a letter or underscore, then letters, digits and underscores: scripts read it as evidence.name")
			case seen[e.Name]:
				p.rejectValue(n, "duplicate evidence name %s", quoteName(e.Name))
			}
			seen[e.Name] = true
		}
		if n := s.Value("source"); n != nil && n.Kind == document.String && !sourceNamePattern().MatchString(e.Source) {
			p.rejectValue(n, "a source name must be 1 to 64 letters, digits, dots, underscores or hyphens")
		}
		e.Arguments = p.parseArguments(s)
		out = append(out, e)
	}
	return out
}

func (p *parser) parseArguments(o *document.ObjectReader) []Argument {
	entries := o.Entries("arguments")
	if len(entries) > maxArguments {
		p.rejectValue(o.Value("arguments"), "evidence may have at most %d arguments", maxArguments)
	}
	var out []Argument
	for _, m := range entries {
		if !evidenceNamePattern().MatchString(m.Key) {
			p.rejectValue(m.Value, "an argument name must be a letter or underscore, then letters, digits and underscores")
		}
		if m.Value.Kind == document.Null {
			p.rejectValue(m.Value, "an argument must not be null; leave it out, or refer to a field such as \"{{context.commit}}\"")
		}
		out = append(out, Argument{m.Key, p.parseArgument(m.Value)})
	}
	return out
}

func (p *parser) parseArgument(n *document.Node) (v argumentValue) {
	switch n.Kind {
	case document.String:
		parts, err := splitReferences(n.Text)
		if err != nil {
			p.rejectValue(n, "%v", err)
		}
		if len(parts) == 0 || len(parts) == 1 && parts[0].ref == nil {
			return argumentValue{literal: n.JSON()}
		}
		return argumentValue{parts: parts}
	case document.Object:
		v.members = []Argument{}
		for _, m := range n.Members {
			v.members = append(v.members, Argument{m.Key, p.parseArgument(m.Value)})
		}
		return v
	case document.Array:
		v.items = []argumentValue{}
		for _, item := range n.Items {
			v.items = append(v.items, p.parseArgument(item))
		}
		return v
	default:
		return argumentValue{literal: n.JSON()}
	}
}

func splitReferences(text string) ([]argumentPart, error) {
	var out []argumentPart
	at := 0
	for _, m := range referencePattern().FindAllStringSubmatchIndex(text, -1) {
		if m[0] > at {
			out = append(out, argumentPart{text: text[at:m[0]]})
		}
		path := strings.TrimSpace(text[m[2]:m[3]])
		found := fieldPathPattern().FindStringSubmatch(path)
		if found == nil {
			return nil, fmt.Errorf("%s is not a reference: write {{data.field}} or {{context.field}}, with dots between the names of nested fields", quoteName(text[m[0]:m[1]]))
		}
		out = append(out, argumentPart{ref: &Reference{Root: found[1], Tokens: strings.Split(found[2][1:], ".")}})
		at = m[1]
	}
	if rest := text[at:]; rest != "" {
		if strings.Contains(rest, "{{") {
			return nil, fmt.Errorf("the reference in %s is not closed with }}", quoteName(text))
		}
		out = append(out, argumentPart{text: rest})
	}
	return out, nil
}

func (l *linter) visitEvidence(do func(path string, from *State, t *Transition, e Evidence)) {
	l.visitTransitions(func(from *State, t *Transition) {
		for i, e := range t.Evidence {
			do(joinPointer(transitionPath(from.Name, t.Action), "evidence", strconv.Itoa(i)), from, t, e)
		}
	})
}

func checkEvidenceOwner(s *linter) {
	if s.trusted {
		return
	}
	s.visitEvidence(func(path string, _ *State, t *Transition, _ Evidence) {
		s.addIssue(parentPointer(path), "the action %s asks for evidence, which is fetched only for definitions owned by an operator; remove it, or have an operator define the workflow", quoteName(t.Action))
	})
}

func checkSources(s *linter) {
	if s.sources == nil {
		return
	}
	s.visitEvidence(func(path string, _ *State, _ *Transition, e Evidence) {
		if !slices.Contains(s.sources, e.Source) {
			s.addIssue(path+"/source", "no source %s is configured%s; without it the evidence %s cannot be fetched", quoteName(e.Source), s.suggestKnown(e.Source, s.sources), quoteName(e.Name))
		}
	})
}

// checkEvidenceArguments finds evidence whose subject the caller can choose: a caller that can choose the ticket will
// choose an approved one.
func checkEvidenceArguments(s *linter) {
	var frozen []string
	s.visitTransitions(func(_ *State, t *Transition) { frozen = append(frozen, t.Freezes...) })
	s.visitEvidence(func(path string, _ *State, t *Transition, e Evidence) {
		for _, r := range e.References() {
			pointer := joinPointer("", r.Tokens...)
			switch {
			case r.Root == "context" && !isCovered(frozen, r.Tokens):
				s.addIssue(path+"/arguments", "%s takes %s, which no transition freezes, so the caller of an earlier action chooses the lookup; let an earlier transition freeze %s",
					quoteName(e.Name), r, pointer)
			case r.Root == "data" && !slices.Contains(t.RequiredFields, r.Tokens[0]) && len(t.Schema) == 0:
				s.addIssue(path+"/arguments", "%s uses %s, which nothing requires; add %q to requiredFields",
					quoteName(e.Name), r, r.Tokens[0])
			}
		}
	})
}

// isCovered reports whether one of the pointers names the field or an ancestor of it.
func isCovered(pointers, tokens []string) bool {
	return slices.ContainsFunc(pointers, func(p string) bool {
		around, err := splitPointer(p)
		return err == nil && len(around) <= len(tokens) && slices.Equal(around, tokens[:len(around)])
	})
}
