// Package gavel checks the moves that agents ask for, before they happen. Open opens a store and creates a
// sandbox, a judge and an engine. A Handler serves them over MCP and REST, a Client calls them, and Middleware
// gates the tools of a server built with mcp-go. The command gavel uses this package too; docs/embedding.md
// describes its use in other programs.
//
// It promises:
//   - A decision is the same in every program.
//   - A System closes everything that it created.
//   - If main does not call worker.Main, Open returns an error with the missing line.
//
// It must never decide anything, read flags or variables, listen, or end the process. Only programs import it.
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
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Memory is the Config.Store for a store in memory.
const Memory = "memory"

// The usual file names of a store and of its key, which is in the same folder.
const (
	StoreFile = "gavel.db"
	KeyFile   = "gavel.key"
)

// KeyPath returns the path of a store's key.
func KeyPath(path string) string { return filepath.Join(filepath.Dir(path), KeyFile) }

// Operator is the principal that owns the definitions of Config.Definitions. Agents follow these definitions and
// cannot loosen them.
var Operator = engine.Principal{ID: "local:cli", Role: engine.RoleOperator}

// Config configures a System. The zero value judges fields, schemas and scripts, and stores nothing permanently.
type Config struct {
	// Store is the file of the store, which is created if it is missing. It can also be the address of a database
	// that InitDatabase has initialised and for which the program has a driver. Memory or "" keeps the store in
	// memory.
	Store string
	// StoreKey opens the secrets of a database. A file store has its key in the same folder.
	StoreKey []byte
	// Folder holds the local files of a database store: results of background commands, which a file store
	// keeps in its own folder. If it is "", such commands run while their callers wait.
	Folder string
	// Definitions are files with workflows, which are loaded as Operator's.
	Definitions []string
	// File is a configuration file, from which the program's modules read their sections; "" for none.
	File string
	// OnDemand delays the start of anything that File declares until it is needed, for programs that make one
	// request and exit.
	OnDemand bool
	// Watcher is a program that ends the commands of modules when this program is killed, as gavel does for itself.
	// If it is "", the kernel does so, on Linux only.
	Watcher string
	// Model creates the layer that asks a model, given the memory of earlier judgements; see judge.NewModel. If it is
	// nil, moves that ask for a model are decided according to onJudgeUnavailable.
	Model func(judge.Memory) (judge.Layer, error)
	// Fetcher fetches evidence: a Fetcher from OpenFetcher, or the program's own. nil disables evidence.
	Fetcher judge.Fetcher
	// NoReviews rejects moves that would otherwise wait for a person.
	NoReviews bool
	// Signer signs anchors; nil disables anchoring.
	Signer audit.Signer
	// Sandbox is shared and not closed by the System; nil creates one.
	Sandbox *Sandbox
	// Configure makes the final changes to the engine's configuration: limits, quotas, an observer, a clock.
	Configure func(*engine.Config)
	// Version is the program's version, as MCP clients see it.
	Version string
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Sandbox runs scripts, and compiles the checks of definitions.
type Sandbox struct {
	Pool     *script.Pool
	Compiler *validators.Compiler
}

// NewSandbox returns a Sandbox. It starts no process until the first script runs.
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

// System holds everything below the faces (MCP, REST).
type System struct {
	*Sandbox
	Engine  *Engine
	Store   store.Store
	Auditor *audit.Auditor
	// Tokens opens the tokens of a database; nil for other stores.
	Tokens func() (*auth.Tokens, error)

	cfg                    Config
	reviews, clientReviews bool
	states                 *clientstate.States // of the forms that MCP clients carry
	extensions             module.Extensions
}

// Part is a part of a System that can fail to open.
type Part string

// The parts of a System.
const (
	PartFile    Part = "configuration file"
	PartSandbox Part = "script sandbox"
	PartKey     Part = "key file"
	PartStore   Part = "store"
	PartModel   Part = "model"
)

// OpenError reports which part of a System could not be opened. Errors of the engine are *engine.Error, as
// everywhere.
type OpenError struct {
	Part Part
	Err  error
}

func (e *OpenError) Error() string { return fmt.Sprintf("cannot use the %s: %v", e.Part, e.Err) }

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// Open opens the store, or creates it, builds the System over it and loads the definitions. Callers must close
// everything that uses the System before they close it.
func Open(ctx context.Context, cfg Config) (*System, error) {
	s, err := prepareSystem(ctx, cfg) // the sandbox first, so that a worker process whose main is wrong opens no store
	if err != nil {
		return nil, err
	}
	key, err := s.openStore(ctx)
	if err == nil {
		err = s.wire(key)
	}
	if err == nil && !s.isEphemeral() {
		s.LogBadSeals(ctx, slog.LevelError, "a definition or judge configuration differs from its sealed form, so none is used")
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

// Check checks the configuration file against the definitions. Open calls it if it has loaded definitions; other
// callers must call it once all definitions are loaded. Contradictions are returned as document.Errors.
func (s *System) Check(ctx context.Context) error { return s.extensions.Check(ctx) }

// Extensions returns what modules added to the system.
func (s *System) Extensions() module.Extensions { return s.extensions }

// New builds a System over an open store. The System owns the store from then on, even if New returns an error.
// Without a key nothing is sealed. Config.Store is used only as the store's location, and Config.Definitions is
// ignored.
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
	if path := s.pathInStoreFolder(); path != "" {
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

// Close ends the workers, unless they are shared, and then closes the store, so that nothing uses a closed store.
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

func (s *System) isEphemeral() bool { return s.cfg.Store == "" || s.cfg.Store == Memory }

// pathInStoreFolder returns a path in the folder of the store, which may be Config.Folder; "" for none.
func (s *System) pathInStoreFolder() string {
	switch {
	case s.isEphemeral(), IsDatabase(s.cfg.Store) && s.cfg.Folder == "":
		return ""
	case IsDatabase(s.cfg.Store):
		return filepath.Join(s.cfg.Folder, StoreFile)
	}
	return s.cfg.Store
}

// openStore opens the store and returns its key.
func (s *System) openStore(ctx context.Context) (key []byte, err error) {
	if s.isEphemeral() {
		s.Store = memory.New()
		return newKey()
	}
	if IsDatabase(s.cfg.Store) {
		return s.openDatabase(ctx)
	}
	if strings.Contains(s.cfg.Store, "://") { // no file has such a name
		return nil, &OpenError{PartStore, driver.ErrNoDriver}
	}
	path, keyPath, log := s.cfg.Store, KeyPath(s.cfg.Store), s.cfg.Logger
	_, missing := os.Stat(keyPath)
	if key, err = record.LoadOrCreateKey(keyPath); err != nil {
		return nil, &OpenError{PartKey, err}
	}
	if info, err := os.Stat(path); missing == nil && filepath.Base(path) == StoreFile && !sqlite.IsOnlyLogLeft(path) && (err != nil || info.Size() == 0) {
		log.Warn("a store's key exists, but the store is missing or empty: gavel creates a new store; if there was one, restore a backup",
			"store", path, "key", keyPath)
	}
	db, err := sqlite.Open(ctx, sqlite.Config{Path: path, Logger: log})
	if err != nil {
		return nil, &OpenError{PartStore, err}
	}
	s.Store = db
	if head, _, err := db.Rules(ctx, math.MaxInt64); err == nil && head.Position > 0 && missing != nil {
		log.Warn("the store's key was missing, and gavel created a new one: the definitions are not used until the old key is back or gavel seal --accept seals them again",
			"store", path, "key", keyPath)
	}
	return key, nil
}

func newKey() ([]byte, error) {
	key := make([]byte, 32)
	_, err := rand.Read(key)
	return key, err
}

// wire creates the judge, the engine and the auditor over the store.
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
	if f, ok := s.cfg.Fetcher.(Fetcher); ok {
		f.Connect(s.extensions)
		if s.pathInStoreFolder() != "" {
			if err := f.KeepResults(s.pathInStoreFolder(), key); err != nil {
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
	if !s.isEphemeral() {
		system.Path = s.cfg.Store
	}
	if err = s.extensions.Connect(system); err != nil {
		return err
	}
	s.Auditor, err = audit.New(audit.Config{Engine: s.Engine, Store: s.Store, Signer: s.cfg.Signer})
	return err
}

// LogBadSeals logs a message if a definition or judge configuration differs from its sealed form.
func (s *System) LogBadSeals(ctx context.Context, level slog.Level, message string) {
	if err := s.Engine.CheckRules(ctx); engine.CodeOf(err) == engine.CodeUntrustedRules {
		s.cfg.Logger.Log(ctx, level, message, "cause", errors.Unwrap(err), //nolint:sloglint // a constant of the caller's
			"hint", "if the store's key is new or wrong, put the right one back; otherwise run gavel verify to find the change, and restore a backup or check the list of gavel seal")
	}
}
