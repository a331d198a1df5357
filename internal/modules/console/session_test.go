package console

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/module"
)

// probePage is a page with one action, which counts how often it was done.
func probePage(done *int) module.Page {
	return module.Page{
		Path: "probe", Title: "Probe", Place: module.InMenu, Order: 99,
		Templates: `{{define "probe"}}<form method="post" action="{{.Action "do"}}">{{template "csrf" .}}<p>{{.Data}}</p></form>{{end}}`, Regions: []string{"probe"},
		Load: func(context.Context, module.Visit) (any, error) { return "a probe", nil },
		Actions: map[string]func(context.Context, module.Visit) (string, string, error){
			"do": func(context.Context, module.Visit) (string, string, error) {
				*done++
				return "", "Done.", nil
			},
		},
	}
}

func newProbeKit(t *testing.T) (k *kit, done *int) {
	t.Helper()
	done = new(int)
	return newKit(t, func(s *setup) { s.host.Pages = append(s.host.Pages, probePage(done)) }), done
}

// setTime moves the time of all pages for one test.
func setTime(t *testing.T) (move func(time.Duration)) {
	t.Helper()
	offset := time.Duration(0)
	now = func() time.Time { return time.Now().Add(offset) }
	t.Cleanup(func() { now = time.Now })
	return func(d time.Duration) { offset += d }
}

func (v *visitor) cookies() []*http.Cookie {
	u, _ := url.Parse(v.kit.url + base)
	return v.http.Jar.Cookies(u)
}

func (v *visitor) setCookies(all ...*http.Cookie) {
	u, _ := url.Parse(v.kit.url + base)
	v.http.Jar.SetCookies(u, all)
}

func TestCookieIsForThisSiteAlone(t *testing.T) {
	for secure, want := range map[bool]string{
		false: "gavel_console=; Path=/console/; HttpOnly; SameSite=Strict",
		true:  "__Host-gavel_console=; Path=/; HttpOnly; Secure; SameSite=Strict",
	} {
		k := newKit(t, func(s *setup) { s.host.IsSecure = func(*http.Request) bool { return secure } })
		got := k.visit().submit("sign-in", url.Values{"token": {reviewer.ID}}).header.Get("Set-Cookie")
		name, rest, _ := strings.Cut(got, "=")
		name = strings.TrimSuffix(name, "_"+k.url[strings.LastIndex(k.url, ":")+1:]) // of the listener
		_, attributes, _ := strings.Cut(rest, ";")
		if have := name + "=;" + attributes; have != want {
			t.Errorf("secure %t: the cookie is %q, want %q", secure, have, want)
		}
	}
}

// Whoever has no session gets nothing but the page to sign in, and nothing is done.
func TestBadSessions(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, k *kit, v *visitor, move func(time.Duration)){
		"no cookie": func(_ *testing.T, _ *kit, v *visitor, _ func(time.Duration)) {
			v.setCookies(&http.Cookie{Name: v.cookies()[0].Name, Path: base, MaxAge: -1})
		},
		"a changed cookie": func(_ *testing.T, _ *kit, v *visitor, _ func(time.Duration)) {
			v.setCookies(&http.Cookie{Name: v.cookies()[0].Name, Path: base, Value: v.cookies()[0].Value[1:] + "A"})
		},
		"a second cookie of another path": func(_ *testing.T, _ *kit, v *visitor, _ func(time.Duration)) {
			v.setCookies(&http.Cookie{Name: v.cookies()[0].Name, Path: "/", Value: "another"})
		},
		"a cookie of another server": func(t *testing.T, _ *kit, v *visitor, _ func(time.Duration)) {
			t.Helper()
			foreign := newKit(t).signIn(operator).cookies()[0]
			v.setCookies(&http.Cookie{Name: v.cookies()[0].Name, Path: base, Value: foreign.Value})
		},
		"a revoked token":       func(_ *testing.T, k *kit, _ *visitor, _ func(time.Duration)) { k.revoke(operator) },
		"15 minutes of silence": func(_ *testing.T, _ *kit, _ *visitor, move func(time.Duration)) { move(maxIdle) },
		"12 hours of work": func(_ *testing.T, _ *kit, v *visitor, move func(time.Duration)) {
			for range int(maxAge/(maxIdle/2)) - 1 {
				move(maxIdle / 2)
				v.show("probe")
			}
			move(maxIdle / 2)
		},
		"signed out": func(t *testing.T, _ *kit, v *visitor, _ func(time.Duration)) {
			t.Helper()
			kept := *v.cookies()[0]
			kept.Path = base
			token := csrfField.FindStringSubmatch(v.show("probe"))[1]
			if got := v.submit("-/sign-out", url.Values{"csrf": {token}}); got.next != signInPath || len(v.cookies()) != 0 {
				t.Errorf("signing out leads to %q with the cookies %v", got.next, v.cookies())
			}
			v.setCookies(&kept)
		},
	} {
		t.Run(name, func(t *testing.T) {
			move := setTime(t)
			k, done := newProbeKit(t)
			v := k.signIn(operator)
			token := csrfField.FindStringSubmatch(v.show("probe"))[1]
			spoil(t, k, v, move)
			if got := v.get("probe"); got.status != http.StatusSeeOther || got.next != "sign-in?next=%2Fconsole%2Fprobe" {
				t.Fatalf("a page: %d to %q", got.status, got.next)
			}
			if got := v.submit("probe/-/do", url.Values{"csrf": {token}}); got.status != http.StatusUnauthorized || *done != 0 {
				t.Errorf("a form: %d, done %d times", got.status, *done)
			}
			if got := v.get("probe/-/live?after=0"); got.status != http.StatusNoContent {
				t.Errorf("live updates: %d", got.status)
			}
		})
	}
}

func TestFormsNeedTheTokenOfTheirSession(t *testing.T) {
	k, done := newProbeKit(t)
	v, other := k.signIn(operator), k.signIn(operator)
	foreign := csrfField.FindStringSubmatch(other.show("probe"))[1]
	for name, form := range map[string]url.Values{
		"none": {}, "empty": {"csrf": {""}}, "of another session": {"csrf": {foreign}}, "in the wrong field": {"token": {foreign}},
		"the placeholder": {"csrf": {k.csrf}},
	} {
		if got := v.submit("probe/-/do", form); got.status != http.StatusForbidden || *done != 0 {
			t.Errorf("%s: %d, done %d times", name, got.status, *done)
		}
	}
	own := csrfField.FindStringSubmatch(v.show("probe"))[1]
	if own == foreign || strings.Contains(v.show("probe"), k.csrf) {
		t.Error("sessions share a token, or the placeholder is sent")
	}
	if got := v.get("probe/-/do?csrf=" + own); got.next != "probe?csrf="+own || *done != 0 { // it only leads to the page
		t.Errorf("an action by GET: %d to %q, done %d times", got.status, got.next, *done)
	}
	if got := v.send("probe", "do"); got.status != http.StatusSeeOther || got.next != "probe" || *done != 1 {
		t.Errorf("the right form: %d to %q, done %d times", got.status, got.next, *done)
	}
	wantText(t, v.show("probe"), "Done.")
	if strings.Contains(v.show("probe"), "Done.") {
		t.Error("a message is shown twice")
	}
}

func TestReturnAddressesStayInTheConsole(t *testing.T) {
	for next, want := range map[string]string{
		"/console/reviews/rev-1?x=1":       "/console/reviews/rev-1?x=1",
		"reviews/rev-1":                    base,
		"":                                 base,
		"https://evil.example/console/":    base,
		"//evil.example/console/":          base,
		"/\\evil.example/console/":         base,
		"/console/\\evil.example":          base,
		"/console/../v1/definitions":       base,
		"/console/x/%2e%2e/%2e%2e/v1":      base,
		"/v1/definitions":                  base,
		"javascript:alert(1)":              base,
		"/console/reviews/rev-1/-/resolve": base,
		"/console/link/ABC":                base,
		"/console/sign-in?next=/console/":  base,
		"/console/a\r\nSet-Cookie: x=y":    base,
		"/console/%zz":                     base,
		"https:/console/":                  base,
	} {
		if got := returnPath(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
		k := newKit(t)
		got := k.visit().submit("sign-in", url.Values{"token": {operator.ID}, "next": {next}})
		if base+got.next != want {
			t.Errorf("signing in with %q leads to %q, want %q", next, base+got.next, want)
		}
	}
}

func TestBadTokensSlowAnAddressDown(t *testing.T) {
	k := newKit(t)
	v := k.visit()
	for i := range 31 {
		got := v.submit("sign-in", url.Values{"token": {"guess"}})
		want := http.StatusUnauthorized
		if i == 30 {
			want = http.StatusTooManyRequests
		}
		if got.status != want || len(v.cookies()) > 0 {
			t.Fatalf("try %d: %d, cookies %v", i+1, got.status, v.cookies())
		}
	}
	if got := v.submit("sign-in", url.Values{"token": {operator.ID}}); got.status != http.StatusSeeOther {
		t.Errorf("the right token: %d", got.status)
	}
}

// A credential for events, and one that cannot be checked now, begin no session.
func TestSignInRefusesOtherCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		id   auth.Identity
		err  error
		want int
	}{
		"for events": {auth.Identity{Principal: operator, Events: "/srv"}, nil, http.StatusForbidden},
		"unchecked":  {auth.Identity{}, auth.ErrUnavailable, http.StatusServiceUnavailable},
		"unknown":    {auth.Identity{}, errors.New("broken"), http.StatusUnauthorized},
	} {
		k := newKit(t, func(s *setup) {
			s.host.Gate = auth.NewGate(authenticate(func() (auth.Identity, error) { return c.id, c.err }), auth.Options{Logger: s.host.Log})
		})
		if got := k.visit().submit("sign-in", url.Values{"token": {"x"}}); got.status != c.want || got.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d", name, got.status)
		}
	}
}

type authenticate func() (auth.Identity, error)

func (a authenticate) Authenticate(context.Context, string) (auth.Identity, error) { return a() }

func TestLinkWorksOnce(t *testing.T) {
	o := &owner{identity: auth.Identity{Principal: operator, Kind: auth.KindProgram}, bearer: "secret"}
	k := newKit(t, func(s *setup) {
		s.host.Gate, s.host.Exchange = auth.NewGate(o, auth.Options{Logger: s.host.Log}), o.exchange
	})
	link := o.newLink()
	if got := k.visit().get(linkPath + link[1:]); got.status != http.StatusUnauthorized {
		t.Errorf("a wrong link: %d", got.status)
	}
	v := k.visit()
	if got := v.get(linkPath + link); got.status != http.StatusSeeOther {
		t.Fatalf("the link: %d", got.status)
	}
	v.show("")
	again := k.visit().get(linkPath + link)
	if again.status != http.StatusUnauthorized || again.header.Get("Set-Cookie") != "" {
		t.Errorf("the link again: %d", again.status)
	}
	wantText(t, again.body, "This link was used before.", "Press Enter")
	if next := o.newLink(); k.visit().get(linkPath+next).status != http.StatusSeeOther {
		t.Error("a new link does not work")
	}
	v.show("") // the first session is still there
}

// A browser sends a SameSite=Strict cookie only if the page before was of this site, so a link in a chat needs a step.
func TestLinksOfOtherSitesKeepTheSession(t *testing.T) {
	k := newKit(t)
	r := httptest.NewRequest(http.MethodGet, base+"reviews/rev-1", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	k.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `content="0;url=/console/reviews/rev-1"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestPagesAllowNothingFromOutside(t *testing.T) {
	k, _ := newProbeKit(t)
	for _, path := range []string{"", "probe", "sign-in", "nothing-here"} {
		got := k.signIn(auditor).get(path)
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Frame-Options": "DENY", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		} {
			if have := got.header.Get(name); have != want {
				t.Errorf("%s: %s is %q", path, name, have)
			}
		}
		if strings.Count(got.body, "<style>") != 1 || !strings.Contains(got.body, "<style>"+stylesheet+"</style>") || strings.Contains(got.body, `style="`) {
			t.Errorf("%s has another style than the one that its policy allows", path)
		}
		if path != "sign-in" && (strings.Count(got.body, "<script>") != 1 || !strings.Contains(got.body, "<script>"+scriptText+"</script>")) {
			t.Errorf("%s has another script than the one that its policy allows", path)
		}
	}
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'", digestOf(stylesheet), digestOf(scriptText)} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
}

func TestUnknownPagesAndDefects(t *testing.T) {
	k := newKit(t, func(s *setup) {
		s.host.Pages = append(s.host.Pages, module.Page{
			Path: "broken", Title: "Broken", Place: module.Nowhere, Templates: `{{define "broken"}}{{end}}`, Regions: []string{"broken"},
			Load: func(context.Context, module.Visit) (any, error) { panic("its cause") },
		}, module.Page{
			Path: "failing", Title: "Failing", Place: module.InMenu, Needs: engine.RightOperate, Templates: `{{define "failing"}}{{end}}`, Regions: []string{"failing"},
			Load: func(context.Context, module.Visit) (any, error) { return nil, errors.New("the secret of the store") },
		})
	})
	v := k.signIn(operator)
	for path, want := range map[string]int{"broken": 500, "failing": 500, "nothing": 404, "-/nothing": 404} {
		if got := v.get(path); got.status != want || strings.Contains(got.body, "secret") || strings.Contains(got.body, "its cause") {
			t.Errorf("%s: %d, want %d", path, got.status, want)
		}
	}
	if got := k.signIn(reviewer).get("failing"); got.status != http.StatusForbidden {
		t.Errorf("a page without the right: %d", got.status)
	}
	if strings.Contains(k.signIn(reviewer).show(""), "Failing") {
		t.Error("the menu shows a page that the visitor may not see")
	}
}

// A principal that signs in again and again ends its own sessions alone.
func TestSessionsAreLimited(t *testing.T) {
	all := newSessions()
	other := all.begin(auth.Identity{Principal: auditor}, "x")
	first := all.begin(auth.Identity{Principal: operator}, "x")
	for range 2 * maxSessions {
		all.begin(auth.Identity{Principal: operator}, "x")
	}
	if all.find(first.id) != nil || all.find(other.id) == nil || len(all.byID) != maxOwnSessions+1 {
		t.Errorf("%d sessions of one principal; the other's is there: %t", len(all.byID)-1, all.find(other.id) != nil)
	}
	for i := range maxSessions {
		all.begin(auth.Identity{Principal: engine.Principal{ID: strconv.Itoa(i)}}, "x")
	}
	if len(all.byID) != maxSessions {
		t.Errorf("%d sessions", len(all.byID))
	}
}

// What somebody typed is shown again if its form is not accepted.
func TestTypedTextSurvivesTheEndOfASession(t *testing.T) {
	k, done := newProbeKit(t)
	v := k.signIn(operator)
	form := url.Values{"csrf": {"old"}, "from": {base + "probe?a=1"}, "reason": {"I read <all> of it."}, "token": {"secret-token"}}
	stale := v.submit("probe/-/do", form)
	k.revoke(operator)
	ended := v.submit("probe/-/do", form)
	for name, got := range map[string]answer{"a stale form": stale, "an ended session": ended} {
		wantText(t, got.body, "I read <all> of it.")
		if got.status < 400 || *done != 0 || strings.Contains(got.body, "secret-token") || !strings.Contains(got.body, "/console/probe?a=1") {
			t.Errorf("%s: %d, done %d times\n%s", name, got.status, *done, textOf(got.body))
		}
	}
}
