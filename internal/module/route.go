package module

import "net/http"

// Route is a service's additional route in the server that it runs next to.
type Route struct {
	// Pattern is an http.ServeMux pattern. Only callers whose credential is for events can reach it.
	Pattern string
	Handler http.Handler
	// Form wraps the response writer so that problems are written in the format of the route's callers, wherever
	// they occur.
	Form func(http.ResponseWriter, *http.Request) http.ResponseWriter
}
