package main

import (
	"bufio"
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

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/hook"
	"github.com/gavel-mcp/gavel/validators/document"
)

type hookDoctorCmd struct {
	Client string `arg:"" optional:"" enum:",claude-code,codex,copilot,cursor,gemini,kiro,opencode" default:"" name:"client" help:"The coding agent; without it, each that has gavel's hooks."`
	JSON   bool   `name:"json" help:"Print the findings as JSON."`
	storeFlag
}

func (hookDoctorCmd) Help() string {
	return `Reads the settings of the agent, and runs the very command that is installed there with what
the agent would write to it: a use that a gate denies, one that no gate is about, and
something unreadable. Each is done over an empty store that is removed again: nothing is
recorded in yours, no evidence is fetched and no model asked. Where a server decides, only
the last two are tried. Codex is asked whether it trusts the hooks. With --config, and where the
project has a gavel.yaml, hooks that were installed and are gone are found, too.
For each thing that is wrong there is a line with what to do.

Examples:

    gavel hook doctor
    gavel hook doctor claude-code --json | jq '.clients[].problems'

Exit codes: 0 the hooks bite, 1 they do not, or none are installed, 2 wrong usage, 3 not known.`
}

// hookDiagnosis is what is found of a client's hooks.
type hookDiagnosis struct {
	Client   string      `json:"client"`
	Files    []string    `json:"files"` // with gavel's hooks
	Version  string      `json:"version,omitempty"`
	Failing  string      `json:"failing"` // what the client does where a hook fails
	Probes   []hookProbe `json:"probes"`
	Problems []string    `json:"problems,omitempty"` // the cause and what to do, a line each
	Unknown  []string    `json:"unknown,omitempty"`  // what could not be found out
	Notes    []string    `json:"notes,omitempty"`
	OK       bool        `json:"ok"`
}

// hookProbe is a harmless question to an installed hook.
type hookProbe struct {
	About    string                `json:"about"`
	Expected hook.Reading          `json:"expected"`
	Answer   hook.Reading          `json:"answer"` // as the client reads it
	TookMs   document.Milliseconds `json:"tookMs"`
}

func (c *hookDoctorCmd) Run(ctx context.Context, con *console) error {
	home, err := os.UserHomeDir()
	if err != nil {
		return term.UsageErrorf("", "cannot tell where your settings are: %w", err)
	}
	project, err := projectFolder()
	if err != nil {
		return term.UnknownErrorf("", "cannot tell where this is: %w", err)
	}
	if err := c.findHookConfig(); err != nil {
		return err
	}
	found, wrong, unknown := []hookDiagnosis{}, false, false
	for _, client := range hook.InstallClients() {
		if c.Client != "" && client != c.Client {
			continue
		}
		e := hookExamination{home: home, project: project, hookDiagnosis: hookDiagnosis{Client: client, Files: []string{}, Probes: []hookProbe{}, Failing: hook.DescribeFailing(client)}}
		if installed := e.examine(ctx, c.storeFlag); !installed && c.Client == "" {
			continue
		}
		e.OK = len(e.Problems)+len(e.Unknown) == 0
		wrong, unknown = wrong || len(e.Problems) > 0, unknown || len(e.Unknown) > 0
		found = append(found, e.hookDiagnosis)
	}
	err = con.print(c.JSON, map[string]any{"ok": !wrong && !unknown && len(found) > 0, "clients": found}, func() {
		for _, d := range found {
			d.print(con)
		}
		if len(found) == 0 {
			con.out.Printf("no coding agent has gavel's hooks, for this user or for %s; gavel hook install writes them\n", project)
		}
	})
	if err == nil && unknown && !wrong {
		return &term.ExitError{Code: term.ExitUnknown}
	}
	return cmp.Or(err, badUnless(!wrong && len(found) > 0))
}

func (d hookDiagnosis) print(con *console) {
	out := con.out
	out.Printf("%s\n", out.Bold(d.Client))
	line := func(name string, value any) { out.Printf("  %-9s %v\n", name, value) }
	for _, file := range d.Files {
		line("hooks in", file)
	}
	line("version", cmp.Or(d.Version, "unknown"))
	line("failing", d.Failing)
	for _, p := range d.Probes {
		line("asked", fmt.Sprintf("%s: %s, %d ms", p.About, p.Answer, p.TookMs.Duration().Milliseconds()))
	}
	switch {
	case len(d.Problems) > 0:
		line("result", out.Red("cannot be relied on"))
	case len(d.Unknown) > 0:
		line("result", "not known")
	default:
		line("result", out.Green("bites"))
	}
	for _, text := range slices.Concat(d.Problems, d.Unknown, d.Notes) {
		out.Printf("    - %s\n", text)
	}
	out.Printf("\n")
}

// hookExamination finds out about one client.
type hookExamination struct {
	hookDiagnosis
	home, project string
	own           []hook.InstalledHook
	approved      bool // the approved rules count, whatever the configuration file holds
	hung          bool // a probe got no answer: others would take as long
}

func (e *hookExamination) problem(format string, args ...any) {
	e.Problems = append(e.Problems, fmt.Sprintf(format, args...))
}

func (e *hookExamination) note(format string, args ...any) {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
}

// examine reports whether gavel's hooks are there, may be, or were.
func (e *hookExamination) examine(ctx context.Context, at storeFlag) bool {
	installed := e.readFiles()
	var before *hook.InstalledHook
	if len(e.own) > 0 {
		before = e.find(hook.InstalledEvents(e.Client)[0])
	}
	if before != nil && before.Option("config") != "" {
		at.Config, at.Store = before.Option("config"), before.Option("store")
	}
	if err := at.findHookConfig(); err != nil {
		e.Unknown = append(e.Unknown, err.Error())
	}
	recorded := e.checkApproval(ctx, at, installed)
	if !installed {
		e.problem("gavel's hooks are not installed; gavel hook install %s --config FILE writes them", e.Client)
		return recorded
	}
	version, known := clientVersion(ctx, e.Client)
	if known {
		e.Version = fmt.Sprintf("%d.%d.%d", version[0], version[1], version[2])
	}
	if e.Client == "claude-code" && known && slices.Compare(version, failClosedSince) < 0 {
		e.problem("this version runs a tool whose hook fails; update Claude Code to 2.1.295 or later, and install the hooks again")
	}
	e.checkSwitches()
	if len(e.own) == 0 {
		return true
	}
	e.checkEvents()
	if before != nil && e.checkCommand(*before) {
		e.probe(ctx, *before)
	}
	if e.Client == "codex" {
		e.checkCodexTrust(ctx)
	}
	return true
}

// checkApproval looks for the rules that a person approved, and reports whether hooks of the client were recorded there.
func (e *hookExamination) checkApproval(ctx context.Context, at storeFlag, installed bool) (recorded bool) {
	if at.Config == "" {
		return false
	}
	again := "gavel hook trust --config " + shellWord(at.Config) + " --store " + shellWord(at.Store)
	a, err := findApproval(ctx, at)
	switch {
	case err != nil:
		e.Unknown = append(e.Unknown, fmt.Sprintf("which rules are approved cannot be read: %v", err))
		return false
	case a == nil && installed:
		e.note("no rules were ever approved, so that the configuration counts as it is, whoever edits it: %s", again)
	}
	if a == nil {
		return false
	}
	e.approved = true
	if !a.isCurrent() {
		e.note("the configuration or a definition is not as it was approved; what was approved is in force: %s", again)
	}
	for _, r := range a.Hooks {
		if r.Client != e.Client {
			continue
		}
		recorded = true
		for _, text := range (approvedRules{Hooks: []recordedHooks{r}}).listMissingHooks() {
			e.problem("%s Install them again, or forget them with gavel hook uninstall %s", text, e.Client)
		}
	}
	return recorded
}

// checkCodexTrust asks Codex itself, which skips hooks that its user did not trust.
func (e *hookExamination) checkCodexTrust(ctx context.Context) {
	listed, err := listCodexHooks(ctx, e.project)
	if err != nil {
		e.Unknown = append(e.Unknown, fmt.Sprintf("whether Codex trusts these hooks: codex app-server could not be asked (%v); type /hooks in Codex to see it", err))
		return
	}
	skipped := map[string][]string{}
	for _, h := range e.own {
		status := "not loaded"
		for _, l := range listed {
			if l.Command == h.Command && strings.EqualFold(l.EventName, h.Event) {
				status = l.TrustStatus
				if !l.Enabled {
					status = "disabled"
				}
			}
		}
		if status != "trusted" && status != "managed" {
			skipped[status] = append(skipped[status], h.Event)
		}
	}
	for status, events := range skipped {
		do := "start codex here, type /hooks, and trust them"
		if status == "not loaded" {
			do = "start codex here, trust the folder, then type /hooks and trust the hooks"
		}
		e.problem("Codex skips the hooks at %s, which it reports as %s; %s", strings.Join(events, ", "), status, do)
	}
}

// codexHook is a hook as codex app-server lists it.
type codexHook struct {
	EventName, Command, TrustStatus string
	Enabled                         bool
}

// listCodexHooks asks codex app-server for the hooks of a folder.
func listCodexHooks(ctx context.Context, folder string) (hooks []codexHook, err error) {
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
		_ = cmd.Wait() // it was ended
	}()
	answers := json.NewDecoder(bufio.NewReader(stdout))
	ask := func(id int, method string, params, result any) error {
		if err := json.NewEncoder(stdin).Encode(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}); err != nil {
			return err
		}
		for {
			var a struct {
				ID     *int
				Result json.RawMessage
				Error  *struct{ Message string }
			}
			switch err := answers.Decode(&a); {
			case ctx.Err() != nil:
				return errors.New("no answer within 15 s")
			case err != nil:
				return fmt.Errorf("its answer cannot be read: %w", err)
			case a.ID == nil || *a.ID != id: // a notification
			case a.Error != nil:
				return errors.New(a.Error.Message)
			default:
				return json.Unmarshal(a.Result, result)
			}
		}
	}
	var ignored json.RawMessage
	if err := ask(1, "initialize", map[string]any{"clientInfo": map[string]string{"name": "gavel", "title": "gavel", "version": readBuild().Version}}, &ignored); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(stdin).Encode(map[string]any{"jsonrpc": "2.0", "method": "initialized"}); err != nil {
		return nil, err
	}
	var listed struct{ Data []struct{ Hooks []codexHook } }
	if err := ask(2, "hooks/list", map[string]any{"cwds": []string{folder}}, &listed); err != nil {
		return nil, err
	}
	for _, at := range listed.Data {
		hooks = append(hooks, at.Hooks...)
	}
	return hooks, nil
}

// readFiles reads the settings of both scopes.
func (e *hookExamination) readFiles() (installed bool) {
	before := hook.InstalledEvents(e.Client)[0]
	others := 0
	for _, scope := range []hook.Scope{hook.ScopeUser, hook.ScopeProject} {
		path := hook.SettingsFile(e.Client, scope, e.home, e.project, os.Getenv)
		text, err := os.ReadFile(path) //nolint:gosec // the settings of the user's own client
		if err != nil {
			continue
		}
		all, err := hook.ReadHooks(e.Client, text, hook.OnWindows)
		if err != nil {
			if bytes.Contains(text, []byte("gavel")) {
				installed = true
				e.problem("%s: %v; the client may read none of its hooks", path, err)
			}
			continue
		}
		own := slices.DeleteFunc(slices.Clone(all), func(h hook.InstalledHook) bool { return h.Own == nil })
		if len(own) > 0 {
			installed = true
			e.Files = append(e.Files, path)
			if len(e.own) > 0 {
				e.problem("the hooks are installed twice, so that each use is asked about twice: gavel hook uninstall %s --scope %s", e.Client, scope)
			}
			e.own = append(e.own, own...)
		}
		for _, h := range all {
			if h.Own != nil || h.Event != before {
				continue
			}
			others++
			if e.mayAllow(h.Command) {
				e.note("another hook, %q in %s, may answer allow, which skips the client's own rules; what gavel denies stays denied", h.Command, path)
			}
		}
	}
	if others > 0 {
		e.note("other hooks before a tool: %d; each of them sees what gavel sees", others)
	}
	return installed
}

// mayAllow reports whether a hook of the user's names the word in its command or in a script of it.
func (e *hookExamination) mayAllow(command string) bool {
	for word := range strings.FieldsSeq(command) {
		word = strings.Trim(word, `"'`)
		word = strings.NewReplacer("$CLAUDE_PROJECT_DIR", e.project, "${CLAUDE_PROJECT_DIR}", e.project, "~/", e.home+"/").Replace(word)
		if !filepath.IsAbs(word) {
			word = filepath.Join(e.project, word)
		}
		info, err := os.Stat(word)
		if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
			continue
		}
		if text, err := os.ReadFile(word); err == nil && (bytes.Contains(text, []byte("allow")) || bytes.Contains(text, []byte("approve"))) { //nolint:gosec // it is only searched
			return true
		}
	}
	return strings.Contains(command, "allow") || strings.Contains(command, "approve")
}

func (e *hookExamination) find(event string) *hook.InstalledHook {
	for _, h := range e.own {
		if h.Event == event {
			return &h
		}
	}
	return nil
}

func (e *hookExamination) checkSwitches() {
	for _, file := range hook.SwitchFiles(e.Client, e.home, e.project, os.Getenv) {
		text, err := os.ReadFile(file.Path)
		if err != nil {
			continue
		}
		if setting := hook.SwitchedOff(e.Client, text, file.Managed); setting != "" {
			e.problem("hooks are switched off: %s in %s", setting, file.Path)
		}
	}
}

// checkEvents looks at how each hook is installed.
func (e *hookExamination) checkEvents() {
	events := hook.InstalledEvents(e.Client)
	var missing []string
	for _, event := range events {
		if e.find(event) == nil {
			missing = append(missing, event)
		}
	}
	if len(missing) > 0 {
		e.problem("gavel is not asked at %s; install the hooks again", strings.Join(missing, ", "))
	}
	var narrow, off, open, short, other []string
	for _, h := range e.own {
		if h.Matcher != "" && h.Matcher != "*" && h.Matcher != ".*" {
			narrow = append(narrow, fmt.Sprintf("%s (matcher %q)", h.Event, h.Matcher))
		}
		if h.Off {
			off = append(off, h.Event)
		}
		if h.Event == events[0] && hook.HasFailClosed(e.Client) && !h.FailClosed {
			open = append(open, h.Event)
		}
		if h.Timeout == 0 || h.Limit() == 0 || h.Timeout < h.Limit() {
			short = append(short, fmt.Sprintf("%s (timeout %s, --limit %s)", h.Event, h.Timeout, h.Limit()))
		}
		if !slices.Equal(h.Own, e.own[0].Own) {
			other = append(other, h.Event)
		}
	}
	const again = "; install the hooks again"
	report := func(events []string, what, do string) {
		if len(events) > 0 {
			e.problem("%s: %s%s", what, strings.Join(events, ", "), do)
		}
	}
	report(narrow, "not every tool reaches gavel at", again)
	report(off, "the hook is disabled at", "; enable it in the client's settings")
	report(open, "a tool runs when its hook fails, at", again)
	report(short, "the client may give up before gavel denies, at", again)
	report(other, "other commands than at "+e.own[0].Event+" are run at", again)
}

// checkCommand reports whether the command can be run.
func (e *hookExamination) checkCommand(h hook.InstalledHook) bool {
	program := h.Own[0]
	info, err := os.Stat(program)
	if err != nil && !strings.ContainsAny(program, `/\`) {
		e.problem("%s is looked for in the PATH of the client, which may find none; install the hooks again", program)
		return false
	}
	if err != nil || info.IsDir() {
		e.problem("%s is not there, so the hook fails; install the hooks again", program)
		return false
	}
	if self, err := os.Executable(); err == nil {
		if mine, err := os.Stat(self); err == nil && !os.SameFile(mine, info) {
			e.note("the hooks run another gavel than this one: %s", program)
		}
	}
	if file := h.Option("config"); file != "" && !e.approved {
		if _, err := checkConfig(file); err != nil {
			e.problem("the configuration is refused, so gavel denies what it should decide: %v; gavel config check %s says more", err, file)
			return false
		}
		if rules, err := readHookRules(file); err == nil && rules.IsIdle() && h.Option("server") == "" {
			e.problem("%s has no gate on a builtin tool and no hooks.finish, so gavel has nothing to say", file)
		}
	}
	return true
}

// probe runs the installed command.
func (e *hookExamination) probe(ctx context.Context, h hook.InstalledHook) {
	folder, err := os.MkdirTemp("", "gavel-doctor-")
	if err != nil {
		e.problem("cannot make a folder for an empty store: %v", err)
		return
	}
	defer os.RemoveAll(folder)                    //nolint:errcheck // a temporary folder
	rules, _ := readHookRules(h.Option("config")) // it was checked; a server has its own
	line := ""
	for _, g := range rules.Gates.Gates {
		if sample := hook.SampleLine(g); line == "" && !g.Start {
			line = sample
		}
	}
	switch {
	case h.Option("server") != "":
		e.note("what a gate denies was not tried: the server would record it")
	case line != "":
		if said := e.ask(ctx, h, folder, line, hook.Sample(e.Client, e.project, line), hook.ReadDeny); strings.Contains(said, hook.CouldNotDecide) {
			e.problem("%s was denied because of a failure, not by its gate: %s", line, said)
		}
	case rules.Gates.HasBuiltin():
		e.note("no denial was tried: each gate on the shell begins its workflow, or its uses cannot be guessed")
	}
	if slices.ContainsFunc(rules.Gates.Gates, func(g gate.Gate) bool { return g.Builtin == gate.BuiltinShell && len(g.When) == 0 }) {
		e.note("the neutral answer was not tried: a gate is about every use of the shell")
	} else {
		e.ask(ctx, h, folder, "true", hook.Sample(e.Client, e.project, "true"), hook.ReadNeutral)
	}
	e.ask(ctx, h, folder, "something unreadable", []byte("{\"gavel doctor\": "), hook.ReadDeny)
}

// ask runs the command once. It returns what was answered, "" where that is a problem.
func (e *hookExamination) ask(ctx context.Context, h hook.InstalledHook, folder, about string, input []byte, expected hook.Reading) string {
	if e.hung {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.Timeout, time.Minute))
	defer cancel()
	args := slices.Clone(h.Own[1:])
	if at := slices.Index(args, "--store"); at >= 0 && at+1 < len(args) {
		args[at+1] = filepath.Join(folder, storeFile)
	}
	cmd := exec.CommandContext(ctx, h.Own[0], args...) //nolint:gosec // what is installed is what is tried
	cmd.Dir, cmd.Stdin = e.project, bytes.NewReader(input)
	cmd.Env = append(os.Environ(), "GAVEL_STORE="+filepath.Join(folder, storeFile)) // overrules the configuration file
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	p := hookProbe{About: about, Expected: expected, Answer: hook.ReadFailure, TookMs: document.Milliseconds(time.Since(began))}
	exit, ran := errors.AsType[*exec.ExitError](err)
	if (err == nil || ran) && ctx.Err() == nil {
		p.Answer = hook.ReadAnswer(e.Client, cmd.ProcessState.ExitCode(), out.Bytes())
	}
	e.Probes = append(e.Probes, p)
	said := strings.TrimSpace(out.String() + " " + errs.String())
	if p.Answer == expected {
		return said
	}
	switch {
	case ctx.Err() != nil:
		said, e.hung = "no answer within the client's timeout", true
	case exit == nil && err != nil:
		said = err.Error()
	}
	e.problem("%s should be answered with %s, and the client reads %s: %s", about, expected, p.Answer, orNone(term.Fit(said, 300)))
	return ""
}
