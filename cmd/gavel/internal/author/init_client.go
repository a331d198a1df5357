package author

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// mcpClient describes how an MCP client is configured, and what its user types.
type mcpClient struct {
	file    string // in the folder
	after   string // what to do with the file; "" if the client reads it there
	start   string // how the client is started
	prompt  string // how its user calls the prompt follow-workflow; %s is the workflow
	servers string // the member of the file that lists servers; "" for TOML
	kind    string // the transport's name, where the client wants one
	flags   []string
	// alwaysLoad keeps the tools in the prompt of a client that otherwise defers tools until its model searches for them.
	alwaysLoad bool
	strict     bool // the client reads no comments in the file
}

const anyPrompt = "Follow the workflow %s with the tools of gavel."

// MCPClients returns the configuration of each MCP client, by the client's name. A client that can show forms gets
// --elicit.
func MCPClients() map[string]mcpClient {
	return map[string]mcpClient{
		"claude-code": {
			file: ".mcp.json", start: "claude", prompt: "/mcp__gavel__follow-workflow %s", servers: "mcpServers", kind: "stdio",
			flags: []string{"--toolset", "core", "--elicit"}, alwaysLoad: true, strict: true,
		},
		"cursor": {file: ".cursor/mcp.json", start: "Cursor", prompt: anyPrompt, servers: "mcpServers", flags: []string{"--elicit"}},
		"vscode": {file: ".vscode/mcp.json", start: "VS Code", prompt: "/mcp.gavel.follow-workflow (type: %s)", servers: "servers", kind: "stdio", flags: []string{"--elicit"}},
		"claude-desktop": {
			file: "claude_desktop_config.json", after: "copy it to the folder of Claude Desktop's settings (docs/clients.md), or add its server to the file there",
			start: "Claude Desktop", prompt: anyPrompt, servers: "mcpServers",
		},
		"windsurf": {
			file: "mcp_config.json", after: "copy it to ~/.codeium/windsurf/, or add its server to the file there",
			start: "Windsurf", prompt: anyPrompt, servers: "mcpServers",
		},
		"codex": {
			file: ".codex/config.toml", after: "Codex reads it in a folder that you trust",
			start: "codex", prompt: anyPrompt, flags: []string{"--tool-names", "underscore"},
		},
	}
}

// Text returns the content of a new file that has gavel as the only server.
func (c mcpClient) Text(program string, args []string) string {
	if c.servers == "" {
		list, _ := json.Marshal(append(args, c.flags...)) // TOML and JSON strings have the same syntax here
		name, _ := json.Marshal(program)
		return fmt.Sprintf("[mcp_servers.gavel]\ncommand = %s\nargs = %s\n", name, list)
	}
	out, _ := json.MarshalIndent(map[string]any{c.servers: map[string]any{"gavel": c.server(program, args)}}, "", "  ") // strings always encode
	return string(out) + "\n"
}

func (c mcpClient) server(program string, args []string) any {
	return struct {
		Type       string   `json:"type,omitempty"`
		Command    string   `json:"command"`
		Args       []string `json:"args"`
		AlwaysLoad bool     `json:"alwaysLoad,omitempty"`
	}{c.kind, program, append(args, c.flags...), c.alwaysLoad}
}

// add returns a file of the client with gavel as an additional server. Everything else stays as it is, comments
// included. A file that has a server of this name is returned unchanged.
func (c mcpClient) add(text []byte, program string, args []string) ([]byte, error) {
	if c.servers == "" {
		return nil, errors.New("gavel does not edit TOML")
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return []byte(c.Text(program, args)), nil
	}
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "hujson: "))
	}
	root, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, errors.New("it is not a JSON object")
	}
	indent := indentOf(root)
	if v.Find("/"+c.servers) == nil {
		if err := addMember(&v, "", c.servers, "{}", "", indent); err != nil {
			return nil, err
		}
	}
	if v.Find("/"+c.servers+"/gavel") != nil {
		return text, nil
	}
	server, _ := json.MarshalIndent(c.server(program, args), indent+indent, indent) // strings always encode
	if err := addMember(&v, "/"+c.servers, "gavel", string(server), indent, indent+indent); err != nil {
		return nil, err
	}
	return v.Pack(), nil
}

// describe returns the purpose of the client's file, and what its user has to do with it.
func (c mcpClient) describe(name string) string {
	about := "how " + name + " starts gavel"
	if c.after != "" {
		about += ": " + c.after
	}
	return about
}

// clientEdit is the change of a client's file.
type clientEdit struct {
	client        mcpClient
	path          string
	before, after []byte // before is nil if there is no file; after is nil if gavel cannot edit the file
}

// isDone reports whether nothing changes.
func (e clientEdit) isDone() bool { return e.after == nil || bytes.Equal(e.before, e.after) }

// print reports the change to the file, or the text to add by hand.
func (e clientEdit) print(con *cli.Console, program string, args []string) {
	switch {
	case e.after == nil:
		con.Out.Printf("\n%s already exists; add this to it:\n", e.client.file)
		con.Out.Text(e.client.Text(program, args))
	case e.isDone():
		con.Out.Printf("\n%s already has a server named gavel; it was not changed\n", e.client.file)
	default:
		con.Out.Printf("\n%s was changed:\n", e.client.file)
		con.Out.Text(cli.ShowDiff(e.client.file, e.before, e.after))
	}
	if e.client.strict && e.after != nil && !json.Valid(e.after) {
		con.Err.Printf("%s has comments or trailing commas, so %s may ignore it: remove them\n", e.client.file, e.client.start)
	}
}

// edit reads the client's file in a folder and adds gavel as a server. It writes nothing.
func (c mcpClient) edit(folder, program string, args []string) (e clientEdit, err error) {
	e = clientEdit{client: c, path: filepath.Join(folder, filepath.FromSlash(c.file))}
	e.before, err = os.ReadFile(e.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.before, e.after = nil, []byte(c.Text(program, args))
		return e, nil
	case err != nil:
		return e, term.UsageErrorf("", "nothing was written: cannot read %s: %w", c.file, err)
	case c.servers == "":
		return e, nil
	}
	if e.after, err = c.add(e.before, program, args); err != nil {
		return e, term.UsageErrorf("fix the file, or move it away", "nothing was written: %s cannot be read: %w", c.file, err)
	}
	return e, nil
}

// replaceAll writes the edited files: all of them, or none.
func replaceAll(edits []clientEdit) error {
	for i, e := range edits {
		if e.isDone() {
			continue
		}
		if err := cli.ReplaceFile(e.path, e.before, e.after); err != nil {
			for _, done := range edits[:i] {
				if !done.isDone() {
					err = errors.Join(err, cli.ReplaceFile(done.path, done.after, done.before))
				}
			}
			return err
		}
	}
	return nil
}

// indentOf returns the white space before the members of a file's root.
func indentOf(root *hujson.Object) string {
	for _, m := range root.Members {
		if before := string(m.Name.BeforeExtra); strings.Contains(before, "\n") {
			return before[strings.LastIndex(before, "\n")+1:]
		}
	}
	return "  "
}

// addMember adds a member to the object at a pointer, on a line of its own after the others. outer is the white space
// before the line with the object's closing brace.
func addMember(v *hujson.Value, at, name, value, outer, indent string) error {
	found := v.Find(at)
	o, ok := found.Value.(*hujson.Object)
	if !ok {
		return fmt.Errorf("%s is not a JSON object", strings.TrimPrefix(at, "/"))
	}
	if err := v.Patch(fmt.Appendf(nil, `[{"op": "add", "path": %q, "value": %s}]`, at+"/"+name, value)); err != nil {
		return err //nolint:wrapcheck // it names the place; the caller names the file
	}
	m := &o.Members[len(o.Members)-1]
	before := strings.TrimRight(string(m.Name.BeforeExtra), " \t")
	m.Name.BeforeExtra = hujson.Extra(strings.TrimSuffix(before, "\n") + "\n" + indent)
	m.Value.BeforeExtra = hujson.Extra(" ")
	if !bytes.Contains(o.AfterExtra, []byte("\n")) {
		o.AfterExtra = hujson.Extra("\n" + outer)
	}
	return nil
}
