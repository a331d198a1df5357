package cli

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators"
)

// closeLimit limits the shutdown after the last answer, so that it takes less than a second if requests end when they
// are cancelled. Acknowledged writes are already durable: a store that closes slowly loses nothing.
const closeLimit = 250 * time.Millisecond

// CloseInTime calls a close function and stops waiting for it after closeLimit.
func CloseInTime(log *slog.Logger, closing func() error) error {
	done := make(chan error, 1)
	go func() { done <- closing() }()
	select {
	case err := <-done:
		if err != nil {
			return term.UnknownErrorf("", "cannot close the store: %w", err)
		}
	case <-time.After(closeLimit):
		log.Debug("ended without waiting for the store to close; acknowledged writes are on disk", "waited", closeLimit)
	}
	return nil
}

// RunEvery runs f in the background, after first and then at each interval, until ctx ends or the returned function
// is called, which waits for it.
func RunEvery(ctx context.Context, first, interval time.Duration, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for wait := first; ; wait = interval {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
				f(ctx)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// OperatorOwner identifies the operator's code in the sandbox.
var OperatorOwner = validators.Owner{ID: gavel.Operator.ID, Trusted: true}

// NewSandbox returns a sandbox. Its first process starts with the first script.
func NewSandbox(log *slog.Logger) (*gavel.Sandbox, error) {
	box, err := gavel.NewSandbox(log)
	return box, openFailure(err)
}

// System is an open store with its engine, and the equipment that the flags configured.
type System struct {
	*gavel.System
	SystemOptions
	Location StoreLocation
	Key      []byte // the secret of a store that was opened for reading; nil if it is missing
}

// SystemOptions is what a command configures in addition to the store. The zero value judges with fields, schemas and
// scripts alone.
type SystemOptions struct {
	File    string         // the configuration file, "" for none
	Serves  bool           // the process serves clients, instead of running one command
	Model   *Model         // nil if none is configured
	Sources module.Fetcher // nil without --config
	Anchors *record.Signer // nil without anchors
	// Reviews lets escalated moves wait for a person; ClientReviews lets the agent's own client ask that person.
	Reviews, ClientReviews bool
	Meter                  *Meter // nil without metrics
	Quotas                 engine.Quotas
}

// Close closes the model and the sources.
func (e SystemOptions) Close() error {
	if e.Sources != nil {
		e.Sources.Close()
	}
	return e.Model.Close()
}

// Close first closes the extensions, then the model and the sources, and last the workers and the store.
func (s *System) Close() error {
	s.Extensions().Close()
	return errors.Join(s.SystemOptions.Close(), s.System.Close())
}

// configure adds the equipment to the configuration of a system.
func (e SystemOptions) configure(cfg gavel.Config) gavel.Config {
	cfg.NoReviews, cfg.Version = !e.Reviews, ReadBuild().Version
	cfg.File, cfg.OnDemand, cfg.Watcher = e.File, !e.Serves, ThisProgram()
	if e.Sources != nil {
		cfg.Fetcher = e.Sources
	}
	if e.Model != nil {
		cfg.Model = e.Model.Layer
	}
	if e.Anchors != nil {
		cfg.Signer = e.Anchors
	}
	cfg.Configure = func(c *engine.Config) {
		c.ClientReviews, c.Quotas = e.ClientReviews, e.Quotas
		told := observers{telemetry.DecisionLog{Logger: cfg.Logger}}
		if e.Meter != nil {
			told = append(told, e.Meter.Metrics)
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

// ModelUser is implemented by the extension that shows how the model works.
type ModelUser interface {
	// UseModel is called once a system is open; the model is nil if none is configured.
	UseModel(*Model)
}

// SystemFlags configure the store, the model and the anchors of a server.
type SystemFlags struct {
	StoreFlag
	ModelFlags
	AnchorFlags
}

// OpenEquipped opens the store, or creates it, with the model, the sources of evidence and the anchors that the flags
// configure.
func (f *SystemFlags) OpenEquipped(ctx context.Context, con *Console, with SystemOptions) (_ *System, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, with.Close())
		}
	}()
	with.File = f.ConfigFlag.Config
	at, err := f.Locate(con.Log, true)
	if err != nil {
		return nil, err
	}
	if with.Model, err = f.ModelFlags.Open(con.Log); err != nil {
		return nil, err
	}
	if with.Sources, err = f.ConfigFlag.Open(con.Log); err != nil {
		return nil, err
	}
	if with.Anchors, err = f.signer(con.Log, at.Path); err != nil {
		return nil, err
	}
	with.Meter.count(with)
	sys, err := OpenSystem(ctx, con.Log, at, with)
	if err != nil {
		return nil, err
	}
	if user, ok := module.Find[ModelUser](sys.Extensions()); ok {
		user.UseModel(with.Model)
	}
	return sys, nil
}

// OpenSystem opens the store at a location and creates the engine with its equipment. Unless it returns an error, the
// system owns the equipment.
func OpenSystem(ctx context.Context, log *slog.Logger, at StoreLocation, with SystemOptions) (*System, error) {
	cfg := gavel.Config{Store: at.Path, StoreKey: at.Key, Logger: log}
	if at.IsDatabase() && with.Sources != nil {
		cfg.Folder = at.MakeFolder(log)
	}
	open, err := gavel.Open(ctx, with.configure(cfg))
	if err != nil {
		return nil, openFailure(err)
	}
	sys := &System{System: open, SystemOptions: with, Location: at}
	if with.Meter != nil {
		with.Meter.sys = sys
	}
	return sys, nil
}

// openFailure adds the next step to the error of a part that could not be opened.
func openFailure(err error) error {
	failed, ok := errors.AsType[*gavel.OpenError](err)
	if !ok {
		return EngineFailure(err)
	}
	switch failed.Part {
	case gavel.PartFile:
		return module.ConfigError(failed.Err)
	case gavel.PartStore:
		return StoreFailure(failed.Err, "check that it is a gavel store and that you may write to it")
	case gavel.PartSandbox:
		return term.UnknownErrorf("", "%w", err)
	default:
		return term.UsageErrorf("", "%w", err)
	}
}

// OpenForReading opens an existing store for a command that only reads: it writes nothing, and creates no key. It
// logs a warning for a store without any data next to a key, because it may have replaced a lost one.
func OpenForReading(ctx context.Context, con *Console, flag StoreFlag) (*System, error) {
	at, err := flag.Locate(con.Log, false)
	if err != nil {
		return nil, err
	}
	return openLocationForReading(ctx, con, at)
}

// openLocationForReading is OpenForReading for a location. It also warns of definitions that gavel would not use.
func openLocationForReading(ctx context.Context, con *Console, at StoreLocation) (*System, error) {
	sys, err := OpenLocationToCheck(ctx, con, at)
	if err == nil {
		sys.warnOfSeals(ctx, con.Log)
	}
	return sys, err
}

// warnOfSeals warns that the displayed data may come from definitions that were changed.
func (s *System) warnOfSeals(ctx context.Context, log *slog.Logger) {
	head, _, err := s.Store.Rules(ctx, math.MaxInt64)
	sealed := err == nil && head.Position > 0
	switch missing := s.Location.MissingKey(); {
	case s.Location.IsDatabase() && s.Location.Key == nil:
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
	s.LogBadSeals(ctx, slog.LevelWarn, "a definition or judge configuration of this store does not match its seal: what you see may have been changed")
}

// OpenToCheck is OpenForReading for a command that checks the seals itself.
func OpenToCheck(ctx context.Context, con *Console, flag StoreFlag) (*System, error) {
	at, err := flag.Locate(con.Log, false)
	if err != nil {
		return nil, err
	}
	return OpenLocationToCheck(ctx, con, at)
}

// OpenLocationToCheck opens a location for a command that checks seals itself.
func OpenLocationToCheck(ctx context.Context, con *Console, at StoreLocation) (*System, error) {
	db, key, err := OpenArchive(ctx, at)
	if err != nil {
		return nil, err
	}
	empty, err := db.IsEmpty(ctx)
	if err != nil && !errors.Is(err, store.ErrDamaged) { // the command itself reports damage
		return nil, errors.Join(term.UnknownErrorf("", "cannot %w", err), db.Close())
	}
	if empty && !at.IsDatabase() && IsFile(gavel.KeyPath(at.Path)) {
		con.Log.Warn("the store is empty, but it has a key: either it is new, or its data was lost",
			"store", at.Path, "key", gavel.KeyPath(at.Path))
		con.Unsure = true
	}
	open, err := gavel.New(db, key, gavel.Config{
		Logger: con.Log, NoReviews: true, Configure: func(c *engine.Config) { c.ShowUnsealed = true },
	})
	if err != nil {
		return nil, openFailure(err)
	}
	return &System{System: open, Location: at, Key: key}, nil
}

// Archive is a store that is open for reading.
type Archive interface {
	store.Store
	IsEmpty(ctx context.Context) (bool, error)
}

// OpenArchive opens a store so that nothing can be written, and returns its key; nil if the key is missing.
func OpenArchive(ctx context.Context, at StoreLocation) (_ Archive, key []byte, err error) {
	if !at.IsDatabase() {
		if key, err = ExistingKey(at.Path); err != nil {
			return nil, nil, term.UsageErrorf("", "cannot use the key file: %w", err)
		}
		db, err := sqlite.OpenToRead(ctx, at.Path)
		if err != nil {
			return nil, nil, StoreFailure(err, "check that it is a gavel store and that you may read it")
		}
		return db, key, nil
	}
	db, err := driver.Find(at.Path).OpenToRead(ctx, at.Path)
	if err != nil {
		return nil, nil, StoreFailure(err, "")
	}
	if at.Key != nil {
		if key, err = gavel.OpenSecrets(ctx, db, at.Key); err != nil {
			return nil, nil, errors.Join(StoreFailure(err, ""), db.Close())
		}
	}
	return db, key, nil
}

// OpenForWriting opens an existing store for a command that changes something in it.
func OpenForWriting(ctx context.Context, con *Console, flag StoreFlag) (*System, error) {
	return OpenToSign(ctx, con, flag, "")
}

// OpenToSign is OpenForWriting with the key that signs anchors, "" for none.
func OpenToSign(ctx context.Context, con *Console, flag StoreFlag, key string) (_ *System, err error) {
	var with SystemOptions
	if key != "" {
		if with.Anchors, err = readSigner(con.Log, key, flag.Store); err != nil {
			return nil, err
		}
	}
	at, err := flag.Locate(con.Log, false)
	if err != nil {
		return nil, err
	}
	return OpenSystem(ctx, con.Log, at, with)
}

// StoreFailure maps an error of opening a store to an exit code and a hint.
func StoreFailure(err error, hint string) error {
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
		return term.UsageErrorf("use the gavel version that wrote it, or another --store", "%w", err)
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
	{driver.ErrNoStore, "create one: gavel store init --store URL --store-key FILE"},
	{gavel.ErrNoSecrets, "create them: gavel store init --store URL --store-key FILE"},
	{gavel.ErrLostSecrets, "restore the table entries from a dump; docs/postgres.md explains what you lose without it"},
	{gavel.ErrNoStoreKey, "give --store-key FILE, or set GAVEL_STORE_KEY"},
	{gavel.ErrWrongStoreKey, "give the key from gavel store init, or from a later gavel keys rewrap --new-store-key"},
}

// ExistingKey returns the key next to a store; nil if there is none. Unlike opening for writing, it creates no key.
func ExistingKey(path string) ([]byte, error) {
	if !IsFile(gavel.KeyPath(path)) {
		return nil, nil
	}
	return record.LoadOrCreateKey(gavel.KeyPath(path))
}

// OperationFailure is like EngineFailure, but returns exit code 1 for the given codes. They mean that the
// command was correct, but the request could not be fulfilled.
func OperationFailure(err error, codes ...engine.Code) error {
	failed := EngineFailure(err)
	if f, ok := errors.AsType[*term.ExitError](failed); ok && slices.Contains(codes, engine.CodeOf(err)) {
		f.Code = term.ExitBad
	}
	return failed
}

// Verify verifies a store that was opened for checking, and shows the progress.
func (s *System) Verify(ctx context.Context, con *Console, req audit.VerifyRequest) (r audit.VerifyReport, err error) {
	progress := con.Err.NewProgress()
	defer progress.Finish("")
	req.Progress = func(instances, events int64) { progress.Update("%d instances, %d events", instances, events) }
	if r, err = s.Auditor.Verify(ctx, gavel.Operator, req); err != nil {
		return r, EngineFailure(err)
	}
	return r, nil
}
