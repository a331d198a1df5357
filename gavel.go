// Package gavel checks the moves that agents ask for before they happen. Open wires a store, a
// sandbox, a judge, evidence and an engine; a Handler serves them over MCP and REST, a Client asks
// them, and Middleware gates the tools of a server built with mcp-go. The command gavel is wired by
// this package, too; docs/embedding.md shows other programs.
//
// It promises that a decision is the same in every program, that what a System made it also
// closes, and that a main without worker.Main is refused when it is opened, with the line that
// is missing. It must never decide anything, read flags or variables, listen, or end the
// process. Only programs import it.
package gavel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Memory is the Config.Store that keeps nothing.
const Memory = "memory"

// The usual names of a store and of its key, which lies next to it.
const (
	StoreFile = "gavel.db"
	KeyFile   = "gavel.key"
)

// KeyBeside is where the key of a store is.
func KeyBeside(path string) string { return filepath.Join(filepath.Dir(path), KeyFile) }

// Operator is whose the definitions of Config.Definitions are: agents follow them, and cannot
// loosen them.
var Operator = engine.Principal{ID: "local:cli", Role: engine.RoleOperator}

// Config is what a System is made of. The zero value judges fields, schemas and scripts, and
// keeps nothing.
type Config struct {
	// Store is the file of the store, made where it is missing; the address of a database that
	// InitDatabase made ready and the program has a driver for; Memory, or "", for none.
	Store string
	// StoreKey opens the secrets of a database; a file has its key next to it.
	StoreKey []byte
	// Folder has what lies next to a file and is of this machine alone, for a database: results of
	// commands in the background. "": such commands run while their callers wait.
	Folder string
	// Definitions are files of workflows, loaded as Operator's.
	Definitions []string
	// File is a configuration file, of which the modules in the program take their sections; "" for none.
	File string
	// OnDemand starts nothing that File declares before it is needed: for a program that asks once and ends.
	OnDemand bool
	// Watcher is a program that ends the commands of modules when this one is killed, as gavel does for
	// itself; "" leaves them to the kernel, on Linux.
	Watcher string
	// Model makes the layer that asks a model, from what was judged before; see judge.NewModel.
	// nil: moves that ask for a model are decided as onJudgeUnavailable says.
	Model func(judge.Memory) (judge.Layer, error)
	// Fetcher fetches evidence: OpenFetcher's, or the program's own. nil: there is none.
	Fetcher judge.Fetcher
	// NoReviews refuses the moves that would otherwise wait for a person.
	NoReviews bool
	// Signer signs anchors; nil disables anchoring.
	Signer audit.Signer
	// Sandbox is shared with others and stays open; nil makes one.
	Sandbox *Sandbox
	// Configure changes the engine's configuration last: limits, quotas, an observer, a clock.
	Configure func(*engine.Config)
	// Version is the program's, for MCP clients.
	Version string
	// Logger is slog.Default() when nil.
	Logger *slog.Logger
}

// Sandbox runs scripts, and compiles what definitions check.
type Sandbox struct {
	Pool     *script.Pool
	Compiler *validators.Compiler
}

// NewSandbox starts no process; the first script does.
func NewSandbox(log *slog.Logger) (*Sandbox, error) {
	pool, err := script.NewPool(script.Config{Logger: log})
	if err != nil {
		return nil, &OpenError{PartSandbox, err}
	}
	return &Sandbox{Pool: pool, Compiler: validators.NewCompiler(pool, validators.Options{})}, nil
}

// Close ends and reaps every worker.
func (s *Sandbox) Close() error { return s.Pool.Close() }

// Engine decides and records moves; package engine has its requests and results.
type Engine = engine.Engine

// System is everything below the faces.
type System struct {
	*Sandbox
	Engine  *Engine
	Store   store.Store
	Auditor *audit.Auditor
	// Tokens opens those of a database; nil for other stores.
	Tokens func() (*auth.Tokens, error)

	cfg                    Config
	reviews, clientReviews bool
	states                 *clientstate.States // of the forms that MCP clients carry
	extensions             module.Extensions
}

// Part is what of a System could not be opened.
type Part string

// The parts of a System.
const (
	PartFile    Part = "configuration file"
	PartSandbox Part = "script sandbox"
	PartKey     Part = "key file"
	PartStore   Part = "store"
	PartModel   Part = "model"
)

// OpenError says which part of a System could not be opened. Errors of the engine are
// *engine.Error, as everywhere.
type OpenError struct {
	Part Part
	Err  error
}

func (e *OpenError) Error() string { return fmt.Sprintf("cannot use the %s: %v", e.Part, e.Err) }

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// Open opens the store, or makes it, wires everything over it and loads the definitions. Close
// it after what uses it.
func Open(ctx context.Context, cfg Config) (*System, error) {
	s, err := prepareSystem(ctx, cfg) // the sandbox first: a worker whose main is wrong opens no store
	if err != nil {
		return nil, err
	}
	key, err := s.openStore(ctx)
	if err == nil {
		err = s.wire(key)
	}
	if err == nil && !s.keepsNothing() {
		s.LogBadSeals(ctx, slog.LevelError, "a definition or judge configuration is not as gavel sealed it, so none is used")
	}
	for _, file := range cfg.Definitions {
		if err == nil {
			err = s.define(ctx, file)
		}
	}
	if err == nil && len(cfg.Definitions) > 0 {
		err = s.Check(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Check compares what the configuration file declares with the definitions. Open does it after it has
// loaded some; others call it once all are loaded. The error is document.Errors where something does
// not fit.
func (s *System) Check(ctx context.Context) error { return s.extensions.Check(ctx) }

// Extensions are what modules added to the system.
func (s *System) Extensions() module.Extensions { return s.extensions }

// New wires everything over an open store, which is the System's from then on, also where there
// is an error. Without a key nothing is sealed. Config.Store only says where the store is, Config.Definitions does not
// count.
func New(db store.Store, key []byte, cfg Config) (*System, error) {
	s, err := prepareSystem(context.Background(), cfg)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.Store = db
	if err := s.wire(key); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func prepareSystem(ctx context.Context, cfg Config) (*System, error) {
	s := &System{Sandbox: cfg.Sandbox, cfg: cfg, states: clientstate.New()}
	if cfg.Logger == nil {
		s.cfg.Logger = slog.Default()
	}
	var err error
	if s.Sandbox == nil {
		if s.Sandbox, err = NewSandbox(s.cfg.Logger); err != nil {
			return nil, err
		}
	}
	setup := module.Setup{OnDemand: cfg.OnDemand, Watcher: cfg.Watcher, Version: cfg.Version, Log: s.cfg.Logger}
	if path := s.besideStore(); path != "" {
		setup.Folder = filepath.Dir(path)
	}
	if cfg.File != "" {
		setup.File, err = config.Load(cfg.File)
	}
	if err == nil {
		s.extensions, err = module.Extend(ctx, setup)
	}
	if err != nil {
		return nil, errors.Join(&OpenError{PartFile, err}, s.Close())
	}
	return s, nil
}

// Close ends the workers, unless they are shared, and then the store, so that nothing reads or
// writes a closed one.
func (s *System) Close() (err error) {
	s.extensions.Close()
	if s.cfg.Sandbox == nil {
		err = s.Sandbox.Close()
	}
	if s.Store != nil {
		err = errors.Join(err, s.Store.Close())
	}
	return err
}

func (s *System) keepsNothing() bool { return s.cfg.Store == "" || s.cfg.Store == Memory }

// besideStore is a path in the folder of the store, which may be in Config.Folder; "" for none.
func (s *System) besideStore() string {
	switch {
	case s.keepsNothing(), IsDatabase(s.cfg.Store) && s.cfg.Folder == "":
		return ""
	case IsDatabase(s.cfg.Store):
		return filepath.Join(s.cfg.Folder, StoreFile)
	}
	return s.cfg.Store
}

// openStore opens the store and returns its key.
func (s *System) openStore(ctx context.Context) (key []byte, err error) {
	if s.keepsNothing() {
		s.Store = memory.New()
		return newKey()
	}
	if IsDatabase(s.cfg.Store) {
		return s.openDatabase(ctx)
	}
	if strings.Contains(s.cfg.Store, "://") { // no file has such a name
		return nil, &OpenError{PartStore, driver.ErrNoDriver}
	}
	path, keyPath, log := s.cfg.Store, KeyBeside(s.cfg.Store), s.cfg.Logger
	_, missing := os.Stat(keyPath)
	if key, err = record.LoadOrCreateKey(keyPath); err != nil {
		return nil, &OpenError{PartKey, err}
	}
	if info, err := os.Stat(path); missing == nil && filepath.Base(path) == StoreFile && !sqlite.IsLogAlone(path) && (err != nil || info.Size() == 0) {
		log.Warn("the key of a store is here, and the store is missing or empty: a new one is made; if there was one, restore a backup",
			"store", path, "key", keyPath)
	}
	db, err := sqlite.Open(ctx, sqlite.Config{Path: path, Logger: log})
	if err != nil {
		return nil, &OpenError{PartStore, err}
	}
	s.Store = db
	if head, _, err := db.Rules(ctx, math.MaxInt64); err == nil && head.Place > 0 && missing != nil {
		log.Warn("the key of this store was not next to it, and a new one was made: its definitions are not used until the old key is back, or gavel seal --accept has sealed them again",
			"store", path, "key", keyPath)
	}
	return key, nil
}

func newKey() ([]byte, error) {
	key := make([]byte, 32)
	_, err := rand.Read(key)
	return key, err
}

// wire makes judge, engine and auditor over the store.
func (s *System) wire(key []byte) error {
	config := engine.Config{Store: s.Store, Compiler: s.Compiler, Reader: s.Pool, RuleKey: key, ValueKey: key, ReviewPath: !s.cfg.NoReviews}
	judging := judge.Config{Compiler: s.Compiler, Memory: engine.NewMemory(s.Store), Fetcher: s.cfg.Fetcher}
	var err error
	if key == nil {
		if key, err = newKey(); err != nil {
			return err
		}
	}
	config.Digester = record.NewDigester(key)
	s.states.Share(record.DeriveKey(key, "gavel/client-state/v1"), s.Store)
	if s.cfg.Model != nil {
		if judging.Model, err = s.cfg.Model(judging.Memory); err != nil {
			return &OpenError{PartModel, err}
		}
	}
	if m, ok := judging.Model.(interface{ Names() []string }); ok {
		config.Models = m.Names()
	}
	if f, ok := s.cfg.Fetcher.(interface{ Names() []string }); ok {
		config.Sources = f.Names()
	}
	if f, ok := s.cfg.Fetcher.(*Fetcher); ok && f != nil {
		if tools, ok := module.Find[evidence.Tools](s.extensions); ok {
			f.UseTools(tools)
		}
		if s.besideStore() != "" {
			if err := f.KeepResults(s.besideStore(), key); err != nil {
				return err
			}
		}
	}
	if f, ok := s.cfg.Fetcher.(interface{ ReadOnlyNames() []string }); ok {
		config.ReadOnlySources = f.ReadOnlyNames()
	}
	if config.Judge, err = judge.New(judging); err != nil {
		return err
	}
	s.extensions.Configure(&config)
	if s.cfg.Configure != nil {
		s.cfg.Configure(&config)
	}
	s.reviews, s.clientReviews = config.ReviewPath, config.ClientReviews
	if s.Engine, err = engine.New(config); err != nil {
		return err
	}
	derive := func(purpose string) []byte { return record.DeriveKey(key, purpose) }
	system := module.System{Engine: s.Engine, Store: s.Store, Scripts: s.Pool, Models: config.Models, DeriveKey: derive}
	system.Asker, _ = judging.Model.(judge.Asker)
	if !s.keepsNothing() {
		system.Path = s.cfg.Store
	}
	if err = s.extensions.Connect(system); err != nil {
		return err
	}
	s.Auditor, err = audit.New(audit.Config{Engine: s.Engine, Store: s.Store, Signer: s.cfg.Signer})
	return err
}

// LogBadSeals logs a message where a definition or judge configuration is not as it was sealed.
func (s *System) LogBadSeals(ctx context.Context, level slog.Level, message string) {
	if err := s.Engine.CheckRules(ctx); engine.CodeOf(err) == engine.CodeUntrustedRules {
		s.cfg.Logger.Log(ctx, level, message, "cause", errors.Unwrap(err), //nolint:sloglint // a constant of the caller's
			"hint", "if the key of this store is new or another's, put the right one back; else gavel verify names what was changed: restore a backup, or look at what gavel seal shows")
	}
}
