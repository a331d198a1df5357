package main

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators"
)

// operatorOwner identifies the operator's code in the sandbox.
var operatorOwner = validators.Owner{ID: gavel.Operator.ID, Trusted: true}

// newSandbox starts no process; the first script does.
func newSandbox(log *slog.Logger) (*gavel.Sandbox, error) {
	box, err := gavel.NewSandbox(log)
	return box, openFailure(err)
}

// system is everything below the faces, and the equipment that the flags configured.
type system struct {
	*gavel.System
	equipment
	place storePlace
	key   []byte // the secret of a store that was opened for reading; nil if it is missing
}

// equipment is what a command configures in addition to the store. The zero value judges with fields, schemas and
// scripts alone.
type equipment struct {
	file    string            // the configuration file, "" for none
	serves  bool              // it serves clients, and does not only run one command
	model   *model            // nil if none is configured
	sources *evidence.Manager // nil without --config
	anchors *record.Signer    // nil without anchors
	// reviews lets escalated moves wait for a person; clientReviews lets the agent's own client ask that person.
	reviews, clientReviews bool
	metered                *metered // nil without metrics
	quotas                 engine.Quotas
}

// Close closes the model and the sources.
func (e equipment) Close() error {
	e.sources.Close()
	return e.model.Close()
}

// Close first closes the extensions, then the model and the sources, and last the workers and the store.
func (s *system) Close() error {
	s.Extensions().Close()
	return errors.Join(s.equipment.Close(), s.System.Close())
}

// configure adds the equipment to the configuration of a system.
func (e equipment) configure(cfg gavel.Config) gavel.Config {
	cfg.NoReviews, cfg.Version = !e.reviews, readBuild().Version
	cfg.File, cfg.OnDemand, cfg.Watcher = e.file, !e.serves, thisProgram()
	if e.sources != nil {
		cfg.Fetcher = e.sources
	}
	if e.model != nil {
		cfg.Model = e.model.layer
	}
	if e.anchors != nil {
		cfg.Signer = e.anchors
	}
	cfg.Configure = func(c *engine.Config) {
		c.ClientReviews, c.Quotas = e.clientReviews, e.quotas
		told := observers{telemetry.DecisionLog{Logger: cfg.Logger}}
		if e.metered != nil {
			told = append(told, e.metered.metrics)
		}
		c.Observer = told
	}
	return cfg
}

// observers calls several observers one after the other.
type observers []engine.Observer

// Committed implements engine.Observer.
func (all observers) Committed(ctx context.Context, events []record.Event) {
	for _, o := range all {
		o.Committed(ctx, events)
	}
}

// Changed implements engine.Observer.
func (all observers) Changed(ctx context.Context, inst record.Instance) {
	for _, o := range all {
		o.Changed(ctx, inst)
	}
}

// Unrecorded implements engine.Observer.
func (all observers) Unrecorded(ctx context.Context, event record.Event) {
	for _, o := range all {
		o.Unrecorded(ctx, event)
	}
}

type systemFlags struct {
	storeFlag
	modelFlags
	canaryFlags
	anchorFlags
}

// openEquipped opens the store, or creates it, with the model, the sources of evidence and the anchors that the flags
// configure.
func (f *systemFlags) openEquipped(ctx context.Context, con *console, with equipment) (_ *system, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, with.Close())
		}
	}()
	with.file = f.configFlag.Config
	at, err := f.place(con.log, true)
	if err != nil {
		return nil, err
	}
	if with.model, err = f.modelFlags.open(con.log); err != nil {
		return nil, err
	}
	if with.sources, err = f.configFlag.open(con.log); err != nil {
		return nil, err
	}
	if with.anchors, err = f.signer(con.log, at.path); err != nil {
		return nil, err
	}
	with.metered.count(with)
	sys, err := openSystem(ctx, con.log, at, with)
	if err != nil {
		return nil, err
	}
	if err := f.canaryFlags.start(ctx, con.log, sys); err != nil {
		return nil, errors.Join(err, sys.System.Close()) // the equipment is closed above
	}
	return sys, nil
}

// openSystem opens the store at a place and creates the engine with its equipment. Unless it returns an error, the
// system owns the equipment.
func openSystem(ctx context.Context, log *slog.Logger, at storePlace, with equipment) (*system, error) {
	cfg := gavel.Config{Store: at.path, StoreKey: at.key, Logger: log}
	if at.isDatabase() && with.sources != nil {
		cfg.Folder = at.makeFolder(log)
	}
	open, err := gavel.Open(ctx, with.configure(cfg))
	if err != nil {
		return nil, openFailure(err)
	}
	sys := &system{System: open, equipment: with, place: at}
	if with.metered != nil {
		with.metered.sys = sys
	}
	return sys, nil
}

// openFailure adds the next step to the error of a part that could not be opened.
func openFailure(err error) error {
	failed, ok := errors.AsType[*gavel.OpenError](err)
	if !ok {
		return module.EngineFailure(err)
	}
	switch failed.Part {
	case gavel.PartFile:
		return module.BadConfig(failed.Err)
	case gavel.PartStore:
		return storeFailure(failed.Err, "is it a store of gavel, and may you write it?")
	case gavel.PartSandbox:
		return term.UnknownErrorf("", "%w", err)
	default:
		return term.UsageErrorf("", "%w", err)
	}
}

// openForReading opens an existing store for a command that only reads: it writes nothing, and creates no key. It
// logs a warning for a store without any data next to a key, because it may have replaced a lost one.
func openForReading(ctx context.Context, con *console, flag storeFlag) (*system, error) {
	at, err := flag.place(con.log, false)
	if err != nil {
		return nil, err
	}
	return openPlaceForReading(ctx, con, at)
}

// openPlaceForReading is openForReading for a place. It also warns of definitions that gavel would not use.
func openPlaceForReading(ctx context.Context, con *console, at storePlace) (*system, error) {
	sys, err := openPlaceToCheck(ctx, con, at)
	if err == nil {
		sys.warnOfSeals(ctx, con.log)
	}
	return sys, err
}

// warnOfSeals warns that the displayed data may come from definitions that were changed.
func (s *system) warnOfSeals(ctx context.Context, log *slog.Logger) {
	head, _, err := s.Store.Rules(ctx, math.MaxInt64)
	sealed := err == nil && head.Place > 0
	switch missing := s.place.missingKey(); {
	case s.place.isDatabase() && s.place.key == nil:
		if sealed {
			log.Warn("without --store-key the definitions of this store are shown without checking their seals")
		}
		return
	case missing != "":
		if sealed {
			log.Warn("the key of this store is not next to it: its definitions are shown without checking their seals", "missing", missing)
		}
		return
	}
	s.LogBadSeals(ctx, slog.LevelWarn, "a definition or judge configuration of this store is not as gavel sealed it: what is shown may have been changed")
}

// openToCheck is openForReading for a command that checks the seals itself.
func openToCheck(ctx context.Context, con *console, flag storeFlag) (*system, error) {
	at, err := flag.place(con.log, false)
	if err != nil {
		return nil, err
	}
	return openPlaceToCheck(ctx, con, at)
}

func openPlaceToCheck(ctx context.Context, con *console, at storePlace) (*system, error) {
	db, key, err := openArchive(ctx, at)
	if err != nil {
		return nil, err
	}
	empty, err := db.IsEmpty(ctx)
	if err != nil && !errors.Is(err, store.ErrDamaged) { // the command itself reports damage
		return nil, errors.Join(term.UnknownErrorf("", "cannot %w", err), db.Close())
	}
	if empty && !at.isDatabase() && isFile(gavel.KeyBeside(at.path)) {
		con.log.Warn("nothing was ever written to this store, but its key is there: a store that was lost looks like this, and so does a new one",
			"store", at.path, "key", gavel.KeyBeside(at.path))
		con.unsure = true
	}
	open, err := gavel.New(db, key, gavel.Config{
		Logger: con.log, NoReviews: true, Configure: func(c *engine.Config) { c.ShowUnsealed = true },
	})
	if err != nil {
		return nil, openFailure(err)
	}
	return &system{System: open, place: at, key: key}, nil
}

// archive is a store that is open for reading.
type archive interface {
	store.Store
	IsEmpty(ctx context.Context) (bool, error)
}

// openArchive opens a store so that nothing can be written, and returns its key; nil if the key is missing.
func openArchive(ctx context.Context, at storePlace) (_ archive, key []byte, err error) {
	if !at.isDatabase() {
		if key, err = existingKey(at.path); err != nil {
			return nil, nil, term.UsageErrorf("", "cannot use the key file: %w", err)
		}
		db, err := sqlite.OpenToRead(ctx, at.path)
		if err != nil {
			return nil, nil, storeFailure(err, "is it a store of gavel, and may you read it?")
		}
		return db, key, nil
	}
	db, err := driver.Find(at.path).OpenToRead(ctx, at.path)
	if err != nil {
		return nil, nil, storeFailure(err, "")
	}
	if at.key != nil {
		if key, err = gavel.OpenSecrets(ctx, db, at.key); err != nil {
			return nil, nil, errors.Join(storeFailure(err, ""), db.Close())
		}
	}
	return db, key, nil
}

// openForWriting opens an existing store for a command that changes something in it.
func openForWriting(ctx context.Context, con *console, flag storeFlag) (*system, error) {
	return openToSign(ctx, con, flag, "")
}

// openToSign is openForWriting with the key that signs anchors, "" for none.
func openToSign(ctx context.Context, con *console, flag storeFlag, key string) (_ *system, err error) {
	var with equipment
	if key != "" {
		if with.anchors, err = readSigner(con.log, key, flag.Store); err != nil {
			return nil, err
		}
	}
	at, err := flag.place(con.log, false)
	if err != nil {
		return nil, err
	}
	return openSystem(ctx, con.log, at, with)
}

func storeFailure(err error, hint string) error {
	for _, known := range driver.Failures() {
		if errors.Is(err, known.Err) {
			code := term.ExitUsage
			if known.Away {
				code = term.ExitUnknown
			}
			return &term.ExitError{Code: code, Err: err, Hint: known.Hint}
		}
	}
	for _, known := range databaseFailures {
		if errors.Is(err, known.err) {
			return &term.ExitError{Code: term.ExitUsage, Err: err, Hint: known.hint}
		}
	}
	switch {
	case errors.Is(err, store.ErrOtherSchema):
		return term.UsageErrorf("use the gavel that wrote it, or another --store", "%w", err)
	case errors.Is(err, sqlite.ErrLostFile), errors.Is(err, sqlite.ErrUnreadLog), errors.Is(err, sqlite.ErrNotAStore), errors.Is(err, store.ErrDamaged):
		hint = "" // the error already has a hint
	}
	return term.UnknownErrorf(hint, "cannot %w", err)
}

// databaseFailures holds the next step for each error that makes a database unusable.
var databaseFailures = []struct {
	err  error
	hint string
}{
	{driver.ErrUnfinished, ""},
	{driver.ErrNoStore, "make one: gavel store init --store URL --store-key FILE"},
	{gavel.ErrNoSecrets, "make them: gavel store init --store URL --store-key FILE"},
	{gavel.ErrLostSecrets, "restore the table entries from a dump; docs/postgres.md says what is left without it"},
	{gavel.ErrNoStoreKey, "give --store-key FILE, or set GAVEL_STORE_KEY"},
	{gavel.ErrWrongStoreKey, "give the key that gavel store init used, or gavel keys rewrap --new-store-key since"},
}

// existingKey returns the key next to a store; nil if there is none. Unlike opening for writing, it creates no key.
func existingKey(path string) ([]byte, error) {
	if !isFile(gavel.KeyBeside(path)) {
		return nil, nil
	}
	return record.LoadOrCreateKey(gavel.KeyBeside(path))
}

// badEnd is module.EngineFailure, but returns exit code 1 for the given codes: the command was correct, the request could
// not be fulfilled.
func badEnd(err error, codes ...engine.Code) error {
	failed := module.EngineFailure(err)
	if f, ok := errors.AsType[*term.ExitError](failed); ok && slices.Contains(codes, engine.CodeOf(err)) {
		f.Code = term.ExitBad
	}
	return failed
}
