package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
)

// configWatch has a running server follow its configuration file. A changed file is taken over whole or not at all:
// every part that changed is checked before the first is taken.
type configWatch struct {
	log   *slog.Logger
	path  string // "" for none
	parts []*configPart

	mu       sync.Mutex   // of what follows
	file     *config.File // as it was read last, where it could be read
	fileAt   stamp
	inForce  string // the text of the file
	lastSeen []stamp
	lastRead []stamp
}

// configPart is what a server takes over of the configuration file: a section, with what else that depends on.
type configPart struct {
	section string   // "" for the whole file
	with    []string // sections that are taken over together with it
	// files lists the other files that it depends on, as a configuration names them; nil for none.
	files func(*config.File) []string
	// prepare reads and checks it; take has that in force. nil: it counts from the next start on.
	prepare func(ctx context.Context, next *configChange) (take func(), err error)
	// settled gets why the part is not in force as its files are, nil once it is; nil for nobody.
	settled func(error)

	inForce string // the text of it
}

// configChange is a configuration that is about to be taken over.
type configChange struct {
	module.Change
	again bool // what did not change is read again, too
}

// newConfigWatch takes the files as they are for those in force.
func newConfigWatch(log *slog.Logger, path string, parts ...*configPart) *configWatch {
	w := &configWatch{log: log, path: path, parts: parts}
	if path == "" {
		return w
	}
	w.lastRead = w.stamps()
	w.lastSeen, w.inForce = w.lastRead, readText(path)
	for _, p := range parts {
		p.inForce = w.read(p)
	}
	return w
}

func readText(path string) string {
	text, _ := os.ReadFile(path) // without it, there is nothing in it
	return string(text)
}

// stamps are those of the configuration file and of all that its parts depend on.
func (w *configWatch) stamps() []stamp {
	at := stampOf(w.path)
	if !at.equal(w.fileAt) || w.file == nil {
		if file, err := config.Load(w.path); err == nil {
			w.file, w.fileAt = file, at
		}
	}
	all := []stamp{at}
	for _, p := range w.parts {
		for _, file := range w.filesOf(p) {
			all = append(all, stampOf(file))
		}
	}
	return all
}

func (w *configWatch) filesOf(p *configPart) []string {
	if p.files == nil || w.file == nil {
		return nil
	}
	return p.files(w.file)
}

// read is all that a part depends on, as the files are.
func (w *configWatch) read(p *configPart) string {
	if p.section == "" {
		return readText(w.path)
	}
	var texts []string
	for _, name := range append([]string{p.section}, p.with...) {
		if w.file != nil {
			texts = append(texts, string(w.file.Section(name).JSON()))
		}
	}
	for _, path := range w.filesOf(p) {
		texts = append(texts, path, readText(path))
	}
	return strings.Join(texts, "\n")
}

// look reads the files again when they changed and are not being written any more. At once reads them as they are.
func (w *configWatch) look(ctx context.Context, atOnce bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.path == "" {
		return
	}
	now := w.stamps()
	whole := slices.EqualFunc(now, w.lastSeen, stamp.equal)
	w.lastSeen = now
	if !atOnce && (!whole || slices.EqualFunc(now, w.lastRead, stamp.equal)) {
		return
	}
	w.lastRead = now
	text := readText(w.path)
	file, err := config.Load(w.path)
	if err != nil {
		w.refuse(ctx, w.parts, "", err)
		return
	}
	w.file = file
	var changed []*configPart
	for _, p := range w.parts {
		switch {
		case w.read(p) != p.inForce, atOnce && p.section == "":
			changed = append(changed, p)
		case p.settled != nil: // perhaps a mistake was undone
			p.settled(nil)
		}
	}
	if text != w.inForce {
		w.take(ctx, text, changed, atOnce)
		return
	}
	for _, p := range changed { // a mistake in a file of one is none in those of others
		w.take(ctx, text, []*configPart{p}, atOnce)
	}
}

// take has parts in force, all of them or none.
func (w *configWatch) take(ctx context.Context, text string, parts []*configPart, again bool) {
	next := &configChange{Change: module.Change{File: w.file}, again: again}
	takes, read := make([]func(), len(parts)), make([]string, len(parts))
	for i, p := range parts {
		read[i] = w.read(p)
		if p.prepare == nil {
			takes[i] = func() {
				w.log.WarnContext(ctx, "a changed setting counts from the next start on", "key", p.section)
			}
			continue
		}
		var err error
		if takes[i], err = p.prepare(ctx, next); err != nil {
			w.refuse(ctx, parts, p.section, err)
			return
		}
	}
	if readText(w.path) != text { // it was written meanwhile
		w.lastRead = nil
		return
	}
	w.inForce = text
	for i, p := range parts {
		takes[i]()
		p.inForce = read[i]
		if p.settled != nil {
			p.settled(nil)
		}
		if p.section != "" && p.prepare != nil {
			w.log.InfoContext(ctx, "the changed section is taken over", "config", w.path, "section", p.section)
		}
	}
}

// refuse says why parts are not taken over, of which one has a mistake.
func (w *configWatch) refuse(ctx context.Context, parts []*configPart, section string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = badConfig(err)
	for _, p := range parts {
		if p.settled != nil {
			p.settled(err)
		}
	}
	log := w.log
	if section != "" {
		log = log.With("section", section)
	}
	log.ErrorContext(ctx, "the changed configuration is refused; the one before stays in force", "config", w.path, "issue", oneLine(err))
}
