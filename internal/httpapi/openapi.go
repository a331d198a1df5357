package httpapi

import (
	_ "embed"
	"net/http"
)

// openapi is made from the table and the Go types by the tests of this package (-update),
// which also hold that it is not out of date.
//
//go:embed openapi.json
var openapi []byte

func (h *Handler) serveDocument(w http.ResponseWriter, r *http.Request) {
	h.write(w, r, http.StatusOK, jsonType, openapi)
}
