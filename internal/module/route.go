package module

import (
	"net/http"
)

// Route is an additional route of gavel serve.
type Route struct {
	// Pattern is an http.ServeMux pattern. Only callers whose credential is for events can reach it.
	Pattern string
	Handler http.Handler
	// Form wraps the response writer so that problems are written in the format of the route's callers, wherever
	// they occur.
	Form func(http.ResponseWriter, *http.Request) http.ResponseWriter
}

// Routes holds the routes of all extensions.
type Routes struct {
	mux       *http.ServeMux
	byPattern map[string]Route
}

// Routes returns the routes of every extension.
func (all Extensions) Routes() Routes {
	r := Routes{http.NewServeMux(), map[string]Route{}}
	for _, x := range all {
		for _, route := range x.Routes {
			r.mux.Handle(route.Pattern, route.Handler)
			r.byPattern[route.Pattern] = route
		}
	}
	return r
}

// Mount adds all routes to a mux.
func (r Routes) Mount(mux *http.ServeMux) {
	for pattern, route := range r.byPattern {
		mux.Handle(pattern, route.Handler)
	}
}

// Has reports whether a request matches one of the routes.
func (r Routes) Has(req *http.Request) bool {
	_, ok := r.find(req)
	return ok
}

// Form returns a response writer that writes problems in the format of the matching route's callers.
func (r Routes) Form(w http.ResponseWriter, req *http.Request) http.ResponseWriter {
	if route, ok := r.find(req); ok && route.Form != nil {
		return route.Form(w, req)
	}
	return w
}

func (r Routes) find(req *http.Request) (Route, bool) {
	_, pattern := r.mux.Handler(req)
	route, ok := r.byPattern[pattern]
	return route, ok
}
