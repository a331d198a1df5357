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
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/admin"
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/author"
	_ "github.com/gavel-mcp/gavel/cmd/gavel/internal/earlyworker" // a process that runs scripts ends there
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/instance"
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/review"
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	_ "github.com/gavel-mcp/gavel/cmd/gavel/modules" // links the modules
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	_ "github.com/gavel-mcp/gavel/internal/latecollect" // before everything else
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func init() {
	for _, of := range []map[string]*cli.OperationSpec{instance.Operations, review.Operations, author.Operations} {
		maps.Copy(cli.OperationSpecs, of)
	}
}

func main() {
	worker.Main(workflow.AnswerLintRequest)
	if process.Watch(os.Args, os.Stdin) {
		return
	}
	if process := module.FindProcess(filepath.Base(os.Args[0])); process != nil {
		cli.HideSecrets()
		os.Exit(process(context.Background(), os.Args[1:], os.Stdin, os.Stdout))
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// commands is the command line. Modules add commands to its groups.
type commands struct {
	cli.LogFlags

	Init       author.InitCommand   `cmd:"" group:"start" help:"Write a workflow with its tests, settings and MCP client configuration."`
	Lint       author.LintCommand   `cmd:"" group:"start" help:"Check workflow definitions."`
	Test       author.TestCommand   `cmd:"" group:"start" help:"Run workflow tests."`
	Try        author.TryCommand    `cmd:"" group:"start" help:"Run a workflow by hand in the terminal."`
	Graph      author.GraphCommand  `cmd:"" group:"start" help:"Draw a workflow, or the path of an instance."`
	Script     author.ScriptCommand `cmd:"" group:"start" help:"Run and test validator scripts in the sandbox."`
	Schema     author.SchemaCommand `cmd:"" group:"start" help:"Print the JSON Schemas of gavel's file formats."`
	Version    versionCmd           `cmd:"" group:"start" help:"Print the version."`
	Completion completionCmd        `cmd:"" group:"start" help:"Print a completion script for your shell."`

	MCP    serve.MCPCommand    `cmd:"" name:"mcp" group:"serve" help:"Serve workflows to an MCP client over stdin and stdout."`
	Serve  serve.Command       `cmd:"" group:"serve" help:"Serve workflows over HTTP to MCP clients and other programs."`
	Health serve.HealthCommand `cmd:"" group:"serve" help:"Check whether a server is ready."`
	Config serve.ConfigCommand `cmd:"" group:"serve" help:"Show and check the configuration."`
	Token  serve.TokenCommand  `cmd:"" group:"serve" help:"Create and revoke the tokens of gavel serve's callers."`

	Start     cli.JudgedCommand       `cmd:"" group:"watch" help:"Start an instance of a workflow."`
	Advance   cli.JudgedCommand       `cmd:"" group:"watch" help:"Request an action of an instance."`
	Status    cli.OperationCommand    `cmd:"" group:"watch" help:"Show the state of an instance and its next actions."`
	Instances instance.Command        `cmd:"" group:"watch" help:"Inspect workflow instances, including past revisions."`
	Review    review.Command          `cmd:"" group:"watch" help:"Decide moves that wait for a person."`
	History   instance.HistoryCommand `cmd:"" group:"watch" help:"Search, count and export decisions."`

	Judge author.JudgeCommand `cmd:"" group:"judge" help:"Try the judge's model: its endpoint, prompt and answers."`

	Backup  admin.BackupCommand  `cmd:"" group:"store" help:"Back up a store while it is in use, and verify the copy."`
	Restore admin.RestoreCommand `cmd:"" group:"store" help:"Replace a store with a backup."`
	Repair  admin.RepairCommand  `cmd:"" group:"store" help:"Recover the readable rows of a damaged store."`
	Verify  admin.VerifyCommand  `cmd:"" group:"store" help:"Verify that the records are unchanged."`
	Anchor  admin.AnchorCommand  `cmd:"" group:"store" help:"Sign the records, so that changes can be detected."`
	Seal    admin.SealCommand    `cmd:"" group:"store" help:"Check the seals of definitions, or seal them again."`
	Keys    admin.KeysCommand    `cmd:"" group:"store" help:"Rotate, wrap and destroy the keys that encrypt sensitive values."`
	Retain  admin.RetainCommand  `cmd:"" group:"store" help:"Apply the retention rules of definitions."`
	Migrate admin.MigrateCommand `cmd:"" group:"store" help:"Pin instances to another version of their workflow."`
	Cursor  admin.CursorCommand  `cmd:"" group:"store" help:"Inspect and move the cursors of log readers."`
}

// run is the program: it parses args, runs one command and returns the exit code. SIGINT and SIGTERM cancel ctx; a
// second signal ends the process immediately.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	dropEmptySettings()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()

	con := &cli.Console{
		In: term.BlockingReader(stdin), RawOut: term.BlockingWriter(stdout),
		Out: term.New(stdout), Err: term.New(stderr), Parse: parseArguments,
	}
	con.CheckConfig = func(path string) error {
		_, err := serve.CheckConfig(con, path)
		return err
	}
	if len(args) == 0 && isProgram(stdin) {
		args, con.Implied = []string{"mcp"}, true
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
		con.LogErrors(stderr)
	}
	if guard := module.FindGuard(args); guard != nil {
		return guard(ctx, module.Program{In: con.In, Out: con.RawOut, Err: stderr, Execute: func(ctx context.Context) error {
			return cli.ListMistakes(execute(ctx, con, args, stderr))
		}})
	}
	if err := con.Out.AddWriteError(execute(ctx, con, args, stderr)); err != nil {
		err = cli.ListMistakes(err)
		switch {
		case asksForJSON(args):
			return term.New(stderr).PrintErrorJSON(err)
		case con.Errors != nil:
			return cli.LogError(con.Errors, err)
		}
		return con.Err.PrintError(err)
	}
	if con.Unsure {
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
	return format == cli.LogJSON
}

// dropEmptySettings unsets empty variables: container files and service managers write "no value" that way.
func dropEmptySettings() {
	for _, pair := range os.Environ() {
		if name, empty := strings.CutSuffix(pair, "="); empty && cli.IsSetting(name) {
			_ = os.Unsetenv(name) // fails on malformed names only
		}
	}
}

// execute parses args and runs the command. Its error is shown to the user.
func execute(ctx context.Context, con *cli.Console, args []string, stderr io.Writer) error {
	var cmds commands
	var options []kong.Option
	if len(args) > 0 && args[0] == "help" {
		options = append(options, kong.Help(printFullHelp))
	}
	approved := func(command string, flag func(string) string) (module.Approval, error) {
		return module.FindApproval(ctx, command, flag)
	}
	parsed, settings, err := parseWith(&cli.FileSettings{Approved: approved, Unpin: func() {}}, &cmds, rewriteHelp(args), con.Out, con.Err, options...)
	defer settings.Unpin()
	if settings.LogFormat() == cli.LogJSON {
		con.LogErrors(stderr)
	}
	if err != nil || parsed == nil {
		return err
	}
	settings.List = settings.Effective(parsed)
	con.Args, con.Settings = args, settings
	con.Level = new(slog.LevelVar)
	con.Level.Set(cli.LogLevel(cmds.LogLevel))
	con.Log = telemetry.NewLogger(stderr, con.Level, cmds.LogFormat == cli.LogJSON)
	if cmds.LogFormat == cli.LogJSON {
		con.LogErrors(stderr)
	}
	if con.Implied {
		con.Err.Printf("gavel: no command, and stdin is not a terminal: running gavel mcp; gavel --help lists the commands\n")
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return settings.LocateError(parsed, parsed.Run(con))
}

// newParser returns the parser of the command line.
func newParser(grammar any, stdout, stderr io.Writer, exit func(int), more ...kong.Option) (*kong.Kong, error) {
	if _, all := grammar.(*commands); all {
		for _, c := range module.Commands("") {
			more = append(more, kong.DynamicCommand(c.Name, c.Help, c.Group, cli.NewModuleCommand(c, c.Name)))
		}
	}
	cli.BindOperations(reflect.ValueOf(grammar).Elem(), "")
	return kong.New(grammar, append([]kong.Option{
		kong.Name("gavel"),
		kong.Description("gavel judges every move of an agent through a workflow before it happens, and records the judgement."),
		kong.PostBuild(cli.KeepVariablesForSettings),
		kong.PostBuild(addHelp),
		kong.PostBuild(sortCommands),
		kong.ExplicitGroups(commandGroups),
		kong.DefaultEnvars("GAVEL"),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}),
	}, more...)...)
}

// parseArguments parses args into cmds, with values from the environment and the configuration file. If args ask for
// help, it prints the help and returns nil.
func parseArguments(cmds any, args []string, stdout, stderr io.Writer, options ...kong.Option) (*kong.Context, *cli.FileSettings, error) {
	return parseWith(&cli.FileSettings{}, cmds, args, stdout, stderr, options...)
}

func parseWith(settings *cli.FileSettings, cmds any, args []string, stdout, stderr io.Writer, options ...kong.Option) (*kong.Context, *cli.FileSettings, error) {
	ended := false
	settings.Known = listKnownSettings
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
		return nil, settings, cmp.Or(settings.Err, usageError(err, args))
	}
	return parsed, settings, errors.Join(settings.Err, settings.LocateError(parsed, checkFlags(parsed, settings)))
}

// listKnownSettings lists what a configuration file may set.
func listKnownSettings() ([]config.Setting, []*kong.Flag, error) {
	all, err := newParser(&serve.Servers{}, io.Discard, io.Discard, func(int) {}) // the parser in use may lack commands
	if err != nil {
		return nil, nil, err
	}
	known, flags := cli.ListSettings(all.Model)
	return known, flags, nil
}

// grammarFor returns the grammar of the command line for args. kong reads every flag of every command by
// reflection, which takes a third of the startup time. If args begin with a command, the others are omitted.
func grammarFor(cmds any, args []string) (grammar any, command []kong.Option) {
	all := reflect.ValueOf(cmds).Elem()
	flags := all.FieldByName("LogFlags").Addr().Interface()
	for i := range all.NumField() {
		field := all.Type().Field(i)
		_, isCommand := field.Tag.Lookup("cmd")
		if name := cli.CommandFieldName(field); isCommand && len(args) > 0 && args[0] == name {
			cli.BindOperation(all.Field(i), name)
			return flags, []kong.Option{kong.DynamicCommand(name, field.Tag.Get("help"), "", all.Field(i).Addr().Interface())}
		}
	}
	for _, c := range module.Commands("") {
		if len(args) > 0 && args[0] == c.Name {
			return flags, []kong.Option{kong.DynamicCommand(c.Name, c.Help, "", cli.NewModuleCommand(c, c.Name))}
		}
	}
	return cmds, nil
}

// rewriteHelp converts `gavel` without arguments and `gavel help COMMAND` into --help, and --version into the
// command version.
func rewriteHelp(args []string) []string {
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
