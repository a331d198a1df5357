package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// errSyntax reports a document that is not well-formed JSON. Documents arrive
// here checked, so it means a defect of the caller; it exists so that a defect
// is an error and not a wrong answer.
var errSyntax = errors.New("not well-formed JSON")

// maxDepth is how deep values may nest; the same bound as encoding/json's.
const maxDepth = 10_000

// scanner reads one JSON text value by value without decoding it, so that
// numbers and strings keep their literal and nothing is allocated for what is
// only passed over. It accepts exactly what encoding/json calls valid.
type scanner struct {
	src   []byte
	pos   int
	depth int
	// spaced is true once white space was seen between tokens.
	spaced bool
}

// member is one key with its value, as written.
type member struct {
	key   []byte // decoded
	name  []byte // the key's literal, with its quotes
	value []byte // the value's literal
}

// members lists the pairs of a JSON object in order. spaced tells whether the
// text has white space between tokens. Duplicate keys are an error.
func members(doc []byte) (list []member, spaced bool, err error) {
	s := scanner{src: doc}
	if s.peek() != '{' {
		return nil, false, fmt.Errorf("%w: an object is wanted", errSyntax)
	}
	list = make([]member, 0, 8)
	err = s.object(func(m member) error {
		list = append(list, m)
		return nil
	})
	if err == nil {
		s.skipSpace()
		if s.pos != len(s.src) {
			err = s.fail()
		}
	}
	if err != nil {
		return nil, false, err
	}
	if key, twice := duplicate(list); twice {
		return nil, false, fmt.Errorf("%w: key %q stands twice", errSyntax, key)
	}
	return list, s.spaced, nil
}

// duplicate finds a key that stands twice.
func duplicate(list []member) (string, bool) {
	if len(list) <= smallObject {
		for i := range list {
			for j := range i {
				if bytes.Equal(list[i].key, list[j].key) {
					return string(list[i].key), true
				}
			}
		}
		return "", false
	}
	seen := make(map[string]bool, len(list))
	for i := range list {
		if seen[string(list[i].key)] {
			return string(list[i].key), true
		}
		seen[string(list[i].key)] = true
	}
	return "", false
}

// smallObject is up to how many keys looking through a list beats a map.
const smallObject = 16

func (s *scanner) fail() error { return fmt.Errorf("%w at byte %d", errSyntax, s.pos) }

// peek returns the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	s.skipSpace()
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

func (s *scanner) skipSpace() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
			s.spaced = true
		default:
			return
		}
	}
}

// object passes the object that begins at pos and calls visit, if given, for
// every pair.
func (s *scanner) object(visit func(member) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.fail()
		}
		name, err := s.value()
		if err != nil {
			return err
		}
		if s.peek() != ':' {
			return s.fail()
		}
		s.pos++
		value, err := s.value()
		if err != nil {
			return err
		}
		if visit != nil {
			key, err := unquote(name)
			if err != nil {
				return err
			}
			if err := visit(member{key: key, name: name, value: value}); err != nil {
				return err
			}
		}
		if done, err := s.next('}'); done || err != nil {
			return err
		}
	}
}

// array passes the array that begins at pos and calls visit, if given, for every
// element.
func (s *scanner) array(visit func(index int, value []byte) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		value, err := s.value()
		if err != nil {
			return err
		}
		if visit != nil {
			if err := visit(i, value); err != nil {
				return err
			}
		}
		if done, err := s.next(']'); done || err != nil {
			return err
		}
	}
}

func (s *scanner) enter() error {
	s.pos++ // the bracket
	s.depth++
	if s.depth > maxDepth {
		return s.fail()
	}
	return nil
}

func (s *scanner) leave() { s.depth-- }

// next passes a comma, or the closing bracket and says so.
func (s *scanner) next(closing byte) (done bool, err error) {
	switch s.peek() {
	case ',':
		s.pos++
		return false, nil
	case closing:
		s.pos++
		return true, nil
	}
	return false, s.fail()
}

// value passes one value and returns its literal.
func (s *scanner) value() ([]byte, error) {
	c := s.peek()
	start := s.pos
	var err error
	switch {
	case c == '{':
		err = s.object(nil)
	case c == '[':
		err = s.array(nil)
	case c == '"':
		err = s.str()
	case c == '-' || isDigit(c):
		err = s.number()
	default:
		err = s.word()
	}
	if err != nil {
		return nil, err
	}
	return s.src[start:s.pos:s.pos], nil
}

// plain marks the bytes that stand for themselves inside a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

func (s *scanner) str() error {
	s.pos++
	for {
		i := s.pos
		for i < len(s.src) && plain[s.src[i]] {
			i++
		}
		if s.pos = i; i == len(s.src) {
			return s.fail()
		}
		switch c := s.src[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		default: // a control character
			return s.fail()
		}
	}
}

func (s *scanner) escape() error {
	if s.pos+1 >= len(s.src) {
		return s.fail()
	}
	switch s.src[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
		if s.pos+6 > len(s.src) {
			return s.fail()
		}
		for _, c := range s.src[s.pos+2 : s.pos+6] {
			if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
				return s.fail()
			}
		}
		s.pos += 6
		return nil
	}
	return s.fail()
}

func (s *scanner) number() error {
	if s.src[s.pos] == '-' {
		s.pos++
	}
	if s.at('0') {
		s.pos++
	} else if !s.digits() {
		return s.fail()
	}
	if s.at('.') {
		s.pos++
		if !s.digits() {
			return s.fail()
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if !s.digits() {
			return s.fail()
		}
	}
	return nil
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.src) && s.src[s.pos] == c }

// digits passes digits and says whether there was one.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.src) && isDigit(s.src[s.pos]) {
		s.pos++
	}
	return s.pos > start
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (s *scanner) word() error {
	for _, w := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(s.src[s.pos:], []byte(w)) {
			s.pos += len(w)
			return nil
		}
	}
	return s.fail()
}

// unquote decodes a string literal.
func unquote(literal []byte) ([]byte, error) {
	if bytes.IndexByte(literal, '\\') < 0 {
		return literal[1 : len(literal)-1], nil
	}
	var text string
	if err := json.Unmarshal(literal, &text); err != nil {
		return nil, fmt.Errorf("%w: %w", errSyntax, err)
	}
	return []byte(text), nil
}

// isNull says whether a value's literal is null.
func isNull(value []byte) bool { return string(value) == "null" }
