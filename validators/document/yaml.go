package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// parseYAML reads YAML in two steps: the library builds its tree, in time linear
// in the length of the text, and the tree is turned into ours under the rules of
// JSON.
func parseYAML(src []byte, limits Limits) (n *Node, issue *Issue) {
	defer func() {
		// Nothing outlives the call, so a panic of the library is a syntax error.
		if recover() != nil {
			n, issue = nil, &Issue{Rule: RuleSyntax, Message: "this is not well-formed YAML"}
		}
	}()
	if issue := refuseDirectives(src); issue != nil {
		return nil, issue
	}
	depth := &depthGuard{most: 2*limits.Depth + 16}
	loader, err := yaml.NewLoader(bytes.NewReader(src), yaml.WithPlugin(depth))
	if err != nil {
		return nil, &Issue{Rule: RuleSyntax, Message: err.Error()}
	}
	var doc, second yaml.Node
	if err := loader.Load(&doc); errors.Is(err, io.EOF) {
		return nil, &Issue{Rule: RuleSyntax, Line: 1, Column: 1, Message: "the document is empty"}
	} else if err != nil {
		return nil, yamlSyntax(err, depth, limits)
	}
	if err := loader.Load(&second); err == nil {
		return nil, at(&second, RuleUnsupported, "there is a second document; one file holds one")
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlSyntax(err, depth, limits)
	}
	b := yamlBuilder{src: src, depth: limits.Depth, maxDepth: limits.Depth, line: 1, column: 1}
	if n = b.value(doc.Content[0]); n == nil {
		return nil, b.issue()
	}
	return n, nil
}

// refuseDirectives refuses text that begins with a directive: the library looks
// at each %TAG for each other one.
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

// depthGuard stops the library from descending further than the limit could
// allow, and remembers that it did.
type depthGuard struct {
	most     int
	exceeded bool
}

var errDepth = errors.New("nested too deep")

// CheckDepth implements yaml.LoaderLimitsPlugin.
func (g *depthGuard) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > g.most {
		g.exceeded = true
		return errDepth
	}
	return nil
}

// CheckAlias implements yaml.LoaderLimitsPlugin. Aliases are refused anyway.
func (g *depthGuard) CheckAlias(int, int) error { return nil }

// yamlSyntax words an error of the library.
func yamlSyntax(err error, depth *depthGuard, limits Limits) *Issue {
	var known *yaml.LoadError
	if !errors.As(err, &known) {
		return &Issue{Rule: RuleSyntax, Message: "this is not well-formed YAML"}
	}
	mark := known.Mark
	if known.ContextMark.Line > 0 && !strings.Contains(known.ContextMsg, "block") {
		mark = known.ContextMark // where the quotes or brackets open; a block may be the whole document
	}
	issue := &Issue{Rule: RuleSyntax, Line: mark.Line, Column: mark.Column, Message: "not well-formed YAML: " + known.Message}
	switch {
	case depth.exceeded:
		issue.Rule, issue.Message = RuleDepth, depthMessage(limits.Depth)
		issue.Line, issue.Column = known.Mark.Line, known.Mark.Column
	case known.Stage == yaml.ComposerStage: // the only thing that it looks up
		issue.Rule, issue.Message = RuleUnsupported, aliasMessage
	}
	return issue
}

// at makes an issue at a node of the library.
func at(v *yaml.Node, rule Rule, message string) *Issue {
	return &Issue{Rule: rule, Line: v.Line, Column: v.Column, Message: message}
}

// What JSON cannot express.
const (
	anchorMessage = "anchors (&name) are not supported; write the value where it is needed"
	aliasMessage  = "aliases (*name) are not supported; write the value where it is needed, or put the text in quotes"
	mergeMessage  = "merge keys (<<) are not supported; write the keys where they are needed"
	tagMessage    = "tags (!name) are not supported; put the text in quotes if it is one"
)

// yamlBuilder turns the library's tree into ours.
type yamlBuilder struct {
	src             []byte // from offset on; that is at line and column
	offset          int
	line, column    int
	depth, maxDepth int // depth counts down
	fault           *Issue
	trail           []string
}

// refuse records a fault. It returns false so that callers can return it.
func (b *yamlBuilder) refuse(v *yaml.Node, rule Rule, format string, args ...any) bool {
	b.fault = at(v, rule, fmt.Sprintf(format, args...))
	return false
}

func (b *yamlBuilder) issue() *Issue {
	for i := len(b.trail) - 1; i >= 0; i-- {
		b.fault.Path = appendToken(b.fault.Path, b.trail[i])
	}
	return b.fault
}

// value converts one value, nil when it was refused.
func (b *yamlBuilder) value(v *yaml.Node) *Node {
	n := &Node{Line: v.Line, Column: v.Column}
	if !b.supports(v) {
		return nil
	}
	ok := false
	switch v.Kind {
	case yaml.MappingNode:
		ok = b.mapping(n, v)
	case yaml.SequenceNode:
		ok = b.sequence(n, v)
	case yaml.ScalarNode:
		ok = b.scalar(n, v)
	default:
		b.refuse(v, RuleUnsupported, "JSON cannot express this")
	}
	if !ok {
		return nil
	}
	n.adopt()
	return n
}

// supports refuses what JSON cannot express.
func (b *yamlBuilder) supports(v *yaml.Node) bool {
	switch {
	case v.Kind == yaml.AliasNode:
		return b.refuse(v, RuleUnsupported, aliasMessage)
	case v.Anchor != "":
		return b.refuse(v, RuleUnsupported, anchorMessage)
	case v.Style&yaml.TaggedStyle != 0, b.first(v) == '!': // a lone "!" is not in the style
		return b.refuse(v, RuleUnsupported, tagMessage)
	}
	return true
}

// first is the byte with which a node begins. Nodes are asked about in the order
// of the text.
func (b *yamlBuilder) first(v *yaml.Node) byte {
	for b.offset < len(b.src) && (b.line < v.Line || b.line == v.Line && b.column < v.Column) {
		c := b.src[b.offset]
		b.offset++
		switch {
		case c == '\n', c == '\r' && (b.offset == len(b.src) || b.src[b.offset] != '\n'):
			b.line, b.column = b.line+1, 1
		case b.offset == len(b.src) || utf8.RuneStart(b.src[b.offset]):
			b.column++
		}
	}
	if b.offset == len(b.src) || b.line != v.Line || b.column != v.Column {
		return 0
	}
	return b.src[b.offset]
}

func (b *yamlBuilder) enter(v *yaml.Node) bool {
	if b.depth == 0 {
		return b.refuse(v, RuleDepth, "%s", depthMessage(b.maxDepth))
	}
	b.depth--
	return true
}

func (b *yamlBuilder) mapping(n *Node, v *yaml.Node) bool {
	n.Kind = Object
	if !b.enter(v) {
		return false
	}
	n.Members = make([]Member, 0, len(v.Content)/2)
	for i := 0; i+1 < len(v.Content); i += 2 {
		m, ok := b.key(v.Content[i])
		if !ok {
			return false
		}
		if m.Value = b.value(v.Content[i+1]); m.Value == nil {
			b.trail = append(b.trail, m.Key)
			return false
		}
		n.Members = append(n.Members, m)
	}
	if i := n.indexMembers(); i >= 0 {
		key := n.Members[i].Key
		b.refuse(v.Content[2*i], RuleDuplicateKey, "%s", duplicateMessage(key))
		b.fault.Key = key
		b.trail = append(b.trail, key)
		return false
	}
	b.depth++
	return true
}

func (b *yamlBuilder) key(v *yaml.Node) (Member, bool) {
	var n Node
	switch {
	case v.Kind == yaml.MappingNode, v.Kind == yaml.SequenceNode:
		return Member{}, b.refuse(v, RuleUnsupported, "a key must be a string, found an object or array")
	case !b.supports(v):
		return Member{}, false
	case v.Value == "<<" && v.Style == 0:
		return Member{}, b.refuse(v, RuleUnsupported, mergeMessage)
	case !b.scalar(&n, v):
		return Member{}, false
	case n.Kind != String:
		return Member{}, b.refuse(v, RuleUnsupported, "a key must be a string, found %s; put it in quotes", n.Kind)
	}
	return Member{Key: n.Text, Line: v.Line, Column: v.Column}, true
}

func (b *yamlBuilder) sequence(n *Node, v *yaml.Node) bool {
	n.Kind = Array
	if !b.enter(v) {
		return false
	}
	n.Items = make([]*Node, 0, len(v.Content))
	for i, item := range v.Content {
		child := b.value(item)
		if child == nil {
			b.trail = append(b.trail, strconv.Itoa(i))
			return false
		}
		n.Items = append(n.Items, child)
	}
	b.depth++
	return true
}

// scalar resolves a scalar by the core schema of YAML 1.2: the library's own rules
// are those of YAML 1.1 in part.
func (b *yamlBuilder) scalar(n *Node, v *yaml.Node) bool {
	n.Text = v.Value
	if v.Style != 0 {
		n.Kind = String
		return b.text(v)
	}
	switch v.Value {
	case "", "~", "null", "Null", "NULL":
		n.Kind, n.Text = Null, ""
	case "true", "True", "TRUE":
		n.Kind, n.Text = True, "true"
	case "false", "False", "FALSE":
		n.Kind, n.Text = False, "false"
	default:
		return b.plain(n, v)
	}
	return true
}

// plain resolves a plain scalar that is a number or a string.
func (b *yamlBuilder) plain(n *Node, v *yaml.Node) bool {
	lit := []byte(v.Value)
	if end, _ := numberEnd(lit, 0); end == len(lit) {
		n.Kind = Number
		if !keepsValue(lit) {
			return b.refuse(v, RuleNumber, "%s", numberMessage)
		}
		return true
	}
	if coreNumber(v.Value) {
		return b.refuse(v, RuleUnsupported, "YAML reads this as a number and JSON does not; write it as a plain decimal, or put it in quotes")
	}
	n.Kind = String
	return b.text(v)
}

// text refuses NUL, which an escape may bring in.
func (b *yamlBuilder) text(v *yaml.Node) bool {
	if strings.IndexByte(v.Value, 0) >= 0 {
		return b.refuse(v, RuleNUL, "NUL (U+0000) is not allowed")
	}
	return true
}

// coreNumber says whether the core schema reads a plain scalar that is no JSON
// number as one.
func coreNumber(s string) bool {
	unsigned := strings.TrimLeft(s, "+-")
	if len(s)-len(unsigned) > 1 {
		return false
	}
	switch strings.ToLower(unsigned) {
	case ".inf":
		return true
	case ".nan":
		return s == unsigned
	}
	if len(unsigned) > 2 && unsigned[0] == '0' && s == unsigned {
		switch unsigned[1] {
		case 'x':
			return strings.Trim(unsigned[2:], "0123456789abcdefABCDEF") == ""
		case 'o':
			return strings.Trim(unsigned[2:], "01234567") == ""
		}
	}
	// The rest differs from JSON's grammar only by a plus sign, leading zeros and
	// a missing digit on one side of the point.
	if strings.Trim(unsigned, "0123456789.eE+-") != "" {
		return false
	}
	_, err := strconv.ParseFloat(unsigned, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}
