package listen

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// problem is a refusal in the form of RFC 9457. It never contains text sent by the caller.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Code is stable.
	Code string `json:"code"`

	retryAfter int  // in seconds
	closing    bool // the connection is no longer usable
}

// The refusals of a listener.
var (
	badPath      = newRefusal(http.StatusBadRequest, "bad_path", "The path is not in canonical form: no empty, . or .. segments, no encoded slashes, no control characters.")
	badMethod    = newRefusal(http.StatusMethodNotAllowed, "method_not_allowed", "This server does not support the method.")
	badVersion   = closeConnection(newRefusal(http.StatusHTTPVersionNotSupported, "version_not_supported", "Use HTTP/1.1, or HTTP/2 over TLS."))
	badHost      = newRefusal(http.StatusForbidden, "host_not_allowed", "This server does not serve the requested host. The operator can allow it (--allow-host).")
	badOrigin    = newRefusal(http.StatusForbidden, "origin_not_allowed", "This web page may not call this server. The operator can allow its origin (--allow-origin).")
	bigHeader    = closeConnection(newRefusal(http.StatusRequestHeaderFieldsTooLarge, "header_too_large", "There are too many headers, or they are too large."))
	longAddress  = closeConnection(newRefusal(http.StatusRequestURITooLong, "address_too_long", "The address is too long."))
	bigBody      = closeConnection(newRefusal(http.StatusRequestEntityTooLarge, "body_too_large", "The body is too large."))
	slowBody     = closeConnection(newRefusal(http.StatusRequestTimeout, "body_too_slow", "The body did not arrive in time."))
	brokenBody   = closeConnection(newRefusal(http.StatusBadRequest, "body_broken", "The body is incomplete, or its chunks are malformed."))
	badEncoding  = closeConnection(newRefusal(http.StatusUnsupportedMediaType, "encoding_not_supported", "Send the body without Content-Encoding."))
	tooManyConns = closeConnection(busyProblem("The server has too many connections. Try again later."))
	tooMany      = busyProblem("The server has too many requests in flight. Try again later.")
	tooManyFlows = busyProblem("The server has too many event streams open. Try again later.")
	failed       = newRefusal(http.StatusInternalServerError, "internal", "Internal error. The server log has the details.")
)

func newRefusal(status int, code, detail string) problem {
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func busyProblem(detail string) problem {
	p := newRefusal(http.StatusServiceUnavailable, "overloaded", detail)
	p.retryAfter = 1
	return p
}

func closeConnection(p problem) problem {
	p.closing = true
	return p
}

// WriteProblem answers with a problem. Callers must not put any part of the request into detail.
func WriteProblem(w http.ResponseWriter, status int, code, detail string) {
	newRefusal(status, code, detail).write(w)
}

func (p problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: strings and numbers only
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Del("Content-Encoding")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.closing {
		h.Set("Connection", "close")
	}
	if p.Status == http.StatusMethodNotAllowed {
		h.Set("Allow", methodList)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the caller may be gone
}
