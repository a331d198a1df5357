package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// ConvertClientFile makes the section upstreams, as YAML, of the file in which an MCP client has
// its servers (mcpServers of most, servers of VS Code). Values of variables and headers, which are
// mostly secrets, are not copied: notes say what gavel's environment has to have instead.
func ConvertClientFile(raw []byte) (section []byte, notes []string, err error) {
	v, err := document.ReadJSON(raw, document.Limits{Bytes: 1 << 20, Lax: true})
	if err != nil {
		return nil, nil, fmt.Errorf("the client's file is not JSON: %w", err)
	}
	servers := v.Get("mcpServers")
	if servers.Kind() == 0 {
		servers = v.Get("servers")
	}
	if servers.Kind() != document.Object || servers.Len() == 0 {
		return nil, nil, errors.New(`the client's file has no servers under "mcpServers" or "servers"`)
	}
	var b bytes.Buffer
	b.WriteString("upstreams:\n")
	taken := map[string]bool{}
	for key, server := range servers.Members() {
		command, url := server.Get("command").Text(), server.Get("url").Text()
		name := serverNameOf(key.Text(), taken)
		switch {
		case strings.TrimSuffix(filepath.Base(command), ".exe") == "gavel":
			notes = append(notes, fmt.Sprintf("%s is gavel itself, and stays with the client", key.Text()))
			continue
		case command == "" && url == "":
			notes = append(notes, fmt.Sprintf("%s has neither a command nor a url, and is left out", key.Text()))
			continue
		case server.Get("type").Is("sse"):
			notes = append(notes, fmt.Sprintf("%s speaks the transport SSE of 2024, which gavel does not, and is left out", key.Text()))
			continue
		case name != key.Text():
			notes = append(notes, fmt.Sprintf("%s is called %s here", key.Text(), name))
		}
		fmt.Fprintf(&b, "  %s:\n", name)
		if url != "" {
			writeURL(&b, name, url, server, &notes)
		} else {
			writeCommand(&b, name, command, server, &notes)
		}
		b.WriteString("    allow: # everything, as before: narrow it by tool, by role and by principal\n")
		b.WriteString("      - { tools: [\"*\"], resources: [\"*\"], prompts: [\"*\"] }\n")
		taken[strings.ToLower(name)] = true
	}
	if len(taken) == 0 {
		return nil, notes, errors.New("the client's file has no server that can stand behind gavel")
	}
	return b.Bytes(), notes, nil
}

func writeCommand(b *bytes.Buffer, name, command string, server document.JSON, notes *[]string) {
	words := []string{quoteJSON(command)}
	for _, argument := range server.Get("args").Elements() {
		words = append(words, quoteJSON(argument.Text()))
	}
	fmt.Fprintf(b, "    command: [%s]\n", strings.Join(words, ", "))
	if dir := server.Get("cwd").Text(); dir != "" {
		fmt.Fprintf(b, "    directory: %s\n", quoteJSON(dir))
	}
	variables := []string{`"PATH"`, `"HOME"`, `"TMPDIR"`, `"LANG"`}
	for variable := range server.Get("env").Members() {
		variables = append(variables, quoteJSON(variable.Text()))
		*notes = append(*notes, fmt.Sprintf("%s needs the variable %s in gavel's environment, as the client's file has it", name, variable.Text()))
	}
	if len(variables) > 4 {
		fmt.Fprintf(b, "    environment: [%s]\n", strings.Join(variables, ", "))
	}
}

func writeURL(b *bytes.Buffer, name, url string, server document.JSON, notes *[]string) {
	fmt.Fprintf(b, "    url: %s\n", quoteJSON(url))
	if strings.HasPrefix(url, "http://") {
		b.WriteString("    privateNetwork: true\n")
	}
	headers := server.Get("headers")
	if headers.Len() == 0 {
		return
	}
	b.WriteString("    headers:\n")
	for header := range headers.Members() {
		variable := strings.ToUpper(strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, name+"_"+header.Text()))
		fmt.Fprintf(b, "      %s: %s\n", quoteJSON(header.Text()), quoteJSON("${"+variable+"}"))
		*notes = append(*notes, fmt.Sprintf("%s needs the value of its header %s in gavel's environment, as %s", name, header.Text(), variable))
	}
}

// serverNameOf makes the name of an upstream of a client's name for it.
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
