package document

import (
	"bytes"
	"slices"
	"sync"
)

// CheckJSON says whether raw is one strict JSON value, without decoding it: see
// the package comment for what is refused. A zero field of limits means its
// default. The error is an *Issue.
//
// It accepts a subset of what encoding/json accepts, allocates only for an
// object with escaped keys or for a refusal, and takes time linear in the length
// of raw (n log n in the number of keys of one object).
func CheckJSON(raw []byte, limits Limits) error {
	limits = limits.withDefaults()
	if len(raw) > limits.Bytes {
		return limits.tooLong(len(raw))
	}
	c := checkers.Get().(*checker)
	c.scanner = scanner{src: raw}
	c.depth = limits.Depth
	c.maxDepth = limits.Depth
	c.document()
	var err error
	if c.fault != nil {
		err = c.issue()
	}
	c.release()
	return err
}

var checkers = sync.Pool{New: func() any { return new(checker) }}

// checker walks a document and remembers the keys of the objects it is in.
type checker struct {
	scanner
	depth, maxDepth int // depth counts down
	// keys is a stack: the keys of the innermost object are at its end.
	keys []keyRef
	// arena holds keys that had to be unescaped.
	arena []byte
}

// keyRef is one key: a range of the source, or of the arena when it was escaped.
type keyRef struct {
	start, end int
	at         int // offset of its quote in the source
	escaped    bool
}

// fewKeys is up to how many keys comparing each with each beats sorting.
const fewKeys = 12

func (c *checker) release() {
	if cap(c.keys) > 4096 || cap(c.arena) > 64<<10 {
		return // a rare giant is left to the collector
	}
	*c = checker{keys: c.keys[:0], arena: c.arena[:0]}
	checkers.Put(c)
}

func (c *checker) document() {
	if !c.begin() || !c.value() {
		return
	}
	c.finish()
}

// value passes one value. On a refusal it returns false and the callers add the
// way to it on their way out.
func (c *checker) value() bool {
	switch c.peek() {
	case '{':
		return c.object()
	case '[':
		return c.array()
	case '"':
		_, _, ok := c.str()
		return ok
	default:
		return c.scalar()
	}
}

func (c *checker) enter() bool {
	if c.depth == 0 {
		return c.refuse(RuleDepth, c.pos, depthMessage(c.maxDepth))
	}
	c.depth--
	c.pos++
	return true
}

func (c *checker) object() bool {
	if !c.enter() {
		return false
	}
	base := len(c.keys)
	if c.peek() == '}' {
		c.pos++
		c.depth++
		return true
	}
	for {
		if c.peek() != '"' {
			return c.refuse(RuleSyntax, c.pos, c.expected(`a key in double quotes`))
		}
		if !c.key() || !c.colon() {
			return false
		}
		own := len(c.keys) - 1
		if !c.value() {
			c.passed(string(c.keyAt(c.keys[own])))
			return false
		}
		more, ok := c.next('}')
		if !ok {
			return false
		}
		if !more {
			break
		}
	}
	if !c.distinct(c.keys[base:]) {
		return false
	}
	c.keys = c.keys[:base]
	c.depth++
	return true
}

func (c *checker) array() bool {
	if !c.enter() {
		return false
	}
	if c.peek() == ']' {
		c.pos++
		c.depth++
		return true
	}
	for i := 0; ; i++ {
		if !c.value() {
			c.passedIndex(i)
			return false
		}
		more, ok := c.next(']')
		if !ok {
			return false
		}
		if !more {
			c.depth++
			return true
		}
	}
}

// key passes a key and puts it on the stack.
func (c *checker) key() bool {
	at := c.pos
	body, escaped, ok := c.str()
	if !ok {
		return false
	}
	k := keyRef{start: at + 1, end: at + 1 + len(body), at: at, escaped: escaped}
	if escaped {
		k.start = len(c.arena)
		c.arena = appendUnescaped(c.arena, body)
		k.end = len(c.arena)
	}
	c.keys = append(c.keys, k)
	return true
}

func (c *checker) keyAt(k keyRef) []byte {
	if k.escaped {
		return c.arena[k.start:k.end]
	}
	return c.src[k.start:k.end]
}

// distinct refuses an object with a key that stands twice.
func (c *checker) distinct(keys []keyRef) bool {
	if len(keys) <= fewKeys {
		for i := 1; i < len(keys); i++ {
			n := keys[i].end - keys[i].start
			for j := range i {
				if keys[j].end-keys[j].start == n && string(c.keyAt(keys[j])) == string(c.keyAt(keys[i])) {
					return c.twice(keys[i])
				}
			}
		}
		return true
	}
	slices.SortFunc(keys, func(a, b keyRef) int {
		if o := bytes.Compare(c.keyAt(a), c.keyAt(b)); o != 0 {
			return o
		}
		return a.at - b.at
	})
	for i := 1; i < len(keys); i++ {
		if string(c.keyAt(keys[i-1])) == string(c.keyAt(keys[i])) {
			return c.twice(keys[i])
		}
	}
	return true
}

func (c *checker) twice(k keyRef) bool {
	key := string(c.keyAt(k))
	c.refuse(RuleDuplicateKey, k.at, duplicateMessage(key))
	c.fault.Key = key
	c.passed(key)
	return false
}
