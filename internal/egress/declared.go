package egress

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

var (
	headerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$") })
	variable   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`) })
)

// transportHeaders are headers that only the transport may set.
var transportHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization",
	"Proxy-Connection", "Range", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// Headers expands environment variables, written ${NAME}, in the headers that an operator declared. With a nil
// lookup, it only checks the form. fail receives the name of a header and a description of the problem, which never
// contains a value.
func Headers(declared map[string]string, lookup func(string) (string, bool), fail func(name, message string)) http.Header {
	out := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !headerName().MatchString(name):
			fail(name, "this is not a header name")
			continue
		case slices.Contains(transportHeaders, canonical):
			fail(name, "this header cannot be set")
			continue
		case len(out[canonical]) > 0:
			fail(name, "duplicate header in another spelling; keep one")
			continue
		}
		value := expandVariables(declared[name], lookup, func(message string) { fail(name, message) })
		if strings.ContainsFunc(declared[name]+value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }) {
			fail(name, "a header value must not contain control characters; check its variables")
		}
		if strings.Contains(declared[name], "{{") {
			fail(name, "headers cannot contain arguments")
		}
		out[canonical] = []string{value}
	}
	return out
}

// expandVariables replaces ${NAME}.
func expandVariables(text string, lookup func(string) (string, bool), fail func(message string)) string {
	if strings.Contains(variable().ReplaceAllString(text, ""), "${") {
		fail("write an environment variable as ${NAME}")
		return ""
	}
	if lookup == nil {
		return ""
	}
	return variable().ReplaceAllStringFunc(text, func(ref string) string {
		name := ref[2 : len(ref)-1]
		value, ok := lookup(name)
		if !ok || value == "" {
			fail("the environment variable " + name + " is not set")
		}
		return value
	})
}

// ParseAuthority checks the host and optional port of a declared address, and returns them in lower case.
func ParseAuthority(authority string) (string, error) {
	if strings.Contains(authority, "@") {
		return "", errors.New("the address contains credentials; put them into headers, from the environment")
	}
	u, err := url.Parse("https://" + authority + "/")
	if err != nil || u.Hostname() == "" || u.Host != authority {
		return "", errors.New("the address has no valid host")
	}
	if strings.Contains(u.Hostname(), "%") {
		return "", errors.New("the host must be a name, or an IP address without a zone")
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); strings.HasSuffix(authority, ":") || u.Port() != "" && err != nil {
		return "", errors.New("the port must be a number up to 65535")
	}
	return strings.ToLower(authority), nil
}

// RedirectHosts returns the hosts, with ports, to which an address may redirect: its own host and a list of further
// ones. fail receives the index of an invalid one.
func RedirectHosts(host, scheme string, further []string, fail func(i int, message string)) []string {
	out := withPorts(host, scheme)
	for i, h := range further {
		host, err := ParseAuthority(h)
		if err != nil || strings.ContainsFunc(h, func(r rune) bool { return r <= ' ' || r >= 0x7F || strings.ContainsRune("/?#*{}", r) }) {
			fail(i, "a host must be a name or an address, not a pattern, with :port if the port is not the default")
			continue
		}
		out = append(out, withPorts(host, scheme)...)
	}
	return out
}

// withPorts returns a host with its port. For http without a port, it also returns the https port, because http may
// redirect there.
func withPorts(host, scheme string) []string {
	u := url.URL{Scheme: scheme, Host: host}
	out := []string{HostPort(&u)}
	if scheme == "http" && u.Port() == "" {
		out = append(out, HostPort(&url.URL{Scheme: "https", Host: host}))
	}
	return out
}

// HostPort returns a URL's host and port in the form used for comparisons.
func HostPort(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port)
}
