// Package clientstate seals state that clients carry from one request to the next: a form that a person fills in, or
// a call that continues with an answer.
//
// Guarantees:
//   - A state can be opened only for the purpose that it was sealed for.
//   - A single-use state is accepted once and within its lifetime by the store's clock, by any process that shares
//     the store.
//
// It must never reveal a state to a caller that cannot open it.
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

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// ErrState is returned for a state that is invalid, was sealed for another purpose, or was already used.
var ErrState = errors.New("invalid client state")

// States seals and opens states. Its key exists only in memory unless Share is called. It is safe for concurrent use.
type States struct{ now atomic.Pointer[shared] }

type shared struct {
	aead     cipher.AEAD
	counters store.Counters
}

// New returns States with a random key.
func New() *States {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	s := &States{}
	s.Share(key, memory.New())
	return s
}

// Share uses the given key of 32 bytes and the given counters, so that processes with the same ones share their
// states.
func (s *States) Share(key []byte, counters store.Counters) {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has a valid length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has a valid block size
	}
	s.now.Store(&shared{aead, counters})
}

// Seal returns a text from which only Open can restore the state, and only with the same binding.
func (s *States) Seal(state string, binding []byte) string {
	sealed := s.now.Load().aead.Seal(nil, nil, []byte(state), binding) //nolint:gosec // the AEAD generates its nonce itself
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// Open returns a sealed state, or ErrState.
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

// Values of a use's counter: allowed after AllowUse, and both once it was used. An expired counter restarts, so its
// value is used.
const (
	useAllowed         = 1
	useSpent           = 2
	useAllowedAndSpent = useAllowed + useSpent
)

// AllowUse returns the name of a single use, which Use accepts within the given lifetime.
func (s *States) AllowUse(ctx context.Context, lasts time.Duration) (name string, err error) {
	name = rand.Text()
	_, err = s.count(ctx, store.Addition{Name: useCounter + name, Add: useAllowed, Lifetime: lasts})
	return name, err
}

// Use marks a use as used and returns its remaining lifetime. It returns ErrState if the use was already used or has
// expired.
func (s *States) Use(ctx context.Context, name string) (left time.Duration, err error) {
	c, err := s.count(ctx, store.Addition{Name: useCounter + name, Add: useSpent, Max: useAllowedAndSpent, Lifetime: time.Minute})
	if err == nil && (c.Full || c.N != useAllowedAndSpent) {
		err = ErrState
	}
	return c.Left, err
}

// CountUpTo increments a counter, and reports whether its value is at most most. The counter restarts once lasts has
// passed since its first increment.
func (s *States) CountUpTo(ctx context.Context, name string, most int64, lasts time.Duration) (bool, error) {
	c, err := s.count(ctx, store.Addition{Name: name, Add: 1, Max: most, Lifetime: lasts})
	return err == nil && !c.Full, err
}

// useCounter is the prefix of the counters for uses.
const useCounter = "use "

func (s *States) count(ctx context.Context, a store.Addition) (store.Count, error) {
	counts, err := s.now.Load().counters.Count(ctx, a)
	if err != nil {
		return store.Count{}, fmt.Errorf("count the returned client states: %w", err)
	}
	return counts[0], nil
}
