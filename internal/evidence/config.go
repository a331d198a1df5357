package evidence

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Defaults and limits of a source.
const (
	DefaultTimeout   = 30 * time.Second
	MaxTimeout       = 10 * time.Minute
	DefaultMaxOutput = 64 << 10
	MaxMaxOutput     = 1 << 20
)

// Section is the name of the section of the configuration file that Config is read from.
const Section = "evidence"

// Config is the section "evidence", declared by an operator.
type Config struct {
	// Sources by name: [A-Za-z0-9._-]{1,64}.
	Sources map[string]Source
	// Dir is the base of relative directories; "" is the working directory.
	Dir string

	section *document.Node // source node for messages; nil if not read from a file
}

// Output selects the form of a source's output.
type Output string

// The forms of output.
const (
	OutputText Output = "text" // text, whose middle may be omitted
	OutputJSON Output = "json" // one strict JSON value
	OutputNone Output = "none" // only the exit code or the status
)

// Argument declares one argument of a source.
type Argument struct {
	// Pattern is a Go regular expression that must match the whole value; "" allows any value.
	Pattern string `json:"pattern,omitempty"`
	// MaxLength is in bytes; 0 selects 1 KiB, and the maximum is 64 KiB.
	MaxLength int `json:"maxLength,omitempty"`
	// Optional arguments may be omitted; they are then empty.
	Optional bool `json:"optional,omitempty"`
}

// Tool is a tool of another MCP server.
type Tool struct {
	Server string // name in the section "upstreams"
	Name   string // the server's own name for it
}

// Source declares one evidence source. Exactly one of Command, HTTP, Upstream and Transcript is set.
type Source struct {
	Description string
	// ReadOnly sources may be used for a pre-check. If nil, addresses and transcripts are read-only; commands and tools are not.
	ReadOnly *bool
	// Timeout limits a fetch; the maximum is 10 minutes. 0 selects 30 seconds, which a request may extend. A request
	// can only shorten a timeout that is set here.
	Timeout time.Duration
	// MaxOutput is in bytes; 0 selects 64 KiB, and the maximum is 1 MiB.
	MaxOutput int
	// Output "" selects text for a command and JSON for an address. For a tool, it selects the structured content, or
	// its text if there is none.
	Output Output
	// Same are JSON pointers to the parts of the content that are compared to detect a change. If empty, all of it is
	// compared.
	Same []string
	// Arguments declares every {{name}} of the source, or every argument of a tool.
	Arguments map[string]Argument

	// Command is a program and its arguments.
	Command []string
	// Directory is the program's working directory; "" is Config.Dir.
	Directory string
	// Environment names variables to pass on from gavel's environment. Nil selects PATH, HOME, TMPDIR, LANG and those
	// that the system needs.
	Environment []string
	// Set holds additional variables.
	Set map[string]string
	// Background runs the command in a separate process. Its result is valid while Tree stays unchanged. The default
	// timeout is then 10 minutes.
	Background bool
	// Tree is the folder whose files the result depends on, relative to Config.Dir. "" is the git repository that
	// contains Directory, or else Directory itself.
	Tree string

	// HTTP is an address to fetch with GET.
	HTTP string
	// Headers are sent only to the address's own host. ${NAME} is a variable of gavel's environment.
	Headers map[string]string
	// Hosts lists hosts to which redirects may lead, with ":port" if it is not the scheme's default.
	Hosts []string
	// Accept lists the status codes that count as fetched; empty means 200 to 299.
	Accept []int
	// PrivateNetwork permits an address in a private network or with http://.
	PrivateNetwork bool

	// Upstream is a tool of another MCP server.
	Upstream *Tool

	// Transcript is what the agent's user said to an instance.
	Transcript bool
}

// countKinds returns how many kinds are set.
func (s Source) countKinds() (n int) {
	for _, is := range []bool{s.Command != nil, s.HTTP != "", s.Upstream != nil, s.Transcript} {
		if is {
			n++
		}
	}
	return n
}

// isReadOnly returns ReadOnly or its default.
func (s Source) isReadOnly() bool {
	if s.ReadOnly != nil {
		return *s.ReadOnly
	}
	return s.HTTP != "" || s.Transcript
}

// ParseConfig parses the section "evidence" of a configuration file; nil means that there is none. Config.Dir becomes
// the file's folder. The error is document.Errors, with one issue and its line for each mistake. ParseConfig does not
// check environment variables; New does.
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
			continue // the rest may be incomplete
		}
		c := compiler{name: m.Key, fail: func(pointer, format string, args ...any) {
			o.Fail(m.Value.Nearest(pointer), format, args...)
		}}
		c.compile(s)
	}
	o.Unknown()
	return cfg, o.Err()
}

// readSource reads a source, and reports whether all values have the right type.
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
		Transcript:     o.Bool("transcript"),
	}
	o.Unknown()
	return s, countIssues(parent) == before
}

// countIssues returns the number of issues that a reader has reported.
func countIssues(o *document.ObjectReader) int {
	all, _ := o.Err().(document.Errors) //nolint:errorlint // Err returns this type or nil
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
			o.Fail(n, "a status must be a number such as 200")
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
		o.Fail(o.Value(key), "a duration must be a number with a unit, such as 30s or 2m")
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
		o.Fail(n, "a size must be a number of bytes, or a number with a unit such as 64KiB, and at most 1MiB")
		return 0
	}
	return size * unit
}

// Issue returns an issue about a source, with its line if the source was read from a file.
func (c Config) Issue(source, pointer, format string, args ...any) *document.Issue {
	at := string(document.PointerOf("sources", source)) + pointer
	i := &document.Issue{Rule: document.RuleValue, Path: "/evidence" + at, Message: fmt.Sprintf(format, args...)}
	if n := c.section.At("sources", source); n != nil {
		n = n.Nearest(pointer)
		i.Source, i.Path, i.Line, i.Column = n.Source(), n.Path(), n.Line, n.Column
	}
	return i
}
