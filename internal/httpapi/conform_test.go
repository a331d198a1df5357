package httpapi_test

import (
	"net/http"
	"testing"
)

func conforms(t testing.TB, r *http.Request, a answer) { t.Helper() }
