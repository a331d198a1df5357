package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/internal/modules/postgres"
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
		{"postgres://gavel:hunter2", "postgres://gavel:hunter2", false}, // not a valid port; no user without an @
		{"postgres://gavel:" + secret + "@db/gavel", "postgres://...", true},
	} {
		if got := postgres.NameURL(c.url); got != c.name {
			t.Errorf("%s is named %s, want %s", c.url, got, c.name)
		}
		if got := postgres.HasPassword(c.url); got != c.password {
			t.Errorf("%s has a password: %v", c.url, got)
		}
		if !strings.HasPrefix(c.url, "postgres") || driver.Find(c.url) == nil {
			t.Errorf("%s is a URL", c.url)
		}
	}
}

// An ambiguous URL is rejected before a part of its password could be used as a host.
func TestOpenUncertainURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://gavel:left@right@127.0.0.1:1/gavel", "postgres://gavel:left#right@127.0.0.1:1/gavel", "postgres://gavel:left/right@127.0.0.1:1/gavel",
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if !errors.Is(err, postgres.ErrBadURL) || strings.Contains(err.Error(), "left") || strings.Contains(err.Error(), "right") || !strings.Contains(err.Error(), "%XX") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// The error names what is invalid. For a URL with a password, it repeats nothing of the URL.
func TestOpenBadURL(t *testing.T) {
	t.Parallel()
	const port, mode = "its port, or PGPORT, is not a number from 1 to 65535", "its sslmode, or PGSSLMODE, must be disable, allow, prefer, require, verify-ca or verify-full"
	for _, c := range []struct{ url, says string }{
		{"postgres://gavel@db:99999/gavel", port},
		{"postgres://gavel@db:0/gavel", port},
		{"postgres://gavel:hunter2@db:x/gavel", port},
		{"postgres://a:1,b:x/gavel", port},
		{"postgres://gavel@db/gavel?sslmode=maybe", mode},
		{"postgres://gavel:hunter2@db/gavel?sslmode=maybe", mode},
		{"postgres://gavel:hunter2@db/gavel?target_session_attrs=maybe", "it cannot be read"},
		{"postgres://gavel@db/gavel?sslrootcert=/nowhere", "postgres://gavel@db/gavel: unable to read CA file"},
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: c.url})
		if !errors.Is(err, postgres.ErrBadURL) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "maybe") {
			t.Errorf("%s: %v, want %s", c.url, err, c.says)
		}
	}
}
