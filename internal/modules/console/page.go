package console

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// page is a page with its parsed templates.
type page struct {
	module.Page

	templates *template.Template
}

func newPage(declared module.Page) (*page, error) {
	t, err := template.Must(site.Clone()).Parse(declared.Templates)
	if err != nil {
		return nil, fmt.Errorf("parse its templates: %w", err)
	}
	for _, name := range declared.Regions {
		if t.Lookup(name) == nil {
			return nil, fmt.Errorf("its template %q is missing", name)
		}
	}
	return &page{declared, t}, nil
}

func (p *page) isAllowed(who engine.Principal) bool {
	return p.Needs == "" || engine.Authorize(who, p.Needs) == nil
}

// pageState is what a page shows of the form that was just sent.
type pageState struct {
	Error *engine.Error
	Form  url.Values
	// Answer is the result of one of Page.Answers.
	Answer any
}

// View is what the templates of a page get.
type View struct {
	pageState
	// Data is the result of Load.
	Data any
	// Who is the visitor.
	Who engine.Principal
	// CSRF is the token that each form must have: {{template "csrf" .}}.
	CSRF string
	// Here is the address of the page.
	Here string

	path  string
	visit module.Visit
}

// Action returns the address of a form's action, or of a file.
func (v View) Action(name string) string { return at(fillPath(v.path, v.visit.Path), name) }

// May reports whether the visitor's role has a right.
func (v View) May(right engine.Right) bool { return engine.Authorize(v.Who, right) == nil }

// region is a part of a page that is updated on its own.
type region struct {
	ID   string
	HTML template.HTML
}

// shell is what the template of all pages gets.
type shell struct {
	Title, Store  string
	Regions       []region
	Menu          []menuItem
	Who           engine.Principal
	Message       string
	Error         *engine.Error
	Problem, Hint string
	// Typed is what the visitor typed into a form that was not accepted, Back its page.
	Typed      []typed
	Back       string
	After      int64
	Live, CSRF string
}

type menuItem struct {
	Address, Title string
	Current        string // a value of aria-current
}

func (c *console) menu(who engine.Principal, current *page) (items []menuItem) {
	for _, p := range c.pages {
		if p.Place == module.InMenu && p.isAllowed(who) {
			item := menuItem{Address: base + p.Path, Title: p.Title}
			switch {
			case p == current:
				item.Current = "page"
			case current != nil && p.Path != "" && strings.HasPrefix(current.Path, p.Path+"/"):
				item.Current = "true" // the page is below it
			}
			items = append(items, item)
		}
	}
	return items
}

// titled is implemented by data that names its page.
type titled interface{ PageTitle() string }

// places maps the paths of pages to the parts that they show.
var places = map[string]module.Place{
	"instances/{id}": module.InInstance, "instances/{id}/decisions/{seq}": module.InDecision, "definitions/{name}": module.InDefinition,
}

// render loads a page and renders its regions, and those of its parts.
func (c *console) render(ctx context.Context, p *page, v module.Visit, here string, state pageState) (regions []region, title string, err error) {
	parts := []*page{p}
	if place, ok := places[p.Path]; ok {
		for _, part := range c.pages {
			if part.Place == place {
				parts = append(parts, part)
			}
		}
	}
	title = p.Title
	for i, part := range parts {
		if !part.isAllowed(v.Call.Caller.Principal) {
			if i == 0 {
				return nil, "", engine.Authorize(v.Call.Caller.Principal, part.Needs)
			}
			continue
		}
		data, err := part.Load(ctx, v)
		if err != nil {
			return nil, "", err
		}
		if data == nil {
			if i == 0 {
				return nil, "", &engine.Error{Code: engine.CodeUnknownInstance, Message: "There is no such page.", Hint: "It may have moved, or the address has a mistake."}
			}
			continue
		}
		if t, ok := data.(titled); ok && i == 0 {
			title = t.PageTitle()
		}
		view := View{pageState: state, Data: data, Who: v.Call.Caller.Principal, CSRF: c.csrf, Here: here, path: part.Path, visit: v}
		for _, name := range part.Regions {
			var text strings.Builder
			if err := part.templates.ExecuteTemplate(&text, name, view); err != nil {
				return nil, "", fmt.Errorf("render %q: %w", name, err)
			}
			regions = append(regions, region{ID: name, HTML: template.HTML(strings.TrimSpace(text.String()))}) //nolint:gosec // html/template escaped it
		}
	}
	return regions, title, nil
}

// isLive reports whether a request is for the live updates of a page.
func isLive(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/-/live") || r.URL.Path == base+"-/live"
}

// liveAddress returns the address of a page's live updates. A page that answers a form has none, so that nothing
// replaces what the visitor typed.
func liveAddress(r *http.Request, p *page) string {
	if r.Method == http.MethodPost {
		return ""
	}
	live := strings.TrimSuffix(r.URL.EscapedPath(), "/") + "/-/live"
	if p.Path == "" {
		live = base + "-/live"
	}
	return live + "?" + r.URL.RawQuery
}

// ask performs an operation of a visitor.
func ask[Req, Res any](ctx context.Context, v module.Visit, op operation.Typed[Req, Res], req Req) (Res, error) {
	return op.Do(ctx, v.Call, req)
}

// isUnknown reports whether an operation did not find its subject, or may not show it.
func isUnknown(err error) bool {
	return slices.Contains([]int{http.StatusNotFound, http.StatusForbidden}, statusOf(engine.CodeOf(err))) && !errors.Is(err, context.Canceled)
}
