package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// stamp tells whether a file was written since. Files are compared by what the system says
// of them, and read only when that changed.
type stamp struct {
	size int64
	at   time.Time
	file os.FileInfo // for os.SameFile: another file may have been put in its place
}

// stampOf is the zero stamp for a file that cannot be seen.
func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.Size(), info.ModTime(), info}
}

func (s stamp) equal(o stamp) bool {
	if s.file == nil || o.file == nil {
		return s.file == nil && o.file == nil
	}
	return s.size == o.size && s.at.Equal(o.at) && os.SameFile(s.file, o.file)
}

// definitionWatch keeps the operator's definitions as their files are. A file that is refused
// changes nothing, and one that is gone takes no workflow away: instances run by it.
type definitionWatch struct {
	engine definer
	log    *slog.Logger

	patterns []string
	taken    map[string]stamp // in force as they were then
	refused  map[string]stamp
	last     map[string]stamp  // at the look before
	from     map[string]string // workflow -> file

	mu      sync.Mutex
	problem error // why a file is not in force
}

func newDefinitionWatch(eng definer, log *slog.Logger, patterns []string) *definitionWatch {
	return &definitionWatch{
		engine: eng, log: log, patterns: patterns,
		taken: map[string]stamp{}, refused: map[string]stamp{}, last: map[string]stamp{}, from: map[string]string{},
	}
}

// start loads all files, or says why the server cannot start with them.
func (w *definitionWatch) start(ctx context.Context) error {
	var patterns []string
	for _, p := range w.patterns {
		if emptyFolder(p) {
			w.log.Warn("the folder has no definition yet; it is watched", "folder", p)
			continue
		}
		patterns = append(patterns, p)
	}
	files, err := definitionFiles(patterns)
	if err != nil {
		return err
	}
	var bad []string
	for _, file := range files {
		at := stampOf(file)
		_, issues, err := defineFile(ctx, w.log, w.engine, file, w.from)
		if err != nil {
			return err
		}
		bad = append(bad, issues...)
		w.taken[file] = at
	}
	w.last = maps.Clone(w.taken)
	return loadFailure(bad)
}

// emptyFolder reports whether a pattern is a folder in which there is no definition: one
// that something else will fill.
func emptyFolder(pattern string) bool {
	info, err := os.Stat(pattern)
	if err != nil || !info.IsDir() {
		return false
	}
	_, err = os.ReadDir(pattern)
	files, none := filesIn(pattern)
	return err == nil && none != nil && len(files) == 0
}

// trouble says why a file is not in force as it is; nil when all are.
func (w *definitionWatch) trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// look takes the files that were changed and are not being written any more: those that are
// as they were a look ago. At once takes them as they are, and tries refused ones again.
func (w *definitionWatch) look(ctx context.Context, atOnce bool) {
	now := w.files()
	w.forget(now)
	var changed []string
	for file, at := range now {
		again := atOnce || !at.equal(w.refused[file])
		whole := atOnce || at.equal(w.last[file])
		if !at.equal(w.taken[file]) && again && whole {
			changed = append(changed, file)
		}
	}
	w.last = now
	slices.Sort(changed)
	for _, file := range changed {
		w.take(ctx, file, now[file])
	}
	w.report()
}

// files are those there are now. A pattern without any is none here: its folder may be in
// the middle of being replaced.
func (w *definitionWatch) files() map[string]stamp {
	now := map[string]stamp{}
	for _, pattern := range w.patterns {
		files, err := expand(pattern)
		if err != nil {
			continue
		}
		for _, file := range files {
			if at := stampOf(file); at.file != nil {
				now[file] = at
			}
		}
	}
	return now
}

// forget lets go of files that are gone.
func (w *definitionWatch) forget(now map[string]stamp) {
	for workflow, file := range w.from {
		if _, there := now[file]; !there {
			w.log.Warn("the file of a workflow is gone; the workflow stays defined", "file", file, "workflow", workflow)
			delete(w.from, workflow)
		}
	}
	gone := func(file string, _ stamp) bool { _, there := now[file]; return !there }
	maps.DeleteFunc(w.taken, gone)
	maps.DeleteFunc(w.refused, gone)
}

func (w *definitionWatch) take(ctx context.Context, file string, at stamp) {
	before := maps.Clone(w.from)
	maps.DeleteFunc(w.from, func(_, from string) bool { return from == file })
	result, bad, err := defineFile(ctx, w.log, w.engine, file, w.from)
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		bad = append(bad, err.Error())
	}
	if len(bad) > 0 {
		w.from, w.refused[file] = before, at
		for _, issue := range bad {
			w.log.Error("a changed definition is refused; what was defined before stays", "file", file, "issue", issue)
		}
		return
	}
	w.taken[file] = at
	delete(w.refused, file)
	w.log.Info("a changed definition is in force for new instances", "file", file, "workflow", result.Name, "version", result.Version)
}

func (w *definitionWatch) report() {
	var problem error
	if files := slices.Sorted(maps.Keys(w.refused)); len(files) > 0 {
		problem = fmt.Errorf("refused: %s", strings.Join(files, ", "))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problem = problem
}
