package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/telemetry"
)

type configCmd struct {
	Print configPrintCmd `cmd:"" help:"Print the settings that a server would have, and where each is from."`
	Check configCheckCmd `cmd:"" help:"Check a configuration file."`
}

// Help says where settings come from.
func (configCmd) Help() string {
	return `Every setting of a server is a flag, an environment variable and a key of one file (--config or
GAVEL_CONFIG). A flag counts before a variable, a variable before the file, and the file
before the default. docs/reference/config.md lists the keys.`
}

type configPrintCmd struct {
	Serve configPrintServeCmd `cmd:"" default:"withargs" help:"Print the settings of gavel serve, as it would have them with the same flags."`
	MCP   configPrintMCPCmd   `cmd:"" name:"mcp" help:"Print the settings of gavel mcp, as it would have them with the same flags."`
}

type configPrintServeCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
	serveCmd
}

// printExamples are those of both.
const printExamples = `Give the flags, the environment and the file of the server in question. What is secret is not
shown: keys that stand in variables, and passwords in addresses.

Examples:

    gavel config print --config gavel.yaml
    gavel config print serve --config gavel.yaml --listen 127.0.0.1:0
    gavel config print mcp --json | jq '.settings[] | select(.origin != "default")'`

// Help shows examples.
func (configPrintServeCmd) Help() string { return printExamples }

// Run prints settings.
func (c *configPrintServeCmd) Run(con *console) error {
	return printSettings(con, c.JSON)
}

type configPrintMCPCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
	mcpCmd
}

// Help shows examples.
func (configPrintMCPCmd) Help() string { return printExamples }

// Run prints settings.
func (c *configPrintMCPCmd) Run(con *console) error {
	return printSettings(con, c.JSON)
}

// effective is one setting as it is in force.
type effective struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"` // default, file, environment, flag
	// Where is the flag, the variable, or the file with its line.
	Where    string `json:"where,omitempty"`
	Flag     string `json:"flag,omitempty"`
	Variable string `json:"variable,omitempty"`
}

// The origins of settings, the weakest first.
const (
	fromDefault     = "default"
	fromFile        = "file"
	fromEnvironment = "environment"
	fromFlag        = "flag"
)

func printSettings(con *console, asJSON bool) error {
	list := slices.Clone(con.settings.list)
	more, err := con.settings.declared()
	if err != nil {
		return err
	}
	list = append(list, more...)
	for _, name := range []string{keyVariable, fallbackKeyVariable} {
		if os.Getenv(name) != "" {
			list = append(list, effective{Key: name, Value: telemetry.Redacted, Origin: fromEnvironment, Where: name, Variable: name})
		}
	}
	if asJSON {
		return con.out.JSON(map[string]any{"settings": list})
	}
	rows := [][]string{{"KEY", "VALUE", "FROM"}}
	for _, e := range list {
		from := e.Where
		if from == "" {
			from = e.Origin
		}
		rows = append(rows, []string{e.Key, orNone(valueText(e.Value)), from})
	}
	con.out.Table(rows)
	return nil
}

// effective are the settings of the command that runs.
func (s *fileSettings) effective(ctx *kong.Context) []effective {
	var list []effective
	command := commandOf(ctx)
	for _, flag := range ctx.Flags() {
		b, ok := bind(command, flag)
		if !ok {
			continue
		}
		e := effective{Key: b.Name(), Value: shownValue(ctx.FlagValue(flag)), Flag: "--" + flag.Name, Variable: flag.Envs[0]}
		e.Origin, e.Where = s.origin(ctx, flag)
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b effective) int { return cmp.Compare(sectionRank(a.Key), sectionRank(b.Key)) })
	return list
}

// sectionRank keeps the settings of a section together.
func sectionRank(key string) int {
	section, _, inside := strings.Cut(key, ".")
	if !inside {
		return -1
	}
	return slices.Index([]string{config.SectionServe, config.SectionMCP, config.SectionQuotas, config.SectionModel, config.SectionAnchors}, section)
}

func (s *fileSettings) origin(ctx *kong.Context, flag *kong.Flag) (origin, where string) {
	for _, step := range ctx.Path {
		if step.Flag == flag && !step.Resolved {
			return fromFlag, "--" + flag.Name
		}
	}
	if name := variableOf(flag); name != "" {
		return fromEnvironment, name
	}
	if v, ok := s.valueOf(ctx, flag); ok {
		return fromFile, fmt.Sprintf("%s:%d", s.file.Path(), v.Line)
	}
	return fromDefault, ""
}

// declared are the names of what the file's other sections declare. Their contents can hold
// secrets.
func (s *fileSettings) declared() ([]effective, error) {
	var list []effective
	add := func(section, key string, names []string) {
		if line := s.file.Line(section, key); line > 0 {
			list = append(list, effective{Key: section + "." + key, Value: names, Origin: fromFile, Where: fmt.Sprintf("%s:%d", s.file.Path(), line)})
		}
	}
	declared, err := auth.ParseConfig(s.file.Section(config.SectionAuth), s.dir())
	if err != nil {
		return nil, badConfig(err)
	}
	issuers := []string{}
	for _, i := range declared.Issuers {
		issuers = append(issuers, i.Name)
	}
	add(config.SectionAuth, "issuers", issuers)
	add(config.SectionEvidence, "sources", append([]string{}, s.file.Section(config.SectionEvidence).Get("sources").Keys()...))
	return list, nil
}

func (s *fileSettings) dir() string {
	if s.file == nil {
		return ""
	}
	return s.file.Dir()
}

// shownValue is a flag's value without secrets, in the form that the file would have it.
func shownValue(v any) any {
	switch v := v.(type) {
	case string:
		if isKeyText(v) {
			return telemetry.Redacted
		}
		return telemetry.Scrub(v)
	case time.Duration:
		return shortSpan(v)
	case []string:
		list := make([]string, len(v))
		for i, item := range v {
			list[i] = telemetry.Scrub(item)
		}
		return list
	case *float64:
		if v == nil {
			return nil
		}
		return *v
	default:
		return v
	}
}

// shortSpan writes 2m and not 2m0s.
func shortSpan(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []string:
		return strings.Join(v, ", ")
	default:
		return fmt.Sprint(v)
	}
}

type configCheckCmd struct {
	File string `arg:"" name:"file" help:"The configuration file."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Help shows examples.
func (configCheckCmd) Help() string {
	return `Looks at everything that can be told without starting a server: keys, values, sources of
evidence, issuers. Nothing is fetched, and the environment's settings do not count. Silent when
all is well.

Examples:

    gavel config check gavel.yaml
    gavel config check gavel.yaml --json

Exit codes: 0 fine, 1 the file has mistakes, 2 wrong usage, 3 could not find out.`
}

func (c *configCheckCmd) path() string { return filepath.Clean(c.File) }
