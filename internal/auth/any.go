package auth

import (
	"context"
	"errors"
)

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
