package record

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// ErrAnchor reports text or a list of heads that is not in the form of an anchor.
var ErrAnchor = errors.New("not an anchor")

// Head is an instance's last event and its hash, which covers all previous events.
type Head struct {
	Instance string
	Seq      int64
	Hash     string // hex
}

// Anchor is the content of a signed note. All anchors of a store form one Merkle tree. Each appends a leaf for every
// instance that has moved since the previous anchor, ordered by id. The newest anchor therefore covers everything
// that was ever anchored.
type Anchor struct {
	// Origin names the log; it is the name of the signing key.
	Origin string
	// Size is the number of leaves, Root the root of the tree.
	Size int64
	Root TreeHash
	// Number counts the anchors from 1. Previous is the HashNote of the previous anchor, ""
	// for the first.
	Number   int64
	Previous string
	Time     time.Time
	// Events is the total number of events that the store had recorded.
	Events int64
}

// headDomain separates the hashes of leaves from every other use of the tree.
const headDomain = "gavel/head/v1\x00"

// Leaf returns the tree's leaf for a head, or ErrAnchor if the head is invalid.
func (h Head) Leaf() ([]byte, error) {
	hash, err := hex.DecodeString(h.Hash)
	if err != nil || len(hash) != sha256.Size || h.Seq < 1 || h.Instance == "" {
		return nil, fmt.Errorf("%w: event %d of %q with the hash %q", ErrAnchor, h.Seq, h.Instance, h.Hash)
	}
	leaf := make([]byte, 0, len(headDomain)+8+len(h.Instance)+8+sha256.Size)
	leaf = append(leaf, headDomain...)
	leaf = binary.BigEndian.AppendUint64(leaf, uint64(len(h.Instance)))
	leaf = append(leaf, h.Instance...)
	leaf = binary.BigEndian.AppendUint64(leaf, uint64(h.Seq)) //nolint:gosec // positive
	return append(leaf, hash...), nil
}

// HashNote returns the hex SHA-256 of a whole note; the next anchor refers to it.
func HashNote(note string) string {
	sum := sha256.Sum256([]byte(note))
	return hex.EncodeToString(sum[:])
}

// The lines of an anchor that follow the three lines of a checkpoint; anchorLines counts all of them.
const (
	numberLine   = "anchor "
	previousLine = "previous "
	timeLine     = "time "
	eventsLine   = "events "
	noPrevious   = "none"
	anchorLines  = 7
)

// Text formats the anchor as a C2SP tlog-checkpoint: origin, size and root, and one line for each
// other field.
func (a Anchor) Text() string {
	previous := a.Previous
	previous = cmp.Or(previous, noPrevious)
	return fmt.Sprintf("%s\n%d\n%s\n%s%d\n%s%s\n%s%s\n%s%d\n", a.Origin, a.Size, a.Root,
		numberLine, a.Number, previousLine, previous, timeLine, a.Time.UTC().Format(time.RFC3339Nano), eventsLine, a.Events)
}

// ParseAnchor reads the output of Text and rejects any other form: an anchor has exactly one text.
func ParseAnchor(text string) (Anchor, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != anchorLines+1 || lines[anchorLines] != "" {
		return Anchor{}, fmt.Errorf("%w: expected %d lines", ErrAnchor, anchorLines)
	}
	a := Anchor{Origin: lines[0]}
	var errs []error
	number := func(line, prefix string) int64 {
		n, err := strconv.ParseInt(strings.TrimPrefix(line, prefix), 10, 64)
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("%w: %q", ErrAnchor, line))
		}
		return n
	}
	a.Size = number(lines[1], "")
	a.Number = number(lines[3], numberLine)
	a.Events = number(lines[6], eventsLine)
	root, err := tlog.ParseHash(lines[2])
	errs = append(errs, err)
	a.Root = root
	if a.Previous = strings.TrimPrefix(lines[4], previousLine); a.Previous == noPrevious {
		a.Previous = ""
	}
	a.Time, err = time.Parse(time.RFC3339Nano, strings.TrimPrefix(lines[5], timeLine))
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return Anchor{}, fmt.Errorf("%w: %w", ErrAnchor, err)
	}
	if a.Number < 1 || a.Text() != text {
		return Anchor{}, fmt.Errorf("%w: not in canonical form", ErrAnchor)
	}
	return a, nil
}

const headsTitle = "gavel/heads/v1"

// EncodeHeads encodes the heads that an anchor adds and the tree that results from them, from
// which the next anchor continues.
func EncodeHeads(after Tree, heads []Head) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %d %d", headsTitle, after.size, len(heads))
	for _, peak := range after.peaks {
		b.WriteString(" " + peak.String())
	}
	b.WriteByte('\n')
	for _, h := range heads {
		fmt.Fprintf(&b, "%d %s %q\n", h.Seq, h.Hash, h.Instance)
	}
	return b.Bytes()
}

// DecodeHeads reads the output of EncodeHeads. Only the root of a signed anchor proves the result.
// It returns ErrAnchor for any other input.
func DecodeHeads(encoded []byte) (after Tree, heads []Head, err error) {
	broken := func(what string) error { return fmt.Errorf("%w: its heads: %s", ErrAnchor, what) }
	first, rest, _ := strings.Cut(string(encoded), "\n")
	parts := strings.Split(first, " ")
	if len(parts) < 3 || parts[0] != headsTitle {
		return Tree{}, nil, broken("missing title")
	}
	size, err := strconv.ParseInt(parts[1], 10, 64)
	count, err2 := strconv.Atoi(parts[2])
	if err != nil || err2 != nil || count < 0 || count > len(rest) {
		return Tree{}, nil, broken("missing size")
	}
	var peaks []TreeHash
	for _, part := range parts[3:] {
		peak, err := tlog.ParseHash(part)
		if err != nil {
			return Tree{}, nil, broken("invalid hash")
		}
		peaks = append(peaks, peak)
	}
	if after, err = NewTree(size, peaks); err != nil {
		return Tree{}, nil, broken("invalid tree")
	}
	heads = make([]Head, 0, count)
	for line := range strings.Lines(rest) {
		h, ok := parseHead(line)
		if !ok {
			return Tree{}, nil, broken(fmt.Sprintf("line %d", len(heads)+2))
		}
		heads = append(heads, h)
	}
	if len(heads) != count {
		return Tree{}, nil, broken(fmt.Sprintf("found %d of %d", len(heads), count))
	}
	return after, heads, nil
}

func parseHead(line string) (Head, bool) {
	line, ended := strings.CutSuffix(line, "\n")
	seq, rest, _ := strings.Cut(line, " ")
	hash, quoted, ok := strings.Cut(rest, " ")
	number, err := strconv.ParseInt(seq, 10, 64)
	id, err2 := strconv.Unquote(quoted)
	return Head{Instance: id, Seq: number, Hash: hash}, ended && ok && err == nil && err2 == nil
}

// TreeHash is a hash of a Merkle tree.
type TreeHash = tlog.Hash

// ErrTree reports peaks that do not fit a tree of the given size.
var ErrTree = errors.New("not a tree of this size")

// Tree is an append-only Merkle tree as defined by RFC 6962. It stores only the peaks: the roots
// of its complete subtrees, the largest first. Appending and computing the root therefore take
// logarithmic time, whatever the size. The zero value is empty.
type Tree struct {
	size  int64
	peaks []TreeHash
}

// NewTree returns a tree of the given size with these peaks, as returned by Peaks. It returns ErrTree if they do not
// fit.
func NewTree(size int64, peaks []TreeHash) (Tree, error) {
	if size < 0 || bits.OnesCount64(uint64(size)) != len(peaks) {
		return Tree{}, ErrTree
	}
	return Tree{size: size, peaks: slices.Clone(peaks)}, nil
}

// Size returns the number of leaves.
func (t *Tree) Size() int64 { return t.size }

// Peaks returns the peaks from which NewTree can continue this tree.
func (t *Tree) Peaks() []TreeHash { return slices.Clone(t.peaks) }

// Clone returns an independent copy of t.
func (t *Tree) Clone() Tree { return Tree{size: t.size, peaks: slices.Clone(t.peaks)} }

// Append adds a leaf with this data.
func (t *Tree) Append(data []byte) {
	t.peaks = append(t.peaks, tlog.RecordHash(data))
	for size := t.size; size&1 == 1; size >>= 1 { // two subtrees of the same size become one
		last := len(t.peaks) - 1
		t.peaks[last-1] = tlog.NodeHash(t.peaks[last-1], t.peaks[last])
		t.peaks = t.peaks[:last]
	}
	t.size++
}

// Root returns the hash of the whole tree; for an empty tree, the hash of nothing.
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
