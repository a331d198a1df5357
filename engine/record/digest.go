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

// Digester makes keyed digests: without the key, a short value cannot be guessed from its digest.
// It is safe for concurrent use.
type Digester struct {
	key []byte

	mu     sync.Mutex
	scoped map[Scope][]byte // keys of whole documents
}

// maxScopedKeys limits the number of keys that a Digester caches.
const maxScopedKeys = 1024

// Scope identifies what a digest is about. Every scope has its own key, so that a caller who gets digests of
// chosen values learns nothing about digests in another scope.
type Scope struct {
	Purpose string // a constant of the form "gavel/what/v1"
	// Owner is the principal that owns the instance; Path points to the value in its document, "" for
	// the whole document.
	Owner, Workflow, Path string
}

// The prefixes of digests as text, before the hex digits. In a salted digest, the salt (32 hex
// digits) and a colon come between the two.
const (
	unscopedForm = "hmac-sha256:"
	scopedForm   = "hmac-sha256-v2:"
)

// digestText matches every form of a keyed digest; the first group is the salt, if any.
var digestText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^hmac-sha256(?:-v2:([0-9a-f]{32})|-v2)?:[0-9a-f]{64}$`)
})

// IsDigest reports whether a string has the form of a keyed digest, and returns its salt; ""
// if it has none.
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

// NewDigester returns a Digester for a key from LoadOrCreateKey.
func NewDigester(key []byte) *Digester {
	return &Digester{key: bytes.Clone(key), scoped: map[Scope][]byte{}}
}

// Digest returns "hmac-sha256:" and the hex digest of value, the same in every scope. Callers must
// never show it to a client.
func (d *Digester) Digest(value []byte) string { return unscopedForm + computeHexMAC(d.key, value) }

// DigestIn returns "hmac-sha256-v2:" and the hex digest of value within a scope.
func (d *Digester) DigestIn(s Scope, value []byte) string {
	return scopedForm + computeHexMAC(d.keyOf(s), value)
}

// keyOf returns the key of a scope. The key for whole documents is cached, because every decision
// needs it.
func (d *Digester) keyOf(s Scope) []byte {
	if s.Path != "" {
		return DeriveKey(d.key, s.Purpose, s.Owner, s.Workflow, s.Path)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.scoped[s] == nil {
		if len(d.scoped) == maxScopedKeys {
			clear(d.scoped)
		}
		d.scoped[s] = DeriveKey(d.key, s.Purpose, s.Owner, s.Workflow, "")
	}
	return d.scoped[s]
}

// Salt returns a digest of text that can be compared only with digests made with the same salt. The salt is
// part of the result.
func (d *Digester) Salt(salt, text string) string {
	return scopedForm + salt + ":" + computeHexMAC(DeriveKey(d.key, "gavel/salt/v1", salt), []byte(text))
}

// Matches reports whether digest is the digest of value in scope s.
func (d *Digester) Matches(digest string, s Scope, value []byte) bool {
	return hmac.Equal([]byte(d.DigestIn(s, value)), []byte(digest))
}

func computeHexMAC(key, value []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(value)
	return hex.EncodeToString(mac.Sum(nil))
}

// LoadOrCreateKey returns the 32-byte key from a file, which holds it as a line of hex. If the file
// does not exist, it is created with a random key, readable only by its owner; missing directories
// are created. If two processes start at the same time, one creates the key and both get it. A
// file that others can read, or that holds no key, is rejected with ErrKeyFile.
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

// SaveKey writes the key of a store to a file that LoadOrCreateKey can read. An existing file must
// hold the same key (ErrKeyFile).
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

// createKey creates a complete file or keeps the existing one: the key is written and synced under
// another name first and then linked, which never replaces a file.
func createKey(path string, key []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := writeKey(dir, key)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp) }() // at worst a temporary file is left over
	if err := os.Link(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes a new file name in a directory durable.
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

// DeriveKey derives a separate 32-byte key for one purpose: HKDF-SHA256 of master, with the purpose
// and each part in the info, each preceded by its length. Different purposes or parts give independent
// keys, and none reveals master. A purpose is a constant of the form "gavel/what/v1".
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
