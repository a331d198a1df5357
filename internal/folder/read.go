package folder

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
)

// The limits, in bytes.
const (
	MaxDefinition = 256 << 10
	MaxFile       = 1 << 20 // an instance or a checkpoint
	MaxLine       = 1 << 20
	MaxLog        = engine.MaxImportBytes // and the checkpoints of one instance together
)

// MaxLines is how many lines a log may have.
const MaxLines = engine.MaxImportLines

// The folders in a folder.
const (
	definitionsDir = "definitions"
	checkpointsDir = "checkpoints"
)

// Folder is a .workflows folder that is read while it is asked for.
type Folder struct {
	fsys        fs.FS
	definitions []string
	instances   []string // the names of wf-*.json, sorted
	logs        map[string]bool
	checkpoints map[string][]string // files by the id of their instance
	bad         []fault
}

// fault is a file that cannot be read as what it must be.
type fault struct {
	file string
	err  error
}

var errNotFile = errors.New("it is not a regular file; links and the like are not followed")

// Open looks at what is in a folder. Errors are those of its listing; files that are not
// right are told by Definitions and Instances. A file system that must not be escaped by
// links is one of os.Root.
func Open(fsys fs.FS) (*Folder, error) {
	f := &Folder{fsys: fsys, logs: map[string]bool{}, checkpoints: map[string][]string{}}
	top, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("read the folder: %w", err)
	}
	for _, entry := range top {
		name := entry.Name()
		switch {
		case strings.HasPrefix(name, "wf-") && strings.HasSuffix(name, ".json"):
			f.instances = f.regular(f.instances, entry, name)
		case strings.HasPrefix(name, "wf-") && strings.HasSuffix(name, ".log"):
			for _, log := range f.regular(nil, entry, name) {
				f.logs[log] = true
			}
		case name == definitionsDir || name == checkpointsDir:
			if !entry.IsDir() {
				f.bad = append(f.bad, fault{name, errors.New("it is not a folder; links are not followed")})
				continue
			}
			if name == definitionsDir {
				err = f.listDefinitions()
			} else {
				err = f.listCheckpoints()
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// Empty reports whether there is nothing in the folder that could be imported.
func (f *Folder) Empty() bool {
	return len(f.definitions) == 0 && len(f.instances) == 0 && len(f.logs) == 0 && len(f.checkpoints) == 0 && len(f.bad) == 0
}

// regular appends a name unless it is something else than a file.
func (f *Folder) regular(list []string, entry fs.DirEntry, name string) []string {
	if !entry.Type().IsRegular() {
		f.bad = append(f.bad, fault{name, errNotFile})
		return list
	}
	return append(list, name)
}

// listDefinitions lists definitions, of each name the older versions first.
func (f *Folder) listDefinitions() error {
	entries, err := fs.ReadDir(f.fsys, definitionsDir)
	if err != nil {
		return fmt.Errorf("read the folder: %w", err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".json") {
			f.definitions = f.regular(f.definitions, entry, path.Join(definitionsDir, entry.Name()))
		}
	}
	slices.SortFunc(f.definitions, func(a, b string) int {
		an, av := versionOf(a)
		bn, bv := versionOf(b)
		if c := strings.Compare(an, bn); c != 0 {
			return c
		}
		return av - bv
	})
	return nil
}

// listCheckpoints reads every checkpoint once, to know whose it is. They lie beside one
// another, or in a folder per instance.
func (f *Folder) listCheckpoints() error {
	return fs.WalkDir(f.fsys, checkpointsDir, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("read the folder: %w", err)
		case entry.IsDir() && strings.Count(file, "/") > 1:
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(file, ".json"):
			return nil
		}
		if len(f.regular(nil, entry, file)) == 0 {
			return nil
		}
		_, owner, err := f.checkpoint(file)
		if err != nil {
			f.bad = append(f.bad, fault{file, err})
			return nil
		}
		f.checkpoints[owner] = append(f.checkpoints[owner], file)
		return nil
	})
}

// Definitions are the definitions of the folder, of each name the older versions first.
func (f *Folder) Definitions() []engine.ImportDefinition {
	var out []engine.ImportDefinition
	for _, file := range f.definitions {
		document, err := f.read(file, MaxDefinition)
		out = append(out, engine.ImportDefinition{File: file, Document: document, Err: err})
	}
	for _, b := range f.bad {
		if strings.HasPrefix(b.file, definitionsDir) {
			out = append(out, engine.ImportDefinition{File: b.file, Err: b.err})
		}
	}
	return out
}

// Instances are the instances of the folder, and what else is not as it must be: an
// error belongs to the File beside it.
func (f *Folder) Instances() iter.Seq2[engine.ImportInstance, error] {
	return func(yield func(engine.ImportInstance, error) bool) {
		known := map[string]bool{}
		for _, file := range f.instances {
			in, err := f.instance(file)
			known[in.ID] = true
			if !yield(in, err) {
				return
			}
		}
		for _, b := range f.strays(known) {
			if !yield(engine.ImportInstance{File: b.file}, b.err) {
				return
			}
		}
	}
}

// strays are the files that belong to nothing.
func (f *Folder) strays(known map[string]bool) []fault {
	var out []fault
	for log := range f.logs {
		file := strings.TrimSuffix(log, ".log") + ".json"
		if !slices.Contains(f.instances, file) {
			out = append(out, fault{log, fmt.Errorf("there is no %s beside it, so nothing says of which workflow it is", file)})
		}
	}
	for owner, files := range f.checkpoints {
		if known[owner] {
			continue
		}
		for _, file := range files {
			out = append(out, fault{file, fmt.Errorf("there is no instance %.80q in the folder", owner)})
		}
	}
	for _, b := range f.bad {
		if !strings.HasPrefix(b.file, definitionsDir) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b fault) int { return strings.Compare(a.file, b.file) })
	return out
}

// read returns a whole file, at most limit bytes of it.
func (f *Folder) read(name string, limit int64) ([]byte, error) {
	file, err := f.fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open it: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read it: %w", err)
	case int64(len(content)) > limit:
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return content, nil
}

// instance reads a wf-*.json with its log and checkpoints.
func (f *Folder) instance(file string) (engine.ImportInstance, error) {
	stem := strings.TrimSuffix(file, ".json")
	in := engine.ImportInstance{File: file, Log: stem + ".log"}
	content, err := f.read(file, MaxFile)
	if err != nil {
		return in, err
	}
	in, err = parseInstance(content, in)
	if err != nil {
		return in, err
	}
	switch {
	case in.ID == "":
		in.ID = stem
	case !isStemOf(stem, in.ID):
		return in, fmt.Errorf("it says that it is %.80q, and its name says something else", in.ID)
	}
	if f.logs[in.Log] {
		if in.Lines, in.Torn, err = f.log(in.Log); err != nil {
			return in, err
		}
	}
	files := f.checkpoints[in.ID]
	if n := len(files); n > engine.MaxImportCheckpoints {
		return in, fmt.Errorf("it has %d checkpoints; at most %d of one instance can be imported", n, engine.MaxImportCheckpoints)
	}
	bytes := 0
	for _, file := range files {
		cp, _, err := f.checkpoint(file)
		if err != nil {
			return in, fmt.Errorf("%s: %w", file, err)
		}
		bytes += len(cp.Context) + len(cp.Metadata) + len(cp.Extra) + len(cp.Description)
		if bytes > MaxLog {
			return in, fmt.Errorf("its checkpoints have more than %d bytes together", MaxLog)
		}
		in.Checkpoints = append(in.Checkpoints, cp)
	}
	return in, nil
}

func (f *Folder) log(name string) ([]engine.ImportLine, bool, error) {
	file, err := f.fsys.Open(name)
	if err != nil {
		return nil, false, fmt.Errorf("%s: open it: %w", name, err)
	}
	defer file.Close()
	lines, torn, err := ReadLog(file)
	if err != nil {
		return nil, false, fmt.Errorf("%s%w", name, err)
	}
	return lines, torn, nil
}

// checkpoint reads a checkpoint and returns whose it is.
func (f *Folder) checkpoint(file string) (engine.ImportCheckpoint, string, error) {
	content, err := f.read(file, MaxFile)
	if err != nil {
		return engine.ImportCheckpoint{}, "", err
	}
	cp, owner, err := parseCheckpoint(content)
	cp.File = file
	if dir := path.Dir(file); owner == "" && dir != checkpointsDir {
		owner = path.Base(dir)
	}
	if cp.ID == "" {
		cp.ID = strings.TrimSuffix(path.Base(file), ".json")
	}
	if err == nil && owner == "" {
		err = errors.New("it does not say of which instance it is")
	}
	return cp, owner, err
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// object writes members in the order of their keys, nil for none.
func object(fields map[string]json.RawMessage) (json.RawMessage, error) {
	if len(fields) == 0 {
		return nil, nil
	}
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		return nil, err
	}
	return json.RawMessage(strings.TrimSuffix(out.String(), "\n")), nil
}
