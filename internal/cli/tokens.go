package cli

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/term"
)

// TokensFlag is the flag of every command that opens tokens.
type TokensFlag struct {
	Tokens string `name:"tokens" placeholder:"FILE" help:"The file of tokens. Default: gavel.tokens next to the store; a database keeps its own."`
}

// Path returns the tokens file; "" for a store in memory, whose tokens end with it.
func (f TokensFlag) Path(store string) string {
	switch {
	case f.Tokens != "":
		return f.Tokens
	case store == gavel.Memory:
		return ""
	}
	return filepath.Join(filepath.Dir(store), auth.TokensFile)
}

// TokensAt opens the tokens of a store. Callers must call release when done.
func TokensAt(ctx context.Context, con *Console, f TokensFlag, store StoreFlag, create bool) (_ *auth.Tokens, release func() error, err error) {
	path := f.Tokens
	if path == "" {
		if store.Store == gavel.Memory {
			return nil, nil, term.UsageErrorf("give --tokens, here and to gavel serve", "tokens of a store in memory belong to the server that made it")
		}
		if path = existingTokens(f, store); create || path == "" {
			at, err := store.Locate(con.Log, create)
			if err != nil {
				return nil, nil, err
			}
			if at.IsDatabase() {
				return sharedTokens(ctx, con, at)
			}
			path = f.Path(at.Path)
		}
	}
	tokens, err := auth.OpenTokens(path)
	if err != nil {
		return nil, nil, term.UsageErrorf("", "%w", err)
	}
	return tokens, func() error { return nil }, nil
}

// sharedTokens opens the tokens of a database.
func sharedTokens(ctx context.Context, con *Console, at StoreLocation) (*auth.Tokens, func() error, error) {
	db, err := driver.Open(ctx, driver.Config{Address: at.Path, MustExist: true, Logger: con.Log})
	if err != nil {
		return nil, nil, StoreFailure(err, "")
	}
	master, err := gavel.OpenSecrets(ctx, db, at.Key)
	var tokens *auth.Tokens
	if err == nil {
		tokens, err = gavel.OpenTokens(db, master)
	}
	if err != nil {
		return nil, nil, errors.Join(StoreFailure(err, ""), db.Close())
	}
	return tokens, db.Close, nil
}

// existingTokens returns the tokens file of the first candidate that has a store or tokens; "" if none has. Tokens may
// exist before their store.
func existingTokens(f TokensFlag, store StoreFlag) string {
	for _, place := range store.Candidates() {
		if path := f.Path(place); IsFile(place) || IsFile(path) {
			return path
		}
	}
	return ""
}

// TokenView is a token as commands show it.
type TokenView struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Principal string     `json:"principal"`
	Role      string     `json:"role"`
	Workflows string     `json:"workflows,omitempty"`
	Hooks     string     `json:"hooks,omitempty"`
	Status    string     `json:"status"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
	LastUsed  *time.Time `json:"lastUsed,omitempty"`
}

// DescribeToken returns how commands show a token.
func DescribeToken(t auth.Token) TokenView {
	return TokenView{
		ID: t.ID, Name: t.Name, Principal: t.Principal, Role: string(t.Role), Workflows: t.Workflows, Hooks: t.Events, Status: t.Status(time.Now()),
		CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, RevokedAt: t.RevokedAt, LastUsed: t.LastUsed,
	}
}
