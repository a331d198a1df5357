package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// MaxTokens is how many tokens there may be in one place.
const MaxTokens = 10_000

// ErrNoToken is for an id that no token has.
var ErrNoToken = errors.New("no such token")

// Tokens are the bearer tokens of one place, which several processes may read and change at the
// same time: a token that one of them makes counts for the others from the next request on, and so
// does a revocation, within a second where the place is a database. They are an Authenticator. They
// are safe for concurrent use.
type Tokens struct {
	now func() time.Time

	mu   sync.Mutex
	kept storage
	byID map[string]Token     // as they were loaded; not written to
	used map[string]time.Time // not written yet
}

// storage is where tokens are kept. Its methods are called one at a time.
type storage interface {
	// load returns the tokens by their ids, as they were maxAge ago at the earliest.
	load(maxAge time.Duration) (map[string]Token, error)
	// update replaces them by what edit makes of a copy, while no other process can do the same, and
	// returns the outcome. An error of edit is returned as it is, and nothing has changed.
	update(edit func(byID map[string]Token) error) (map[string]Token, error)
}

func newTokens(kept storage) (*Tokens, error) {
	t := &Tokens{now: time.Now, kept: kept, used: map[string]time.Time{}}
	_, err := t.List()
	return t, err
}

// How old what is known of the tokens may be: of a database, where each look is a question over the
// network. An unknown token may be new.
const (
	knownAge   = 250 * time.Millisecond
	unknownAge = 10 * time.Millisecond
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
	err := t.refresh(knownAge)
	if _, known := t.byID[form[1]]; err == nil && !known {
		err = t.refresh(unknownAge)
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
	byID, err := t.kept.load(maxAge)
	t.byID = byID
	return err
}

// List returns all tokens, the oldest first; of the same second by name.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(0); err != nil {
		return nil, err
	}
	return sortTokens(t.byID), nil
}

// Create makes tokens, all or none, and returns what their bearers get, which is shown only
// once.
func (t *Tokens) Create(asked ...NewToken) (bearers []string, made []Token, err error) {
	err = t.update(func(byID map[string]Token) error {
		if len(byID)+len(asked) > MaxTokens {
			return fmt.Errorf("there are %d tokens, and there may be %d: forget some with gavel token revoke --forget", len(byID), MaxTokens)
		}
		bearers, made, err = t.mint(byID, asked)
		return err
	})
	return bearers, made, err
}

// CreateFirst is Create where there is no token yet, apart from those for hook events; otherwise
// it makes none.
func (t *Tokens) CreateFirst(asked ...NewToken) (bearers []string, made []Token, err error) {
	err = t.update(func(byID map[string]Token) error {
		bearers, made = nil, nil
		for _, token := range byID {
			if token.Hooks == "" {
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

// Replace puts the tokens of another store in place of all that there are.
func (t *Tokens) Replace(all []Token) error {
	return t.update(func(byID map[string]Token) error {
		clear(byID)
		for _, token := range all {
			byID[token.ID] = token
		}
		return nil
	})
}

// Forget removes tokens, as if they had never been.
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

// Revoke ends a token; one that has ended stays as it is. The error may be ErrNoToken.
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

// RecordUse writes when tokens were used last, as far as it is not written yet. Servers
// call it now and then, and at their end.
func (t *Tokens) RecordUse() error {
	t.mu.Lock()
	idle := len(t.used) == 0
	t.mu.Unlock()
	if idle {
		return nil
	}
	return t.update(func(map[string]Token) error { return nil })
}

// update changes the tokens. After an error everything is as it was.
func (t *Tokens) update(edit func(byID map[string]Token) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	byID, err := t.kept.update(func(byID map[string]Token) error {
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
		return err //nolint:wrapcheck // it says what could not be done
	}
	t.byID = byID
	clear(t.used)
	return nil
}

// Local authenticates everybody as one principal of this machine: for listeners that only
// its users can reach (--auth none).
func Local(p engine.Principal) Authenticator { return local{p} }

type local struct{ principal engine.Principal }

// Authenticate implements Authenticator.
func (l local) Authenticate(context.Context, string) (Identity, error) {
	return Identity{Principal: l.principal, Kind: KindNone, Credential: "none"}, nil
}
