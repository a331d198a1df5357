package module

import "net/http"

// Route is an address of its own that a service answers at, in the server that it runs next to.
type Route struct {
	// Pattern is one of http.ServeMux. Only callers whose credential is for events reach it.
	Pattern string
	Handler http.Handler
	// Form has problems written as the callers of the route read them, wherever they are said.
	Form func(http.ResponseWriter, *http.Request) http.ResponseWriter
}
