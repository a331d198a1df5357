package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ParseDefinitions returns the workflows in files, by name. Files that cannot be parsed are skipped; gavel lint reports
// them.
func ParseDefinitions(patterns []string) map[string]*workflow.Definition {
	files, _ := DefinitionFiles(patterns)
	definitions := map[string]*workflow.Definition{}
	for _, file := range files {
		if d, err := ParseDefinition(file); err == nil {
			definitions[d.Name] = d
		}
	}
	return definitions
}

// ReadDefinition reads a definition file. The files that it references are read during parsing.
func ReadDefinition(path string) (engine.DefineRequest, error) {
	req, err := gavel.ReadDefinition(path)
	return req, EngineFailure(err)
}

// NoteFiles arranges for note to be called with the path of each referenced file before it is read.
func NoteFiles(req *engine.DefineRequest, note func(path string)) {
	read, dir := req.Files, filepath.Dir(req.Source)
	req.Files = func(name string) ([]byte, error) {
		note(filepath.Join(dir, filepath.FromSlash(name)))
		return read(name)
	}
}

// ParseDefinition reads and parses a definition file.
func ParseDefinition(path string) (*workflow.Definition, error) {
	req, err := ReadDefinition(path)
	if err != nil {
		return nil, err
	}
	return workflow.ParseWithFiles(req.Source, req.Document, req.Files)
}

// ParseError turns a parse error into an exit error that names the expected kind of file, such as a chain.
func ParseError(file, what string, err error) error {
	if parse, ok := errors.AsType[*workflow.ParseError](err); ok {
		return &term.ExitError{Code: term.ExitBad, Lines: IssueLines(file, parse.Issues), Err: fmt.Errorf("%s is not a %s", file, what)}
	}
	return err
}

// ListMistakes splits an error about several mistakes of a document into one line per mistake.
func ListMistakes(err error) error {
	f, ok := errors.AsType[*term.ExitError](err)
	if !ok || f.Err == nil || len(f.Lines) > 0 {
		return err
	}
	var lines []string
	var all error
	if issues, ok := errors.AsType[document.Errors](err); ok {
		for _, issue := range issues {
			lines = append(lines, issue.Error())
		}
		all = issues
	} else if parse, ok := errors.AsType[*workflow.ParseError](err); ok {
		lines, all = IssueLines(parse.Source, parse.Issues), parse
	}
	if len(lines) < 2 {
		return err
	}
	text := strings.Replace(f.Err.Error(), all.Error(), fmt.Sprintf("%d mistakes", len(lines)), 1)
	return &term.ExitError{Code: f.Code, Err: errors.New(text), Hint: f.Hint, Lines: lines, Reason: f.Reason}
}

// RuleNoModel is the lint rule violated by workflows that use a model if none is configured.
const RuleNoModel = "llm-without-model"

// Definer stores definitions.
type Definer interface {
	Define(ctx context.Context, p engine.Principal, req engine.DefineRequest) (engine.DefineResult, error)
}

// loadDefinitions registers every file's definition as the operator's. It checks all files before it fails, so
// that one run reports every mistake.
func loadDefinitions(ctx context.Context, log *slog.Logger, eng Definer, patterns []string) error {
	files, err := DefinitionFiles(patterns)
	if err != nil {
		return err
	}
	return defineFiles(ctx, log, eng, files, ReadDefinition, map[string]string{})
}

// LoadCurrentDefinitions loads the definitions of an agent's server: the approved definitions if there is an approval,
// otherwise those that match patterns.
func LoadCurrentDefinitions(ctx context.Context, con *Console, to Definer, patterns []string) error {
	if a := con.Settings.approval; a != nil {
		return DefineParsed(ctx, con.Log, to, a.Definitions(con.Log, patterns))
	}
	return loadDefinitions(ctx, con.Log, to, patterns)
}

// DefineParsed registers parsed definitions as the operator's. Each document already includes its referenced
// files.
func DefineParsed(ctx context.Context, log *slog.Logger, to Definer, all module.Definitions) error {
	return defineFiles(ctx, log, to, slices.Sorted(maps.Keys(all)), func(file string) (engine.DefineRequest, error) {
		return engine.DefineRequest{Source: file, Document: all[file].Document}, nil
	}, map[string]string{})
}

type definitionReader func(file string) (engine.DefineRequest, error)

// defineFiles registers the definitions of files. from receives the file of each workflow.
func defineFiles(ctx context.Context, log *slog.Logger, eng Definer, files []string, read definitionReader, from map[string]string) error {
	var bad []string
	for _, file := range files {
		_, issues, err := DefineFile(ctx, log, eng, file, read, from)
		if err != nil {
			return err
		}
		bad = append(bad, issues...)
	}
	return loadFailure(bad)
}

// DefineFile registers a file's definition as the operator's. Mistakes in it are returned in bad, one per line.
// from maps each workflow to its file.
func DefineFile(ctx context.Context, log *slog.Logger, eng Definer, file string, read definitionReader, from map[string]string) (result engine.DefineResult, bad []string, err error) {
	req, err := read(file)
	if err != nil {
		return result, nil, err
	}
	if other, twice := from[definitionName(req)]; twice {
		return result, []string{fmt.Sprintf("%s: error: %s defines the same workflow; rename one", file, other)}, nil
	}
	result, err = eng.Define(ctx, gavel.Operator, req)
	switch known, ok := errors.AsType[*engine.Error](err); {
	case ok && known.Code == engine.CodeInvalidDefinition && len(known.Issues) > 0:
		return result, IssueLines(file, known.Issues), nil
	case ok && known.Code == engine.CodeInvalidDefinition:
		return result, []string{file + ": error: " + known.Message}, nil
	case err != nil:
		return result, nil, term.UnknownErrorf("", "cannot load %s: %w", file, err)
	}
	from[result.Name] = file
	for _, w := range result.Warnings {
		if w.Rule != RuleNoModel { // logged once for all definitions; see warnMissing
			log.Warn("definition", "issue", IssueLine(file, w))
		}
	}
	return result, nil, nil
}

func loadFailure(bad []string) error {
	if len(bad) == 0 {
		return nil
	}
	plural := "a mistake"
	if len(bad) > 1 {
		plural = fmt.Sprintf("%d mistakes", len(bad))
	}
	return &term.ExitError{
		Code: term.ExitUsage, Lines: bad,
		Err:  fmt.Errorf("the definitions have %s, so the command did not run", plural),
		Hint: "check them with: gavel lint",
	}
}

// definitionName returns the workflow's name, or a name unique to the file if it does not parse. Its mistakes are
// reported when it is defined.
func definitionName(req engine.DefineRequest) string {
	d, err := workflow.ParseWithFiles(req.Source, req.Document, req.Files)
	if err != nil {
		return "\x00" + req.Source
	}
	return d.Name
}

// FileStamp detects changes of a file by its metadata. A file is read again only if its stamp changed.
type FileStamp struct {
	size int64
	at   time.Time
	file os.FileInfo // for os.SameFile: detects a replaced file

	named int64 // sum of the sizes and times of the referenced files
}

// ReadStamp returns the stamp of a file, zero if the file cannot be accessed.
func ReadStamp(path string) FileStamp {
	info, err := os.Stat(path) //nolint:gosec // as in the reader of definitions
	if err != nil {
		return FileStamp{}
	}
	return FileStamp{size: info.Size(), at: info.ModTime(), file: info}
}

// sum returns a number that changes with the file.
func (s FileStamp) sum() int64 { return s.size + s.at.UnixNano() }

// Equal reports whether a file is unchanged.
func (s FileStamp) Equal(o FileStamp) bool {
	if s.file == nil || o.file == nil {
		return s.file == nil && o.file == nil
	}
	return s.size == o.size && s.at.Equal(o.at) && s.named == o.named && os.SameFile(s.file, o.file)
}

// DefinitionWatch reloads the operator's definitions when their files change. A rejected file changes nothing. A
// removed file leaves its workflow defined, because instances use it.
type DefinitionWatch struct {
	engine Definer
	log    *slog.Logger

	Patterns   []string
	loaded     map[string]FileStamp // files in force, with their stamps when they were loaded
	rejected   map[string]FileStamp
	lastSeen   map[string]FileStamp            // at the previous look
	fileOf     map[string]string               // workflow -> file
	references map[string]map[string]FileStamp // definition -> referenced files, with their stamps when they were read

	mu      sync.Mutex
	problem error // why a file is not in force; nil if all are
}

// NewDefinitionWatch watches the files that match patterns.
func NewDefinitionWatch(eng Definer, log *slog.Logger, patterns []string) *DefinitionWatch {
	return &DefinitionWatch{
		engine: eng, log: log, Patterns: patterns,
		loaded: map[string]FileStamp{}, rejected: map[string]FileStamp{}, lastSeen: map[string]FileStamp{}, fileOf: map[string]string{}, references: map[string]map[string]FileStamp{},
	}
}

// Start loads all files. It returns an error if the server cannot start with them.
func (w *DefinitionWatch) Start(ctx context.Context) error {
	var patterns []string
	for _, p := range w.Patterns {
		if IsEmptyFolder(p) {
			w.log.Warn("the folder has no definitions yet; watching it", "folder", p)
			continue
		}
		patterns = append(patterns, p)
	}
	files, err := DefinitionFiles(patterns)
	if err != nil {
		return err
	}
	for _, file := range files { // before reading: a file that changes while it is read is loaded again
		w.loaded[file] = ReadStamp(file)
	}
	w.lastSeen = maps.Clone(w.loaded)
	err = defineFiles(ctx, w.log, w.engine, files, w.read, w.fileOf)
	for _, file := range files {
		w.loaded[file] = w.addReferences(w.loaded[file], file)
	}
	return err
}

// read is ReadDefinition. It also records the files that the definition references.
func (w *DefinitionWatch) read(file string) (engine.DefineRequest, error) {
	req, err := ReadDefinition(file)
	named := map[string]FileStamp{}
	w.references[file] = named
	NoteFiles(&req, func(path string) { named[path] = ReadStamp(path) })
	return req, err
}

// addReferences returns the stamp combined with those of the referenced files when they were read.
func (w *DefinitionWatch) addReferences(at FileStamp, file string) FileStamp {
	at.named = 0
	for _, s := range w.references[file] {
		at.named += s.sum()
	}
	return at
}

// FindTrouble returns the reason why a file is not in force; nil if all are.
func (w *DefinitionWatch) FindTrouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Poll loads changed files that are completely written: those unchanged since the previous look. With atOnce it
// skips this wait and retries rejected files.
func (w *DefinitionWatch) Poll(ctx context.Context, atOnce bool) {
	now := w.files()
	w.forget(now)
	var changed []string
	for file, at := range now {
		again := atOnce || !at.Equal(w.rejected[file])
		whole := atOnce || at.Equal(w.lastSeen[file])
		if !at.Equal(w.loaded[file]) && again && whole {
			changed = append(changed, file)
		}
	}
	w.lastSeen = now
	slices.Sort(changed)
	for _, file := range changed {
		w.load(ctx, file, now[file])
	}
	w.report()
}

// files returns the stamps of the current files. A pattern without a match is ignored: its folder may be in the
// middle of being replaced.
func (w *DefinitionWatch) files() map[string]FileStamp {
	now := map[string]FileStamp{}
	for _, pattern := range w.Patterns {
		files, err := collectFiles([]string{pattern}, filesIn)
		if err != nil {
			continue
		}
		for _, file := range files {
			if at := ReadStamp(file); at.file != nil && !IsTestFile(file) {
				for path := range w.references[file] {
					at.named += ReadStamp(path).sum()
				}
				now[file] = at
			}
		}
	}
	return now
}

func (w *DefinitionWatch) forget(now map[string]FileStamp) {
	for workflow, file := range w.fileOf {
		if _, there := now[file]; !there {
			w.log.Warn("a definition file is gone; its workflow stays defined", "file", file, "workflow", workflow)
			delete(w.fileOf, workflow)
		}
	}
	gone := func(file string, _ FileStamp) bool { _, there := now[file]; return !there }
	maps.DeleteFunc(w.loaded, gone)
	maps.DeleteFunc(w.rejected, gone)
	maps.DeleteFunc(w.references, func(file string, _ map[string]FileStamp) bool { _, there := now[file]; return !there })
}

func (w *DefinitionWatch) load(ctx context.Context, file string, at FileStamp) {
	before := maps.Clone(w.fileOf)
	maps.DeleteFunc(w.fileOf, func(_, from string) bool { return from == file })
	result, bad, err := DefineFile(ctx, w.log, w.engine, file, w.read, w.fileOf)
	at = w.addReferences(at, file)
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		bad = append(bad, err.Error())
	}
	if len(bad) > 0 {
		w.fileOf, w.rejected[file] = before, at
		for _, issue := range bad {
			w.log.Error("a changed definition was refused; the previous version stays in force", "file", file, "issue", issue)
		}
		return
	}
	w.loaded[file] = at
	delete(w.rejected, file)
	w.log.Info("a changed definition is in force for new instances", "file", file, "workflow", result.Name, "version", result.Version)
}

func (w *DefinitionWatch) report() {
	var problem error
	if files := slices.Sorted(maps.Keys(w.rejected)); len(files) > 0 {
		problem = fmt.Errorf("refused: %s", strings.Join(files, ", "))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problem = problem
}
