package gavel

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// IsDatabase reports whether a Config.Store is a database address supported by one of the program's drivers.
func IsDatabase(store string) bool { return driver.Find(store) != nil }

// Errors about the secrets of a database.
var (
	// ErrNoStoreKey means that no key was given to open the database's secrets.
	ErrNoStoreKey = errors.New("no key was given for the secrets of this database")
	// ErrWrongStoreKey means that the secrets are sealed with another key.
	ErrWrongStoreKey = errors.New("the secrets of this database are sealed with a key other than the given one")
	// ErrNoSecrets means that the secrets were never created.
	ErrNoSecrets = errors.New("the database has no gavel secrets yet")
	// ErrLostSecrets means that the database has records, but its secrets are gone.
	ErrLostSecrets = errors.New("the database has records, but their secrets are gone")
)

// masterSecret is the name of the entry with the secret from which all keys of a database are derived.
const masterSecret = "master"

// InitDatabase creates a store in a database, with secrets sealed by key. made reports whether it created the
// secrets. Existing secrets must be sealed with key. If the secrets of a database with records are gone, it fails
// with ErrLostSecrets, unless lost permits new ones.
func InitDatabase(ctx context.Context, url string, key []byte, lost bool, log *slog.Logger) (made bool, err error) {
	db, err := driver.Open(ctx, driver.Config{Address: url, Logger: log})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	switch _, err = OpenSecrets(ctx, db, key); {
	case !errors.Is(err, ErrNoSecrets):
		return false, err
	case !lost:
		if empty, err := db.IsEmpty(ctx); err != nil || !empty {
			return false, errors.Join(err, ErrLostSecrets)
		}
	}
	master, err := newKey()
	if err != nil {
		return false, err
	}
	err = putSecrets(ctx, db, key, master, 1)
	if errors.Is(err, store.ErrConflict) { // another process was first
		_, err = OpenSecrets(ctx, db, key)
		return false, err
	}
	return err == nil, err
}

func putSecrets(ctx context.Context, to store.Entries, key, master []byte, version int64) error {
	sealed, err := sealSecret(key, master)
	if err != nil {
		return err
	}
	return to.PutEntry(ctx, store.Entry{Name: masterSecret, Version: version, Body: sealed})
}

// PutSecrets stores another store's master secret, sealed with key, in a database that is being created.
func PutSecrets(ctx context.Context, to store.Entries, key, master []byte) error {
	was, err := to.Entry(ctx, masterSecret, 0)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return putSecrets(ctx, to, key, master, was.Version+1)
}

// OpenSecrets returns the master secret of a database, which is sealed with key.
func OpenSecrets(ctx context.Context, db store.Entries, key []byte) ([]byte, error) {
	if key == nil {
		return nil, ErrNoStoreKey
	}
	sealed, err := db.Entry(ctx, masterSecret, 0)
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrNoSecrets
	}
	if err != nil {
		return nil, err
	}
	return openSecret(key, sealed.Body)
}

// RewrapSecrets seals the master secret of a database with another key. Nothing else changes, so open systems keep
// working. changed is false if newKey already sealed it.
func RewrapSecrets(ctx context.Context, url string, key, newKey []byte, log *slog.Logger) (changed bool, err error) {
	if key == nil {
		return false, ErrNoStoreKey
	}
	db, err := driver.Open(ctx, driver.Config{Address: url, MustExist: true, Logger: log})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for {
		was, err := db.Entry(ctx, masterSecret, 0)
		if errors.Is(err, store.ErrNotFound) {
			err = ErrNoSecrets
		}
		if err != nil {
			return false, err
		}
		if _, err := openSecret(newKey, was.Body); err == nil {
			return false, nil
		}
		master, err := openSecret(key, was.Body)
		if err != nil {
			return false, err
		}
		if err = putSecrets(ctx, db, newKey, master, was.Version+1); !errors.Is(err, store.ErrConflict) {
			return err == nil, err
		}
	}
}

// OpenTokens returns the tokens of a database. All servers that use the database share them.
func OpenTokens(db store.Entries, master []byte) (*auth.Tokens, error) {
	tokens, err := auth.OpenSharedTokens(db, record.DeriveKey(master, "gavel/tokens/v1"))
	if err != nil {
		return nil, fmt.Errorf("open the tokens: %w", err)
	}
	return tokens, nil
}

// A sealed secret consists of its key's id, a nonce, and the AES-256-GCM ciphertext.
const (
	sealPurpose = "gavel/store-key/v1"
	keyIDSize   = 8
)

func sealSecret(key, secret []byte) ([]byte, error) {
	seal, id, err := newSealer(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return seal.Seal(append(id, nonce...), nonce, secret, id), nil
}

func openSecret(key, sealed []byte) ([]byte, error) {
	seal, id, err := newSealer(key)
	if err != nil {
		return nil, err
	}
	if len(sealed) < keyIDSize+seal.NonceSize() {
		return nil, fmt.Errorf("open its secrets: %w: they are truncated; restore the table entries from a dump", store.ErrDamaged)
	}
	of, nonce, text := sealed[:keyIDSize], sealed[keyIDSize:keyIDSize+seal.NonceSize()], sealed[keyIDSize+seal.NonceSize():]
	if !bytes.Equal(of, id) {
		return nil, ErrWrongStoreKey
	}
	secret, err := seal.Open(nil, nonce, text, of)
	if err != nil {
		return nil, fmt.Errorf("open its secrets: %w: they were changed; restore the table entries from a dump", store.ErrDamaged)
	}
	return secret, nil
}

// newSealer returns the AEAD for a key, and the key's id, which reveals nothing about the key.
func newSealer(key []byte) (_ cipher.AEAD, id []byte, err error) {
	block, err := aes.NewCipher(record.DeriveKey(key, sealPurpose))
	if err != nil {
		return nil, nil, err
	}
	seal, err := cipher.NewGCM(block)
	return seal, record.DeriveKey(key, "gavel/store-key-id/v1")[:keyIDSize:keyIDSize], err
}

// openDatabase opens a store in a database and returns its master secret.
func (s *System) openDatabase(ctx context.Context) ([]byte, error) {
	db, err := driver.Open(ctx, driver.Config{Address: s.cfg.Store, MustExist: true, Logger: s.cfg.Logger})
	if err != nil {
		return nil, &OpenError{PartStore, err}
	}
	s.Store = db
	key, err := OpenSecrets(ctx, db, s.cfg.StoreKey)
	if err != nil {
		return nil, &OpenError{PartStore, err}
	}
	s.Tokens = func() (*auth.Tokens, error) { return OpenTokens(db, key) }
	return key, nil
}
