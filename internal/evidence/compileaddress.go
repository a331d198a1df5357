package evidence

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

var (
	headerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$") })
	variable   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`) })
)

// transportHeaders are the transport's to set.
var transportHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization",
	"Proxy-Connection", "Range", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func (c *compiler) address(s Source) (*address, []string) {
	c.rejectForeignKeys("commands", map[string]bool{
		"directory": s.Directory != "", "environment": s.Environment != nil, "set": s.Set != nil,
	})
	out := &address{limit: s.MaxOutput, output: cmp.Or(s.Output, OutputJSON), accept: s.Accept}
	for i, status := range s.Accept {
		if status < 200 || status > 599 || status/100 == 3 {
			c.fail(fmt.Sprintf("/accept/%d", i), "a status that counts as fetched is 200 to 299 or 400 to 599")
		}
	}
	out.headers = c.headers(s.Headers)
	t, err := parseAddress(s.HTTP)
	if err != nil {
		c.fail("/http", "%v", err)
		return out, nil
	}
	if t.scheme == "http" && !s.PrivateNetwork {
		c.fail("/http", "http:// can be read in transit; use https://, or set privateNetwork: true")
	}
	t.patterned = map[string]bool{}
	for name, a := range s.Arguments {
		t.patterned[name] = a.Pattern != ""
	}
	out.template = t
	out.hosts = append(c.hosts(s.Hosts, t.scheme), allowedHosts(t.host, t.scheme)...)
	return out, t.arguments()
}

func (c *compiler) hosts(hosts []string, scheme string) []string {
	var out []string
	for i, h := range hosts {
		host, err := parseAuthority(h)
		if err != nil || strings.ContainsFunc(h, func(r rune) bool { return r <= ' ' || r >= 0x7F || strings.ContainsRune("/?#*{}", r) }) {
			c.fail(fmt.Sprintf("/hosts/%d", i), "a host is a name or an address, with :port where it is not the usual one, and no pattern")
			continue
		}
		out = append(out, allowedHosts(host, scheme)...)
	}
	return out
}

// allowedHosts is a host with its port; where none is given also with that of https, to
// which a redirect from http may lead.
func allowedHosts(host, scheme string) []string {
	u := url.URL{Scheme: scheme, Host: host}
	out := []string{hostPort(&u)}
	if scheme == "http" && u.Port() == "" {
		out = append(out, hostPort(&url.URL{Scheme: "https", Host: host}))
	}
	return out
}

// headers puts variables of the environment into the declared headers. Nothing of
// their values is in a message.
func (c *compiler) headers(declared map[string]string) http.Header {
	out := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		at := string(document.PointerOf("headers", name))
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !headerName().MatchString(name):
			c.fail(at, "this is not a header name")
			continue
		case slices.Contains(transportHeaders, canonical):
			c.fail(at, "this header cannot be set")
			continue
		case len(out[canonical]) > 0:
			c.fail(at, "duplicate header in another spelling; keep one")
			continue
		}
		value := c.variables(at, declared[name])
		if strings.ContainsFunc(declared[name]+value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }) {
			c.fail(at, "a header value must not contain control characters; check its variables")
		}
		if strings.Contains(declared[name], "{{") {
			c.fail(at, "headers cannot contain arguments")
		}
		out[canonical] = []string{value}
	}
	return out
}

// variables replaces ${NAME}.
func (c *compiler) variables(at, text string) string {
	if strings.Contains(variable().ReplaceAllString(text, ""), "${") {
		c.fail(at, "a variable of the environment is written ${NAME}")
		return ""
	}
	if c.lookup == nil {
		return ""
	}
	return variable().ReplaceAllStringFunc(text, func(ref string) string {
		name := ref[2 : len(ref)-1]
		value, ok := c.lookup(name)
		if !ok || value == "" {
			c.fail(at, "the environment variable %s is not set", name)
		}
		return value
	})
}
