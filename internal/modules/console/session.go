package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// Sessions end after maxIdle without a request of the visitor (live updates are none), and after maxAge in any case.
const (
	maxIdle = 15 * time.Minute
	maxAge  = 12 * time.Hour
)

// maxSessions limits the sessions of a server, and maxOwnSessions those of one principal: the one that was idle longest
// ends first. So nobody who signs in ends a session of somebody else, unless very many principals do.
const (
	maxSessions    = 1000
	maxOwnSessions = 20
)

// The cookies of a session. Browsers accept a __Host- cookie only by HTTPS, from this host, without a Domain.
const (
	cookieName       = "gavel_console"
	secureCookieName = "__Host-gavel_console"
)

const (
	signInPath = "sign-in"
	linkPath   = "link/"
)

var (
	errNoSession    = errors.New("no session")
	errSessionEnded = errors.New("the session has ended")
	errLinkUsed     = errors.New("the link was used before")
	errNoAccess     = errors.New("this role has no access to the console")
)

type sessionKey struct{}

// session is one visitor in one browser.
type session struct {
	id, csrf string
	bearer   string // checked again with each request, so that a session ends with its token
	begun    time.Time
	identity auth.Identity

	mu      sync.Mutex
	used    time.Time
	message string
}

type sessions struct {
	mu   sync.Mutex
	byID map[string]*session
}

func newSessions() *sessions { return &sessions{byID: map[string]*session{}} }

// begin starts a session.
func (all *sessions) begin(id auth.Identity, bearer string) *session {
	s := &session{id: rand.Text(), csrf: rand.Text(), bearer: bearer, begun: now(), used: now(), identity: id}
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, have := range all.byID {
		if have.hasEnded() {
			delete(all.byID, have.id)
		}
	}
	all.makeRoom(maxOwnSessions, func(have *session) bool { return have.identity.ID == id.ID })
	all.makeRoom(maxSessions, func(*session) bool { return true })
	all.byID[s.id] = s
	return s
}

// makeRoom ends the session that was idle longest of those that count, if there are already most of them.
func (all *sessions) makeRoom(most int, counts func(*session) bool) {
	var oldest *session
	n := 0
	for _, have := range all.byID {
		if !counts(have) {
			continue
		}
		if n++; oldest == nil || have.lastUse().Before(oldest.lastUse()) {
			oldest = have
		}
	}
	if n >= most {
		delete(all.byID, oldest.id)
	}
}

func (all *sessions) find(id string) *session {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

func (all *sessions) end(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.byID, s.id)
}

func (s *session) lastUse() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func (s *session) hasEnded() bool {
	return now().Sub(s.lastUse()) >= maxIdle || now().Sub(s.begun) >= maxAge
}

// putMessage keeps a message for the next page.
func (s *session) putMessage(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.message = text
}

func (s *session) takeMessage() (text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, s.message = s.message, ""
	return text
}

// checkCSRF reports whether a form was made for this session. It reads the form.
func (s *session) checkCSRF(r *http.Request) bool {
	if err := r.ParseForm(); err != nil {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(r.PostForm.Get("csrf")), []byte(s.csrf)) == 1
}

func sessionOf(r *http.Request) *session {
	s, _ := r.Context().Value(sessionKey{}).(*session)
	return s
}

// session returns the session of a request.
func (c *console) session(r *http.Request) (*session, error) {
	cookies := r.CookiesNamed(c.cookie(r, "", 0).Name)
	if len(cookies) != 1 { // several are a sign of another site below this domain
		return nil, errNoSession
	}
	s := c.sessions.find(cookies[0].Value)
	if s == nil {
		return nil, errSessionEnded
	}
	if err := c.check(r.Context(), s); err != nil {
		return nil, err
	}
	if !isLive(r) {
		s.mu.Lock()
		s.used = now()
		s.mu.Unlock()
	}
	return s, nil
}

// check ends a session whose time is up, or whose token is no longer valid.
func (c *console) check(ctx context.Context, s *session) error {
	if s.hasEnded() {
		c.sessions.end(s)
		return errSessionEnded
	}
	id, err := c.host.Gate.Authenticate(ctx, s.bearer)
	switch {
	case errors.Is(err, auth.ErrUnavailable):
		return err //nolint:wrapcheck // the session continues once the check is possible
	case err != nil || !mayVisit(id) || id.Principal != s.identity.Principal:
		c.sessions.end(s)
		return errSessionEnded
	}
	return nil
}

// mayVisit reports whether a caller has access: agents have none, nor have credentials for events.
func mayVisit(id auth.Identity) bool {
	return id.Events == "" && (id.Role == engine.RoleReviewer || id.Role == engine.RoleOperator || id.Role == engine.RoleAuditor)
}

// signInPage is what the page to sign in shows. Strangers see it, so it names nothing of the server.
type signInPage struct {
	Next, Error string
	// ByLink reports that visitors sign in by a link, not by a token; Open that the server identifies no callers.
	ByLink, Open bool
	// Typed is what the visitor typed into a form that was not accepted, so that it is not lost.
	Typed []typed
}

type typed struct{ Name, Text string }

// readTyped returns the texts of a form that a visitor may have typed.
func readTyped(r *http.Request) (all []typed) {
	for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
		if text := strings.TrimSpace(r.PostForm.Get(name)); text != "" && !slices.Contains([]string{"csrf", "from", "token", "next"}, name) {
			all = append(all, typed{name, text})
		}
	}
	return all
}

func (c *console) newSignInPage(ctx context.Context, next, problem string) signInPage {
	_, err := c.host.Gate.Authenticate(ctx, "")
	return signInPage{Next: returnPath(next), Error: problem, ByLink: c.host.Exchange != nil, Open: err == nil}
}

// signIn begins a session, from the form or from the link that gavel ui prints.
func (c *console) signIn(w http.ResponseWriter, r *http.Request) {
	switch link, isLink := strings.CutPrefix(r.URL.Path, base+linkPath); {
	case isLink && r.Method == http.MethodGet && c.host.Exchange != nil:
		if bearer, ok := c.host.Exchange(link); ok {
			c.beginSession(w, r, bearer, "")
			return
		}
		c.refuseSignIn(w, r, errLinkUsed, "")
	case isLink || r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		http.Error(w, "This address supports GET.", http.StatusMethodNotAllowed)
	case r.Method == http.MethodPost:
		if err := r.ParseForm(); err != nil {
			http.Error(w, "The form cannot be read.", http.StatusBadRequest)
			return
		}
		c.beginSession(w, r, strings.TrimSpace(r.PostForm.Get("token")), r.PostForm.Get("next"))
	default:
		c.writePage(w, r, http.StatusOK, "sign-in", c.newSignInPage(r.Context(), r.URL.Query().Get("next"), ""), "")
	}
}

func (c *console) beginSession(w http.ResponseWriter, r *http.Request, bearer, next string) {
	id, err := c.host.Gate.Identify(r, bearer)
	if err == nil && !mayVisit(id) {
		err = errNoAccess
	}
	if err != nil {
		c.refuseSignIn(w, r, err, next)
		return
	}
	if old, err := c.session(r); err == nil {
		c.sessions.end(old) // a sign-in always begins a new session
	}
	s := c.sessions.begin(id, bearer)
	http.SetCookie(w, c.cookie(r, s.id, 0))
	http.Redirect(w, r, returnPath(next), http.StatusSeeOther)
}

// cookie returns the cookie of a session. Its name has the port, because browsers send cookies to all ports of a host, and
// several consoles may be open on this machine.
func (c *console) cookie(r *http.Request, value string, age int) *http.Cookie {
	cookie := &http.Cookie{Name: cookieName, Value: value, Path: base, HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: age}
	switch _, port, err := net.SplitHostPort(r.Host); {
	case c.host.IsSecure(r):
		cookie.Name, cookie.Path, cookie.Secure = secureCookieName, "/", true
	case err == nil:
		cookie.Name += "_" + port
	}
	return cookie
}

// refuseSignIn shows the form again. It does not tell why a token is not valid.
func (c *console) refuseSignIn(w http.ResponseWriter, r *http.Request, err error, next string) {
	shown, status := c.newSignInPage(r.Context(), next, "This token is not valid."), http.StatusUnauthorized
	if many, ok := errors.AsType[*auth.TooManyFailuresError](err); ok {
		shown.Error, status = many.Error(), http.StatusTooManyRequests
		w.Header().Set("Retry-After", strconv.Itoa(int(many.Wait/time.Second)+1))
	}
	switch {
	case errors.Is(err, auth.ErrUnavailable):
		c.host.Log.Error("credentials cannot be checked", "error", err)
		shown.Error, status = "Tokens cannot be checked now. Try again later.", http.StatusServiceUnavailable
	case errors.Is(err, auth.ErrNoCredential):
		shown.Error = "Give a token."
	case errors.Is(err, errNoAccess):
		shown.Error, status = "This token is an agent's or a program's. The console is for reviewers, operators and auditors.", http.StatusForbidden
	case errors.Is(err, errLinkUsed):
		shown.Error = "This link was used before."
	}
	c.writePage(w, r, status, "sign-in", shown, "")
}

// askToSignIn answers a request without a session. A browser that comes from another site does not send the cookie with
// its first request (SameSite=Strict), so it is asked to come again.
func (c *console) askToSignIn(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, auth.ErrUnavailable):
		c.refuseSignIn(w, r, err, r.URL.RequestURI())
	case isLive(r):
		w.WriteHeader(http.StatusNoContent) // the browser does not connect again
	case r.Method == http.MethodGet && errors.Is(err, errNoSession) && r.Header.Get("Sec-Fetch-Site") == "cross-site":
		c.writePage(w, r, http.StatusOK, "again", r.URL.RequestURI(), "")
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		http.Redirect(w, r, base+signInPath+"?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
	default:
		shown := c.newSignInPage(r.Context(), "", "Your session has ended, so nothing was done.")
		if r.ParseForm() == nil {
			shown.Typed, shown.Next = readTyped(r), returnPath(r.PostForm.Get("from"))
		}
		c.writePage(w, r, http.StatusUnauthorized, "sign-in", shown, "")
	}
}

func (c *console) signOut(w http.ResponseWriter, r *http.Request) {
	c.sessions.end(sessionOf(r))
	http.SetCookie(w, c.cookie(r, "", -1))
	http.Redirect(w, r, base+signInPath, http.StatusSeeOther)
}

// returnPath returns the address to show next: a page of the console, never another site.
func returnPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, base) || strings.ContainsAny(next, "\\\r\n") ||
		strings.Contains(u.Path, "..") || strings.Contains(u.Path, "/-/") || strings.HasPrefix(u.Path, base+linkPath) || strings.HasPrefix(u.Path, base+signInPath) {
		return base
	}
	return cmp.Or((&url.URL{Path: u.Path, RawQuery: u.RawQuery, Fragment: u.Fragment}).String(), base)
}
