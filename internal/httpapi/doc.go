// Package httpapi is gavel's REST face: /v1 in JSON, /openapi.json, and events as they
// happen.
//
// It promises that routes, the served OpenAPI document and the reference page come from
// one table; that a request with anything in it that nobody reads is refused and not
// half understood; that documents keep the digits that their numbers were written with;
// that a refused or parked move is an answer (200 with the decision), and only what could
// not be decided is a problem (RFC 9457) with the stable code of the error. A retry with
// the same Idempotency-Key is answered and not repeated, an If-Match that is not true any
// more changes nothing, and a stream of events that is taken up again loses and doubles
// none.
//
// It must never decide about rights or rules, find out itself who calls (that is
// internal/auth's, which stands before it; nobody is refused), or show the text of an
// unknown error.
package httpapi
