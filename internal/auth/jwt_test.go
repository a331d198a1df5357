package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// provider is an issuer whose keys a test can change.
type provider struct {
	*httptest.Server
	asked atomic.Int32 // requests for its keys
	down  atomic.Bool
	hang  atomic.Pointer[chan struct{}] // answers wait until it is closed
	mu    sync.Mutex
	keys  []jose.JSONWebKey
	moved string // the announced address of the keys; "" for this server
}

func newProvider(t *testing.T, keys ...jose.JSONWebKey) *provider {
	t.Helper()
	p := &provider{keys: keys}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		at := p.URL + "/keys"
		if p.moved != "" {
			at = p.moved
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "jwks_uri": at})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		if hanging := p.hang.Load(); hanging != nil {
			<-*hanging
		}
		if p.down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		set := jose.JSONWebKeySet{}
		for _, k := range p.keys {
			if _, shared := k.Key.([]byte); shared {
				set.Keys = append(set.Keys, k)
			} else {
				set.Keys = append(set.Keys, k.Public())
			}
		}
		_ = json.NewEncoder(w).Encode(set)
	})
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) set(keys ...jose.JSONWebKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

// issuer returns the configuration of a gavel that trusts it.
func (p *provider) issuer() auth.Issuer {
	roots := x509.NewCertPool()
	roots.AddCert(p.Certificate())
	return auth.Issuer{
		Name: "corp", URL: p.URL, Audiences: []string{"https://gavel.example.org"}, DefaultRole: engine.RoleAgent,
		PrivateNetwork: true, Roots: roots,
	}
}

func (p *provider) claims(more map[string]any) map[string]any {
	now := time.Now()
	c := map[string]any{
		"iss": p.URL, "sub": "ada", "aud": "https://gavel.example.org", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(c, more)
	for k, v := range c {
		if v == nil {
			delete(c, k)
		}
	}
	return c
}

var (
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey    = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	otherKey = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func key(id string, k any) jose.JSONWebKey { return jose.JSONWebKey{KeyID: id, Key: k} }

// sign creates a token.
func sign(t *testing.T, alg jose.SignatureAlgorithm, k jose.JSONWebKey, claims map[string]any) string {
	t.Helper()
	return signWith(t, jose.SigningKey{Algorithm: alg, Key: k}, nil, claims)
}

// signAs creates a token of a type.
func signAs(t *testing.T, kind any, k jose.JSONWebKey, claims map[string]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithHeader(jose.HeaderType, kind)
	return signWith(t, jose.SigningKey{Algorithm: jose.RS256, Key: k}, options, claims)
}

func signWith(t *testing.T, k jose.SigningKey, options *jose.SignerOptions, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(k, options)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(raw)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// unsigned returns a token that claims to have no signature.
func unsigned(claims map[string]any) string {
	part := func(v any) string { return base64.RawURLEncoding.EncodeToString(must(json.Marshal(v))) }
	return part(map[string]any{"alg": "none"}) + "." + part(claims) + "."
}

func newJWT(t *testing.T, i auth.Issuer) *auth.JWT {
	t.Helper()
	j, err := auth.NewJWT(i)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestJWT(t *testing.T) {
	t.Parallel()
	good := key("a", rsaKey())
	p := newProvider(t, good, key("e", ecKey()))
	issuer := p.issuer()
	issuer.RoleClaim, issuer.Roles = "groups", map[string]engine.Role{"gavel-ops": engine.RoleOperator, "gavel-rev": engine.RoleReviewer}
	j := newJWT(t, issuer)
	public := must(x509.MarshalPKIXPublicKey(rsaKey().Public()))
	now := time.Now()
	for _, c := range []struct {
		name  string
		token string
		role  engine.Role // "" if it is refused
	}{
		{"good", sign(t, jose.RS256, good, p.claims(nil)), engine.RoleAgent},
		{"another key", sign(t, jose.ES256, key("e", ecKey()), p.claims(nil)), engine.RoleAgent},
		{"several audiences", sign(t, jose.RS256, good, p.claims(map[string]any{"aud": []string{"x", "https://gavel.example.org"}})), engine.RoleAgent},
		{"a role", sign(t, jose.RS256, good, p.claims(map[string]any{"groups": "gavel-rev"})), engine.RoleReviewer},
		{"the strongest role", sign(t, jose.RS256, good, p.claims(map[string]any{"groups": []string{"x", "gavel-rev", "gavel-ops"}})), engine.RoleOperator},
		{"a role that nobody mapped", sign(t, jose.RS256, good, p.claims(map[string]any{"groups": "operator"})), engine.RoleAgent},
		{"roles of another form", sign(t, jose.RS256, good, p.claims(map[string]any{"groups": map[string]any{"gavel-ops": true}})), engine.RoleAgent},

		{"expired", sign(t, jose.RS256, good, p.claims(map[string]any{"exp": now.Add(-time.Minute).Unix()})), ""},
		{"never expires", sign(t, jose.RS256, good, p.claims(map[string]any{"exp": nil})), ""},
		{"not yet", sign(t, jose.RS256, good, p.claims(map[string]any{"nbf": now.Add(time.Hour).Unix()})), ""},
		{"for somebody else", sign(t, jose.RS256, good, p.claims(map[string]any{"aud": "https://other.example.org"})), ""},
		{"for nobody", sign(t, jose.RS256, good, p.claims(map[string]any{"aud": nil})), ""},
		{"another issuer", sign(t, jose.RS256, good, p.claims(map[string]any{"iss": "https://evil.example.org"})), ""},
		{"nobody", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": nil})), ""},
		{"a name with a line break", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": "a\nb"})), ""},
		{"a name with an invisible space", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": "ada\u200b"})), ""},
		{"a name written from right to left", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": "\u202eada"})), ""},
		{"a name with a filler", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": "ada\u3164"})), ""},
		{"a name with a variation selector", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": "ada\ufe0f"})), ""},
		{"a name with a tag", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": "ada\U000e0041"})), ""},
		{"a name with another space", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": "ada\u00a0"})), ""},
		{"a name with a space behind it", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": "ada "})), ""},
		{"a name that is no text", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": "ada\ufffd"})), ""},
		{"expires when nobody lives", sign(t, jose.RS256, good, p.claims(map[string]any{"exp": json.Number("1e18")})), ""},
		{"expires in the year 10000", sign(t, jose.RS256, good, p.claims(map[string]any{"exp": 253402300800})), ""},
		{"expires at no time", sign(t, jose.RS256, good, p.claims(map[string]any{"exp": json.Number("1e300")})), ""},
		{"of type JWT", signAs(t, "JWT", good, p.claims(nil)), engine.RoleAgent},
		{"of type at+jwt", signAs(t, "at+jwt", good, p.claims(nil)), engine.RoleAgent},
		{"of type application/at+jwt", signAs(t, "application/AT+JWT", good, p.claims(nil)), engine.RoleAgent},
		{"a logout token", signAs(t, "logout+jwt", good, p.claims(nil)), ""},
		{"an event token", signAs(t, "secevent+jwt", good, p.claims(nil)), ""},
		{"a proof", signAs(t, "dpop+jwt", good, p.claims(nil)), ""},
		{"of an empty type", signAs(t, "", good, p.claims(nil)), ""},
		{"of a type that is no text", signAs(t, []string{"JWT"}, good, p.claims(nil)), ""},
		{"a long name", sign(t, jose.RS256, good, p.claims(map[string]any{"sub": strings.Repeat("a", 300)})), ""},
		{"somebody else's key", sign(t, jose.ES256, key("e", otherKey()), p.claims(nil)), ""},
		{"somebody else's key without a name", sign(t, jose.ES256, key("", otherKey()), p.claims(nil)), ""},
		{"no signature", unsigned(p.claims(nil)), ""},
		{"the public key as a secret", sign(t, jose.HS256, key("a", public), p.claims(nil)), ""},
		{"cut", strings.TrimRight(sign(t, jose.RS256, good, p.claims(nil)), "="+"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") + ".", ""},
		{"not a token", "a.b.c", ""},
		{"another kind of token", "gvl_x_y", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, err := j.Authenticate(t.Context(), c.token)
			if c.role == "" {
				if !errors.Is(err, auth.ErrBadCredential) || errors.Is(err, auth.ErrUnavailable) {
					t.Fatalf("got %+v, %v; want ErrBadCredential", id, err)
				}
				return
			}
			if err != nil || id.ID != "corp:ada" || id.Role != c.role || id.Kind != auth.KindJWT || id.Expires.IsZero() || id.Workflows != "" {
				t.Errorf("got %+v, %v; want corp:ada as %s", id, err, c.role)
			}
		})
	}
	if _, err := j.Authenticate(t.Context(), ""); !errors.Is(err, auth.ErrNoCredential) {
		t.Errorf("nothing: %v", err)
	}
}

func TestJWTScope(t *testing.T) {
	t.Parallel()
	good := key("a", ecKey())
	p := newProvider(t, good)
	issuer := p.issuer()
	issuer.WorkflowsClaim, issuer.RoleClaim, issuer.DefaultRole = "wf", "r", ""
	issuer.Roles = map[string]engine.Role{"aud": engine.RoleAuditor}
	j := newJWT(t, issuer)
	id, err := j.Authenticate(t.Context(), sign(t, jose.ES256, good, p.claims(map[string]any{"wf": []string{"deploy", "refund-*"}, "r": "aud"})))
	if err != nil || id.Workflows != "deploy refund-*" || id.Role != engine.RoleAuditor {
		t.Errorf("got %+v, %v", id, err)
	}
	for name, claims := range map[string]map[string]any{
		"no workflows": {"r": "aud"}, "none of them": {"wf": []string{}, "r": "aud"}, "blank": {"wf": " ", "r": "aud"}, "no role": {"wf": "deploy"},
	} {
		if id, err := j.Authenticate(t.Context(), sign(t, jose.ES256, good, p.claims(claims))); !errors.Is(err, auth.ErrBadCredential) {
			t.Errorf("%s: got %+v, %v", name, id, err)
		}
	}
}

// A new key is found when the first token with it arrives. A withdrawn key is not used for long, and invented key
// names cause no requests.
func TestJWTRotation(t *testing.T) {
	t.Parallel()
	first, second := key("1", ecKey()), key("2", otherKey())
	p := newProvider(t, first)
	j := newJWT(t, p.issuer())
	clock := auth.FakeClock(j)
	try := func(k jose.JSONWebKey) error {
		_, err := j.Authenticate(t.Context(), sign(t, jose.ES256, k, p.claims(map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()})))
		return err
	}
	if err := try(first); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := try(key("made up", otherKey())); !errors.Is(err, auth.ErrBadCredential) {
			t.Fatalf("a key that nobody has: %v", err)
		}
	}
	if n := p.asked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times", n)
	}
	p.set(first, second)
	clock.Add(11 * time.Second)
	if err := try(second); err != nil {
		t.Errorf("the new key: %v", err)
	}
	p.set(second)
	clock.Add(11 * time.Minute)
	if err := try(first); !errors.Is(err, auth.ErrBadCredential) {
		t.Errorf("the withdrawn key: %v", err)
	}
	p.down.Store(true)
	clock.Add(11 * time.Minute)
	if err := try(second); err != nil {
		t.Errorf("while the issuer is away for a moment: %v", err)
	}
	clock.Add(time.Hour)
	if err := try(second); !errors.Is(err, auth.ErrUnavailable) || errors.Is(err, auth.ErrBadCredential) {
		t.Errorf("while it is away for long: %v", err)
	}
	p.down.Store(false)
	clock.Add(11 * time.Second)
	if err := try(second); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

// Many concurrent callers wait for a single request.
func TestJWTTogether(t *testing.T) {
	t.Parallel()
	good := key("1", ecKey())
	p := newProvider(t, good)
	j := newJWT(t, p.issuer())
	token := sign(t, jose.ES256, good, p.claims(nil))
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if _, err := j.Authenticate(t.Context(), token); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := p.asked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times", n)
	}
}

// A shared secret among the public keys signs nothing.
func TestJWTSharedSecret(t *testing.T) {
	t.Parallel()
	secret := key("s", []byte(strings.Repeat("k", 32)))
	p := newProvider(t, secret)
	j := newJWT(t, p.issuer())
	if _, err := j.Authenticate(t.Context(), sign(t, jose.HS256, secret, p.claims(nil))); !errors.Is(err, auth.ErrBadCredential) {
		t.Errorf("got %v", err)
	}
}

// An issuer that controls the location of its keys cannot make gavel send requests into the private network.
func TestJWTReach(t *testing.T) {
	t.Parallel()
	good := key("1", ecKey())
	p := newProvider(t, good)
	inside := p.issuer()
	inside.PrivateNetwork = false
	j := newJWT(t, inside)
	if _, err := j.Authenticate(t.Context(), sign(t, jose.ES256, good, p.claims(nil))); !errors.Is(err, auth.ErrUnavailable) || p.asked.Load() != 0 {
		t.Errorf("an issuer on this machine: %v", err)
	}
	for name, at := range map[string]string{"plain text": "http://192.0.2.1/keys", "metadata": "https://169.254.169.254/keys"} {
		p.moved = at
		j := newJWT(t, p.issuer())
		if _, err := j.Authenticate(t.Context(), sign(t, jose.ES256, good, p.claims(nil))); !errors.Is(err, auth.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIssuersThatAreRefused(t *testing.T) {
	t.Parallel()
	fine := auth.Issuer{Name: "corp", URL: "https://id.example.org", Audiences: []string{"gavel"}, DefaultRole: engine.RoleAgent}
	if _, err := auth.NewJWT(fine); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*auth.Issuer){
		"no name":            func(i *auth.Issuer) { i.Name = "" },
		"gavel's own name":   func(i *auth.Issuer) { i.Name = "local" },
		"a colon":            func(i *auth.Issuer) { i.Name = "a:b" },
		"plain text":         func(i *auth.Issuer) { i.URL = "http://id.example.org" },
		"no address":         func(i *auth.Issuer) { i.URL = "id.example.org" },
		"a password":         func(i *auth.Issuer) { i.URL = "https://u:p@id.example.org" },
		"no audience":        func(i *auth.Issuer) { i.Audiences = nil },
		"an empty audience":  func(i *auth.Issuer) { i.Audiences = []string{""} },
		"a shared secret":    func(i *auth.Issuer) { i.Algorithms = []string{"HS256"} },
		"none":               func(i *auth.Issuer) { i.Algorithms = []string{"none"} },
		"no role":            func(i *auth.Issuer) { i.DefaultRole = "" },
		"an unknown role":    func(i *auth.Issuer) { i.DefaultRole = "root" },
		"an unknown mapping": func(i *auth.Issuer) { i.RoleClaim, i.Roles = "g", map[string]engine.Role{"x": "root"} },
		"keys in plain text": func(i *auth.Issuer) { i.JWKS = "http://id.example.org/keys" },
	} {
		i := fine
		change(&i)
		if _, err := auth.NewJWT(i); !errors.Is(err, auth.ErrIssuer) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// An issuer that hangs does not delay callers for long whose key was known before.
func TestJWTHangingIssuer(t *testing.T) {
	t.Parallel()
	good := key("1", ecKey())
	p := newProvider(t, good)
	j := newJWT(t, p.issuer())
	clock := auth.FakeClock(j)
	token := sign(t, jose.ES256, good, p.claims(map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()}))
	if _, err := j.Authenticate(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	p.hang.Store(&release)
	defer close(release)
	clock.Add(11 * time.Minute)
	asked := p.asked.Load()
	patient, cancel := context.WithTimeout(t.Context(), 8*time.Second) // less than a request to the issuer may take
	defer cancel()
	if _, err := j.Authenticate(patient, token); err != nil {
		t.Errorf("while the issuer hangs: %v", err)
	}
	if p.asked.Load() == asked {
		t.Error("the issuer was not asked for new keys")
	}
}
