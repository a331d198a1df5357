package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// command implements gavel upstream.
type command struct {
	List   listCommand   `cmd:"" help:"List the pinned items of the declared servers."`
	Pin    pinCommand    `cmd:"" help:"Accept the current items of servers, and write them next to the configuration file."`
	Diff   diffCommand   `cmd:"" help:"Show how the current items of servers differ from the pinned ones."`
	Test   testCommand   `cmd:"" help:"Connect to servers, and describe them."`
	Import importCommand `cmd:"" help:"Generate the section upstreams from a client's own file."`
}

func (command) Help() string {
	return `Upstreams are other MCP servers, whose tools gavel lists next to its own. Operators declare
them in the section upstreams of the --config file, and pin their items. A tool that is not
pinned, or has changed since, is neither listed nor callable.`
}

// upstreamFlags select the servers of a command.
type upstreamFlags struct {
	Names []string `arg:"" optional:"" name:"upstream" help:"Names of upstreams. Default: all."`
	JSON  bool     `name:"json" help:"Print JSON."`
	cli.ConfigFlag
}

// openedUpstreams are the declared servers with their pins.
type openedUpstreams struct {
	*upstream.Manager
	pins  *upstream.Pins
	names []string
}

// openUpstreams opens the declared servers. It does not compare pins with the declaration: a command that
// fixes pins must not fail because of wrong pins.
func (f upstreamFlags) openUpstreams() (*openedUpstreams, error) {
	if f.Config == "" {
		return nil, term.UsageErrorf("give it with --config FILE, or in GAVEL_CONFIG", "upstreams are declared in a configuration file, and none was given")
	}
	file, err := f.Load()
	if err != nil {
		return nil, err
	}
	declared, err := upstream.ParseConfig(file.Section(upstream.Section))
	if err != nil {
		return nil, module.ConfigError(err)
	}
	for name, s := range declared.Servers {
		s.Pinning = upstream.PinningFile // commands do not pin on first use
		declared.Servers[name] = s
	}
	o := &openedUpstreams{names: f.Names}
	if o.pins, err = upstream.LoadPins(upstream.PinsPath(f.Config)); err != nil {
		return nil, term.UsageErrorf("", "%w", err)
	}
	if o.Manager, err = upstream.Open(declared, upstream.Options{Watcher: cli.ThisProgram(), Version: cli.ReadBuild().Version}); err != nil {
		return nil, module.ConfigError(err)
	}
	known := o.Upstreams()
	for _, name := range f.Names {
		if !slices.Contains(known, name) {
			o.Close()
			return nil, term.UsageErrorf("declared upstreams: "+term.OrNone(strings.Join(known, ", ")), "%s declares no upstream %q", f.Config, name)
		}
	}
	if len(o.names) == 0 {
		o.names = known
	}
	cli.HideSecrets()
	return o, nil
}

type listCommand struct{ upstreamFlags }

func (listCommand) Help() string {
	return `No server is started. The key allow in the configuration decides what a caller can see.

Examples:

    gavel upstream list --config gavel.yaml
    gavel upstream list files --config gavel.yaml --json | jq -r '.items[].public'`
}

type pinnedItem struct {
	Upstream string        `json:"upstream"`
	Kind     upstream.Kind `json:"kind"`
	Name     string        `json:"name"`
	Public   string        `json:"public"`
	Hash     string        `json:"hash"`
}

func (c *listCommand) Run(con *cli.Console) error {
	o, err := c.openUpstreams()
	if err != nil {
		return err
	}
	defer o.Close()
	items, unpinned := []pinnedItem{}, []string{}
	rows := [][]string{{"UPSTREAM", "KIND", "NAME", "FOR CLIENTS"}}
	for _, name := range o.names {
		pinned, ok := o.pins.Of(name)
		if !ok {
			unpinned = append(unpinned, name)
		}
		for _, i := range pinned {
			items = append(items, pinnedItem{i.Upstream, i.Kind, i.Name, i.Public, i.Hash()})
			rows = append(rows, []string{i.Upstream, string(i.Kind), i.Name, i.Public})
		}
	}
	if len(unpinned) > 0 {
		con.Err.Printf("never pinned, so their items are not listed: %s; pin them with: gavel upstream pin %s%s\n", strings.Join(unpinned, ", "), strings.Join(unpinned, " "), " --config "+term.ShellWord(c.Config))
	}
	return con.PrintList(c.JSON, map[string]any{"items": items, "count": len(items), "unpinned": unpinned}, rows, "nothing is pinned in "+upstream.PinsPath(c.Config), "")
}

// checkedUpstream is the result of inspecting a server.
type checkedUpstream struct {
	Name        string                `json:"name"`
	OK          bool                  `json:"ok"`
	Problem     string                `json:"problem,omitempty"`
	Protocol    string                `json:"protocol,omitempty"`
	Server      document.JSON         `json:"server"`
	Items       int                   `json:"items"`
	Notes       []upstream.Note       `json:"notes,omitempty"`
	ConnectMs   document.Milliseconds `json:"connectMs"`
	ListMs      document.Milliseconds `json:"listMs"`
	Differences []upstream.Difference `json:"differences"`
	report      upstream.Report
}

// inspect connects to the servers, and reports which of their items were repaired or left out.
func (o *openedUpstreams) inspect(ctx context.Context, con *cli.Console) []checkedUpstream {
	out := make([]checkedUpstream, len(o.names))
	var asked sync.WaitGroup
	for i, name := range o.names {
		asked.Go(func() { out[i] = o.inspectOne(ctx, name) })
	}
	asked.Wait()
	for _, c := range out {
		for _, note := range c.Notes {
			con.Err.Printf("%s: %s\n", c.Name, note)
		}
	}
	return out
}

func (o *openedUpstreams) inspectOne(ctx context.Context, name string) checkedUpstream {
	r, err := o.Inspect(ctx, name)
	if err != nil {
		c := checkedUpstream{Name: name, Problem: err.Error(), Differences: []upstream.Difference{}}
		if e, ok := errors.AsType[*upstream.Error](err); ok && e.Err != nil {
			c.Problem += "\n" + e.Err.Error()
		}
		return c
	}
	return checkedUpstream{
		Name: name, OK: true, Protocol: r.Protocol, Server: document.ReadTrusted(r.Info), Items: len(r.Items), Notes: r.Notes,
		ConnectMs: document.Milliseconds(r.Connect), ListMs: document.Milliseconds(r.List),
		Differences: append([]upstream.Difference{}, o.pins.Compare(name, r.Items)...), report: r,
	}
}

// listUnreachable returns the error for servers that could not be reached.
func listUnreachable(checked []checkedUpstream, code int) error {
	var lines []string
	for _, c := range checked {
		if !c.OK {
			lines = append(lines, strings.Split(c.Name+": "+c.Problem, "\n")...)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &term.ExitError{Code: code, Err: errors.New("servers could not be asked"), Lines: lines}
}

// differenceRows returns one row for each difference.
func differenceRows(checked []checkedUpstream) [][]string {
	rows := [][]string{{"UPSTREAM", "KIND", "NAME", "CHANGE", "IN"}}
	for _, c := range checked {
		for _, d := range c.Differences {
			rows = append(rows, []string{c.Name, string(d.Kind), d.Name, d.Change, term.OrNone(strings.Join(d.Members, ", "))})
		}
	}
	return rows
}

type pinCommand struct {
	All bool `name:"all" help:"Pin every declared upstream."`
	upstreamFlags
}

func (pinCommand) Help() string {
	return `Each server is started and asked for its tools, resources and prompts. All changes are
printed: read them, because models read the descriptions. The pins are in a file next
to the configuration file (gavel.yaml has gavel.pins.json), which belongs under version control.

Examples:

    gavel upstream pin --all --config gavel.yaml
    gavel upstream pin files --config gavel.yaml

MCP clients reject a whole list because of one invalid definition. Such a definition is repaired if its
meaning is clear, and left out otherwise; stderr lists both.

Exit codes: 0 pinned, 1 some servers could not be asked and the others are pinned, 2 wrong usage.`
}

func (c *pinCommand) Run(ctx context.Context, con *cli.Console) error {
	if c.All != (len(c.Names) == 0) {
		return term.UsageErrorf("", "name the upstreams to pin, or give --all")
	}
	o, err := c.openUpstreams()
	if err != nil {
		return err
	}
	defer o.Close()
	checked := o.inspect(ctx, con)
	for i, found := range checked {
		if !found.OK {
			continue
		}
		if err := o.pins.Set(found.Name, found.report.Items); err != nil {
			checked[i].OK, checked[i].Problem = false, err.Error()
		}
	}
	if err := o.pins.Save(); err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	err = con.PrintList(c.JSON, map[string]any{"upstreams": checked}, differenceRows(checked), "nothing differs from the pinned items", "")
	return cmp.Or(err, listUnreachable(checked, term.ExitBad))
}

type diffCommand struct{ upstreamFlags }

func (diffCommand) Help() string {
	return `Each server is started and asked. Nothing is written. With --json the definitions
themselves are printed, as pinned and as they are now.

Examples:

    gavel upstream diff --config gavel.yaml
    gavel upstream diff files --config gavel.yaml --json | jq '.upstreams[].differences'

Exit codes: 0 all is as pinned, 1 something differs, 2 wrong usage, 3 a server could not be
asked.`
}

func (c *diffCommand) Run(ctx context.Context, con *cli.Console) error {
	o, err := c.openUpstreams()
	if err != nil {
		return err
	}
	defer o.Close()
	checked := o.inspect(ctx, con)
	rows := differenceRows(checked)
	if err = printChecked(con, c.JSON, checked, rows); err == nil && !c.JSON {
		for _, found := range checked {
			for _, d := range found.Differences {
				printTexts(con, d)
			}
		}
	}
	if err = cmp.Or(err, listUnreachable(checked, term.ExitUnknown)); err == nil && len(rows) > 1 {
		return term.ErrBad
	}
	return err
}

// printChecked prints the results as JSON, or as a table if there are rows below the heading.
func printChecked(con *cli.Console, asJSON bool, checked []checkedUpstream, rows [][]string) error {
	switch {
	case asJSON:
		return con.Out.JSON(map[string]any{"upstreams": checked}) //nolint:wrapcheck // of the terminal
	case len(rows) > 1:
		con.Out.Table(rows)
	}
	return nil
}

// printTexts shows the previous and the current description: it is the text that the model reads.
func printTexts(con *cli.Console, d upstream.Difference) {
	if !slices.Contains(d.Members, "description") {
		return
	}
	text := func(raw []byte) string { return term.OrNone(document.ReadTrusted(raw).Get("description").Text()) }
	con.Out.Printf("\n%s %s\n  - %s\n  + %s\n", d.Kind, d.Name, text(d.Pinned), text(d.Now))
}

type testCommand struct{ upstreamFlags }

func (testCommand) Help() string {
	return `Each server is started and asked, as gavel does for a client. If one fails, the end of its
standard error is printed.

Examples:

    gavel upstream test --config gavel.yaml
    gavel upstream test tracker --config gavel.yaml --json

Exit codes: 0 all answered, 2 wrong usage, 3 a server could not be asked.`
}

func (c *testCommand) Run(ctx context.Context, con *cli.Console) error {
	o, err := c.openUpstreams()
	if err != nil {
		return err
	}
	defer o.Close()
	checked := o.inspect(ctx, con)
	rows := [][]string{{"UPSTREAM", "SERVER", "PROTOCOL", "CONNECT", "LIST", "ITEMS", "NOT AS PINNED"}}
	for _, found := range checked {
		if found.OK {
			server := strings.TrimSpace(found.Server.Get("name").Text() + " " + found.Server.Get("version").Text())
			rows = append(rows, []string{
				found.Name, term.OrNone(server), found.Protocol, term.ShortDuration(found.ConnectMs.Duration()), term.ShortDuration(found.ListMs.Duration()),
				fmt.Sprint(found.Items), fmt.Sprint(len(found.Differences)),
			})
		}
	}
	return cmp.Or(printChecked(con, c.JSON, checked, rows), listUnreachable(checked, term.ExitUnknown))
}

type importCommand struct {
	File string `arg:"" name:"client.json" help:"The client's file with its MCP servers."`
}

func (importCommand) Help() string {
	return `Prints YAML for the configuration file. Values of variables and headers are not copied:
standard error lists the variables that gavel's environment needs instead. In the client, replace
all these servers by one entry for gavel.

Examples:

    gavel upstream import ~/.cursor/mcp.json >> gavel.yaml
    gavel upstream import .vscode/mcp.json`
}

func (c *importCommand) Run(con *cli.Console) error {
	raw, err := os.ReadFile(c.File)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	section, notes, err := upstream.ConvertClientFile(raw)
	for _, note := range notes {
		con.Err.Printf("%s\n", note)
	}
	if err != nil {
		return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("%s: %w", c.File, err)}
	}
	con.Out.Text(string(section))
	return nil
}
