package main

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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/embed"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/hook"
)

type hookCmd struct {
	Answer    hookAnswerCmd    `cmd:"" default:"withargs" help:"Answer an event of a coding agent: from stdin to stdout."`
	Install   hookInstallCmd   `cmd:"" help:"Write gavel's hooks into the settings of a coding agent."`
	Uninstall hookUninstallCmd `cmd:"" help:"Remove gavel's hooks from the settings of a coding agent."`
	Trust     hookTrustCmd     `cmd:"" help:"Approve the configuration and the definitions as they are now."`
	Doctor    hookDoctorCmd    `cmd:"" help:"Ask the installed hooks something harmless, and see whether they bite."`
}

func (hookCmd) Help() string {
	return `Coding agents ask hooks before they run a tool, after it ran, and when they want to stop.
gavel answers by the gates on builtin tools and by the section hooks of its configuration.`
}

// hookInstallFlags say in whose settings.
type hookInstallFlags struct {
	Client string `arg:"" enum:"claude-code,codex,copilot,cursor,gemini,kiro,opencode" name:"client" help:"The coding agent: claude-code, codex, copilot, cursor, gemini, kiro or opencode."`
	Yes    bool   `name:"yes" short:"y" help:"Write without asking."`
}

type hookInstallCmd struct {
	hookInstallFlags
	Scope string        `name:"scope" enum:"project,user" default:"project" placeholder:"SCOPE" help:"Whose settings: those of the project (the default), or user for every project of yours."`
	Limit time.Duration `name:"limit" default:"60s" placeholder:"DURATION" help:"How long the agent waits for an answer (60s); gavel denies before."`
	storeFlag
	tokensFlag
	Server    string `name:"server" placeholder:"URL" help:"Let the gavel that serves there decide (gavel serve)."`
	TokenFile string `name:"token-file" env:"GAVEL_SERVER_TOKEN_FILE" placeholder:"FILE" help:"A file with the token to show the server (gavel token create --hooks). Default: one that is made now, where the server's --store is on this machine."`
	Principal string `name:"principal" placeholder:"ID" help:"With --server: the agent, as its own token names it. Default: local:agent."`
}

func (hookInstallCmd) Help() string {
	return `Shows what changes in the settings of the agent, asks, and writes it. Everything else in the
file stays as it is; gavel's own hooks, also those of an older gavel, are replaced. Where the
agent has a setting for it, a hook that fails blocks the tool. The project is the folder
that has .git, or else this one. The hooks name files of this machine: do not share them.

The yes also approves the configuration and its definitions as they are, as gavel hook trust
does. The hooks name the store, so that an edited configuration leads to no other one; it is
.workflows in the project's folder where nothing names it.

Examples:

    gavel hook install claude-code --config gavel.yaml
    gavel hook install cursor --scope user --server http://localhost:4285 --yes
    gavel hook install codex --server https://gavel.example.org --token-file hooks.token
    gavel hook doctor claude-code    # then see whether it bites

Exit codes: 0 written, or nothing to change; 1 not wanted; 2 wrong usage or settings that
cannot be changed; the lines to paste are printed.`
}

func (c *hookInstallCmd) Run(ctx context.Context, con *console) (err error) {
	if c.Server == "" {
		if err := c.setHookStore(); err != nil {
			return err
		}
	}
	path, err := hookSettingsFile(c.Client, hook.Scope(c.Scope))
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
	before, err := readSettings(path)
	if err != nil {
		return err
	}
	after, err := hook.Install(c.Client, before, in)
	if err != nil {
		return pasteInstead(c.Client, path, in, err)
	}
	var rules *rulesReview
	if c.Server == "" {
		if rules, err = openRulesReview(ctx, c.storeFlag); err != nil {
			return err
		}
		defer rules.close()
		rules.hooked = rules.next.record(recordedHooks{Client: c.Client, File: path, Events: hook.InstalledEvents(c.Client)})
	}
	changed := !bytes.Equal(before, after)
	if !changed && (rules == nil || !rules.isChanged()) {
		con.out.Printf("nothing to change: %s has gavel's hooks\n", path)
		return nil
	}
	if changed {
		printDiff(con, path, before, after)
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
		if err := replaceSettings(path, before, after); err != nil {
			return err
		}
		con.out.Printf("written: %s\n", path)
	}
	if rules != nil {
		who, err := resolving{}.reviewer()
		if err == nil {
			err = rules.approve(ctx, con, who)
		}
		if err != nil {
			return err
		}
	}
	if next := hook.AfterInstall(c.Client); next != "" {
		con.out.Printf("%s\n", next)
	}
	con.out.Printf("Next: gavel hook doctor %s\n", c.Client)
	return nil
}

// makeToken makes the token that the hooks show the server, where none is given.
func (c *hookInstallCmd) makeToken(ctx context.Context, con *console) (undo func(), err error) {
	if c.Server == "" || c.TokenFile != "" {
		return func() {}, nil
	}
	folder, err := projectFolder()
	if c.Scope == string(hook.ScopeUser) {
		folder, err = os.UserHomeDir()
	}
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot tell where this is: %w", err)
	}
	c.TokenFile, undo, err = createHookToken(ctx, con, hookToken{
		client: c.Client, server: c.Server, folder: folder, principal: c.Principal, tokens: c.tokensFlag, store: c.storeFlag,
	})
	return undo, err
}

func (c *hookInstallCmd) installation(ctx context.Context, con *console) (in hook.Installation, err error) {
	switch {
	case c.Config == "" && c.Server == "":
		return in, term.UsageErrorf("give --config FILE, or --server URL", "the hooks need a configuration with gates")
	case c.Limit < 2*time.Second || c.Limit%time.Second != 0:
		return in, term.UsageErrorf("", "--limit is in whole seconds, from 2s")
	}
	in = hook.Installation{Limit: c.Limit, FailClosed: true, Windows: hook.OnWindows}
	if in.Program, err = installedProgram(); err != nil {
		return in, term.UnknownErrorf("", "cannot tell where gavel is: %w", err)
	}
	add := func(flag, value string, file bool) {
		if value == "" || err != nil {
			return
		}
		if file {
			value, err = filepath.Abs(value)
		}
		in.Args = append(in.Args, flag, value)
	}
	add("--config", c.Config, true)
	if c.Server == "" && nameStore(c.Store) == c.Store { // without a password
		add("--store", c.Store, !embed.IsDatabase(c.Store))
	}
	add("--server", c.Server, false)
	add("--token-file", c.TokenFile, true)
	if err != nil {
		return in, term.UnknownErrorf("", "cannot tell where this is: %w", err)
	}
	if c.Config != "" {
		if _, err := checkConfig(c.Config); err != nil {
			return in, err
		}
		if rules, err := readHookRules(c.Config); err == nil && rules.IsIdle() && c.Server == "" {
			con.err.Printf("%s has no gate on a builtin tool and no hooks.finish: gavel will have nothing to say\n", c.Config)
		}
	}
	if version, known := clientVersion(ctx, c.Client); known && c.Client == "claude-code" && slices.Compare(version, failClosedSince) < 0 {
		in.FailClosed = false
		con.err.Printf("this Claude Code runs a tool whose hook fails; from 2.1.295 on, gavel hook install has it blocked\n")
	}
	return in, nil
}

type hookUninstallCmd struct {
	hookInstallFlags
	Scope string `name:"scope" enum:",project,user" default:"" placeholder:"SCOPE" help:"Only from the settings of the project or the user; both without it."`
	storeFlag
}

func (hookUninstallCmd) Help() string {
	return `Shows what is removed, asks, and writes it. Hooks that are not gavel's stay. A file in which
nothing else was is removed.

Examples:

    gavel hook uninstall claude-code
    gavel hook uninstall cursor --scope user --yes

Exit codes: 0 removed, or nothing to remove; 1 not wanted; 2 wrong usage or settings that
cannot be changed.`
}

func (c *hookUninstallCmd) Run(ctx context.Context, con *console) error {
	for _, scope := range []hook.Scope{hook.ScopeProject, hook.ScopeUser} {
		if c.Scope != "" && c.Scope != string(scope) {
			continue
		}
		path, err := hookSettingsFile(c.Client, scope)
		if err != nil {
			return err
		}
		before, err := readSettings(path)
		if err != nil {
			return err
		}
		after, err := hook.Uninstall(c.Client, before, hook.OnWindows)
		if err != nil {
			return term.UsageErrorf("remove them by hand", "%s: %w", path, err)
		}
		if bytes.Equal(before, after) {
			con.out.Printf("nothing to remove: %s\n", path)
		} else {
			printDiff(con, path, before, after)
			if err := confirm(con, c.Yes, "Write this?"); err != nil {
				return err
			}
			if err := replaceSettings(path, before, after); err != nil {
				return err
			}
			con.out.Printf("removed from %s\n", path)
		}
		if err := c.forget(ctx, con, path, before); err != nil {
			return err
		}
	}
	return nil
}

// forget takes the hooks that were in a settings file out of the record of what is installed.
func (c *hookUninstallCmd) forget(ctx context.Context, con *console, path string, settings []byte) error {
	flag := c.storeFlag
	all, _ := hook.ReadHooks(c.Client, settings, hook.OnWindows) // gavel's hooks in it were read before
	for _, h := range all {
		if h.Option("config") != "" && h.Option("server") == "" {
			flag = storeFlag{configFlag: configFlag{h.Option("config")}, Store: h.Option("store")}
		}
	}
	if err := flag.findHookConfig(); err != nil || flag.Config == "" {
		return err
	}
	a, err := findApproval(ctx, flag)
	if err != nil || a == nil || !a.record(recordedHooks{Client: c.Client, File: path}) {
		return err
	}
	if err := confirm(con, c.Yes, "Forget that they were installed?"); err != nil {
		return err
	}
	sys, err := openForWriting(ctx, con, flag)
	if err != nil {
		return err
	}
	defer sys.Close()
	_, err = advanceRules(ctx, sys, localCLI, engine.AdvanceRequest{ID: a.instance, Action: "approve"}, map[string]any{"hooks": a.Hooks})
	return engineFailure(err)
}

// findHookConfig takes the gavel.yaml of the project where no configuration is named, and the store that it names.
func (f *storeFlag) findHookConfig() error {
	project, err := projectFolder()
	if err != nil {
		return term.UnknownErrorf("", "cannot tell where this is: %w", err)
	}
	if file := filepath.Join(project, "gavel.yaml"); f.Config == "" && isFile(file) {
		f.Config = file
	}
	if file, err := config.Load(f.Config); err == nil && f.Store == "" {
		f.Store = locatePath(file.Dir(), file.Text(config.KeyStore))
	}
	return f.setHookStore()
}

// printDiff shows how a file changes.
func printDiff(con *console, path string, before, after []byte) {
	con.out.Printf("%s\n", con.out.Bold(path))
	for _, line := range diffLines(splitLines(before), splitLines(after)) {
		switch line[0] {
		case '+':
			con.out.Printf("%s\n", con.out.Green(line))
		case '-':
			con.out.Printf("%s\n", con.out.Red(line))
		default:
			con.out.Printf("%s\n", line)
		}
	}
}

// replaceSettings writes a settings file that is as it was shown.
func replaceSettings(path string, before, after []byte) error {
	if now, err := readSettings(path); err != nil || !bytes.Equal(now, before) {
		return term.UsageErrorf("run it again", "nothing was written: %s has changed in the meantime", path)
	}
	if err := writeSettings(path, after); err != nil {
		return term.UsageErrorf("", "cannot write the settings: %w", err)
	}
	return nil
}

func readSettings(path string) ([]byte, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the settings of the user's own client
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, term.UsageErrorf("", "cannot read the settings: %w", err)
	}
	return text, nil
}

// writeSettings replaces a file, or the one that it links to, by a new one with the same mode; readers
// see the old or the new one. An empty text removes it, and leaves a link.
func writeSettings(path string, text []byte) error {
	mode := fs.FileMode(0o644)
	target, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s links to a file that is not there", path)
		}
		target = path
	case err != nil:
		return err
	default:
		info, err := os.Stat(target)
		if err != nil {
			return err
		}
		if mode = info.Mode().Perm(); mode&0o200 == 0 {
			return fmt.Errorf("%s is read-only", target)
		}
	}
	if len(text) == 0 {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return os.Remove(path)
		}
		text = []byte("{}\n")
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // as any folder of a project
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// pasteInstead says why settings cannot be changed, and what a person can paste.
func pasteInstead(client, path string, in hook.Installation, cause error) error {
	text, err := hook.Install(client, nil, in)
	if err != nil {
		return err
	}
	return &term.ExitError{
		Code: term.ExitUsage, Err: fmt.Errorf("nothing was written: %s: %w", path, cause),
		Hint: "mend the file and run this again, or paste this", Lines: splitLines(text),
	}
}

// hookSettingsFile is where a client keeps its hooks.
func hookSettingsFile(client string, scope hook.Scope) (string, error) {
	home, err := os.UserHomeDir()
	if err != nil && scope == hook.ScopeUser {
		return "", term.UsageErrorf("", "cannot tell where your settings are: %w", err)
	}
	project, err := projectFolder()
	if err != nil {
		return "", term.UnknownErrorf("", "cannot tell where this is: %w", err)
	}
	return hook.SettingsFile(client, scope, home, project, os.Getenv), nil
}

// projectFolder is the nearest folder with .git, or else this one.
func projectFolder() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
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

// installedProgram is where this program is: as it was called, where that is a link which stays when
// the program is updated.
func installedProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	called, err := exec.LookPath(os.Args[0])
	if err != nil {
		return self, nil
	}
	if called, err = filepath.Abs(called); err != nil {
		return self, nil
	}
	a, errA := os.Stat(self)
	b, errB := os.Stat(called)
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		return self, nil
	}
	return called, nil
}

// failClosedSince is the first Claude Code that can block a tool whose hook fails.
var failClosedSince = []int{2, 1, 295}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)\.(\d+)`)

// clientVersion asks a client for its version, where it has a program for that.
func clientVersion(ctx context.Context, client string) (version []int, known bool) {
	program := map[string]string{"claude-code": "claude", "gemini": "gemini", "codex": "codex", "copilot": "copilot", "kiro": "kiro-cli", "cursor": "cursor-agent", "opencode": "opencode"}[client]
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output() //nolint:gosec // one of the names above
	found := versionNumber.FindStringSubmatch(string(out))
	if err != nil || found == nil {
		return nil, false
	}
	for _, digits := range found[1:] {
		n, err := strconv.Atoi(digits)
		if err != nil {
			return nil, false
		}
		version = append(version, n)
	}
	return version, true
}

func splitLines(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"), "\n")
}

// diffLines is how one text becomes another: lines that go with -, that come with +, and three
// around them with a space; … stands for others.
func diffLines(from, to []string) (out []string) {
	common := make([][]int, len(from)+1) // of the tails
	for i := range common {
		common[i] = make([]int, len(to)+1)
	}
	for i := len(from) - 1; i >= 0; i-- {
		for j := len(to) - 1; j >= 0; j-- {
			if from[i] == to[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var all []string
	for i, j := 0, 0; i < len(from) || j < len(to); {
		switch {
		case i < len(from) && j < len(to) && from[i] == to[j]:
			all = append(all, "  "+from[i])
			i, j = i+1, j+1
		case j == len(to) || i < len(from) && common[i+1][j] >= common[i][j+1]:
			all = append(all, "- "+from[i])
			i++
		default:
			all = append(all, "+ "+to[j])
			j++
		}
	}
	const around = 3
	for i, line := range all {
		near := all[max(0, i-around):min(len(all), i+around+1)]
		switch {
		case slices.ContainsFunc(near, func(l string) bool { return l[0] != ' ' }):
			out = append(out, line)
		case len(out) == 0 || out[len(out)-1] != "  …":
			out = append(out, "  …")
		}
	}
	return out
}
