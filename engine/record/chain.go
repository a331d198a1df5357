package record

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
)

// hashDomain separates these hashes from every other use of SHA-256.
const hashDomain = "gavel/event/v1\x00"

// computeHash returns hex(SHA-256(domain, schema, prev, body)); fields of variable length are preceded
// by their length. prev is hex, "" for the first event.
func computeHash(schema int, prev string, body []byte) (string, error) {
	before, err := hex.DecodeString(prev)
	if err != nil || (len(before) != 0 && len(before) != sha256.Size) {
		return "", fmt.Errorf("%w: previous hash %q", ErrMalformed, prev)
	}
	head := make([]byte, 0, len(hashDomain)+8+1+sha256.Size+8)
	head = append(head, hashDomain...)
	head = binary.BigEndian.AppendUint64(head, uint64(schema)) //nolint:gosec // positive
	head = append(head, byte(len(before)))                     //nolint:gosec // 0 or 32
	head = append(head, before...)
	head = binary.BigEndian.AppendUint64(head, uint64(len(body)))
	h := sha256.New()
	h.Write(head)
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Chain verifies one instance's history event by event. The zero value expects
// the first event.
type Chain struct {
	instance string
	seq      int64
	revision int64
	head     string
}

// Seq returns the seq of the last added event, 0 before the first.
func (c *Chain) Seq() int64 { return c.seq }

// Head returns the hash of the last added event, "" before the first. Comparing it with the
// instance's Head detects a history that was cut at its end, which the events alone cannot show.
func (c *Chain) Head() string { return c.head }

// Add checks that e follows: same instance, next seq, the hash of the previous event, a hash that
// covers its bytes, and fields that match the bytes. The error is a *BrokenError, and the chain
// is left unchanged.
func (c *Chain) Add(e Event) error {
	broken := func(format string, args ...any) error {
		id := c.instance
		id = cmp.Or(id, e.Instance)
		return &BrokenError{Instance: id, Seq: c.seq + 1, How: fmt.Sprintf(format, args...)}
	}
	switch {
	case c.seq > 0 && e.Instance != c.instance:
		return broken("it belongs to instance %s", e.Instance)
	case e.Seq != c.seq+1:
		return broken("found event %d in its place", e.Seq)
	case e.Revision < c.revision || e.Revision > c.revision+1:
		return broken("its revision goes from %d to %d", c.revision, e.Revision)
	case e.PrevHash != c.head:
		return broken("its previous hash is not the hash of the previous event")
	}
	schema, body := e.seal.schema, e.seal.body
	if body == nil {
		fresh, err := Encode(e)
		if err != nil {
			return broken("it cannot be encoded: %v", err)
		}
		schema, body = e.Schema, fresh
	} else if how := e.describeMismatch(); how != "" {
		return broken("%s", how)
	}
	hash, err := computeHash(schema, e.PrevHash, body)
	if err != nil {
		return broken("%v", err)
	}
	if hash != e.Hash {
		return broken("its hash does not cover its bytes")
	}
	c.instance, c.seq, c.revision, c.head = e.Instance, e.Seq, e.Revision, hash
	return nil
}

// describeMismatch describes how the fields differ from the sealed bytes, "" if they agree:
// a changed field must not pass because its bytes are untouched.
func (e Event) describeMismatch() string {
	now, err := Encode(e)
	if err != nil {
		return fmt.Sprintf("it cannot be encoded: %v", err)
	}
	if !bytes.Equal(now, e.seal.body) {
		return "its fields differ from its bytes"
	}
	return ""
}

// Verify recomputes the hash chain of one instance's whole history. It returns nil, the first error
// of events, or a *BrokenError that names the event. To detect a missing end, compare with the
// instance's Head: see Chain.
func Verify(events iter.Seq2[Event, error]) error {
	var c Chain
	for e, err := range events {
		if err != nil {
			return err
		}
		if err := c.Add(e); err != nil {
			return err
		}
	}
	return nil
}
