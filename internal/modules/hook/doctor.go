package hook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// doctorCommand implements gavel hook doctor.
type doctorCommand struct {
	Client string `arg:"" optional:"" enum:",claude-code,codex,copilot,cursor,gemini,kiro,opencode" default:"" name:"client" help:"The coding agent; without it, each that has gavel's hooks."`
	JSON   bool   `name:"json" help:"Print the findings as JSON."`
	cli.StoreFlag
}

func (doctorCommand) Help() string {
	return `Compares the settings of the agent with what gavel hook install writes. Then it runs the command
that is installed there, with input as the agent writes it: a command that a gate denies, and
one that no gate covers. Each runs over an empty store that is removed again: nothing is
recorded in yours, no evidence is fetched and no model asked. Where a server decides, only
the second is tried. Codex is asked whether it trusts the hooks. With --config, and where the
project has a gavel.yaml, hooks that were installed and are gone are found, too.
Each problem is a line with what to do.

Examples:

    gavel hook doctor
    gavel hook doctor claude-code --json | jq '.clients[].problems'

Exit codes: 0 the hooks work, 1 they do not, or none are installed, 2 wrong usage, 3 unknown.`
}

// diagnosis holds the findings about a client's hooks.
type diagnosis struct {
	Client   string   `json:"client"`
	Files    []string `json:"files"`             // settings files that contain gavel's hooks
	Version  string   `json:"version,omitempty"` // Claude Code only
	Failing  string   `json:"failing"`           // the client's behavior if a hook fails
	Probes   []probe  `json:"probes"`
	Problems []string `json:"problems,omitempty"` // cause and remedy, one line each
	Changes  string   `json:"changes,omitempty"`  // what gavel hook install would change in Files, as a diff
	Unknown  []string `json:"unknown,omitempty"`  // checks that gave no result
	OK       bool     `json:"ok"`

	project string
	own     []agent.InstalledHook // gavel's hooks in Files
}

// probe is one harmless run of an installed hook, with the expected and the actual answer.
type probe struct {
	About    string                `json:"about"`
	Expected agent.Reading         `json:"expected"`
	Answer   agent.Reading         `json:"answer"` // as the client reads it
	TookMs   document.Milliseconds `json:"tookMs"`
}

func (c *doctorCommand) Run(ctx context.Context, con *cli.Console) error {
	if err := findConfig(&c.StoreFlag); err != nil {
		return err
	}
	project, err := projectFolder(".")
	if err != nil {
		return err
	}
	found, wrong, unknown := []*diagnosis{}, false, false
	for _, client := range agent.InstallClients() {
		if c.Client != "" && client != c.Client {
			continue
		}
		d := &diagnosis{Client: client, Files: []string{}, Probes: []probe{}, Failing: agent.DescribeFailing(client), project: project}
		if present := d.examine(ctx, c.StoreFlag); !present && c.Client == "" {
			continue
		}
		d.OK = len(d.Problems)+len(d.Unknown) == 0
		wrong, unknown = wrong || len(d.Problems) > 0, unknown || len(d.Unknown) > 0
		found = append(found, d)
	}
	good := !wrong && !unknown && len(found) > 0
	if c.JSON {
		err = con.Out.JSON(map[string]any{"ok": good, "clients": found})
	} else {
		for _, d := range found {
			d.print(con)
		}
		if len(found) == 0 {
			con.Out.Printf("no coding agent has gavel's hooks, for this user or for %s; gavel hook install writes them\n", project)
		}
	}
	switch {
	case err != nil || good:
		return err
	case unknown && !wrong:
		return &term.ExitError{Code: term.ExitUnknown}
	default:
		return term.ErrBad
	}
}

func (d *diagnosis) print(con *cli.Console) {
	out, denied := con.Out, false
	out.Printf("%s\n", out.Bold(d.Client))
	line := func(name string, value any) { out.Printf("  %-9s %v\n", name, value) }
	for _, file := range d.Files {
		line("hooks in", file)
	}
	if d.Version != "" {
		line("version", d.Version)
	}
	line("failing", d.Failing)
	for _, p := range d.Probes {
		line("asked", fmt.Sprintf("%s: %s, %d ms", p.About, p.Answer, p.TookMs.Duration().Milliseconds()))
		denied = denied || p.Answer == agent.ReadDeny
	}
	switch {
	case len(d.Problems) > 0:
		line("result", out.Red("cannot be relied on"))
	case len(d.Unknown) > 0:
		line("result", "not known")
	case !denied:
		line("result", "answers; no denial was tried")
	default:
		line("result", out.Green("works"))
	}
	for _, text := range slices.Concat(d.Problems, d.Unknown) {
		out.Printf("    - %s\n", text)
	}
	out.Text(d.Changes + "\n")
}

func (d *diagnosis) problem(format string, args ...any) {
	d.Problems = append(d.Problems, fmt.Sprintf(format, args...))
}

func (d *diagnosis) unknown(format string, args ...any) {
	d.Unknown = append(d.Unknown, fmt.Sprintf(format, args...))
}

// examine checks the client's hooks. It returns true if gavel's hooks are installed or might be, or if they were
// installed when a person last approved the rules.
func (d *diagnosis) examine(ctx context.Context, at cli.StoreFlag) bool {
	failOpen := false
	d.Version, failOpen = findFailOpen(ctx, d.Client)
	switches := d.compareSettings(failOpen)
	var first agent.InstalledHook
	if len(d.own) > 0 {
		first = d.own[0]
	}
	if file := first.Option("config"); file != "" {
		at.Config, at.Store = file, first.Option("store")
	}
	if err := findConfig(&at); err != nil {
		d.unknown("%v", err)
	}
	rules, recorded := d.checkApproval(ctx, at, first)
	if len(d.Files) == 0 {
		d.problem("gavel's hooks are not installed; gavel hook install %s --config FILE writes them", d.Client)
		return recorded
	}
	if failOpen {
		d.problem("this version runs a tool whose hook fails; update Claude Code to 2.1.295 or later, and install the hooks again")
	}
	for _, setting := range switches {
		d.problem("hooks are switched off: %s", setting)
	}
	if rules != nil && len(d.own) > 0 {
		d.probe(ctx, first, rules.Gates)
	}
	if d.Client == "codex" && len(d.own) > 0 {
		d.checkCodexTrust(ctx, cli.ReadBuild().Version)
	}
	return true
}

// compareSettings compares the settings of both scopes with those that gavel hook install would write. It returns
// the settings that disable hooks.
func (d *diagnosis) compareSettings(failOpen bool) (switches []string) {
	for _, scope := range []agent.Scope{agent.ScopeUser, agent.ScopeProject} {
		path, text, err := readSettings(d.Client, scope)
		if err != nil {
			d.unknown("%v", err)
			continue
		}
		if scope == agent.ScopeUser {
			switches = agent.FindSwitches(d.Client, path, d.project)
		}
		own, err := agent.ReadHooks(d.Client, text)
		if err == nil && len(own) == 0 || err != nil && !bytes.Contains(text, []byte("gavel")) {
			continue
		}
		if d.Files = append(d.Files, path); err != nil {
			d.problem("%s: %v; the client may read none of its hooks", path, err)
			continue
		}
		if len(d.own) > 0 {
			d.problem("the hooks are installed twice, so each use is checked twice: gavel hook uninstall %s --scope %s", d.Client, scope)
		}
		d.own = append(d.own, own...)
		in := own[0].Installation()
		in.FailClosed = !failOpen
		if after, err := agent.Install(d.Client, text, in); err == nil && !bytes.Equal(text, after) {
			var again strings.Builder
			for _, word := range own[0].Words[3:] {
				again.WriteString(" " + term.ShellWord(word))
			}
			d.problem("the hooks in %s differ from those that this gavel writes: gavel hook install %s --scope %s%s", path, d.Client, scope, again.String())
			d.Changes += cli.ShowDiff(path, text, after)
		}
	}
	return switches
}

// checkApproval returns the rules that a hook applies, or nil if the hook cannot be probed. It also reports whether
// hooks of the client were recorded when a person approved the rules.
func (d *diagnosis) checkApproval(ctx context.Context, at cli.StoreFlag, h agent.InstalledHook) (rules *agent.Rules, recorded bool) {
	if h.Option("server") != "" || at.Config == "" { // a server would record the denial, so no gate is probed
		rules = &agent.Rules{}
	}
	if at.Config == "" {
		return rules, false
	}
	again := "gavel hook trust --config " + term.ShellWord(at.Config) + " --store " + term.ShellWord(at.Store)
	a, err := findApproval(ctx, at)
	switch {
	case err != nil:
		d.unknown("cannot read the approved rules: %v", err)
	case a != nil:
		for _, r := range a.Hooks {
			if r.Client == d.Client {
				recorded = true
				for _, text := range (approvedRules{Hooks: []recordedHooks{r}}).listMissingHooks() {
					d.problem("%s Install them again, or forget them with gavel hook uninstall %s", text, d.Client)
				}
			}
		}
	}
	if err != nil || rules != nil || h.Words == nil {
		return rules, recorded
	}
	if a == nil {
		d.problem("no rules were ever approved, so the configuration applies as it is, no matter who edits it: %s", again)
	} else if !a.isCurrent() {
		d.unknown("the configuration or a definition has changed since it was approved, so the hooks were not tried; the approved version is in force: %s", again)
		return nil, recorded
	}
	read, err := readRules(at.Config)
	switch {
	case err != nil:
		d.problem("the configuration is invalid, so gavel denies every event that it must decide: %v; check it with gavel config check %s", err, at.Config)
		return nil, recorded
	case read.IsIdle():
		d.problem("%s has no gate on a builtin tool and no hooks.finish, so gavel decides nothing", at.Config)
	}
	return &read, recorded
}

// checkCodexTrust asks Codex whether it trusts the hooks. Codex skips hooks that its user has not trusted.
func (d *diagnosis) checkCodexTrust(ctx context.Context, version string) {
	listed, err := listCodexHooks(ctx, d.project, version)
	if err != nil {
		d.unknown("whether Codex trusts these hooks: codex app-server could not be asked (%v); type /hooks in Codex to see it", err)
		return
	}
	skipped := map[string][]string{}
	for _, h := range d.own {
		status := "not loaded"
		for _, l := range listed {
			switch {
			case l.Command != h.Command || !strings.EqualFold(l.EventName, h.Event):
			case !l.Enabled:
				status = "disabled"
			default:
				status = l.TrustStatus
			}
		}
		if status != "trusted" && status != "managed" {
			skipped[status] = append(skipped[status], h.Event)
		}
	}
	for status, events := range skipped {
		d.problem("Codex skips the hooks at %s, which it reports as %s; start codex here, trust the folder if it asks, then type /hooks and trust the hooks", strings.Join(events, ", "), status)
	}
}

// codexHook is a hook as codex app-server lists it.
type codexHook struct {
	EventName, Command, TrustStatus string
	Enabled                         bool
}

// listCodexHooks asks codex app-server which hooks apply in a folder.
func listCodexHooks(ctx context.Context, folder, version string) (hooks []codexHook, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "codex", "app-server")
	cmd.Dir, cmd.WaitDelay = folder, time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // the error says only that it was killed
	}()
	where, err := document.Marshal(folder)
	if err != nil {
		return nil, err
	}
	// Keep standard input open: Codex exits without an answer when it is closed.
	if _, err := fmt.Fprintf(stdin, `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"clientInfo": {"name": "gavel", "title": "gavel", "version": %q}}}
{"jsonrpc": "2.0", "method": "initialized"}
{"jsonrpc": "2.0", "id": 2, "method": "hooks/list", "params": {"cwds": [%s]}}
`, version, where); err != nil {
		return nil, err
	}
	for answers := json.NewDecoder(stdout); ; {
		var a struct {
			ID     int
			Result struct{ Data []struct{ Hooks []codexHook } }
			Error  *struct{ Message string }
		}
		err := answers.Decode(&a)
		switch {
		case ctx.Err() != nil:
			return nil, errors.New("no answer within 15 s")
		case err != nil:
			return nil, fmt.Errorf("its answer cannot be read: %w", err)
		case a.Error != nil:
			return nil, errors.New(a.Error.Message)
		case a.ID != 2: // the answer to initialize, or a notification
			continue
		}
		for _, at := range a.Result.Data {
			hooks = append(hooks, at.Hooks...)
		}
		return hooks, nil
	}
}

// probe runs the installed hook with a shell command that a gate denies, and with one that no gate covers.
func (d *diagnosis) probe(ctx context.Context, h agent.InstalledHook, gates gate.Config) {
	line, every := "", false
	for _, g := range gates.Gates {
		if !g.Start { // a gate with start would begin its workflow instead of denying
			line = cmp.Or(line, agent.SampleLine(g))
		}
		every = every || g.Builtin == gate.BuiltinShell && len(g.When) == 0
	}
	if (line == "" || d.ask(ctx, h, line, agent.ReadDeny)) && !every {
		d.ask(ctx, h, "true", agent.ReadNeutral)
	}
}

// ask runs the installed hook once, with an empty store. It reports whether the hook ended in time.
func (d *diagnosis) ask(ctx context.Context, h agent.InstalledHook, line string, expected agent.Reading) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.Limit(), time.Minute))
	defer cancel()
	folder, err := os.MkdirTemp("", "gavel-doctor-")
	if err != nil {
		d.unknown("cannot make a folder for an empty store: %v", err)
		return false
	}
	defer os.RemoveAll(folder) //nolint:errcheck // a temporary folder
	store, args := filepath.Join(folder, "gavel.db"), slices.Clone(h.Words[1:])
	if at := slices.Index(args, "--store"); at >= 0 && at+1 < len(args) {
		args[at+1] = store
	}
	cmd := exec.CommandContext(ctx, h.Words[0], args...) //nolint:gosec // it runs the command that the client would run
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = d.project, bytes.NewReader(agent.Sample(d.Client, d.project, line)), time.Second
	cmd.Env = append(os.Environ(), "GAVEL_STORE="+store) // overrides the configuration file
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err = cmd.Run()
	p := probe{About: line, Expected: expected, Answer: agent.ReadFailure, TookMs: document.Milliseconds(time.Since(began))}
	said := strings.TrimSpace(out.String() + " " + errs.String())
	_, ran := errors.AsType[*exec.ExitError](err)
	switch answered = ctx.Err() == nil; {
	case !answered:
		said = "no answer within the client's timeout"
	case err != nil && !ran:
		said = err.Error()
	default:
		p.Answer = agent.ReadAnswer(d.Client, cmd.ProcessState.ExitCode(), out.Bytes())
	}
	d.Probes = append(d.Probes, p)
	switch {
	case p.Answer != expected:
		d.problem("%s: expected the answer %s, but the client reads %s: %s", line, expected, p.Answer, cmp.Or(term.Fit(said, 300), "-"))
	case strings.Contains(said, agent.UndecidedText):
		d.problem("%s was denied because of a failure, not by its gate: %s", line, said)
	}
	return answered
}
