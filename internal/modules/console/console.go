// Package console is the module for gavel's console: pages in which people see what waits for them, why a move was
// allowed or refused, and what agents are doing. gavel serve has it at /console/, gavel ui opens it over a store.
//
// Guarantees:
//   - Every page shows what the operations answer for its visitor, and every change is an operation of that visitor.
//   - Text from outside is inert: it is escaped, cut, and its invisible marks are shown.
//   - A change needs a session, its CSRF token, and a form that the visitor sent.
//   - A page works without JavaScript, except for live updates and keys.
//
// It must never decide, read a store, or load anything from another host.
package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// base begins the path of every page.
const base = "/console/"

func init() {
	module.Register(module.Module{
		Name: "console",
		Commands: []module.Command{{
			Name: "ui", Group: "start", Help: "Open the console: what waits for you, and why moves were refused.",
			First: "look at a store in your browser",
			New:   func() any { return &command{} },
		}},
		Demo: playDemo,
		Extend: func(module.Setup) *module.Extension {
			return &module.Extension{Site: &module.Site{Path: base, ReviewPath: base + "reviews/", Open: func(h module.SiteHost) (http.Handler, error) { return newConsole(h) }}}
		},
	})
}

// console serves the pages.
type console struct {
	host     module.SiteHost
	pages    []*page
	sessions *sessions
	topics   *topics
	mux      *http.ServeMux
	limited  http.Handler // mux, within the host's limits
	// csrf stands for the visitor's CSRF token while a page is rendered, so that visitors can share a rendering.
	csrf string
}

func newConsole(host module.SiteHost) (*console, error) {
	c := &console{host: host, sessions: newSessions(), mux: http.NewServeMux(), csrf: rand.Text()}
	c.topics = &topics{console: c, open: map[topicKey]*topic{}}
	for _, p := range slices.Concat(ownPages(host), host.Pages) {
		added, err := c.addPage(p)
		if err != nil {
			return nil, fmt.Errorf("the page %q: %w", p.Title, err)
		}
		c.pages = append(c.pages, added)
	}
	slices.SortStableFunc(c.pages, func(a, b *page) int { return a.Order - b.Order })
	c.mux.HandleFunc("POST "+base+"-/sign-out", c.signOut)
	c.mux.HandleFunc(base, func(w http.ResponseWriter, r *http.Request) {
		c.showProblem(w, r, http.StatusNotFound, "There is no such page.", "It may have moved, or the address has a mistake.")
	})
	c.limited = host.Limit(http.HandlerFunc(c.serveSession))
	return c, nil
}

// ownPages are the pages of this module.
func ownPages(host module.SiteHost) []module.Page {
	return append(takeBackPages(),
		nowPage(host), reviewsPage(), reviewPage(), instancesPage(), instancePage(), decisionPage(), definitionsPage(), definitionPage(host))
}

// addPage registers the routes of a page.
func (c *console) addPage(declared module.Page) (*page, error) {
	p, err := newPage(declared)
	if err != nil {
		return nil, err
	}
	path := base + declared.Path
	if declared.Path == "" {
		path += "{$}"
	}
	if p.Place == module.InMenu || p.Place == module.Nowhere {
		c.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { c.showPage(w, r, p, pageState{}) })
		c.mux.HandleFunc("GET "+at(declared.Path, "live"), func(w http.ResponseWriter, r *http.Request) { c.topics.serve(w, r, p) })
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(p.Actions)), slices.Collect(maps.Keys(p.Answers))) {
		c.mux.HandleFunc("GET "+at(declared.Path, name), func(w http.ResponseWriter, r *http.Request) { leaveForm(w, r, p) })
	}
	for name, action := range p.Actions {
		c.mux.HandleFunc("POST "+at(declared.Path, name), func(w http.ResponseWriter, r *http.Request) { c.act(w, r, p, action) })
	}
	for name, answer := range p.Answers {
		c.mux.HandleFunc("POST "+at(declared.Path, name), func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, p, answer) })
	}
	for name, file := range p.Files {
		c.mux.HandleFunc("GET "+at(declared.Path, name), func(w http.ResponseWriter, r *http.Request) { c.sendFile(w, r, p, file) })
	}
	return p, nil
}

// leaveForm leads from the address of a form to its page: a browser stays at the address of a form that failed.
func leaveForm(w http.ResponseWriter, r *http.Request, p *page) {
	path := p.Path
	for whole, place := range places {
		if p.Place == place {
			path = whole
		}
	}
	to := base + fillPath(path, r.PathValue)
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // it begins with base
}

// fillPath returns the path of a page with its values.
func fillPath(path string, value func(string) string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			parts[i] = url.PathEscape(value(strings.TrimSuffix(name, "}")))
		}
	}
	return strings.Join(parts, "/")
}

// at returns the address of a page's form, file or stream. No page has "-" in its path.
func at(path, name string) string {
	return base + strings.TrimPrefix(path+"/-/"+name, "/")
}

// ServeHTTP answers one request. Visitors without a session get the page to sign in.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer c.recoverPanic(w, r)
	setHeaders(w.Header())
	if r.URL.Path == base+signInPath || strings.HasPrefix(r.URL.Path, base+linkPath) {
		listen.Admit(func(context.Context) string { return "" }, http.HandlerFunc(c.signIn)).ServeHTTP(w, r)
		return
	}
	s, err := c.session(r)
	if err != nil {
		listen.Admit(func(context.Context) string { return "" }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.askToSignIn(w, r, err)
		})).ServeHTTP(w, r)
		return
	}
	ctx := context.WithValue(auth.NewContext(r.Context(), s.identity), sessionKey{}, s)
	c.limited.ServeHTTP(w, r.WithContext(ctx))
}

// serveSession answers a request of a session. The origin guard of the server has checked where it comes from.
func (c *console) serveSession(w http.ResponseWriter, r *http.Request) {
	defer c.recoverPanic(w, r)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if r.Method != http.MethodPost || !sessionOf(r).checkCSRF(r) {
			c.refuseForm(w, r)
			return
		}
	}
	c.mux.ServeHTTP(w, r)
}

// refuseForm answers a form that was not made for this session, and shows what the visitor typed.
func (c *console) refuseForm(w http.ResponseWriter, r *http.Request) {
	s := sessionOf(r)
	c.writePage(w, r, http.StatusForbidden, "shell", shell{
		Title: "Out of date", Problem: "This form is out of date, so nothing was done.", Hint: "Load its page again, and send the form from there.",
		Typed: readTyped(r), Back: returnPath(r.PostForm.Get("from")),
		Menu: c.menu(s.identity.Principal, nil), Who: s.identity.Principal, CSRF: c.csrf, Store: c.host.StoreName,
	}, s.csrf)
}

// setHeaders forbids everything that pages do not need. Styles and scripts are allowed by their digest alone.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin") // browsers send Origin: null with forms otherwise
}

func (c *console) recoverPanic(w http.ResponseWriter, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	c.host.Log.Error("a page of the console panicked", "path", r.URL.Path, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	c.showProblem(w, r, http.StatusInternalServerError, "This page has a defect.", "The log has the details.")
}

// visit returns a request as pages see it. The page that a form belongs to keeps its query.
func (c *console) visit(r *http.Request) module.Visit {
	who, _ := auth.FromContext(r.Context())
	query := r.URL.Query()
	if at, err := url.Parse(addressOf(r)); err == nil {
		query = at.Query()
	}
	return module.Visit{Call: c.host.Call(who), Path: r.PathValue, Values: query}
}

// showPage renders a page and the parts that other modules add to it.
func (c *console) showPage(w http.ResponseWriter, r *http.Request, p *page, state pageState) {
	s, v := sessionOf(r), c.visit(r)
	position, err := v.Call.Engine.Tail(r.Context(), s.identity.Principal, engine.TailRequest{After: -1})
	if err != nil {
		c.showError(w, r, err)
		return
	}
	regions, title, err := c.render(r.Context(), p, v, addressOf(r), state)
	if err != nil {
		c.showError(w, r, err)
		return
	}
	status := http.StatusOK
	shown := shell{
		Title: title, Regions: regions, Menu: c.menu(s.identity.Principal, p), Who: s.identity.Principal, Store: c.host.StoreName,
		Message: s.takeMessage(), Error: state.Error, After: position.Next, Live: liveAddress(r, p), CSRF: c.csrf,
	}
	if state.Error != nil {
		status = statusOf(state.Error.Code)
	}
	c.writePage(w, r, status, "shell", shown, s.csrf)
}

// act performs an action of a page. An error is shown on the page, with what the visitor typed.
func (c *console) act(w http.ResponseWriter, r *http.Request, p *page, action func(context.Context, module.Visit) (string, string, error)) {
	v := c.visit(r)
	v.Values = r.PostForm
	if !p.isAllowed(v.Call.Caller.Principal) {
		c.showError(w, r, engine.Authorize(v.Call.Caller.Principal, p.Needs))
		return
	}
	next, message, err := action(r.Context(), v)
	if err != nil {
		c.showFailedForm(w, r, p, err)
		return
	}
	sessionOf(r).putMessage(message)
	if next != "" {
		next = base + next
	}
	http.Redirect(w, r, returnPath(cmp.Or(next, r.PostForm.Get("from"))), http.StatusSeeOther)
}

// answer shows the page of a form again, with the answer to the form.
func (c *console) answer(w http.ResponseWriter, r *http.Request, p *page, answer func(context.Context, module.Visit) (any, error)) {
	v := c.visit(r)
	v.Values = r.PostForm
	if !p.isAllowed(v.Call.Caller.Principal) {
		c.showError(w, r, engine.Authorize(v.Call.Caller.Principal, p.Needs))
		return
	}
	data, err := answer(r.Context(), v)
	if err != nil {
		c.showFailedForm(w, r, p, err)
		return
	}
	c.showPage(w, r, p, pageState{Form: r.PostForm, Answer: data})
}

// showFailedForm shows the page of a form again, with the error.
func (c *console) showFailedForm(w http.ResponseWriter, r *http.Request, p *page, err error) {
	explained, defect := operation.Explain(err)
	if defect {
		c.host.Log.Error("a form of the console failed", "path", r.URL.Path, "error", err)
	}
	if p.Place != module.InMenu && p.Place != module.Nowhere {
		c.showError(w, r, err)
		return
	}
	c.showPage(w, r, p, pageState{Error: explained, Form: r.PostForm})
}

func (c *console) sendFile(w http.ResponseWriter, r *http.Request, p *page, file func(context.Context, module.Visit) (module.File, error)) {
	v := c.visit(r)
	if !p.isAllowed(v.Call.Caller.Principal) {
		c.showError(w, r, engine.Authorize(v.Call.Caller.Principal, p.Needs))
		return
	}
	f, err := file(r.Context(), v)
	if err != nil {
		c.showError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", f.Type)
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", f.Name))
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	_, _ = w.Write(f.Content) //nolint:gosec // a download, which no browser shows
}

// statuses maps codes to HTTP statuses; others are conflicts with the present state.
var statuses = map[engine.Code]int{
	engine.CodeUnknownWorkflow: http.StatusNotFound, engine.CodeUnknownInstance: http.StatusNotFound,
	engine.CodeUnknownCheckpoint: http.StatusNotFound, engine.CodeUnknownRevision: http.StatusNotFound,
	engine.CodeUnknownReview: http.StatusNotFound, engine.CodeUnknownCall: http.StatusNotFound,
	engine.CodeForbidden: http.StatusForbidden, engine.CodeUnauthenticated: http.StatusUnauthorized,
	engine.CodeInvalidArgument: http.StatusBadRequest, engine.CodeInvalidData: http.StatusBadRequest,
	engine.CodeInvalidDefinition: http.StatusUnprocessableEntity, engine.CodeTooLarge: http.StatusRequestEntityTooLarge,
	engine.CodeRateLimited: http.StatusTooManyRequests, engine.CodeTooManyStreams: http.StatusTooManyRequests,
	engine.CodeBusy: http.StatusServiceUnavailable, engine.CodeUnavailable: http.StatusServiceUnavailable,
	engine.CodeUntrustedRules: http.StatusServiceUnavailable, engine.CodeValuesUnreadable: http.StatusServiceUnavailable,
	engine.CodeCancelled: http.StatusServiceUnavailable, engine.CodeInternal: http.StatusInternalServerError,
}

func statusOf(code engine.Code) int {
	if status, ok := statuses[code]; ok {
		return status
	}
	return http.StatusConflict
}

// showError shows an error instead of a page.
func (c *console) showError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	explained, defect := operation.Explain(err)
	if defect {
		c.host.Log.Error("a page of the console failed", "path", r.URL.Path, "error", err)
	}
	c.showProblem(w, r, statusOf(explained.Code), explained.Message, explained.Hint)
}

func (c *console) showProblem(w http.ResponseWriter, r *http.Request, status int, message, hint string) {
	shown := shell{Title: http.StatusText(status), Problem: message, Hint: hint, CSRF: c.csrf, Store: c.host.StoreName}
	csrf := ""
	if s := sessionOf(r); s != nil {
		shown.Menu, shown.Who, csrf = c.menu(s.identity.Principal, nil), s.identity.Principal, s.csrf
	}
	c.writePage(w, r, status, "shell", shown, csrf)
}

// writePage executes a template of the site.
func (c *console) writePage(w http.ResponseWriter, r *http.Request, status int, name string, data any, csrf string) {
	var text strings.Builder
	if err := shells.ExecuteTemplate(&text, name, data); err != nil {
		c.host.Log.Error("a page of the console cannot be rendered", "path", r.URL.Path, "error", err)
		http.Error(w, "This page has a defect. The log has the details.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = strings.NewReplacer(c.csrf, csrf).WriteString(w, text.String()) //nolint:gosec // html/template escaped it
	}
}

// addressOf returns the address of a page, with its query.
func addressOf(r *http.Request) string {
	if r.Method == http.MethodPost {
		return returnPath(r.PostForm.Get("from"))
	}
	return r.URL.RequestURI()
}

// now is the time of all pages.
var now = time.Now
