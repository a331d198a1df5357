package main

import (
	"net"
	"path/filepath"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// The ways to know callers.
const (
	authToken = "token"
	authNone  = "none"
)

// operatorTokenFile is where the first start leaves the operator's token.
const operatorTokenFile = "operator.token"

// localAgent is everybody under --auth none: who gavel mcp serves without a --role.
var localAgent = engine.Principal{ID: "local:agent", Role: engine.RoleAgent}

// authFlags say how callers are known.
type authFlags struct {
	Auth string `name:"auth" enum:"token,none" default:"token" placeholder:"HOW" help:"How callers are known: token (the default; see gavel token), or none: everybody is the local agent, on a loopback address only."`
	tokensFlag
}

// identities are how callers are known.
type identities struct {
	authenticator auth.Authenticator
	tokens        *auth.Tokens // nil without any
}

// open makes the authenticator, and at a first start on loopback the first tokens. others
// says that callers without a token of this gavel can be known too.
func (f authFlags) open(con *console, store string, at net.Addr, others bool) (identities, error) {
	tcp, ok := at.(*net.TCPAddr)
	loopback := ok && tcp.IP.IsLoopback()
	if f.Auth == authNone {
		if !loopback { // the name meant another address than it did a moment ago
			return identities{}, term.UsageErrorf("", "--auth none is for loopback addresses only, and this is %s", at)
		}
		return identities{authenticator: auth.Local(localAgent)}, nil
	}
	path := f.path(store)
	tokens, err := auth.OpenTokens(path)
	if err != nil {
		return identities{}, term.UsageErrorf("", "%w", err)
	}
	all, err := tokens.List()
	if err != nil {
		return identities{}, term.UsageErrorf("", "%w", err)
	}
	if len(all) == 0 && (loopback || !others) {
		if !loopback && path != "" {
			return identities{}, term.UsageErrorf("make one first: gavel token create NAME --role operator --store "+store, "nobody could call: there is no token in %s", path)
		}
		if err := firstTokens(con, tokens, store); err != nil {
			return identities{}, err
		}
	}
	return identities{authenticator: tokens, tokens: tokens}, nil
}

// firstTokens makes an operator's and an agent's token and hands them over. They act as
// the principals of this machine, so that what gavel mcp began goes on here.
func firstTokens(con *console, tokens *auth.Tokens, store string) error {
	bearers, made, err := tokens.CreateFirst(
		auth.NewToken{Name: "first-operator", Principal: "local:operator", Role: engine.RoleOperator, Local: true},
		auth.NewToken{Name: "first-agent", Principal: localAgent.ID, Role: engine.RoleAgent, Local: true},
	)
	if err != nil {
		return term.UnknownErrorf("", "cannot make the first tokens: %w", err)
	}
	if len(made) == 0 { // another process was first
		return nil
	}
	if store == memoryStore {
		con.err.Printf("operator's token, until this server ends: %s\n", bearers[0])
	} else {
		file := filepath.Join(filepath.Dir(store), operatorTokenFile)
		if err := auth.WriteSecret(file, bearers[0]); err != nil {
			_ = tokens.Forget(made[0].ID, made[1].ID) // nobody has them; the error says enough
			return term.UnknownErrorf("", "%w", err)
		}
		con.err.Printf("operator's token: in the file %s\n", file)
	}
	con.err.Printf("agent's token, shown this once, on stdout:\n")
	con.out.Printf("%s\n", bearers[1])
	return nil
}
