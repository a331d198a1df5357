package auth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/filelock"
)

// TokensFile is the usual name of a file of tokens, next to the store.
const TokensFile = "gavel.tokens"

// MaxTokens is how many tokens a file may hold.
const MaxTokens = 10_000

// maxTokensFile bounds what is read, in bytes.
const maxTokensFile = 16 << 20

// ErrNoToken is for an id that no token has.
var ErrNoToken = errors.New("no such token")

// Tokens are the bearer tokens of one file, which several processes may read and change at
// the same time: a token that one of them makes or revokes counts for the others from the
// next request on. They are an Authenticator. They are safe for concurrent use.
type Tokens struct {
	path string // "" keeps them in memory
	now  func() time.Time

	mu     sync.Mutex
	seen   fs.FileInfo // of what is in byID; nil when nothing was read
	byID   map[string]Token
	used   map[string]time.Time // not written yet
	failed error                // why the file as seen cannot be used
}

// OpenTokens returns the tokens of a file, which need not exist yet; "" is for tokens that
// end with the process. An error says why an existing file cannot be used.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path, now: time.Now, byID: map[string]Token{}, used: map[string]time.Time{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(); err != nil {
		return nil, err
	}
	return t, nil
}

// tokenFile is the file.
type tokenFile struct {
	Version int     `json:"version"`
	Tokens  []Token `json:"tokens"`
}

// refresh reads the file if it is another one than the last time. Every write puts a new
// file in place of the old one, so that a change always shows.
func (t *Tokens) refresh() error {
	if t.path == "" {
		return nil
	}
	info, err := os.Stat(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.seen, t.byID, t.failed = nil, map[string]Token{}, nil
		return nil
	case err != nil:
		return fmt.Errorf("cannot read the tokens: %w", err)
	case t.seen != nil && os.SameFile(t.seen, info) && t.seen.ModTime().Equal(info.ModTime()) && t.seen.Size() == info.Size() && t.seen.Mode() == info.Mode():
		return t.failed
	}
	t.seen = info
	t.byID, t.failed = readTokens(t.path, info)
	if _, unread := errors.AsType[*fs.PathError](t.failed); unread { // nothing is known of the file yet: try again
		t.seen = nil
	}
	return t.failed
}

func readTokens(path string, info fs.FileInfo) (map[string]Token, error) {
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		return nil, fmt.Errorf("others may read or change %s (mode %04o): run chmod 600 on it, after a look at gavel token list", path, info.Mode().Perm())
	case info.Size() > maxTokensFile:
		return nil, fmt.Errorf("%s is too large for a file of tokens", path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the tokens: %w", err)
	}
	var doc tokenFile
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if doc.Version != 1 {
		return nil, fmt.Errorf("%s is of version %d, and this gavel knows version 1: use a newer one", path, doc.Version)
	}
	out := make(map[string]Token, len(doc.Tokens))
	for _, token := range doc.Tokens {
		if token.ID == "" || token.Principal == "" || len(token.Digest) != 64 || !slices.Contains(strength, token.Role) || out[token.ID].ID != "" {
			return nil, fmt.Errorf("%s is damaged: the token %q is incomplete or duplicate", path, token.ID)
		}
		out[token.ID] = token
	}
	return out, nil
}

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
	if err := t.refresh(); err != nil {
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

// List returns all tokens, the oldest first; of the same second by name.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(); err != nil {
		return nil, err
	}
	return t.sortedTokens(), nil
}

func (t *Tokens) sortedTokens() []Token {
	out := make([]Token, 0, len(t.byID))
	for _, token := range t.byID {
		out = append(out, token)
	}
	slices.SortFunc(out, func(a, b Token) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Create makes tokens, all or none, and returns what their bearers get, which is shown only
// once.
func (t *Tokens) Create(asked ...NewToken) (bearers []string, made []Token, err error) {
	err = t.update(func() error {
		if len(t.byID)+len(asked) > MaxTokens {
			return fmt.Errorf("there are %d tokens, and there may be %d: forget some with gavel token revoke --forget", len(t.byID), MaxTokens)
		}
		bearers, made, err = t.mint(asked)
		return err
	})
	return bearers, made, err
}

// CreateFirst is Create where there is no token at all yet; otherwise it makes none.
func (t *Tokens) CreateFirst(asked ...NewToken) (bearers []string, made []Token, err error) {
	err = t.update(func() error {
		if len(t.byID) > 0 {
			return nil
		}
		bearers, made, err = t.mint(asked)
		return err
	})
	return bearers, made, err
}

func (t *Tokens) mint(asked []NewToken) (bearers []string, made []Token, err error) {
	for _, n := range asked {
		bearer, token, err := n.mint(t.now())
		if err != nil {
			return nil, nil, err
		}
		bearers, made = append(bearers, bearer), append(made, token)
	}
	for _, token := range made {
		t.byID[token.ID] = token
	}
	return bearers, made, nil
}

// Forget removes tokens, as if they had never been.
func (t *Tokens) Forget(ids ...string) error {
	return t.update(func() error {
		for _, id := range ids {
			if _, known := t.byID[id]; !known {
				return ErrNoToken
			}
		}
		for _, id := range ids {
			delete(t.byID, id)
		}
		return nil
	})
}

// Revoke ends a token; one that has ended stays as it is. The error may be ErrNoToken.
func (t *Tokens) Revoke(id string) (token Token, err error) {
	err = t.update(func() error {
		var known bool
		if token, known = t.byID[id]; !known {
			return ErrNoToken
		}
		if token.RevokedAt == nil {
			at := t.now().UTC().Truncate(time.Second)
			token.RevokedAt = &at
			t.byID[id] = token
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
	return t.update(func() error { return nil })
}

// update reads the file, changes what is in memory, and writes it, while no other process
// can do the same. After an error everything is as it was.
func (t *Tokens) update(edit func() error) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path == "" {
		return edit()
	}
	if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
		return fmt.Errorf("cannot write the tokens: %w", err)
	}
	lock, err := filelock.Acquire(t.path + ".lock")
	if err != nil {
		return fmt.Errorf("cannot lock the tokens: %w", err)
	}
	defer lock.Release()
	if err := t.refresh(); err != nil {
		return err
	}
	defer func() {
		if err != nil { // read it again the next time
			t.seen, t.byID = nil, map[string]Token{}
		}
	}()
	if err := edit(); err != nil {
		return err
	}
	for id, at := range t.used {
		if token, ok := t.byID[id]; ok && (token.LastUsed == nil || token.LastUsed.Before(at)) {
			at = at.UTC().Truncate(time.Second)
			token.LastUsed = &at
			t.byID[id] = token
		}
	}
	if err := t.write(); err != nil {
		return fmt.Errorf("cannot write the tokens: %w", err)
	}
	clear(t.used)
	return nil
}

// write puts a new file in place of the old one.
func (t *Tokens) write() error {
	raw, err := json.MarshalIndent(tokenFile{Version: 1, Tokens: t.sortedTokens()}, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(t.path, append(raw, '\n')); err != nil {
		return err
	}
	info, err := os.Stat(t.path)
	t.seen, t.failed = info, nil
	return err
}

// writeFile replaces a file by one that only its owner may read; readers see the
// old or the new one.
func writeFile(path string, raw []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// WriteSecret writes a token to a file of its own that only its owner may read, in place
// of an older one.
func WriteSecret(path, bearer string) error {
	if err := writeFile(path, []byte(bearer+"\n")); err != nil {
		return fmt.Errorf("cannot write the token: %w", err)
	}
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
