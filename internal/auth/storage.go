package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/filelock"
)

// TokensFile is the default name of a token file, next to the store.
const TokensFile = "gavel.tokens"

// maxTokensFile limits the size of a token file, in bytes.
const maxTokensFile = 16 << 20

// OpenTokens returns the tokens of a file, which need not exist yet; "" is for tokens that end with the process. It
// returns an error if an existing file cannot be used.
func OpenTokens(path string) (*Tokens, error) {
	if path == "" {
		return newTokens(&tokensInMemory{})
	}
	return newTokens(&tokensInFile{path: path})
}

// OpenSharedTokens returns the tokens of a database. Write access to the database without the key is not enough to
// create a token.
func OpenSharedTokens(entries store.Entries, key []byte) (*Tokens, error) {
	return newTokens(&tokensInDatabase{entries: entries, key: key})
}

// tokenFile is the stored document of tokens.
type tokenFile struct {
	Version int     `json:"version"`
	Tokens  []Token `json:"tokens"`
}

func encodeTokens(byID map[string]Token) ([]byte, error) {
	doc := tokenFile{Version: 1, Tokens: sortTokens(byID)}
	if slices.ContainsFunc(doc.Tokens, func(t Token) bool { return t.Events != "" }) {
		doc.Version = 2 // a gavel that only knows version 1 would let those tokens do everything
	}
	raw, err := json.MarshalIndent(doc, "", "  ")
	return append(raw, '\n'), err
}

// decodeTokens decodes the document; where names it in errors.
func decodeTokens(where string, raw []byte) (map[string]Token, error) {
	var doc tokenFile
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", where, err)
	}
	if doc.Version != 1 && doc.Version != 2 {
		return nil, fmt.Errorf("%s has version %d, and this gavel supports versions 1 and 2: use a newer gavel", where, doc.Version)
	}
	out := make(map[string]Token, len(doc.Tokens))
	for _, token := range doc.Tokens {
		if token.ID == "" || token.Principal == "" || len(token.Digest) != 64 || !slices.Contains(roleRank, token.Role) || out[token.ID].ID != "" {
			return nil, fmt.Errorf("%s is damaged: the token %q is incomplete or duplicate", where, token.ID)
		}
		out[token.ID] = token
	}
	return out, nil
}

func sortTokens(byID map[string]Token) []Token {
	all := slices.Collect(maps.Values(byID))
	slices.SortFunc(all, func(a, b Token) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// editTokens applies edit to a copy.
func editTokens(byID map[string]Token, edit func(map[string]Token) error) (map[string]Token, error) {
	next := maps.Clone(byID)
	if next == nil {
		next = map[string]Token{}
	}
	return next, edit(next)
}

// tokensInMemory end with the process.
type tokensInMemory struct{ byID map[string]Token }

func (m *tokensInMemory) load(time.Duration) (map[string]Token, error) { return m.byID, nil }

func (m *tokensInMemory) update(edit func(map[string]Token) error) (map[string]Token, error) {
	next, err := editTokens(m.byID, edit)
	if err == nil {
		m.byID = next
	}
	return m.byID, err
}

// tokensInFile holds the tokens of a file.
type tokensInFile struct {
	path   string
	seen   fs.FileInfo // of the file in byID; nil if nothing was read
	byID   map[string]Token
	failed error // why the file seen cannot be used
}

// load reads the file if it has changed. Every write replaces the file with a new one, so that each change is
// visible.
func (f *tokensInFile) load(time.Duration) (map[string]Token, error) {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.seen, f.byID, f.failed = nil, nil, nil
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the tokens: %w", err)
	case f.seen != nil && os.SameFile(f.seen, info) && f.seen.ModTime().Equal(info.ModTime()) && f.seen.Size() == info.Size() && f.seen.Mode() == info.Mode():
		return f.byID, f.failed
	}
	f.seen = info
	f.byID, f.failed = readTokens(f.path, info)
	if _, unread := errors.AsType[*fs.PathError](f.failed); unread { // the file was not read yet: try again
		f.seen = nil
	}
	return f.byID, f.failed
}

func readTokens(path string, info fs.FileInfo) (map[string]Token, error) {
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		return nil, fmt.Errorf("other users can read or change %s (mode %04o): check gavel token list, then run chmod 600 on the file", path, info.Mode().Perm())
	case info.Size() > maxTokensFile:
		return nil, fmt.Errorf("%s is too large for a token file", path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the tokens: %w", err)
	}
	return decodeTokens(path, raw)
}

func (f *tokensInFile) update(edit func(map[string]Token) error) (map[string]Token, error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot write the tokens: %w", err)
	}
	lock, err := filelock.Acquire(f.path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("cannot lock the tokens: %w", err)
	}
	defer lock.Release()
	if _, err := f.load(0); err != nil {
		return nil, err
	}
	next, err := editTokens(f.byID, edit)
	if err != nil {
		return nil, err
	}
	raw, err := encodeTokens(next)
	if err == nil {
		err = writeFile(f.path, raw)
	}
	if err == nil {
		f.byID, f.failed = next, nil
		f.seen, err = os.Stat(f.path)
	}
	if err != nil {
		f.seen = nil // read it again next time
		return nil, fmt.Errorf("cannot write the tokens: %w", err)
	}
	return next, nil
}

// tokensEntry is the name of the tokens among a database's entries.
const tokensEntry = "tokens"

// loadTimeout limits how long a request waits for the database to report whether the tokens changed. updateTimeout limits a
// change.
const (
	loadTimeout   = 2 * time.Second
	updateTimeout = 15 * time.Second
)

// tokensInDatabase holds the tokens of a database. The entry is an HMAC-SHA256 followed by the document.
type tokensInDatabase struct {
	entries store.Entries
	key     []byte

	lastQuery time.Time
	query     chan queryResult // pending query; nil if there is none
	seen      int64            // the version of byID; 0 for none
	byID      map[string]Token
	failed    error // error of the last look
}

// queryResult is the result of a query to the database.
type queryResult struct {
	store.Entry
	err error
}

var errNoAnswer = errors.New("cannot read the tokens: the database does not answer")

func (d *tokensInDatabase) load(maxAge time.Duration) (map[string]Token, error) {
	switch {
	case time.Since(d.lastQuery) < maxAge:
	case d.query != nil: // an earlier request has already waited for it
		d.refresh(0)
	default:
		d.refresh(loadTimeout)
	}
	return d.byID, d.failed
}

// refresh reads the tokens if they changed. It waits at most this long for the database; after that, the query continues
// in the background.
func (d *tokensInDatabase) refresh(wait time.Duration) {
	if d.query == nil {
		answer, seen := make(chan queryResult, 1), d.seen
		d.query = answer
		go func() {
			e, err := d.entries.Entry(context.Background(), tokensEntry, seen)
			answer <- queryResult{e, err}
		}()
	}
	if l, ok := waitForResult(d.query, wait); ok {
		d.query = nil
		d.apply(l)
	} else {
		d.failed = errNoAnswer
	}
	d.lastQuery = time.Now()
}

// waitForResult returns a result that is ready or arrives in time.
func waitForResult(answer <-chan queryResult, wait time.Duration) (l queryResult, ok bool) {
	select {
	case l = <-answer:
		return l, true
	default: // if both are ready, select would choose at random
	}
	select {
	case l = <-answer:
		return l, true
	case <-time.After(wait):
		return queryResult{}, false
	}
}

func (d *tokensInDatabase) apply(l queryResult) {
	switch {
	case errors.Is(l.err, store.ErrNotFound):
		d.seen, d.byID, d.failed = 0, nil, nil
	case l.err != nil:
		d.failed = fmt.Errorf("cannot read the tokens: %w", l.err)
	case l.Version != d.seen:
		if d.byID, d.failed = d.decode(l.Body); d.failed == nil {
			d.seen = l.Version
		}
	default:
		d.failed = nil
	}
}

func (d *tokensInDatabase) decode(body []byte) (map[string]Token, error) {
	const where = "the entry of the tokens in the database"
	if len(body) < sha256.Size || !hmac.Equal(body[:sha256.Size], d.mac(body[sha256.Size:])) {
		return nil, errors.New(where + " was changed, or was written with another key: restore the database, or DELETE FROM gavel.entries WHERE name = 'tokens' and create new tokens")
	}
	return decodeTokens(where, body[sha256.Size:])
}

func (d *tokensInDatabase) mac(raw []byte) []byte {
	mac := hmac.New(sha256.New, d.key)
	mac.Write(raw)
	return mac.Sum(nil)
}

// update writes unless another process has written since it read; in that case it starts again.
func (d *tokensInDatabase) update(edit func(map[string]Token) error) (map[string]Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), updateTimeout)
	defer cancel()
	for {
		if d.refresh(updateTimeout); d.failed != nil {
			return nil, d.failed
		}
		next, err := editTokens(d.byID, edit)
		if err != nil {
			return nil, err
		}
		raw, err := encodeTokens(next)
		if err == nil {
			err = d.entries.PutEntry(ctx, store.Entry{Name: tokensEntry, Version: d.seen + 1, Body: bytes.Join([][]byte{d.mac(raw), raw}, nil)})
		}
		switch {
		case errors.Is(err, store.ErrConflict) && ctx.Err() == nil:
		case err != nil:
			return nil, fmt.Errorf("cannot write the tokens: %w", err)
		default:
			d.seen, d.byID = d.seen+1, next
			return next, nil
		}
	}
}

// writeFile replaces a file with a new one that only its owner may read. Readers see either the old or the new file.
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

// WriteSecret writes a token to a separate file that only its owner may read, replacing an older one.
func WriteSecret(path, bearer string) error {
	if err := writeFile(path, []byte(bearer+"\n")); err != nil {
		return fmt.Errorf("cannot write the token: %w", err)
	}
	return nil
}
