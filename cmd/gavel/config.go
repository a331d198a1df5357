package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
)

type configCmd struct {
	Print configPrintCmd `cmd:"" help:"Print the settings that a server would have, and where each is from."`
	Check configCheckCmd `cmd:"" help:"Check a configuration file."`
}

type configPrintCmd struct {
	Serve configPrintServerCmd[serveCmd] `cmd:"" default:"withargs" help:"Print the settings of gavel serve, as it would have them with the same flags."`
	MCP   configPrintServerCmd[mcpCmd]   `cmd:"" name:"mcp" help:"Print the settings of gavel mcp, as it would have them with the same flags."`
}

type configPrintServerCmd[Server any] struct {
	JSON  bool   `name:"json" help:"Print JSON."`
	Flags Server `embed:""`
}

func (configPrintServerCmd[Server]) Help() string {
	return `Give the flags, the environment and the file of the server in question. What is secret is not
shown: keys that stand in variables, and passwords in addresses.

Examples:

    gavel config print --config gavel.yaml
    gavel config print serve --config gavel.yaml --listen 127.0.0.1:0
    gavel config print mcp --json | jq '.settings[] | select(.origin != "default")'`
}

type effective struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"` // default, file, environment, flag
	// Where is the flag, the variable, or the file with the line.
	Where    string `json:"where,omitempty"`
	Flag     string `json:"flag,omitempty"`
	Variable string `json:"variable,omitempty"`
}

// The origins of settings, lowest precedence first.
const (
	fromDefault     = "default"
	fromFile        = "file"
	fromEnvironment = "environment"
	fromFlag        = "flag"
)

func (c *configPrintServerCmd[Server]) Run(con *console) error {
	more, err := con.settings.declared()
	if err != nil {
		return err
	}
	list := slices.Concat(con.settings.list, more)
	for _, name := range []string{keyVariable, fallbackKeyVariable} {
		if os.Getenv(name) != "" {
			list = append(list, effective{Key: name, Value: telemetry.Redacted, Origin: fromEnvironment, Where: name, Variable: name})
		}
	}
	rows := [][]string{{"KEY", "VALUE", "FROM"}}
	for _, e := range list {
		rows = append(rows, []string{e.Key, term.OrNone(valueText(e.Value)), cmp.Or(e.Where, e.Origin)})
	}
	return con.print(c.JSON, map[string]any{"settings": list}, func() { con.out.Table(rows) })
}

func (s *fileSettings) effective(ctx *kong.Context) []effective {
	var list []effective
	command := commandOf(ctx)
	for _, flag := range ctx.Flags() {
		setting, ok := settingOf(command, flag)
		if !ok {
			continue
		}
		e := effective{Key: setting.Name(), Value: shownSetting(flag.Name, ctx.FlagValue(flag)), Flag: "--" + flag.Name, Variable: flag.Envs[0]}
		e.Origin, e.Where = s.origin(ctx, flag)
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b effective) int { return cmp.Compare(sectionRank(a.Key), sectionRank(b.Key)) })
	return list
}

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

// declared returns the names declared in the other sections of the file. Their contents can hold secrets.
func (s *fileSettings) declared() ([]effective, error) {
	var list []effective
	add := func(section, key string, value any) {
		if line := s.file.Line(section, key); line > 0 {
			list = append(list, effective{Key: section + "." + key, Value: value, Origin: fromFile, Where: fmt.Sprintf("%s:%d", s.file.Path(), line)})
		}
	}
	declared, err := auth.ParseConfig(s.file.Section(config.SectionAuth), s.file.Dir())
	if err != nil {
		return nil, module.BadConfig(err)
	}
	issuers := []string{}
	for _, i := range declared.Issuers {
		issuers = append(issuers, i.Name)
	}
	add(config.SectionAuth, "issuers", issuers)
	for _, section := range module.Sections() {
		node := s.file.Section(section.Name)
		if section.Show == nil {
			for _, name := range node.Keys() {
				add(section.Name, name, []string{})
			}
			continue
		}
		shown, err := section.Show(node)
		if err != nil {
			return nil, module.BadConfig(err)
		}
		for _, one := range shown {
			add(section.Name, one.Key, shownValue(one.Value))
		}
	}
	add(config.SectionEvidence, "sources", append([]string{}, s.file.Section(config.SectionEvidence).Get("sources").Keys()...))
	return list, nil
}

// shownSetting is shownValue, and removes the password of a store.
func shownSetting(flag string, v any) any {
	if text, ok := v.(string); ok && flag == "store" {
		return nameStore(text)
	}
	return shownValue(v)
}

// shownValue returns a flag's value without secrets, as the file would contain it.
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

// shortSpan formats a duration as 2m instead of 2m0s.
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

type checkedFile struct {
	File   string   `json:"file"`
	OK     bool     `json:"ok"`
	Issues []string `json:"issues"`
}

func (c *configCheckCmd) Run(con *console) error {
	server, err := checkConfig(con, filepath.Clean(c.File))
	if err == nil { // checkConfig already found their errors; these calls log the warnings
		err = checkModules(c.File, parseAll(server.Definitions), con.log)
		server.warnIdleStagesOf(con.log, server.Definitions)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return term.UsageErrorf("", "%w", err)
	}
	if c.JSON {
		return cmp.Or(con.out.JSON(checkedFile{File: c.File, OK: err == nil, Issues: term.ListLines(err)}), badUnless(err == nil))
	}
	if f, ok := errors.AsType[*term.ExitError](err); ok {
		f.Code = term.ExitBad
	}
	return err
}

// checkConfig returns all errors that the file alone shows, and the server that it configures. It ignores the
// environment and flags, so it accepts what only they could complete.
func checkConfig(con *console, path string) (*serveCmd, error) {
	if _, err := config.Load(path); err != nil {
		return nil, module.BadConfig(err)
	}
	manager, err := openEvidence(path)
	if err == nil {
		manager.Close()
	}
	found := []error{err}
	var cmds servers
	located := map[string]func(string, ...error){}
	for _, server := range serverSections {
		parsed, settings, err := con.parse(&cmds, []string{server, "--config", path}, io.Discard, io.Discard, kong.PostBuild(ignoreEnvironment))
		found = append(found, err)
		if parsed == nil { // kong could not finish parsing
			return nil, joinMistakes(found)
		}
		located[server] = func(section string, wrong ...error) {
			found = append(found, settings.locateIn(parsed, section, errors.Join(wrong...)))
		}
		located[server](server, settings.checkFiles(parsed))
	}
	f := &cmds.Serve
	found = append(found, checkModules(path, parseAll(f.Definitions), slog.New(slog.DiscardHandler)))
	_, err = issuersFor(configFlag{Config: path}, f.Auth)
	located[config.SectionServe](config.SectionServe, err, f.checkReviews(), f.issuerFlags.check(), f.rateFlags.check(), f.listenFlags.checkForm(), f.anchorFlags.check())
	located[config.SectionServe](config.SectionModel, f.modelFlags.check(), f.modelFlags.checkModels())
	located[config.SectionMCP](config.SectionMCP, cmds.MCP.checkReviews(), checkAgent(cmp.Or(cmds.MCP.Principal, gavel.Operator.ID)))
	return f, joinMistakes(found)
}

// warnIdleStagesOf warns about the definitions of a configuration. gavel lint reports their mistakes.
func (f *modelFlags) warnIdleStagesOf(log *slog.Logger, definitions []string) {
	calibrations, err := f.openCalibrations()
	if f.Model == "" || err != nil {
		return
	}
	files, _ := module.DefinitionFiles(definitions)
	for _, file := range files {
		if d, err := parseDefinition(file); err == nil {
			f.warnIdleStages(log, calibrations, d)
		}
	}
}

// readFiles lists the flags whose files a server reads when it starts. Missing files of stores, tokens, anchors and
// cassettes are created.
var readFiles = []string{"definitions", "tls-cert", "tls-key", "tls-client-ca", "llm-key-file", "llm-calibration", "llm-canaries", "anchor-key", "store-key"}

// checkFiles returns an error for files that the configuration names and that cannot be read.
func (s *fileSettings) checkFiles(ctx *kong.Context) error {
	var wrong []error
	add := func(flag *kong.Flag, err error) {
		if err != nil {
			wrong = append(wrong, term.UsageErrorf("", "--%s: %w", flag.Name, err))
		}
	}
	for _, flag := range ctx.Flags() {
		if origin, _ := s.origin(ctx, flag); origin != fromFile || !slices.Contains(readFiles, flag.Name) {
			continue
		}
		switch place := ctx.FlagValue(flag).(type) {
		case []string:
			for _, pattern := range place {
				_, err := module.DefinitionFiles([]string{pattern})
				add(flag, err)
			}
		case string:
			if place != "" && !isKeyText(place) {
				add(flag, config.CheckReadable(place))
			}
		}
	}
	return errors.Join(wrong...)
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

// configFlag is the --config flag of every command that judges, or that inspects what a judgement needs.
type configFlag module.ConfigFlag

// open opens the sources in the configuration file; nil without a file. It fetches nothing, and logs warnings about
// sources that would fail now.
func (f configFlag) open(log *slog.Logger) (*evidence.Manager, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // no configuration: a valid, common answer
	}
	manager, err := openEvidence(f.Config)
	if err != nil {
		return nil, err
	}
	hideSecrets()
	for _, warning := range manager.Warnings() {
		log.Warn("evidence", "config", f.Config, "issue", warning)
	}
	return manager, nil
}

// openAlone is open for a command without a system; it also opens the parts of modules. end closes both.
func (f configFlag) openAlone(ctx context.Context, log *slog.Logger) (manager *evidence.Manager, end func(), err error) {
	if manager, err = f.open(log); manager == nil {
		return nil, func() {}, err
	}
	file, err := config.Load(f.Config)
	var modules module.Extensions
	if err == nil {
		modules, err = module.Extend(ctx, module.Setup{File: file, OnDemand: true, Watcher: thisProgram(), Version: readBuild().Version, Log: log})
	}
	if err != nil {
		manager.Close()
		return nil, nil, module.BadConfig(err)
	}
	if tools, ok := module.Find[evidence.Tools](modules); ok {
		manager.UseTools(tools)
	}
	return manager, func() { manager.Close(); modules.Close() }, nil
}

func openEvidence(path string) (*gavel.Fetcher, error) {
	declared, err := gavel.OpenFetcher(path, gavel.FetcherConfig{Watcher: thisProgram()})
	return declared, module.BadConfig(err)
}

// thisProgram returns the path of the running program; "" if it is unknown. On Linux it uses the kernel's link, which
// is correct even after an upgrade.
func thisProgram() string {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self
	}
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}
