package document

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// cell is one value or one member name of a JSON text. The cells of a value's contents follow the value's
// own cell, in the order of the text.
type cell struct {
	start, end int32 // of the literal in the text, in bytes
	next       int32 // index of the cell after this value and its contents
	kind       Kind
	escaped    bool // the string literal has escapes
}

// reader reads one JSON text into cells. Its methods record a fault and return false if the text is not
// acceptable. It is the part of this package that encoding/json/jsontext would replace.
type reader struct {
	tape
	pos      int
	lax      bool // see Limits.Lax
	literals bool // see Limits.Literals
	spaced   bool // white space was skipped
	depth    int  // how many more levels objects and arrays may nest
	maxDepth int
	// fault is the first problem, and at its byte offset. trail holds the tokens of the path to it, innermost
	// first.
	fault *Issue
	at    int
	trail []string
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// maxLinearKeys is the number of keys up to which pairwise comparison is faster than a map.
const maxLinearKeys = 12

// readCells reads src and then calls use, if it is not nil, with the reader that holds the cells. use must not
// retain the reader.
func readCells(src []byte, limits Limits, use func(*reader)) *Issue {
	limits = limits.withDefaults()
	if len(src) > limits.Bytes {
		return limits.tooLong(len(src))
	}
	r := readers.Get().(*reader)
	*r = reader{tape: tape{text: src, cells: r.cells[:0]}, lax: limits.Lax, literals: limits.Lax || limits.Literals, depth: limits.Depth, maxDepth: limits.Depth}
	var issue *Issue
	switch {
	case !r.readDocument():
		issue = r.finishIssue()
	case use != nil:
		use(r)
	}
	if cap(r.cells) <= 16<<10 { // leave a rare, very large one to the garbage collector
		r.text, r.trail, r.fault = nil, nil, nil
		readers.Put(r)
	}
	return issue
}

// refuse records a fault. It returns false so that callers can return it.
func (r *reader) refuse(rule Rule, at int, message string) bool {
	r.fault = &Issue{Rule: rule, Message: message}
	r.at = at
	return false
}

// finishIssue adds position and path to the fault and returns it.
func (r *reader) finishIssue() *Issue {
	r.fault.offset = min(r.at, len(r.text))
	r.fault.Line, r.fault.Column = findPosition(r.text, r.fault.offset)
	for i := len(r.trail) - 1; i >= 0; i-- {
		r.fault.Path = appendToken(r.fault.Path, r.trail[i])
	}
	return r.fault
}

func (r *reader) readDocument() bool {
	if len(r.text) >= 3 && r.text[0] == 0xEF && r.text[1] == 0xBB && r.text[2] == 0xBF {
		return r.refuse(RuleSyntax, 0, "the text begins with a byte order mark; send plain UTF-8")
	}
	r.skipSpace()
	if r.pos == len(r.text) {
		return r.refuse(RuleSyntax, r.pos, "the document is empty")
	}
	if !r.readValue() {
		return false
	}
	r.skipSpace()
	if r.pos < len(r.text) {
		return r.refuse(RuleSyntax, r.pos, "unexpected text after the JSON value")
	}
	return true
}

// readValue reads one value. If it fails, each caller adds its token to trail.
func (r *reader) readValue() bool {
	switch c := r.skipSpace(); c {
	case '{':
		return r.readObject()
	case '[':
		return r.readArray()
	case '"':
		return r.readString()
	case 't':
		return r.readWord(True, "true")
	case 'f':
		return r.readWord(False, "false")
	case 'n':
		return r.readWord(Null, "null")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return r.readNumber()
		}
		return r.refuse(RuleSyntax, r.pos, r.describeExpected("a JSON value"))
	}
}

// beginCell adds a cell for a value that begins at pos and returns its index.
func (r *reader) beginCell(kind Kind) int {
	r.cells = append(r.cells, cell{start: int32(r.pos), kind: kind})
	return len(r.cells) - 1
}

// endCell completes a cell whose value ends at pos. It returns true so that callers can return it.
func (r *reader) endCell(i int) bool {
	r.cells[i].end, r.cells[i].next = int32(r.pos), int32(len(r.cells))
	return true
}

func (r *reader) enterContainer(kind Kind) (int, bool) {
	if r.depth == 0 {
		return 0, r.refuse(RuleDepth, r.pos, depthMessage(r.maxDepth))
	}
	r.depth--
	i := r.beginCell(kind)
	r.pos++
	return i, true
}

func (r *reader) readObject() bool {
	this, ok := r.enterContainer(Object)
	if !ok {
		return false
	}
	for more := r.skipSpace() != '}'; more; {
		if r.skipSpace() != '"' {
			return r.refuse(RuleSyntax, r.pos, r.describeExpected(`a key in double quotes`))
		}
		name := len(r.cells)
		if !r.readString() {
			return false
		}
		if r.skipSpace() != ':' {
			return r.refuse(RuleSyntax, r.pos, r.describeExpected(`":" after a key`))
		}
		r.pos++
		if !r.readValue() {
			r.trail = append(r.trail, JSON{&r.tape, int32(name)}.Text())
			return false
		}
		if more, ok = r.readSeparator('}'); !ok {
			return false
		}
		if more {
			r.pos++
		}
	}
	r.pos++
	r.depth++
	r.endCell(this)
	return r.lax || r.requireDistinctKeys(JSON{&r.tape, int32(this)})
}

func (r *reader) readArray() bool {
	this, ok := r.enterContainer(Array)
	if !ok {
		return false
	}
	index := 0
	for more := r.skipSpace() != ']'; more; index++ {
		if !r.readValue() {
			r.trail = append(r.trail, strconv.Itoa(index))
			return false
		}
		if more, ok = r.readSeparator(']'); !ok {
			return false
		}
		if more {
			r.pos++
		}
	}
	r.pos++
	r.depth++
	return r.endCell(this)
}

// readSeparator skips to a comma (more is true) or the closing bracket.
func (r *reader) readSeparator(closing byte) (more, ok bool) {
	switch r.skipSpace() {
	case ',':
		return true, true
	case closing:
		return false, true
	}
	return false, r.refuse(RuleSyntax, r.pos, r.describeExpected(fmt.Sprintf(`"," or "%c"`, closing)))
}

// requireDistinctKeys rejects an object with a duplicate key.
func (r *reader) requireDistinctKeys(v JSON) bool {
	name := v.Duplicate()
	if name.Kind() == 0 {
		return true
	}
	key := name.Text()
	r.refuse(RuleDuplicateKey, int(r.cells[name.at].start), fmt.Sprintf("duplicate key %q", clipKey(key)))
	r.fault.Key = key
	r.trail = append(r.trail, key)
	return false
}

// trimQuotes returns the text between the quotes of a string literal.
func trimQuotes(src []byte, c cell) []byte { return src[c.start+1 : c.end-1] }

// skipSpace skips white space and returns the byte after it, or 0 at the end.
func (r *reader) skipSpace() byte {
	for r.pos < len(r.text) {
		switch c := r.text[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
			r.spaced = true
		default:
			return c
		}
	}
	return 0
}

// describeExpected returns the message of a syntax error, without quoting the document.
func (r *reader) describeExpected(what string) string {
	switch {
	case r.pos >= len(r.text):
		return "expected " + what + ", got the end of the text"
	case r.text[r.pos] == '\'':
		return "expected " + what + ", got a single quote; put strings in double quotes"
	case r.text[r.pos] == '/' || r.text[r.pos] == '#':
		return "expected " + what + ", got a comment; remove it, because JSON has no comments"
	case r.pos > 0 && strings.IndexByte("}]", r.text[r.pos]) >= 0 && strings.HasSuffix(strings.TrimRight(string(r.text[:r.pos]), " \t\r\n"), ","):
		return "trailing comma before a closing bracket; remove it"
	}
	return "expected " + what
}

// isPlainByte marks the bytes that need no escape in a string.
var isPlainByte = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// Constants for scanning a string eight bytes at a time. The fast loop stops at a byte with the high bit
// set, at a byte below 0x20, at a quote and at a backslash.
const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

func (r *reader) readString() bool {
	this := r.beginCell(String)
	src := r.text
	i := r.pos + 1
	for {
		for i+8 <= len(src) {
			x := binary.LittleEndian.Uint64(src[i:])
			q, b := x^(lowBits*'"'), x^(lowBits*'\\')
			if ((x-lowBits*0x20)&^x|(q-lowBits)&^q|(b-lowBits)&^b|x)&highBits != 0 {
				break
			}
			i += 8
		}
		for i < len(src) && isPlainByte[src[i]] {
			i++
		}
		if i == len(src) {
			at := r.pos
			r.pos = i
			return r.refuse(RuleSyntax, at, "this string is not closed")
		}
		switch c := src[i]; {
		case c == '"':
			r.pos = i + 1
			return r.endCell(this)
		case c == '\\':
			r.cells[this].escaped = true
			n := r.readEscape(i)
			if n == 0 {
				return false
			}
			i += n
		case c < 0x20:
			return r.refuseControl(i, c)
		default:
			ch, size := utf8.DecodeRune(src[i:])
			if ch == utf8.RuneError && size == 1 {
				return r.refuse(RuleUTF8, i, "these bytes are not valid UTF-8")
			}
			i += size
		}
	}
}

func (r *reader) refuseControl(at int, c byte) bool {
	switch c {
	case 0:
		return r.refuse(RuleNUL, at, "NUL (U+0000) is not allowed")
	case '\n', '\r':
		return r.refuse(RuleSyntax, at, `a string may not span lines; write the line break as \n`)
	}
	return r.refuse(RuleSyntax, at, "a control character in a string must be escaped")
}

// readEscape checks the escape at i and returns its length, or 0 if it is rejected.
func (r *reader) readEscape(i int) int {
	refuse := func(rule Rule, message string) int { r.refuse(rule, i, message); return 0 }
	if i+1 >= len(r.text) {
		return refuse(RuleSyntax, "this string is not closed")
	}
	switch r.text[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
	default:
		return refuse(RuleSyntax, "JSON does not have this escape")
	}
	ch := parseHex(r.text[i+2:])
	switch {
	case ch < 0:
		return refuse(RuleSyntax, `four hexadecimal digits must follow \u`)
	case r.lax:
		return 6
	case ch == 0:
		return refuse(RuleNUL, "NUL (U+0000) is not allowed")
	case !utf16.IsSurrogate(ch):
		return 6
	case decodePair(r.text[i+6:], ch) != utf8.RuneError:
		return 12
	}
	return refuse(RuleUTF8, "half of a surrogate pair is not a character; write both halves, or the character itself")
}

// decodePair returns the character of a surrogate pair: first and the escape at the beginning of after. It
// returns utf8.RuneError if that is not a second half.
func decodePair(after []byte, first rune) rune {
	if len(after) < 6 || after[0] != '\\' || after[1] != 'u' {
		return utf8.RuneError
	}
	return utf16.DecodeRune(first, parseHex(after[2:]))
}

// parseHex reads four hexadecimal digits. It returns -1 if there are fewer.
func parseHex(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendUnescaped decodes the text between the quotes of a valid string literal. A lone surrogate escape
// becomes U+FFFD.
func appendUnescaped(dst, body []byte) []byte {
	for i := 0; i < len(body); {
		c := body[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		i += 2
		switch c := body[i-1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			ch := parseHex(body[i:])
			i += 4
			if utf16.IsSurrogate(ch) {
				if ch = decodePair(body[i:], ch); ch != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, ch)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func (r *reader) readWord(kind Kind, w string) bool {
	end := r.pos + len(w)
	if end > len(r.text) || string(r.text[r.pos:end]) != w {
		return r.refuse(RuleSyntax, r.pos, r.describeExpected("a JSON value"))
	}
	this := r.beginCell(kind)
	r.pos = end
	return r.endCell(this)
}

func (r *reader) readNumber() bool {
	this := r.beginCell(Number)
	end, exponent := findNumberEnd(r.text, r.pos)
	if end < 0 {
		return r.refuse(RuleSyntax, r.pos, "this is not a JSON number")
	}
	lit := r.text[r.pos:end]
	if !r.literals && (exponent || len(lit) > shortNumber) && !keepsValue(string(lit)) {
		return r.refuse(RuleNumber, r.pos, numberMessage)
	}
	r.pos = end
	return r.endCell(this)
}
