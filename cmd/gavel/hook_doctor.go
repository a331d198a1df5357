package main

import (
	"bytes"
	"cmp"
	"context"
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
}

func (hookDoctorCmd) Help() string {
	return `Reads the settings of the agent, and runs the very command that is installed there with what
the agent would write to it: a use that a gate denies, one that no gate is about, and
something unreadable. Each is done over an empty store that is removed again: nothing is
recorded in yours, no evidence is fetched and no model asked. Where a server decides, only
the last two are tried. For each thing that is wrong there is a line with what to do.

Examples:

    gavel hook doctor
    gavel hook doctor claude-code --json | jq '.clients[].problems'

Exit codes: 0 the hooks bite, 1 they do not, or none are installed, 2 wrong usage.`
}

// hookDiagnosis is what is found of a client's hooks.
type hookDiagnosis struct {
	Client   string      `json:"client"`
	Files    []string    `json:"files"` // with gavel's hooks
	Version  string      `json:"version,omitempty"`
	Failing  string      `json:"failing"` // what the client does where a hook fails
	Probes   []hookProbe `json:"probes"`
	Problems []string    `json:"problems,omitempty"` // the cause and what to do, a line each
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
	found, ok := []hookDiagnosis{}, true
	for _, client := range hook.InstallClients() {
		if c.Client != "" && client != c.Client {
			continue
		}
		e := hookExamination{home: home, project: project, hookDiagnosis: hookDiagnosis{Client: client, Files: []string{}, Probes: []hookProbe{}, Failing: hook.DescribeFailing(client)}}
		installed := e.examine(ctx)
		if !installed && c.Client == "" {
			continue
		}
		e.OK = len(e.Problems) == 0
		ok = ok && e.OK
		found = append(found, e.hookDiagnosis)
	}
	err = con.print(c.JSON, map[string]any{"ok": ok && len(found) > 0, "clients": found}, func() {
		for _, d := range found {
			d.print(con)
		}
		if len(found) == 0 {
			con.out.Printf("no coding agent has gavel's hooks, for this user or for %s; gavel hook install writes them\n", project)
		}
	})
	return cmp.Or(err, badUnless(ok && len(found) > 0))
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
	if d.OK {
		line("result", out.Green("bites"))
	} else {
		line("result", out.Red("cannot be relied on"))
	}
	for _, text := range append(slices.Clone(d.Problems), d.Notes...) {
		out.Printf("    - %s\n", text)
	}
	out.Printf("\n")
}

// hookExamination finds out about one client.
type hookExamination struct {
	hookDiagnosis
	home, project string
	own           []hook.InstalledHook
	hung          bool // a probe got no answer: others would take as long
}

func (e *hookExamination) problem(format string, args ...any) {
	e.Problems = append(e.Problems, fmt.Sprintf(format, args...))
}

func (e *hookExamination) note(format string, args ...any) {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
}

// examine reports whether gavel's hooks are there, or may be.
func (e *hookExamination) examine(ctx context.Context) bool {
	installed := e.readFiles()
	if !installed {
		e.problem("gavel's hooks are not installed; gavel hook install %s --config FILE writes them", e.Client)
		return false
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
	if before := e.find(hook.InstalledEvents(e.Client)[0]); before != nil && e.checkCommand(ctx, *before) {
		e.probe(ctx, *before)
	}
	return true
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
	if e.Client == "codex" {
		e.note("whether Codex trusts these hooks, only /hooks in it shows; it skips them until it does")
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
func (e *hookExamination) checkCommand(ctx context.Context, h hook.InstalledHook) bool {
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
	if file := h.Option("config"); file != "" {
		if _, err := checkConfig(file); err != nil {
			e.problem("the configuration is refused, so gavel denies what it should decide: %v; gavel config check %s says more", err, file)
			return false
		}
		if rules, err := readHookRules(file); err == nil && rules.IsIdle() && h.Option("server") == "" {
			e.problem("%s has no gate on a builtin tool and no hooks.finish, so gavel has nothing to say", file)
		}
	}
	return ctx.Err() == nil
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
	gates := rules.Gates
	switch about, sample := e.findDenied(gates); {
	case h.Option("server") != "", h.Option("store") != "":
		e.note("what a gate denies was not tried: it would be recorded, for the command names a server or a store")
	case sample != nil:
		if said := e.ask(ctx, h, folder, about, sample, hook.ReadDeny); strings.Contains(said, hook.CouldNotDecide) {
			e.problem("%s was denied because of a failure, not by its gate: %s", about, said)
		}
	case gates.HasBuiltin():
		e.note("no denial was tried: each gate on a builtin tool begins its workflow, or its uses cannot be guessed")
	}
	if about, sample := e.findNeutral(gates); sample != nil {
		e.ask(ctx, h, folder, about, sample, hook.ReadNeutral)
	} else {
		e.note("the neutral answer was not tried: gates are about every use of a tool")
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
	cmd := hookCommand(ctx, h)
	cmd.Dir, cmd.Stdin = e.project, bytes.NewReader(input)
	// What the configuration file says of the store the environment overrules; what the command line
	// says it does not, and gavel hook install writes no store there.
	cmd.Env = append(os.Environ(), "GAVEL_STORE="+filepath.Join(folder, "gavel.db"))
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

// hookCommand is the installed command, run as the client runs it.
func hookCommand(ctx context.Context, h hook.InstalledHook) *exec.Cmd {
	switch {
	case h.Command == "": // of a plugin, which needs no shell
		return exec.CommandContext(ctx, h.Own[0], h.Own[1:]...) //nolint:gosec // what is installed is what is tried
	case hook.OnWindows:
		return exec.CommandContext(ctx, "powershell", "-NoProfile", "-Command", h.Command) //nolint:gosec // the same
	default:
		return exec.CommandContext(ctx, "sh", "-c", h.Command) //nolint:gosec // the same
	}
}

// findDenied finds a use that a gate denies over an empty store, before it judges anything: there is
// no instance of its workflow, and the gate begins none.
func (e *hookExamination) findDenied(gates gate.Config) (about string, sample []byte) {
	begins := func(m gate.Match) bool { return m.Gate.Start }
	for _, g := range gates.Gates {
		if g.Builtin == "" || g.Start {
			continue
		}
		for _, text := range hook.SampleTexts(g, e.project, e.home) {
			sample := hook.Sample(e.Client, g.Builtin, e.project, text)
			if matches := hook.MatchSample(e.Client, gates, sample); len(matches) > 0 && !slices.ContainsFunc(matches, begins) {
				return fmt.Sprintf("%s: %s", g.Tool, text), sample
			}
		}
	}
	return "", nil
}

// findNeutral finds a use that no gate is about.
func (e *hookExamination) findNeutral(gates gate.Config) (about string, sample []byte) {
	for _, use := range [][2]string{
		{gate.BuiltinShell, "true"},
		{gate.BuiltinRead, filepath.Join(e.project, "gavel-doctor")},
		{gate.BuiltinFetch, "https://example.invalid/"},
		{gate.BuiltinEdit, filepath.Join(e.project, "gavel-doctor")},
	} {
		sample := hook.Sample(e.Client, use[0], e.project, use[1])
		if sample != nil && len(hook.MatchSample(e.Client, gates, sample)) == 0 {
			return fmt.Sprintf("%s: %s", use[0], use[1]), sample
		}
	}
	return "", nil
}
