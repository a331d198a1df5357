package auth

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Token is the stored form of a bearer token: everything except the token itself.
type Token struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Principal string      `json:"principal"`
	Role      engine.Role `json:"role"`
	// Workflows is as in engine.Principal; "" means all.
	Workflows string `json:"workflows,omitempty"`
	// Events is as in Identity.
	Events    string    `json:"hooks,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// ExpiresAt, RevokedAt and LastUsed are nil for never. LastUsed is a hint: it is written from time to time, not
	// at every use.
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
	LastUsed  *time.Time `json:"lastUsed,omitempty"`
	// Digest is the SHA-256 of the whole token, in hex. A token has 256 random bits, so a slow digest would not add
	// protection.
	Digest string `json:"sha256"`
}

// Valid reports whether the token may be used at the given time.
func (t Token) Valid(now time.Time) bool {
	return t.RevokedAt == nil && (t.ExpiresAt == nil || now.Before(*t.ExpiresAt))
}

// Status returns "valid", "expired" or "revoked".
func (t Token) Status(now time.Time) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case !t.Valid(now):
		return "expired"
	}
	return "valid"
}

func (t Token) identity() Identity {
	id := Identity{
		Principal: engine.Principal{ID: t.Principal, Role: t.Role, Workflows: t.Workflows},
		Kind:      KindToken, Credential: t.ID, Events: t.Events,
	}
	if t.ExpiresAt != nil {
		id.Expires = *t.ExpiresAt
	}
	return id
}

// NewToken describes a token to create.
type NewToken struct {
	// Name is for people: 1 to 64 letters, digits, dots, hyphens and underscores. Several tokens may have the same
	// name, for example during a rotation.
	Name string
	// Principal is the principal of its bearer; "" means "token:" followed by Name. Principals of this machine
	// (local:...) require Local.
	Principal string
	Role      engine.Role
	Workflows string
	// Events is the absolute path of a folder: the token may only post events of sessions in that folder. "" creates
	// a token for everything except events.
	Events string
	// Expires is when the token expires; zero means never.
	Expires time.Time
	// Local allows principals of this machine (local:...), which gavel mcp and the command line use.
	Local bool
}

var (
	tokenName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`) })
	scope     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._*-]{1,64}$`) })
	tokenForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^gvl_([0-9a-f]{16})_[A-Za-z0-9_-]{43}$`) })
)

// maxFolder limits the length of NewToken.Events, in bytes.
const maxFolder = 4096

// ErrBadToken is returned if a token cannot be created as requested.
var ErrBadToken = errors.New("the token cannot be created")

// mintError is an ErrBadToken that names the problem.
type mintError struct{ what string }

func (e mintError) Error() string      { return e.what }
func (mintError) Is(target error) bool { return target == ErrBadToken }

// problem returns why the token cannot be created, or "".
func (n NewToken) problem(now time.Time) string {
	switch {
	case !tokenName().MatchString(n.Name):
		return fmt.Sprintf("a token's name must have 1 to 64 letters, digits, dots, hyphens and underscores; %q does not", n.Name)
	case !slices.Contains(roleRank, n.Role):
		return fmt.Sprintf("unknown role %q: use agent, reviewer, operator, auditor or proxy", n.Role)
	case len(n.Principal) > maxPrincipal || !isReadable(n.Principal):
		return fmt.Sprintf("a principal must be at most %d bytes of printable text", maxPrincipal)
	case !n.Local && strings.HasPrefix(strings.ToLower(n.Principal), "local:"):
		return fmt.Sprintf("a token cannot be for %q: local principals belong to programs on this machine", n.Principal)
	case n.Events != "" && (!filepath.IsAbs(n.Events) || len(n.Events) > maxFolder || !isReadable(n.Events)):
		return fmt.Sprintf("the folder of a token for events must be an absolute path of at most %d bytes, not %.80q", maxFolder, n.Events)
	case !n.Expires.IsZero() && !n.Expires.After(now):
		return fmt.Sprintf("the token would already have expired at %s", n.Expires.Format(time.RFC3339))
	}
	for pattern := range strings.FieldsSeq(n.Workflows) {
		if !scope().MatchString(pattern) {
			return fmt.Sprintf("%q names no workflows: give names, with * for any run of characters, separated by spaces", pattern)
		}
	}
	return ""
}

// mint creates a token. The first result is the secret for its bearer, which is returned only once.
func (n NewToken) mint(now time.Time) (bearer string, t Token, err error) {
	if what := n.problem(now); what != "" {
		return "", Token{}, mintError{what}
	}
	random := make([]byte, 8+32)
	if _, err := rand.Read(random); err != nil {
		return "", Token{}, fmt.Errorf("cannot read random numbers: %w", err)
	}
	id := hex.EncodeToString(random[:8])
	bearer = "gvl_" + id + "_" + base64.RawURLEncoding.EncodeToString(random[8:])
	t = Token{
		ID: id, Name: n.Name, Principal: n.Principal, Role: n.Role,
		Workflows: strings.Join(strings.Fields(n.Workflows), " "), CreatedAt: now.UTC().Truncate(time.Second), Digest: digestBearer(bearer),
	}
	t.Principal = cmp.Or(t.Principal, "token:"+n.Name)
	if n.Events != "" {
		t.Events = filepath.Clean(n.Events)
	}
	if !n.Expires.IsZero() {
		at := n.Expires.UTC().Truncate(time.Second)
		t.ExpiresAt = &at
	}
	return bearer, t, nil
}

func digestBearer(bearer string) string {
	sum := sha256.Sum256([]byte(bearer))
	return hex.EncodeToString(sum[:])
}

// matches compares in constant time.
func (t Token) matches(digest string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Digest), []byte(digest)) == 1
}
