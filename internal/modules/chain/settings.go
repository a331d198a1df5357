package chain

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// DefaultRetention is how long ended runs are kept by default.
const DefaultRetention = 30 * 24 * time.Hour

// DefaultOpenRuns is how many runs a principal may have open by default.
const DefaultOpenRuns = 100

// Settings are the section chains of a configuration file.
type Settings struct {
	// Definitions are files, folders and patterns of definitions.
	Definitions []string
	// Repeatable lists the repeatable tools, as SERVER/TOOL.
	Repeatable []string
	// Writers maps servers to the tools that write their resources.
	Writers map[string]Writer
	// State is the file or database of the runs; "" means next to the store.
	State string
	// Retention is how long ended runs are kept.
	Retention time.Duration
	// Lease is how long a server that shares a database may be silent before others take over its runs.
	Lease time.Duration
	// OpenRuns is how many runs a principal may have open.
	OpenRuns int
	// RunAs is the principal that scheduled runs act for, or nil if none is configured.
	RunAs *engine.Principal
	// ActingChains are patterns of chains whose runs act for RunAs, regardless of their starter.
	ActingChains []string
}

// ParseSettings parses the section "chains" of a configuration file. Relative paths start in the file's
// folder. The error is document.Errors, with one issue for each mistake. Without the section the Settings
// are nil.
func ParseSettings(section *document.Node) (*Settings, error) {
	if section == nil {
		return nil, nil //nolint:nilnil // no chains is a valid result
	}
	o := document.NewObject(section)
	o.Require("definitions")
	s := &Settings{
		Definitions: o.OneOrMore("definitions"), State: o.String("state"),
		Retention: readDuration(o, "retention", DefaultRetention, time.Hour, math.MaxInt64, "a duration of at least 1h, such as 720h"),
		Lease:     readDuration(o, "lease", DefaultLease, time.Second, 10*time.Minute, "a duration from 1s to 10m, such as 15s"),
	}
	dir := filepath.Dir(section.Source())
	for i, path := range s.Definitions {
		s.Definitions[i] = locate(dir, path)
	}
	if s.State != "" && !strings.Contains(s.State, "://") {
		s.State = locate(dir, s.State)
	}
	for _, n := range o.Items("repeatable") {
		server, tool, found := strings.Cut(n.Text, "/")
		switch {
		case n.Kind != document.String || !found || server == "" || tool == "":
			o.Fail(n, `"repeatable" lists tools as SERVER/TOOL, such as "vision/navigate"`)
		case slices.Contains(s.Repeatable, n.Text):
			o.Fail(n, "duplicate tool %q; remove one", n.Text)
		default:
			s.Repeatable = append(s.Repeatable, n.Text)
		}
	}
	s.Writers = readWriters(o)
	s.OpenRuns = DefaultOpenRuns
	s.RunAs, s.ActingChains = readRunAs(o)
	if n := o.IntPtr("openRuns"); n != nil {
		if s.OpenRuns = *n; *n < 1 {
			o.Fail(o.Value("openRuns"), `"openRuns" is a number of runs, at least 1`)
		}
	}
	o.Unknown()
	return s, o.Err()
}

// maxPrincipal is the maximum length of a principal's name in bytes, as in tokens.
const maxPrincipal = 200

// ActsFor returns the principal that started runs of a chain act for, or false if they act for their
// starter.
func (s *Settings) ActsFor(chain string) (engine.Principal, bool) {
	if s.RunAs == nil || !(engine.Principal{Workflows: strings.Join(s.ActingChains, " ")}).InScope(chain) || len(s.ActingChains) == 0 {
		return engine.Principal{}, false
	}
	return *s.RunAs, true
}

// UnusedPatterns returns the patterns in ActingChains that match no chain.
func (s *Settings) UnusedPatterns(chains map[string]*Definition) []string {
	return slices.DeleteFunc(slices.Clone(s.ActingChains), func(pattern string) bool {
		for name := range chains {
			if (engine.Principal{Workflows: pattern}).InScope(name) {
				return true
			}
		}
		return false
	})
}

// readRunAs parses the principal that scheduled runs act for, an agent with a scope of workflows, and the
// other chains that act for it.
func readRunAs(o *document.ObjectReader) (p *engine.Principal, chains []string) {
	if o.Value("runAs") == nil {
		return nil, nil
	}
	as := o.Object("runAs")
	as.Require("principal")
	p = &engine.Principal{ID: as.String("principal"), Role: engine.RoleAgent}
	switch {
	case as.Value("principal") == nil: // missing or not a text, which is reported elsewhere
	case p.ID == "" || len(p.ID) > maxPrincipal || script.Clean(p.ID, maxPrincipal) != p.ID:
		as.Fail(as.Value("principal"), `"principal" is a name of at most %d bytes without control characters`, maxPrincipal)
	case strings.HasPrefix(strings.ToLower(p.ID), "local:"), strings.HasPrefix(p.ID, "gavel:"):
		as.Fail(as.Value("principal"), "the name %q is reserved for programs on this machine; choose another name for the schedules", p.ID)
	}
	p.Workflows = strings.Join(readPatterns(as, "workflows", "leave it out for all workflows and chains", "chain.nightly-*"), " ")
	chains = readPatterns(as, "chains", "leave it out if only schedules act for the principal", "nightly-*")
	as.Unknown()
	return p, chains
}

func readPatterns(o *document.ObjectReader, key, none, example string) []string {
	patterns := o.OneOrMore(key)
	if n := o.Value(key); n != nil && len(patterns) == 0 {
		o.Fail(n, "%q is empty; %s", key, none)
	}
	if slices.ContainsFunc(patterns, func(pattern string) bool { return len(strings.Fields(pattern)) != 1 }) {
		o.Fail(o.Value(key), "%q lists names, with * for any run of characters, such as %q", key, example)
	}
	return patterns
}

func locate(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func readDuration(o *document.ObjectReader, key string, absent, least, longest time.Duration, rule string) time.Duration {
	text := o.StringPtr(key)
	if text == nil {
		return absent
	}
	d, err := time.ParseDuration(*text)
	if err != nil || d < least || d > longest {
		o.Fail(o.Value(key), "%q is %s", key, rule)
	}
	return d
}

// readWriters parses the tools that write resources.
func readWriters(o *document.ObjectReader) map[string]Writer {
	out := map[string]Writer{}
	all := o.Object("writers")
	if all.Node() == nil {
		return out
	}
	for _, server := range all.Node().Keys() {
		w := all.Object(server)
		if w.Node() == nil {
			continue // not an object, which is reported elsewhere
		}
		w.Require("tool", "uri", "data")
		out[server] = Writer{Tool: w.String("tool"), URI: w.String("uri"), Data: w.String("data")}
		if w.Has("data") && out[server].URI == out[server].Data {
			w.Fail(w.Node(), `"uri" and "data" must name two different arguments of the tool`)
		}
		w.Unknown()
	}
	return out
}

// Writer returns the tool that writes the resources of a server.
func (s *Settings) Writer(server string) (w Writer, ok bool) {
	if s != nil {
		w, ok = s.Writers[server]
	}
	return w, ok
}

// IsRepeatable reports whether the operator declared a tool repeatable.
func (s *Settings) IsRepeatable(server, tool string) bool {
	return s != nil && slices.Contains(s.Repeatable, server+"/"+tool)
}
