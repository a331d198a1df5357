package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Anchorer writes anchors to the store and, optionally, to a file outside it.
type Anchorer struct {
	Auditor *audit.Auditor
	File    string // "" for none
}

// Anchor writes an anchor if there are new events, and appends anchors missing from the file. It fails if the
// store is older than the file: a new anchor would make the older store look current.
func (a Anchorer) Anchor(ctx context.Context) (audit.AnchorResult, error) {
	if a.File == "" {
		result, err := a.Auditor.Anchor(ctx, gavel.Operator)
		return result, EngineFailure(err)
	}
	published, err := ReadAnchorLog(a.File)
	if err != nil {
		return audit.AnchorResult{}, err
	}
	last, note := published.last()
	if err := a.checkLast(ctx, last, note); err != nil {
		return audit.AnchorResult{}, err
	}
	result, err := a.Auditor.Anchor(ctx, gavel.Operator)
	if err != nil {
		return result, EngineFailure(err)
	}
	var missing []string
	for stored, err := range a.Auditor.Anchors(ctx, gavel.Operator, last) {
		if err != nil {
			return result, EngineFailure(err)
		}
		missing = append(missing, stored.Note)
	}
	return result, published.append(missing)
}

// checkLast checks that the store contains the last published anchor, unchanged.
func (a Anchorer) checkLast(ctx context.Context, last int64, note string) error {
	if last == 0 {
		return nil
	}
	for stored, err := range a.Auditor.Anchors(ctx, gavel.Operator, last-1) {
		if err != nil {
			return EngineFailure(err)
		}
		if stored.Number == last && stored.Note == note {
			return nil
		}
		break
	}
	return &term.ExitError{
		Code: term.ExitBad, Err: fmt.Errorf("anchor %d in %s was not written from this store: the store is older than the file, or a different one", last, a.File),
		Hint: "run gavel verify for details; if the store was restored on purpose, start a new anchor file and keep the old one",
	}
}

// AnchorFlags configure who signs anchors, how often, and to which file they are copied.
type AnchorFlags struct {
	AnchorKey   string        `name:"anchor-key" placeholder:"FILE" help:"Sign the position of all instances with this key while running. gavel anchor keygen makes one. The variable may hold the key itself."`
	AnchorEvery time.Duration `name:"anchor-every" default:"10m" placeholder:"TIME" help:"How often to write an anchor, at least 1s. An anchor is written only if there are new events, and also at the end. Default: 10m."`
	AnchorFile  string        `name:"anchor-file" placeholder:"FILE" help:"Also append every anchor to this file. Keep it away from the store: it reveals that an older store was restored."`
}

// signer returns the key that the flags name; nil if there is none.
func (f AnchorFlags) signer(log *slog.Logger, store string) (*record.Signer, error) {
	switch {
	case f.AnchorKey == "" && f.AnchorFile != "":
		return nil, term.UsageErrorf("make a key with gavel anchor keygen, and give it with --anchor-key", "--anchor-file needs a key: without one, no anchors are written")
	case f.AnchorKey == "":
		return nil, nil //nolint:nilnil // anchors are optional
	case f.Check() != nil:
		return nil, f.Check()
	case store == gavel.Memory:
		return nil, term.UsageErrorf("give --store a file", "a store in memory cannot be anchored: it ends with the server")
	}
	return readSigner(log, f.AnchorKey, store)
}

// Check reports wrong combinations of flags.
func (f AnchorFlags) Check() error {
	if f.AnchorEvery < time.Second {
		return term.UsageErrorf("", "--anchor-every must be at least 1s, not %s", f.AnchorEvery)
	}
	return nil
}

// lastAnchorLimit limits the final anchor so that the server shuts down in time. The next anchor covers events
// that this one misses.
const lastAnchorLimit = 500 * time.Millisecond

// Watch writes anchors periodically. stop ends that and writes a final anchor. Without a key, Watch does nothing.
func (f AnchorFlags) Watch(ctx context.Context, log *slog.Logger, sys *System) (stop func()) {
	if sys.Anchors == nil {
		return func() {}
	}
	a := Anchorer{Auditor: sys.Auditor, File: f.AnchorFile}
	end := RunEvery(ctx, f.AnchorEvery, f.AnchorEvery, func(ctx context.Context) { a.anchorAndLog(ctx, log) })
	return func() {
		end()
		last, done := context.WithTimeout(context.WithoutCancel(ctx), lastAnchorLimit)
		defer done()
		a.anchorAndLog(last, log)
	}
}

// anchorAndLog anchors and logs the result.
func (a Anchorer) anchorAndLog(ctx context.Context, log *slog.Logger) {
	result, err := a.Anchor(ctx)
	switch f, ok := errors.AsType[*term.ExitError](err); {
	case ok:
		log.Warn("cannot anchor; trying again", "error", f.Error(), "hint", f.Hint)
	case err != nil:
		log.Warn("cannot anchor; trying again", "error", err)
	case result.Written:
		log.Info("anchored", "number", result.Number, "instances", result.Instances, "events", result.Events)
	}
}

// AnchorKeyVariable may hold a private key, or name its file.
const AnchorKeyVariable = "GAVEL_ANCHOR_KEY"

// IsKeyText reports whether a value is a key itself, of anchors or of a store, not the name of its file.
func IsKeyText(value string) bool {
	return strings.HasPrefix(value, "PRIVATE+KEY+") || strings.HasPrefix(value, "-----BEGIN") || storeKeyText.MatchString(value)
}

func readSigner(log *slog.Logger, value, store string) (*record.Signer, error) {
	if IsKeyText(value) {
		if value != os.Getenv(AnchorKeyVariable) {
			return nil, term.UsageErrorf("put it into a file, or into "+AnchorKeyVariable, "do not pass the key as an argument: other users of this machine can read it")
		}
		key, err := record.NewSigner(value)
		if err != nil {
			return nil, term.UsageErrorf("", "%s: %w", AnchorKeyVariable, err)
		}
		return key, nil
	}
	if err := checkKeyFile(value, "make a key with gavel anchor keygen --key FILE"); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(value)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot read the key: %w", err)
	}
	key, err := record.NewSigner(string(text))
	if err != nil {
		return nil, term.UsageErrorf("", "%s: %w", value, err)
	}
	if sameFolder(value, store) {
		log.Warn("the anchor key is next to the store: anyone who can write both can change the record undetected",
			"key", value, "hint", "keep it elsewhere, readable only by the server")
	}
	return key, nil
}

// checkKeyFile rejects a key file that is missing, not a regular file, or accessible to other users.
func checkKeyFile(path, toMake string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return term.UsageErrorf(toMake, "cannot read the key: %w", err)
	case !info.Mode().IsRegular():
		return term.UsageErrorf("", "cannot read the key: %s is not a regular file", path)
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		return term.UsageErrorf("run chmod 600 on it; make a new key if others should not have seen it", "other users can read the key %s (mode %04o)", path, info.Mode().Perm())
	}
	return nil
}

func sameFolder(key, store string) bool {
	if gavel.IsDatabase(store) {
		return false
	}
	store = cmp.Or(store, filepath.Join(storeFolder, gavel.StoreFile))
	a, err := filepath.Abs(filepath.Dir(key))
	b, err2 := filepath.Abs(filepath.Dir(store))
	return err == nil && err2 == nil && a == b
}

// AnchorLog is an anchor file: notes separated by empty lines.
type AnchorLog struct {
	path  string
	Notes []string
	// Torn counts notes that are incomplete because a write was interrupted.
	Torn int
	// open reports that the file does not end with a complete note.
	open bool
}

// ReadAnchorLog reads an anchor file. A missing file is empty.
func ReadAnchorLog(path string) (AnchorLog, error) {
	p := AnchorLog{path: path}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, term.UnknownErrorf("", "cannot read the anchor file: %w", err)
	}
	p.open = len(raw) > 0 && !bytes.HasSuffix(raw, []byte("\n\n"))
	text := ""
	for paragraph := range strings.SplitSeq(string(raw), "\n\n") {
		paragraph = strings.Trim(paragraph, "\n")
		switch {
		case paragraph == "":
			continue
		case !strings.HasPrefix(paragraph, "— "):
			if text != "" {
				p.Torn++
			}
			text = paragraph
			continue
		}
		note := text + "\n\n" + paragraph + "\n"
		if _, err := record.ReadNoteText(note); err != nil || text == "" {
			p.Torn++
		} else {
			p.Notes = append(p.Notes, note)
		}
		text = ""
	}
	if text != "" {
		p.Torn++
	}
	return p, nil
}

// last returns the newest anchor in the file; number is 0 if there is none.
func (p AnchorLog) last() (number int64, note string) {
	for _, n := range p.Notes {
		text, err := record.ReadNoteText(n)
		if err != nil {
			continue
		}
		if a, err := record.ParseAnchor(text); err == nil && a.Number > number {
			number, note = a.Number, n
		}
	}
	return number, note
}

// append adds notes in a single write. Several processes may append; duplicate notes are harmless.
func (p AnchorLog) append(notes []string) error {
	if len(notes) == 0 {
		return nil
	}
	text := strings.Join(notes, "\n") + "\n"
	if p.open {
		text = "\n\n" + text
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return term.UnknownErrorf("", "the anchor is in the store, but could not be published: %w", fmt.Errorf("%s: %w", p.path, err))
	}
	return nil
}
