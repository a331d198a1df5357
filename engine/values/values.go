// Package values seals the sensitive values of instances before they are stored, with AES-256-GCM and
// a separate data key for each instance. The store has data keys only in wrapped form.
//
// It promises:
//
//   - An opened value is exactly the one that was sealed, for the same instance, document and
//     position in it.
//   - Anything else is rejected and counted; no value is guessed.
//   - After Shred, no one who has the store can open any value of the instance.
//
// It must never decide which values are sensitive: workflow.Definition does.
package values

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Errors of a Keyring; check them with errors.Is.
var (
	// ErrUnreadable: a sealed value cannot be opened: wrong key, wrong position, or incomplete.
	ErrUnreadable = errors.New("a sealed value cannot be opened")
	// ErrDamagedKey is an ErrUnreadable: a data key does not unwrap although its wrapping key is right.
	ErrDamagedKey = fmt.Errorf("%w: its data key is damaged", ErrUnreadable)
	// ErrDestroyed: the instance's key was destroyed, so nothing can be sealed for it.
	ErrDestroyed = errors.New("the key of the instance was destroyed")
	// ErrNoKey: there is no data key that could be rotated or destroyed.
	ErrNoKey = errors.New("nothing is sealed for the instance")
)

const (
	wrapPurpose  = "gavel/datakey/v1"
	underPurpose = "gavel/datakey/id/v1"
	valuePurpose = "gavel/sealed/v1"

	keySize = 32
	// maxKeys limits the opened data keys in memory. keyMaxAge is how long an opened key is used without checking the
	// store again. For that long, another process may continue to use a key after a Rotate or a Shred.
	maxKeys   = 4096
	keyMaxAge = time.Second
	// maxContexts limits the opened contexts in memory, and maxContextSize the stored size of each.
	maxContexts    = 512
	maxContextSize = 16 << 10
)

// Keyring seals and opens values with the data keys of one store. A nil Keyring seals nothing and
// cannot open sealed values. It is safe for concurrent use.
type Keyring struct {
	keys     store.DataKeys
	wrap     wrapper
	cache    *lru.Cache[keyID, cachedKey]
	contexts *lru.Cache[string, plainContext] // by instance
	refused  atomic.Int64
}

// plainContext caches the last opened context: most moves begin with the result of the previous one.
type plainContext struct {
	stored, plain json.RawMessage
	until         time.Time
}

type keyID struct {
	instance string
	number   int // 0 is the newest
}

type cachedKey struct {
	*dataKey
	at time.Time
}

// dataKey is a data key with its cipher; the cipher is nil if the key was destroyed.
type dataKey struct {
	row    store.DataKey
	cipher cipher.AEAD
}

// NewKeyring returns the keyring of a store; secret wraps its data keys. Without a secret it
// returns nil.
func NewKeyring(keys store.DataKeys, secret []byte) *Keyring {
	if len(secret) == 0 {
		return nil
	}
	k := &Keyring{keys: keys, wrap: newWrapper(secret)}
	var err, also error
	k.cache, err = lru.New[keyID, cachedKey](maxKeys)
	k.contexts, also = lru.New[string, plainContext](maxContexts)
	if err != nil || also != nil {
		panic(errors.Join(err, also)) // only for a size below 1
	}
	return k
}

// Refused returns how many values could not be opened since the program started.
func (k *Keyring) Refused() int64 {
	if k == nil {
		return 0
	}
	return k.refused.Load()
}

// wrapper seals data keys.
type wrapper struct {
	cipher cipher.AEAD
	id     string // identifies the key without revealing anything about it
}

func newWrapper(secret []byte) wrapper {
	id := record.DeriveKey(secret, underPurpose)
	return wrapper{newCipher(record.DeriveKey(secret, wrapPurpose)), fmt.Sprintf("%x", id[:8])}
}

func newCipher(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only for a key of another size
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for a block of another size
	}
	return gcm
}

func (w wrapper) seal(key []byte, row *store.DataKey) {
	row.Wrapped, row.Under = w.cipher.Seal(nil, nil, key, bindKey(*row)), w.id //nolint:gosec // the cipher makes the nonce
}

func (w wrapper) open(row store.DataKey) ([]byte, error) {
	if row.Under != w.id {
		return nil, fmt.Errorf("%w: data key %d of %s is wrapped with the key %q, but the configured key is %q", ErrUnreadable, row.Number, row.Instance, row.Under, w.id)
	}
	key, err := w.cipher.Open(nil, nil, row.Wrapped, bindKey(row))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("%w: data key %d of %s does not unwrap", ErrDamagedKey, row.Number, row.Instance)
	}
	return key, nil
}

func bindKey(row store.DataKey) []byte {
	return bind(wrapPurpose, row.Instance, strconv.Itoa(row.Number))
}

// bind concatenates parts, each preceded by its length.
func bind(parts ...string) []byte {
	n := 0
	for _, p := range parts {
		n += 8 + len(p)
	}
	out := make([]byte, 0, n)
	for _, p := range parts {
		out = append(binary.BigEndian.AppendUint64(out, uint64(len(p))), p...)
	}
	return out
}

// find returns a data key of an instance, the newest for number 0. It returns store.ErrNotFound or ErrUnreadable.
func (k *Keyring) find(ctx context.Context, instance string, number int) (*dataKey, error) {
	id := keyID{instance, number}
	known, ok := k.cache.Get(id)
	if ok && time.Since(known.at) < keyMaxAge {
		return known.dataKey, nil
	}
	now := time.Now()
	row, err := k.keys.DataKey(ctx, instance, number)
	if err != nil {
		return nil, err
	}
	key := known.dataKey
	if key == nil || !bytes.Equal(key.row.Wrapped, row.Wrapped) || key.row.Number != row.Number {
		key = &dataKey{row: row}
		if len(row.Wrapped) > 0 {
			plain, err := k.wrap.open(row)
			if err != nil {
				return nil, err
			}
			key.cipher = newCipher(plain)
		}
	}
	k.cache.Add(id, cachedKey{key, now})
	k.cache.Add(keyID{instance, row.Number}, cachedKey{key, now})
	return key, nil
}

// newest returns the key that seals new values, and creates the first one.
func (k *Keyring) newest(ctx context.Context, instance string) (*dataKey, error) {
	key, err := k.find(ctx, instance, 0)
	if errors.Is(err, store.ErrNotFound) {
		if err = k.add(ctx, instance, 1); err == nil || errors.Is(err, store.ErrConflict) { // another process was faster
			key, err = k.find(ctx, instance, 0)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case key.cipher == nil:
		return nil, ErrDestroyed
	}
	return key, nil
}

func (k *Keyring) add(ctx context.Context, instance string, number int) error {
	plain := make([]byte, keySize)
	_, _ = rand.Read(plain) // never fails
	row := store.DataKey{Instance: instance, Number: number, MadeAt: recordTime()}
	k.wrap.seal(plain, &row)
	return k.keys.PutDataKey(ctx, row, nil)
}

func recordTime() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// binding is the position that a sealed value is bound to.
type binding struct {
	instance string
	kind     string // of document
	seq      int64  // of the event that set the value
}

// The kinds of documents.
const (
	contextData = "context"
	reviewData  = "review"
	importData  = "import"
)

func (p binding) bind(pointer string) []byte {
	return bind(valuePurpose, p.instance, p.kind, strconv.FormatInt(p.seq, 10), pointer)
}

// A sealed value is workflow.SealedForm followed by four parts, separated by colons. They are the version of the
// form, the number of the data key, the seq of the event, and the encoded nonce, ciphertext and tag.
const version = "1"

var encoding = base64.RawURLEncoding

func (k *dataKey) seal(at binding, pointer string, value []byte) string {
	sealed := k.cipher.Seal(make([]byte, 0, len(value)+k.cipher.Overhead()), nil, value, at.bind(pointer)) //nolint:gosec // the cipher makes the nonce
	text := make([]byte, 0, len(workflow.SealedForm)+32+encoding.EncodedLen(len(sealed)))
	text = append(append(text, workflow.SealedForm...), version+":"...)
	text = append(strconv.AppendInt(text, int64(k.row.Number), 10), ':')
	text = append(strconv.AppendInt(text, at.seq, 10), ':')
	return string(encoding.AppendEncode(text, sealed))
}

// splitSealed parses the text of a sealed value.
func splitSealed(text string) (key int, seq int64, sealed []byte, err error) {
	rest, ok := strings.CutPrefix(text, workflow.SealedForm+version+":")
	number, rest, whole := strings.Cut(rest, ":")
	event, rest, also := strings.Cut(rest, ":")
	if !ok || !whole || !also {
		return 0, 0, nil, fmt.Errorf("%w: unknown form", ErrUnreadable)
	}
	key, keyErr := strconv.Atoi(number)
	seq, seqErr := strconv.ParseInt(event, 10, 64)
	sealed, err = encoding.DecodeString(rest)
	if keyErr != nil || seqErr != nil || err != nil || key < 1 {
		return 0, 0, nil, fmt.Errorf("%w: it is incomplete or malformed", ErrUnreadable)
	}
	return key, seq, sealed, nil
}

// sealDocument seals the values of a document that d defines as sensitive. If d is nil, it seals the whole document.
func (k *Keyring) sealDocument(ctx context.Context, d *workflow.Definition, at binding, doc json.RawMessage) (json.RawMessage, error) {
	var key *dataKey
	var failed error
	seal := func(pointer string, value json.RawMessage) string {
		if key == nil && failed == nil {
			key, failed = k.newest(ctx, at.instance)
		}
		if failed != nil {
			return ""
		}
		return key.seal(at, pointer, value)
	}
	if d == nil {
		text := seal("", doc)
		return json.RawMessage(strconv.Quote(text)), failed
	}
	sealed, err := d.Mask(doc, seal)
	if failed != nil {
		return nil, failed
	}
	return sealed, err
}

// openDocument opens the sealed values of a document. destroyed reports that some can never be opened
// again: they are replaced by workflow.Destroyed.
func (k *Keyring) openDocument(ctx context.Context, at binding, doc json.RawMessage) (opened json.RawMessage, destroyed bool, err error) {
	if !workflow.MayHoldSealed(doc) {
		return doc, false, nil
	}
	o := opener{k: k, at: at}
	out, err := workflow.EditSealed(document.ReadTrusted(doc), func(pointer string, text document.JSON) (json.RawMessage, error) {
		value, err := o.openValue(ctx, pointer, text.Text())
		if errors.Is(err, ErrUnreadable) {
			if k != nil {
				k.refused.Add(1)
			}
			return nil, fmt.Errorf("%s of %s at %s: %w", at.kind, at.instance, pointer, err)
		}
		return value, err
	})
	if err != nil || !o.found {
		return doc, false, err
	}
	return out.Raw(), o.destroyed, nil
}

// opener opens the values of one document.
type opener struct {
	k                *Keyring
	at               binding
	key              *dataKey // of the last value
	found, destroyed bool
}

func (o *opener) openValue(ctx context.Context, pointer, text string) (json.RawMessage, error) {
	o.found = true
	if o.k == nil {
		return nil, fmt.Errorf("%w: there is no key", ErrUnreadable)
	}
	number, seq, sealed, err := splitSealed(text)
	switch {
	case err != nil:
		return nil, err
	case o.at.seq != 0 && seq != o.at.seq:
		return nil, fmt.Errorf("%w: it belongs to event %d, not to event %d", ErrUnreadable, seq, o.at.seq)
	case o.key == nil || o.key.row.Number != number:
		o.key, err = o.k.find(ctx, o.at.instance, number)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("%w: the store has no data key %d of the instance", ErrUnreadable, number)
	case err != nil:
		return nil, err
	case o.key.cipher == nil:
		o.destroyed = true
		return json.RawMessage(`"` + workflow.Destroyed + `"`), nil
	}
	at := o.at
	at.seq = seq
	value, err := o.key.cipher.Open(nil, nil, sealed, at.bind(pointer))
	if err != nil {
		return nil, fmt.Errorf("%w: it was changed, or belongs to another position", ErrUnreadable)
	}
	return value, nil
}
