package serve

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
)

// ConfigCommand has the commands that print and check settings.
type ConfigCommand struct {
	Print configPrintCmd `cmd:"" help:"Print the settings that a server would use, and the source of each."`
	Check configCheckCmd `cmd:"" help:"Check a configuration file."`
}

type configPrintCmd struct {
	Serve configPrintServerCmd[Command]    `cmd:"" default:"withargs" help:"Print the settings that gavel serve would use with these flags."`
	MCP   configPrintServerCmd[MCPCommand] `cmd:"" name:"mcp" help:"Print the settings that gavel mcp would use with these flags."`
}

type configPrintServerCmd[Server any] struct {
	JSON  bool   `name:"json" help:"Print JSON."`
	Flags Server `embed:""`
}

func (configPrintServerCmd[Server]) Help() string {
	return `Use the flags, environment and configuration file of the server in question. Secrets are not shown:
keys in variables, and passwords in addresses.

Examples:

    gavel config print --config gavel.yaml
    gavel config print serve --config gavel.yaml --listen 127.0.0.1:0
    gavel config print mcp --json | jq '.settings[] | select(.origin != "default")'`
}

func (c *configPrintServerCmd[Server]) Run(con *cli.Console) error {
	more, err := con.Settings.Declared()
	if err != nil {
		return err
	}
	list := slices.Concat(con.Settings.List, more)
	for _, name := range []string{cli.KeyVariable, cli.FallbackKeyVariable} {
		if os.Getenv(name) != "" {
			list = append(list, cli.EffectiveSetting{Key: name, Value: telemetry.Redacted, Origin: cli.FromEnvironment, Where: name, Variable: name})
		}
	}
	rows := [][]string{{"KEY", "VALUE", "FROM"}}
	for _, e := range list {
		rows = append(rows, []string{e.Key, term.OrNone(cli.FormatValue(e.Value)), cmp.Or(e.Where, e.Origin)})
	}
	return con.Print(c.JSON, map[string]any{"settings": list}, func() { con.Out.Table(rows) })
}

type configCheckCmd struct {
	File string `arg:"" name:"file" help:"The configuration file."`
	JSON bool   `name:"json" help:"Print JSON."`
}

type checkedFile struct {
	File   string   `json:"file"`
	OK     bool     `json:"ok"`
	Issues []string `json:"issues"`
}

func (c *configCheckCmd) Run(con *cli.Console) error {
	server, err := CheckConfig(con, filepath.Clean(c.File))
	if err == nil { // CheckConfig has already checked them; this call logs the warnings
		err = checkModules(c.File, cli.ParseDefinitions(server.Definitions), con.Log)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return term.UsageErrorf("", "%w", err)
	}
	if c.JSON {
		return cmp.Or(con.Out.JSON(checkedFile{File: c.File, OK: err == nil, Issues: term.ListLines(err)}), cli.ExitBadUnless(err == nil))
	}
	if f, ok := errors.AsType[*term.ExitError](err); ok {
		f.Code = term.ExitBad
	}
	return err
}

// CheckConfig returns the server that a file configures, and all errors that the file alone shows. It ignores the
// environment and flags, so it accepts settings that only they could complete.
func CheckConfig(con *cli.Console, path string) (*Command, error) {
	if _, err := config.Load(path); err != nil {
		return nil, module.ConfigError(err)
	}
	var found []error
	var cmds Servers
	located := map[string]func(string, ...error){}
	for _, server := range cli.ServerSections {
		parsed, settings, err := con.Parse(&cmds, []string{server, "--config", path}, io.Discard, io.Discard, kong.PostBuild(ignoreEnvironment))
		found = append(found, err)
		if parsed == nil { // kong could not finish parsing
			return nil, joinMistakes(found)
		}
		located[server] = func(section string, wrong ...error) {
			found = append(found, settings.LocateErrorIn(parsed, section, errors.Join(wrong...)))
		}
		located[server](server, settings.CheckFiles(parsed))
	}
	f := &cmds.Serve
	found = append(found, checkModules(path, cli.ParseDefinitions(f.Definitions), slog.New(slog.DiscardHandler)))
	_, err := issuersFor(cli.ConfigFlag{Config: path}, f.Auth)
	located[config.SectionServe](config.SectionServe, err, f.checkReviews(), f.issuerFlags.check(), f.rateFlags.check(), f.listenFlags.checkForm(), f.AnchorFlags.Check())
	located[config.SectionServe](config.SectionModel, f.ModelFlags.Check(), f.ModelFlags.CheckModels())
	located[config.SectionMCP](config.SectionMCP, cmds.MCP.checkReviews(), cli.CheckAgent(cmp.Or(cmds.MCP.Principal, gavel.Operator.ID)))
	return f, joinMistakes(found)
}

// joinMistakes joins all mistakes of a configuration file into one error without duplicates; nil if there are none.
func joinMistakes(found []error) error {
	var lines []string
	for i := 0; i < len(found); i++ {
		if joined, ok := found[i].(interface{ Unwrap() []error }); ok {
			found = slices.Insert(found, i+1, joined.Unwrap()...)
			continue
		}
		for _, line := range term.ListLines(found[i]) {
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if i := slices.IndexFunc(found, func(err error) bool { return slices.Equal(term.ListLines(err), lines) }); i >= 0 && len(lines) == 1 {
		return found[i]
	}
	return &term.ExitError{Code: term.ExitUsage, Err: errors.New("the configuration file has mistakes"), Lines: lines}
}

func ignoreEnvironment(parser *kong.Kong) error {
	for _, node := range append([]*kong.Node{parser.Model.Node}, parser.Model.Children...) {
		for _, f := range node.Flags {
			f.Envs, f.Value.Tag.Envs = nil, nil
		}
	}
	return nil
}
