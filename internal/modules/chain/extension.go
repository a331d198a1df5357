package chain

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

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// chainsFile is the default name of the file of runs, next to the store.
const chainsFile = "chains.db"

// chains holds the chains and runs of one opened system. If another process owns the file of the runs, this
// one takes over when that process has ended.
type chains struct {
	catalogue
	log       *slog.Logger
	onDemand  bool // nothing is executed here; opened when first used
	file      *config.File
	sys       module.System
	config    Config
	temporary string // the folder of runs that are deleted when the process ends, or ""
	tokens    func() (*auth.Tokens, error)

	opening sync.Mutex // held while runs are opened on demand
	runs    atomic.Pointer[Runs]
	before  *Runs // controlled the runs until this process started executing them
	service atomic.Pointer[Service]
	stop    func()         // stops the background work
	working sync.WaitGroup // waits for the background work
	closing sync.Once
}

// extend adds the chains of a configuration file to a system. A program that makes one request and exits
// uses the runs of the servers that share the store.
func extend(setup module.Setup) *module.Extension {
	c := &chains{log: setup.Log, onDemand: setup.OnDemand, file: setup.File, stop: func() {}}
	c.section.Store(&chainSection{Settings: &Settings{}})
	x := &module.Extension{Connect: c.connect, Check: c.check, Begin: c.begin, Vet: c.vet, Provides: c, Close: c.close, Services: map[string]any{ServiceName: Source(c.openRemote)}}
	if hasPages(setup) {
		x.Pages = c.pages()
	}
	switch {
	case setup.OnDemand:
		x.Vet = nil
	case !isDeclared(setup.File):
		x.Services = nil
		x.Parts = []*module.Part{{Sections: []string{sectionChains}}} // takes effect at the next start
	default:
		x.Parts = []*module.Part{{
			Sections: []string{sectionChains, upstream.Section, config.SectionAuth},
			Files:    c.listFiles, Prepare: c.prepare, OnResult: c.settled,
		}}
		x.Health = []telemetry.Part{{Name: "chains", Optional: true, Check: func(context.Context) error { return c.findProblem() }}}
	}
	return x
}

// isDeclared reports whether a configuration file has the section chains.
func isDeclared(file *config.File) bool { return file != nil && file.Section(sectionChains) != nil }

func (c *chains) connect(s module.System) error {
	c.sys = s
	return nil
}

// UseTokens implements module.TokenUser.
func (c *chains) UseTokens(tokens func() (*auth.Tokens, error)) { c.tokens = tokens }

// check validates the chains against the models, which are known by now, and against the stored
// definitions.
func (c *chains) check(ctx context.Context) error {
	if c.onDemand {
		return nil
	}
	if isDeclared(c.file) {
		section, err := readChains(c.file, c.models())
		if err != nil {
			return err
		}
		c.apply(c.log, section)
	}
	return c.warnEntries(ctx)
}

// begin starts executing chains.
func (c *chains) begin(ctx context.Context) (err error) {
	if c.onDemand || !isDeclared(c.file) {
		return nil
	}
	if c.config, err = c.configure(ctx); err != nil {
		return err
	}
	ctx, c.stop = context.WithCancel(ctx)
	switch err := c.open(ctx); {
	case errors.Is(err, ErrInUse):
		if err := c.findRemote(ctx); err != nil {
			return term.UsageErrorf("", "cannot reach the runs of chains: %w", err)
		}
		c.log.Info("another process runs the chains of this store; this process takes over when it ends", "state", c.config.Path)
		c.working.Go(func() { c.takeOver(ctx) })
	case err != nil:
		return term.UsageErrorf("", "cannot run chains: %w", err)
	}
	return nil
}

// configure returns the Config of the runs: where they are stored, and the Effects of their steps.
func (c *chains) configure(ctx context.Context) (config Config, err error) {
	section, store := c.section.Load(), c.sys.Path
	inDatabase := driver.Find(store) != nil
	config = Config{Path: section.State, Lease: section.Lease, Repeatable: c.isRepeatable, Unload: DefaultUnload, Logger: c.log}
	config.Writer = func(server string) (Writer, bool) { return c.section.Load().Writer(server) }
	switch {
	case driver.Find(config.Path) != nil && !inDatabase:
		return config, term.UsageErrorf("leave out chains.state, or name a file", "chain runs in a database need a store in a database, which holds the servers' leases")
	case driver.Find(config.Path) != nil, config.Path == "" && inDatabase:
		url := cmp.Or(config.Path, store)
		config.Path, config.Leases = "", c.sys.Store
		if config.Database, err = findChainTables(ctx, url); err != nil {
			return config, err
		}
	case config.Path != "":
	case store == "":
		folder, err := os.MkdirTemp("", "gavel-chains-")
		if err != nil {
			return config, term.UnknownErrorf("", "%w", err)
		}
		c.temporary, config.Path = folder, filepath.Join(folder, chainsFile)
	default:
		config.Path = filepath.Join(filepath.Dir(store), chainsFile)
	}
	executor := Executor{Upstreams: (*upstream.Manager)(nil), Scripts: c.sys.Scripts, Workflows: c.sys.Engine, AsksPeople: true, Rights: c.rights}
	if servers, ok := module.Find[Upstreams](c.sys.Extensions); ok {
		executor.Upstreams = servers
	}
	if c.sys.Asker != nil {
		executor.Models = promptModel{c.sys.Asker, c.sys.Engine.AskModel}
	}
	config.Ledger, config.Effects = NewLedger(c.sys.Engine), executor
	return config, nil
}

// findChainTables checks the database before DBOS opens it: DBOS would retry for a long time and report
// long errors.
func findChainTables(ctx context.Context, url string) (*Database, error) {
	d := driver.Find(url)
	guest, err := d.InspectGuest(ctx, url, DefaultSchema, VersionTable, OtherDatabase)
	if err != nil {
		failed := term.ExitError{Code: term.ExitUnknown, Err: fmt.Errorf("cannot run chains over %s: %w", d.Describe(url), err)}
		for _, known := range driver.Failures() {
			if errors.Is(err, known.Err) {
				failed.Hint = known.Hint
				if !known.Away {
					failed.Code = term.ExitUsage
				}
			}
		}
		return nil, &failed
	}
	if err := CheckVersion(guest.Version); err != nil {
		return nil, term.UsageErrorf("use a newer gavel", "cannot run chains over %s: %w", d.Describe(url), err)
	}
	return &Database{URL: url, Proxied: guest.Proxied}, nil
}

func (c *chains) open(ctx context.Context) error {
	runs, err := Open(ctx, c.config)
	if err != nil {
		return err
	}
	service := c.use(runs)
	c.working.Go(func() { c.schedules().RunTicks(ctx, service, c.log) })
	c.working.Go(func() {
		(&Entries{EntryLog: EntryLog{c.sys.Engine, c.sys.Store}, Cursors: c.sys.Store, ActsFor: c.actsForOwner, Log: c.log}).RunEntries(ctx, service)
	})
	c.working.Go(func() {
		service.RunSweeps(ctx, func() time.Duration { return c.section.Load().Retention }, c.log)
	})
	return nil
}

// openControl opens the runs for requests only; the process that serves them executes them.
func (c *chains) openControl(ctx context.Context) (err error) {
	if c.config, err = c.configure(ctx); err != nil {
		return err
	}
	if info, err := os.Stat(c.config.Path); c.config.Database == nil && (err != nil || !info.Mode().IsRegular()) {
		return term.UsageErrorf("start a server that has chains: gavel serve --config FILE", "no server has run chains over this store: %s does not exist", c.config.Path)
	}
	if err := c.findRemote(ctx); err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	return nil
}

// findRemote opens the runs so that requests go to the process that executes them.
func (c *chains) findRemote(ctx context.Context) error {
	runs, err := OpenControl(ctx, c.config)
	if err != nil {
		return err
	}
	c.use(runs)
	return nil
}

// use makes the operations use runs, and returns their Service.
func (c *chains) use(runs *Runs) *Service {
	service := NewService(ServiceConfig{Runs: runs, Engine: c.sys.Engine, Chains: c.list, OpenRuns: func() int { return c.section.Load().OpenRuns }, ActsFor: c.actsFor})
	c.service.Store(service)
	c.before = c.runs.Swap(runs) // open requests still use it; a process takes over only once
	return service
}

// takeOver opens the runs once the process that owns them has ended.
func (c *chains) takeOver(ctx context.Context) {
	look := time.NewTicker(jobPoll)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		switch err := c.open(ctx); {
		case err == nil:
			c.log.Info("this process now runs the chains of the store", "state", c.config.Path)
			return
		case !errors.Is(err, ErrInUse):
			c.log.Error("cannot run chains", "error", err)
		}
	}
}

// close stops each run before its next step. Call it after the callers have stopped, and before the store
// is closed.
func (c *chains) close() {
	c.closing.Do(func() {
		c.stop()
		c.working.Wait()
		for _, runs := range []*Runs{c.before, c.runs.Load()} {
			if runs != nil {
				runs.Close()
			}
		}
		if c.temporary == "" {
			return
		}
		if err := os.RemoveAll(c.temporary); err != nil {
			c.log.Warn("cannot remove the runs of a store in memory", "error", err)
		}
	})
}

// isRepeatable reports whether a tool may run twice, because the operator declared it repeatable or its
// gate prevents a second call.
func (c *chains) isRepeatable(server, tool string) bool {
	if c.section.Load().IsRepeatable(server, tool) {
		return true
	}
	gates, ok := module.Find[interface {
		IsGated(server, tool string) bool
	}](c.sys.Extensions)
	return ok && gates.IsGated(server, tool)
}

// rights returns the current rights of the principal for which a command is done:
//   - A principal with stored tokens needs a valid one, with the role and workflows that it had when the
//     run began.
//   - For a principal named by an issuer, the configuration must still name the issuer. Issuer tokens are
//     not stored, so nothing more can be checked.
//   - For the run of a schedule, or of a chain that acts for the configured principal (chains.runAs), the
//     configuration must still name that principal.
func (c *chains) rights(_ context.Context, do Command) (engine.Principal, error) {
	if do.Chain != "" || IsTickRun(do.Run) {
		who, ok := c.runAs()
		if do.Chain != "" {
			who, ok = c.actsFor(do.Chain)
		}
		if ok && who.ID == do.Principal.ID {
			return who, nil
		}
		return engine.Principal{}, errors.New("chains.runAs no longer names it")
	}
	if c.tokens == nil {
		return do.Principal, nil
	}
	all, err := c.listTokens(do.Principal.ID)
	switch issuer, _, named := strings.Cut(do.Principal.ID, ":"); {
	case err != nil:
		return engine.Principal{}, fmt.Errorf("%w: %w", ErrRightsUnknown, err)
	case slices.ContainsFunc(all, func(t auth.Token) bool {
		return t.Role == do.Principal.Role && t.Workflows == do.Principal.Workflows && t.Valid(time.Now())
	}):
	case len(all) > 0:
		return engine.Principal{}, errors.New("its token has been revoked or has expired")
	case !named || issuer == "local": // a program on this machine
	case issuer == "token":
		return engine.Principal{}, errors.New("its token has been removed")
	case !slices.Contains(c.section.Load().issuers, issuer):
		return engine.Principal{}, fmt.Errorf("the configuration has no issuer %.40q, and the principal has no token", issuer)
	}
	return do.Principal, nil
}

// listTokens returns the tokens of a principal, including invalid ones.
func (c *chains) listTokens(principal string) ([]auth.Token, error) {
	tokens, err := c.tokens()
	if err != nil {
		return nil, err
	}
	all, err := tokens.List()
	return slices.DeleteFunc(all, func(t auth.Token) bool { return t.Principal != principal }), err
}

// runAs returns the principal that scheduled runs act for, or false if none is configured.
func (c *chains) runAs() (engine.Principal, bool) {
	if who := c.section.Load().RunAs; who != nil {
		return *who, true
	}
	return engine.Principal{}, false
}

// actsForOwner returns the principal that the chain of a state acts for: the owner of the instance. If the
// owner has stored tokens, a valid one decides its rights. An owner from an issuer may use only the
// workflow and its chain, because nothing more is known about it here.
func (c *chains) actsForOwner(_ context.Context, e Entry) (engine.Principal, error) {
	owner := engine.Principal{ID: e.Owner, Role: engine.RoleAgent}
	if c.tokens == nil {
		return owner, nil
	}
	all, err := c.listTokens(e.Owner)
	if err != nil {
		return owner, err
	}
	known := false
	for _, t := range all {
		if t.Role != engine.RoleAgent && t.Role != engine.RoleOperator {
			continue
		}
		known = true
		if p := (engine.Principal{ID: e.Owner, Role: t.Role, Workflows: t.Workflows}); t.Valid(time.Now()) && p.InScope(e.Workflow) {
			return p, nil
		}
	}
	if known {
		return owner, fmt.Errorf("%s, the owner of the instance, no longer has a valid token for the workflow %s", e.Owner, e.Workflow)
	}
	if !strings.HasPrefix(e.Owner, "local:") {
		owner.Workflows = e.Workflow + " " + WorkflowPrefix + e.OnEnter.Chain
	}
	return owner, nil
}

// opened combines the services that chain operations use.
type opened struct {
	*Service
	*Schedules
}

// openRemote returns the chains. In on-demand mode it opens the runs when they are first needed.
func (c *chains) openRemote(ctx context.Context, runs bool) (Chains, error) {
	if c.onDemand {
		c.opening.Lock()
		defer c.opening.Unlock()
		if err := c.openOnDemand(ctx, runs); err != nil {
			return nil, err
		}
	}
	service := c.service.Load()
	if service == nil {
		service = NewService(ServiceConfig{Chains: c.list})
	}
	return opened{service, c.schedules()}, nil
}

func (c *chains) openOnDemand(ctx context.Context, runs bool) error {
	if c.list() == nil && isDeclared(c.file) {
		section, err := readChains(c.file, nil)
		if err != nil {
			return err
		}
		c.section.Store(section) // the server logs the warnings
	}
	if !runs || c.service.Load() != nil {
		return nil
	}
	return c.openControl(ctx)
}

// schedules returns the schedules of the chains. They are in the store, so any process over it may change
// them.
func (c *chains) schedules() *Schedules {
	return &Schedules{Engine: c.sys.Engine, Chains: c.list, RunAs: c.runAs}
}

// ListProcedures implements operation.Procedures.
func (c *chains) ListProcedures(_ context.Context, p engine.Principal) ([]operation.Procedure, error) {
	if err := engine.Authorize(p, engine.RightRead); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(c.section.Load().procedures(), func(one operation.Procedure) bool {
		return !p.InScope(WorkflowPrefix + one.Name)
	}), nil
}

// vet rejects definitions whose states start a chain that the configuration file lacks: their instances
// would never move on.
func (c *chains) vet(d *workflow.Definition) error {
	issues := CheckEntries([]*workflow.Definition{d}, c.list())[d.Name]
	issues = slices.DeleteFunc(issues, func(i workflow.Issue) bool { return i.Rule != RuleUnknownChain })
	if len(issues) == 0 {
		return nil
	}
	return &engine.Error{Code: engine.CodeInvalidDefinition, Message: "A state starts a chain that does not exist.", Issues: issues}
}
