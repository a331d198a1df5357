package console

import (
	"context"
	"encoding/json"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// NewTestEngine is enginetest.New, which only tests outside the package may import.
var NewTestEngine func(testing.TB, judge.Config, ...func(*engine.Config)) *engine.Engine

// Principals of the tests. Their ids are also their tokens.
var (
	agent    = engine.Principal{ID: "agent:ada", Role: engine.RoleAgent}
	operator = engine.Principal{ID: "op:eve", Role: engine.RoleOperator}
	reviewer = engine.Principal{ID: "rev:rob", Role: engine.RoleReviewer}
	second   = engine.Principal{ID: "rev:sue", Role: engine.RoleReviewer}
	auditor  = engine.Principal{ID: "aud:ann", Role: engine.RoleAuditor}
	// limited may use only workflows whose name begins with "limited".
	limited = engine.Principal{ID: "rev:lim", Role: engine.RoleReviewer, Workflows: "limited*"}
)

// kit is a console over a real engine with a store in memory, on a listener.
type kit struct {
	*engine.Engine
	*console

	t     testing.TB
	store store.Store

	server *httptest.Server // begun by the first visitor, because a listener cannot be in a bubble of synctest
	url    string

	mu      sync.Mutex
	revoked map[string]bool // principals whose token is no longer valid
}

// setup is what a test may change of a kit.
type setup struct {
	judge  judge.Config
	engine []func(*engine.Config)
	host   module.SiteHost
}

// newKit returns a kit. Everything that it started has ended when the test has.
func newKit(t testing.TB, options ...func(*setup)) *kit {
	t.Helper()
	k := &kit{t: t, revoked: map[string]bool{}}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := setup{host: module.SiteHost{
		Log: log, Gate: auth.NewGate(k, auth.Options{Logger: log}),
		AcquireStream: func(string) (func(), bool) { return func() {}, true },
		Limit:         func(h http.Handler) http.Handler { return h },
		IsSecure:      func(*http.Request) bool { return false },
		Connect:       `{"mcpServers": {}}`, StoreName: "a store of a test",
		Warnings: func(context.Context) []module.Warning { return nil },
	}}
	s.engine = append(s.engine, func(cfg *engine.Config) {
		k.store, cfg.FeedPoll, cfg.ReviewPath = cfg.Store, 10*time.Millisecond, true
	})
	for _, o := range options {
		o(&s)
	}
	k.Engine = NewTestEngine(t, s.judge, s.engine...)
	s.host.Call = func(id auth.Identity) operation.Call {
		return operation.Call{Engine: k.Engine, Caller: id, Channel: record.ChannelAPI}
	}
	var err error
	if k.console, err = newConsole(s.host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if k.server != nil {
			k.server.Close()
		}
		if err := k.store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return k
}

// Authenticate implements auth.Authenticator: the token is the id.
func (k *kit) Authenticate(_ context.Context, bearer string) (auth.Identity, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range []engine.Principal{agent, operator, reviewer, second, auditor, limited} {
		if p.ID == bearer && !k.revoked[bearer] {
			return auth.Identity{Principal: p, Kind: auth.KindToken, Credential: p.ID}, nil
		}
	}
	return auth.Identity{}, auth.ErrBadCredential
}

func (k *kit) revoke(p engine.Principal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revoked[p.ID] = true
}

func (k *kit) define(by engine.Principal, doc string) {
	k.t.Helper()
	if _, err := k.Define(k.t.Context(), by, engine.DefineRequest{Source: "test", Document: []byte(doc)}); err != nil {
		k.t.Fatalf("define: %v", err)
	}
}

// start starts an instance and returns its id.
func (k *kit) start(by engine.Principal, workflow, doc string) string {
	k.t.Helper()
	r, err := k.Start(k.t.Context(), by, engine.StartRequest{Type: workflow, Context: json.RawMessage(doc)})
	if err != nil || !r.Decision.Applied {
		k.t.Fatalf("start %s: %v, %+v", workflow, err, r.Decision)
	}
	return r.ID
}

func (k *kit) advance(by engine.Principal, id, action, data string) engine.AdvanceResult {
	k.t.Helper()
	r, err := k.Advance(k.t.Context(), by, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(data))})
	if err != nil {
		k.t.Fatalf("advance %s: %v", action, err)
	}
	return r
}

// park asks for a move that has to wait for a person, and returns the id of its review.
func (k *kit) park(by engine.Principal, id, action, data string) string {
	k.t.Helper()
	r := k.advance(by, id, action, data)
	if r.Review == nil {
		k.t.Fatalf("%s was not parked: %+v", action, r.Decision)
	}
	return r.Review.ID
}

// visitor is a browser with a session.
type visitor struct {
	kit  *kit
	http *http.Client
}

// visit returns a browser without a session. It does not follow redirects.
func (k *kit) visit() *visitor {
	if k.server == nil {
		k.server = httptest.NewServer(k.console)
		k.url = k.server.URL
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		k.t.Fatal(err)
	}
	return &visitor{kit: k, http: &http.Client{
		Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// signIn returns a browser in which a principal has signed in.
func (k *kit) signIn(p engine.Principal) *visitor {
	k.t.Helper()
	v := k.visit()
	if got := v.submit("sign-in", url.Values{"token": {p.ID}}); got.status != http.StatusSeeOther {
		k.t.Fatalf("sign in as %s: %d\n%s", p.ID, got.status, got.body)
	}
	return v
}

// answer is the response to a visitor.
type answer struct {
	status     int
	body, next string // next is where a redirect leads, below /console/
	header     http.Header
}

// get loads a page by its path below /console/.
func (v *visitor) get(path string) answer {
	v.kit.t.Helper()
	return v.do(http.MethodGet, path, nil)
}

// show loads a page, which must be shown.
func (v *visitor) show(path string) string {
	v.kit.t.Helper()
	got := v.get(path)
	if got.status != http.StatusOK {
		v.kit.t.Fatalf("%s: got %d\n%s", path, got.status, textOf(got.body))
	}
	return got.body
}

// submit sends a form as it is.
func (v *visitor) submit(path string, form url.Values) answer {
	v.kit.t.Helper()
	return v.do(http.MethodPost, path, form)
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// send sends a form of a page: with the CSRF token that the page has, to an action of it. The fields are pairs.
func (v *visitor) send(page, action string, pairs ...string) answer {
	v.kit.t.Helper()
	found := csrfField.FindStringSubmatch(v.show(page))
	if found == nil {
		v.kit.t.Fatalf("%s has no CSRF token", page)
	}
	path, _, _ := strings.Cut(page, "?")
	form := url.Values{"csrf": {found[1]}, "from": {base + page}}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return v.submit(strings.TrimPrefix(at(path, action), base), form)
}

func (v *visitor) do(method, path string, form url.Values) answer {
	v.kit.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(v.kit.t.Context(), method, v.kit.url+base+path, body)
	if err != nil {
		v.kit.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := v.http.Do(r)
	if err != nil {
		v.kit.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		v.kit.t.Fatal(err)
	}
	return answer{status: res.StatusCode, body: string(text), next: strings.TrimPrefix(res.Header.Get("Location"), base), header: res.Header}
}

var (
	unseen  = regexp.MustCompile(`(?s)<style.*?</style>|<script.*?</script>`)
	tag     = regexp.MustCompile(`(?s)<[^>]*>`)
	anySpan = regexp.MustCompile(`[ \t\r\n]+`)
)

// textOf returns what a reader sees of a page. A "<" or ">" in it was escaped.
func textOf(page string) string {
	return strings.TrimSpace(anySpan.ReplaceAllString(html.UnescapeString(tag.ReplaceAllString(unseen.ReplaceAllString(page, " "), " ")), " "))
}

// findAll returns what the first group of a pattern matches in a page, with HTML unescaped.
func findAll(page, pattern string) (found []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1) {
		found = append(found, html.UnescapeString(m[1]))
	}
	return found
}

// wantText fails the test unless a page shows all the texts.
func wantText(t testing.TB, page string, texts ...string) {
	t.Helper()
	shown := textOf(page)
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			t.Errorf("the page does not show %q:\n%s", text, shown)
		}
	}
}
