package auth

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/egress"
)

// Issuer is an OIDC or OAuth issuer whose signed tokens are accepted (RFC 9068, RFC 7519).
type Issuer struct {
	// Name precedes the subject in the principal's id ("corp:alice"). It consists of letters, digits and hyphens, and
	// is not "local" or "token".
	Name string
	// URL is the issuer's URL, exactly as in the claim iss. It is https, or http on a loopback address with
	// PrivateNetwork.
	URL string
	// JWKS is the URL of its keys; "" discovers it (OpenID Connect Discovery).
	JWKS string
	// Audiences are the accepted audiences, of which the claim aud must name one: usually this server's address.
	// Tokens for other audiences are rejected (RFC 8707).
	Audiences []string
	// Algorithms are the accepted signature algorithms; nil means DefaultAlgorithms.
	Algorithms []string
	// SubjectClaim is the claim with the subject; "" means "sub".
	SubjectClaim string
	// RoleClaim is a claim (a string or a list) whose values Roles maps to roles; of several, the strongest counts.
	// Without a match, DefaultRole applies; if that is "", the token is rejected.
	RoleClaim   string
	Roles       map[string]engine.Role
	DefaultRole engine.Role
	// WorkflowsClaim, if not empty, is a claim (a string or a list) with the workflows that the caller may use.
	// Tokens without it are rejected.
	WorkflowsClaim string
	// PrivateNetwork allows the issuer to be on a private network or this machine.
	PrivateNetwork bool
	// Roots are trusted instead of the system's certificates; nil means the system's.
	Roots *x509.CertPool
}

// DefaultAlgorithms are the accepted public-key algorithms. A shared secret (HS256) or no signature can never be
// allowed: the former would have to be known here, the latter proves nothing.
var DefaultAlgorithms = []string{oidc.RS256, oidc.ES256, oidc.PS256, oidc.EdDSA, oidc.RS384, oidc.RS512, oidc.ES384, oidc.ES512, oidc.PS384, oidc.PS512}

// ErrIssuer is returned if an Issuer cannot be used.
var ErrIssuer = errors.New("the issuer cannot be used")

var issuerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,31}$`) })

// problem returns why an issuer cannot be used, or "".
func (i Issuer) problem() string {
	switch u, err := url.Parse(i.URL); {
	case !issuerName().MatchString(i.Name) || i.Name == "local" || i.Name == "token":
		return fmt.Sprintf("its name %q has characters other than letters, digits and hyphens, or is reserved", i.Name)
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return fmt.Sprintf("its address %q is not a URL", i.URL)
	case !i.mayFetch(u):
		return fmt.Sprintf("its address %s is not https", i.URL)
	case len(i.Audiences) == 0 || slices.Contains(i.Audiences, ""):
		return "no audience is given, so tokens issued for others would be accepted"
	case i.RoleClaim == "" && i.DefaultRole == "":
		return "neither a role claim nor a default role is given, so every token would be rejected"
	}
	for _, a := range i.Algorithms {
		if !slices.Contains(DefaultAlgorithms, a) {
			return fmt.Sprintf("the algorithm %q is unknown or has no public key", a)
		}
	}
	for _, r := range append(slices.Collect(maps.Values(i.Roles)), i.DefaultRole) {
		if r != "" && !slices.Contains(roleRank, r) {
			return fmt.Sprintf("there is no role %q", r)
		}
	}
	if i.JWKS != "" {
		if u, err := url.Parse(i.JWKS); err != nil || u.Host == "" || !i.mayFetch(u) {
			return fmt.Sprintf("the address %q of its keys is not https", i.JWKS)
		}
	}
	return ""
}

// mayFetch reports whether keys may be fetched from a URL. Keys received in plain text could be forged.
func (i Issuer) mayFetch(u *url.URL) bool {
	host := u.Hostname()
	return u.Scheme == "https" || u.Scheme == "http" && i.PrivateNetwork && (host == "localhost" || host == "127.0.0.1" || host == "::1")
}

// roleRank orders the roles from weakest to strongest, for callers with several.
var roleRank = []engine.Role{engine.RoleProxy, engine.RoleAuditor, engine.RoleAgent, engine.RoleReviewer, engine.RoleOperator}

// JWT authenticates tokens signed by an issuer.
type JWT struct {
	issuer   Issuer
	verifier *oidc.IDTokenVerifier
	keys     *keySet
	now      func() time.Time
}

// NewJWT checks the issuer's settings. It fetches nothing before the first token arrives, so that an unavailable
// issuer does not block the start. The error wraps ErrIssuer.
func NewJWT(i Issuer) (*JWT, error) {
	if what := i.problem(); what != "" {
		return nil, fmt.Errorf("%w: %s", ErrIssuer, what)
	}
	i.SubjectClaim = cmp.Or(i.SubjectClaim, "sub")
	if i.Algorithms == nil {
		i.Algorithms = DefaultAlgorithms
	}
	guard := egress.NewGuard(i.PrivateNetwork)
	if i.Roots != nil {
		guard.Transport().TLSClientConfig = &tls.Config{RootCAs: i.Roots, MinVersion: tls.VersionTLS12}
	}
	j := &JWT{issuer: i, now: time.Now}
	j.keys = &keySet{issuer: i, client: &http.Client{Transport: cappedTransport{guard.Transport()}, Timeout: fetchTimeout, CheckRedirect: i.redirect}, now: time.Now}
	j.verifier = oidc.NewVerifier(i.URL, j.keys, &oidc.Config{
		SkipClientIDCheck:    true, // an access token names audiences, which are checked here
		SupportedSigningAlgs: i.Algorithms,
		Now:                  func() time.Time { return j.now() },
	})
	return j, nil
}

// redirect follows only a few redirects, and none to plain text.
func (i Issuer) redirect(r *http.Request, via []*http.Request) error {
	if len(via) > 3 || !i.mayFetch(r.URL) {
		return errors.New("the issuer redirects too often, or to plain text")
	}
	return nil
}

// Authenticate implements Authenticator.
func (j *JWT) Authenticate(ctx context.Context, bearer string) (Identity, error) {
	if bearer == "" {
		return Identity{}, ErrNoCredential
	}
	if strings.Count(bearer, ".") != 2 { // not a JWS: may belong to another authenticator
		return Identity{}, ErrBadCredential
	}
	var away error // the library converts a key set's error to text
	token, err := j.verifier.Verify(context.WithValue(ctx, unavailableKey{}, &away), bearer)
	switch {
	case away != nil:
		return Identity{}, away
	case err != nil:
		return Identity{}, fmt.Errorf("%w: %w", ErrBadCredential, err)
	}
	id, err := j.identity(token)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrBadCredential, err)
	}
	return id, nil
}

const (
	maxPrincipal = 200  // bytes in a principal's id
	maxYear      = 9999 // later times have no RFC 3339 form
)

// identity returns the identity in a verified token.
func (j *JWT) identity(t *oidc.IDToken) (Identity, error) {
	if !slices.ContainsFunc(t.Audience, func(a string) bool { return slices.Contains(j.issuer.Audiences, a) }) {
		return Identity{}, errors.New("the token was issued for another audience")
	}
	if t.Expiry.IsZero() || t.Expiry.Year() > maxYear {
		return Identity{}, errors.New("the token does not expire")
	}
	var claims map[string]json.RawMessage
	if err := t.Claims(&claims); err != nil {
		return Identity{}, err
	}
	subject := claimTexts(claims[j.issuer.SubjectClaim])
	if len(subject) != 1 || subject[0] == "" || !isReadable(subject[0]) {
		return Identity{}, fmt.Errorf("the claim %q does not name a subject", j.issuer.SubjectClaim)
	}
	id := Identity{
		Principal: engine.Principal{ID: j.issuer.Name + ":" + subject[0], Role: j.role(claims)},
		Kind:      KindJWT, Credential: j.issuer.URL + "#" + subject[0], Expires: t.Expiry,
	}
	if id.Role == "" {
		return Identity{}, errors.New("the token has no role")
	}
	if len(id.ID) > maxPrincipal {
		return Identity{}, errors.New("the subject is too long")
	}
	if j.issuer.WorkflowsClaim != "" {
		scope := claimTexts(claims[j.issuer.WorkflowsClaim])
		if id.Workflows = strings.Join(scope, " "); strings.TrimSpace(id.Workflows) == "" {
			return Identity{}, fmt.Errorf("the claim %q names no workflow", j.issuer.WorkflowsClaim)
		}
	}
	return id, nil
}

// isReadable reports whether a name cannot be mistaken for another: it has no surrounding space and no invisible
// characters.
func isReadable(name string) bool {
	return strings.TrimSpace(name) == name && !strings.ContainsFunc(name, isInvisible)
}

func isInvisible(r rune) bool {
	const brailleBlank = '\u2800'
	return !unicode.IsPrint(r) || r == unicode.ReplacementChar || r == brailleBlank ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// role returns the strongest role in the token's claim.
func (j *JWT) role(claims map[string]json.RawMessage) engine.Role {
	best := -1
	if j.issuer.RoleClaim != "" {
		for _, value := range claimTexts(claims[j.issuer.RoleClaim]) {
			best = max(best, slices.Index(roleRank, j.issuer.Roles[value]))
		}
	}
	if best < 0 {
		return j.issuer.DefaultRole
	}
	return roleRank[best]
}

// claimTexts returns the values of a claim that is a string or a list of strings; nil for anything else.
func claimTexts(claim json.RawMessage) []string {
	var one string
	if json.Unmarshal(claim, &one) == nil && one != "" {
		return []string{one}
	}
	var list []string
	if json.Unmarshal(claim, &list) == nil {
		return list
	}
	return nil
}
