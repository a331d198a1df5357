package serve

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/rest/client"
	"github.com/gavel-mcp/gavel/internal/term"
)

const (
	authToken = "token"
	authNone  = "none"
)

// The first start writes its tokens to these files, next to the store.
const (
	OperatorTokenFile = "operator.token"
	AgentTokenFile    = "agent.token"
)

type authFlags struct {
	Auth string `name:"auth" enum:"token,none" default:"token" placeholder:"HOW" help:"How to identify callers: token (the default; see gavel token), or none: every caller is the local agent, on a loopback address only."`
	cli.TokensFlag
}

// open creates the authenticator, and the first tokens at a first start on loopback. others reports that callers
// without a token of this store can also be identified.
func (f authFlags) open(con *cli.Console, sys *cli.System, at net.Addr, others bool) (auth.Authenticator, error) {
	tcp, ok := at.(*net.TCPAddr)
	loopback := ok && tcp.IP.IsLoopback()
	if f.Auth == authNone {
		if !loopback { // the name resolved to another address than a moment ago
			return nil, term.UsageErrorf("", "--auth none is for loopback addresses only, not %s", at)
		}
		return auth.Local(gavel.LocalAgent), nil
	}
	store := sys.Location.Path
	path, shared := f.Path(store), f.areShared(sys)
	tokens, err := f.tokensOpener(sys)()
	if err != nil {
		return nil, term.UsageErrorf("", "%w", err)
	}
	all, err := tokens.List()
	if err != nil {
		return nil, term.UsageErrorf("", "%w", err)
	}
	const first = "create one first: gavel token create NAME --role operator --out FILE --store "
	switch {
	case slices.ContainsFunc(all, func(t auth.Token) bool { return t.Events == "" }) || others && (shared || !loopback):
	case shared: // it is unknown which machine should get the files
		return nil, term.UsageErrorf(first+sys.Location.String()+" --store-key FILE", "no client could authenticate: there is no token in %s", sys.Location)
	case !loopback && path != "":
		return nil, term.UsageErrorf(first+store, "no client could authenticate: there is no token in %s", path)
	default:
		err = createFirstTokens(con, tokens, store)
	}
	return tokens, err
}

// areShared reports whether the tokens are in the database of the store.
func (f authFlags) areShared(sys *cli.System) bool {
	return sys.Location.IsDatabase() && f.Tokens == ""
}

// tokensOpener returns a function that opens the store's tokens; nil if callers need none.
func (f authFlags) tokensOpener(sys *cli.System) func() (*auth.Tokens, error) {
	switch {
	case f.Auth == authNone:
		return nil
	case f.areShared(sys):
		return sys.Tokens
	default:
		var mu sync.Mutex
		var opened *auth.Tokens
		return func() (_ *auth.Tokens, err error) {
			mu.Lock()
			defer mu.Unlock()
			if opened == nil { // also if it failed before
				opened, err = auth.OpenTokens(f.Path(sys.Location.Path))
			}
			return opened, err
		}
	}
}

// createFirstTokens creates a token for an operator and one for an agent, and writes them to files, because printed tokens
// end up in logs. For a store in memory, which has no place for files, it shows them on a terminal. The tokens act as
// the principals of this machine, so that instances that gavel mcp began can continue here.
func createFirstTokens(con *cli.Console, tokens *auth.Tokens, store string) error {
	if store == gavel.Memory && !con.Err.IsTerminal() {
		return term.UsageErrorf("use --auth none; or create a token first (gavel token create NAME --out FILE --tokens TOKENS) and give --tokens TOKENS here too",
			"no client could authenticate: the tokens of a store in memory are shown only on a terminal")
	}
	bearers, made, err := tokens.CreateFirst(
		auth.NewToken{Name: "first-operator", Principal: "local:operator", Role: engine.RoleOperator, Local: true},
		auth.NewToken{Name: "first-agent", Principal: gavel.LocalAgent.ID, Role: engine.RoleAgent, Local: true},
	)
	if err != nil {
		return term.UnknownErrorf("", "cannot create the first tokens: %w", err)
	}
	if len(made) == 0 { // another process was first
		return nil
	}
	for i, who := range []struct{ name, file string }{{"operator", OperatorTokenFile}, {"agent", AgentTokenFile}} {
		if store == gavel.Memory {
			con.Err.Printf("%s's token, until this server ends: %s\n", who.name, bearers[i])
			continue
		}
		file := filepath.Join(filepath.Dir(store), who.file)
		if err := auth.WriteSecret(file, bearers[i]); err != nil {
			_ = tokens.Forget(made[0].ID, made[1].ID) // no one has them; the error is enough
			return term.UnknownErrorf("", "%w", err)
		}
		con.Err.Printf("%s's token: in the file %s\n", who.name, file)
	}
	return nil
}

// ResourcePath is the path of the protected-resource document (RFC 9728). For a resource with a path, that path is
// appended.
const ResourcePath = "/.well-known/oauth-protected-resource"

type issuerFlags struct {
	PublicURL string `name:"public-url" placeholder:"URL" help:"The URL that clients use for this server, such as https://gavel.example.org, if they reach it through a proxy. Default: the host in the request."`
}

func (f issuerFlags) check() error {
	if _, err := client.ParseAddress(f.PublicURL); err != nil && f.PublicURL != "" {
		return term.UsageErrorf("give scheme and host, such as https://gavel.example.org", "--public-url is not the URL of a server")
	}
	return nil
}

// base returns the URL of this server without a trailing slash. The listener has checked the host of the request.
func (f issuerFlags) base(r *http.Request) string {
	if f.PublicURL != "" {
		return strings.TrimRight(f.PublicURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// issuersFor returns the issuers in the configuration file; how is the value of --auth.
func issuersFor(f cli.ConfigFlag, how string) ([]auth.Issuer, error) {
	if f.Config == "" {
		return nil, nil
	}
	file, err := config.Load(f.Config)
	if err != nil {
		return nil, module.ConfigError(err)
	}
	declared, err := auth.ParseConfig(file.Section(config.SectionAuth), file.Dir())
	if err != nil {
		return nil, module.ConfigError(err)
	}
	if how == authNone && len(declared.Issuers) > 0 {
		return nil, term.UsageErrorf("drop --auth none, or the section auth of the configuration file", "--auth none identifies no callers, so issuers have no effect")
	}
	return declared.Issuers, nil
}

// callers identifies callers by the tokens of the store, and by tokens that issuers signed. The issuers can be
// replaced while it is in use.
type callers struct {
	first auth.Authenticator
	now   atomic.Pointer[issuerAuthenticator]
}

// issuerAuthenticator is the authenticator for one set of issuers.
type issuerAuthenticator struct {
	authenticator auth.Authenticator
	issuers       []string
}

func newCallers(first auth.Authenticator, issuers []auth.Issuer) (*callers, error) {
	c := &callers{first: first}
	trust, err := c.prepareTrust(issuers)
	if err != nil {
		return nil, err
	}
	trust()
	return c, nil
}

// prepareTrust checks issuers; trust accepts their tokens from then on, and those of no other issuers.
func (c *callers) prepareTrust(issuers []auth.Issuer) (trust func(), err error) {
	next, all := &issuerAuthenticator{}, []auth.Authenticator{c.first}
	for _, i := range issuers {
		j, err := auth.NewJWT(i)
		if err != nil {
			return nil, term.UsageErrorf("", "%w", err)
		}
		all, next.issuers = append(all, j), append(next.issuers, i.URL)
	}
	next.authenticator = c.first
	if len(issuers) > 0 {
		next.authenticator = auth.Any(all...)
	}
	return func() { c.now.Store(next) }, nil
}

func (c *callers) Authenticate(ctx context.Context, bearer string) (auth.Identity, error) {
	return c.now.Load().authenticator.Authenticate(ctx, bearer)
}

// metadata returns the URL of the protected-resource document for a request; "" if no issuer is trusted.
func (c *callers) metadata(f issuerFlags) func(*http.Request) string {
	return func(r *http.Request) string {
		if len(c.now.Load().issuers) == 0 {
			return ""
		}
		if r.URL.Path == gavel.MCPPath {
			return f.base(r) + ResourcePath + gavel.MCPPath
		}
		return f.base(r) + ResourcePath
	}
}

func (c *callers) resource(f issuerFlags) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		issuers := c.now.Load().issuers
		if len(issuers) == 0 {
			notFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		writeJSON(w, http.StatusOK, "application/json", map[string]any{
			"resource":                 f.base(r) + strings.TrimPrefix(r.URL.Path, ResourcePath),
			"resource_name":            "gavel",
			"authorization_servers":    issuers,
			"bearer_methods_supported": []string{"header"},
		})
	}
}
