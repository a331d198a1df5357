// Package clientstate is about what clients carry from one request to the next: a form that a
// person fills in, a call that goes on with an answer.
//
// It promises that a state opens only for what it was sealed for, and that what is good once is
// good once, within its time by the store's clock, whichever process over the store is asked. It
// must never say what a state holds to anyone but who opens it.
package clientstate

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/memstore"
	"github.com/gavel-mcp/gavel/engine/store"
)

// ErrState is for a state that is not one of these, or not for this, or used up.
var ErrState = errors.New("invalid state of a client")

// States seals states. They end with it, unless Share is called. It is safe for concurrent use.
type States struct{ now atomic.Pointer[shared] }

type shared struct {
	aead     cipher.AEAD
	counters store.Counters
}

// New returns States with a key of their own.
func New() *States {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	s := &States{}
	s.Share(key, memstore.New())
	return s
}

// Share makes states those of all processes with this key of 32 bytes and these counters.
func (s *States) Share(key []byte, counters store.Counters) {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has the right length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the right block
	}
	s.now.Store(&shared{aead, counters})
}

// Seal returns a text that only Open makes the state of again, and only with the same binding.
func (s *States) Seal(state string, binding []byte) string {
	sealed := s.now.Load().aead.Seal(nil, nil, []byte(state), binding) //nolint:gosec // the AEAD draws its nonce itself
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// Open returns a state that was sealed, or ErrState.
func (s *States) Open(sealed string, binding []byte) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", ErrState
	}
	state, err := s.now.Load().aead.Open(nil, nil, raw, binding)
	if err != nil {
		return "", ErrState
	}
	return string(state), nil
}

// A counter says what became of a use: it is at allowed until it is at both, and one whose time
// is over begins anew at used.
const (
	allowed = 1
	used    = 2
	both    = allowed + used
)

// AllowUse returns the name of one use, which Use takes up within a time.
func (s *States) AllowUse(ctx context.Context, lasts time.Duration) (name string, err error) {
	name = rand.Text()
	_, err = s.count(ctx, store.Addition{Name: useCounter + name, Add: allowed, Lasts: lasts})
	return name, err
}

// Use takes up a use, and returns what is left of its time. ErrState when it was taken up before, or
// its time is over.
func (s *States) Use(ctx context.Context, name string) (left time.Duration, err error) {
	c, err := s.count(ctx, store.Addition{Name: useCounter + name, Add: used, Most: both, Lasts: time.Minute})
	if err == nil && (c.Full || c.N != both) {
		err = ErrState
	}
	return c.Left, err
}

// CountUpTo counts one more of a name, and reports whether that is no more than most so far. It counts
// anew when a time has passed since the first.
func (s *States) CountUpTo(ctx context.Context, name string, most int64, lasts time.Duration) (bool, error) {
	c, err := s.count(ctx, store.Addition{Name: name, Add: 1, Most: most, Lasts: lasts})
	return err == nil && !c.Full, err
}

// useCounter precedes the names of uses among the counters.
const useCounter = "use "

func (s *States) count(ctx context.Context, a store.Addition) (store.Count, error) {
	counts, err := s.now.Load().counters.Count(ctx, a)
	if err != nil {
		return store.Count{}, fmt.Errorf("count what clients bring back: %w", err)
	}
	return counts[0], nil
}
