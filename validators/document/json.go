package document

import "unicode/utf8"

// jsonParser builds a tree. It follows checker token by token; the two differ in
// what they keep, and a test holds them to the same answers.
type jsonParser struct {
	scanner
	depth, maxDepth int // depth counts down
	// The position found last; the next one is looked for from here.
	seen, line, column int
}

func parseJSON(src []byte, limits Limits) (*Node, *Issue) {
	p := &jsonParser{scanner: scanner{src: src}, depth: limits.Depth, maxDepth: limits.Depth, line: 1, column: 1}
	if p.begin() {
		if n := p.value(); n != nil && p.finish() {
			return n, nil
		}
	}
	return nil, p.issue()
}

// here returns line and column of pos, which never goes back.
func (p *jsonParser) here() (line, column int) {
	for p.seen < p.pos {
		if p.src[p.seen] == '\n' {
			p.line++
			p.column = 0
		}
		if utf8.RuneStart(p.src[p.seen]) {
			p.column++
		}
		p.seen++
	}
	return p.line, p.column
}

// value reads one value, nil when it was refused.
func (p *jsonParser) value() *Node {
	c := p.peek()
	n := &Node{}
	n.Line, n.Column = p.here()
	ok := false
	switch {
	case c == '{':
		ok = p.object(n)
	case c == '[':
		ok = p.array(n)
	case c == '"':
		n.Kind = String
		n.Text, ok = p.text()
	case c == '-' || c >= '0' && c <= '9':
		var lit []byte
		lit, ok = p.number()
		n.Kind, n.Text = Number, string(lit)
	default:
		start := p.pos
		if ok = p.scalar(); ok && c != 'n' {
			n.Kind, n.Text = Bool, string(p.src[start:p.pos])
		}
	}
	if !ok {
		return nil
	}
	n.adopt()
	return n
}

func (p *jsonParser) text() (string, bool) {
	body, escaped, ok := p.str()
	if !ok {
		return "", false
	}
	if escaped {
		body = appendUnescaped(make([]byte, 0, len(body)), body)
	}
	return string(body), true
}

func (p *jsonParser) enter() bool {
	if p.depth == 0 {
		return p.refuse(RuleDepth, p.pos, depthMessage(p.maxDepth))
	}
	p.depth--
	p.pos++
	return true
}

func (p *jsonParser) object(n *Node) bool {
	n.Kind = Object
	if !p.enter() {
		return false
	}
	if p.peek() == '}' {
		p.pos++
		p.depth++
		return true
	}
	var offsets []int
	for more := true; more; {
		var ok bool
		if p.peek() != '"' {
			return p.refuse(RuleSyntax, p.pos, p.expected(`a key in double quotes`))
		}
		offsets = append(offsets, p.pos)
		var m Member
		m.Line, m.Column = p.here()
		if m.Key, ok = p.text(); !ok || !p.colon() {
			return false
		}
		if m.Value = p.value(); m.Value == nil {
			p.passed(m.Key)
			return false
		}
		n.Members = append(n.Members, m)
		if more, ok = p.next('}'); !ok {
			return false
		}
	}
	if i := n.indexMembers(); i >= 0 {
		key := n.Members[i].Key
		p.refuse(RuleDuplicateKey, offsets[i], duplicateMessage(key))
		p.fault.Key = key
		p.passed(key)
		return false
	}
	p.depth++
	return true
}

func (p *jsonParser) array(n *Node) bool {
	n.Kind = Array
	if !p.enter() {
		return false
	}
	if p.peek() == ']' {
		p.pos++
		p.depth++
		return true
	}
	for more := true; more; {
		v := p.value()
		if v == nil {
			p.passedIndex(len(n.Items))
			return false
		}
		n.Items = append(n.Items, v)
		var ok bool
		if more, ok = p.next(']'); !ok {
			return false
		}
	}
	p.depth++
	return true
}
