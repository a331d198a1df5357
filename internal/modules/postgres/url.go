package postgres

import (
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// plainURL matches URLs with unambiguous parts: scheme, user, password, servers, database, settings. It does not
// match if the password contains a character that separates parts.
var plainURL = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(postgres(?:ql)?://)(?:([^:@/?#]*)(:[^@/?#]*)?@)?([A-Za-z0-9.,:_\[\]%-]*)(/[^:@/?#]*)?(\?[^@#]*)?$`)
})

// NameURL returns a URL without its password and settings, for people and logs.
func NameURL(text string) string {
	m := plainURL().FindStringSubmatch(text)
	if m == nil {
		return "postgres://..."
	}
	if m[2] != "" {
		m[2] += "@"
	}
	return m[1] + m[2] + m[4] + m[5]
}

// HasPassword reports whether a URL contains, or may contain, a password.
func HasPassword(text string) bool {
	m := plainURL().FindStringSubmatch(text)
	if m == nil || m[3] != "" {
		return true
	}
	settings, err := url.ParseQuery(strings.TrimPrefix(m[6], "?"))
	return err != nil || settings.Has("password") || settings.Has("sslpassword")
}
