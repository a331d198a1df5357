package schema

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/big"
	"strconv"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Values are compared by what they mean: objects in any order of keys, numbers by their exact
// value, as the library does.

// exactDigits is how many digits any float64 keeps.
const exactDigits = 15

// number is a number of the document, read as far as it is needed.
type number struct {
	raw    []byte
	whole  bool // written without fraction and exponent
	parsed bool
	f      float64
	fast   bool // f orders it among limits that are exact
	r      *big.Rat
}

func newNumber(raw []byte) number {
	return number{raw: raw, whole: bytes.IndexByte(raw, '.') < 0 && bytes.IndexByte(raw, 'e') < 0 && bytes.IndexByte(raw, 'E') < 0}
}

// isFast parses a number that is short and has no exponent.
func (n *number) isFast() bool {
	if n.parsed {
		return n.fast
	}
	n.parsed = true
	digits := 0
	for _, c := range n.raw {
		switch c {
		case 'e', 'E':
			return false
		case '-', '.':
		default:
			digits++
		}
	}
	if digits <= exactDigits {
		f, err := strconv.ParseFloat(string(n.raw), 64)
		n.f, n.fast = f, err == nil
	}
	return n.fast
}

func (n *number) exact() *big.Rat {
	if n.r == nil {
		n.r, _ = new(big.Rat).SetString(string(n.raw))
	}
	return n.r
}

func (n *number) isWhole() bool {
	switch {
	case n.whole:
		return true
	case n.isFast():
		return n.f == math.Trunc(n.f)
	}
	return n.exact().IsInt()
}

func (n *number) compare(with limit) int {
	if with.fast && n.isFast() {
		return cmp.Compare(n.f, with.f)
	}
	return n.exact().Cmp(with.r)
}

// limit is a number of the schema.
type limit struct {
	r    *big.Rat
	f    float64
	fast bool
}

// newLimit finds out whether a number is the decimal value of the shortest form of a float64.
// Among such numbers, and those with at most 15 digits, floats compare as the decimals do:
// each has its own float.
func newLimit(r *big.Rat) limit {
	f, _ := r.Float64()
	shortest, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'e', -1, 64))
	return limit{r, f, ok && shortest.Cmp(r) == 0}
}

func (c *constants) contains(at document.JSON) bool {
	switch at.Kind() {
	case document.Null, document.True, document.False:
		return c.literals&typeOfLiteral(at.Kind()) != 0
	case document.String:
		return c.strings[string(at.Bytes())]
	case document.Number:
		n := newNumber(at.Raw())
		for _, one := range c.numbers {
			if n.compare(one) == 0 {
				return true
			}
		}
		return false
	}
	for _, one := range c.composites {
		if isEqual(at, one) {
			return true
		}
	}
	return false
}

func isEqual(a, b document.JSON) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case document.String:
		return bytes.Equal(a.Bytes(), b.Bytes())
	case document.Number:
		x, y := newNumber(a.Raw()), newNumber(b.Raw())
		return bytes.Equal(x.raw, y.raw) || x.exact().Cmp(y.exact()) == 0
	case document.Array:
		other := listElements(b, nil)
		if a.Len() != len(other) {
			return false
		}
		for i, item := range a.Elements() {
			if !isEqual(item, other[i]) {
				return false
			}
		}
	case document.Object:
		if a.Len() != b.Len() {
			return false
		}
		find := b.Finder()
		for name, value := range a.Members() {
			if other := find(name); other.Kind() == 0 || !isEqual(value, other) {
				return false
			}
		}
	}
	return true
}

func listElements(v document.JSON, out []document.JSON) []document.JSON {
	for _, item := range v.Elements() {
		out = append(out, item)
	}
	return out
}

// fewItems is how many items are compared in pairs: hashing costs more.
const fewItems = 12

// findTwins returns the indices of the first item that equals an earlier one, and of that one.
// The last result is false when hashes of different values met, which nobody will see.
func findTwins(items []document.JSON) (earlier, later int, found, sure bool) {
	if len(items) <= fewItems {
		for later := range items {
			for earlier := range later {
				if isEqual(items[earlier], items[later]) {
					return earlier, later, true, true
				}
			}
		}
		return 0, 0, false, true
	}
	seen := make(map[uint64]int, len(items))
	for later, item := range items {
		hash := hashValue(item)
		if earlier, again := seen[hash]; again {
			return earlier, later, true, isEqual(items[earlier], item)
		}
		seen[hash] = later
	}
	return 0, 0, false, true
}

var hashSeed = maphash.MakeSeed()

// hashValue is the same for values that are equal. Nobody who does not know the seed can make
// different values that share a hash.
func hashValue(v document.JSON) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	_ = h.WriteByte(byte(v.Kind()))
	switch v.Kind() {
	case document.String:
		_, _ = h.Write(v.Bytes())
	case document.Number:
		n := newNumber(v.Raw())
		if n.whole && string(n.raw) != "-0" {
			_, _ = h.Write(n.raw)
		} else {
			_, _ = h.WriteString(n.exact().RatString())
		}
	case document.Array:
		for _, item := range v.Elements() {
			writeHash(&h, hashValue(item))
		}
	case document.Object:
		sum := uint64(0) // in any order of keys
		for name, value := range v.Members() {
			var member maphash.Hash
			member.SetSeed(hashSeed)
			writeHash(&member, hashValue(name))
			writeHash(&member, hashValue(value))
			sum += member.Sum64()
		}
		writeHash(&h, sum)
	}
	return h.Sum64()
}

func writeHash(h *maphash.Hash, sum uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], sum)
	_, _ = h.Write(b[:])
}
