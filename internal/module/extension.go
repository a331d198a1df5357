package module

import (
	"context"
	"log/slog"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Setup is the input of a module's Extend, while a system is being opened.
type Setup struct {
	// File is the configuration file; nil without one.
	File *config.File
	// OnDemand is set if the program answers one request and exits: nothing is started before it is needed.
	OnDemand bool
	// Folder contains the store's file, or the local files of a database; "" for none.
	Folder string
	// Watcher is a program that ends this program's commands when it is killed; "" for none.
	Watcher string
	Version string // of the program
	Log     *slog.Logger
	// LookupEnv looks up environment variables; nil means os.LookupEnv.
	LookupEnv func(string) (string, bool)
}

// Extension is what a module adds to one opened system. Every field may be nil.
type Extension struct {
	// Parts of the configuration file are applied when the system is opened, before the engine exists, and by a
	// server whenever they change.
	Parts []*Part
	// Configure changes the configuration of the engine.
	Configure func(*engine.Config)
	// Connect is called once the engine exists.
	Connect func(System) error
	// Vet rejects definitions that a server must not load.
	Vet func(*workflow.Definition) error
	// Check compares the configuration with the definitions, once those are loaded. Begin starts the
	// system's background work, once all checks have passed.
	Check, Begin func(context.Context) error
	// Foreign offers MCP clients the tools, resources and prompts of other servers. Only one module may set it.
	Foreign wire.Foreign
	// Extras are additional tools for MCP clients. Only one module may set it.
	Extras operation.Extras
	// Routes are additional routes of gavel serve.
	Routes []Route
	// Metrics writes the module's metrics.
	Metrics func(telemetry.MetricFunc)
	// Provides implements interfaces that other modules and the program declare; see Find.
	Provides any
	// Services are the services that the module's operations use, by operation.Operation.Service.
	Services map[string]any
	// Site is a web site of gavel serve; nil for none. Pages are shown by the site of another module. Warnings returns
	// what makes decisions unsafe now.
	Site     *Site
	Pages    []Page
	Warnings func(context.Context) []Warning
	// Health are parts of a server's health report.
	Health []telemetry.Part
	// Run starts work next to a server. stop waits until it has ended.
	Run func(context.Context) (stop func())
	// Close is called before the store is closed, possibly more than once.
	Close func()
}

// Part is a part of the configuration file that is applied as a whole: sections and the files that they name.
type Part struct {
	Sections []string
	// Files lists the other files; nil for none.
	Files func(*config.File) []string
	// Prepare reads and checks the part; take applies it. If Prepare is nil, changes take effect at the
	// next start.
	Prepare func(context.Context, *Change) (take func(), err error)
	// OnResult is called with the error that keeps the current files from being applied, and with nil once
	// they are. It may be nil.
	OnResult func(error)
}

// Change is a configuration that is about to be applied.
type Change struct {
	File *config.File // nil for none
	// Procedures are the procedures after the change. The module that declares them sets them for later
	// modules; nil means that they stay the same.
	Procedures []operation.Procedure
}

// System is the opened system to which an extension belongs.
type System struct {
	Engine *engine.Engine
	Store  store.Store
	// Path is the store: a file, or the address of a database; "" if it keeps nothing on disk.
	Path    string
	Scripts *script.Pool
	// Asker sends the model requests other than judgements; nil without a model. Models lists all
	// configured models.
	Asker  judge.Asker
	Models []string
	// DeriveKey derives a key for a purpose from the store's secret.
	DeriveKey func(purpose string) []byte
	// Extensions are all extensions of the system.
	Extensions Extensions
}

// Extensions are the extensions of all modules in one opened system, sorted by module name.
type Extensions []*Extension

// Extend lets every module extend a system and applies the parts of the configuration file. Mistakes in the file
// are returned as document.Errors.
func Extend(ctx context.Context, setup Setup) (all Extensions, err error) {
	change := &Change{File: setup.File}
	for _, m := range modules {
		if m.Extend == nil {
			continue
		}
		x := m.Extend(setup)
		all = append(all, x)
		for _, part := range x.Parts {
			if part.Prepare == nil {
				continue
			}
			take, err := part.Prepare(ctx, change)
			if err != nil {
				all.Close()
				return nil, err
			}
			take()
		}
	}
	return all, nil
}

// Parts returns the parts of the configuration file that the extensions apply.
func (all Extensions) Parts() (parts []*Part) {
	for _, x := range all {
		parts = append(parts, x.Parts...)
	}
	return parts
}

// Configure lets every extension change the engine's configuration.
func (all Extensions) Configure(cfg *engine.Config) {
	for _, x := range all {
		if x.Configure != nil {
			x.Configure(cfg)
		}
	}
}

// Connect passes the system to every extension.
func (all Extensions) Connect(s System) error {
	s.Extensions = all
	for _, x := range all {
		if x.Connect != nil {
			if err := x.Connect(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// Vet rejects a definition that any extension rejects.
func (all Extensions) Vet(d *workflow.Definition) error {
	for _, x := range all {
		if x.Vet != nil {
			if err := x.Vet(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// Check compares the configuration of every extension with the definitions. If all checks pass, it starts
// the extensions' background work.
func (all Extensions) Check(ctx context.Context) error {
	for _, x := range all {
		if x.Check != nil {
			if err := x.Check(ctx); err != nil {
				return err
			}
		}
	}
	for _, x := range all {
		if x.Begin != nil {
			if err := x.Begin(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Foreign returns the first extension's Foreign; nil if no extension has one.
func (all Extensions) Foreign() wire.Foreign {
	for _, x := range all {
		if x.Foreign != nil {
			return x.Foreign
		}
	}
	return nil
}

// Extras returns the first extension's Extras; nil if no extension has any.
func (all Extensions) Extras() operation.Extras {
	for _, x := range all {
		if x.Extras != nil {
			return x.Extras
		}
	}
	return nil
}

// Run starts every extension's work next to a server. stop ends it and waits.
func (all Extensions) Run(ctx context.Context) (stop func()) {
	var stops []func()
	for _, x := range all {
		if x.Run != nil {
			stops = append(stops, x.Run(ctx))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// WriteMetrics writes the metrics of every extension.
func (all Extensions) WriteMetrics(tell telemetry.MetricFunc) {
	for _, x := range all {
		if x.Metrics != nil {
			x.Metrics(tell)
		}
	}
}

// Close closes every extension.
func (all Extensions) Close() {
	for _, x := range all {
		if x.Close != nil {
			x.Close()
		}
	}
}

// Find returns the first provided value that implements T. ok is false if there is none.
func Find[T any](all Extensions) (provided T, ok bool) {
	for _, x := range all {
		if provided, ok = x.Provides.(T); ok {
			return provided, true
		}
	}
	return provided, false
}
