// Package auth finds out who calls over the network.
//
// It promises that a caller is exactly who its credential says, that a credential
// is kept and compared as a digest only, that a revoked or expired one is refused
// at once, and that a refusal tells the caller what kind of credential is wanted
// and not why its own was not good enough.
//
// It must never decide what a caller may do: that is the engine's. It must never
// write a credential to a log, an error or a metric, and never pass one on.
package auth

import (
	"context"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Kind is how a caller proved who it is.
type Kind string

// The kinds.
const (
	// KindToken is a bearer token of this gavel (gavel token create).
	KindToken Kind = "token"
	// KindJWT is a signed token of an OIDC issuer that the operator trusts.
	KindJWT Kind = "jwt"
	// KindNone is --auth none: anyone who reaches a loopback listener is the local agent.
	KindNone Kind = "none"
	// KindProgram is what a program that embeds gavel says of its own callers.
	KindProgram Kind = "program"
)

// Identity is who calls, and how that is known.
type Identity struct {
	engine.Principal
	Kind Kind
	// Credential names the credential in logs and quotas: a token's id, a JWT's issuer
	// and subject. It is not secret.
	Credential string
	// Hooks is the folder for whose sessions the credential may post hook events, which is
	// then all that it may do; "" for a credential that may post none.
	Hooks string
	// Expires is when the credential ends; zero when it does not.
	Expires time.Time
}

// MayPostHooks reports whether the caller may post hook events: with a token for them, or
// where callers are not told apart.
func (id Identity) MayPostHooks() bool { return id.Hooks != "" || id.Kind == KindNone }

// Errors of an Authenticator. Network callers see these and no more.
var (
	// ErrNoCredential: the request carries none.
	ErrNoCredential = errors.New("no credential")
	// ErrBadCredential: it is unknown, malformed, expired, revoked, or for somebody else.
	ErrBadCredential = errors.New("the credential is not valid")
	// ErrUnavailable: it could not be found out now, for example because the issuer's
	// keys cannot be fetched.
	ErrUnavailable = errors.New("credentials cannot be checked now")
)

// Authenticator finds out whose credential it is.
type Authenticator interface {
	// Authenticate takes what follows "Bearer ", "" when the request carries nothing.
	// Errors wrap ErrNoCredential, ErrBadCredential or ErrUnavailable.
	Authenticate(ctx context.Context, bearer string) (Identity, error)
}

// StillValid reports whether the credential that a request came with is valid now: for
// what outlives the request's beginning, such as streams. When that cannot be determined, it is:
// the request was let in once. So it is of a context that Middleware has not made.
func StillValid(ctx context.Context) bool {
	again, ok := ctx.Value(againKey{}).(func(context.Context) error)
	return !ok || !errors.Is(again(ctx), ErrBadCredential)
}

type (
	contextKey struct{}
	againKey   struct{}
)

// NewContext returns a context that knows who calls.
func NewContext(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// FromContext returns who calls; false for a request without one, and then
// nothing may be done for the caller.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(contextKey{}).(Identity)
	return id, ok
}

// Any asks authenticators one after the other; the first that knows the credential says
// whose it is. Where none does, one that could not be asked counts more than a refusal:
// the caller had better try again.
func Any(all ...Authenticator) Authenticator { return anyOf(all) }

type anyOf []Authenticator

// Authenticate implements Authenticator.
func (a anyOf) Authenticate(ctx context.Context, bearer string) (Identity, error) {
	if bearer == "" {
		return Identity{}, ErrNoCredential
	}
	refusal := ErrBadCredential
	for _, one := range a {
		id, err := one.Authenticate(ctx, bearer)
		if err == nil {
			return id, nil
		}
		if errors.Is(err, ErrUnavailable) {
			refusal = err
		}
	}
	return Identity{}, refusal
}
