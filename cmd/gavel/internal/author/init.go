package author

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
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

type newFile struct{ path, text, about string }

// Run writes the files of a template.
func (c *InitCommand) Run(ctx context.Context, con *cli.Console) error {
	folder, err := filepath.Abs(c.Folder)
	if err != nil {
		return term.UsageErrorf("", "cannot find the folder %s: %w", c.Folder, err)
	}
	files, err := readTemplate(c.Template, findProject(folder))
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return term.UnknownErrorf("", "cannot find the gavel program: %w", err)
	}
	hooks := slices.ContainsFunc(files, func(f newFile) bool { return f.path == SettingsFile })
	if !hooks {
		files = append(files, newFile{SettingsFile, InitSettings, "settings: paths of the workflows and the store"})
	}
	if ignore := ".workflows/.gitignore"; !cli.IsFile(filepath.Join(folder, ignore)) {
		files = append(files, newFile{ignore, "*\n", "keeps the store, its keys and its tokens out of git"})
	}
	to := MCPClients()[c.Client]
	args := []string{"mcp", "--config", filepath.Join(folder, SettingsFile)}
	clientFile := filepath.Join(folder, filepath.FromSlash(to.file))
	if err := checkFolder(folder, append(slices.Clone(files), newFile{path: to.file})); err != nil {
		return err
	}
	before, after, err := to.edit(clientFile, program, args)
	if err != nil {
		return err
	}
	if before == nil {
		about := "how " + c.Client + " starts gavel"
		if to.after != "" {
			about += ": " + to.after
		}
		files = append(files, newFile{to.file, string(after), about})
	}
	if err := writeNewFiles(folder, files, func() error {
		if after == nil || before == nil || bytes.Equal(before, after) {
			return nil
		}
		return cli.ReplaceFile(clientFile, before, after)
	}); err != nil {
		return err
	}
	rows := [][]string{}
	for _, f := range files {
		rows = append(rows, []string{f.path, f.about})
	}
	con.Out.Table(rows)
	switch {
	case before == nil:
	case after == nil:
		con.Out.Printf("\n%s already exists; add this to it:\n", to.file)
		con.Out.Text(to.Text(program, args))
	case bytes.Equal(before, after):
		con.Out.Printf("\n%s already has a server named gavel; it was not changed\n", to.file)
	default:
		con.Out.Printf("\n%s was changed:\n", to.file)
		con.Out.Text(cli.ShowDiff(to.file, before, after))
	}
	if err := warnWithoutModel(ctx, con, filepath.Join(folder, "flows", c.Template+".yaml")); err != nil {
		return err
	}
	c.printSteps(con, folder, to, hooks)
	return nil
}

// edit returns the text of the client's file, and the text that has gavel as a server. before is nil if there is no
// file; after is nil if gavel cannot edit the file.
func (c mcpClient) edit(path, program string, args []string) (before, after []byte, err error) {
	before, err = os.ReadFile(path) //nolint:gosec // the user names the folder
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, []byte(c.Text(program, args)), nil
	case err != nil:
		return nil, nil, term.UsageErrorf("", "nothing was written: cannot read %s: %w", c.file, err)
	case c.servers == "":
		return before, nil, nil
	}
	after, err = c.add(before, program, args)
	if err != nil {
		return nil, nil, term.UsageErrorf("fix the file, or move it away", "nothing was written: %s cannot be read: %w", c.file, err)
	}
	return before, after, nil
}

// refusals are what to type in a client to see gavel refuse, and what then happens, by template. Without a sentence to
// type, the client's prompt follows the workflow.
var refusals = map[string][2]string{
	"document-review": {"", `an approval with "LGTM" is refused: Say in a sentence what was checked.`},
	"answer":          {"", "an answer that misses the question is not sent"},
	"bugfix":          {"Say that the bug is fixed.", `gavel sends the agent back: The workflow "bugfix" is in "reproducing"; an agent may end in "fixed".`},
	"release":         {"Push this branch.", `git push is denied: it needs the state "tagged"`},
	"careful-ops":     {"Run kubectl delete pod web.", `the command is denied: it needs the state "approved"`},
}

// printSteps prints what to do after gavel init: the commands, and what to type in the client.
func (c *InitCommand) printSteps(con *cli.Console, folder string, to mcpClient, hooks bool) {
	say, install := refusals[c.Template], ""
	if hooks {
		install = module.NextStep(c.Client, SettingsFile)
	}
	if say[0] == "" || install == "" {
		say[0] = fmt.Sprintf(to.prompt, c.Template)
	}
	con.Out.Printf("\nNext, in %s:\n  gavel test flows\n", folder)
	switch {
	case install != "":
		con.Out.Printf("  %s\n", install)
	case hooks:
		say[1] = "a step out of order is refused"
		con.Out.Printf("The gates of %s apply only to agents with hooks: gavel hook install --help lists them.\n", SettingsFile)
	}
	con.Out.Printf("Start %s here, and allow the server gavel if it asks. Type:\n  %s\n", to.start, say[0])
	con.Out.Printf("You will see: %s\n", say[1])
}

// warnWithoutModel states what happens to the moves that need a model, if none is configured.
func warnWithoutModel(ctx context.Context, con *cli.Console, file string) error {
	if os.Getenv("LLM_JUDGE_MODEL") != "" {
		return nil
	}
	d, err := cli.ParseDefinition(file)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the new workflow: %w", err)
	}
	if len(d.RequiredModels(nil)) == 0 {
		return nil
	}
	box, err := cli.NewSandbox(con.Log)
	if err != nil {
		return err
	}
	defer box.Close()
	issues, err := d.Lint(ctx, workflow.LintOptions{Owner: cli.OperatorOwner, Compiler: box.Compiler})
	if err != nil {
		return term.UnknownErrorf("", "cannot check the new workflow: %w", err)
	}
	for _, issue := range issues {
		if issue.Rule == cli.RuleNoModel {
			con.Err.Printf("%s: %s\n", d.Name, issue.Message)
		}
	}
	return nil
}

// checkFolder finds what would keep the files from being written: files that exist, but for the client's, and symbolic
// links, which could lead out of the folder.
func checkFolder(folder string, files []newFile) error {
	var there []string
	for i, f := range files {
		at := folder
		for _, part := range strings.Split(f.path, "/") {
			at = filepath.Join(at, part)
			info, err := os.Lstat(at)
			if err != nil {
				break
			}
			if info.Mode()&fs.ModeSymlink != 0 {
				return term.UsageErrorf("replace it, or choose another folder", "nothing was written: %s is a symbolic link", at)
			}
		}
		if _, err := os.Lstat(at); err == nil && i < len(files)-1 {
			there = append(there, f.path)
		}
	}
	if len(there) > 0 {
		return term.UsageErrorf("choose another folder, or move the files away", "nothing was written: %s already in %s", isOrAre(there), folder)
	}
	return nil
}

// writeNewFiles writes files into a folder and calls then. If anything fails, it removes what it has written.
func writeNewFiles(folder string, files []newFile, then func() error) (err error) {
	var made []string
	defer func() {
		if err == nil {
			return
		}
		for _, path := range slices.Backward(made) {
			_ = os.Remove(path) // report the first error
		}
	}()
	for _, f := range files {
		to := filepath.Join(folder, filepath.FromSlash(f.path))
		var missing []string
		for dir := filepath.Dir(to); !isFolder(dir); dir = filepath.Dir(dir) {
			missing = append(missing, dir)
		}
		for _, dir := range slices.Backward(missing) {
			if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the usual mode of a project's folders
				return term.UsageErrorf("choose a folder that you can write to", "nothing was written: %w", err)
			}
			made = append(made, dir)
		}
		out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the user names the folder
		if err == nil {
			made = append(made, to)
			_, err = out.WriteString(f.text)
			err = errors.Join(err, out.Close())
		}
		if err != nil {
			return term.UsageErrorf("choose a folder that you can write to", "nothing was written: %w", err)
		}
	}
	return then()
}

func isFolder(path string) bool {
	_, err := os.Stat(path)
	return err == nil || filepath.Dir(path) == path
}

func isOrAre(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}
