package author

import (
	"cmp"
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
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

// InitCommand creates a workflow with its tests and settings.
type InitCommand struct {
	Folder   string `arg:"" optional:"" default:"." name:"folder" help:"The folder to write to. It is created if missing."`
	Template string `name:"template" default:"" placeholder:"NAME" help:"The workflow to start from: document-review (the default), answer, bugfix, release or careful-ops."`
	Client   string `name:"client" enum:",claude-code,claude-desktop,cursor,vscode,windsurf,codex" default:"" placeholder:"NAME" help:"The MCP client to configure: claude-code, claude-desktop, cursor, vscode, windsurf or codex. Default: those with a configuration in the folder, or else claude-code."`
}

const defaultTemplate = "document-review"

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
	if cli.IsFile(folder) {
		return term.UsageErrorf("name a folder", "nothing was written: %s is a file", c.Folder)
	}
	if c.Template == "" && c.Client != "" && isSetUp(folder) {
		return c.addClient(con, folder)
	}
	c.Template = cmp.Or(c.Template, defaultTemplate)
	files, err := readTemplate(c.Template, findProject(folder))
	if err != nil {
		return err
	}
	program, err := cli.FindProgram()
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
	args := []string{"mcp", "--config", filepath.Join(folder, SettingsFile)}
	clients := c.findClients(folder)
	paths := slices.Clone(files)
	for _, name := range clients {
		paths = append(paths, newFile{path: MCPClients()[name].file})
	}
	if err := checkFolder(folder, paths, len(files)); err != nil {
		return err
	}
	var edits []clientEdit
	for _, name := range clients {
		e, err := MCPClients()[name].edit(folder, program, args)
		if err != nil {
			return err
		}
		if e.before == nil {
			files = append(files, newFile{e.client.file, string(e.after), e.client.describe(name)})
		} else {
			edits = append(edits, e)
		}
	}
	if err := writeNewFiles(folder, files, func() error { return replaceAll(edits) }); err != nil {
		return err
	}
	rows := [][]string{}
	for _, f := range files {
		rows = append(rows, []string{f.path, f.about})
	}
	con.Out.Table(rows)
	for _, e := range edits {
		e.print(con, program, args)
	}
	if err := warnWithoutModel(ctx, con, filepath.Join(folder, "flows", c.Template+".yaml")); err != nil {
		return err
	}
	c.printSteps(con, folder, clients[0], hooks)
	return nil
}

// isSetUp reports whether gavel init has written its settings into a folder.
func isSetUp(folder string) bool {
	file, err := config.Load(filepath.Join(folder, SettingsFile))
	if err != nil {
		return false
	}
	_, definitions := cli.ListPlaces(file)
	return len(definitions) > 0
}

// addClient configures another client for a folder that is set up.
func (c *InitCommand) addClient(con *cli.Console, folder string) error {
	program, err := cli.FindProgram()
	if err != nil {
		return term.UnknownErrorf("", "cannot find the gavel program: %w", err)
	}
	client, args := MCPClients()[c.Client], []string{"mcp", "--config", filepath.Join(folder, SettingsFile)}
	if err := checkFolder(folder, []newFile{{path: client.file}}, 0); err != nil {
		return err
	}
	e, err := client.edit(folder, program, args)
	switch {
	case err != nil:
		return err
	case e.before == nil:
		if err := writeNewFiles(folder, []newFile{{path: client.file, text: string(e.after)}}, func() error { return nil }); err != nil {
			return err
		}
		con.Out.Table([][]string{{client.file, client.describe(c.Client)}})
	default:
		if err := replaceAll([]clientEdit{e}); err != nil {
			return err
		}
		e.print(con, program, args)
	}
	con.Out.Printf("\nNext: start %s in %s, and type:\n  %s\n", client.start, folder, fmt.Sprintf(client.prompt, "NAME"))
	con.Out.Printf("NAME is a workflow of %s: gavel lint flows checks them.\n", SettingsFile)
	return nil
}

// findClients returns the clients to configure: --client, or those that have a configuration in the folder.
func (c *InitCommand) findClients(folder string) (names []string) {
	if c.Client != "" {
		return []string{c.Client}
	}
	for name, client := range MCPClients() {
		if _, err := os.Lstat(filepath.Join(folder, filepath.FromSlash(client.file))); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return []string{"claude-code"}
	}
	return names
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
func (c *InitCommand) printSteps(con *cli.Console, folder, client string, hooks bool) {
	to, say, install := MCPClients()[client], refusals[c.Template], ""
	if hooks {
		install = module.NextStep(client, filepath.Join(folder, SettingsFile))
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

// checkFolder finds what would keep the files from being written: symbolic links, which could lead out of the folder,
// and any of the first files that exists.
func checkFolder(folder string, files []newFile, first int) error {
	var there []string
	for i, f := range files {
		at := folder
		for part := range strings.SplitSeq(f.path, "/") {
			at = filepath.Join(at, part)
			info, err := os.Lstat(at)
			if err != nil {
				break
			}
			if info.Mode()&fs.ModeSymlink != 0 {
				return term.UsageErrorf("replace it, or choose another folder", "nothing was written: %s is a symbolic link", at)
			}
		}
		if _, err := os.Lstat(at); err == nil && i < first {
			there = append(there, f.path)
		}
	}
	if len(there) > 0 {
		return term.UsageErrorf("choose another folder, or move the files away; for another client in this folder: gavel init --client NAME", "nothing was written: %s already in %s", isOrAre(there), folder)
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
			return term.UsageErrorf("choose a folder that you can write to; move a file away that has the name of a folder", "nothing was written: %w", err)
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
