package module

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Site is a module's web site on a server. It identifies its visitors itself.
type Site struct {
	// Path begins the path of each of its pages: "/console/". ReviewPath begins that of a review, whose id follows.
	Path, ReviewPath string
	Open             func(SiteHost) (http.Handler, error)
}

// SiteHost is the server of a Site.
type SiteHost struct {
	Log *slog.Logger
	// Pages are the pages of all modules.
	Pages []Page
	// Gate identifies visitors by their credential.
	Gate *auth.Gate
	// Call returns what the operations of a visitor run with.
	Call func(auth.Identity) operation.Call
	// AcquireStream takes one of a principal's event streams. ok is false if it has too many.
	AcquireStream func(principal string) (leave func(), ok bool)
	// Limit returns a handler with the server's limits for authenticated callers: their rate, and their requests in
	// flight. Requests have an identity in their context.
	Limit func(http.Handler) http.Handler
	// IsSecure reports whether visitors reach the server by HTTPS, possibly through a proxy.
	IsSecure func(*http.Request) bool
	// Exchange returns the credential for a link that was sent to a visitor, once; nil if visitors have tokens.
	Exchange func(link string) (bearer string, ok bool)
	// Connect is the configuration with which an MCP client reaches this server or store.
	Connect string
	// Warnings returns what makes decisions unsafe now.
	Warnings func(context.Context) []Warning
	// Models are the configured models.
	Models []string
	// StoreName is the store as people know it.
	StoreName string
}

// Warning tells an operator what makes decisions unsafe, and what to do.
type Warning struct {
	// Name identifies the warning: letters and hyphens.
	Name string
	// Text is a sentence, Next what to do; both are plain text.
	Text, Next string
}

// Place is where a site shows a Page.
type Place string

// The places. A page in the menu has its own address; the others are parts of a page of the site.
const (
	InMenu       Place = "menu"
	InInstance   Place = "instance"
	InDecision   Place = "decision"
	InDefinition Place = "definition"
	// Nowhere is for pages that other pages link to.
	Nowhere Place = ""
)

// Page is a page of a Site, or a part of one, that a module adds. It asks operations; it decides nothing.
type Page struct {
	// Path is the address below the site's path, a pattern of http.ServeMux: "runs/{id}". A part's actions and files
	// are below its Path too.
	Path, Title string
	Place       Place
	// Order sorts the menu, and the parts of a page.
	Order int
	// Needs is a right without which visitors do not see the page; "" for none.
	Needs engine.Right
	// Templates is html/template text that defines a template for each name in Regions. A region that shows nothing is
	// hidden; the others follow one another and are updated separately. They get a View of the site, with what Load
	// returned in its field Data. Inside a region, elements with an id are updated one by one.
	//
	// Functions: text and short show text from outside, json a document; when, ago, took, percent and count show
	// figures; id shortens an id, and path builds an address. outcome, assured, layer and refusal put a decision into
	// words; changes compares two documents; dict builds the data of a template; right names a right for .May.
	// Templates: verdict gets an outcome, changes gets a comparison, csrf gets the View and belongs into every form.
	Templates string
	Regions   []string
	// Load returns the data; nil hides the page (as a part) or answers that it does not exist.
	Load func(context.Context, Visit) (any, error)
	// Follow limits the events after which the page is loaded again; nil follows all that the visitor may see.
	Follow func(Visit) engine.TailRequest
	// Actions handle its forms, by the last part of the form's address. A message is shown on the page; next, if not "",
	// is another page to show, below the site's path.
	Actions map[string]func(context.Context, Visit) (next, message string, err error)
	// Answers handle forms that change nothing, by the last part of the form's address. The page is shown again with the
	// answer in the field Answer of its View, and with what was typed in Form.
	Answers map[string]func(context.Context, Visit) (answer any, err error)
	// Files are downloads, by the last part of their address.
	Files map[string]func(context.Context, Visit) (File, error)
}

// File is a download.
type File struct {
	Name, Type string
	Content    []byte
}

// Visit is one request of a page.
type Visit struct {
	// Call performs the visitor's operations.
	Call operation.Call
	// Path returns a part of the address by its name in Page.Path.
	Path func(name string) string
	// Values are the query of a page, or the fields of a form.
	Values url.Values
}

// Pages returns the pages of all extensions.
func (all Extensions) Pages() (pages []Page) {
	for _, x := range all {
		pages = append(pages, x.Pages...)
	}
	return pages
}

// Sites returns the sites of all extensions.
func (all Extensions) Sites() (sites []Site) {
	for _, x := range all {
		if x.Site != nil {
			sites = append(sites, *x.Site)
		}
	}
	return sites
}

// ReviewBase returns the beginning of the address of a review's page on a server at an address; "" if it has no site.
func (all Extensions) ReviewBase(address string) string {
	for _, site := range all.Sites() {
		return address + site.ReviewPath
	}
	return ""
}

// Warnings returns the warnings of all extensions.
func (all Extensions) Warnings(ctx context.Context) (warnings []Warning) {
	for _, x := range all {
		if x.Warnings != nil {
			warnings = append(warnings, x.Warnings(ctx)...)
		}
	}
	return warnings
}
