package listen

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
)

// FuzzHost checks that a host taken for this machine is the same host when an address is parsed with net/url, and
// that a listed name is never part of another.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"localhost", "LOCALHOST.:80", "127.0.0.1:4285", "[::1]:1", "[::ffff:127.0.0.1]", "[::ffff:127.0.0.1.]", "localhost@evil", "evil#localhost", "[::1", "::1", "127.1", "localhost:80:80", "[::1%25lo]", "localhost\x00", "[127.0.0.0]", "[localhost]:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host := hostOf(s)
		if !loopbackName(host) {
			return
		}
		bracketed := s
		if isAddress(s) && strings.Contains(s, ":") {
			bracketed = "[" + s + "]" // only valid in brackets as the host of an address
		}
		u, err := url.Parse("http://" + bracketed + "/")
		if err != nil || u.User != nil || strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) != host {
			t.Errorf("%q is taken for %q; net/url: %v %v", s, host, u, err)
		}
	})
}

// FuzzPath checks that an accepted path stays the same when it is cleaned or decoded once more.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "/a/b/", "/a%20b", "/a/../b", "/%2e%2e/", "//", "/a%2fb", "/a%252fb", "/a;b", "/a\\b", "/ä", "/%ff", "*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.ParseRequestURI(s)
		if err != nil || !plainPath(&http.Request{Method: http.MethodGet, URL: u}) {
			return
		}
		if cleaned := path.Clean(u.Path); cleaned != u.Path && cleaned+"/" != u.Path {
			t.Errorf("%q passes, and cleaned it is %q", s, cleaned)
		}
		if again, err := url.PathUnescape(u.Path); err != nil || again != u.Path {
			t.Errorf("%q passes, and decoded once more it is %q, %v", s, again, err)
		}
		if strings.Count(u.EscapedPath(), "/") != strings.Count(u.Path, "/") {
			t.Errorf("%q passes with a hidden slash", s)
		}
	})
}
