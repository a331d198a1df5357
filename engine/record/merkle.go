package record

import (
	"crypto/sha256"
	"errors"
	"math/bits"
	"slices"
)

// TreeHash is a hash of a Merkle tree.
type TreeHash [sha256.Size]byte

// ErrTree is for peaks that do not fit a tree of the given size.
var ErrTree = errors.New("not a tree of this size")

// Tree is an append-only Merkle tree as RFC 6962 defines it, of which only the peaks
// are kept: the roots of its complete subtrees, the largest first. So appending and
// the root cost its logarithm, however large it has become. The zero value is empty.
type Tree struct {
	size  int64
	peaks []TreeHash
}

// NewTree returns the tree of a size with these peaks, as Peaks returned them.
func NewTree(size int64, peaks []TreeHash) (Tree, error) {
	if size < 0 || bits.OnesCount64(uint64(size)) != len(peaks) {
		return Tree{}, ErrTree
	}
	return Tree{size: size, peaks: slices.Clone(peaks)}, nil
}

// Size is the number of leaves.
func (t *Tree) Size() int64 { return t.size }

// Peaks are what NewTree needs to go on from here.
func (t *Tree) Peaks() []TreeHash { return slices.Clone(t.peaks) }

// Clone returns a tree that grows apart from t.
func (t *Tree) Clone() Tree { return Tree{size: t.size, peaks: slices.Clone(t.peaks)} }

// Append adds a leaf with this data.
func (t *Tree) Append(data []byte) {
	t.peaks = append(t.peaks, hashLeaf(data))
	for size := t.size; size&1 == 1; size >>= 1 { // two subtrees of one size become one
		last := len(t.peaks) - 1
		t.peaks[last-1] = hashNode(t.peaks[last-1], t.peaks[last])
		t.peaks = t.peaks[:last]
	}
	t.size++
}

// Root is the hash of the whole tree; that of an empty one is the hash of nothing.
func (t *Tree) Root() TreeHash {
	if len(t.peaks) == 0 {
		return sha256.Sum256(nil)
	}
	root := t.peaks[len(t.peaks)-1]
	for i := len(t.peaks) - 2; i >= 0; i-- {
		root = hashNode(t.peaks[i], root)
	}
	return root
}

// The prefixes keep a leaf from being taken for a node.
func hashLeaf(data []byte) TreeHash {
	return sha256.Sum256(append([]byte{0}, data...))
}

func hashNode(left, right TreeHash) TreeHash {
	var both [1 + 2*sha256.Size]byte
	both[0] = 1
	copy(both[1:], left[:])
	copy(both[1+sha256.Size:], right[:])
	return sha256.Sum256(both[:])
}
