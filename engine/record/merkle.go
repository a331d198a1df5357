package record

import (
	"crypto/sha256"
	"errors"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// TreeHash is a hash of a Merkle tree.
type TreeHash = tlog.Hash

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
	t.peaks = append(t.peaks, tlog.RecordHash(data))
	for size := t.size; size&1 == 1; size >>= 1 { // two subtrees of one size become one
		last := len(t.peaks) - 1
		t.peaks[last-1] = tlog.NodeHash(t.peaks[last-1], t.peaks[last])
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
		root = tlog.NodeHash(t.peaks[i], root)
	}
	return root
}
