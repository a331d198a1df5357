package document

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Node is one value of a document. A nil *Node is an absent value; calling its methods is safe.
type Node struct {
	Kind Kind
	// Text is a string's value, a number's literal (in JSON's grammar), or "true" or "false". It is "" for
	// other kinds.
	Text string
	// Items are an array's elements.
	Items []*Node
	// Members are an object's pairs in the order of the document. Keys are distinct.
	Members []Member
	// Line and Column are the position of the value's first character, 1-based; Column counts characters.
	Line, Column int

	parent *Node
	place  int // index in parent's Items or Members
	source string
	index  map[string]int // index of Members by key; nil up to maxLinearKeys members
}

// Member is one pair of an object.
type Member struct {
	Key          string
	Line, Column int // of the key
	Value        *Node
}

// Source returns the name given to Parse.
func (n *Node) Source() string {
	if n == nil {
		return ""
	}
	for n.parent != nil {
		n = n.parent
	}
	return n.source
}

// Path returns the JSON pointer of the value; "" is the whole document.
func (n *Node) Path() string { return n.buildPath(func(key string) string { return key }) }

// ShownPath returns Path for messages: very long keys in it are shortened.
func (n *Node) ShownPath() string { return n.buildPath(clipKey) }

func (n *Node) buildPath(shorten func(string) string) string {
	var tokens []string
	for at := n; at != nil && at.parent != nil; at = at.parent {
		if at.parent.Kind == Object {
			tokens = append(tokens, tokenEscaper.Replace(shorten(at.parent.Members[at.place].Key)))
		} else {
			tokens = append(tokens, strconv.Itoa(at.place))
		}
	}
	if len(tokens) == 0 {
		return ""
	}
	slices.Reverse(tokens)
	return "/" + strings.Join(tokens, "/")
}

// Get returns the value of a key, or nil if n is not an object or has no such key.
func (n *Node) Get(key string) *Node {
	if i := n.find(key); i >= 0 {
		return n.Members[i].Value
	}
	return nil
}

// At follows a path of keys. It returns nil if one is absent.
func (n *Node) At(keys ...string) *Node {
	for _, k := range keys {
		n = n.Get(k)
	}
	return n
}

// Nearest follows a JSON pointer from n and returns its value, or the last value on the way that is present.
func (n *Node) Nearest(pointer string) *Node {
	for token := range Pointer(pointer).Tokens() {
		next := n.Get(token)
		if i, ok := Index(token); ok && n != nil && n.Kind == Array && i < len(n.Items) {
			next = n.Items[i]
		}
		if next == nil {
			break
		}
		n = next
	}
	return n
}

// Keys returns an object's keys in the order of the document.
func (n *Node) Keys() []string {
	if n == nil {
		return nil
	}
	out := make([]string, len(n.Members))
	for i, m := range n.Members {
		out[i] = m.Key
	}
	return out
}

func (n *Node) find(key string) int {
	if n == nil {
		return -1
	}
	if n.index != nil {
		if i, ok := n.index[key]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(n.Members, func(m Member) bool { return m.Key == key })
}

// Lines maps the JSON pointer of every value in the tree to the line of its key, or to the line of the
// value if it has no key. Keys are not shortened. Lines stops adding entries after about one million bytes
// of pointers.
func (n *Node) Lines() map[string]int {
	if n == nil {
		return nil
	}
	out := map[string]int{}
	budget := 1 << 20
	n.collectLines(out, "", n.Line, &budget)
	return out
}

func (n *Node) collectLines(out map[string]int, path string, line int, budget *int) {
	if *budget -= len(path); *budget < 0 {
		return
	}
	out[path] = line
	for i, v := range n.Items {
		v.collectLines(out, path+"/"+strconv.Itoa(i), v.Line, budget)
	}
	for _, m := range n.Members {
		m.Value.collectLines(out, path+"/"+tokenEscaper.Replace(m.Key), m.Line, budget)
	}
}

// JSON returns the value as compact JSON: keys in the order of the document, numbers with their original
// digits, strings escaped as little as possible. It returns nil for an absent value.
func (n *Node) JSON() json.RawMessage {
	if n == nil {
		return nil
	}
	return n.append(nil)
}

func (n *Node) append(dst []byte) []byte {
	switch n.Kind {
	case True, False, Number:
		return append(dst, n.Text...)
	case String:
		return AppendQuote(dst, n.Text)
	case Array:
		dst = append(dst, '[')
		for i, v := range n.Items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.append(dst)
		}
		return append(dst, ']')
	case Object:
		dst = append(dst, '{')
		for i, m := range n.Members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendQuote(dst, m.Key), ':')
			dst = m.Value.append(dst)
		}
		return append(dst, '}')
	default:
		return append(dst, "null"...)
	}
}

// Canonical returns the value in the canonical form of RFC 8785.
func (n *Node) Canonical() []byte { return ReadTrusted(n.JSON()).Canonical() }

// parseTree builds the tree of a JSON text. places holds the position of each cell's value in the text that
// the JSON was generated from; it is nil if src is the original text.
func parseTree(src []byte, limits Limits, places []place) (n *Node, issue *Issue) {
	issue = readCells(src, limits, func(r *reader) {
		b := treeBuilder{src: src, places: places, line: 1, column: 1}
		n = b.build(JSON{tape: &r.tape})
	})
	return n, issue
}

// treeBuilder turns cells into nodes, in the order of the text.
type treeBuilder struct {
	src    []byte
	places []place
	// line and column are the position at offset seen, where the next search starts.
	seen         int32
	line, column int
}

// locate returns the line and column of a value. Calls must be in the order of the text.
func (b *treeBuilder) locate(v JSON) (line, column int) {
	if b.places != nil {
		return b.places[v.at].line, b.places[v.at].column
	}
	for at := v.cells[v.at].start; b.seen < at; b.seen++ {
		if b.src[b.seen] == '\n' {
			b.line++
			b.column = 0
		}
		if utf8.RuneStart(b.src[b.seen]) {
			b.column++
		}
	}
	return b.line, b.column
}

func (b *treeBuilder) build(v JSON) *Node {
	n := &Node{Kind: v.Kind()}
	n.Line, n.Column = b.locate(v)
	switch n.Kind {
	case String:
		n.Text = v.Text()
	case Number, True, False:
		n.Text = string(v.Raw())
	}
	for name, value := range v.Members() {
		m := Member{Key: name.Text()}
		m.Line, m.Column = b.locate(name)
		m.Value = b.build(value)
		m.Value.parent, m.Value.place = n, len(n.Members)
		n.Members = append(n.Members, m)
	}
	for i, item := range v.Elements() {
		child := b.build(item)
		child.parent, child.place = n, i
		n.Items = append(n.Items, child)
	}
	if len(n.Members) > maxLinearKeys {
		n.index = make(map[string]int, len(n.Members))
		for i, m := range n.Members {
			n.index[m.Key] = i
		}
	}
	return n
}
