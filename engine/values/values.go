// Package values keeps the sensitive values of instances sealed where they are written down:
// AES-256-GCM, with a data key of its own for each instance, which the store has only wrapped.
//
// It promises that what it opens is exactly what was sealed, for the instance, the document and
// the place in it; that everything else is refused and counted, and no value guessed; and that
// after Shred no value of the instance can be opened by anybody who has the store. It must never
// decide what is sensitive: workflow.Definition does.
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

// Errors of a Keyring; errors.Is finds them.
var (
	// ErrUnreadable: a sealed value that does not open: another key, another place, or not whole.
	ErrUnreadable = errors.New("a sealed value does not open")
	// ErrDamagedKey is an ErrUnreadable: a data key does not unwrap with the key that it is wrapped with.
	ErrDamagedKey = fmt.Errorf("%w: its data key is damaged", ErrUnreadable)
	// ErrDestroyed: the instance's key was destroyed, so nothing more is sealed for it.
	ErrDestroyed = errors.New("the key of the instance was destroyed")
	// ErrNoKey: there is no data key that could be rotated or destroyed.
	ErrNoKey = errors.New("nothing is sealed for the instance")
)

const (
	wrapPurpose  = "gavel/datakey/v1"
	underPurpose = "gavel/datakey/id/v1"
	valuePurpose = "gavel/sealed/v1"

	keySize = 32
	// mostKeys bounds the opened data keys in memory, and freshFor how long one counts without
	// another look at the store: so long another process goes on after a Rotate or a Shred.
	mostKeys = 4096
	freshFor = time.Second
	// mostContexts bounds the opened contexts in memory, and largestContext each as it is kept.
	mostContexts   = 512
	largestContext = 16 << 10
)

// Keyring seals and opens values with the data keys of one store. A nil one seals nothing, and
// opens nothing that is sealed. It is safe for concurrent use.
type Keyring struct {
	keys     store.DataKeys
	wrap     wrapper
	opened   *lru.Cache[keyID, lookedUp]
	contexts *lru.Cache[string, openedContext] // by instance
	refused  atomic.Int64
}

// openedContext is a context as it was opened last: most moves begin with what the one before left.
type openedContext struct {
	kept, opened json.RawMessage
	until        time.Time
}

type keyID struct {
	instance string
	number   int // 0 is the newest
}

type lookedUp struct {
	*dataKey
	at time.Time
}

// dataKey is a data key with its cipher, which is nil when it was destroyed.
type dataKey struct {
	row    store.DataKey
	cipher cipher.AEAD
}

// NewKeyring returns the keyring of a store, whose secret wraps the data keys. Without a secret
// it is nil.
func NewKeyring(keys store.DataKeys, secret []byte) *Keyring {
	if len(secret) == 0 {
		return nil
	}
	k := &Keyring{keys: keys, wrap: newWrapper(secret)}
	var err, also error
	k.opened, err = lru.New[keyID, lookedUp](mostKeys)
	k.contexts, also = lru.New[string, openedContext](mostContexts)
	if err != nil || also != nil {
		panic(errors.Join(err, also)) // only for a size below 1
	}
	return k
}

// Refused is how many values did not open since the program began.
func (k *Keyring) Refused() int64 {
	if k == nil {
		return 0
	}
	return k.refused.Load()
}

// wrapper seals data keys.
type wrapper struct {
	cipher cipher.AEAD
	id     string // names the key without saying anything about it
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
		return nil, fmt.Errorf("%w: data key %d of %s is wrapped with the key %q, and this one is %q", ErrUnreadable, row.Number, row.Instance, row.Under, w.id)
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

// bind is its parts, each with its length before it.
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

// find returns a data key of an instance, the newest for number 0. store.ErrNotFound, ErrUnreadable.
func (k *Keyring) find(ctx context.Context, instance string, number int) (*dataKey, error) {
	id := keyID{instance, number}
	known, ok := k.opened.Get(id)
	if ok && time.Since(known.at) < freshFor {
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
	k.opened.Add(id, lookedUp{key, now})
	k.opened.Add(keyID{instance, row.Number}, lookedUp{key, now})
	return key, nil
}

// newest returns the key that seals what follows, and makes the first one.
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

// place is where a sealed value belongs.
type place struct {
	instance string
	kind     string // of document
	seq      int64  // of the event that brought the value
}

// The kinds of documents.
const (
	inContext = "context"
	inReview  = "review"
	inImport  = "import"
)

func (p place) bind(pointer string) []byte {
	return bind(valuePurpose, p.instance, p.kind, strconv.FormatInt(p.seq, 10), pointer)
}

// A sealed value is workflow.SealedForm, and then, with colons between them, the version of the
// form, the number of the data key, the seq of the event, and nonce, ciphertext and tag.
const version = "1"

var encoding = base64.RawURLEncoding

func (k *dataKey) seal(at place, pointer string, value []byte) string {
	sealed := k.cipher.Seal(make([]byte, 0, len(value)+k.cipher.Overhead()), nil, value, at.bind(pointer)) //nolint:gosec // the cipher makes the nonce
	text := make([]byte, 0, len(workflow.SealedForm)+32+encoding.EncodedLen(len(sealed)))
	text = append(append(text, workflow.SealedForm...), version+":"...)
	text = append(strconv.AppendInt(text, int64(k.row.Number), 10), ':')
	text = append(strconv.AppendInt(text, at.seq, 10), ':')
	return string(encoding.AppendEncode(text, sealed))
}

// splitSealed reads the text of a sealed value.
func splitSealed(text string) (key int, seq int64, sealed []byte, err error) {
	rest, ok := strings.CutPrefix(text, workflow.SealedForm+version+":")
	number, rest, whole := strings.Cut(rest, ":")
	event, rest, also := strings.Cut(rest, ":")
	if !ok || !whole || !also {
		return 0, 0, nil, fmt.Errorf("%w: it is not of a form that is known here", ErrUnreadable)
	}
	key, keyErr := strconv.Atoi(number)
	seq, seqErr := strconv.ParseInt(event, 10, 64)
	sealed, err = encoding.DecodeString(rest)
	if keyErr != nil || seqErr != nil || err != nil || key < 1 {
		return 0, 0, nil, fmt.Errorf("%w: it is not whole", ErrUnreadable)
	}
	return key, seq, sealed, nil
}

// sealDocument seals what a definition calls sensitive in a document; nil seals it as a whole.
func (k *Keyring) sealDocument(ctx context.Context, d *workflow.Definition, at place, doc json.RawMessage) (json.RawMessage, error) {
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

// openDocument opens what is sealed in a document. destroyed says that some of it cannot be opened
// any more: workflow.Destroyed stands in its place.
func (k *Keyring) openDocument(ctx context.Context, at place, doc json.RawMessage) (opened json.RawMessage, destroyed bool, err error) {
	if !workflow.MayHoldSealed(doc) {
		return doc, false, nil
	}
	o := opener{k: k, at: at}
	out, err := workflow.EditSealed(document.Known(doc), func(pointer string, text document.JSON) (json.RawMessage, error) {
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
	at               place
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
		return nil, fmt.Errorf("%w: it is of event %d, not of %d", ErrUnreadable, seq, o.at.seq)
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
		return nil, fmt.Errorf("%w: it was changed, or is of another place", ErrUnreadable)
	}
	return value, nil
}
