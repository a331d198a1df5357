package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

//go:embed servers.html
var serversTemplates string

// maxDrift limits the differences that the page shows of one server.
const maxDrift = 20

// serversPage shows the other servers, and lets operators accept what differs from the pins.
func (g *gateway) serversPage() module.Page {
	return module.Page{
		Path: "servers", Title: "Servers", Place: module.InMenu, Order: 50, Needs: engine.RightVerify,
		Templates: serversTemplates, Regions: []string{"servers"},
		Load: func(context.Context, module.Visit) (any, error) { return g.listServers() },
		Actions: map[string]func(context.Context, module.Visit) (next, message string, err error){
			"check": func(ctx context.Context, v module.Visit) (string, string, error) {
				return "", "The servers were asked.", g.checkServers(ctx, v.Call.Caller.Principal)
			},
			"accept": func(ctx context.Context, v module.Visit) (string, string, error) {
				n, err := g.accept(ctx, v.Call.Caller.Principal, v.Values.Get("server"), v.Values["item"])
				return "", fmt.Sprintf("%s accepted: the pins of %s were written.", term.Count(n, "change"), v.Values.Get("server")), err
			},
		},
		Files: map[string]func(context.Context, module.Visit) (module.File, error){
			"differences.json": func(_ context.Context, v module.Visit) (module.File, error) {
				servers, err := g.listServers()
				i := slices.IndexFunc(servers, func(s serverRow) bool { return s.Name == v.Values.Get("server") })
				if err != nil || i < 0 {
					return module.File{}, errors.Join(err, unknownServer(v.Values.Get("server")))
				}
				raw, err := json.MarshalIndent(servers[i].Differences, "", "  ")
				return module.File{Name: servers[i].Name + "-differences.json", Type: "application/json", Content: raw}, err
			},
		},
	}
}

// serverRow is a server as the page shows it.
type serverRow struct {
	upstream.State
	// Status and Class say in a word how it is.
	Status, Class string
	Tools, Others int
	// Last is the latest check; nil before the first.
	Last  *lastCheck
	Drift []drift
}

// lastCheck is the result of asking a server.
type lastCheck struct {
	At                        time.Time
	Problem, Protocol, Server string
	Connect, List             document.Milliseconds
	Notes                     []string
}

// drift is a difference that an operator may accept. Item identifies what was shown; "" if it cannot be accepted.
type drift struct {
	upstream.Difference
	Item string
}

// checks are the latest checks by server.
type checks struct {
	mu   sync.Mutex
	last map[string]*lastCheck
}

// listServers returns the servers without starting any.
func (g *gateway) listServers() (rows []serverRow, err error) {
	states, err := g.listStates()
	if err != nil {
		return nil, err
	}
	g.checks.mu.Lock()
	defer g.checks.mu.Unlock()
	rows = []serverRow{}
	for _, s := range states {
		row := serverRow{State: s, Last: g.checks.last[s.Name]}
		for _, item := range s.Pinned {
			if item.Kind == upstream.KindTool {
				row.Tools++
			} else {
				row.Others++
			}
		}
		for _, d := range s.Differences[:min(len(s.Differences), maxDrift)] {
			row.Drift = append(row.Drift, drift{d, identify(d)})
		}
		row.Status, row.Class = row.describe()
		rows = append(rows, row)
	}
	return rows, nil
}

func (s serverRow) describe() (status, class string) {
	switch {
	case s.Wait > 0:
		return "calls are refused after failures", "no"
	case s.Last != nil && s.Last.Problem != "":
		return "cannot be asked", "no"
	case !s.IsPinned && s.Pinning == upstream.PinningFile:
		return "never pinned", "wait"
	case len(s.Differences) > 0:
		return "differs from its pins", "wait"
	case s.Last != nil:
		return "as pinned", "yes"
	case s.Sessions > 0:
		return "connected", "yes"
	}
	return "not asked yet", ""
}

// listStates returns the states of the servers. If they are opened on demand and have not been, it reads the files.
func (g *gateway) listStates() ([]upstream.State, error) {
	if manager := g.current(); manager != nil {
		return manager.States(), nil
	}
	g.mu.Lock()
	file := g.file
	g.mu.Unlock()
	declared, pins, err := readUpstreams(file)
	if err != nil {
		return nil, err
	}
	var all []upstream.State
	for name, s := range declared.Servers {
		state := upstream.State{Name: name, Pinning: cmp.Or(s.Pinning, upstream.PinningFile), Allowed: len(s.Allow) > 0}
		state.Pinned, state.IsPinned = pins.Of(name)
		all = append(all, state)
	}
	slices.SortFunc(all, func(a, b upstream.State) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// identify returns what names a difference in a form: the definition that was shown, by its digest.
func identify(d upstream.Difference) string {
	hash := ""
	switch d.Change {
	case upstream.ChangeTwice:
		return ""
	case upstream.ChangeAdded, upstream.ChangeChanged:
		hash = upstream.Item{Raw: d.Now}.Hash()
	}
	sum := sha256.Sum256([]byte(string(d.Kind) + "\x00" + d.Name + "\x00" + hash))
	return hex.EncodeToString(sum[:])
}

// checkServers asks every server for its items, as gavel upstream test does.
func (g *gateway) checkServers(ctx context.Context, p engine.Principal) error {
	if err := engine.Authorize(p, engine.RightPin); err != nil {
		return err
	}
	manager, err := g.openUpstreams()
	if err != nil {
		return err
	}
	g.checkAll(ctx, manager, func(string) bool { return true })
	return nil
}

func (g *gateway) checkAll(ctx context.Context, manager *upstream.Manager, selects func(name string) bool) {
	var asked sync.WaitGroup
	for _, name := range manager.Upstreams() {
		if selects(name) {
			asked.Go(func() { _, _ = g.checkServer(ctx, manager, name) }) // the page shows the error
		}
	}
	asked.Wait()
}

func (g *gateway) checkServer(ctx context.Context, manager *upstream.Manager, name string) (upstream.Report, error) {
	r, err := manager.Check(ctx, name)
	last := &lastCheck{At: time.Now(), Protocol: r.Protocol, Connect: document.Milliseconds(r.Connect), List: document.Milliseconds(r.List)}
	info := document.ReadTrusted(r.Info)
	last.Server = strings.TrimSpace(info.Get("name").Text() + " " + info.Get("version").Text())
	for _, note := range r.Notes {
		last.Notes = append(last.Notes, note.String())
	}
	if err != nil {
		last.Problem = err.Error() // without the secrets of the server
	}
	g.checks.mu.Lock()
	defer g.checks.mu.Unlock()
	if g.checks.last == nil {
		g.checks.last = map[string]*lastCheck{}
	}
	g.checks.last[name] = last
	return r, err
}

// accept pins items as an operator has seen them, as gavel upstream pin does for all, and puts the pins in force. It
// accepts nothing if the server now offers anything else.
func (g *gateway) accept(ctx context.Context, p engine.Principal, server string, items []string) (int, error) {
	if err := engine.Authorize(p, engine.RightPin); err != nil {
		return 0, err
	}
	manager, err := g.openUpstreams()
	if err != nil {
		return 0, err
	}
	if !slices.Contains(manager.Upstreams(), server) || len(items) == 0 {
		return 0, unknownServer(server)
	}
	report, err := g.checkServer(ctx, manager, server)
	if err != nil {
		return 0, &engine.Error{Code: engine.CodeUnavailable, Message: "The server cannot be asked, so nothing was accepted: " + err.Error(), Hint: "Test it with gavel upstream test.", Err: err}
	}
	g.mu.Lock()
	file := g.file
	g.mu.Unlock()
	pins, err := upstream.LoadPins(upstream.PinsPath(file.Path()))
	if err != nil {
		return 0, err
	}
	now := pins.Compare(server, report.Items)
	for _, item := range items {
		i := slices.IndexFunc(now, func(d upstream.Difference) bool { return item != "" && identify(d) == item })
		if i < 0 {
			return 0, &engine.Error{Code: engine.CodeConflict, Message: "The server no longer offers what was shown, so nothing was accepted.", Hint: "Read the present difference below."}
		}
		var accepted *upstream.Item
		if j := slices.IndexFunc(report.Items, func(o upstream.Item) bool { return o.Kind == now[i].Kind && o.Name == now[i].Name }); j >= 0 {
			accepted = &report.Items[j]
		}
		if err := pins.Accept(server, now[i].Kind, now[i].Name, accepted); err != nil {
			return 0, &engine.Error{Code: engine.CodeConflict, Message: "The change cannot be pinned: " + err.Error() + ".", Hint: "The operator of the server has to fix it.", Err: err}
		}
	}
	if err := pins.Save(); err != nil {
		return 0, err
	}
	g.log.Warn("pins were accepted", "upstream", server, "number", len(items), "by", p.ID)
	return len(items), g.reopen(ctx, server)
}

// reopen puts new pins in force at once, also in a program that does not follow its files.
func (g *gateway) reopen(ctx context.Context, server string) error {
	g.mu.Lock()
	file, gates := g.file, g.gates
	g.mu.Unlock()
	before := map[string]bool{}
	for _, s := range g.current().States() {
		before[s.Name] = len(s.Differences) > 0 // which a new manager has to find again
	}
	manager, err := g.open(file, gates)
	if err != nil {
		return err
	}
	g.setCurrent(file, gates, manager)
	g.checkAll(ctx, manager, func(name string) bool { return name == server || before[name] })
	return nil
}

func unknownServer(name string) error {
	return &engine.Error{Code: engine.CodeInvalidArgument, Path: "/server", Message: fmt.Sprintf("There is no such change of the server %q.", name), Hint: "Load the page again."}
}

// findWarnings returns what makes the servers unsafe now.
func (g *gateway) findWarnings(context.Context) (all []module.Warning) {
	states, err := g.listStates()
	if err != nil {
		return []module.Warning{{Name: "upstreams", Text: "The pins of other servers cannot be read: " + err.Error() + ".", Next: "Pin them again: gavel upstream pin."}}
	}
	add := func(name, text, next string, applies func(upstream.State) bool) {
		var names []string
		for _, s := range states {
			if applies(s) {
				names = append(names, s.Name)
			}
		}
		if len(names) > 0 {
			all = append(all, module.Warning{Name: name, Text: text + strings.Join(names, ", ") + ".", Next: next})
		}
	}
	add("unpinned", "Never pinned, so their tools are not listed: ", "Look at them on the page Servers, or run gavel upstream pin.",
		func(s upstream.State) bool { return !s.IsPinned && s.Pinning != upstream.PinningFirstUse })
	add("first-use", "Pinned at each start, so their tools are trusted as they then are: ", "Set pinning: file, and run gavel upstream pin.",
		func(s upstream.State) bool { return s.Pinning == upstream.PinningFirstUse })
	add("drifted", "Servers that changed what was pinned: ", "Such tools cannot be called until an operator accepts the change on the page Servers.", func(s upstream.State) bool {
		return slices.ContainsFunc(s.Differences, func(d upstream.Difference) bool { return d.Change != upstream.ChangeAdded })
	})
	add("breaker", "Calls are refused for a while after failures of: ", "Test the servers with gavel upstream test.", func(s upstream.State) bool { return s.Wait > 0 })
	return all
}
