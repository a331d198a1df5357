package record

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
)

// keySize is the size of a digest key in bytes.
const keySize = 32

// Digester makes keyed digests: without the key a short value cannot be guessed from
// one. It is safe for concurrent use.
type Digester struct {
	key []byte

	mu     sync.Mutex
	scoped map[Scope][]byte // keys of whole documents
}

// mostScoped bounds the keys that a Digester remembers.
const mostScoped = 1024

// Scope is what a digest is about. Every scope has a key of its own, so that a caller who
// gets digests of values of his choice learns nothing about digests in another scope.
type Scope struct {
	Purpose string // a constant of the form "gavel/what/v1"
	// Owner is the principal that the instance belongs to; Path points to the value in its
	// document, "" for all of it.
	Owner, Workflow, Path string
}

// The forms of digests as text, before the hex digits. A salted one has its salt, 32 hex
// digits and a colon, between the two.
const (
	unscopedForm = "hmac-sha256:"
	scopedForm   = "hmac-sha256-v2:"
)

// digestText is every form of a keyed digest; the first group is the salt of a salted one.
var digestText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^hmac-sha256(?:-v2:([0-9a-f]{32})|-v2)?:[0-9a-f]{64}$`)
})

// IsDigest reports whether a text has the form of a keyed digest, and with which salt; ""
// for none.
func IsDigest(text string) (salt string, ok bool) {
	m := digestText().FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// NewSalt returns 32 random hex digits.
func NewSalt() string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	return hex.EncodeToString(salt)
}

// NewDigester returns a Digester with a key, as LoadOrCreateKey returns it.
func NewDigester(key []byte) *Digester {
	return &Digester{key: bytes.Clone(key), scoped: map[Scope][]byte{}}
}

// Digest returns "hmac-sha256:" and the hex digest of value, the same in every scope. It
// is for what no caller ever gets.
func (d *Digester) Digest(value []byte) string { return unscopedForm + computeHexMAC(d.key, value) }

// DigestIn returns "hmac-sha256-v2:" and the hex digest of value in a scope.
func (d *Digester) DigestIn(s Scope, value []byte) string {
	return scopedForm + computeHexMAC(d.keyOf(s), value)
}

// keyOf is the key of a scope. That of whole documents is derived once: every decision
// needs it.
func (d *Digester) keyOf(s Scope) []byte {
	if s.Path != "" {
		return DeriveKey(d.key, s.Purpose, s.Owner, s.Workflow, s.Path)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.scoped[s] == nil {
		if len(d.scoped) == mostScoped {
			clear(d.scoped)
		}
		d.scoped[s] = DeriveKey(d.key, s.Purpose, s.Owner, s.Workflow, "")
	}
	return d.scoped[s]
}

// Salt returns a digest of text that can be compared only with digests of the same salt,
// which is part of it.
func (d *Digester) Salt(salt, text string) string {
	return scopedForm + salt + ":" + computeHexMAC(DeriveKey(d.key, "gavel/salt/v1", salt), []byte(text))
}

// Matches reports whether a digest is that of value in a scope.
func (d *Digester) Matches(digest string, s Scope, value []byte) bool {
	return hmac.Equal([]byte(d.DigestIn(s, value)), []byte(digest))
}

func computeHexMAC(key, value []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(value)
	return hex.EncodeToString(mac.Sum(nil))
}

// LoadOrCreateKey returns the 32-byte key in a file, which holds it as a line
// of hex. A file that does not exist is created with a random key, readable by
// its owner only, in a directory that is created if need be; of two processes
// that start at once one creates it and both get the same key. A file that
// others can read or that holds no key is refused (ErrKeyFile).
func LoadOrCreateKey(path string) ([]byte, error) {
	key, err := loadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key = make([]byte, keySize)
	if _, err = rand.Read(key); err == nil {
		err = createKey(path, key)
	}
	if err != nil {
		return nil, fmt.Errorf("create the key file: %w", err)
	}
	return loadKey(path)
}

// SaveKey writes the key of a store to a file, as LoadOrCreateKey reads it. A file
// that is there already must hold the same key (ErrKeyFile).
func SaveKey(path string, key []byte) error {
	if err := createKey(path, key); err != nil {
		return fmt.Errorf("create the key file: %w", err)
	}
	was, err := loadKey(path)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(was, key):
		return fmt.Errorf("%w: %s holds the key of another store", ErrKeyFile, path)
	}
	return nil
}

func loadKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrKeyFile, path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%w: %s has mode %04o, so others can read it; run chmod 600 on it, and replace it if they should not have seen it", ErrKeyFile, path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseKeyFile(path, text)
}

// createKey puts a whole file in place or leaves the one that is there: it is
// written and synced under another name first, and linked, which never replaces.
func createKey(path string, key []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := writeKey(dir, key)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp) }() // at worst a stray temporary file stays
	if err := os.Link(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes a new name in a directory durable.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a directory cannot be synced there
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// DeriveKey returns a 32-byte key of its own for one purpose: HKDF-SHA256 of
// master, with the purpose and each part in the info, their lengths in front.
// Different purposes or parts give independent keys, and none leads back to
// master. A purpose is a constant of the form "gavel/what/v1".
func DeriveKey(master []byte, purpose string, parts ...string) []byte {
	info := appendPart(nil, purpose)
	for _, p := range parts {
		info = appendPart(info, p)
	}
	key, err := hkdf.Key(sha256.New, master, nil, string(info), keySize)
	if err != nil {
		panic(fmt.Sprintf("derive a key for %s: %v", purpose, err)) // only for lengths beyond 8160 bytes
	}
	return key
}

func appendPart(b []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
}

func parseKeyFile(path string, text []byte) ([]byte, error) {
	key, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("%w: %s does not hold %d hex digits", ErrKeyFile, path, 2*keySize)
	}
	return key, nil
}

func writeKey(dir string, key []byte) (name string, err error) {
	tmp, err := os.CreateTemp(dir, ".key-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = tmp.WriteString(hex.EncodeToString(key) + "\n")
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", errors.Join(err, os.Remove(tmp.Name()))
	}
	return tmp.Name(), nil
}
