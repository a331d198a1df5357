package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/record"
)

// anchorKeyVariable may hold a private key, or name its file.
const anchorKeyVariable = "GAVEL_ANCHOR_KEY"

// isKeyText reports whether a value is a key and not the name of a file.
func isKeyText(value string) bool {
	return strings.HasPrefix(value, "PRIVATE+KEY+") || strings.HasPrefix(value, "-----BEGIN")
}

// readSigner reads the private key that --key or --anchor-key names.
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
	info, err := os.Stat(value)
	switch {
	case err != nil:
		return nil, term.UsageErrorf("make a key with gavel anchor keygen --key FILE", "cannot read the key: %w", err)
	case !info.Mode().IsRegular():
		return nil, term.UsageErrorf("", "cannot read the key: %s is not a regular file", value)
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		return nil, term.UsageErrorf("run chmod 600 on it, and make a new one if they should not have seen it", "others can read the key %s (mode %04o)", value, info.Mode().Perm())
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
		log.Warn("the key that signs anchors lies beside the store: whoever can change both can change everything unseen",
			"key", value, "hint", "keep it in another place, readable by the server alone")
	}
	return key, nil
}

func sameFolder(key, store string) bool {
	if store == "" {
		store = filepath.Join(storeFolder, storeFile)
	}
	a, err := filepath.Abs(filepath.Dir(key))
	b, err2 := filepath.Abs(filepath.Dir(store))
	return err == nil && err2 == nil && a == b
}

// readVerifiers reads public keys: one a line, as keygen writes them, or one in PEM.
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

// published is an anchor file: notes one behind the other with an empty line between.
type published struct {
	path  string
	notes []string
	// torn counts texts without a signature: what is left of a write that was cut short.
	torn int
	// open says that the file does not end with a whole note.
	open bool
}

// readPublished reads an anchor file; one that does not exist is empty.
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

// last is the newest anchor of the file, 0 when there is none.
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

// append adds notes with one write. Several processes may append: a note that is there
// twice does no harm.
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
