package evidence

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// The bounds of a source.
const (
	DefaultTimeout   = 30 * time.Second
	MaxTimeout       = 10 * time.Minute
	DefaultMaxOutput = 64 << 10
	MaxMaxOutput     = 1 << 20
)

// Config is what an operator declares.
type Config struct {
	// Sources by name: [A-Za-z0-9._-]{1,64}.
	Sources map[string]Source
	// Dir is where relative directories begin; "" is the working directory.
	Dir string

	section *document.Node // where it was read from, for messages; nil when nowhere
}

// Output says what a source gives.
type Output string

// The forms of output.
const (
	OutputText Output = "text" // what was written, as text; the middle may be left out
	OutputJSON Output = "json" // one strict JSON value
	OutputNone Output = "none" // nothing but the exit code or the status
)

// Argument is what a source asks of one argument.
type Argument struct {
	// Pattern is a Go regular expression that the whole value must match; "" is any.
	Pattern string `json:"pattern,omitempty"`
	// MaxLength in bytes; 0 is 1 KiB, 64 KiB is the most.
	MaxLength int `json:"maxLength,omitempty"`
	// Optional arguments need not be asked with, and are empty then.
	Optional bool `json:"optional,omitempty"`
}

// Tool is a tool of another MCP server.
type Tool struct {
	Server string // its name in the section upstreams
	Name   string // as the server says it
}

// Source is one thing that can be asked: Command, HTTP or Upstream is set, and only one of them.
type Source struct {
	Description string
	// ReadOnly sources may be asked for a pre-check. nil: an address is, a command and a tool are
	// not.
	ReadOnly *bool
	// Timeout is how long a fetch may take, at most 10 minutes. 0 is 30 seconds, which
	// a request may lengthen; one that is set here it can only shorten.
	Timeout time.Duration
	// MaxOutput is how many bytes are taken; 0 is 64 KiB, 1 MiB is the most.
	MaxOutput int
	// Output is "" for text of a command, JSON of an address, and of a tool its structured content
	// or, where it has none, its text.
	Output Output
	// Same are JSON pointers to the parts of the content that say whether two results
	// are the same; none is all of it.
	Same []string
	// Arguments declares every {{name}} of the source, or every argument that a tool is given.
	Arguments map[string]Argument

	// Command is a program and its arguments.
	Command []string
	// Directory is where it runs, "" is Config.Dir.
	Directory string
	// Environment names what is passed on of gavel's own; nil is PATH, HOME, TMPDIR,
	// LANG and what the system needs.
	Environment []string
	// Set are further variables.
	Set map[string]string
	// Background has the command run in a process of its own, whose result counts while Tree stays as
	// it is. Without a Timeout it may take 10 minutes.
	Background bool
	// Tree is the folder whose files the result depends on, relative to Config.Dir; "" is the git
	// repository that Directory is in, or Directory.
	Tree string

	// HTTP is an address that is read with GET.
	HTTP string
	// Headers are sent to the address's own host only. ${NAME} is a variable of gavel's
	// environment.
	Headers map[string]string
	// Hosts to which redirects may lead, with ":port" where it is not the scheme's own.
	Hosts []string
	// Accept are the statuses that count as fetched; none is 200 to 299.
	Accept []int
	// PrivateNetwork lets the address lead into private networks, and be http://.
	PrivateNetwork bool

	// Upstream is a tool of another MCP server.
	Upstream *Tool
}

// countKinds counts what the source is.
func (s Source) countKinds() (n int) {
	for _, is := range []bool{s.Command != nil, s.HTTP != "", s.Upstream != nil} {
		if is {
			n++
		}
	}
	return n
}

// isReadOnly is ReadOnly with its default.
func (s Source) isReadOnly() bool {
	if s.ReadOnly != nil {
		return *s.ReadOnly
	}
	return s.HTTP != ""
}

// ParseConfig reads the section "evidence" of a configuration file; nil is a section
// without sources. Config.Dir becomes the folder of the file. The error is
// document.Errors, one issue for each mistake, with its line. Variables of the
// environment are New's to look up.
func ParseConfig(section *document.Node) (Config, error) {
	cfg := Config{Sources: map[string]Source{}, section: section}
	if section == nil {
		return cfg, nil
	}
	if name := section.Source(); name != "" {
		cfg.Dir = filepath.Dir(name)
	}
	o := document.NewObject(section)
	for _, m := range o.Entries("sources") {
		s, ok := readSource(o, m.Value)
		cfg.Sources[m.Key] = s
		if !ok {
			continue // what could not be read need not make sense
		}
		c := compiler{name: m.Key, fail: func(pointer, format string, args ...any) {
			o.Fail(m.Value.Nearest(pointer), format, args...)
		}}
		c.compile(s)
	}
	o.Unknown()
	return cfg, o.Err()
}

// readSource reads the values of a source; it says whether all of them have the right
// type.
func readSource(parent *document.ObjectReader, n *document.Node) (Source, bool) {
	before := countIssues(parent)
	o := parent.Sub(n)
	s := Source{
		Description:    o.String("description"),
		ReadOnly:       o.BoolPtr("readOnly"),
		Timeout:        readTimeout(o, "timeout"),
		MaxOutput:      readSize(o, "maxOutput"),
		Output:         Output(o.Enum("output", string(OutputText), string(OutputJSON), string(OutputNone))),
		Same:           o.Strings("same"),
		Arguments:      readArguments(o, "arguments"),
		Command:        o.Strings("command"),
		Directory:      o.String("directory"),
		Environment:    o.Strings("environment"),
		Set:            o.StringMap("set"),
		Background:     o.Bool("background"),
		Tree:           o.String("tree"),
		HTTP:           o.String("http"),
		Headers:        o.StringMap("headers"),
		Hosts:          o.Strings("hosts"),
		Accept:         readStatuses(o, "accept"),
		PrivateNetwork: o.Bool("privateNetwork"),
		Upstream:       readTool(o, "upstream"),
	}
	o.Unknown()
	return s, countIssues(parent) == before
}

// countIssues counts what a reader has reported.
func countIssues(o *document.ObjectReader) int {
	all, _ := o.Err().(document.Errors) //nolint:errorlint // Err promises this very type
	return len(all)
}

func readArguments(o *document.ObjectReader, key string) map[string]Argument {
	var out map[string]Argument
	for _, m := range o.Entries(key) {
		a := o.Sub(m.Value)
		arg := Argument{Pattern: a.String("pattern"), Optional: a.Bool("optional")}
		if n := a.IntPtr("maxLength"); n != nil {
			if arg.MaxLength = *n; *n <= 0 {
				o.Fail(a.Value("maxLength"), "a length must be greater than 0")
			}
		}
		a.Unknown()
		if out == nil {
			out = map[string]Argument{}
		}
		out[m.Key] = arg
	}
	return out
}

func readTool(parent *document.ObjectReader, key string) *Tool {
	if !parent.Has(key) {
		return nil
	}
	o := parent.Object(key)
	o.Require("server", "tool")
	t := &Tool{Server: o.String("server"), Name: o.String("tool")}
	o.Unknown()
	return t
}

func readStatuses(o *document.ObjectReader, key string) []int {
	var out []int
	for _, n := range o.Items(key) {
		status, err := strconv.Atoi(n.Text)
		if n.Kind != document.Number || err != nil {
			o.Fail(n, "a status is a number such as 200")
			continue
		}
		out = append(out, status)
	}
	return out
}

func readTimeout(o *document.ObjectReader, key string) time.Duration {
	if !o.Has(key) {
		return 0
	}
	d, err := time.ParseDuration(o.String(key))
	if err != nil || d <= 0 {
		o.Fail(o.Value(key), "a duration is a number and its unit, such as 30s or 2m")
	}
	return d
}

func readSize(o *document.ObjectReader, key string) int {
	n := o.Value(key)
	if n == nil {
		return 0
	}
	text, unit := n.Text, 1
	if n.Kind == document.String {
		if s, ok := strings.CutSuffix(text, "KiB"); ok {
			text, unit = s, 1<<10
		} else if s, ok := strings.CutSuffix(text, "MiB"); ok {
			text, unit = s, 1<<20
		}
	}
	size, err := strconv.Atoi(strings.TrimSpace(text))
	if n.Kind != document.String && n.Kind != document.Number || err != nil || size <= 0 || size > MaxMaxOutput/unit {
		o.Fail(n, "a size is a whole number of bytes, or one with its unit, such as 64KiB or 1MiB, and at most 1MiB")
		return 0
	}
	return size * unit
}

// Issue says what is wrong with a source, at its line where it was read from a file.
func (c Config) Issue(source, pointer, format string, args ...any) *document.Issue {
	at := string(document.PointerOf("sources", source)) + pointer
	i := &document.Issue{Rule: document.RuleValue, Path: "/evidence" + at, Message: fmt.Sprintf(format, args...)}
	if n := c.section.At("sources", source); n != nil {
		n = n.Nearest(pointer)
		i.Source, i.Path, i.Line, i.Column = n.Source(), n.Path(), n.Line, n.Column
	}
	return i
}
