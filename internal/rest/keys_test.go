package rest_test

import (
	"net/http"
	"testing"
)

// TestUnsupportedIdempotencyKeysAreRefused checks that an Idempotency-Key is never ignored.
func TestUnsupportedIdempotencyKeysAreRefused(t *testing.T) {
	a := newAPI(t)
	a.ask(operator, "POST /v1/definitions", paper).is(http.StatusCreated)
	at := "/v1/instances/" + a.start(agent)
	for _, c := range []struct{ what, body string }{
		{"POST " + at + "/validate", `{"action":"submit"}`},
		{"POST /v1/definitions", paper},
		{"PUT /v1/definitions/paper", paper},
		{"PATCH /v1/definitions/paper/judge", `{"enabled":true}`},
	} {
		a.ask(operator, c.what, c.body, "Idempotency-Key", "k").is(http.StatusBadRequest)
		a.ask(operator, c.what, c.body, "Idempotency-Key", "").is(http.StatusBadRequest)
	}
	a.ask(agent, "GET "+at, "", "Idempotency-Key", "k").is(http.StatusOK) // reading twice is harmless
	a.ask(agent, "POST "+at+"/cancel", `{}`, "Idempotency-Key", "k").is(http.StatusOK)
}
