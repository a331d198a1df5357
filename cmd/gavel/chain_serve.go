package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// chainsFile is the usual name of the file of runs, beside the store.
const chainsFile = "chains.db"

// chains are the chains of a process that serves: what there is to run, and the runs. Where another
// process has the file of the runs, this one takes it once that has ended. nil where none are configured.
type chains struct {
	catalogue *chainCatalogue
	log       *slog.Logger
	sys       *system
	config    chain.Config
	temporary string // the folder of the runs that end with the process, "" for none
	tokens    func() (*auth.Tokens, error)

	runs     atomic.Pointer[chain.Runs]
	before   *chain.Runs // what controlled the runs before this process executed them
	service  atomic.Pointer[chain.Service]
	executes atomic.Bool    // and not only asks the process that does
	stop     func()         // ends what works beside the runs
	working  sync.WaitGroup // and this waits for it
}

// openChains opens the chains of a configuration file, and has the faces offer them; what the section
// expose offers of them is checked before they run. tokens are those whose bearers runs act for; nil
// where none are asked for.
func (f configFlag) openChains(ctx context.Context, log *slog.Logger, sys *system, tokens func() (*auth.Tokens, error)) (*chains, error) {
	c, err := f.findChains(log, sys, tokens)
	if err == nil {
		err = warnEntries(ctx, log, sys, c)
	}
	if err != nil {
		return nil, err
	}
	if err := badConfig(sys.Check(ctx)); err != nil || c == nil {
		return nil, err
	}
	if c.config, err = c.configure(ctx); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	c.stop = end
	switch err := c.open(ctx); {
	case errors.Is(err, chain.ErrInUse):
		if err := c.askOthers(ctx); err != nil {
			c.Close()
			return nil, term.UsageErrorf("", "cannot ask for runs of chains: %w", err)
		}
		log.Info("another process runs the chains of this store; this one takes over when that ends", "state", c.config.Path)
		endLooking := runEvery(ctx, lookEvery, lookEvery, c.takeOver)
		c.stop = func() { end(); endLooking() }
	case err != nil:
		c.Close()
		return nil, term.UsageErrorf("", "cannot run chains: %w", err)
	}
	return c, nil
}

// findChains reads the chains of a configuration file; nil where there are none.
func (f configFlag) findChains(log *slog.Logger, sys *system, tokens func() (*auth.Tokens, error)) (*chains, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // no chains: a valid, common answer
	}
	catalogue, err := openCatalogue(log, f.Config, append([]string{}, sys.model.names()...))
	if err != nil || catalogue == nil {
		return nil, err
	}
	c := &chains{catalogue: catalogue, log: log, sys: sys, tokens: tokens}
	sys.Provide(chain.ServiceName, chain.Source(c.ask), c)
	return c, nil
}

// configure says where the runs are, and what does their steps.
func (c *chains) configure(ctx context.Context) (config chain.Config, err error) {
	section, place := c.catalogue.section.Load(), c.sys.place
	config = chain.Config{Path: section.State, Lease: section.Lease, Repeatable: c.isRepeatable, Writer: c.catalogue.findWriter, Unload: chain.DefaultUnload, Logger: c.log}
	switch {
	case gavel.IsDatabase(config.Path) && !place.isDatabase():
		return config, term.UsageErrorf("leave out state, or name a file", "runs in a database need a store in a database, whose leases tell the servers apart")
	case gavel.IsDatabase(config.Path), config.Path == "" && place.isDatabase():
		url := cmp.Or(config.Path, place.path)
		config.Path, config.Leases = "", c.sys.Store
		if config.Database, err = findChainTables(ctx, url); err != nil {
			return config, err
		}
	case config.Path != "":
	case place.path == memoryStore:
		folder, err := os.MkdirTemp("", "gavel-chains-")
		if err != nil {
			return config, term.UnknownErrorf("", "%w", err)
		}
		c.temporary, config.Path = folder, filepath.Join(folder, chainsFile)
	default:
		config.Path = filepath.Join(filepath.Dir(place.path), chainsFile)
	}
	config.Ledger = c.sys.Engine
	config.Effects = chain.Door{Upstreams: c.servers(), Scripts: c.sys.Pool, Workflows: c.sys.Engine, Models: c.sys.completer(), AsksPeople: true, Rights: c.rights}
	return config, nil
}

// findChainTables looks at the tables of runs in a database, before their library does: that tries again for long,
// and says more than a sentence.
func findChainTables(ctx context.Context, url string) (*chain.Database, error) {
	guest, err := driver.Find(url).InspectGuest(ctx, url, chain.DefaultSchema, chain.VersionTable, chain.OtherDatabase)
	if err != nil {
		failed, what := storeFailure(err, ""), fmt.Errorf("cannot run chains over %s: %w", nameStore(url), err)
		if known, ok := errors.AsType[*term.ExitError](failed); ok {
			known.Err = what
			return nil, known
		}
		return nil, what
	}
	if err := chain.CheckVersion(guest.Version); err != nil {
		return nil, term.UsageErrorf("use a newer gavel", "cannot run chains over %s: %w", nameStore(url), err)
	}
	return &chain.Database{URL: url, Proxied: guest.Proxied}, nil
}

func (c *chains) open(ctx context.Context) error {
	runs, err := chain.Open(ctx, c.config)
	if err != nil {
		return err
	}
	c.executes.Store(true)
	service := c.use(runs)
	c.working.Go(func() { c.schedules().RunTicks(ctx, service, c.log) })
	c.working.Go(func() {
		chain.NewEntries(chain.EntriesConfig{Engine: c.sys.Engine, Store: c.sys.Store, ActsFor: c.actsFor, Log: c.log}).RunEntries(ctx, service)
	})
	c.working.Go(func() {
		service.RunSweeps(ctx, func() time.Duration { return c.catalogue.section.Load().Retention }, c.log)
	})
	return nil
}

// openControl opens the runs to be asked for here, and performed by the process that serves them.
func (c *chains) openControl(ctx context.Context) (err error) {
	if c.config, err = c.configure(ctx); err != nil {
		return err
	}
	if c.config.Database == nil && !isFile(c.config.Path) {
		return term.UsageErrorf("start one that has them: gavel serve --config FILE", "no server has run chains over this store: there is no %s", c.config.Path)
	}
	if err := c.askOthers(ctx); err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	return nil
}

// askOthers has the process that executes the runs do what is asked for here.
func (c *chains) askOthers(ctx context.Context) error {
	runs, err := chain.OpenControl(ctx, c.config)
	if err != nil {
		return err
	}
	c.use(runs)
	return nil
}

// use has the faces ask some runs.
func (c *chains) use(runs *chain.Runs) *chain.Service {
	service := chain.NewService(chain.ServiceConfig{Runs: runs, Engine: c.sys.Engine, Chains: c.catalogue.list, OpenRuns: c.catalogue.openRuns, ActsFor: c.catalogue.actsFor})
	c.service.Store(service)
	c.before = c.runs.Swap(runs) // requests under way ask it; a process takes over once
	return service
}

// takeOver opens the runs once the process that has them has ended.
func (c *chains) takeOver(ctx context.Context) {
	if c.executes.Load() {
		return
	}
	switch err := c.open(ctx); {
	case err == nil:
		c.log.Info("the chains of this store run here now", "state", c.config.Path)
	case !errors.Is(err, chain.ErrInUse):
		c.log.Error("cannot run chains", "error", err)
	}
}

// trouble says why chains do not run here, or not as their files are.
func (c *chains) trouble() error {
	if c.service.Load() == nil {
		return chain.ErrInUse
	}
	return c.catalogue.trouble()
}

// Close stops before the next step of each run. It comes after what asks, and before the store's end.
func (c *chains) Close() {
	if c == nil {
		return
	}
	c.stop()
	c.working.Wait()
	for _, runs := range []*chain.Runs{c.before, c.runs.Load()} {
		if runs != nil {
			runs.Close()
		}
	}
	if c.temporary != "" {
		if err := os.RemoveAll(c.temporary); err != nil {
			c.log.Warn("cannot remove the runs of a store in memory", "error", err)
		}
	}
}

// watch takes over changed definitions.
func (c *chains) watch() *configPart {
	if c == nil {
		return (*chainCatalogue)(nil).watch(nil)
	}
	return c.catalogue.watch(c.log)
}

// isRepeatable reports whether a tool may run twice: the operator says so, or its gate keeps it from being
// called twice.
func (c *chains) isRepeatable(server, tool string) bool {
	return c.catalogue.isRepeatable(server, tool) || c.servers().IsGated(server, tool)
}

// rights are those that whom a command is done for has now. Whom tokens are kept of needs a valid one
// as when the run began, and whom an issuer named needs that the configuration still names the issuer: no token of it is
// kept, so no more can be asked. The run of a schedule, or of
// a chain that acts for its owner, needs the principal of the configuration.
func (c *chains) rights(_ context.Context, do chain.Command) (engine.Principal, error) {
	if do.Chain != "" || chain.IsTickRun(do.Run) {
		who, ok := c.runAs()
		if do.Chain != "" {
			who, ok = c.catalogue.actsFor(do.Chain)
		}
		if ok && who.ID == do.Principal.ID {
			return who, nil
		}
		return engine.Principal{}, errors.New("the configuration does not name it in chains.runAs any more")
	}
	if c.tokens == nil {
		return do.Principal, nil
	}
	var all []auth.Token
	tokens, err := c.tokens()
	if err == nil {
		all, err = tokens.List()
	}
	if err != nil {
		return engine.Principal{}, fmt.Errorf("%w: %w", chain.ErrRightsUnknown, err)
	}
	known := false
	for _, t := range all {
		if t.Principal != do.Principal.ID {
			continue
		}
		if known = true; t.Role == do.Principal.Role && t.Workflows == do.Principal.Workflows && t.Valid(time.Now()) {
			return do.Principal, nil
		}
	}
	if known {
		return engine.Principal{}, errors.New("its token has been revoked or has expired")
	}
	switch issuer, _, named := strings.Cut(do.Principal.ID, ":"); {
	case !named || issuer == "local": // a program of this machine
	case issuer == "token":
		return engine.Principal{}, errors.New("its token has been removed")
	case !slices.Contains(c.catalogue.section.Load().issuers, issuer):
		return engine.Principal{}, fmt.Errorf("the configuration does not name the issuer %.40q, and there is no token of this principal", issuer)
	}
	return do.Principal, nil
}

// runAs is for whom the runs of schedules act; false while nobody is named.
func (c *chains) runAs() (engine.Principal, bool) {
	if who := c.catalogue.section.Load().RunAs; who != nil {
		return *who, true
	}
	return engine.Principal{}, false
}

// actsFor is for whom the chain of a state acts: the owner of the instance. Where tokens are kept of that one,
// it has the rights of one that is valid; who came with a token of an issuer may deal with the workflow and its
// chain, for more is not known of it here.
func (c *chains) actsFor(_ context.Context, e engine.Entry) (engine.Principal, error) {
	owner := engine.Principal{ID: e.Owner, Role: engine.RoleAgent}
	if c.tokens != nil {
		tokens, err := c.tokens()
		if err != nil {
			return owner, err
		}
		all, err := tokens.List()
		if err != nil {
			return owner, err
		}
		known := false
		for _, t := range all {
			if t.Principal != e.Owner || t.Role != engine.RoleAgent && t.Role != engine.RoleOperator {
				continue
			}
			known = true
			if p := (engine.Principal{ID: e.Owner, Role: t.Role, Workflows: t.Workflows}); t.Valid(time.Now()) && p.InScope(e.Workflow) {
				return p, nil
			}
		}
		if known {
			return owner, fmt.Errorf("%s owns the instance, and has no valid token for the workflow %s any more", e.Owner, e.Workflow)
		}
	}
	if c.tokens != nil && !strings.HasPrefix(e.Owner, "local:") {
		owner.Workflows = e.Workflow + " " + chain.WorkflowPrefix + e.OnEnter.Chain
	}
	return owner, nil
}

// otherServers are the tools of other MCP servers, as a module provides them.
type otherServers interface {
	Call(context.Context, engine.Principal, upstream.Request) (upstream.Reply, error)
	List(engine.Principal, upstream.Kind) []upstream.Item
	IsGated(server, tool string) bool
}

// noServers are those where no module has any.
type noServers struct{ *upstream.Manager }

func (c *chains) servers() otherServers {
	if s, ok := module.Find[otherServers](c.sys.Extensions()); ok {
		return s
	}
	return noServers{}
}

// openedChains are the chains as operations ask them.
type openedChains struct {
	*chain.Service
	*chain.Schedules
}

// ask returns the chains; with runs also what another process may have.
func (c *chains) ask(_ context.Context, runs bool) (chain.Chains, error) {
	service := c.service.Load()
	switch {
	case service != nil:
	case runs:
		return nil, &engine.Error{
			Code: engine.CodeBusy, Message: "Another process runs the chains of this store.",
			Hint: "Ask that one; this one takes over when it ends.", RetryAfter: lookEvery,
		}
	default:
		service = chain.NewService(chain.ServiceConfig{Chains: c.catalogue.list})
	}
	return openedChains{service, c.schedules()}, nil
}

// schedules are the schedules of the chains, which are in the store: any process over it may change them.
func (c *chains) schedules() *chain.Schedules {
	return chain.NewSchedules(chain.SchedulesConfig{Engine: c.sys.Engine, Chains: c.catalogue.list, RunAs: c.runAs})
}

// ListProcedures implements operation.Procedures.
func (c *chains) ListProcedures(_ context.Context, p engine.Principal) ([]operation.Procedure, error) {
	if err := engine.Authorize(p, engine.RightRead); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(c.catalogue.section.Load().procedures(), func(one operation.Procedure) bool {
		return !p.InScope(chain.WorkflowPrefix + one.Name)
	}), nil
}
