// Command gavel judges the moves of agents through workflows, before they happen,
// and keeps a record of every judgement.
//
// This package promises to be thin: it reads arguments and environment, wires the
// parts of the module together, and prints. It must never decide anything about a
// workflow itself. Results go to stdout and everything else to stderr, both through
// package term, which cleans them and names the exit codes. Under `gavel mcp` stdout belongs to the protocol alone.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	_ "github.com/gavel-mcp/gavel/cmd/gavel/internal/earlyworker" // a process that runs scripts ends there
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	_ "github.com/gavel-mcp/gavel/internal/latecollect" // before everything else
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func init() {
	for _, of := range []map[string]*operationCommand{instanceOperations, reviewOperations, measureOperations} {
		maps.Copy(operationCommands, of)
	}
}

func main() {
	worker.Main(workflow.AnswerLintRequest)
	if process.Watch(os.Args, os.Stdin) {
		return
	}
	if evidence.IsRunner(os.Args) {
		hideSecrets()
		evidence.Run(os.Stdin, os.Stdout)
		return
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

type logFlags struct {
	LogLevel  string `name:"log-level" enum:"debug,info,warn,error" default:"warn" placeholder:"LEVEL" help:"Least important message to write to stderr: debug, info, warn (the default) or error."`
	LogFormat string `name:"log-format" enum:"text,json" default:"text" placeholder:"FORMAT" help:"How messages are written to stderr: text (the default), or json, one object a line."`
}

type commands struct {
	logFlags

	MCP        mcpCmd        `cmd:"" name:"mcp" help:"Serve workflows to an MCP client over stdin and stdout."`
	Serve      serveCmd      `cmd:"" help:"Serve workflows over HTTP: to MCP clients and to other programs."`
	Health     healthCmd     `cmd:"" help:"Ask a server whether it is ready; for health checks."`
	Config     configCmd     `cmd:"" help:"Look at the settings, and check the file that has them."`
	Store      storeCmd      `cmd:"" help:"Make a store that several servers share."`
	Token      tokenCmd      `cmd:"" help:"Make and revoke the tokens that callers of gavel serve show."`
	Init       initCmd       `cmd:"" help:"Write a workflow with its tests, settings and the configuration of an MCP client."`
	Lint       lintCmd       `cmd:"" help:"Check workflow definitions."`
	Try        tryCmd        `cmd:"" help:"Play a workflow by hand, in the terminal."`
	Graph      graphCmd      `cmd:"" help:"Draw a workflow, or an instance with its path."`
	Schema     schemaCmd     `cmd:"" help:"Print the JSON Schemas of gavel's file formats."`
	Script     scriptCmd     `cmd:"" help:"Run and test validators in the sandbox."`
	Test       testCmd       `cmd:"" help:"Run tests of workflows."`
	Judge      judgeCmd      `cmd:"" help:"Try the model that judges: its endpoint, its prompt, its answers."`
	Eval       evalCmd       `cmd:"" help:"Measure a judge on cases whose right outcome is known."`
	Review     reviewCmd     `cmd:"" help:"Decide moves that wait for a person."`
	Evidence   evidenceCmd   `cmd:"" help:"Try the sources that the gate fetches evidence from."`
	Start      judgedCmd     `cmd:"" help:"Start an instance of a workflow."`
	Advance    judgedCmd     `cmd:"" help:"Ask for an action of an instance."`
	Status     operationCmd  `cmd:"" help:"Show where an instance stands, and what can be done next."`
	Instances  instancesCmd  `cmd:"" help:"Look at workflow instances in a store, also as they were."`
	History    historyCmd    `cmd:"" help:"Search, count and export decisions."`
	Migrate    migrateCmd    `cmd:"" help:"Pin instances to another version of their workflow."`
	Import     importCmd     `cmd:"" help:"Bring a .workflows folder here: definitions, instances, histories."`
	Export     exportCmd     `cmd:"" help:"Write definitions, instances and histories to a folder."`
	Verify     verifyCmd     `cmd:"" help:"Check that what was recorded is as it was written."`
	Anchor     anchorCmd     `cmd:"" help:"Sign what was recorded, so that changes show."`
	Backup     backupCmd     `cmd:"" help:"Copy a store while it is in use, and verify the copy."`
	Restore    restoreCmd    `cmd:"" help:"Put a backup in place of a store."`
	Repair     repairCmd     `cmd:"" help:"Save what can be read of a damaged store."`
	Seal       sealCmd       `cmd:"" help:"Check the seals of definitions, or seal them again."`
	Cursor     cursorCmd     `cmd:"" help:"Look at the places of those who read the log, and move them."`
	Retain     retainCmd     `cmd:"" help:"Remove what definitions say need not be kept."`
	Keys       keysCmd       `cmd:"" help:"Rotate, wrap and destroy the keys that seal sensitive values."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
	Completion completionCmd `cmd:"" help:"Print a completion script for your shell."`
}

// console holds the streams of a command. Commands get it injected and use no global stream.
type console struct {
	stdin  io.Reader
	out    *term.Terminal // results
	err    *term.Terminal // everything else that a person reads
	rawOut io.Writer      // for protocols; never for people
	log    *slog.Logger
	level  *slog.LevelVar // of log

	// unsure is set if the result may be about another store than the intended one. Then the exit code is not 0.
	unsure bool

	errors   *slog.Logger  // the log for errors, if stderr is JSON lines
	args     []string      // of the program
	implied  bool          // args were added because there were none
	settings *fileSettings // the values from the configuration file

	// parse reads arguments into a struct of commands, as the program does.
	parse func(grammar any, args []string, stdout, stderr io.Writer, options ...kong.Option) (*kong.Context, *fileSettings, error)
	// checkConfig finds the mistakes of a configuration file, and returns the definitions that it names.
	checkConfig func(path string) (definitions []string, err error)
}

// run is the program: it parses args, runs one command and returns the exit code. SIGINT and SIGTERM cancel ctx; a
// second signal ends the process immediately.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	dropEmptySettings()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()

	con := &console{
		stdin: term.BlockingReader(stdin), rawOut: term.BlockingWriter(stdout),
		out: term.New(stdout), err: term.New(stderr), parse: parseArguments,
	}
	con.checkConfig = func(path string) ([]string, error) {
		server, err := checkConfig(con, path)
		if err != nil {
			return nil, err
		}
		return server.Definitions, nil
	}
	if len(args) == 0 && isProgram(stdin) {
		args, con.implied = []string{"mcp"}, true
	}
	if len(args) > 0 && args[0] == completeCommand {
		return printCandidates(con, args[1:])
	}
	if len(args) > 0 {
		if process := module.FindProcess(args[0]); process != nil {
			return process(ctx, args[1:], stdin, stdout)
		}
	}
	if asksForJSONLines(args) {
		con.logErrors(stderr)
	}
	if guard := module.FindGuard(args); guard != nil {
		return guard(ctx, module.Program{In: con.stdin, Out: con.rawOut, Err: stderr, Execute: func(ctx context.Context) error {
			return listMistakes(execute(ctx, con, args, stderr))
		}})
	}
	if err := con.out.AddWriteError(execute(ctx, con, args, stderr)); err != nil {
		err = listMistakes(err)
		switch {
		case asksForJSON(args):
			return term.New(stderr).PrintErrorJSON(err)
		case con.errors != nil:
			return logError(con.errors, err)
		}
		return con.err.PrintError(err)
	}
	if con.unsure {
		return term.ExitUnknown
	}
	return term.ExitOK
}

// isProgram reports whether stdin is connected to a program: not to a terminal, nor to the null device that services
// and schedulers use.
func isProgram(stdin io.Reader) bool {
	file, ok := stdin.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// asksForJSON reports whether args contain --json, even if they cannot be parsed.
func asksForJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

const logJSON = "json"

// asksForJSONLines reports whether args or the environment contain --log-format json, even if args cannot be parsed.
func asksForJSONLines(args []string) bool {
	format := os.Getenv("GAVEL_LOG_FORMAT")
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if value, ok := strings.CutPrefix(arg, "--log-format="); ok {
			format = value
		} else if arg == "--log-format" && i+1 < len(args) {
			format = args[i+1]
		}
	}
	return format == logJSON
}

// logErrors makes all output to stderr lines of JSON.
func (con *console) logErrors(stderr io.Writer) {
	con.errors = telemetry.NewLogger(stderr, slog.LevelInfo, true)
	con.err = term.New(logLines{con.errors})
}

// logError is term's PrintError for a stderr with lines of JSON.
func logError(log *slog.Logger, err error) int {
	f, ok := errors.AsType[*term.ExitError](err)
	if !ok {
		f = &term.ExitError{Code: term.ExitUnknown, Err: err}
	}
	if f.Err == nil {
		return f.Code
	}
	about := []any{"exit", f.Code}
	if f.Reason != "" {
		about = append(about, "code", f.Reason)
	}
	if f.Hint != "" {
		about = append(about, "hint", f.Hint)
	}
	if len(f.Lines) > 0 {
		about = append(about, "mistakes", f.Lines)
	}
	log.Error(strings.TrimSpace(f.Err.Error()), about...) //nolint:sloglint // the error is the message
	return f.Code
}

func withoutSettings(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), isSetting)
}

func isSetting(name string) bool {
	return strings.HasPrefix(name, "GAVEL_") || strings.HasPrefix(name, "LLM_")
}

// dropEmptySettings unsets empty variables: container files and service managers write "no value" that way.
func dropEmptySettings() {
	for _, pair := range os.Environ() {
		if name, empty := strings.CutSuffix(pair, "="); empty && isSetting(name) {
			_ = os.Unsetenv(name) // fails on malformed names only
		}
	}
}

// execute parses args and runs the command. Its error is shown to the user.
func execute(ctx context.Context, con *console, args []string, stderr io.Writer) error {
	var cmds commands
	var options []kong.Option
	if len(args) > 0 && args[0] == "help" {
		options = append(options, kong.Help(printFullHelp))
	}
	approved := func(command string, flag func(string) string) (module.Approval, error) {
		return module.FindApproval(ctx, con.forModules(), command, flag)
	}
	parsed, settings, err := parseWith(&fileSettings{approved: approved, unpin: func() {}}, &cmds, helpWhenAsked(args), con.out, con.err, options...)
	defer settings.unpin()
	if settings.logFormat() == logJSON {
		con.logErrors(stderr)
	}
	if err != nil || parsed == nil {
		return err
	}
	settings.list = settings.effective(parsed)
	con.args, con.settings = args, settings
	con.level = new(slog.LevelVar)
	con.level.Set(logLevel(cmds.LogLevel))
	con.log = telemetry.NewLogger(stderr, con.level, cmds.LogFormat == logJSON)
	if cmds.LogFormat == logJSON {
		con.logErrors(stderr)
	}
	if con.implied {
		con.err.Printf("gavel: no command, and stdin is no terminal: this is gavel mcp; gavel --help lists the commands\n")
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return settings.locate(parsed, parsed.Run(con, con.forModules()))
}

// newParser returns the parser of the command line.
func newParser(grammar any, stdout, stderr io.Writer, exit func(int), more ...kong.Option) (*kong.Kong, error) {
	if _, all := grammar.(*commands); all {
		for _, c := range module.Commands("") {
			more = append(more, kong.DynamicCommand(c.Name, c.Help, "", newCommand(c, c.Name)))
		}
	}
	bindOperations(reflect.ValueOf(grammar).Elem(), "")
	return kong.New(grammar, append([]kong.Option{
		kong.Name("gavel"),
		kong.Description("gavel judges every move of an agent through a workflow before it happens, and records the judgement."),
		kong.PostBuild(keepVariablesForSettings),
		kong.PostBuild(addHelp),
		kong.DefaultEnvars("GAVEL"),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}),
	}, more...)...)
}

// parseArguments parses args into cmds, with values from the environment and the configuration file. If args ask for
// help, it prints the help and returns nil.
func parseArguments(cmds any, args []string, stdout, stderr io.Writer, options ...kong.Option) (*kong.Context, *fileSettings, error) {
	return parseWith(&fileSettings{}, cmds, args, stdout, stderr, options...)
}

func parseWith(settings *fileSettings, cmds any, args []string, stdout, stderr io.Writer, options ...kong.Option) (*kong.Context, *fileSettings, error) {
	ended := false
	settings.known = listKnownSettings
	grammar, command := grammarFor(cmds, args)
	options = append(append(options, command...), kong.Resolvers(settings))
	parser, err := newParser(grammar, stdout, stderr, func(int) { ended = true }, options...)
	if err != nil {
		return nil, settings, fmt.Errorf("build the command line: %w", err)
	}
	parsed, err := parser.Parse(joinNegatives(args))
	switch {
	case ended:
		return nil, settings, nil
	case err != nil:
		return nil, settings, cmp.Or(settings.err, usageError(err, args))
	}
	applyShared(parsed)
	return parsed, settings, errors.Join(settings.err, settings.locate(parsed, checkFlags(parsed, settings)))
}

// listKnownSettings lists what a configuration file may set.
func listKnownSettings() ([]config.Setting, []*kong.Flag, error) {
	all, err := newParser(&servers{}, io.Discard, io.Discard, func(int) {}) // the parser in use may have one command
	if err != nil {
		return nil, nil, err
	}
	known, flags := listSettings(all.Model)
	return known, flags, nil
}

// grammarFor returns the command line for args. kong reads every flag of every command by reflection, which is a
// third of the startup time. If args begin with a command, the others are omitted.
func grammarFor(cmds any, args []string) (grammar any, command []kong.Option) {
	all := reflect.ValueOf(cmds).Elem()
	flags := all.FieldByName("logFlags").Addr().Interface()
	for i := range all.NumField() {
		field := all.Type().Field(i)
		_, isCommand := field.Tag.Lookup("cmd")
		if name := nameOfCommand(field); isCommand && len(args) > 0 && args[0] == name {
			bindOperation(all.Field(i), name)
			return flags, []kong.Option{kong.DynamicCommand(name, field.Tag.Get("help"), "", all.Field(i).Addr().Interface())}
		}
	}
	for _, c := range module.Commands("") {
		if len(args) > 0 && args[0] == c.Name {
			return flags, []kong.Option{kong.DynamicCommand(c.Name, c.Help, "", newCommand(c, c.Name))}
		}
	}
	return cmds, nil
}

// helpWhenAsked converts `gavel` without arguments and `gavel help COMMAND` into --help.
func helpWhenAsked(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "--version" || args[0] == "-v":
		return append([]string{"version"}, args[1:]...)
	case args[0] == "help":
		return append(append([]string{}, args[1:]...), "--help")
	}
	return args
}

// logLines converts each line for a person into a log message. If programs read stderr, all of its output must have
// the form of their logs.
type logLines struct{ log *slog.Logger }

func (l logLines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" {
			l.log.Info(line) //nolint:sloglint // the line is the message
		}
	}
	return len(p), nil
}

func logLevel(name string) (level slog.Level) {
	_ = level.UnmarshalText([]byte(name)) // the flag allows only valid names
	return level
}
