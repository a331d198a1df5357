package listen_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/internal/listen"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin is earlier than the time in a bubble.
var begin = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

// issuer signs certificates for a test.
type issuer struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	next int64
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, dir: t.TempDir(), key: key, next: 1}
	i.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: begin, NotAfter: begin.AddDate(200, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, i.cert, i.cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if i.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	i.write("ca.pem", "CERTIFICATE", der)
	return i
}

func (i *issuer) path(name string) string { return filepath.Join(i.dir, name) }

func (i *issuer) write(name, kind string, der []byte) {
	i.t.Helper()
	if err := os.WriteFile(i.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// issue writes NAME.crt and NAME.key.
func (i *issuer) issue(name string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.next++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(i.next), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: begin, NotAfter: begin.AddDate(200, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, i.cert, key.Public(), i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		i.t.Fatal(err)
	}
	i.write(name+".crt", "CERTIFICATE", der)
	i.write(name+".key", "PRIVATE KEY", raw)
}

// client trusts the issuer and presents the named certificate; "" for none.
func (i *issuer) client(name string) *http.Client {
	i.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(i.cert)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(i.path(name+".crt"), i.path(name+".key"))
		if err != nil {
			i.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	i.t.Cleanup(c.CloseIdleConnections)
	return c
}

// start serves on a loopback port until the test ends.
func start(t *testing.T, cfg listen.Config) *listen.Server {
	t.Helper()
	cfg.Addr, cfg.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	s, err := listen.New(ctx, cfg)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

// responseWriter is a response: its body and its server's certificate.
type responseWriter struct {
	status, proto int
	text          string
	serial        int64 // of the certificate
}

func ask(c *http.Client, url string) (responseWriter, error) {
	return askWith(c, http.MethodGet, url, "")
}

func askWith(c *http.Client, method, url, sent string) (responseWriter, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(sent))
	if err != nil {
		return responseWriter{}, err
	}
	resp, err := c.Do(r)
	if err != nil {
		return responseWriter{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	a := responseWriter{status: resp.StatusCode, proto: resp.ProtoMajor, text: string(body)}
	if resp.TLS != nil {
		a.serial = resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	return a, err
}

func TestTLS(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.issue("server")
	s := start(t, listen.Config{Handler: http.HandlerFunc(fine), CertFile: i.path("server.crt"), KeyFile: i.path("server.key")})
	got, err := ask(i.client(""), s.URL())
	if err != nil || got.text != "fine" || got.proto != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	// A renewed certificate is used without a restart; an invalid one is not.
	i.issue("server")
	later := time.Now().Add(time.Minute)
	for _, name := range []string{"server.crt", "server.key"} {
		if err := os.Chtimes(i.path(name), later, later); err != nil {
			t.Fatal(err)
		}
	}
	got, err = ask(i.client(""), s.URL())
	if err != nil || got.serial != i.next {
		t.Errorf("the renewed certificate is not used: %v", err)
	}
	if err := os.WriteFile(i.path("server.crt"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = ask(i.client(""), s.URL())
	if err != nil || got.serial != i.next {
		t.Errorf("a bad certificate took the place of the good one: %v", err)
	}
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	i, stranger := newIssuer(t), newIssuer(t)
	i.issue("server")
	i.issue("client")
	stranger.issue("client")
	stranger.cert = i.cert // it trusts the server, but is not trusted by it
	s := start(t, listen.Config{
		Handler: http.HandlerFunc(fine), CertFile: i.path("server.crt"), KeyFile: i.path("server.key"), ClientCAFile: i.path("ca.pem"),
	})
	if got, err := ask(i.client("client"), s.URL()); err != nil || got.text != "fine" {
		t.Errorf("%+v %v", got, err)
	}
	for name, c := range map[string]*http.Client{"none": i.client(""), "a stranger's": stranger.client("client")} {
		if got, err := ask(c, s.URL()); err == nil {
			t.Errorf("with the certificate %s: %+v", name, got)
		}
	}
}

// TestPlainOnTLS checks that a client that speaks HTTP to an HTTPS port gets an error, and nothing else.
func TestPlainOnTLS(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.issue("server")
	s := start(t, listen.Config{Handler: http.HandlerFunc(fine), CertFile: i.path("server.crt"), KeyFile: i.path("server.key")})
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := ask(c, "http"+strings.TrimPrefix(s.URL(), "https"))
	if err != nil || got.status != http.StatusBadRequest || strings.Contains(got.text, "fine") {
		t.Errorf("%+v %v", got, err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	good := listen.Config{Addr: "127.0.0.1:0", Handler: http.HandlerFunc(fine), Logger: slog.New(slog.DiscardHandler)}
	for name, tt := range map[string]struct {
		change func(*listen.Config)
		want   string
	}{
		"no handler":      {func(c *listen.Config) { c.Handler = nil }, "Handler"},
		"half a pair":     {func(c *listen.Config) { c.CertFile = "x" }, "needs its key"},
		"no certificate":  {func(c *listen.Config) { c.CertFile, c.KeyFile = "nowhere", "nowhere" }, "nowhere"},
		"CA alone":        {func(c *listen.Config) { c.ClientCAFile = "x" }, "need TLS"},
		"small headers":   {func(c *listen.Config) { c.MaxHeader = 10 }, "1024"},
		"negative limit":  {func(c *listen.Config) { c.MaxRequests = -1 }, "positive"},
		"negative time":   {func(c *listen.Config) { c.BodyTimeout = -1 }, "positive"},
		"host with path":  {func(c *listen.Config) { c.AllowedHosts = []string{"a/b"} }, "a/b"},
		"host as address": {func(c *listen.Config) { c.AllowedHosts = []string{"https://a"} }, "https://a"},
		"origin as host":  {func(c *listen.Config) { c.AllowedOrigins = []string{"a.example"} }, "a.example"},
		"origin and path": {func(c *listen.Config) { c.AllowedOrigins = []string{"https://a/"} }, "https://a/"},
		"star":            {func(c *listen.Config) { c.AllowedOrigins = []string{"*"} }, "*"},
		"address":         {func(c *listen.Config) { c.Addr = "127.0.0.1:99999" }, "99999"},
	} {
		cfg := good
		tt.change(&cfg)
		if s, err := listen.New(t.Context(), cfg); err == nil {
			_ = s.Close()
			t.Errorf("%s: accepted", name)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v does not name %s", name, err, tt.want)
		}
	}
}

// TestTLSSuites checks that below TLS 1.3 only suites with forward secrecy and authenticated encryption are accepted.
func TestTLSSuites(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.issue("server")
	s := start(t, listen.Config{Handler: http.HandlerFunc(fine), CertFile: i.path("server.crt"), KeyFile: i.path("server.key")})
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !strings.Contains(suite.Name, "_ECDSA_") || !slices.Contains(suite.SupportedVersions, tls.VersionTLS12) {
			continue // for another kind of certificate or another version
		}
		config := i.client("").Transport.(*http.Transport).TLSClientConfig // without HTTP/2, which has its own list
		config.MaxVersion, config.CipherSuites = tls.VersionTLS12, []uint16{suite.ID}
		want := strings.Contains(suite.Name, "_GCM_") || strings.Contains(suite.Name, "_POLY1305_")
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), config)
		if (err == nil) != want {
			t.Errorf("%s: %v", suite.Name, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}
