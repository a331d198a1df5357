package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// parseYAML reads YAML in two steps. The library builds its tree, in time linear in the length of the text.
// The tree is then written as JSON, which is read under this package's rules.
func parseYAML(src []byte, limits Limits) (n *Node, issue *Issue) {
	defer func() {
		// The parser's state does not outlive the call, so a panic of the library can be reported as a syntax
		// error.
		if recover() != nil {
			n, issue = nil, &Issue{Rule: RuleSyntax, Message: "this is not well-formed YAML"}
		}
	}()
	if issue := refuseDirectives(src); issue != nil {
		return nil, issue
	}
	tooDeep := false // the library stops at a depth that no acceptable document reaches
	guard := loaderlimits.New(loaderlimits.DepthFunc(func(depth int, _ *loaderlimits.DepthContext) error {
		if tooDeep = depth > 2*limits.Depth+16; tooDeep {
			return errDepth
		}
		return nil
	}))
	loader, err := yaml.NewLoader(bytes.NewReader(src), yaml.WithPlugin(guard))
	if err != nil {
		return nil, &Issue{Rule: RuleSyntax, Message: err.Error()}
	}
	var doc, second yaml.Node
	if err := loader.Load(&doc); errors.Is(err, io.EOF) {
		return nil, &Issue{Rule: RuleSyntax, Line: 1, Column: 1, Message: "the document is empty"}
	} else if err != nil {
		return nil, describeSyntax(src, err, tooDeep, limits)
	}
	if err := loader.Load(&second); err == nil {
		return nil, &Issue{Rule: RuleUnsupported, Line: second.Line, Column: second.Column, Message: "a second document begins here; put each document in its own file"}
	} else if !errors.Is(err, io.EOF) {
		return nil, describeSyntax(src, err, tooDeep, limits)
	}
	f := flattener{src: src, line: 1, column: 1}
	f.writeValue(doc.Content[0])
	limits.Bytes = math.MaxInt32
	n, issue = parseTree(f.text, limits, f.places)
	if issue != nil {
		issue.Line, issue.Column = f.locate(issue.offset)
		if f.fault != nil && issue.Rule == RuleSyntax { // at the point where f.text breaks off
			issue.Rule, issue.Message = f.fault.Rule, f.fault.Message
		}
	}
	return n, issue
}

// refuseDirectives rejects text that begins with a directive, because the library's time is quadratic in the
// number of %TAG directives.
func refuseDirectives(src []byte) *Issue {
	for line := 1; len(src) > 0; line++ {
		this, rest, _ := bytes.Cut(src, []byte("\n"))
		if len(this) > 0 && this[0] == '%' {
			return &Issue{Rule: RuleUnsupported, Line: line, Column: 1, Message: "directives (%NAME) are not supported"}
		}
		if text := bytes.TrimSpace(this); len(text) > 0 && text[0] != '#' {
			return nil
		}
		src = rest
	}
	return nil
}

var errDepth = errors.New("nested too deep")

// describeSyntax converts an error of the library into an Issue.
func describeSyntax(src []byte, err error, tooDeep bool, limits Limits) *Issue {
	var known *yaml.LoadError
	if !errors.As(err, &known) {
		return &Issue{Rule: RuleSyntax, Message: "this is not well-formed YAML"}
	}
	mark := known.Mark
	if known.ContextMark.Line > 0 && !strings.Contains(known.ContextMsg, "block") {
		mark = known.ContextMark // the opening quote or bracket; a block may be the whole document
	}
	issue := &Issue{Rule: RuleSyntax, Line: mark.Line, Column: mark.Column, Message: "not well-formed YAML: " + known.Message}
	switch {
	case tooDeep:
		issue.Rule, issue.Message = RuleDepth, depthMessage(limits.Depth)
		issue.Line, issue.Column = known.Mark.Line, known.Mark.Column
	case isIndentedByTab(src, known.Mark.Line):
		issue.Message = "YAML must not be indented with tabs; use spaces"
		issue.Line, issue.Column = known.Mark.Line, known.Mark.Column
	case known.Stage == yaml.ComposerStage: // aliases are the only names that the composer looks up
		issue.Rule, issue.Message = RuleUnsupported, aliasMessage
	}
	return issue
}

func isIndentedByTab(src []byte, line int) bool {
	lines := bytes.Split(src, []byte("\n"))
	if line < 1 || line > len(lines) {
		return false
	}
	text := lines[line-1]
	return bytes.ContainsRune(text[:len(text)-len(bytes.TrimLeft(text, " \t"))], '\t')
}

// Messages for YAML that JSON cannot express.
const (
	anchorMessage = "anchors (&name) are not supported; write out the value"
	aliasMessage  = "aliases (*name) are not supported; write out the value, or put the text in quotes"
	mergeMessage  = "merge keys (<<) are not supported; write out the keys"
	tagMessage    = "tags (!name) are not supported; put the text in quotes if it is one"
	literalNumber = "this is a number in YAML but not in JSON; write it as a plain decimal, or put it in quotes"
)

// flattener writes the library's tree as JSON text. At the first thing that JSON cannot express it stops in
// the middle of the text, so that the reader fails there and knows the path.
type flattener struct {
	src          []byte // read up to offset, whose position is line and column
	offset       int
	line, column int
	text         []byte
	places       []place // by cell
	fault        *Issue
}

// place maps the offset of a value or key in the JSON text to its line and column in the YAML text.
type place struct{ offset, line, column int }

// refuse makes the JSON text invalid at this point. It returns false so that callers can return it.
func (f *flattener) refuse(format string, args ...any) bool {
	f.fault = &Issue{Rule: RuleUnsupported, Message: fmt.Sprintf(format, args...)}
	f.text = append(f.text, '!')
	return false
}

// locate returns the position of the last value or key that begins at or before an offset of the JSON text.
func (f *flattener) locate(offset int) (line, column int) {
	i, found := slices.BinarySearchFunc(f.places, offset, func(p place, offset int) int { return p.offset - offset })
	if !found {
		i = max(i-1, 0)
	}
	return f.places[i].line, f.places[i].column
}

// beginNode records the position of a value or key. It refuses nodes that JSON cannot express.
func (f *flattener) beginNode(v *yaml.Node) bool {
	f.places = append(f.places, place{len(f.text), v.Line, v.Column})
	switch {
	case v.Kind == yaml.AliasNode:
		return f.refuse(aliasMessage)
	case v.Anchor != "":
		return f.refuse(anchorMessage)
	case v.Style&yaml.TaggedStyle != 0, f.firstByte(v) == '!': // the style does not include a lone "!"
		return f.refuse(tagMessage)
	}
	return true
}

// firstByte returns the first byte of a node, or 0 if it is not found. Calls must be in the order of the text.
func (f *flattener) firstByte(v *yaml.Node) byte {
	for f.offset < len(f.src) && (f.line < v.Line || f.line == v.Line && f.column < v.Column) {
		c := f.src[f.offset]
		f.offset++
		switch {
		case c == '\n', c == '\r' && (f.offset == len(f.src) || f.src[f.offset] != '\n'):
			f.line, f.column = f.line+1, 1
		case f.offset == len(f.src) || utf8.RuneStart(f.src[f.offset]):
			f.column++
		}
	}
	if f.offset == len(f.src) || f.line != v.Line || f.column != v.Column {
		return 0
	}
	return f.src[f.offset]
}

// writeValue writes one value. It returns false if it stopped early.
func (f *flattener) writeValue(v *yaml.Node) bool {
	if !f.beginNode(v) {
		return false
	}
	switch v.Kind {
	case yaml.MappingNode:
		f.text = append(f.text, '{')
		for i := 0; i+1 < len(v.Content); i += 2 {
			if i > 0 {
				f.text = append(f.text, ',')
			}
			if !f.writeKey(v.Content[i]) {
				return false
			}
			f.text = append(f.text, ':')
			if !f.writeValue(v.Content[i+1]) {
				return false
			}
		}
		f.text = append(f.text, '}')
	case yaml.SequenceNode:
		f.text = append(f.text, '[')
		for i, item := range v.Content {
			if i > 0 {
				f.text = append(f.text, ',')
			}
			if !f.writeValue(item) {
				return false
			}
		}
		f.text = append(f.text, ']')
	case yaml.ScalarNode:
		literal, kind := resolveScalar(v)
		if kind == 0 {
			return f.refuse(literalNumber)
		}
		f.text = append(f.text, literal...)
	default:
		return f.refuse("JSON cannot express this")
	}
	return true
}

func (f *flattener) writeKey(v *yaml.Node) bool {
	if !f.beginNode(v) {
		return false
	}
	if v.Kind != yaml.ScalarNode {
		return f.refuse("a key must be a string, got an object or array")
	}
	literal, kind := resolveScalar(v)
	switch {
	case v.Value == "<<" && v.Style == 0:
		return f.refuse(mergeMessage)
	case kind == 0:
		return f.refuse(literalNumber)
	case kind != String:
		return f.refuse("a key must be a string, got %s; put it in quotes", kind)
	}
	f.text = append(f.text, literal...)
	return true
}

// resolveScalar returns a scalar as JSON, by the core schema of YAML 1.2. The library cannot be used for
// that: it partly follows YAML 1.1. The kind is 0 for a number that has no form in JSON.
func resolveScalar(v *yaml.Node) (literal []byte, kind Kind) {
	if v.Style == 0 {
		switch v.Value {
		case "", "~", "null", "Null", "NULL":
			return []byte("null"), Null
		case "true", "True", "TRUE":
			return []byte("true"), True
		case "false", "False", "FALSE":
			return []byte("false"), False
		}
		literal = []byte(v.Value)
		if end, _ := findNumberEnd(literal, 0); end == len(literal) {
			return literal, Number
		}
		if coreNumber().MatchString(v.Value) {
			return nil, 0
		}
	}
	return AppendQuote(nil, v.Value), String
}

// coreNumber matches all numbers of the core schema, including JSON's.
var coreNumber = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?\.(?i:inf)|\.(?i:nan))$`)
})
