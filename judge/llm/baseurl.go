package llm

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const completionsPath = "/chat/completions"

// NormalizeBaseURL turns a base URL as users write it into the one that
// /chat/completions is appended to.
//
// Spaces around it, trailing slashes and a final /chat/completions are dropped. A
// path that is then empty becomes what the host calls its API: /v1 for most,
// /api/v1 at OpenRouter, /openai/v1 at Groq and Azure OpenAI, /v1beta/openai at
// Gemini, nothing at DeepSeek; where nothing is known of the host, a base that is
// nothing but /chat/completions stays, for an API without /v1. Any other path is left
// alone. Without a scheme it is
// https, or http for this machine (localhost, 127.0.0.1, ::1, 0.0.0.0).
//
// It is an error when the URL carries a user, a query or a fragment (keys belong
// into the settings for keys), when the scheme is neither http nor https, and when
// it is http to a host that is neither this machine nor in a private network,
// unless private says that the network in between may be trusted. Names in private
// networks are those without a dot and those under .local, .internal and .home.arpa.
// The error never repeats the URL.
//
// The result, normalised once more, is itself.
func NormalizeBaseURL(raw string, private bool) (string, error) {
	u, err := parseBaseURL(strings.TrimSpace(raw))
	if err != nil {
		return "", fmt.Errorf("base URL: %w", err)
	}
	if u.Scheme == "http" && !private && !isLoopback(u.Hostname()) && !isPrivate(u.Hostname()) {
		return "", fmt.Errorf("base URL: http to %s would show prompts and key to everyone in between; use https, or allow http if the network can be trusted", u.Host)
	}
	path := basePath(u.EscapedPath())
	if h := hostOf(u); path == "" {
		path = h.base
		if h.name == "" && strings.Contains(u.Path, completionsPath) {
			path = completionsPath
		}
	}
	return u.Scheme + "://" + u.Host + path, nil
}

// parseBaseURL rejects everything that must not be in a base URL before it parses, so
// that no error repeats a secret.
func parseBaseURL(raw string) (*url.URL, error) {
	switch {
	case raw == "":
		return nil, errors.New("it is empty; use for example https://api.openai.com")
	case strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return nil, errors.New("it contains a space or a control character")
	case strings.Contains(raw, "?"):
		return nil, errors.New("it has a query (from ? on); drop it, and put a key into the setting for the key")
	case strings.Contains(raw, "#"):
		return nil, errors.New("it has a fragment (from # on); drop it")
	}
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		scheme, rest = "", raw
	}
	authority, _, _ := strings.Cut(rest, "/")
	if strings.Contains(authority, "@") {
		return nil, errors.New("it carries a user or password (before @); drop it, and put the key into the setting for the key")
	}
	scheme = strings.ToLower(scheme)
	if scheme != "" && scheme != "http" && scheme != "https" {
		return nil, fmt.Errorf("the scheme is %q; use https or http", scheme)
	}
	u, err := url.Parse("https://" + rest)
	if err != nil || u.Opaque != "" {
		return nil, errors.New("it is not a URL; use for example https://api.openai.com")
	}
	if err := tidyHost(u, scheme); err != nil {
		return nil, err
	}
	return u, nil
}

// tidyHost normalises scheme and host: lower case, without the scheme's own port.
func tidyHost(u *url.URL, scheme string) error {
	name, port := strings.ToLower(u.Hostname()), u.Port()
	if name == "" {
		return errors.New("it names no host; use for example https://api.openai.com")
	}
	if strings.Contains(name, "%") {
		return errors.New("the host has a % in it; name it without a zone or escapes")
	}
	u.Scheme = scheme
	if scheme == "" {
		u.Scheme = "https"
		if isLoopback(name) {
			u.Scheme = "http"
		}
	}
	if port != "" {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return errors.New("the port must be a number from 1 to 65535")
		}
		port = strconv.Itoa(n)
	}
	if u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		port = ""
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	u.Host = name
	if port != "" {
		u.Host += ":" + port
	}
	return nil
}

func basePath(path string) string {
	for {
		shorter := strings.TrimSuffix(strings.TrimRight(path, "/"), completionsPath)
		if shorter == path {
			return path
		}
		path = shorter
	}
}

// isLoopback reports whether a host is this machine; servers print 0.0.0.0 and :: for
// themselves.
func isLoopback(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.Unmap()
		return addr.IsLoopback() || addr.IsUnspecified()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isPrivate reports whether a host can only be in a private network: by its address, or
// by a name that no public registry issues (RFC 6762, RFC 8375, ICANN's .internal, and
// names of one label, such as those of containers).
func isPrivate(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsPrivate()
	}
	if slices.ContainsFunc([]string{".local", ".internal", ".home.arpa"}, func(suffix string) bool { return strings.HasSuffix(host, suffix) }) {
		return true
	}
	// A label that begins with a digit may be an address in another spelling.
	return !strings.Contains(host, ".") && host != "" && host[0] >= 'a' && host[0] <= 'z'
}
