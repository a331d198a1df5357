package document

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Kind is the kind of a JSON value: the first byte of its text, or '0' for every number, as in
// encoding/json/jsontext. Kind 0 means an absent value.
type Kind byte

// The kinds.
const (
	Null   Kind = 'n'
	False  Kind = 'f'
	True   Kind = 't'
	String Kind = '"'
	Number Kind = '0'
	Object Kind = '{'
	Array  Kind = '['
)

// String returns the kind's name with its article, for messages.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case False, True:
		return "a boolean"
	case String:
		return "a string"
	case Number:
		return "a number"
	case Object:
		return "an object"
	case Array:
		return "an array"
	}
	return "nothing"
}

// JSON is a value in a JSON text that has been read; its methods do not read the text again. The zero JSON
// is an absent value, on which methods may be called. JSON is immutable and safe for concurrent use, as
// long as the text is not modified.
type JSON struct {
	*tape
	at int32
}

// tape is a JSON text and its cells.
type tape struct {
	text  []byte
	cells []cell
	// strict is true if the text was read under the package's rules, without Limits.Lax and Limits.Literals.
	// spaced is true if there is white space between tokens.
	strict, spaced bool
}

// ReadJSON reads one JSON value under the package's rules. The text of the result is compact unless
// limits.Spaced is set. The digits of numbers, the escapes of strings and the order of keys are preserved. The
// result may share memory with raw. The error is an *Issue.
func ReadJSON(raw []byte, limits Limits) (JSON, error) {
	var v JSON
	issue := readCells(raw, limits, func(r *reader) {
		if r.spaced && !limits.Spaced {
			v = JSON{tape: &r.tape}.compact()
		} else {
			v = JSON{tape: &tape{text: raw, cells: slices.Clone(r.cells), spaced: r.spaced}}
		}
		v.strict = !limits.Lax && !limits.Literals
	})
	if issue != nil {
		return JSON{}, issue
	}
	return v, nil
}

// ReadTrusted reads JSON that the program wrote or checked before. It accepts any size, and apart from that
// whatever encoding/json accepts. Invalid JSON reads as an absent value.
func ReadTrusted(raw []byte) JSON {
	v, err := ReadJSON(raw, Limits{Bytes: len(raw) + 1, Depth: maxTrustedDepth, Lax: true})
	if err != nil {
		return JSON{}
	}
	return v
}

// maxTrustedDepth is the maximum depth of encoding/json.
const maxTrustedDepth = 10_000

// CheckJSON checks that raw is one JSON value under the package's rules. It allocates only for objects with
// many keys or with escaped keys, and for an error. The error is an *Issue.
func CheckJSON(raw []byte, limits Limits) error {
	if issue := readCells(raw, limits, nil); issue != nil {
		return issue
	}
	return nil
}

// compact returns a copy of the value without white space between tokens, and without the surrounding text.
func (v JSON) compact() JSON {
	c := v.cells[v.at]
	b := Builder{tape: tape{text: make([]byte, 0, c.end-c.start), cells: make([]cell, 0, int(c.next)-int(v.at))}}
	b.copyCompact(v)
	return b.JSON()
}

// Strict returns the value as if ReadJSON had read it alone, without reading it again. It returns false if
// ReadJSON might reject the value, because it was read under laxer rules or nests deeper than depth.
func (v JSON) Strict(depth int) (JSON, bool) {
	if v.tape == nil || !v.strict || v.deeperThan(depth) {
		return JSON{}, false
	}
	if v.spaced {
		v = v.compact()
		v.strict = true
	}
	return v, true
}

func (v JSON) deeperThan(depth int) bool {
	var ends []int32 // ends of the objects and arrays around the cell
	for i := v.at; i < v.cells[v.at].next; i++ {
		for len(ends) > 0 && ends[len(ends)-1] <= i {
			ends = ends[:len(ends)-1]
		}
		if kind := v.cells[i].kind; kind != Object && kind != Array {
			continue
		}
		if ends = append(ends, v.cells[i].next); len(ends) > depth {
			return true
		}
	}
	return false
}

// Kind returns the kind of the value, 0 if it is absent.
func (v JSON) Kind() Kind {
	if v.tape == nil {
		return 0
	}
	return v.cells[v.at].kind
}

// Raw returns the text of the value, nil if it is absent.
func (v JSON) Raw() json.RawMessage {
	if v.tape == nil {
		return nil
	}
	c := v.cells[v.at]
	return v.text[c.start:c.end:c.end]
}

// MarshalJSON returns the text of the value; an absent value is null.
func (v JSON) MarshalJSON() ([]byte, error) {
	if v.tape == nil {
		return []byte("null"), nil
	}
	return v.Raw(), nil
}

// Bytes returns the decoded text of a string, or nil for any other value. The result may share memory with the
// document.
func (v JSON) Bytes() []byte {
	if v.Kind() != String {
		return nil
	}
	c := v.cells[v.at]
	body := trimQuotes(v.text, c)
	if c.escaped {
		return appendUnescaped(make([]byte, 0, len(body)), body)
	}
	return body[:len(body):len(body)]
}

// Text returns the decoded text of a string, or "" for any other value.
func (v JSON) Text() string { return string(v.Bytes()) }

// Is reports whether the value is the string s.
func (v JSON) Is(s string) bool {
	if v.Kind() != String {
		return false
	}
	c := v.cells[v.at]
	if c.escaped {
		return v.Text() == s
	}
	return string(trimQuotes(v.text, c)) == s
}

// Plain reports whether the value is a string whose literal has no escapes.
func (v JSON) Plain() bool { return v.Kind() == String && !v.cells[v.at].escaped }

func (v JSON) childAt(at int32) JSON { return JSON{v.tape, at} }

// Members iterates over the names and values of an object in the order of the text. It is empty for any other
// value.
func (v JSON) Members() iter.Seq2[JSON, JSON] {
	return func(yield func(name, value JSON) bool) {
		if v.Kind() != Object {
			return
		}
		for i, end := v.at+1, v.cells[v.at].next; i < end; i = v.cells[i+1].next {
			if !yield(v.childAt(i), v.childAt(i+1)) {
				return
			}
		}
	}
}

// Edit rebuilds an object or array from the results of edit, which it calls for each member or element (name
// is "" for elements). A nil result drops the member or element. Values that edit returns unchanged keep every
// byte.
func (v JSON) Edit(edit func(name string, value JSON) json.RawMessage) json.RawMessage {
	out := append(make([]byte, 0, len(v.Raw())+64), byte(v.Kind()))
	add := func(name, value JSON) {
		doc := edit(name.Text(), value)
		if doc == nil {
			return
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		if name.tape != nil {
			out = append(append(out, name.Raw()...), ':')
		}
		out = append(out, doc...)
	}
	for name, value := range v.Members() {
		add(name, value)
	}
	for _, value := range v.Elements() {
		add(JSON{}, value)
	}
	return append(out, byte(v.Kind())+2) // '{' and '}', '[' and ']'
}

// Elements iterates over the indices and elements of an array. It is empty for any other value.
func (v JSON) Elements() iter.Seq2[int, JSON] {
	return func(yield func(int, JSON) bool) {
		if v.Kind() != Array {
			return
		}
		n := 0
		for i, end := v.at+1, v.cells[v.at].next; i < end; i = v.cells[i].next {
			if !yield(n, v.childAt(i)) {
				return
			}
			n++
		}
	}
}

// Len returns the number of members of an object or of elements of an array.
func (v JSON) Len() int {
	n := 0
	for range v.Members() {
		n++
	}
	for range v.Elements() {
		n++
	}
	return n
}

// Get returns the value of a member, absent if there is none.
func (v JSON) Get(name string) JSON {
	for n, value := range v.Members() {
		if n.Is(name) {
			return value
		}
	}
	return JSON{}
}

// At follows the decoded tokens of a JSON pointer. The result is absent if they lead nowhere.
func (v JSON) At(tokens ...string) JSON {
	for _, token := range tokens {
		v = v.findToken(token)
	}
	return v
}

func (v JSON) findToken(token string) JSON {
	if v.Kind() != Array {
		return v.Get(token)
	}
	if index, ok := Index(token); ok {
		for i, value := range v.Elements() {
			if i == index {
				return value
			}
		}
	}
	return JSON{}
}

// Index parses a token of a JSON pointer as an array index. It returns false if the token is not a canonical
// decimal number.
func Index(token string) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && i >= 0 && strconv.Itoa(i) == token
}

// Finder returns a function that finds a member's value by name. It builds an index if there are many members.
func (v JSON) Finder() func(name JSON) JSON {
	if v.Len() <= maxLinearKeys {
		return func(name JSON) JSON {
			for n, value := range v.Members() {
				if n.hasSameText(name) {
					return value
				}
			}
			return JSON{}
		}
	}
	index := make(map[string]JSON)
	for n, value := range v.Members() {
		index[n.Text()] = value
	}
	return func(name JSON) JSON { return index[string(name.Bytes())] }
}

func (v JSON) hasSameText(w JSON) bool {
	if v.Plain() && w.Plain() {
		return string(v.Raw()) == string(w.Raw())
	}
	return v.Text() == w.Text()
}

// Duplicate returns the first name of an object that repeats an earlier one, or an absent value.
func (v JSON) Duplicate() JSON {
	var few [maxLinearKeys]int32
	var seen map[string]struct{}
	n := 0
	for name := range v.Members() {
		if n < maxLinearKeys {
			for _, at := range few[:n] {
				if v.childAt(at).hasSameText(name) {
					return name
				}
			}
			few[n] = name.at
			n++
			continue
		}
		if seen == nil {
			seen = make(map[string]struct{}, 2*maxLinearKeys)
			for _, at := range few {
				seen[v.childAt(at).Text()] = struct{}{}
			}
		}
		key := name.Bytes()
		if _, twice := seen[string(key)]; twice {
			return name
		}
		seen[string(key)] = struct{}{}
	}
	return JSON{}
}

// Equal reports whether two values mean the same. The order of keys is ignored and numbers are compared by
// value. An absent value equals only an absent value.
func (v JSON) Equal(w JSON) bool {
	if v.Kind() == 0 || w.Kind() == 0 || string(v.Raw()) == string(w.Raw()) {
		return v.Kind() == w.Kind()
	}
	return v.Kind() == w.Kind() && string(v.Canonical()) == string(w.Canonical())
}

// Any returns the value as encoding/json decodes it, with json.Number.
func (v JSON) Any() any {
	switch v.Kind() {
	case String:
		return v.Text()
	case Number:
		return json.Number(v.Raw())
	case True, False:
		return v.Kind() == True
	case Array:
		out := []any{}
		for _, item := range v.Elements() {
			out = append(out, item.Any())
		}
		return out
	case Object:
		out := map[string]any{}
		for name, value := range v.Members() {
			out[name.Text()] = value.Any()
		}
		return out
	}
	return nil
}

// Sorted iterates over the members of an object in byte order of their names. Of duplicates it yields only the
// last.
func (v JSON) Sorted() iter.Seq2[string, JSON] {
	last := map[string]JSON{}
	for name, value := range v.Members() {
		last[name.Text()] = value
	}
	return func(yield func(string, JSON) bool) {
		for _, name := range slices.Sorted(maps.Keys(last)) {
			if !yield(name, last[name]) {
				return
			}
		}
	}
}

// Builder writes compact JSON that need not be read again: it copies values together with their cells.
type Builder struct {
	tape
	open []int32
}

// NewBuilder returns a Builder with capacity for about the size of others.
func NewBuilder(others ...JSON) *Builder {
	size, cells := 2, 1
	for _, o := range others {
		if o.tape != nil {
			size, cells = size+len(o.Raw())+1, cells+len(o.cells)
		}
	}
	return &Builder{tape: tape{text: make([]byte, 0, size), cells: make([]cell, 0, cells)}}
}

func (b *Builder) writeComma() {
	if n := len(b.text); n > 0 && b.text[n-1] != '{' && b.text[n-1] != '[' && b.text[n-1] != ':' {
		b.text = append(b.text, ',')
	}
}

// Begin starts an Object or an Array.
func (b *Builder) Begin(kind Kind) {
	b.writeComma()
	b.open = append(b.open, int32(len(b.cells)))
	b.cells = append(b.cells, cell{start: int32(len(b.text)), kind: kind})
	b.text = append(b.text, byte(kind))
}

// End closes the object or array that was started last.
func (b *Builder) End() {
	this := &b.cells[b.open[len(b.open)-1]]
	b.open = b.open[:len(b.open)-1]
	b.text = append(b.text, byte(this.kind)+2) // '{' and '}', '[' and ']'
	this.end, this.next = int32(len(b.text)), int32(len(b.cells))
}

// Name copies the name of a member; its value must follow.
func (b *Builder) Name(name JSON) {
	b.Copy(name)
	b.text = append(b.text, ':')
}

// Copy copies a value.
func (b *Builder) Copy(v JSON) {
	b.writeComma()
	from := v.cells[v.at]
	shift, move := int32(len(b.text))-from.start, int32(len(b.cells))-v.at
	b.text = append(b.text, v.text[from.start:from.end]...)
	for _, c := range v.cells[v.at:from.next] {
		c.start, c.end, c.next = c.start+shift, c.end+shift, c.next+move
		b.cells = append(b.cells, c)
	}
}

// String writes a string.
func (b *Builder) String(s string) {
	b.writeComma()
	c := cell{start: int32(len(b.text)), kind: String, next: int32(len(b.cells) + 1)}
	b.text = AppendQuote(b.text, s)
	c.end = int32(len(b.text))
	c.escaped = c.end-c.start != int32(len(s))+2
	b.cells = append(b.cells, c)
}

// copyCompact copies a value without the white space between its tokens.
func (b *Builder) copyCompact(v JSON) {
	switch v.Kind() {
	case Object:
		b.Begin(Object)
		for name, value := range v.Members() {
			b.Name(name)
			b.copyCompact(value)
		}
		b.End()
	case Array:
		b.Begin(Array)
		for _, value := range v.Elements() {
			b.copyCompact(value)
		}
		b.End()
	default:
		b.Copy(v)
	}
}

// JSON returns the value that was written.
func (b *Builder) JSON() JSON { return JSON{tape: &b.tape} }

const hexDigits = "0123456789abcdef"

// AppendQuote appends s as a JSON string in the form of RFC 8785 section 3.2.2.2: only quotes, backslashes and
// control characters are escaped.
func AppendQuote(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= utf8.RuneSelf || isPlainByte[c] {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}
