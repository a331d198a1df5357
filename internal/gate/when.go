package gate

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/gavel-mcp/gavel/validators/document"
)

// When selects the uses of a builtin tool that a gate covers. A use must match all fields that are set.
type When struct {
	// Programs, Args and Hosts are names in which * matches any text. Args must occur in this order, but other words
	// may come between them.
	Programs, Args, Hosts []string
	// Paths are patterns that start at the project's folder, / or ~. A pattern that matches a folder covers
	// everything in it.
	Paths []string
}

// UnknownLine is the answer to a shell line that may belong to a gate.
type UnknownLine string

// The answers for uncertain shell lines.
const (
	UnknownLineAsk   UnknownLine = "ask" // ask the person at the client; deny if there is none
	UnknownLineDeny  UnknownLine = "deny"
	UnknownLineAllow UnknownLine = "allow" // treat the line as one that does not belong to the gate
)

// whenKeys lists the keys that a "when" entry may have, by builtin tool.
var whenKeys = map[string][]string{
	BuiltinShell: {"program", "args", "path", "host"},
	BuiltinEdit:  {"path"},
	BuiltinRead:  {"path"},
	BuiltinFetch: {"host"},
}

// readBuiltin reads the keys that only gates on builtin tools have.
func readBuiltin(o *document.ObjectReader, g *Gate) {
	name, entries := o.String("name"), o.Items("when")
	g.Unknown = cmp.Or(UnknownLine(o.Enum("unknown", string(UnknownLineAsk), string(UnknownLineDeny), string(UnknownLineAllow))), UnknownLineAsk)
	keys := whenKeys[g.Tool]
	if keys == nil {
		for _, key := range []string{"name", "when", "unknown"} {
			if o.Has(key) && g.Tool != "" {
				o.Fail(o.Value(key), "%q applies only to gates on %s; a gate on another server's tool reads the tool's arguments", key, strings.Join(sortedKeys(whenKeys), ", "))
			}
		}
		return
	}
	g.Builtin = g.Tool
	if o.Has("name") {
		if !isGateName(name) {
			o.Fail(o.Value("name"), "a name must have 1 to %d lowercase letters, digits and single hyphens", maxGateName)
		}
		g.Tool += " " + name
	}
	for key, why := range map[string]string{
		"subject": "which workflow it belongs to follows from the folder or the session; see hooks.instance",
		"list":    "the client lists its own tools",
	} {
		if o.Has(key) {
			o.Fail(o.Value(key), "a gate on a builtin tool has no %q: %s", key, why)
		}
	}
	if o.Has("when") && len(entries) == 0 {
		o.Fail(o.Value("when"), `"when" needs at least one entry; without the key, the gate covers every use of %s`, g.Builtin)
	}
	for _, n := range entries {
		g.When = append(g.When, readWhen(o.Sub(n), g.Builtin, keys))
	}
}

func readWhen(o *document.ObjectReader, builtin string, keys []string) (w When) {
	all := map[string]*[]string{"program": &w.Programs, "args": &w.Args, "path": &w.Paths, "host": &w.Hosts}
	for key, list := range all {
		if !o.Has(key) {
			continue
		}
		if !slices.Contains(keys, key) {
			o.Fail(o.Value(key), "an entry for %s may have %s, but not %q", builtin, quoteWords(keys), key)
			continue
		}
		*list = o.OneOrMore(key)
		if n := o.Value(key); len(*list) == 0 && (n.Kind == document.String || n.Kind == document.Array) {
			o.Fail(n, "%q needs at least one value", key)
		}
		for i, text := range *list {
			n := o.Value(key)
			if n.Kind == document.Array && i < len(n.Items) {
				n = n.Items[i]
			}
			if problem := checkPattern(key, text); problem != "" {
				o.Fail(n, "%s", problem)
			}
		}
	}
	if node := o.Node(); node != nil && node.Kind == document.Object && len(node.Members) == 0 {
		o.Fail(node, "an entry needs at least one of %s", quoteWords(keys))
	}
	o.Unknown()
	for i, p := range w.Paths {
		w.Paths[i] = path.Clean(p)
	}
	for i, host := range w.Hosts {
		w.Hosts[i] = cleanHost(host)
	}
	return w
}

// checkPattern returns the problem of an entry's text, or "".
func checkPattern(key, text string) string {
	switch {
	case strings.TrimSpace(text) == "" || text != strings.TrimSpace(text):
		return "a pattern must not be empty or have spaces around it"
	case key == "args" && strings.ContainsAny(text, " \t"):
		return "an argument must be one word; write each as an item, [push, origin]"
	case key == "program" && strings.ContainsAny(text, `/\ `):
		return "a program is named without its folder and without arguments; write the arguments as \"args\""
	case key == "host" && (strings.ContainsAny(text, "/:@ ") || !isASCII(text)):
		return "a host is a name such as example.com or *.example.com, without scheme, port and path; one with other letters is written as xn--..."
	case key != "path":
		return ""
	case strings.HasPrefix(text, "!"):
		return "a pattern cannot be negated; name the paths that the gate covers"
	case slices.Contains(strings.Split(text, "/"), ".."):
		return "a pattern has no \"..\": it begins at the project's folder, / or ~/"
	case strings.HasPrefix(text, "~") && text != "~" && !strings.HasPrefix(text, "~/"):
		return "only ~/ is supported, the home of the agent's user; write an absolute path"
	case !doublestar.ValidatePattern(text):
		return "invalid pattern: a bracket is not closed, or it ends with a backslash"
	case bracesHaveSlash(text):
		return "the pattern has a / in braces; write a pattern for each"
	default:
		return ""
	}
}

// bracesHaveSlash reports whether a slash occurs between { and }. Such a pattern is not supported, since patterns are
// matched folder by folder.
func bracesHaveSlash(pattern string) bool {
	depth := 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			depth = max(0, depth-1)
		case '/':
			if depth > 0 {
				return true
			}
		}
	}
	return false
}

const maxGateName = 40

func isGateName(name string) bool {
	for word := range strings.SplitSeq(name, "-") {
		if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return false
		}
	}
	return len(name) <= maxGateName
}

func quoteWords(words []string) string {
	return `"` + strings.Join(words, `", "`) + `"`
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 0x7e }) < 0
}
