package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
)

// provider is an OpenID Connect issuer on this machine.
type provider struct {
	*httptest.Server
	t   *testing.T
	key jose.JSONWebKey
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: jose.JSONWebKey{KeyID: "k", Key: secret}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.key.Public()}})
	})
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

const audience = "https://gavel.example.org"

// token returns a token for a subject; claims replace the usual ones.
func (p *provider) token(subject string, claims map[string]any) string {
	p.t.Helper()
	all := map[string]any{"iss": p.URL, "sub": subject, "aud": audience, "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	raw, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: p.key}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	signed, err := signer.Sign(raw)
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// trusting writes a configuration file that trusts the issuer.
func (p *provider) trusting(dir string) string {
	p.t.Helper()
	put(p.t, filepath.Join(dir, "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})))
	file := filepath.Join(dir, "gavel.yaml")
	put(p.t, file, fmt.Sprintf(`definitions: guarded.json
auth:
  issuers:
    - name: corp
      url: %s
      audiences: %s
      roleClaim: groups
      roles: {ops: operator}
      defaultRole: agent
      workflowsClaim: flows
      privateNetwork: true
      caFile: ca.pem
`, p.URL, audience))
	put(p.t, filepath.Join(dir, "guarded.json"), loose)
	return file
}

// TestIssuedTokens: a caller with a token of a configured issuer has the identity that the issuer gives it, over REST
// and MCP. Tokens of gavel still work. That ends when the file no longer names the issuer.
func TestIssuedTokens(t *testing.T) {
	t.Parallel()
	p, dir := newProvider(t), t.TempDir()
	file := p.trusting(dir)
	s := serveGavel(t, "--config", file, "--log-level", "info")
	flows := map[string]any{"flows": "guarded"}
	ada, eve := p.token("ada", flows), p.token("eve", flows)
	who := s.must(ada, http.MethodGet, "/v1/whoami", "")
	if text := fmt.Sprint(who); !strings.Contains(text, "corp:ada") || who["role"] != "agent" {
		t.Errorf("%v", who)
	}
	if who := s.must(p.token("ops", map[string]any{"flows": []string{"*"}, "groups": []string{"x", "ops"}}), http.MethodGet, "/v1/whoami", ""); who["role"] != "operator" {
		t.Errorf("%v", who)
	}
	id := s.begin(ada, "guarded")
	if status, answer := s.ask(eve, http.MethodGet, "/v1/instances/"+id, ""); status != http.StatusNotFound && status != http.StatusForbidden {
		t.Errorf("another subject reads it: %d %v", status, answer)
	}
	if isError, text := s.call(ada, "workflow.status", `{"id":"`+id+`"}`); isError {
		t.Error(text)
	}
	if isError, text := s.call(eve, "workflow.status", `{"id":"`+id+`"}`); !isError {
		t.Error(text)
	}
	s.must(s.agent, http.MethodGet, "/v1/whoami", "")

	parts := strings.Split(ada, ".")
	for name, token := range map[string]string{
		"for somebody else": p.token("ada", map[string]any{"flows": "guarded", "aud": "https://other.example.org"}),
		"expired":           p.token("ada", map[string]any{"flows": "guarded", "exp": time.Now().Add(-time.Hour).Unix()}),
		"another issuer":    p.token("ada", map[string]any{"flows": "guarded", "iss": "https://evil.example.org"}),
		"no scope":          p.token("ada", nil),
		"not signed":        "eyJhbGciOiJub25lIn0." + parts[1] + ".",
		"other claims":      parts[0] + "." + strings.Split(eve, ".")[1] + "." + parts[2],
		"another key":       newProviderLike(t, p).token("ada", flows),
	} {
		if status, problem := s.ask(token, http.MethodGet, "/v1/whoami", ""); status != http.StatusUnauthorized || problem["code"] != "invalid_token" {
			t.Errorf("%s: %d %v", name, status, problem)
		}
	}
	if strings.Contains(s.stderr.String(), parts[2]) {
		t.Error("a token is in the log")
	}

	put(t, file, "definitions: guarded.json\n")
	s.sees("changed issuers are in force")
	if status, _ := s.ask(ada, http.MethodGet, "/v1/whoami", ""); status != http.StatusUnauthorized {
		t.Errorf("an issuer that is trusted no more: %d", status)
	}
	if status, _ := s.ask("", http.MethodGet, serve.ResourcePath, ""); status != http.StatusNotFound {
		t.Errorf("a document about no issuer: %d", status)
	}
}

// newProviderLike claims to be another provider, but has a different key.
func newProviderLike(t *testing.T, p *provider) *provider {
	t.Helper()
	other := newProvider(t)
	other.URL = p.URL
	return other
}

// TestResourceMetadata: a caller without a token is told where to get one (RFC 9728).
func TestResourceMetadata(t *testing.T) {
	t.Parallel()
	p, dir := newProvider(t), t.TempDir()
	file := p.trusting(dir)
	for name, c := range map[string]struct {
		flags []string
		base  func(s *served) string
	}{
		"as it was asked":   {nil, func(s *served) string { return s.url }},
		"as it is known as": {[]string{"--public-url", "https://gavel.example.org/"}, func(*served) string { return "https://gavel.example.org" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveGavel(t, append([]string{"--config", file}, c.flags...)...)
			base := c.base(s)
			for path, resource := range map[string]string{"/mcp": "/mcp", "/v1/whoami": ""} {
				at := s.metadataOf(path)
				if want := base + serve.ResourcePath + resource; at != want {
					t.Errorf("%s: told of %q, want %q", path, at, want)
				}
				got := s.must("", http.MethodGet, strings.TrimPrefix(at, base), "")
				want := object{
					"resource": base + resource, "resource_name": "gavel", "authorization_servers": []any{p.URL}, "bearer_methods_supported": []any{"header"},
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%v, want %v", got, want)
				}
			}
		})
	}
	t.Run("without an issuer", func(t *testing.T) {
		t.Parallel()
		s := serveGavel(t)
		if at := s.metadataOf("/mcp"); at != "" {
			t.Errorf("told of %q", at)
		}
	})
}

var metadataPattern = regexp.MustCompile(`resource_metadata="([^"]*)"`)

// metadataOf returns the address that a request without a token gets.
func (s *served) metadataOf(path string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		s.t.Errorf("%s: %s", path, resp.Status)
	}
	if m := metadataPattern.FindStringSubmatch(resp.Header.Get("WWW-Authenticate")); m != nil {
		return m[1]
	}
	return ""
}

// TestRunsOfRemovedIssuers: a run for a principal of an issuer performs no further step once the file no longer names
// that issuer.
func TestRunsOfRemovedIssuers(t *testing.T) {
	t.Parallel()
	p, dir := newProvider(t), t.TempDir()
	file := p.trusting(dir)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	trusting := string(text)
	put(t, filepath.Join(dir, "chains", "c.json"), `{"name":"c","steps":[{"id":"w","type":"wait","signal":"go"},{"id":"open","type":"workflow","workflow":"guarded","action":"start"}]}`)
	const chains = "chains: {definitions: chains}\n"
	put(t, file, trusting+chains)
	s := serveGavel(t, "--config", file, "--log-level", "info")
	operator, ada := s.token("o", "--role", "operator"), p.token("ada", map[string]any{"flows": "guarded chain.c"})
	ends := func(want string, before func()) {
		t.Helper()
		run, _ := s.must(ada, http.MethodPost, "/v1/runs", `{"chain":"c"}`)["run"].(string)
		before()
		s.must(operator, http.MethodPost, "/v1/runs/"+run+"/signal", `{"name":"go"}`)
		s.until("the end of "+run, func() bool { return s.must(operator, http.MethodGet, "/v1/runs/"+run, "")["endedAt"] != nil })
		v := s.must(operator, http.MethodGet, "/v1/runs/"+run, "")
		if got := fmt.Sprint(v["status"], v["error"]); !strings.Contains(got, want) {
			t.Errorf("it is %s, want %s", got, want)
		}
	}
	ends("done", func() {})
	ends("not_allowed", func() {
		put(t, filepath.Join(dir, "chains", "d.json"), `{"name":"d","steps":[{"id":"w","type":"wait","signal":"go"}]}`)
		put(t, file, "definitions: guarded.json\n"+chains)
		s.until("the changed file", func() bool {
			return strings.Contains(fmt.Sprint(s.must(operator, http.MethodGet, "/v1/chains", "")), "name:d")
		})
	})
}
