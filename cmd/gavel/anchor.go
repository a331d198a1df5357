package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
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
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

type anchorCmd struct {
	Write  anchorWriteCmd  `cmd:"" default:"withargs" help:"Sign the present position of all instances."`
	Keygen anchorKeygenCmd `cmd:"" help:"Make a key pair that signs and verifies anchors."`
}

type anchorWriteCmd struct {
	Key  string `name:"key" env:"GAVEL_ANCHOR_KEY" placeholder:"FILE" help:"The private key, from gavel anchor keygen. The variable may hold the key itself."`
	File string `name:"anchor-file" placeholder:"FILE" help:"Append the anchor to this file too. Keep it away from the store: it shows when an older store was put back."`
	JSON bool   `name:"json" help:"Print JSON."`
	storeFlag
}

func (c *anchorWriteCmd) Run(ctx context.Context, con *console) error {
	if c.Key == "" {
		return term.UsageErrorf("make one with gavel anchor keygen --key FILE", "to sign an anchor, give a key with --key or GAVEL_ANCHOR_KEY")
	}
	sys, err := openToSign(ctx, con, c.storeFlag, c.Key)
	if err != nil {
		return err
	}
	defer sys.Close()
	result, err := anchoring{auditor: sys.Auditor, file: c.File}.anchor(ctx)
	if err != nil {
		return err
	}
	return con.print(c.JSON, result, func() {
		switch {
		case result.Written:
			con.out.Text(result.Note)
		case result.Number == 0:
			con.err.Printf("nothing to anchor\n")
		default:
			con.err.Printf("nothing has happened since anchor %d of %s\n", result.Number, formatTime(result.At))
		}
	})
}

type anchorKeygenCmd struct {
	Key  string `name:"key" env:"GAVEL_ANCHOR_KEY" required:"" placeholder:"FILE" help:"Where to write the private key; the public one goes to FILE.pub."`
	Name string `name:"name" env:"GAVEL_ANCHOR_NAME" placeholder:"NAME" help:"The name in the signatures, without spaces. Default: gavel- and a random number."`
}

func (c *anchorKeygenCmd) Run(con *console) error {
	if isKeyText(c.Key) {
		return term.UsageErrorf("give a --key FILE to write to", "%s holds a key already", anchorKeyVariable)
	}
	name := c.Name
	if name == "" {
		number := make([]byte, 4)
		_, _ = rand.Read(number) // never fails
		name = "gavel-" + hex.EncodeToString(number)
	}
	key, err := record.GenerateSigner(name)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	public := key.Verifier().String()
	if err := writeNew(c.Key, key.Export(), 0o600); err != nil {
		return term.UsageErrorf("give another --key, or remove the file if nothing was signed with it", "cannot write the key: %w", err)
	}
	if err := writeNew(c.Key+".pub", public, 0o644); err != nil {
		return term.UsageErrorf("remove both files and try again", "the private key was written, the public one not: %w", err)
	}
	con.out.Printf("%s\n", public)
	return nil
}

// anchoring writes anchors to the store and, optionally, to a file outside it.
type anchoring struct {
	auditor *audit.Auditor
	file    string // "" for none
}

// anchor writes an anchor if there are new events, and appends anchors missing from the file. It fails if the
// store is older than the file: a new anchor would make the older store look current.
func (a anchoring) anchor(ctx context.Context) (audit.AnchorResult, error) {
	if a.file == "" {
		result, err := a.auditor.Anchor(ctx, gavel.Operator)
		return result, module.EngineFailure(err)
	}
	published, err := readPublished(a.file)
	if err != nil {
		return audit.AnchorResult{}, err
	}
	last, note := published.last()
	if err := a.follows(ctx, last, note); err != nil {
		return audit.AnchorResult{}, err
	}
	result, err := a.auditor.Anchor(ctx, gavel.Operator)
	if err != nil {
		return result, module.EngineFailure(err)
	}
	var missing []string
	for stored, err := range a.auditor.Anchors(ctx, gavel.Operator, last) {
		if err != nil {
			return result, module.EngineFailure(err)
		}
		missing = append(missing, stored.Note)
	}
	return result, published.append(missing)
}

// follows checks that the store contains the last published anchor, unchanged.
func (a anchoring) follows(ctx context.Context, last int64, note string) error {
	if last == 0 {
		return nil
	}
	for stored, err := range a.auditor.Anchors(ctx, gavel.Operator, last-1) {
		if err != nil {
			return module.EngineFailure(err)
		}
		if stored.Number == last && stored.Note == note {
			return nil
		}
		break
	}
	return &term.ExitError{
		Code: term.ExitBad, Err: fmt.Errorf("the store is not the one that anchor %d in %s was written from, but an older one, or another", last, a.file),
		Hint: "gavel verify says more; if it was restored on purpose, begin a new anchor file and keep the old one",
	}
}

type anchorFlags struct {
	AnchorKey   string        `name:"anchor-key" placeholder:"FILE" help:"Sign the position of all instances with this key, from gavel anchor keygen, while the server runs. The variable may hold the key itself."`
	AnchorEvery time.Duration `name:"anchor-every" default:"10m" placeholder:"TIME" help:"How often, at least a second; at the end too, and only when something has happened. Default: 10m."`
	AnchorFile  string        `name:"anchor-file" placeholder:"FILE" help:"Append every anchor to this file too. Keep it away from the store: it shows when an older store was put back."`
}

// signer returns the key that the flags name; nil if there is none.
func (f anchorFlags) signer(log *slog.Logger, store string) (*record.Signer, error) {
	switch {
	case f.AnchorKey == "" && f.AnchorFile != "":
		return nil, term.UsageErrorf("make a key with gavel anchor keygen, and give it with --anchor-key", "--anchor-file needs anchors to keep, and without a key there are none")
	case f.AnchorKey == "":
		return nil, nil //nolint:nilnil // anchors are optional
	case f.check() != nil:
		return nil, f.check()
	case store == gavel.Memory:
		return nil, term.UsageErrorf("give --store a file", "a store in memory is gone before anybody could verify it; there is nothing to anchor")
	}
	return readSigner(log, f.AnchorKey, store)
}

func (f anchorFlags) check() error {
	if f.AnchorEvery < time.Second {
		return term.UsageErrorf("", "--anchor-every is at least 1s, not %s", f.AnchorEvery)
	}
	return nil
}

// lastAnchorLimit limits the final anchor so that the server shuts down in time. The next anchor covers events
// that this one misses.
const lastAnchorLimit = 500 * time.Millisecond

// watch anchors periodically. The returned function stops it and writes a final anchor. Without a key, watch does
// nothing.
func (f anchorFlags) watch(ctx context.Context, log *slog.Logger, sys *system) (stop func()) {
	if sys.anchors == nil {
		return func() {}
	}
	a := anchoring{auditor: sys.Auditor, file: f.AnchorFile}
	end := runEvery(ctx, f.AnchorEvery, f.AnchorEvery, func(ctx context.Context) { a.tell(ctx, log) })
	return func() {
		end()
		last, done := context.WithTimeout(context.WithoutCancel(ctx), lastAnchorLimit)
		defer done()
		a.tell(last, log)
	}
}

// tell anchors and logs the result.
func (a anchoring) tell(ctx context.Context, log *slog.Logger) {
	result, err := a.anchor(ctx)
	switch f, ok := errors.AsType[*term.ExitError](err); {
	case ok:
		log.Warn("cannot anchor; trying again", "error", f.Error(), "hint", f.Hint)
	case err != nil:
		log.Warn("cannot anchor; trying again", "error", err)
	case result.Written:
		log.Info("anchored", "number", result.Number, "instances", result.Instances, "events", result.Events)
	}
}

// anchorKeyVariable may hold a private key, or name its file.
const anchorKeyVariable = "GAVEL_ANCHOR_KEY"

func isKeyText(value string) bool {
	return strings.HasPrefix(value, "PRIVATE+KEY+") || strings.HasPrefix(value, "-----BEGIN") || storeKeyText.MatchString(value)
}

func readSigner(log *slog.Logger, value, store string) (*record.Signer, error) {
	if isKeyText(value) {
		if value != os.Getenv(anchorKeyVariable) {
			return nil, term.UsageErrorf("put it into a file, or into "+anchorKeyVariable, "a key is no argument: others on this machine can read it there")
		}
		key, err := record.NewSigner(value)
		if err != nil {
			return nil, term.UsageErrorf("", "%s: %w", anchorKeyVariable, err)
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
		log.Warn("the key that signs anchors is next to the store: anyone who can change both can change everything unseen",
			"key", value, "hint", "keep it in another place, readable by the server alone")
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
		return term.UsageErrorf("run chmod 600 on it, and make a new one if they should not have seen it", "others can read the key %s (mode %04o)", path, info.Mode().Perm())
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

// readVerifiers reads public keys: one per line, as keygen writes them, or one per file in PEM.
func readVerifiers(files []string) ([]*record.Verifier, error) {
	var keys []*record.Verifier
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, term.UsageErrorf("give the .pub file that gavel anchor keygen wrote", "cannot read the public key: %w", err)
		}
		lines := strings.Split(string(text), "\n")
		if strings.HasPrefix(string(text), "-----BEGIN") {
			lines = []string{string(text)}
		}
		before := len(keys)
		for _, line := range lines {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			key, err := record.NewVerifier(line)
			if err != nil {
				return nil, term.UsageErrorf("give the .pub file that gavel anchor keygen wrote", "%s: %w", file, err)
			}
			keys = append(keys, key)
		}
		if len(keys) == before {
			return nil, term.UsageErrorf("give the .pub file that gavel anchor keygen wrote", "%s holds no key", file)
		}
	}
	return keys, nil
}

// writeNew writes a line to a file that must not exist yet.
func writeNew(path, line string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// published is an anchor file: notes separated by empty lines.
type published struct {
	path  string
	notes []string
	// torn counts notes that are incomplete because a write was interrupted.
	torn int
	// open reports that the file does not end with a complete note.
	open bool
}

// readPublished reads an anchor file. A missing file is empty.
func readPublished(path string) (published, error) {
	p := published{path: path}
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
				p.torn++
			}
			text = paragraph
			continue
		}
		note := text + "\n\n" + paragraph + "\n"
		if _, err := record.ReadNoteText(note); err != nil || text == "" {
			p.torn++
		} else {
			p.notes = append(p.notes, note)
		}
		text = ""
	}
	if text != "" {
		p.torn++
	}
	return p, nil
}

// last returns the newest anchor in the file; number is 0 if there is none.
func (p published) last() (number int64, note string) {
	for _, n := range p.notes {
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
func (p published) append(notes []string) error {
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
		return term.UnknownErrorf("", "the anchor is in the store, and could not be published: %w", fmt.Errorf("%s: %w", p.path, err))
	}
	return nil
}
