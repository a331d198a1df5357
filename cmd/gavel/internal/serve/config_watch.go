package serve

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
)

// ConfigWatch reloads the configuration file of a running server. A changed file is applied completely or not at all:
// every changed part is checked before the first one is applied.
type ConfigWatch struct {
	log   *slog.Logger
	path  string // "" for none
	parts []*ConfigPart

	mu       sync.Mutex   // protects the fields below
	file     *config.File // the last version that could be parsed
	fileAt   cli.FileStamp
	current  string // the text of the file
	lastSeen []cli.FileStamp
	lastRead []cli.FileStamp
}

// ConfigPart is a part of the configuration that a server can reload: a section, and everything else that it depends
// on.
type ConfigPart struct {
	Section string   // "" for the whole file
	with    []string // sections that are applied together with it
	// Files lists the other files that the part depends on, as the configuration names them; nil for none.
	Files func(*config.File) []string
	// Prepare reads and checks the part; take puts it in force. nil means that changes apply at the next start.
	Prepare func(ctx context.Context, next *ConfigChange) (take func(), err error)
	// onResult is called with the reason why the part's files are not in force, and with nil once they are; it may be
	// nil.
	onResult func(error)

	current string // the text in force
}

// ConfigChange is a configuration that is about to be applied.
type ConfigChange struct {
	module.Change
	again bool // also reload unchanged parts
}

// NewConfigWatch returns a ConfigWatch that treats the current contents of the files as in force.
func NewConfigWatch(log *slog.Logger, path string, parts ...*ConfigPart) *ConfigWatch {
	w := &ConfigWatch{log: log, path: path, parts: parts}
	if path == "" {
		return w
	}
	w.lastRead = w.stamps()
	w.lastSeen, w.current = w.lastRead, readText(path)
	for _, p := range parts {
		p.current = w.read(p)
	}
	return w
}

func readText(path string) string {
	text, _ := os.ReadFile(path) // an unreadable file counts as empty
	return string(text)
}

// stamps returns the stamps of the configuration file and of all files that its parts depend on.
func (w *ConfigWatch) stamps() []cli.FileStamp {
	at := cli.ReadStamp(w.path)
	if !at.Equal(w.fileAt) || w.file == nil {
		if file, err := config.Load(w.path); err == nil {
			w.file, w.fileAt = file, at
		}
	}
	all := []cli.FileStamp{at}
	for _, p := range w.parts {
		for _, file := range w.filesOf(p) {
			all = append(all, cli.ReadStamp(file))
		}
	}
	return all
}

func (w *ConfigWatch) filesOf(p *ConfigPart) []string {
	if p.Files == nil || w.file == nil {
		return nil
	}
	return p.Files(w.file)
}

// read returns the text of everything that a part depends on, as the files are now.
func (w *ConfigWatch) read(p *ConfigPart) string {
	if p.Section == "" {
		return readText(w.path)
	}
	var texts []string
	for _, name := range append([]string{p.Section}, p.with...) {
		if w.file != nil {
			texts = append(texts, string(w.file.Section(name).JSON()))
		}
	}
	for _, path := range w.filesOf(p) {
		texts = append(texts, path, readText(path))
	}
	return strings.Join(texts, "\n")
}

// Look reloads files that changed and are completely written: unchanged since the previous look. With atOnce it skips
// this wait.
func (w *ConfigWatch) Look(ctx context.Context, atOnce bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.path == "" {
		return
	}
	now := w.stamps()
	whole := slices.EqualFunc(now, w.lastSeen, cli.FileStamp.Equal)
	w.lastSeen = now
	if !atOnce && (!whole || slices.EqualFunc(now, w.lastRead, cli.FileStamp.Equal)) {
		return
	}
	w.lastRead = now
	text := readText(w.path)
	file, err := config.Load(w.path)
	if err != nil {
		w.reject(ctx, w.parts, "", err)
		return
	}
	w.file = file
	var changed []*ConfigPart
	for _, p := range w.parts {
		switch {
		case w.read(p) != p.current, atOnce && p.Section == "":
			changed = append(changed, p)
		case p.onResult != nil: // a mistake may have been corrected
			p.onResult(nil)
		}
	}
	if text != w.current {
		w.apply(ctx, text, changed, atOnce)
		return
	}
	for _, p := range changed { // a mistake in the files of one part does not affect the others
		w.apply(ctx, text, []*ConfigPart{p}, atOnce)
	}
}

// apply applies all given parts, or none.
func (w *ConfigWatch) apply(ctx context.Context, text string, parts []*ConfigPart, again bool) {
	next := &ConfigChange{Change: module.Change{File: w.file}, again: again}
	takes, read := make([]func(), len(parts)), make([]string, len(parts))
	for i, p := range parts {
		read[i] = w.read(p)
		if p.Prepare == nil {
			takes[i] = func() {
				w.log.WarnContext(ctx, "a changed setting takes effect only after a restart", "key", p.Section)
			}
			continue
		}
		var err error
		if takes[i], err = p.Prepare(ctx, next); err != nil {
			w.reject(ctx, parts, p.Section, err)
			return
		}
	}
	if readText(w.path) != text { // it was written in the meantime
		w.lastRead = nil
		return
	}
	w.current = text
	for i, p := range parts {
		takes[i]()
		p.current = read[i]
		if p.onResult != nil {
			p.onResult(nil)
		}
		if p.Section != "" && p.Prepare != nil {
			w.log.InfoContext(ctx, "the changed section is in force", "config", w.path, "section", p.Section)
		}
	}
}

// reject reports why none of the parts is applied: one of them has a mistake.
func (w *ConfigWatch) reject(ctx context.Context, parts []*ConfigPart, section string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = module.ConfigError(err)
	for _, p := range parts {
		if p.onResult != nil {
			p.onResult(err)
		}
	}
	log := w.log
	if section != "" {
		log = log.With("section", section)
	}
	log.ErrorContext(ctx, "the changed configuration was refused; the previous one stays in force", "config", w.path, "issue", oneLine(err))
}
