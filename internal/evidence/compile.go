package evidence

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// source is a valid, compiled Source.
type source struct {
	parameters map[string]parameter
	readOnly   bool
	timeout    time.Duration
	stretches  bool // a request may ask for more time
	detaches   bool // fetches limit their time themselves
	same       []document.Pointer
	kind       kind
}

type kind interface {
	// prepare inserts the arguments of a request, or returns the problem with them.
	prepare(r judge.EvidenceRequest, given document.JSON) (fetch fetch, problem string)
	// warnings returns problems that exist now and may be fixed later.
	warnings() []string
}

// fetch fetches once. It returns FailureTimeout when its context ends. The error is that of judge.Fetcher.
type fetch func(context.Context) (judge.FetchResult, error)

// compiler checks one source. fail receives a pointer into the source. After a call of fail, the result of compile
// must not be used.
type compiler struct {
	name string
	dir  string // absolute; "" if only the form is checked
	// lookup returns an environment variable; nil if only the form is checked.
	lookup func(string) (string, bool)
	fail   func(pointer, format string, args ...any)
}

func (c *compiler) compile(s Source) *source {
	if !sourceName().MatchString(c.name) {
		c.fail("", "a source's name must have 1 to 64 letters, digits, dots, dashes and underscores")
	}
	out := &source{
		parameters: c.parameters(s.Arguments),
		readOnly:   s.isReadOnly(),
		timeout:    cmp.Or(s.Timeout, DefaultTimeout),
		stretches:  s.Timeout == 0,
		detaches:   s.Background,
	}
	if s.Background {
		out.timeout = cmp.Or(s.Timeout, MaxTimeout)
	}
	if out.timeout < 0 || out.timeout > MaxTimeout {
		c.fail("/timeout", "a timeout must be greater than 0 and at most 10m")
	}
	s.MaxOutput = cmp.Or(s.MaxOutput, DefaultMaxOutput)
	if s.MaxOutput < 0 || s.MaxOutput > MaxMaxOutput {
		c.fail("/maxOutput", "a size must be greater than 0 and at most 1MiB")
	}
	if !slices.Contains([]Output{"", OutputText, OutputJSON, OutputNone}, s.Output) {
		c.fail("/output", "the output must be text, json or none")
	}
	for i, text := range s.Same {
		p, err := parsePointer(text)
		if err != nil {
			c.fail(fmt.Sprintf("/same/%d", i), "%v", err)
		}
		out.same = append(out.same, p)
	}
	var used []string
	switch {
	case s.countKinds() != 1:
		c.fail("", `a source needs exactly one of "command", "http", "upstream" and "transcript: true"`)
		return out
	case s.Upstream != nil:
		out.kind = c.tool(s)
		return out // all arguments belong to the tool
	case s.Transcript:
		out.kind = c.transcript(s)
	case s.HTTP != "":
		out.kind, used = c.address(s)
	default:
		var k *command
		k, used = c.command(s)
		if out.kind = k; s.Background {
			out.kind = c.background(s, k)
		} else if s.Tree != "" {
			c.fail("/tree", `"tree" applies only to commands with background: true`)
		}
	}
	c.checkUsage(s.Arguments, used)
	return out
}

// commandKeys and addressKeys report which of the keys for only one kind of source are set.
func (s Source) commandKeys() map[string]bool {
	return map[string]bool{"directory": s.Directory != "", "environment": s.Environment != nil, "set": s.Set != nil, "background": s.Background, "tree": s.Tree != ""}
}

func (s Source) addressKeys() map[string]bool {
	return map[string]bool{"headers": s.Headers != nil, "hosts": s.Hosts != nil, "accept": s.Accept != nil, "privateNetwork": s.PrivateNetwork}
}

func (c *compiler) parameters(arguments map[string]Argument) map[string]parameter {
	out := map[string]parameter{}
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		a, at := arguments[name], string(document.PointerOf("arguments", name))
		if !isArgumentName(name) {
			c.fail(at, "an argument's name must have at most 64 letters, digits and underscores, and not begin with a digit")
		}
		p := parameter{maxLength: cmp.Or(a.MaxLength, defaultMaxLength), optional: a.Optional}
		if p.maxLength < 0 || p.maxLength > maxMaxLength {
			c.fail(at+"/maxLength", "an argument may have at most %d bytes", maxMaxLength)
		}
		if a.Pattern != "" {
			var err error
			if p.pattern, err = wholePattern(a.Pattern); err != nil {
				c.fail(at+"/pattern", "the pattern is not a Go regular expression (RE2)")
			}
		}
		out[name] = p
	}
	return out
}

// checkUsage compares declared and used arguments. A name on only one side is a mistake.
func (c *compiler) checkUsage(declared map[string]Argument, used []string) {
	slices.Sort(used)
	for _, name := range slices.Compact(slices.Clone(used)) {
		if _, ok := declared[name]; !ok {
			c.fail("", `the argument {{%s}} is not declared; add it to "arguments"`, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if !slices.Contains(used, name) {
			c.fail(string(document.PointerOf("arguments", name)), "the argument is declared but not used")
		}
	}
}

// rejectForeignKeys reports keys that belong to another kind of source.
func (c *compiler) rejectForeignKeys(what string, keys map[string]bool) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if keys[key] {
			c.fail("/"+key, "%q applies only to %s", key, what)
		}
	}
}

func (c *compiler) command(s Source) (*command, []string) {
	c.rejectForeignKeys("addresses", s.addressKeys())
	out := &command{limit: s.MaxOutput, output: cmp.Or(s.Output, OutputText)}
	var used []string
	for i, text := range s.Command {
		t, err := parseTemplate(text)
		at := fmt.Sprintf("/command/%d", i)
		switch {
		case err != nil:
			c.fail(at, "%v", err)
		case strings.Contains(text, "\x00"):
			c.fail(at, "an argument of a command must not contain NUL")
		case i == 0 && !t.isFixed():
			c.fail(at, "an argument must not choose the program")
		case !t.isFixed():
			if problem := explainCode(s.Command[:i], t, hasPatterns(t, s.Arguments)); problem != "" {
				c.fail(at, "%s", problem)
			}
		}
		out.argv = append(out.argv, t)
		used = append(used, t.arguments()...)
	}
	if len(s.Command) == 0 || s.Command[0] == "" {
		c.fail("/command", "a command must begin with a program")
	}
	process.CheckEnvironment(s.Environment, s.Set, func(key string, token any, message string) {
		c.fail(string(document.PointerOf(key, fmt.Sprint(token))), "%s", message)
	})
	if c.lookup != nil {
		out.resolveDirectory(c.name, c.dir, s.Directory)
		out.env = process.Environment(s.Environment, s.Set, c.lookup)
	}
	return out, used
}

func (c *compiler) background(s Source, k *command) *background {
	out := &background{command: k, name: c.name, tree: s.Tree, lookup: c.lookup}
	if s.Tree == "" || c.lookup == nil {
		return out
	}
	if !filepath.IsAbs(out.tree) {
		out.tree = filepath.Join(c.dir, out.tree)
	}
	if info, err := os.Stat(out.tree); err != nil || !info.IsDir() {
		k.warns = append(k.warns, fmt.Sprintf("evidence source %q: the tree %s does not exist", c.name, out.tree))
	}
	return out
}

// hasPatterns reports whether every argument of a template has a pattern.
func hasPatterns(t template, declared map[string]Argument) bool {
	return !slices.ContainsFunc(t.arguments(), func(name string) bool { return declared[name].Pattern == "" })
}

func (c *compiler) address(s Source) (*address, []string) {
	c.rejectForeignKeys("commands", s.commandKeys())
	out := &address{limit: s.MaxOutput, output: cmp.Or(s.Output, OutputJSON), accept: s.Accept}
	for i, status := range s.Accept {
		if status < 200 || status > 599 || status/100 == 3 {
			c.fail(fmt.Sprintf("/accept/%d", i), "an accepted status must be 200 to 299 or 400 to 599")
		}
	}
	out.headers = egress.Headers(s.Headers, c.lookup, func(name, message string) {
		c.fail(string(document.PointerOf("headers", name)), "%s", message)
	})
	t, err := parseAddress(s.HTTP)
	if err != nil {
		c.fail("/http", "%v", err)
		return out, nil
	}
	if t.scheme == "http" && !s.PrivateNetwork {
		c.fail("/http", "http:// is not encrypted; use https://, or set privateNetwork: true")
	}
	t.patterned = map[string]bool{}
	for name, a := range s.Arguments {
		t.patterned[name] = a.Pattern != ""
	}
	out.template = t
	out.hosts = egress.RedirectHosts(t.host, t.scheme, s.Hosts, func(i int, message string) {
		c.fail(fmt.Sprintf("/hosts/%d", i), "%s", message)
	})
	return out, t.arguments()
}

func (c *compiler) tool(s Source) *tool {
	c.rejectForeignKeys("addresses", s.addressKeys())
	c.rejectForeignKeys("commands", s.commandKeys())
	if s.Output == OutputNone {
		c.fail("/output", "the output of a tool must be text or json")
	}
	return &tool{Tool: *s.Upstream, limit: s.MaxOutput, output: s.Output}
}
