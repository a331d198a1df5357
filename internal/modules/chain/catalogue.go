package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// chainSection is the parsed and checked section chains of a configuration file.
type chainSection struct {
	*Settings
	byName   map[string]*Definition
	warnings map[string][]string // by chain
	issuers  []string            // the names of the issuers whose tokens are accepted
}

// catalogue holds the operator's chains as their files define them. A change that contains a mistake is not
// applied.
type catalogue struct {
	section atomic.Pointer[chainSection]
	refused atomic.Pointer[error]
}

// apply puts a section into force, and logs the warnings that the previous section did not have.
func (c *catalogue) apply(log *slog.Logger, section *chainSection) {
	before := c.section.Swap(section)
	for _, name := range slices.Sorted(maps.Keys(section.warnings)) {
		for _, warning := range section.warnings[name] {
			if before == nil || !slices.Contains(before.warnings[name], warning) {
				log.Warn("chain", "issue", warning)
			}
		}
	}
	for _, name := range section.idleSchedules() {
		if before == nil || !slices.Contains(before.idleSchedules(), name) {
			log.Warn("a schedule starts no runs: name the principal that they act for in chains.runAs", "chain", name)
		}
	}
}

// idleSchedules returns the chains whose schedules start nothing, because no principal is configured for
// their runs.
func (s *chainSection) idleSchedules() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		if s.RunAs == nil && s.byName[name].Schedule != nil {
			names = append(names, name)
		}
	}
	return names
}

// list returns the definitions in force.
func (c *catalogue) list() map[string]*Definition { return c.section.Load().byName }

// actsFor returns the principal for which the runs of a chain act, or false if they act for their starter.
func (c *catalogue) actsFor(name string) (engine.Principal, bool) {
	return c.section.Load().ActsFor(name)
}

// findProblem returns why the current files are not in force, or nil if they are.
func (c *catalogue) findProblem() error {
	if err := c.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// listFiles returns the files that the chains of a configuration file depend on.
func (c *catalogue) listFiles(file *config.File) []string {
	patterns := c.section.Load().Definitions
	if s, err := ParseSettings(file.Section(sectionChains)); err == nil && s != nil {
		patterns = s.Definitions
	}
	files, _ := chainFiles(patterns) // files that no longer exist are omitted
	return append([]string{upstream.PinsPath(file.Path())}, files...)
}

// prepare reads and checks the section and its definitions. If the section was removed, open runs continue
// and no new ones start.
func (c *chains) prepare(_ context.Context, next *module.Change) (take func(), err error) {
	section, err := readChains(next.File, c.models())
	if err != nil {
		return nil, err
	}
	if section == nil {
		section = &chainSection{Settings: &Settings{}, issuers: namesOfIssuers(next.File)}
	}
	next.Procedures = section.procedures()
	return func() { c.apply(c.log, section) }, nil
}

// models returns the names of the configured models, or nil while they are unknown.
func (c *chains) models() []string {
	if c.sys.Engine == nil {
		return nil
	}
	return append([]string{}, c.sys.Models...)
}

func (c *catalogue) settled(err error) {
	c.refused.Store(nil)
	if err != nil {
		c.refused.Store(&err)
	}
}

// procedures describes the chains for use as tools; nil without a section.
func (s *chainSection) procedures() []operation.Procedure {
	if s == nil {
		return nil
	}
	all := []operation.Procedure{}
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		all = append(all, s.byName[name].Procedure())
	}
	return all
}

// chainFiles returns the definition files that match patterns; a folder may be empty.
func chainFiles(patterns []string) ([]string, error) {
	return cli.DefinitionFiles(slices.DeleteFunc(slices.Clone(patterns), cli.IsEmptyFolder))
}

// namesOfIssuers returns the names of the issuers that a configuration file declares. Mistakes in the
// declarations are reported elsewhere.
func namesOfIssuers(file *config.File) (names []string) {
	if declared := file.Section(config.SectionAuth).Get("issuers"); declared != nil {
		for _, item := range declared.Items {
			if name := item.Get("name"); name != nil {
				names = append(names, name.Text)
			}
		}
	}
	return names
}

// readChains reads and checks the section chains of a configuration file, with the definitions that it
// lists. It returns nil without the section, and starts nothing.
func readChains(file *config.File, models []string) (*chainSection, error) {
	settings, err := ParseSettings(file.Section(sectionChains))
	if err != nil || settings == nil {
		return nil, err
	}
	path := file.Path()
	declared, err := upstream.ParseConfig(file.Section(upstream.Section))
	if err != nil {
		return nil, err
	}
	pins, err := upstream.LoadPins(upstream.PinsPath(path))
	if err != nil {
		return nil, term.UsageErrorf("", "%w", err)
	}
	files, err := chainFiles(settings.Definitions)
	if err != nil {
		return nil, err
	}
	section := &chainSection{Settings: settings, byName: map[string]*Definition{}, warnings: map[string][]string{}, issuers: namesOfIssuers(file)}
	options := LintOptions{Servers: listPinned(declared, pins), Writer: settings.Writer, Models: models, Now: time.Now(), Flags: configFlagText(cli.ConfigFlag{Config: path})}
	from := map[string]string{}
	var wrong []string
	for _, name := range files {
		d, err := parseChain(name)
		if bad, ok := errors.AsType[*workflow.ParseError](err); ok {
			wrong = append(wrong, cli.IssueLines(name, bad.Issues)...)
			continue
		} else if err != nil {
			return nil, err
		}
		if other := from[d.Name]; other != "" {
			wrong = append(wrong, fmt.Sprintf("%s: error: %s defines a chain with the same name; rename one chain", name, other))
		}
		from[d.Name], section.byName[d.Name] = name, d
		for _, issue := range d.Lint(options) {
			if issue.Severity == workflow.SeverityError {
				wrong = append(wrong, cli.IssueLine(name, issue))
			} else {
				section.warnings[d.Name] = append(section.warnings[d.Name], cli.IssueLine(name, issue))
			}
		}
	}
	for _, pattern := range settings.UnusedPatterns(section.byName) {
		section.warnings[""] = append(section.warnings[""], fmt.Sprintf("%s: warning: the pattern %q in chains.runAs.chains matches no chain", path, pattern))
	}
	if len(wrong) > 0 {
		return nil, &term.ExitError{Code: term.ExitUsage, Err: errors.New("the chains have errors"), Hint: "check them with: gavel config check " + term.ShellWord(path), Lines: wrong}
	}
	return section, nil
}

// listPinned returns the names of the pinned items of each declared server.
func listPinned(declared upstream.Config, pins *upstream.Pins) map[string]ServerItems {
	items := map[string]ServerItems{}
	for name, server := range declared.Servers {
		known := ServerItems{Unknown: server.Pinning == upstream.PinningFirstUse, OutputSchemas: map[string]json.RawMessage{}}
		pinned, _ := pins.Of(name)
		for _, item := range pinned {
			switch item.Kind {
			case upstream.KindTool:
				known.Tools = append(known.Tools, item.Name)
				known.OutputSchemas[item.Name] = ReadOutputSchema(item.Raw)
			case upstream.KindPrompt:
				known.Prompts = append(known.Prompts, item.Name)
			case upstream.KindResource, upstream.KindTemplate:
			}
		}
		items[name] = known
	}
	return items
}
