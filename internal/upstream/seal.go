package upstream

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Sealer seals the requestState of upstreams, which passes through the hands of clients: it
// comes back for the same principal, upstream, item and arguments, or not at all. Its key lasts
// as long as the Sealer, unless SetKey gives it another. It is safe for concurrent use.
type Sealer struct{ aead atomic.Pointer[cipher.AEAD] }

// NewSealer returns a Sealer with a key of its own.
func NewSealer() *Sealer {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	s := &Sealer{}
	s.SetKey(key)
	return s
}

// SetKey gives the Sealer a key of 32 bytes, so that another with it opens what this one sealed.
func (s *Sealer) SetKey(key []byte) {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has the right length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the right block
	}
	s.aead.Store(&aead)
}

// binding is what a state belongs to.
func binding(p engine.Principal, req Request, arguments document.JSON) []byte {
	sum := sha256.Sum256(appendCanonical(nil, arguments))
	b := []byte{}
	for _, part := range []string{p.ID, req.Upstream, req.Method, req.Name} {
		b = document.AppendQuote(b, part)
	}
	return append(b, sum[:]...)
}

func (s *Sealer) seal(state string, to []byte) string {
	sealed := (*s.aead.Load()).Seal(nil, nil, []byte(state), to) //nolint:gosec // the AEAD draws its nonce itself
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// ErrState is the cause of an Error about a requestState.
var ErrState = errors.New("invalid requestState")

func invalidState(upstream string) *Error {
	e := newError(CodeInvalid, upstream, "Ask again without it.", "The requestState is not one that gavel issued for these arguments, or gavel was restarted and had its store in memory.")
	e.Err = ErrState
	return e
}

func (s *Sealer) open(sealed string, to []byte) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", ErrState
	}
	state, err := (*s.aead.Load()).Open(nil, nil, raw, to)
	if err != nil {
		return "", ErrState
	}
	return string(state), nil
}

// sealResult seals the requestState of a result, where it has one.
func (s *Sealer) sealResult(result json.RawMessage, to []byte) json.RawMessage {
	if !bytes.Contains(result, []byte(`"requestState"`)) {
		return result
	}
	state := readChecked(result).Get("requestState")
	if state.Kind() != document.String {
		return result
	}
	return rewriteMembers(result, map[string]json.RawMessage{"requestState": document.AppendQuote(nil, s.seal(state.Text(), to))})
}
