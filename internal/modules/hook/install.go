package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
	"github.com/gavel-mcp/gavel/internal/term"
)

// command implements gavel hook.
type command struct {
	Answer    answerCommand    `cmd:"" default:"withargs" help:"Answer an event of a coding agent: from stdin to stdout."`
	Install   installCommand   `cmd:"" help:"Write gavel's hooks into the settings of a coding agent."`
	Uninstall uninstallCommand `cmd:"" help:"Remove gavel's hooks from the settings of a coding agent."`
	Trust     trustCommand     `cmd:"" help:"Approve the configuration and the definitions as they are now."`
	Doctor    doctorCommand    `cmd:"" help:"Test the installed hooks with a harmless event."`
}

func (command) Help() string {
	return `Coding agents ask hooks before they run a tool, after it ran, and when they want to stop.
gavel answers by the gates on builtin tools, and by the section hooks of its configuration.`
}

// installFlags holds the flags that install and uninstall share.
type installFlags struct {
	Client string `arg:"" enum:"claude-code,codex,copilot,cursor,gemini,kiro,opencode" name:"client" help:"The coding agent: claude-code, codex, copilot, cursor, gemini, kiro or opencode."`
	Yes    bool   `name:"yes" short:"y" help:"Write without asking."`
	cli.StoreFlag
	cli.TokensFlag
}

type installCommand struct {
	installFlags
	Scope     string        `name:"scope" enum:"project,user" default:"project" placeholder:"SCOPE" help:"The settings to use: project (default), or user for all your projects."`
	Limit     time.Duration `name:"limit" default:"60s" placeholder:"DURATION" help:"How long the agent waits for an answer (60s); gavel denies before."`
	Server    string        `name:"server" placeholder:"URL" help:"Let the gavel that serves there decide (gavel serve)."`
	TokenFile string        `name:"token-file" env:"GAVEL_SERVER_TOKEN_FILE" placeholder:"FILE" help:"A file with the token for the server (gavel token create --hooks). Default: a new token, if the server's --store is on this machine."`
	Principal string        `name:"principal" placeholder:"ID" help:"With --server: the agent, as its own token names it. Default: local:agent."`
}

func (installCommand) Help() string {
	return `Shows what changes in the settings of the agent, asks, and writes it. Everything else in the
file stays as it is; gavel's own hooks, also those of an older gavel, are replaced. Where the
agent has a setting for it, a hook that fails blocks the tool. The project is the folder
that has .git, or else this one. The hooks name files of this machine: do not share them.

The configuration is the project's gavel.yaml, or --config. Answering yes also approves it and
its definitions as they are, like gavel hook trust. The hooks name the store, so that an edited
configuration cannot select another one. Its default is .workflows in the project's folder.

Examples:

    gavel hook install claude-code
    gavel hook install cursor --scope user --server http://localhost:4285 --yes
    gavel hook install codex --server https://gavel.example.org --token-file hooks.token
    gavel hook doctor claude-code    # then check that it works

Exit codes: 0 written, or nothing to change; 1 declined; 2 wrong usage or settings that
cannot be changed; the lines to paste are printed.`
}

func (c *installCommand) Run(ctx context.Context, con *cli.Console) (err error) {
	if c.Server == "" {
		if err := findConfig(&c.StoreFlag); err != nil {
			return err
		}
	}
	path, before, err := readSettings(c.Client, agent.Scope(c.Scope))
	if err != nil {
		return err
	}
	undo, err := c.makeToken(ctx, con)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			undo()
		}
	}()
	in, err := c.installation(ctx, con)
	if err != nil {
		return err
	}
	after, err := agent.Install(c.Client, before, in)
	if err != nil {
		text, _ := agent.Install(c.Client, nil, in)
		return &term.ExitError{
			Code: term.ExitUsage, Err: fmt.Errorf("nothing was written: %s: %w", path, err),
			Hint: "fix the file and run this again, or paste this", Lines: strings.Split(string(text), "\n"),
		}
	}
	var rules *rulesReview
	if c.Server == "" {
		if rules, err = openRulesReview(ctx, con, c.StoreFlag); err != nil {
			return err
		}
		defer rules.close()
		rules.hooked = rules.next.record(recordedHooks{Client: c.Client, File: path, Events: agent.InstalledEvents(c.Client)})
	}
	changed := !bytes.Equal(before, after)
	if !changed && (rules == nil || !rules.isChanged()) {
		con.Out.Printf("nothing to change: %s has gavel's hooks\n", path)
		return nil
	}
	if changed {
		con.Out.Text(cli.ShowDiff(path, before, after))
	}
	if c.Server == "" {
		if read, err := readRules(c.Config); err == nil && read.IsIdle() {
			con.Err.Printf("%s has no gate on a builtin tool and no hooks.finish, so these hooks decide nothing; gavel init --template bugfix writes some\n", c.Config)
		}
	}
	if rules != nil && rules.isChanged() {
		if err := rules.print(ctx, con); err != nil {
			return err
		}
	}
	if err := confirm(con, c.Yes, "Write and approve this?"); err != nil {
		return err
	}
	if changed {
		if err := cli.ReplaceFile(path, before, after); err != nil {
			return err
		}
		con.Out.Printf("written: %s\n", path)
	}
	if rules != nil {
		who, err := cli.FindReviewer(nil)
		if err == nil {
			err = rules.approve(ctx, con, who)
		}
		if err != nil {
			return err
		}
	}
	if next := agent.AfterInstall(c.Client); next != "" {
		con.Out.Printf("%s\n", next)
	}
	con.Out.Printf("Next: gavel hook doctor %s\n", c.Client)
	return nil
}

// makeToken creates the token with which the hooks authenticate to the server, unless a token file is given.
// undo removes it.
func (c *installCommand) makeToken(ctx context.Context, con *cli.Console) (undo func(), err error) {
	if c.Server == "" || c.TokenFile != "" {
		return func() {}, nil
	}
	t, err := newToken(c.installFlags, agent.Scope(c.Scope), c.Server)
	if err != nil {
		return nil, err
	}
	t.principal = c.Principal
	c.TokenFile, undo, err = createToken(ctx, con, t)
	return undo, err
}

// newToken describes the token of a client's hooks in a scope. It creates nothing.
func newToken(f installFlags, scope agent.Scope, server string) (t hooksToken, err error) {
	folder, err := projectFolder(".")
	if scope == agent.ScopeUser {
		folder, err = os.UserHomeDir()
	}
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return t, term.UnknownErrorf("", "cannot find the folder: %w", err)
	}
	return hooksToken{client: f.Client, server: server, folder: folder, tokens: f.TokensFlag, store: f.StoreFlag}, nil
}

func (c *installCommand) installation(ctx context.Context, con *cli.Console) (in agent.Installation, err error) {
	switch {
	case c.Config == "" && c.Server == "":
		return in, term.UsageErrorf("create one with gavel init --template bugfix, or give --config FILE or --server URL", "this project has no gavel.yaml, and the hooks need a configuration with gates")
	case c.Limit < 2*time.Second || c.Limit%time.Second != 0:
		return in, term.UsageErrorf("", "--limit is in whole seconds, from 2s")
	}
	in = agent.Installation{Limit: c.Limit, Windows: agent.OnWindows}
	store := c.Store
	if c.Server != "" || driver.Find(store) != nil && driver.Find(store).Describe(store) != store { // its address contains a password
		store = ""
	}
	in.Program, err = cli.FindProgram()
	for _, flag := range [][2]string{{"--config", c.Config}, {"--store", store}, {"--server", c.Server}, {"--token-file", c.TokenFile}} {
		name, value := flag[0], flag[1]
		if value == "" || err != nil {
			continue
		}
		if name == "--config" || name == "--token-file" {
			value, err = filepath.Abs(value)
		}
		in.Args = append(in.Args, name, value)
	}
	if err != nil {
		return in, term.UnknownErrorf("", "cannot find the folder: %w", err)
	}
	_, failOpen := findFailOpen(ctx, c.Client)
	if in.FailClosed = !failOpen; failOpen {
		con.Err.Printf("this version of Claude Code runs a tool even if its hook fails; update to 2.1.295 or newer, and run gavel hook install again\n")
	}
	return in, nil
}

type uninstallCommand struct {
	installFlags
	Scope string `name:"scope" enum:",project,user" default:"" placeholder:"SCOPE" help:"Only from the settings of the project or the user; both without it."`
}

func (uninstallCommand) Help() string {
	return `Shows what is removed, asks, and writes it. Hooks that are not gavel's stay. A file
with nothing else in it is removed. The token that gavel hook install --server made is removed, too:
give the server's --store, as at the installation.

Examples:

    gavel hook uninstall claude-code
    gavel hook uninstall cursor --scope user --yes

Exit codes: 0 removed, or nothing to remove; 1 declined; 2 wrong usage or settings that
cannot be changed.`
}

func (c *uninstallCommand) Run(ctx context.Context, con *cli.Console) error {
	for _, scope := range []agent.Scope{agent.ScopeProject, agent.ScopeUser} {
		if c.Scope != "" && c.Scope != string(scope) {
			continue
		}
		path, before, err := readSettings(c.Client, scope)
		if err != nil {
			return err
		}
		after, err := agent.Uninstall(c.Client, before)
		if err != nil {
			return term.UsageErrorf("remove them by hand", "%s: %w", path, err)
		}
		if bytes.Equal(before, after) {
			con.Out.Printf("nothing to remove: %s\n", path)
		} else {
			con.Out.Text(cli.ShowDiff(path, before, after))
			if err := confirm(con, c.Yes, "Write this?"); err != nil {
				return err
			}
			if err := cli.ReplaceFile(path, before, after); err != nil {
				return err
			}
			con.Out.Printf("removed from %s\n", path)
		}
		flag := c.StoreFlag
		if own, _ := agent.ReadHooks(c.Client, before); len(own) > 0 { // Uninstall has already parsed them
			if file := own[0].Option("config"); file != "" && own[0].Option("server") == "" {
				flag = cli.StoreFlag{ConfigFlag: cli.ConfigFlag{Config: file}, Store: own[0].Option("store")}
			}
			if err := c.removeToken(ctx, con, scope, own[0]); err != nil {
				return err
			}
		}
		if err := c.forget(ctx, con, path, flag); err != nil {
			return err
		}
	}
	return nil
}

// removeToken removes the token of a hook if gavel hook install created it.
func (c *uninstallCommand) removeToken(ctx context.Context, con *cli.Console, scope agent.Scope, h agent.InstalledHook) error {
	t, err := newToken(c.installFlags, scope, h.Option("server"))
	if err != nil {
		return err
	}
	file, _ := t.file()
	bearer, err := cli.ReadToken(file)
	if parts := strings.SplitN(bearer, "_", 3); err == nil && file == h.Option("token-file") && len(parts) == 3 {
		t.forget(ctx, con, file, parts[1])
	}
	return nil
}

// forget removes the hooks of a settings file from the record of installed hooks.
func (c *uninstallCommand) forget(ctx context.Context, con *cli.Console, path string, flag cli.StoreFlag) error {
	if err := findConfig(&flag); err != nil || flag.Config == "" {
		return err
	}
	a, err := findApproval(ctx, flag)
	if err != nil || a == nil || !a.record(recordedHooks{Client: c.Client, File: path}) {
		return err
	}
	if err := confirm(con, c.Yes, "Forget that they were installed?"); err != nil {
		return err
	}
	sys, err := cli.OpenForWriting(ctx, con, flag)
	if err != nil {
		return err
	}
	_, err = advanceRules(ctx, sys, operator, engine.AdvanceRequest{ID: a.instance, Action: "approve"}, map[string]any{"hooks": a.Hooks})
	return errors.Join(cli.EngineFailure(err), sys.Close())
}

// findConfig fills in unset flags: the gavel.yaml of this folder or of the next one up to the project's as the
// configuration, and the store that it names.
func findConfig(f *cli.StoreFlag) error {
	project, err := projectFolder(".")
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return term.UnknownErrorf("", "cannot find the folder: %w", err)
	}
	for dir := here; f.Config == ""; dir = filepath.Dir(dir) {
		file := filepath.Join(dir, "gavel.yaml")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			f.Config = file
		}
		if dir == project || dir == filepath.Dir(dir) {
			break
		}
	}
	if file, err := config.Load(f.Config); err == nil && f.Store == "" {
		f.Store, _ = cli.ListPlaces(file)
	}
	return setStore(f)
}

// readSettings reads the file in which a client keeps its hooks. The text is nil if the file does not exist.
func readSettings(client string, scope agent.Scope) (path string, text []byte, err error) {
	home, err := os.UserHomeDir()
	if err != nil && scope == agent.ScopeUser {
		return "", nil, term.UsageErrorf("", "cannot find your settings: %w", err)
	}
	project, err := projectFolder(".")
	if err != nil {
		return "", nil, err
	}
	path = agent.SettingsFile(client, scope, home, project, os.Getenv)
	if text, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) { //nolint:gosec // the settings of the user's own client
		return "", nil, term.UsageErrorf("", "cannot read the settings: %w", err)
	}
	return path, text, nil
}

// projectFolder returns the nearest folder with .git, from a folder upwards, or else the folder.
func projectFolder(from string) (string, error) {
	here, err := filepath.Abs(from)
	if err != nil {
		return "", term.UnknownErrorf("", "cannot find the folder: %w", err)
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return here, nil
		}
	}
}

var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+`)

// findFailOpen asks Claude Code for its version. It reports whether that version runs a tool even if its hook fails.
func findFailOpen(ctx context.Context, client string) (version string, failOpen bool) {
	if client != "claude-code" {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "claude", "--version").Output() // an unknown version is treated as a new one
	version = versionNumber.FindString(string(out))
	return version, version != "" && semver.Compare("v"+version, "v2.1.295") < 0
}
