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

// NormalizeBaseURL converts a base URL, as users write it, to the form to which /chat/completions is
// appended:
//
//   - Surrounding spaces, trailing slashes and a final /chat/completions are removed.
//   - A path that is then empty becomes the path of the host's API. That is /v1 for most hosts, /api/v1 for
//     OpenRouter, /openai/v1 for Groq and Azure OpenAI, /v1beta/openai for Gemini, none for DeepSeek. If
//     the host is unknown and the whole path was /chat/completions, that path stays, for APIs without /v1.
//     Any other path is kept.
//   - Without a scheme, the URL gets https, or http for this machine (localhost, 127.0.0.1, ::1, 0.0.0.0).
//
// It fails in these cases; the error never contains the URL:
//
//   - The URL contains a user, a query or a fragment (keys belong in the setting for the key).
//   - The scheme is neither http nor https.
//   - The scheme is http and the host is neither this machine nor in a private network. Names in private networks are
//     those without a dot and those under .local, .internal and .home.arpa. Set private to allow http in any trusted
//     network.
//
// The function is idempotent.
func NormalizeBaseURL(raw string, private bool) (string, error) {
	u, err := parseBaseURL(strings.TrimSpace(raw))
	if err != nil {
		return "", fmt.Errorf("base URL: %w", err)
	}
	if u.Scheme == "http" && !private && !isLoopback(u.Hostname()) && !isPrivate(u.Hostname()) {
		return "", fmt.Errorf("base URL: http to %s would expose prompts and key to everyone in between; use https, or allow http if the network can be trusted", u.Host)
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

// parseBaseURL rejects everything that a base URL must not contain before it parses the URL, so that no error
// repeats a secret.
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
		return nil, errors.New("it contains a user or password (before @); remove it, and put the key into the setting for the key")
	}
	scheme = strings.ToLower(scheme)
	if scheme != "" && scheme != "http" && scheme != "https" {
		return nil, fmt.Errorf("the scheme is %q; use https or http", scheme)
	}
	u, err := url.Parse("https://" + rest)
	if err != nil || u.Opaque != "" {
		return nil, errors.New("it is not a URL; use for example https://api.openai.com")
	}
	if err := normalizeHost(u, scheme); err != nil {
		return nil, err
	}
	return u, nil
}

// normalizeHost normalises scheme and host: lower case, and no port that is the scheme's default.
func normalizeHost(u *url.URL, scheme string) error {
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

// isLoopback reports whether a host is this machine. That includes 0.0.0.0 and ::, which servers print as
// their own address.
func isLoopback(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.Unmap()
		return addr.IsLoopback() || addr.IsUnspecified()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isPrivate reports whether a host can only be in a private network, by its address or its name. Such names
// are not issued by public registries: those of RFC 6762 and RFC 8375, ICANN's .internal, and single labels,
// such as the names of containers.
func isPrivate(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsPrivate()
	}
	if slices.ContainsFunc([]string{".local", ".internal", ".home.arpa"}, func(suffix string) bool { return strings.HasSuffix(host, suffix) }) {
		return true
	}
	// A label that begins with a digit may be an unusual spelling of an address.
	return !strings.Contains(host, ".") && host != "" && host[0] >= 'a' && host[0] <= 'z'
}
