package main

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
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// chainSection is what the section chains of a configuration file comes to.
type chainSection struct {
	*chain.Settings
	byName   map[string]*chain.Definition
	warnings map[string][]string // by chain
	issuers  []string            // the names of those whose tokens are accepted
}

// chainCatalogue has the operator's chains as their files are. A change with a mistake changes nothing.
type chainCatalogue struct {
	config  string   // the configuration file
	models  []string // the configured ones; nil when unknown
	section atomic.Pointer[chainSection]
	refused atomic.Pointer[error]
}

// openCatalogue reads the chains of a configuration file; nil where it has no section of them.
func openCatalogue(log *slog.Logger, path string, models []string) (*chainCatalogue, error) {
	section, err := readChains(path, models)
	if err != nil || section == nil {
		return nil, err
	}
	c := &chainCatalogue{config: path, models: models}
	c.take(log, section)
	return c, nil
}

// take has a section in force, and warns of what was not wrong before.
func (c *chainCatalogue) take(log *slog.Logger, section *chainSection) {
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
			log.Warn("a schedule starts nothing: name the principal of its runs in chains.runAs", "chain", name)
		}
	}
}

// idleSchedules are the chains whose schedules start nothing, because nobody is named that their runs act for.
func (s *chainSection) idleSchedules() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		if s.RunAs == nil && s.byName[name].Schedule != nil {
			names = append(names, name)
		}
	}
	return names
}

// list are the definitions in force.
func (c *chainCatalogue) list() map[string]*chain.Definition { return c.section.Load().byName }

func (c *chainCatalogue) isRepeatable(server, tool string) bool {
	return c.section.Load().IsRepeatable(server, tool)
}

// openRuns is how many runs of one principal may be open.
func (c *chainCatalogue) openRuns() int { return c.section.Load().OpenRuns }

// actsFor is for whom the runs of a chain act that somebody starts; false where that is the one that does.
func (c *chainCatalogue) actsFor(name string) (engine.Principal, bool) {
	return c.section.Load().ActsFor(name)
}

func (c *chainCatalogue) findWriter(server string) (chain.Writer, bool) {
	return c.section.Load().Writer(server)
}

// trouble says why the files are not in force as they are; nil when they are.
func (c *chainCatalogue) trouble() error {
	if err := c.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// watch takes over changed definitions, and a changed section. A nil catalogue is one that there is from the next
// start on.
func (c *chainCatalogue) watch(log *slog.Logger) *configPart {
	p := &configPart{section: config.SectionChains}
	if c == nil {
		return p
	}
	p.with = []string{upstream.Section, config.SectionAuth}
	p.files = func(file *config.File) []string {
		patterns := c.section.Load().Definitions
		if s, err := chain.ParseSettings(file.Section(config.SectionChains)); err == nil && s != nil {
			patterns = s.Definitions
		}
		files, _ := chainFiles(patterns) // one that is gone is missing among the others
		return append([]string{upstream.PinsPath(c.config)}, files...)
	}
	p.prepare = func(_ context.Context, next *configChange) (take func(), err error) {
		section, err := readChains(c.config, c.models)
		if err != nil {
			return nil, err
		}
		if section == nil { // runs go on, and none is started
			file, err := config.Load(c.config)
			if err != nil {
				return nil, badConfig(err)
			}
			section = &chainSection{Settings: &chain.Settings{}, issuers: namesOfIssuers(file)}
		}
		next.Procedures = section.procedures()
		return func() { c.take(log, section) }, nil
	}
	p.settled = func(err error) {
		c.refused.Store(nil)
		if err != nil {
			c.refused.Store(&err)
		}
	}
	return p
}

// procedures are the chains as tools can be made of them; nil without a section.
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

// chainFiles are the files of definitions; a folder may be empty.
func chainFiles(patterns []string) ([]string, error) {
	return definitionFiles(slices.DeleteFunc(slices.Clone(patterns), emptyFolder))
}

// namesOfIssuers are the names of the issuers that a configuration file declares; what is wrong with them is for those
// who ask them.
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

// readChains reads and checks the section chains of a configuration file and the definitions that it
// names; nil without the section. Nothing is started.
func readChains(path string, models []string) (*chainSection, error) {
	file, err := config.Load(path)
	if err != nil {
		return nil, badConfig(err)
	}
	settings, err := chain.ParseSettings(file.Section(config.SectionChains))
	if err != nil || settings == nil {
		return nil, badConfig(err)
	}
	declared, err := upstream.ParseConfig(file.Section(upstream.Section))
	if err != nil {
		return nil, badConfig(err)
	}
	pins, err := upstream.LoadPins(upstream.PinsPath(path))
	if err != nil {
		return nil, term.UsageErrorf("", "%w", err)
	}
	files, err := chainFiles(settings.Definitions)
	if err != nil {
		return nil, err
	}
	section := &chainSection{Settings: settings, byName: map[string]*chain.Definition{}, warnings: map[string][]string{}, issuers: namesOfIssuers(file)}
	options := chain.LintOptions{Servers: listPinned(declared, pins), Writer: settings.Writer, Models: models, Now: time.Now(), Flags: configFlag{Config: path}.again()}
	from := map[string]string{}
	var wrong []string
	for _, name := range files {
		d, err := parseChain(name)
		if bad, ok := errors.AsType[*workflow.ParseError](err); ok {
			wrong = append(wrong, issueLines(name, bad.Issues)...)
			continue
		} else if err != nil {
			return nil, err
		}
		if other := from[d.Name]; other != "" {
			wrong = append(wrong, fmt.Sprintf("%s: error: %s defines the same chain; give one of them another name", name, other))
		}
		from[d.Name], section.byName[d.Name] = name, d
		for _, issue := range d.Lint(options) {
			if issue.Severity == workflow.SeverityError {
				wrong = append(wrong, issueLine(name, issue))
			} else {
				section.warnings[d.Name] = append(section.warnings[d.Name], issueLine(name, issue))
			}
		}
	}
	for _, pattern := range settings.UnusedPatterns(section.byName) {
		section.warnings[""] = append(section.warnings[""], fmt.Sprintf("%s: warning: no chain has a name like %q of chains.runAs.chains", path, pattern))
	}
	if len(wrong) > 0 {
		return nil, &term.ExitError{Code: term.ExitUsage, Err: errors.New("the chains have mistakes"), Hint: "check them again with: gavel config check " + shellWord(path), Lines: wrong}
	}
	return section, nil
}

// checkChains finds what can be told of a file's section chains.
func checkChains(path string) error {
	_, err := readChains(path, nil)
	return err
}

// listPinned are the names of what is pinned of each declared server.
func listPinned(declared upstream.Config, pins *upstream.Pins) map[string]chain.ServerItems {
	items := map[string]chain.ServerItems{}
	for name, server := range declared.Servers {
		known := chain.ServerItems{Unknown: server.Pinning == upstream.PinningFirstUse, OutputSchemas: map[string]json.RawMessage{}}
		pinned, _ := pins.Of(name)
		for _, item := range pinned {
			switch item.Kind {
			case upstream.KindTool:
				known.Tools = append(known.Tools, item.Name)
				known.OutputSchemas[item.Name] = chain.ReadOutputSchema(item.Raw)
			case upstream.KindPrompt:
				known.Prompts = append(known.Prompts, item.Name)
			case upstream.KindResource, upstream.KindTemplate:
			}
		}
		items[name] = known
	}
	return items
}
