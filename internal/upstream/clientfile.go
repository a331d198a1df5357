package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// maxClientFile limits a client's file, in bytes. Some clients also keep their history in it.
const maxClientFile = 32 << 20

// ConvertClientFile converts an MCP client's configuration file to the section "upstreams", as YAML. It does not copy
// values of variables and headers, since most are secrets. The notes name the variables that gavel's environment
// needs instead, and settings that could not be converted.
func ConvertClientFile(raw []byte) (section []byte, notes []string, err error) {
	v, err := document.ReadJSON(blankComments(raw), document.Limits{Bytes: maxClientFile, Lax: true})
	if err != nil {
		return nil, nil, fmt.Errorf("the client's file is not JSON: %w", err)
	}
	c := clientFile{taken: map[string]bool{}}
	c.b.WriteString("upstreams:\n")
	found := false
	for _, servers := range serverMaps(v) {
		for key, server := range servers.Members() {
			found = true
			c.convert(key.Text(), server)
		}
	}
	switch {
	case !found:
		return nil, nil, errors.New(`the client's file has no servers under "mcpServers" or "servers"`)
	case len(c.taken) == 0:
		return nil, c.notes, errors.New("the client's file has no server that gavel can use as an upstream")
	}
	return c.b.Bytes(), c.notes, nil
}

// serverMaps returns the objects in which clients keep their servers. Most clients use mcpServers; Claude Code also has
// one for each project. VS Code uses servers, nested under mcp in its settings file.
func serverMaps(v document.JSON) []document.JSON {
	maps := []document.JSON{v.Get("mcpServers"), v.Get("servers"), v.At("mcp", "servers")}
	for _, project := range v.Get("projects").Members() {
		maps = append(maps, project.Get("mcpServers"))
	}
	return maps
}

// blankComments replaces the comments and trailing commas that editors allow in JSON with white space, so that errors
// keep their positions.
func blankComments(raw []byte) []byte {
	out := bytes.Clone(raw)
	comma := -1 // index of the last comma followed only by white space, or -1
	for i := 0; i < len(out); i++ {
		end := i
		switch rest := out[i:]; {
		case rest[0] == '"':
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
			comma = -1
			continue
		case bytes.HasPrefix(rest, []byte("//")):
			end = i + len(rest)
			if n := bytes.IndexByte(rest, '\n'); n >= 0 {
				end = i + n
			}
		case bytes.HasPrefix(rest, []byte("/*")):
			end = i + len(rest)
			if n := bytes.Index(rest[2:], []byte("*/")); n >= 0 {
				end = i + n + 4
			}
		case rest[0] == ',':
			comma = i
		case (rest[0] == '}' || rest[0] == ']') && comma >= 0:
			out[comma] = ' '
			comma = -1
		case !bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])):
			comma = -1
		}
		for ; i < end; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	return out
}

// clientFile is the state of one conversion.
type clientFile struct {
	b     bytes.Buffer
	notes []string
	taken map[string]bool // names in use, in lower case
}

func (c *clientFile) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

func (c *clientFile) convert(key string, server document.JSON) {
	command, address := server.Get("command").Text(), server.Get("url").Text()
	for _, member := range []string{"httpUrl", "serverUrl"} { // used by Gemini CLI and Windsurf
		if address == "" {
			address = server.Get(member).Text()
		}
	}
	name := serverNameOf(key, c.taken)
	switch {
	case isGavel(command, server.Get("args")):
		c.note("%s is gavel itself; it stays with the client", key)
		return
	case string(server.Get("disabled").Raw()) == "true":
		c.note("%s is disabled, and is left out", key)
		return
	case command == "" && address == "":
		c.note("%s has neither a command nor a url, and is left out", key)
		return
	case command == "" && (server.Get("type").Is("sse") || strings.HasSuffix(address, "/sse")):
		c.note("%s uses the HTTP+SSE transport of 2024, which gavel does not support; it is left out", key)
		return
	case name != key:
		c.note("%s is named %s here", key, name)
	}
	fmt.Fprintf(&c.b, "  %s:\n", name)
	if command == "" {
		c.writeURL(name, address, server)
	} else {
		c.writeCommand(name, command, server)
	}
	c.writeAllow(name, server)
	c.taken[strings.ToLower(name)] = true
}

// isGavel reports whether an entry starts gavel, directly or through npx.
func isGavel(command string, args document.JSON) bool {
	if strings.TrimSuffix(filepath.Base(command), ".exe") == "gavel" {
		return true
	}
	for _, arg := range args.Elements() {
		if name, _, _ := strings.Cut(arg.Text(), "@"); name == "gavel-mcp" {
			return true
		}
	}
	return false
}

// writeAllow allows what the client used before. Excluded tools cannot be expressed in allow, so they become a note.
func (c *clientFile) writeAllow(name string, server document.JSON) {
	tools, why := `["*"]`, "everything, as before"
	if included := listTexts(server.Get("includeTools")); len(included) > 0 {
		tools, why = "["+strings.Join(included, ", ")+"]", "as before"
	}
	for _, member := range []string{"excludeTools", "disabledTools"} {
		if hidden := listTexts(server.Get(member)); len(hidden) > 0 {
			c.note("%s hides tools from the client (%s): name the others in allow", name, strings.Join(hidden, ", "))
		}
	}
	fmt.Fprintf(&c.b, "    allow: # %s: narrow it by tool, by role and by principal\n", why)
	fmt.Fprintf(&c.b, "      - { tools: %s, resources: [\"*\"], prompts: [\"*\"] }\n", tools)
}

// listTexts returns the elements of an array as quoted strings.
func listTexts(v document.JSON) (out []string) {
	for _, element := range v.Elements() {
		out = append(out, quoteJSON(element.Text()))
	}
	return out
}

// noteVariables adds a note if a text refers to a variable, because gavel does not expand it.
func (c *clientFile) noteVariables(name, text string) {
	if _, rest, found := strings.Cut(text, "${"); found {
		variable, _, _ := strings.Cut(rest, "}")
		c.note("%s has ${%s}, which gavel does not expand: write its value", name, variable)
	}
}

func (c *clientFile) writeCommand(name, command string, server document.JSON) {
	words := slices.Concat([]string{quoteJSON(command)}, listTexts(server.Get("args")))
	fmt.Fprintf(&c.b, "    command: [%s]\n", strings.Join(words, ", "))
	dir := server.Get("cwd").Text()
	if dir != "" {
		fmt.Fprintf(&c.b, "    directory: %s\n", quoteJSON(dir))
	}
	for _, word := range append(words, dir) {
		c.noteVariables(name, word)
	}
	if slices.ContainsFunc(words, isSecretFlag) {
		c.note("%s has an argument that may be a secret, and arguments are copied: give it as a variable instead, or keep the file private", name)
	}
	variables := []string{`"PATH"`, `"HOME"`, `"TMPDIR"`, `"LANG"`}
	for variable := range server.Get("env").Members() {
		variables = append(variables, quoteJSON(variable.Text()))
		c.note("%s needs the variable %s in gavel's environment, with the value from the client's file", name, variable.Text())
	}
	if file := server.Get("envFile").Text(); file != "" {
		c.note("%s needs the variables of the file %s in gavel's environment, and their names in environment", name, file)
	}
	if len(variables) > 4 {
		fmt.Fprintf(&c.b, "    environment: [%s]\n", strings.Join(variables, ", "))
	}
}

func (c *clientFile) writeURL(name, address string, server document.JSON) {
	fmt.Fprintf(&c.b, "    url: %s\n", quoteJSON(address))
	c.noteVariables(name, address)
	if u, err := url.Parse(address); err == nil && (u.User != nil || secretWord.MatchString(u.RawQuery)) {
		c.note("%s has a url that may hold a secret, and it is copied: give it as a header instead, or keep the file private", name)
	}
	if isPrivate(address) {
		c.b.WriteString("    privateNetwork: true\n")
	}
	headers := server.Get("headers")
	if headers.Len() == 0 {
		return
	}
	c.b.WriteString("    headers:\n")
	for header := range headers.Members() {
		variable := strings.ToUpper(strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, name+"_"+header.Text()))
		fmt.Fprintf(&c.b, "      %s: %s\n", quoteJSON(header.Text()), quoteJSON("${"+variable+"}"))
		c.note("%s needs the value of its header %s in gavel's environment, as %s", name, header.Text(), variable)
	}
}

// secretWord matches names that usually denote secrets.
var secretWord = regexp.MustCompile(`(?i)key|token|secret|passw|auth`)

// isSecretFlag reports whether a quoted argument is a flag whose name matches secretWord, for example "--api-key".
func isSecretFlag(word string) bool {
	flag, _, _ := strings.Cut(word, "=")
	return strings.HasPrefix(flag, `"-`) && secretWord.MatchString(flag)
}

// isPrivate reports whether an address is unencrypted or in a private network.
func isPrivate(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, _ := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" || u.Hostname() == "localhost" || ip.IsLoopback() || ip.IsPrivate()
}

// serverNameOf derives a valid upstream name from a client's name for the server.
func serverNameOf(text string, taken map[string]bool) string {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	name := strings.Join(words, "-")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "mcp" + name
	}
	cut := func(max int) string { return strings.TrimRight(name[:min(len(name), max)], "-") }
	out := cut(maxServerName)
	for i := 2; taken[strings.ToLower(out)]; i++ {
		end := formatIndex(i)
		out = cut(maxServerName-len(end)) + end
	}
	return out
}
