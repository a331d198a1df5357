package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// MaxTokens is the maximum number of tokens in one place.
const MaxTokens = 10_000

// ErrNoToken is returned for an id that no token has.
var ErrNoToken = errors.New("no such token")

// Tokens holds the bearer tokens of one place, which several processes may read and change concurrently. A token
// created by one process is valid for the others from the next request on. The same holds for a revocation; with a
// database it takes effect within a second. Tokens is an Authenticator and safe for concurrent use.
type Tokens struct {
	now func() time.Time

	mu      sync.Mutex
	storage storage
	byID    map[string]Token     // as loaded; never modified
	used    map[string]time.Time // not yet written
}

// storage is the place where tokens are stored. Its methods are never called concurrently.
type storage interface {
	// load returns the tokens by id, in a state that is at most maxAge old.
	load(maxAge time.Duration) (map[string]Token, error)
	// update replaces the tokens with the result of edit on a copy, excluding concurrent updates of other processes,
	// and returns the result. An error of edit is returned unchanged, and nothing has changed.
	update(edit func(byID map[string]Token) error) (map[string]Token, error)
}

func newTokens(kept storage) (*Tokens, error) {
	t := &Tokens{now: time.Now, storage: kept, used: map[string]time.Time{}}
	_, err := t.List()
	return t, err
}

// The maximum age of the loaded tokens when a known or an unknown token is checked. It matters for a database, where
// each load is a network query. An unknown token may be new, so its limit is shorter.
const (
	maxKnownAge   = 250 * time.Millisecond
	maxUnknownAge = 10 * time.Millisecond
)

// Authenticate implements Authenticator.
func (t *Tokens) Authenticate(_ context.Context, bearer string) (Identity, error) {
	if bearer == "" {
		return Identity{}, ErrNoCredential
	}
	form := tokenForm().FindStringSubmatch(bearer)
	if form == nil {
		return Identity{}, ErrBadCredential
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.refresh(maxKnownAge)
	if _, known := t.byID[form[1]]; err == nil && !known {
		err = t.refresh(maxUnknownAge)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	now := t.now()
	token, known := t.byID[form[1]]
	if !token.matches(digestBearer(bearer)) || !known || !token.Valid(now) {
		return Identity{}, ErrBadCredential
	}
	t.used[token.ID] = now
	return token.identity(), nil
}

func (t *Tokens) refresh(maxAge time.Duration) error {
	byID, err := t.storage.load(maxAge)
	t.byID = byID
	return err
}

// List returns all tokens, oldest first, and by name within the same second.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(0); err != nil {
		return nil, err
	}
	return sortTokens(t.byID), nil
}

// Create creates tokens, all or none, and returns the secrets of their bearers, which are available only once.
func (t *Tokens) Create(asked ...NewToken) (bearers []string, made []Token, err error) {
	err = t.update(func(byID map[string]Token) error {
		if len(byID)+len(asked) > MaxTokens {
			return fmt.Errorf("there are %d tokens, and the limit is %d: remove some with gavel token revoke --forget", len(byID), MaxTokens)
		}
		bearers, made, err = t.mint(byID, asked)
		return err
	})
	return bearers, made, err
}

// CreateFirst is like Create if there are no tokens yet, apart from those for events; otherwise it creates none.
func (t *Tokens) CreateFirst(asked ...NewToken) (bearers []string, made []Token, err error) {
	err = t.update(func(byID map[string]Token) error {
		bearers, made = nil, nil
		for _, token := range byID {
			if token.Events == "" {
				return nil
			}
		}
		bearers, made, err = t.mint(byID, asked)
		return err
	})
	return bearers, made, err
}

func (t *Tokens) mint(byID map[string]Token, asked []NewToken) (bearers []string, made []Token, err error) {
	for _, n := range asked {
		bearer, token, err := n.mint(t.now())
		if err != nil {
			return nil, nil, err
		}
		bearers, made = append(bearers, bearer), append(made, token)
	}
	for _, token := range made {
		byID[token.ID] = token
	}
	return bearers, made, nil
}

// Replace replaces all tokens with those of another store.
func (t *Tokens) Replace(all []Token) error {
	return t.update(func(byID map[string]Token) error {
		clear(byID)
		for _, token := range all {
			byID[token.ID] = token
		}
		return nil
	})
}

// Forget deletes tokens without a trace.
func (t *Tokens) Forget(ids ...string) error {
	return t.update(func(byID map[string]Token) error {
		for _, id := range ids {
			if _, known := byID[id]; !known {
				return ErrNoToken
			}
			delete(byID, id)
		}
		return nil
	})
}

// Revoke revokes a token; an already revoked one is unchanged. The error may be ErrNoToken.
func (t *Tokens) Revoke(id string) (token Token, err error) {
	err = t.update(func(byID map[string]Token) error {
		var known bool
		if token, known = byID[id]; !known {
			return ErrNoToken
		}
		if token.RevokedAt == nil {
			at := t.now().UTC().Truncate(time.Second)
			token.RevokedAt = &at
			byID[id] = token
		}
		return nil
	})
	return token, err
}

// RecordUse writes the times of last use that are not written yet. Servers call it from time to time, and when they
// end.
func (t *Tokens) RecordUse() error {
	t.mu.Lock()
	idle := len(t.used) == 0
	t.mu.Unlock()
	if idle {
		return nil
	}
	return t.update(func(map[string]Token) error { return nil })
}

// update changes the tokens. After an error nothing has changed.
func (t *Tokens) update(edit func(byID map[string]Token) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	byID, err := t.storage.update(func(byID map[string]Token) error {
		if err := edit(byID); err != nil {
			return err
		}
		for id, at := range t.used {
			if token, ok := byID[id]; ok && (token.LastUsed == nil || token.LastUsed.Before(at)) {
				at = at.UTC().Truncate(time.Second)
				token.LastUsed = &at
				byID[id] = token
			}
		}
		return nil
	})
	if err != nil {
		return err //nolint:wrapcheck // the error is already specific
	}
	t.byID = byID
	clear(t.used)
	return nil
}

// Local authenticates every caller as one principal of this machine. It is for listeners that only this machine's
// users can reach (--auth none).
func Local(p engine.Principal) Authenticator { return local{p} }

type local struct{ principal engine.Principal }

// Authenticate implements Authenticator.
func (l local) Authenticate(context.Context, string) (Identity, error) {
	return Identity{Principal: l.principal, Kind: KindNone, Credential: "none"}, nil
}
