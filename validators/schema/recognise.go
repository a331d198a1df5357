package schema

import (
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// verdict is what the recogniser knows about a value.
type verdict uint8

const (
	unsure verdict = iota // the library must say
	no
	yes
)

// accepts says whether raw is one JSON value that certainly conforms.
func (n *node) accepts(raw []byte) bool {
	r := reading{src: raw, steps: maxSteps}
	end, v := r.value(n, r.space(0), 0)
	return v == yes && r.space(end) == len(raw)
}

const (
	// maxSteps bounds the values looked at, so that a schema that multiplies the
	// work costs little here before the library gets it.
	maxSteps = 200_000
	// maxNesting bounds the recursion.
	maxNesting = 500
	// exactDigits is how many digits any float64 keeps.
	exactDigits = 15
)

// reading goes through a document once, or once more for each schema that is
// applied in place.
type reading struct {
	src   []byte
	steps int
}

// value judges the value at pos. end is where it ends, and is only set with yes:
// a no or an unsure ends the reading of everything around it that needs a yes.
func (r *reading) value(n *node, pos, depth int) (end int, v verdict) {
	if r.steps--; r.steps < 0 || depth > maxNesting || pos >= len(r.src) {
		return 0, unsure
	}
	if n != nil {
		switch {
		case n.never:
			return 0, no
		case n.unsure:
			return 0, unsure
		case n.trivia:
			n = nil
		}
	}
	switch c := r.src[pos]; c {
	case '{':
		end, v = r.object(n, pos, depth)
	case '[':
		end, v = r.array(n, pos, depth)
	case '"':
		end, v = r.text(n, pos)
	case 't':
		end, v = r.literal(n, pos, "true", isTrue)
	case 'f':
		end, v = r.literal(n, pos, "false", isFalse)
	case 'n':
		end, v = r.literal(n, pos, "null", isNull)
	default:
		end, v = r.number(n, pos)
	}
	if v == yes && n != nil && n.inPlace {
		v = r.inPlace(n, pos, depth)
	}
	return end, v
}

// inPlace judges by the schemas that apply to the same value.
func (r *reading) inPlace(n *node, pos, depth int) verdict {
	is := func(sub *node) verdict {
		_, v := r.value(sub, pos, depth+1)
		return v
	}
	if n.ref != nil {
		if v := is(n.ref); v != yes {
			return v
		}
	}
	for _, sub := range n.allOf {
		if v := is(sub); v != yes {
			return v
		}
	}
	if n.not != nil {
		switch is(n.not) {
		case yes:
			return no
		case unsure:
			return unsure
		}
	}
	if v := anyOf(n.anyOf, is); v != yes {
		return v
	}
	if v := exactlyOne(n.oneOf, is); v != yes {
		return v
	}
	if n.condition == nil {
		return yes
	}
	switch is(n.condition) {
	case yes:
		if n.then != nil {
			return is(n.then)
		}
	case no:
		if n.otherwise != nil {
			return is(n.otherwise)
		}
	default:
		return unsure
	}
	return yes
}

func anyOf(list []*node, is func(*node) verdict) verdict {
	if len(list) == 0 {
		return yes
	}
	v := no
	for _, sub := range list {
		switch is(sub) {
		case yes:
			return yes
		case unsure:
			v = unsure
		}
	}
	return v
}

func exactlyOne(list []*node, is func(*node) verdict) verdict {
	if len(list) == 0 {
		return yes
	}
	matches := 0
	for _, sub := range list {
		switch is(sub) {
		case yes:
			matches++
		case unsure:
			return unsure
		}
	}
	if matches == 1 {
		return yes
	}
	return no
}

// kind judges by the type alone.
func (n *node) kind(t typeSet) verdict {
	if n != nil && n.types != 0 && n.types&t == 0 {
		return no
	}
	return yes
}

// among judges a constant that is no string and no number.
func (c *constants) among(t typeSet) verdict {
	if c == nil || c.literals&t != 0 {
		return yes
	}
	return no
}

// whole judges an object or array against constants: only the library compares
// those.
func (c *constants) whole() verdict {
	switch {
	case c == nil:
		return yes
	case c.composite:
		return unsure
	}
	return no
}

func (r *reading) literal(n *node, pos int, word string, t typeSet) (int, verdict) {
	end := pos + len(word)
	if end > len(r.src) || string(r.src[pos:end]) != word {
		return 0, unsure
	}
	if n == nil {
		return end, yes
	}
	return end, worst(n.kind(t), n.enum.among(t), n.constant.among(t))
}

// worst is what several demands together say. A no counts even beside an unsure.
func worst(all ...verdict) verdict {
	v := yes
	for _, one := range all {
		if one == no {
			return no
		}
		v = min(v, one)
	}
	return v
}

func (r *reading) object(n *node, pos, depth int) (int, verdict) {
	if n == nil {
		n = &anything
	} else if v := worst(n.kind(isObject), n.enum.whole(), n.constant.whole()); v != yes {
		return 0, v
	}
	var seen uint64
	keys := 0
	pos = r.space(pos + 1)
	for first := true; ; first = false {
		if c := r.at(pos); c == '}' && first {
			break
		} else if c != '"' {
			return 0, unsure
		}
		end, bit, v := r.member(n, pos, depth)
		if v != yes {
			return 0, v
		}
		seen |= bit
		keys++
		pos = r.space(end)
		if c := r.at(pos); c == '}' {
			break
		} else if c != ',' {
			return 0, unsure
		}
		pos = r.space(pos + 1)
	}
	if seen&n.required != n.required || !within(keys, n.minKeys, n.maxKeys) {
		return 0, no
	}
	return pos + 1, yes
}

// anything is the schema of what no schema speaks of.
var anything = node{trivia: true, minKeys: -1, maxKeys: -1, minItems: -1, maxItems: -1, minLength: -1, maxLength: -1}

// member judges one key with its value. bit says which required name it was.
func (r *reading) member(n *node, pos, depth int) (end int, bit uint64, v verdict) {
	key, end, ok := r.key(pos)
	if !ok {
		return 0, 0, unsure
	}
	if n.names != nil {
		if _, v := r.value(n.names, pos, depth+1); v != yes {
			return 0, 0, v
		}
	}
	colon := r.space(end)
	if r.at(colon) != ':' {
		return 0, 0, unsure
	}
	at := r.space(colon + 1)
	p, spoken := n.properties[string(key)]
	spoken = spoken && p.schema != nil
	end, v = r.value(p.schema, at, depth+1)
	if v != yes {
		return 0, 0, v
	}
	for _, pp := range n.patterns {
		if pp.pattern.Match(key) {
			spoken = true
			if _, v := r.value(pp.schema, at, depth+1); v != yes {
				return 0, 0, v
			}
		}
	}
	if spoken {
		return end, p.bit, yes
	}
	if n.closed {
		return 0, 0, no
	}
	if n.additional != nil {
		if _, v := r.value(n.additional, at, depth+1); v != yes {
			return 0, 0, v
		}
	}
	return end, p.bit, yes
}

func (r *reading) array(n *node, pos, depth int) (int, verdict) {
	if n == nil {
		n = &anything
	} else if v := worst(n.kind(isArray), n.enum.whole(), n.constant.whole()); v != yes {
		return 0, v
	}
	pos = r.space(pos + 1)
	count := 0
	for ; r.at(pos) != ']' || count > 0; count++ {
		item := n.items
		if count < len(n.prefix) {
			item = n.prefix[count]
		}
		end, v := r.value(item, pos, depth+1)
		if v != yes {
			return 0, v
		}
		pos = r.space(end)
		if c := r.at(pos); c == ']' {
			count++
			break
		} else if c != ',' {
			return 0, unsure
		}
		pos = r.space(pos + 1)
	}
	if !within(count, n.minItems, n.maxItems) {
		return 0, no
	}
	return pos + 1, yes
}

func within(n, least, most int) bool {
	return (least < 0 || n >= least) && (most < 0 || n <= most)
}

// key returns the key at pos, decoded.
func (r *reading) key(pos int) (key []byte, end int, ok bool) {
	body, end, form := r.str(pos)
	if form == broken {
		return nil, 0, false
	}
	if form == coded {
		text, ok := r.decoded(pos, end)
		return []byte(text), end, ok
	}
	return body, end, true
}

func (r *reading) text(n *node, pos int) (int, verdict) {
	body, end, form := r.str(pos)
	if form == broken {
		return 0, unsure
	}
	if n == nil {
		return end, yes
	}
	if n.kind(isString) == no {
		return 0, no
	}
	if form == coded {
		text, ok := r.decoded(pos, end)
		if !ok {
			return 0, unsure
		}
		body = []byte(text)
	}
	if n.minLength >= 0 || n.maxLength >= 0 {
		length := len(body)
		if form != ascii {
			length = utf8.RuneCount(body)
		}
		if !within(length, n.minLength, n.maxLength) {
			return 0, no
		}
	}
	switch {
	case n.enum != nil && !n.enum.strings[string(body)],
		n.constant != nil && !n.constant.strings[string(body)],
		n.pattern != nil && !n.pattern.Match(body),
		n.format != nil && !n.format(string(body)):
		return 0, no
	}
	return end, yes
}

func (r *reading) decoded(pos, end int) (string, bool) {
	var text string
	err := json.Unmarshal(r.src[pos:end], &text)
	return text, err == nil
}

func (r *reading) number(n *node, pos int) (int, verdict) {
	end, whole, exact := numberEnd(r.src, pos)
	if end < 0 {
		return 0, unsure
	}
	if n == nil {
		return end, yes
	}
	if n.types&(isNumber|isInteger) == 0 && n.types != 0 {
		return 0, no
	}
	onlyWhole := n.types&isNumber == 0 && n.types != 0
	if n.enum == nil && n.constant == nil && !n.numeric && (!onlyWhole || whole) {
		return end, yes
	}
	if !exact {
		return 0, unsure
	}
	f, err := strconv.ParseFloat(string(r.src[pos:end]), 64)
	if err != nil {
		return 0, unsure
	}
	if onlyWhole && !whole {
		if f == math.Trunc(f) {
			return 0, unsure // 1.0 is an integer; the library says so too
		}
		return 0, no
	}
	v := worst(n.enum.number(f), n.constant.number(f), n.min.over(f), n.max.under(f), n.multiple(f, whole))
	return end, v
}

func (c *constants) number(f float64) verdict {
	if c == nil {
		return yes
	}
	for _, one := range c.numbers {
		if one == f {
			return yes
		}
	}
	if c.composite {
		return unsure
	}
	return no
}

func (b bound) over(f float64) verdict {
	if !b.set || f > b.at || f == b.at && !b.exclusive {
		return yes
	}
	return no
}

func (b bound) under(f float64) verdict {
	if !b.set || f < b.at || f == b.at && !b.exclusive {
		return yes
	}
	return no
}

func (n *node) multiple(f float64, whole bool) verdict {
	switch {
	case n.multipleOf == 0:
		return yes
	case !whole:
		return unsure
	case int64(f)%n.multipleOf == 0:
		return yes
	}
	return no
}
