package evidence_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/judge"
)

// plain starts a server. Like all servers of tests, it is in a private network.
func plain(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// secure starts a server with a certificate for example.com.
func secure(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func hostOf(s *httptest.Server) string { return s.Listener.Addr().String() }

// asPublic returns a manager for one source that treats the given servers as public.
func asPublic(t *testing.T, s evidence.Source, resolver *net.Resolver, servers ...*httptest.Server) *evidence.Manager {
	t.Helper()
	m := manager(t, evidence.Options{}, map[string]evidence.Source{"it": s})
	roots := x509.NewCertPool()
	var exempt []string
	for _, s := range servers {
		exempt = append(exempt, hostOf(s))
		if c := s.Certificate(); c != nil {
			roots.AddCert(c)
		}
	}
	evidence.Rewire(m, roots, resolver, exempt...)
	return m
}

func TestHTTPContent(t *testing.T) {
	t.Parallel()
	server := plain(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/json":
			fmt.Fprint(w, `{ "status": "approved", "n": 1.50 }`)
		case "/text":
			fmt.Fprint(w, "fine\x00 <\xff>\n")
		case "/long":
			fmt.Fprint(w, strings.Repeat("x", 5000))
		case "/endless":
			for r.Context().Err() == nil {
				fmt.Fprint(w, strings.Repeat("x", 5000))
			}
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/gone":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"secret"}`)
		case "/headers":
			w.Header().Set("X-Long", strings.Repeat("x", 100<<10))
		case "/hang":
			<-r.Context().Done()
		case "/half":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"a":1}`)
		case "/slow":
			fmt.Fprint(w, `{"a":`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	for _, c := range []struct {
		name, path string
		output     evidence.Output
		accept     []int
		want       string
		failure    judge.EvidenceFailure
	}{
		{"JSON", "/json", "", nil, `{"status":200,"body":{"status":"approved","n":1.50}}`, ""},
		{"text", "/text", evidence.OutputText, nil, "{\"status\":200,\"body\":\"fine <\uFFFD>\\n\"}", ""},
		{"nothing", "/endless", evidence.OutputNone, nil, `{"status":200}`, ""},
		{"not JSON", "/text", "", nil, "", judge.FailureMalformed},
		{"no content", "/empty", "", nil, "", judge.FailureMalformed},
		{"no content wanted", "/empty", evidence.OutputNone, nil, `{"status":204}`, ""},
		{"much JSON", "/long", "", nil, "", judge.FailureTooLarge},
		{"endless JSON", "/endless", "", nil, "", judge.FailureTooLarge},
		{"much text", "/long", evidence.OutputText, nil, `{"status":200,"body":"` + strings.Repeat("x", 1000) + `"}`, ""},
		{"not found", "/gone", "", nil, "", judge.FailureRefused},
		{"not found is an answer", "/gone", "", []int{404}, `{"status":404,"body":{"error":"secret"}}`, ""},
		{"200 is none", "/json", "", []int{404}, "", judge.FailureRefused},
		{"headers without end", "/headers", "", nil, "", judge.FailureUnavailable},
		{"no answer", "/hang", "", nil, "", judge.FailureTimeout},
		{"half an answer", "/slow", "", nil, "", judge.FailureTimeout},
		{"a broken answer", "/half", "", nil, "", judge.FailureUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := evidence.Source{HTTP: server.URL + c.path, PrivateNetwork: true, Output: c.output, Accept: c.accept, MaxOutput: 1000}
			if c.failure == judge.FailureTimeout {
				s.Timeout = 300 * time.Millisecond
			}
			f := fetchFrom(t, s, `{}`)
			if f.Failure != c.failure || string(f.Content) != c.want {
				t.Errorf("%q (%s) %.200s, want %q %.200s", f.Failure, f.Detail, f.Content, c.failure, c.want)
			}
			if f.Truncated != (c.name == "much text") {
				t.Errorf("truncated %v", f.Truncated)
			}
			if strings.Contains(f.Detail, "secret") || strings.Contains(f.Detail, server.URL) {
				t.Errorf("detail %q", f.Detail)
			}
		})
	}
}

func TestHTTPRequest(t *testing.T) {
	t.Parallel()
	server := plain(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %q %q %q %q", r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("User-Agent"), r.Header.Get("Accept-Encoding"), r.Header.Get("Referer"))
	})
	s := evidence.Source{
		HTTP: server.URL + "/t/{{id}}?f={{f}}&x=1", PrivateNetwork: true, Output: evidence.OutputText,
		Headers:   map[string]string{"authorization": "Bearer ${TOKEN}"},
		Arguments: map[string]evidence.Argument{"id": {Pattern: ".*"}, "f": {Optional: true}},
	}
	m := manager(t, evidence.Options{LookupEnv: func(name string) (string, bool) { return "s3cret", name == "TOKEN" }}, map[string]evidence.Source{"it": s})
	f := fetch(t, m, `{"id":"a b/c","f":"1&2"}`)
	want := `{"status":200,"body":"GET /t/a%20b%2Fc?f=1%262&x=1 \"Bearer s3cret\" \"gavel\" \"\" \"\""}`
	if string(f.Content) != want {
		t.Errorf("content %s, want %s", f.Content, want)
	}
	wantFailure(t, fetch(t, m, `{"id":".."}`), judge.FailureArgument)
}

// Whatever the redirects are, only declared hosts receive requests, and only the first one receives the declared
// headers.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var leaked atomic.Int64
	other := secure(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("X-Key") != "" || r.Header.Get("Referer") != "" {
			leaked.Add(1)
		}
		if back := r.URL.Query().Get("back"); back != "" {
			http.Redirect(w, r, back, http.StatusFound)
			return
		}
		fmt.Fprintf(w, `"other %s"`, r.Header.Get("User-Agent"))
	})
	undeclared := secure(t, func(http.ResponseWriter, *http.Request) { leaked.Add(1) })
	private := secure(t, func(http.ResponseWriter, *http.Request) { leaked.Add(1) })
	clear := plain(t, func(http.ResponseWriter, *http.Request) { leaked.Add(1) })
	first := secure(t, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		fmt.Fprintf(w, `"%s %s"`, r.URL.Path, r.Header.Get("Authorization"))
	})
	s := evidence.Source{
		HTTP: first.URL + "/?to={{to}}", Arguments: map[string]evidence.Argument{"to": {Optional: true}},
		Headers: map[string]string{"Authorization": "Bearer x", "X-Key": "y"},
		Hosts:   []string{hostOf(other), hostOf(private), hostOf(clear), "169.254.169.254", "localhost.example:1"},
	}
	m := asPublic(t, s, nil, first, other, undeclared, clear)
	for _, c := range []struct {
		name, to, want string
		failure        judge.EvidenceFailure
		detail         string
	}{
		{"none", "", `{"status":200,"body":"/ Bearer x"}`, "", ""},
		{"the same host", "/moved", `{"status":200,"body":"/moved Bearer x"}`, "", ""},
		{"a declared host", other.URL, `{"status":200,"body":"other gavel"}`, "", ""},
		{"there and back", other.URL + "?back=" + first.URL + "/again", `{"status":200,"body":"/again "}`, "", ""},
		{"an undeclared host", undeclared.URL, "", judge.FailureRefused, "list of hosts"},
		{"another port", "https://127.0.0.1:1/", "", judge.FailureRefused, "list of hosts"},
		{"loopback", private.URL, "", judge.FailureRefused, "private or special network"},
		{"metadata", "https://169.254.169.254/latest/meta-data", "", judge.FailureRefused, "private or special network"},
		{"metadata in clear", "http://169.254.169.254/latest/meta-data", "", judge.FailureRefused, "https to http"},
		{"in clear", clear.URL, "", judge.FailureRefused, "https to http"},
		{"another scheme", "file:///etc/passwd", "", judge.FailureRefused, "is not allowed"},
		{"with a user", strings.Replace(other.URL, "https://", "https://a:b@", 1), "", judge.FailureRefused, "is not allowed"},
		{"round and round", "/?to=%2F%3Fto%3D%252F%253Fto%253D%25252F%25253Fto%25253D%2525252F", "", judge.FailureRefused, "more than 3 times"},
	} {
		f := fetch(t, m, fmt.Sprintf(`{"to":%q}`, c.to))
		if f.Failure != c.failure || string(f.Content) != c.want || !strings.Contains(f.Detail, c.detail) {
			t.Errorf("%s: %q (%s) %s, want %q (%s) %s", c.name, f.Failure, f.Detail, f.Content, c.failure, c.detail, c.want)
		}
	}
	if n := leaked.Load(); n != 0 {
		t.Errorf("%d requests went where they must not", n)
	}
}

// The guard checks the address at the dial. A name that was public and now resolves to a private address is not
// contacted, even if its certificate is valid.
func TestRebinding(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	handler := func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Connection", "close") // forces the next fetch to dial again
		fmt.Fprint(w, "1")
	}
	server := secure(t, handler)
	_, port, err := net.SplitHostPort(hostOf(server))
	if err != nil {
		t.Fatal(err)
	}
	names := nameServer(t)
	m := asPublic(t, evidence.Source{HTTP: "https://example.com:" + port + "/"}, names.resolver(), server)
	names.set(netip.MustParseAddr("127.0.0.1")) // treated as public here
	if f := fetch(t, m, `{}`); f.Failure != "" || asked.Load() != 1 {
		t.Fatalf("the name could not be asked at first: %+v", f)
	}
	for _, a := range []string{"127.0.0.2", "10.0.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1"} {
		names.set(netip.MustParseAddr(a))
		f := fetch(t, m, `{}`)
		wantFailure(t, f, judge.FailureRefused)
		if !strings.Contains(f.Detail, "private or special network") {
			t.Errorf("%s: %s", a, f.Detail)
		}
	}
	if asked.Load() != 1 {
		t.Error("the server was asked again")
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	untrusted := secure(t, func(http.ResponseWriter, *http.Request) {})
	closed := plain(t, func(http.ResponseWriter, *http.Request) {})
	closed.Close()
	for name, s := range map[string]evidence.Source{
		"not trusted":  {HTTP: untrusted.URL, PrivateNetwork: true},
		"nobody there": {HTTP: closed.URL, PrivateNetwork: true},
		"not HTTP":     {HTTP: "http://" + hostOf(untrusted), PrivateNetwork: true},
	} {
		f := fetchFrom(t, s, `{}`)
		want := judge.FailureUnavailable
		if name == "not HTTP" { // the server rejects it itself
			want = judge.FailureRefused
		}
		wantFailure(t, f, want)
		if strings.Contains(f.Detail, "127.0.0.1") {
			t.Errorf("%s: the detail tells the address: %s", name, f.Detail)
		}
	}
}

// names is a DNS server that answers every IPv4 query with one address.
type names struct {
	mu   sync.Mutex
	addr netip.Addr
	conn net.PacketConn
}

func nameServer(t *testing.T) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn}
	served := make(chan struct{})
	go func() {
		defer close(served)
		n.serve()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-served
	})
	return n
}

func (n *names) set(a netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr = a
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

// serve implements the necessary part of RFC 1035.
func (n *names) serve() {
	packet := make([]byte, 512)
	for {
		size, from, err := n.conn.ReadFrom(packet)
		if err != nil {
			return
		}
		end := 12
		for end < size && packet[end] != 0 {
			end += int(packet[end]) + 1
		}
		end += 5 // root label, type and class
		answer := append([]byte{}, packet[:end]...)
		answer[2], answer[3] = 0x84, 0 // an authoritative answer
		copy(answer[6:12], []byte{0, 0, 0, 0, 0, 0})
		if answer[end-3] == 1 { // type A
			answer[7] = 1
			n.mu.Lock()
			a := n.addr.As4()
			n.mu.Unlock()
			answer = append(answer, 0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			answer = append(answer, a[:]...)
		}
		n.conn.WriteTo(answer, from)
	}
}
