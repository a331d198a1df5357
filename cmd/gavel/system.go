package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/memstore"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/sqlitestore"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/notify"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// operatorOwner is how the sandbox knows what the operator wrote.
var operatorOwner = validators.Owner{ID: localCLI.ID, Trusted: true}

type sandbox struct {
	pool     *script.Pool
	compiler *validators.Compiler
}

// newSandbox starts no process; the first script does.
func newSandbox(log *slog.Logger) (*sandbox, error) {
	pool, err := script.NewPool(script.Config{Logger: log})
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot make the script sandbox: %w", err)
	}
	return &sandbox{pool: pool, compiler: validators.NewCompiler(pool, validators.Options{})}, nil
}

// Close ends and reaps every worker.
func (s *sandbox) Close() error { return s.pool.Close() }

// system is everything below the faces.
type system struct {
	*sandbox
	equipment
	store   store.Store
	engine  *engine.Engine
	auditor *audit.Auditor
	path    string // of the store; memoryStore for none
}

// equipment is what a command configures beside the store. The zero value judges
// with fields, schemas and scripts alone.
type equipment struct {
	model   *model            // nil when none is configured
	sources *evidence.Manager // nil without --config
	anchors *record.Signer    // nil when nobody anchors
	// reviews lets escalated moves wait for a person, clientReviews lets the agent's own
	// client ask that person.
	reviews, clientReviews bool
	metered                *metered         // nil where nobody looks at figures
	notifier               *notify.Notifier // nil where nobody is told of reviews
	quotas                 engine.Quotas
}

// Close ends what is told, and asked of models and sources.
func (e equipment) Close() error {
	e.notifier.Close()
	e.sources.Close()
	return e.model.Close()
}

// Close ends the workers and what is asked elsewhere, and then the store, so that
// nothing writes to a closed one.
func (s *system) Close() error {
	return errors.Join(s.sandbox.Close(), s.equipment.Close(), s.store.Close())
}

type systemFlags struct {
	storeFlag
	modelFlags
	anchorFlags
}

// openEquipped opens the store, or makes it, with the model, the sources of evidence and the
// anchors that the flags configure.
func (f *systemFlags) openEquipped(ctx context.Context, con *console, with equipment) (_ *system, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, with.Close())
		}
	}()
	path, err := f.storePath(con.log, true)
	if err != nil {
		return nil, err
	}
	if with.model, err = f.modelFlags.open(con.log); err != nil {
		return nil, err
	}
	if with.sources, err = f.configFlag.open(con.log); err != nil {
		return nil, err
	}
	if with.anchors, err = f.signer(con.log, path); err != nil {
		return nil, err
	}
	with.metered.count(with)
	return openSystem(ctx, con.log, path, with)
}

// openSystem opens the store at a path and wires the engine over it, with what it
// judges with. That is the system's from then on, unless there is an error.
func openSystem(ctx context.Context, log *slog.Logger, path string, with equipment) (*system, error) {
	hadKey := path != memoryStore && isFile(keyBeside(path))
	key, err := digestKey(path)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot use the key file: %w", err)
	}
	if info, err := os.Stat(path); hadKey && filepath.Base(path) == storeFile && (err != nil || info.Size() == 0) {
		log.Warn("the key of a store is here, and the store is missing or empty: a new one is made; if there was one, restore a backup",
			"store", path, "key", keyBeside(path))
	}
	db, err := openStore(ctx, log, path)
	if err != nil {
		return nil, err
	}
	if head, _, err := db.Rules(ctx, math.MaxInt64); err == nil && head.Place > 0 && path != memoryStore && !hadKey {
		log.Warn("the key of this store was not next to it, and a new one was made: its definitions are not used until the old key is back, or gavel seal --accept has sealed them again",
			"store", path, "key", keyBeside(path))
	}
	sys, err := newSystem(log, db, path, key, with, func(c *engine.Config) { c.RuleKey = key })
	if err != nil || path == memoryStore {
		return sys, err
	}
	if err := sys.sealOnce(ctx, log, keyBeside(path)); err != nil {
		return nil, errors.Join(err, sys.Close())
	}
	return sys, nil
}

// newSystem wires the engine over a store. The store is the system's from then on; where
// there is an error it is closed.
func newSystem(log *slog.Logger, db store.Store, path string, key []byte, with equipment, configure func(*engine.Config)) (_ *system, err error) {
	box, err := newSandbox(log)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	sys := &system{sandbox: box, store: db, path: path}
	defer func() {
		if err != nil {
			err = errors.Join(err, sys.Close())
		}
	}()
	judging := judge.Config{Compiler: box.compiler, Memory: engine.NewMemory(db)}
	if with.sources != nil {
		judging.Fetcher = with.sources
	}
	if with.model != nil {
		if judging.Model, err = with.model.layer(engine.NewMemory(db)); err != nil {
			return nil, err
		}
	}
	pipeline, err := judge.New(judging)
	if err != nil {
		return nil, err
	}
	config := engine.Config{
		Store: db, Judge: pipeline, Compiler: box.compiler, Reader: box.pool, Digester: record.NewDigester(key),
		Models: with.model.names(), Sources: with.sources.Names(), ReadOnlySources: with.sources.ReadOnlyNames(), ReviewPath: with.reviews, ClientReviews: with.clientReviews,
	}
	config.Quotas = with.quotas
	configure(&config)
	var told observers
	if with.metered != nil {
		told, with.metered.sys = append(told, with.metered.metrics), sys
	}
	if with.notifier != nil {
		told = append(told, with.notifier)
	}
	if len(told) > 0 {
		config.Observer = told
	}
	if sys.engine, err = engine.New(config); err != nil {
		return nil, err
	}
	auditing := audit.Config{Engine: sys.engine, Store: db}
	if with.anchors != nil {
		auditing.Signer = with.anchors
	}
	if sys.auditor, err = audit.New(auditing); err != nil {
		return nil, err
	}
	sys.equipment = with
	return sys, nil
}

// hintSeals is what to do about rules that are not used.
const hintSeals = "if gavel.key is new or another store's, put the right one back; else gavel verify names what was changed: restore a backup, or look at what gavel seal shows"

// sealOnce seals the rules of a store that an older version wrote: where the key says that
// its stores have seals already, what has none is not sealed, and not used.
func (s *system) sealOnce(ctx context.Context, log *slog.Logger, key string) error {
	marked, err := record.KeySealsRules(key)
	if err != nil {
		return term.UsageErrorf("", "cannot use the key file: %w", err)
	}
	if !marked {
		r, err := s.engine.SealRules(ctx, localCLI, engine.SealRequest{})
		if err != nil {
			return engineFailure(err)
		}
		if r.Sealed > 0 {
			log.Info("sealed the definitions and judge configurations of an older version", "number", r.Sealed)
		}
		if err := record.MarkKeySealsRules(key); err != nil {
			log.Warn("cannot note in the key file that definitions are sealed; a store without seals would be sealed again", "error", err)
		}
	}
	if err := s.engine.CheckRules(ctx); engine.CodeOf(err) == engine.CodeUntrustedRules {
		log.Error("a definition or judge configuration is not as gavel sealed it, so none is used", "cause", errors.Unwrap(err),
			"hint", hintSeals)
	}
	return nil
}

// openForReading opens an existing store for a command that only looks: it writes nothing,
// and makes no key. A store in which nothing was ever written, next to a key, is reported:
// it may have taken the place of one that was lost.
func openForReading(ctx context.Context, con *console, flag storeFlag) (*system, error) {
	path, err := flag.storePath(con.log, false)
	if err != nil {
		return nil, err
	}
	return openPathForReading(ctx, con, path)
}

// openPathForReading also warns of definitions that gavel would not use.
func openPathForReading(ctx context.Context, con *console, path string) (*system, error) {
	sys, err := openPathToCheck(ctx, con, path)
	if err == nil {
		sys.warnOfSeals(ctx, con.log)
	}
	return sys, err
}

// warnOfSeals says that what is shown may come from definitions that were changed.
func (s *system) warnOfSeals(ctx context.Context, log *slog.Logger) {
	key := keyBeside(s.path)
	head, _, err := s.store.Rules(ctx, math.MaxInt64)
	sealed := err == nil && head.Place > 0
	if !isFile(key) {
		if sealed {
			log.Warn("the key of this store is not next to it: its definitions are shown without checking their seals", "missing", key)
		}
		return
	}
	if marked, err := record.KeySealsRules(key); !sealed && (err != nil || !marked) {
		return // an older version wrote the store
	}
	if err := s.engine.CheckRules(ctx); engine.CodeOf(err) == engine.CodeUntrustedRules {
		log.Warn("a definition or judge configuration of this store is not as gavel sealed it: what is shown may have been changed",
			"cause", errors.Unwrap(err), "hint", hintSeals)
	}
}

// openToCheck is openForReading for a command that checks the seals itself.
func openToCheck(ctx context.Context, con *console, flag storeFlag) (*system, error) {
	path, err := flag.storePath(con.log, false)
	if err != nil {
		return nil, err
	}
	return openPathToCheck(ctx, con, path)
}

func openPathToCheck(ctx context.Context, con *console, path string) (*system, error) {
	key, err := existingKey(path)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot use the key file: %w", err)
	}
	db, err := openArchive(ctx, path)
	if err != nil {
		return nil, err
	}
	empty, err := db.IsEmpty(ctx)
	if err != nil && !errors.Is(err, store.ErrDamaged) { // what is damaged is for the command to find
		return nil, errors.Join(term.UnknownErrorf("", "cannot %w", err), db.Close())
	}
	if empty && isFile(keyBeside(path)) {
		con.log.Warn("nothing was ever written to this store, but its key is there: a store that was lost looks like this, and so does a new one",
			"store", path, "key", keyBeside(path))
		con.unsure = true
	}
	return newSystem(con.log, db, path, key, equipment{}, func(c *engine.Config) {
		c.ShowUnsealed = true
		if isFile(keyBeside(path)) {
			c.RuleKey = key
		}
	})
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
	path, err := flag.storePath(con.log, false)
	if err != nil {
		return nil, err
	}
	return openSystem(ctx, con.log, path, with)
}

func openStore(ctx context.Context, log *slog.Logger, path string) (store.Store, error) {
	if path == memoryStore {
		return memstore.New(), nil
	}
	db, err := sqlitestore.Open(ctx, sqlitestore.Config{Path: path, Logger: log})
	if err != nil {
		return nil, storeFailure(err, "is it a store of gavel, and may you write it?")
	}
	return db, nil
}

func storeFailure(err error, hint string) error {
	switch {
	case errors.Is(err, store.ErrNewerSchema):
		return term.UsageErrorf("use a newer gavel, or another --store", "%w", err)
	case errors.Is(err, sqlitestore.ErrLostFile), errors.Is(err, sqlitestore.ErrUnreadLog), errors.Is(err, sqlitestore.ErrNotAStore), errors.Is(err, store.ErrDamaged):
		hint = "" // the error says what to do
	}
	return term.UnknownErrorf(hint, "cannot %w", err)
}

func keyBeside(path string) string { return filepath.Join(filepath.Dir(path), keyFile) }

// existingKey is the key beside a store, or a fresh one where there is none: nothing is
// written for a command that only looks.
func existingKey(path string) ([]byte, error) {
	if isFile(keyBeside(path)) {
		return record.LoadOrCreateKey(keyBeside(path))
	}
	return digestKey(memoryStore)
}

// digestKey is the key of keyed digests: beside the store, or a fresh one for a
// store that ends with the process.
func digestKey(path string) ([]byte, error) {
	if path != memoryStore {
		return record.LoadOrCreateKey(keyBeside(path))
	}
	key := make([]byte, 32)
	_, err := rand.Read(key)
	return key, err
}

// badEnd is engineFailure for codes that say nothing against the command: what was asked
// for could not be.
func badEnd(err error, codes ...engine.Code) error {
	failed := engineFailure(err)
	if f, ok := errors.AsType[*term.ExitError](failed); ok && slices.Contains(codes, engine.CodeOf(err)) {
		f.Code = term.ExitBad
	}
	return failed
}

// engineFailure gives an engine's error the exit code that it means on a command line.
func engineFailure(err error) error {
	if err == nil {
		return nil
	}
	if _, told := errors.AsType[*term.ExitError](err); told {
		return err
	}
	known, ok := errors.AsType[*engine.Error](err)
	if !ok {
		return term.UnknownErrorf("", "%w", err)
	}
	f := &term.ExitError{Code: term.ExitUsage, Err: errors.New(known.Message), Hint: known.Hint, Reason: string(known.Code)}
	switch known.Code {
	case engine.CodeUnavailable, engine.CodeUntrustedRules, engine.CodeBusy, engine.CodeInternal, engine.CodeCancelled:
		f.Code = term.ExitUnknown
		if known.Err != nil {
			f.Err = &engine.Error{Message: known.Message, Hint: "(" + known.Err.Error() + ")", Err: known.Err}
		}
		if errors.Is(err, store.ErrDamaged) {
			f.Hint = "" // the error says what to do
		}
	case engine.CodeInvalidDefinition:
		f.Code = term.ExitBad
	default:
	}
	return f
}
