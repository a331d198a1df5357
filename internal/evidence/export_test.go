package evidence

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"time"

	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Rewire makes the public transport of a Manager trust roots, resolve names with resolver, and dial the tests'
// addresses, which are all private. It changes nothing else.
func Rewire(m *Manager, roots *x509.CertPool, resolver *net.Resolver, exempt ...string) {
	for _, g := range []*egress.Guard{m.public, m.private} {
		g.Transport().TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		g.Resolver = resolver
		g.Exempt = map[netip.AddrPort]bool{}
		for _, e := range exempt {
			g.Exempt[netip.MustParseAddrPort(e)] = true
		}
	}
}

// Clean converts a program's output to text.
var Clean = cleanOutput

// Captured writes chunks to a capture and returns its text.
func Captured(limit int, chunks ...[]byte) (text string, truncated bool) {
	c := newCapture(limit)
	for _, chunk := range chunks {
		c.Write(chunk)
	}
	return c.text()
}

// ExpandURL expands an address template.
func ExpandURL(template string, values map[string]string) (url, problem string, err error) {
	a, err := parseAddress(template)
	if err != nil {
		return "", "", err
	}
	u, problem := a.expand(values)
	if problem != "" {
		return "", problem, nil
	}
	return u.String(), "", nil
}

// ExpandArgv expands the templates of a command.
func ExpandArgv(argv []string, values map[string]string) (out []string, problem string, err error) {
	templates := make([]template, len(argv))
	for i, text := range argv {
		if templates[i], err = parseTemplate(text); err != nil {
			return nil, "", err
		}
	}
	out, problem = expandArgv(templates, values)
	return out, problem, nil
}

// CheckValue returns the problem of a text as a template argument, or "".
func CheckValue(value string) string {
	given, err := document.ReadJSON([]byte(`{"a":`+string(document.AppendQuote(nil, value))+`}`), document.Limits{})
	if err != nil || given.Get("a").Text() != value {
		return "it is no Unicode"
	}
	problem := parameter{maxLength: defaultMaxLength}.check(given.Get("a"))
	if problem == "" {
		_, problem = templateValues(given)
	}
	return problem
}

// Bound returns the time limit of a fetch.
func Bound(m *Manager, source string, asked time.Duration) time.Duration {
	return m.sources[source].limitTimeout(asked)
}

// Tests wait only where they set a deadline.
func init() { backgroundWait = time.Millisecond }

// Counts reports whether an outcome that ended at a given time is valid.
func Counts(ended time.Time, failure judge.EvidenceFailure, sameTree bool, maxAge time.Duration, now time.Time) bool {
	o := outcome{Tree: "sha256:a", Ended: ended, Failure: failure}
	return o.isValid(map[bool]string{true: "sha256:a", false: "sha256:b"}[sameTree], maxAge, now)
}
