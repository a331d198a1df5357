package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/config"
)

// sectionWatch takes over a changed section of the configuration file while a server runs.
type sectionWatch struct {
	log     *slog.Logger
	section string
	with    []string // sections that are taken over together with it
	files   []string // the configuration file, and what else the section depends on
	// list lists them anew at each look; nil where they are the same until they are read again.
	list func() []string
	// load reads the files again; with an error nothing changes. nil: there is nothing to take over.
	load func(context.Context) error

	inForce  string // what was read last
	lastSeen []stamp
	lastRead []stamp
}

// start takes the files as they are for those in force.
func (w *sectionWatch) start() *sectionWatch {
	if w.load != nil {
		w.lastRead, w.inForce = w.stamps(), w.read()
		w.lastSeen = w.lastRead
	}
	return w
}

func (w *sectionWatch) stamps() (all []stamp) {
	if w.list != nil {
		w.files = w.list()
	}
	for _, file := range w.files {
		all = append(all, stampOf(file))
	}
	return all
}

// read is all that the section depends on in files, "" where the configuration cannot be read.
func (w *sectionWatch) read() string {
	file, err := config.Load(w.files[0])
	if err != nil {
		return ""
	}
	parts := []string{string(file.Section(w.section).JSON())}
	for _, name := range w.with {
		parts = append(parts, string(file.Section(name).JSON()))
	}
	for _, path := range w.files[1:] {
		text, _ := os.ReadFile(path) // without it, there is nothing in it
		parts = append(parts, string(text))
	}
	return strings.Join(parts, "\n")
}

// look reads the files again when they changed and are not being written any more.
func (w *sectionWatch) look(ctx context.Context, atOnce bool) {
	if w.load == nil {
		return
	}
	now := w.stamps()
	whole := slices.EqualFunc(now, w.lastSeen, stamp.equal)
	w.lastSeen = now
	if !atOnce && (!whole || slices.EqualFunc(now, w.lastRead, stamp.equal)) {
		return
	}
	w.lastRead = now
	text := w.read()
	if text == w.inForce {
		return
	}
	if err := w.load(ctx); err != nil {
		w.log.ErrorContext(ctx, "the changed section is refused; the one before stays in force", "config", w.files[0], "section", w.section, "issue", oneLine(badConfig(err)))
		return
	}
	if now = w.stamps(); len(now) != len(w.lastRead) { // it names other files
		text, w.lastRead, w.lastSeen = w.read(), now, now
	}
	w.inForce = text
	w.log.InfoContext(ctx, "the changed section is taken over", "config", w.files[0], "section", w.section)
}
