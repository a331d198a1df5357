package pgstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/pgstore"
)

func TestNameURL(t *testing.T) {
	t.Parallel()
	const secret = "hun:ter/2@?#%41"
	for _, c := range []struct {
		url, name string
		password  bool
	}{
		{"postgres://gavel@db:5432/gavel", "postgres://gavel@db:5432/gavel", false},
		{"postgres://", "postgres://", false},
		{"postgresql:///gavel?host=/run/postgresql", "postgresql:///gavel", false},
		{"postgres://a:1,b:2,[::1]:3/gavel?sslmode=verify-full&target_session_attrs=read-write", "postgres://a:1,b:2,[::1]:3/gavel", false},
		{"postgres://gavel:hunter2@db/gavel", "postgres://gavel@db/gavel", true},
		{"postgres://:hunter2@db/gavel", "postgres://db/gavel", true},
		{"postgres://gavel@db/gavel?password=hunter2", "postgres://gavel@db/gavel", true},
		{"postgres://gavel@db/gavel?p%61ssword=hunter2", "postgres://gavel@db/gavel", true},
		{"postgres://gavel@db/gavel?sslpassword=hunter2", "postgres://gavel@db/gavel", true},
		{"postgres://gavel@db/gavel?password=a@b", "postgres://...", true},
		{"postgres://gavel:hun:ter2@db/gavel", "postgres://gavel@db/gavel", true},
		{"postgres://gavel:hun/ter2@db/gavel", "postgres://...", true},
		{"postgres://gavel:hun@ter2@db/gavel", "postgres://...", true},
		{"postgres://gavel:hun?ter2@db/gavel", "postgres://...", true},
		{"postgres://gavel:hun#ter2@db/gavel", "postgres://...", true},
		{"postgres://gavel:hunter2", "postgres://gavel:hunter2", false}, // a port that is none; no user without an @
		{"postgres://gavel:" + secret + "@db/gavel", "postgres://...", true},
	} {
		if got := pgstore.NameURL(c.url); got != c.name {
			t.Errorf("%s is named %s, want %s", c.url, got, c.name)
		}
		if got := pgstore.HasPassword(c.url); got != c.password {
			t.Errorf("%s has a password: %v", c.url, got)
		}
		if !strings.HasPrefix(c.url, "postgres") || !pgstore.IsURL(c.url) {
			t.Errorf("%s is a URL", c.url)
		}
	}
}

// A URL whose parts are not certain is refused before a part of its password is taken for a host.
func TestOpenUncertainURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://gavel:left@right@127.0.0.1:1/gavel", "postgres://gavel:left#right@127.0.0.1:1/gavel", "postgres://gavel:left/right@127.0.0.1:1/gavel",
	} {
		_, err := pgstore.Open(t.Context(), pgstore.Config{URL: url})
		if !errors.Is(err, pgstore.ErrNoDatabase) || strings.Contains(err.Error(), "left") || strings.Contains(err.Error(), "right") || !strings.Contains(err.Error(), "%XX") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
