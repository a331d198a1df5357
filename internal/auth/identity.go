// Package auth identifies callers on the network.
//
// It guarantees:
//
//   - A caller is exactly the one that its credential names.
//   - Credentials are stored and compared only as digests.
//   - A revoked or expired credential is refused immediately.
//   - A refusal names the kind of credential that is required, but not why the given one was rejected.
//
// It must never decide what a caller may do: that is the engine's task. It must never write a credential to a log, an
// error or a metric, and never pass one on.
package auth

import (
	"context"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Kind is the way in which a caller was identified.
type Kind string

// The kinds of identification.
const (
	// KindToken is a bearer token of this gavel (gavel token create).
	KindToken Kind = "token"
	// KindJWT is a signed token of an OIDC issuer that the operator trusts.
	KindJWT Kind = "jwt"
	// KindNone is --auth none: anyone who reaches a loopback listener is the local agent.
	KindNone Kind = "none"
	// KindProgram means that a program that embeds gavel identified its own caller.
	KindProgram Kind = "program"
)

// Identity is a caller, and how it was identified.
type Identity struct {
	engine.Principal
	Kind Kind
	// Credential identifies the credential in logs and quotas: a token's id, or a JWT's issuer and subject. It is not
	// secret.
	Credential string
	// Events is the folder whose sessions the credential may post events for. If it is set, the credential permits
	// nothing else; "" permits no events.
	Events string
	// Expires is when the credential expires; zero means never.
	Expires time.Time
}

// MayPostEvents reports whether the caller may post events: with a token for them, or if callers are not
// distinguished.
func (id Identity) MayPostEvents() bool { return id.Events != "" || id.Kind == KindNone }

// Errors of an Authenticator. Network callers see only these.
var (
	// ErrNoCredential is returned if the request has no credential.
	ErrNoCredential = errors.New("no credential")
	// ErrBadCredential is returned if the credential is unknown, malformed, expired, revoked, or intended for another
	// service.
	ErrBadCredential = errors.New("the credential is not valid")
	// ErrUnavailable is returned if the credential cannot be checked now, for example because the issuer's keys
	// cannot be fetched.
	ErrUnavailable = errors.New("credentials cannot be checked now")
)

// Authenticator identifies the owner of a credential.
type Authenticator interface {
	// Authenticate checks the text after "Bearer "; "" if the request has no credential. Errors wrap ErrNoCredential,
	// ErrBadCredential or ErrUnavailable.
	Authenticate(ctx context.Context, bearer string) (Identity, error)
}

// StillValid reports whether the credential of a request is still valid. It is for work that outlives the beginning
// of a request, such as streams. If the check is not possible now, it returns true, because the request was admitted
// before. It also returns true for a context that was not created by Middleware.
func StillValid(ctx context.Context) bool {
	again, ok := ctx.Value(againKey{}).(func(context.Context) error)
	return !ok || !errors.Is(again(ctx), ErrBadCredential)
}

type (
	contextKey struct{}
	againKey   struct{}
)

// NewContext returns a context with the caller's identity.
func NewContext(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// FromContext returns the caller's identity. If it returns false, the request has none, and nothing may be done for
// the caller.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(contextKey{}).(Identity)
	return id, ok
}

// Any tries authenticators in turn; the first that knows the credential identifies the caller. If none does, but one
// could not check it, the error is ErrUnavailable rather than a refusal, so that the caller tries again.
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
