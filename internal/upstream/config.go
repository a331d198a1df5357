package upstream

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Default timeouts of an upstream.
const (
	DefaultConnectTimeout = 30 * time.Second
	DefaultListTimeout    = 30 * time.Second
	DefaultCallTimeout    = 60 * time.Second
	DefaultIdleTimeout    = 10 * time.Minute
	maxTimeout            = time.Hour
)

// Session selects which callers share a session with an upstream.
type Session string

// The session modes.
const (
	SessionShared    Session = "shared"    // one session for all callers
	SessionPrincipal Session = "principal" // one session for each principal
)

// Pinning selects the definitions that an upstream's items are compared with.
type Pinning string

// The pinning modes.
const (
	PinningFile     Pinning = "file"      // the file written by gavel upstream pin
	PinningFirstUse Pinning = "first-use" // the definitions seen by this process's first session
)

// Protocol selects the version of MCP for an upstream.
type Protocol string

// The protocol modes.
const (
	ProtocolAuto       Protocol = "auto"       // initialize, or ModernVersion if the server rejects that
	ProtocolInitialize Protocol = "initialize" // versions with initialize, up to 2025-11-25
	ProtocolModern     Protocol = ModernVersion
)

// Config is the section "upstreams", declared by an operator.
type Config struct {
	// Servers by name. A name has letters and digits with single dashes between them, and starts with a letter.
	Servers map[string]Server
	// Dir is the base of relative directories; "" is the working directory.
	Dir string

	section *document.Node // source node for messages; nil if not read from a file
}

// Server configures one upstream. Exactly one of Command and URL is set.
type Server struct {
	// Command is a program and its arguments.
	Command []string
	// Directory is the program's working directory; "" is Config.Dir.
	Directory string
	// Environment names variables to pass on from gavel's environment. Nil selects PATH, HOME, TMPDIR, LANG and those
	// that the system needs.
	Environment []string
	// Set holds additional variables.
	Set map[string]string

	// URL is the endpoint of a streamable HTTP server.
	URL string
	// Headers are sent only to the URL's own host. ${NAME} is a variable of gavel's environment.
	Headers map[string]string
	// Hosts lists hosts to which redirects may lead, with ":port" if it is not the scheme's default.
	Hosts []string
	// PrivateNetwork permits a URL in a private network or with http://.
	PrivateNetwork bool

	Session  Session
	Pinning  Pinning
	Protocol Protocol
	// Allow lists who may use which items. Without a rule, nothing is allowed.
	Allow []Rule

	// ConnectTimeout, ListTimeout and CallTimeout limit the start of a session, a list and a call. Progress restarts
	// the call's timeout. IdleTimeout ends an unused session. None may be 0.
	ConnectTimeout, ListTimeout, CallTimeout, IdleTimeout time.Duration
}

// Rule allows some callers to use some of an upstream's items. In patterns, * matches any sequence of characters.
type Rule struct {
	Tools     []string // names, as the upstream defines them
	Resources []string // URIs of resources, and URI templates
	Prompts   []string // names, as the upstream defines them
	// Roles to which the rule applies; empty means all.
	Roles []engine.Role
	// Principals to which the rule applies, as patterns; empty means all.
	Principals []string
}

// allRoles are the roles that a rule may name.
var allRoles = []string{string(engine.RoleAgent), string(engine.RoleReviewer), string(engine.RoleOperator), string(engine.RoleAuditor)}

// Section is the section of the configuration file that declares servers.
const Section = "upstreams"

// ParseConfig parses the section "upstreams" of a configuration file; nil means that there is none. Config.Dir
// becomes the file's folder. The error is document.Errors, with one issue and its line for each mistake. ParseConfig
// does not check environment variables and pins; Open does.
func ParseConfig(section *document.Node) (Config, error) {
	cfg := Config{Servers: map[string]Server{}, section: section}
	if section == nil {
		return cfg, nil
	}
	if name := section.Source(); name != "" {
		cfg.Dir = filepath.Dir(name)
	}
	o := document.NewObject(section)
	names := map[string]string{}
	for _, m := range section.Members {
		s := readServer(o, m.Key)
		cfg.Servers[m.Key] = s
		switch other, twice := names[strings.ToLower(m.Key)]; {
		case !isServerName(m.Key):
			o.Fail(m.Value, "the name of an upstream is 1 to %d letters and digits with single dashes between them, and begins with a letter", maxServerName)
		case twice:
			o.Fail(m.Value, "the name differs from %q only in case; rename one, because clients could mix them up", other)
		}
		names[strings.ToLower(m.Key)] = m.Key
	}
	return cfg, o.Err()
}

const maxServerName = 24

var serverName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*$`) })

func isServerName(name string) bool {
	return len(name) <= maxServerName && serverName().MatchString(name)
}

func readServer(parent *document.ObjectReader, key string) Server {
	before := len(issuesOf(parent))
	o := parent.Object(key)
	s := Server{
		Command:        o.Strings("command"),
		Directory:      o.String("directory"),
		Environment:    o.Strings("environment"),
		Set:            o.StringMap("set"),
		URL:            o.String("url"),
		Headers:        o.StringMap("headers"),
		Hosts:          o.Strings("hosts"),
		PrivateNetwork: o.Bool("privateNetwork"),
		Session:        Session(o.Enum("session", string(SessionShared), string(SessionPrincipal))),
		Pinning:        Pinning(o.Enum("pinning", string(PinningFile), string(PinningFirstUse))),
		Protocol:       Protocol(o.Enum("protocol", string(ProtocolAuto), string(ProtocolInitialize), string(ProtocolModern))),
		ConnectTimeout: readTimeout(o, "connectTimeout", DefaultConnectTimeout),
		ListTimeout:    readTimeout(o, "listTimeout", DefaultListTimeout),
		CallTimeout:    readTimeout(o, "callTimeout", DefaultCallTimeout),
		IdleTimeout:    readTimeout(o, "idleTimeout", DefaultIdleTimeout),
	}
	for _, n := range o.Items("allow") {
		s.Allow = append(s.Allow, readRule(o, n))
	}
	o.Unknown()
	if len(issuesOf(parent)) > before {
		return s // the rest may be incomplete
	}
	checkServer(s, func(pointer, format string, args ...any) {
		o.Fail(o.Node().Nearest(pointer), format, args...)
	}, nil)
	return s
}

// issuesOf returns the issues that a reader has reported.
func issuesOf(o *document.ObjectReader) document.Errors {
	all, _ := o.Err().(document.Errors) //nolint:errorlint // Err returns this type or nil
	return all
}

func readTimeout(o *document.ObjectReader, key string, usual time.Duration) time.Duration {
	if !o.Has(key) {
		return usual
	}
	d, err := time.ParseDuration(o.String(key))
	if err != nil || d <= 0 || d > maxTimeout {
		o.Fail(o.Value(key), "a duration is a number and its unit, such as 30s or 2m, and at most 1h")
		return usual
	}
	return d
}

func readRule(parent *document.ObjectReader, n *document.Node) Rule {
	o := parent.Sub(n)
	r := Rule{Tools: o.Strings("tools"), Resources: o.Strings("resources"), Prompts: o.Strings("prompts"), Principals: o.Strings("principals")}
	for i, role := range o.Strings("roles") {
		if !slices.Contains(allRoles, role) {
			o.Fail(n.Nearest(fmt.Sprintf("/roles/%d", i)), "unknown role %q; the roles are %s", role, strings.Join(allRoles, ", "))
		}
		r.Roles = append(r.Roles, engine.Role(role))
	}
	if o.Unknown(); len(r.Tools)+len(r.Resources)+len(r.Prompts) == 0 {
		o.Fail(n, `the rule allows nothing; name "tools", "resources" or "prompts" ("*" is all)`)
	}
	for key, list := range map[string][]string{"tools": r.Tools, "resources": r.Resources, "prompts": r.Prompts, "principals": r.Principals} {
		for i, pattern := range list {
			if pattern == "" {
				o.Fail(n.Nearest(fmt.Sprintf("/%s/%d", key, i)), "an empty pattern matches nothing")
			}
		}
	}
	return r
}

// checkServer checks one server. If lookup is nil, it does not look up variables. fail receives a JSON pointer into the
// server's object.
func checkServer(s Server, fail func(pointer, format string, args ...any), lookup func(string) (string, bool)) {
	foreign := func(what string, keys map[string]bool) {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if keys[key] {
				fail("/"+key, "%q applies only to %s", key, what)
			}
		}
	}
	switch {
	case (s.Command != nil) == (s.URL != ""):
		fail("", `an upstream needs either "command" or "url"`)
	case s.URL != "":
		foreign("commands", map[string]bool{"directory": s.Directory != "", "environment": s.Environment != nil, "set": s.Set != nil})
		checkURL(s, fail, lookup)
	default:
		foreign("URLs", map[string]bool{"headers": s.Headers != nil, "hosts": s.Hosts != nil, "privateNetwork": s.PrivateNetwork})
		if len(s.Command) == 0 || s.Command[0] == "" {
			fail("/command", "a command begins with a program")
		}
		for i, text := range s.Command {
			if strings.Contains(text, "\x00") {
				fail(fmt.Sprintf("/command/%d", i), "an argument of a command must not contain NUL")
			}
		}
		process.CheckEnvironment(s.Environment, s.Set, func(key string, token any, message string) {
			fail(string(document.PointerOf(key, fmt.Sprint(token))), "%s", message)
		})
	}
}

func checkURL(s Server, fail func(pointer, format string, args ...any), lookup func(string) (string, bool)) {
	egress.Headers(s.Headers, lookup, func(name, message string) {
		fail(string(document.PointerOf("headers", name)), "%s", message)
	})
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "" {
		fail("/url", "the URL must begin with https:// (or http://, in a private network)")
		return
	}
	if u.User != nil || u.Fragment != "" {
		fail("/url", "the URL has credentials or a fragment; put credentials into headers, from the environment")
		return
	}
	if _, err := egress.ParseAuthority(u.Host); err != nil {
		fail("/url", "%v", err)
		return
	}
	if u.Scheme == "http" && !s.PrivateNetwork {
		fail("/url", "http:// is not encrypted; use https://, or set privateNetwork: true")
	}
	egress.RedirectHosts(u.Host, u.Scheme, s.Hosts, func(i int, message string) { fail(fmt.Sprintf("/hosts/%d", i), "%s", message) })
}

// issue returns an issue about a server, with its line if the server was read from a file.
func (c Config) issue(server, pointer, format string, args ...any) *document.Issue {
	i := &document.Issue{Rule: document.RuleValue, Path: "/upstreams" + string(document.PointerOf(server)) + pointer, Message: fmt.Sprintf(format, args...)}
	if n := c.section.Get(server); n != nil {
		n = n.Nearest(pointer)
		i.Source, i.Path, i.Line, i.Column = n.Source(), n.Path(), n.Line, n.Column
	}
	return i
}
