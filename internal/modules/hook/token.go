package hook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// defaultAgent is the principal that gavel mcp serves by default.
const defaultAgent = "local:agent"

// hooksToken describes the token with which the hooks of a client authenticate to a server.
type hooksToken struct {
	client, server string
	folder         string // the token is valid for sessions in it
	principal      string // the agent's
	tokens         cli.TokensFlag
	store          cli.StoreFlag
}

// createToken creates a token and returns the file that holds it, or "" if the server needs none. It keeps an existing
// file whose token works. It fails if the server's tokens are not on this machine. undo removes a new token.
func createToken(ctx context.Context, con *cli.Console, t hooksToken) (file string, undo func(), err error) {
	undo = func() {}
	switch err := t.verify(ctx, ""); {
	case err == nil: // --auth none
		return "", undo, nil
	case isCredentialRefused(err), engine.CodeOf(err) == engine.CodeUnavailable:
	default:
		return "", undo, cli.EngineFailure(err)
	}
	if file, err = t.file(); err != nil {
		return "", undo, term.UsageErrorf("give --token-file FILE", "cannot find a folder for the token: %w", err)
	}
	if kept, err := cli.ReadToken(file); err == nil && !isCredentialRefused(t.verify(ctx, kept)) {
		return file, undo, nil
	}
	tokens, release, err := cli.TokensAt(ctx, con, t.tokens, t.store, false)
	if err != nil {
		return "", undo, t.askOperator(err)
	}
	defer func() { err = errors.Join(err, release()) }()
	bearers, made, err := tokens.Create(auth.NewToken{Name: "hooks-" + t.client, Principal: cmp.Or(t.principal, defaultAgent), Role: engine.RoleAgent, Events: t.folder, Local: true})
	if err != nil {
		return "", undo, cli.TokenFailure(err)
	}
	if isCredentialRefused(t.verify(ctx, bearers[0])) { // the tokens here belong to another server
		err = t.askOperator(nil)
	} else if err = errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), auth.WriteSecret(file, bearers[0])); err != nil {
		err = term.UsageErrorf("give --token-file FILE", "cannot keep the token: %w", err)
	}
	if err != nil {
		return "", undo, errors.Join(err, tokens.Forget(made[0].ID))
	}
	return file, func() { t.forget(ctx, con, file, made[0].ID) }, nil
}

// forget deletes a token that will not be used, and its file.
func (t hooksToken) forget(ctx context.Context, con *cli.Console, file, id string) {
	_ = os.Remove(file) // useless without its entry
	tokens, release, err := cli.TokensAt(ctx, con, t.tokens, t.store, false)
	if err == nil {
		err = errors.Join(tokens.Forget(id), release())
	}
	if err != nil {
		con.Err.Printf("the token %s was not removed: %v; gavel token revoke --forget %s\n", id, err, id)
	}
}

// verify posts an invalid event. It returns nil if the server accepts the token, that is, if it rejects only the event.
func (t hooksToken) verify(ctx context.Context, bearer string) error {
	c, err := cli.NewClient(t.server, bearer)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Post(ctx, facePath+t.client+"?form="+answerForm, []byte("{}"))
	if engine.CodeOf(err) == engine.CodeInvalidArgument {
		return nil
	}
	return err
}

// isCredentialRefused reports whether a server rejected the credential, not the event.
func isCredentialRefused(err error) bool {
	return slices.Contains([]engine.Code{"invalid_token", engine.CodeUnauthenticated, engine.CodeForbidden}, engine.CodeOf(err))
}

// askOperator returns an error with the command to run on the server's machine.
func (t hooksToken) askOperator(cause error) error {
	err := fmt.Errorf("%s accepts hook events only with a token for hooks, and its tokens are not on this machine", t.server)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &term.ExitError{
		Code: term.ExitUsage, Err: err,
		Hint: fmt.Sprintf("run on the server: gavel token create hooks-%s --hooks %s --principal %s --out hooks.token; bring the file here, and give --token-file hooks.token", t.client, term.ShellWord(t.folder), term.ShellWord(cmp.Or(t.principal, defaultAgent))),
	}
}

// file returns the path of the token file, one for each client, server and folder.
func (t hooksToken) file() (string, error) {
	dir, err := os.UserConfigDir()
	sum := sha256.Sum256([]byte(t.server + "\n" + t.folder))
	return filepath.Join(dir, "gavel", "hooks-"+t.client+"-"+hex.EncodeToString(sum[:6])+".token"), err
}
