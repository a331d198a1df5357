package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

const (
	// fetchTimeout limits a request to an issuer, maxDocument the bytes of its response.
	fetchTimeout = 10 * time.Second
	maxDocument  = 1 << 20
	// keyMaxAge is how long keys are used before they are fetched again. A withdrawn key is rejected within this time.
	keyMaxAge = 10 * time.Minute
	// staleKeyMaxAge is how long keys are used if the issuer does not respond.
	staleKeyMaxAge = time.Hour
	// refreshWait is how long a caller waits for new keys if old ones can still be used.
	refreshWait = 2 * time.Second
	// refetchInterval limits how often tokens with unknown keys, which anyone can create, cause a request.
	refetchInterval = 10 * time.Second
)

// unavailableKey is the context key of the *error that a keySet sets if the keys are unavailable.
type unavailableKey struct{}

// keySet holds an issuer's keys, which are fetched when needed. It implements oidc.KeySet.
type keySet struct {
	issuer Issuer
	client *http.Client
	now    func() time.Time

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time     // when keys were received
	tried   time.Time     // when they were last requested
	failed  error         // error of the last request
	asking  chan struct{} // closed when the request in progress has ended; nil if there is none
}

// VerifySignature implements oidc.KeySet. Errors wrap ErrUnavailable if keys that might match are unavailable.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	algorithms := make([]jose.SignatureAlgorithm, len(k.issuer.Algorithms))
	for i, a := range k.issuer.Algorithms {
		algorithms[i] = jose.SignatureAlgorithm(a)
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, err
	}
	if len(signed.Signatures) != 1 {
		return nil, errors.New("the token must have exactly one signature")
	}
	if !isAccessToken(signed.Signatures[0].Protected) {
		return nil, errors.New("the token is not an access token")
	}
	keyID := signed.Signatures[0].Header.KeyID
	for _, refresh := range []bool{false, true} {
		keys, err := k.get(ctx, refresh)
		if err != nil {
			if away, ok := ctx.Value(unavailableKey{}).(*error); ok {
				*away = err
			}
			return nil, err
		}
		known := false
		for i := range keys {
			if key := &keys[i]; keyID == "" || key.KeyID == keyID {
				known = true
				if payload, err := signed.Verify(key); err == nil {
					return payload, nil
				}
			}
		}
		if known { // a new key would have a new name
			break
		}
	}
	return nil, errors.New("the token was not signed with any key of the issuer")
}

// isAccessToken checks the type of a token (RFC 8725, 3.11): at+jwt (RFC 9068), JWT or, as many issuers omit it,
// none. Tokens for other purposes, such as logout+jwt, are signed by the same keys.
func isAccessToken(h jose.Header) bool {
	kind, given := h.ExtraHeaders[jose.HeaderType]
	if !given {
		return true
	}
	name, _ := kind.(string)
	switch strings.TrimPrefix(strings.ToLower(name), "application/") {
	case "jwt", "at+jwt":
		return true
	}
	return false
}

// get returns the keys. With refresh, it requests them again, because none of them matched, unless the last request was
// less than refetchAfter ago.
func (k *keySet) get(ctx context.Context, refresh bool) ([]jose.JSONWebKey, error) {
	for {
		k.mu.Lock()
		now := k.now()
		fresh := !k.fetched.IsZero() && now.Sub(k.fetched) < keyMaxAge
		recent := !k.tried.IsZero() && now.Sub(k.tried) < refetchInterval
		switch {
		case fresh && (!refresh || recent):
			defer k.mu.Unlock()
			return k.keys, nil
		case recent && k.asking == nil && k.failed != nil:
			defer k.mu.Unlock()
			if !k.fetched.IsZero() && now.Sub(k.fetched) < staleKeyMaxAge {
				return k.keys, nil
			}
			return nil, k.failed
		case k.asking == nil:
			k.asking = make(chan struct{})
			go k.fetch(context.WithoutCancel(ctx)) // others may wait for it after this caller has left
		}
		asking, stale := k.asking, k.keys
		if k.fetched.IsZero() || now.Sub(k.fetched) >= staleKeyMaxAge {
			stale = nil
		}
		k.mu.Unlock()
		var enough <-chan time.Time // limits the wait if old keys are usable
		if stale != nil {
			enough = time.After(refreshWait)
		}
		select {
		case <-asking:
			refresh = false
		case <-enough:
			return stale, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	}
}

// fetch requests the keys once.
func (k *keySet) fetch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*fetchTimeout)
	defer cancel()
	keys, err := k.requestKeys(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tried = k.now(); err == nil {
		k.keys, k.fetched, k.failed = keys, k.tried, nil
	} else {
		k.failed = fmt.Errorf("%w: the keys of %s: %w", ErrUnavailable, k.issuer.URL, err)
	}
	close(k.asking)
	k.asking = nil
}

func (k *keySet) requestKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	address := k.issuer.JWKS
	if address == "" {
		provider, err := oidc.NewProvider(oidc.ClientContext(ctx, k.client), k.issuer.URL)
		if err != nil {
			return nil, err
		}
		var told struct {
			JWKS string `json:"jwks_uri"`
		}
		if err := provider.Claims(&told); err != nil {
			return nil, err
		}
		if address = told.JWKS; address == "" {
			return nil, errors.New("the issuer does not publish the address of its keys")
		}
	}
	if u, err := url.Parse(address); err != nil || !k.issuer.mayFetch(u) {
		return nil, errors.New("the address of the keys is not https")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", answer.StatusCode)
	}
	var set jose.JSONWebKeySet
	if err := json.NewDecoder(answer.Body).Decode(&set); err != nil {
		return nil, err
	}
	return publicKeys(set.Keys), nil
}

// publicKeys omits keys that cannot verify signatures: a shared secret in a public document is known to everyone.
func publicKeys(all []jose.JSONWebKey) []jose.JSONWebKey {
	var out []jose.JSONWebKey
	for _, key := range all {
		if key.Valid() && key.IsPublic() && key.Use != "enc" {
			out = append(out, key)
		}
	}
	return out
}

// cappedTransport limits how much of a response is read.
type cappedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c cappedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, maxDocument), answer.Body}
	return answer, nil
}
