package strictdoc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// parseYAML reads YAML in three steps: the tokens are checked for what is not
// supported and for what would cost the library too much, the library builds its
// tree, and the tree is turned into ours under the rules of JSON.
func parseYAML(src []byte, limits Limits) (n *Node, issue *Issue) {
	defer func() {
		// The library is known to have panicked on malformed text (its issues 191,
		// 479, 540). Nothing outlives the call, so a panic is a syntax error.
		if recover() != nil {
			n, issue = nil, &Issue{Rule: RuleSyntax, Message: "this is not well-formed YAML"}
		}
	}()
	text := string(src)
	lines := strings.SplitAfter(text, "\n")
	if issue := checkCost(lines); issue != nil {
		return nil, issue
	}
	tokens := lexer.Tokenize(text)
	guard := tokenGuard{maxDepth: limits.Depth}
	if issue := guard.check(tokens); issue != nil {
		return nil, issue
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, yamlSyntax(err)
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, &Issue{Rule: RuleSyntax, Line: 1, Column: 1, Message: "the document is empty"}
	}
	if len(file.Docs) > 1 {
		return nil, at(file.Docs[1].GetToken(), RuleUnsupported, "there is a second document; one file holds one")
	}
	b := yamlBuilder{lines: lines, depth: limits.Depth, maxDepth: limits.Depth}
	if n = b.value(file.Docs[0].Body); n == nil {
		return nil, b.issue()
	}
	return n, nil
}

// yamlSyntax words an error of the library.
func yamlSyntax(err error) *Issue {
	var known interface {
		error
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &known) {
		return &Issue{Rule: RuleSyntax, Message: "this is not well-formed YAML"}
	}
	return at(known.GetToken(), RuleSyntax, "not well-formed YAML: "+known.GetMessage())
}

// at makes an issue at a token.
func at(tk *token.Token, rule Rule, message string) *Issue {
	i := &Issue{Rule: rule, Message: message}
	if tk != nil && tk.Position != nil {
		i.Line, i.Column = tk.Position.Line, max(tk.Position.Column, 1)
	}
	return i
}

// yamlBuilder turns the library's tree into ours.
type yamlBuilder struct {
	lines           []string // of the source, with their ends
	depth, maxDepth int      // depth counts down
	fault           *Issue
	trail           []string
}

// refuse records a fault. It returns false so that callers can return it.
func (b *yamlBuilder) refuse(tk *token.Token, rule Rule, format string, args ...any) bool {
	b.fault = at(tk, rule, fmt.Sprintf(format, args...))
	return false
}

func (b *yamlBuilder) issue() *Issue {
	for i := len(b.trail) - 1; i >= 0; i-- {
		b.fault.Path = appendToken(b.fault.Path, b.trail[i])
	}
	return b.fault
}

// value converts one value, nil when it was refused.
func (b *yamlBuilder) value(v ast.Node) *Node {
	n := &Node{}
	ok := false
	switch v := v.(type) {
	case *ast.MappingNode:
		ok = b.mapping(n, v.Start, v.Values)
	case *ast.MappingValueNode:
		ok = b.mapping(n, v.Start, []*ast.MappingValueNode{v})
	case *ast.SequenceNode:
		ok = b.sequence(n, v)
	case *ast.LiteralNode:
		n.Kind, n.Text = String, v.Value.Value
		n.locate(v.Start)
		ok = b.text(n, v.Start)
	case ast.ScalarNode:
		ok = b.scalar(n, v.GetToken())
	default:
		b.refuse(v.GetToken(), RuleUnsupported, "JSON cannot express this")
	}
	if !ok {
		return nil
	}
	n.adopt()
	return n
}

// locate sets the position from a token.
func (n *Node) locate(tk *token.Token) {
	if tk != nil && tk.Position != nil {
		n.Line, n.Column = tk.Position.Line, tk.Position.Column
	}
}

func (b *yamlBuilder) enter(tk *token.Token) bool {
	if b.depth == 0 {
		return b.refuse(tk, RuleDepth, "%s", depthMessage(b.maxDepth))
	}
	b.depth--
	return true
}

func (b *yamlBuilder) mapping(n *Node, start *token.Token, pairs []*ast.MappingValueNode) bool {
	n.Kind = Object
	n.locate(start)
	if !b.enter(start) {
		return false
	}
	for i, pair := range pairs {
		m, ok := b.key(pair.Key)
		if !ok {
			return false
		}
		if i == 0 && (start == nil || start.Type != token.MappingStartType) {
			n.Line, n.Column = m.Line, m.Column // a block mapping begins at its first key
		}
		if m.Value = b.value(pair.Value); m.Value == nil {
			b.trail = append(b.trail, m.Key)
			return false
		}
		n.Members = append(n.Members, m)
	}
	if i := duplicate(n.Members); i >= 0 {
		key := n.Members[i].Key
		b.refuse(pairs[i].Key.GetToken(), RuleDuplicateKey, "%s", duplicateMessage(key))
		b.fault.Key = key
		b.trail = append(b.trail, key)
		return false
	}
	b.depth++
	return true
}

func (b *yamlBuilder) key(k ast.MapKeyNode) (Member, bool) {
	tk := k.GetToken()
	var n Node
	if !b.scalar(&n, tk) {
		return Member{}, false
	}
	if n.Kind != String {
		b.refuse(tk, RuleUnsupported, "a key must be a string, found %s; put it in quotes", n.Kind)
		return Member{}, false
	}
	return Member{Key: n.Text, Line: n.Line, Column: n.Column}, true
}

func (b *yamlBuilder) sequence(n *Node, v *ast.SequenceNode) bool {
	n.Kind = Array
	n.locate(v.Start)
	if !b.enter(v.Start) {
		return false
	}
	for i, item := range v.Values {
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
