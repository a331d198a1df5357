package author

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

// InitCommand creates a workflow with its tests and settings.
type InitCommand struct {
	Folder   string `arg:"" optional:"" default:"." name:"folder" help:"The folder to write to. It is created if missing."`
	Template string `name:"template" default:"document-review" placeholder:"NAME" help:"The workflow to start from: document-review (the default), answer, bugfix, release or careful-ops."`
	Client   string `name:"client" enum:"claude-code,claude-desktop,cursor,vscode,windsurf,codex" default:"claude-code" placeholder:"NAME" help:"The MCP client to write the configuration for: claude-code (the default), claude-desktop, cursor, vscode, windsurf or codex."`
}

// InitSettings is the content of gavel.yaml. Its paths are relative to its folder, wherever the client starts gavel.
const InitSettings = `# The settings of gavel. gavel config check gavel.yaml checks them, gavel config print --config gavel.yaml shows all.
definitions: flows
store: .workflows/gavel.db
# A move that needs a person waits for one: gavel review list --config gavel.yaml shows it.
`

// mcpClient describes how to configure a server in an MCP client.
type mcpClient struct {
	file  string // in the folder
	where string // what to do with the file; "" if the client reads it itself
	Text  func(program string, args []string) string
}

// MCPClients returns the configuration file of each MCP client, by the client's name.
func MCPClients() map[string]mcpClient {
	servers := func(key, kind string) func(string, []string) string {
		return func(program string, args []string) string {
			server := struct {
				Type    string   `json:"type,omitempty"`
				Command string   `json:"command"`
				Args    []string `json:"args"`
			}{kind, program, args}
			out, _ := json.MarshalIndent(map[string]any{key: map[string]any{"gavel": server}}, "", "  ") // strings always encode
			return string(out) + "\n"
		}
	}
	toml := func(program string, args []string) string {
		list, _ := json.Marshal(append(args, "--tool-names", "underscore")) // TOML and JSON strings have the same syntax here
		name, _ := json.Marshal(program)
		return fmt.Sprintf("[mcp_servers.gavel]\ncommand = %s\nargs = %s\n", name, list)
	}
	return map[string]mcpClient{
		"claude-code":    {".mcp.json", "", servers("mcpServers", "stdio")},
		"cursor":         {".cursor/mcp.json", "", servers("mcpServers", "")},
		"vscode":         {".vscode/mcp.json", "", servers("servers", "stdio")},
		"claude-desktop": {"claude_desktop_config.json", "copy it to the folder of Claude Desktop's settings (docs/clients.md), or add its server to the file there", servers("mcpServers", "")},
		"windsurf":       {"mcp_config.json", "copy it to ~/.codeium/windsurf/, or add its server to the file there", servers("mcpServers", "")},
		"codex":          {"codex.toml", "add it to ~/.codex/config.toml", toml},
	}
}

type newFile struct{ path, text, about string }

// Run writes the files of a template.
func (c *InitCommand) Run(con *cli.Console) error {
	folder, err := filepath.Abs(c.Folder)
	if err != nil {
		return term.UsageErrorf("", "cannot find the folder %s: %w", c.Folder, err)
	}
	files, err := readTemplate(c.Template, findProject(folder))
	if err != nil {
		return err
	}
	hooks := slices.ContainsFunc(files, func(f newFile) bool { return f.path == SettingsFile })
	program, err := os.Executable()
	if err != nil {
		return term.UnknownErrorf("", "cannot find the gavel program: %w", err)
	}
	to := MCPClients()[c.Client]
	snippet := to.Text(program, []string{"mcp", "--config", filepath.Join(folder, SettingsFile)})
	about := "how " + c.Client + " starts gavel"
	if to.where != "" {
		about += ": " + to.where
	}
	if ignore := ".workflows/.gitignore"; !cli.IsFile(filepath.Join(folder, ignore)) {
		files = append(files, newFile{ignore, "*\n", "keeps the store out of git"})
	}
	if !hooks {
		files = append(files, newFile{SettingsFile, InitSettings, "settings: paths of the workflows and the store"})
	}
	_, missing := os.Lstat(filepath.Join(folder, filepath.FromSlash(to.file)))
	if missing != nil {
		files = append(files, newFile{to.file, snippet, about})
	}
	if err := writeNewFiles(folder, files); err != nil {
		return err
	}
	rows := [][]string{}
	for _, f := range files {
		rows = append(rows, []string{f.path, f.about})
	}
	con.Out.Table(rows)
	if missing == nil {
		con.Out.Printf("\n%s already exists; add this to it:\n", to.file)
		con.Out.Text(snippet)
	}
	next := "gavel try flows/" + c.Template + ".yaml"
	if hooks {
		next = cmp.Or(module.NextStep(c.Client, SettingsFile), next)
	}
	con.Out.Printf("\nNext, in %s: gavel test flows; %s; then start the client.\n", folder, next)
	return nil
}

// writeNewFiles writes files into a folder. If any of them exists already, it writes none.
func writeNewFiles(folder string, files []newFile) error {
	var there []string
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(folder, filepath.FromSlash(f.path))); err == nil {
			there = append(there, f.path)
		}
	}
	if len(there) > 0 {
		return term.UsageErrorf("choose another folder, or move the files away", "nothing was written: %s already in %s", isOrAre(there), folder)
	}
	for _, f := range files {
		to := filepath.Join(folder, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // the usual mode of a project's folders
			return term.UsageErrorf("", "cannot create the folder: %w", err)
		}
		out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the user names the folder
		if err == nil {
			_, err = out.WriteString(f.text)
			err = errors.Join(err, out.Close())
		}
		if err != nil {
			return term.UsageErrorf("", "cannot write %s: %w", f.path, err)
		}
	}
	return nil
}

func isOrAre(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}
