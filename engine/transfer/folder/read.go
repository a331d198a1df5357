// Package folder knows the form of a .workflows folder, as the Generic DFA server keeps
// it and as gavel exports to it: definitions, one file per instance that says where it
// stands, one log per instance of how it got there, and checkpoints.
//
// It promises to be honest about damage: members that it does not know are kept, the beginning
// of a line at the end of a log is skipped and reported, and everything else that is not as it
// must be is an error with file and line. Nothing outside the folder is ever read or written,
// whatever ids and links say, and no file can cost more than its limit.
//
// It must never decide what a history means: that is package transfer's.
package folder

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/transfer"
)

// The limits, in bytes.
const (
	MaxDefinition = 256 << 10
	MaxFile       = 1 << 20 // an instance or a checkpoint
	MaxLine       = 1 << 20
	MaxLog        = 64 << 20 // also of the checkpoints of one instance together
)

// The limits, in numbers, of one instance: all of it is held in memory together.
const (
	MaxLines       = 100_000
	MaxCheckpoints = 10_000
)

// The folders in a folder.
const (
	definitionsDir = "definitions"
	checkpointsDir = "checkpoints"
)

// The files of a folder.
const (
	definitionFiles = definitionsDir + "/*.json"
	checkpointFiles = checkpointsDir + "/*.json"
	instanceFiles   = "wf-*.json"
	logFiles        = "wf-*.log"
)

// Folder is a .workflows folder that is read on demand.
type Folder struct {
	fsys        fs.FS
	files       map[string][]string // sorted, by what they are
	checkpoints map[string][]string // by the id of their instance
	strays      map[string]error    // what no definition and no instance is in, and why
}

// Open lists a folder. It fails only if the listing does; Definitions and Instances report
// files that are damaged. The file system must not follow links out of the folder: see
// os.Root.
func Open(fsys fs.FS) (*Folder, error) {
	f := &Folder{fsys: fsys, files: map[string][]string{}, checkpoints: map[string][]string{}, strays: map[string]error{}}
	if err := fs.WalkDir(fsys, ".", f.listFile); err != nil {
		return nil, fmt.Errorf("read the folder: %w", err)
	}
	for _, file := range f.files[checkpointFiles] {
		_, owner, _, err := f.readCheckpoint(file)
		if err == nil {
			f.checkpoints[owner] = append(f.checkpoints[owner], file)
			err = fmt.Errorf("there is no instance %.80q in the folder", owner)
		}
		f.strays[file] = err
	}
	for _, log := range f.files[logFiles] {
		f.strays[log] = fmt.Errorf("there is no %s.json beside it, so its workflow is unknown", strings.TrimSuffix(log, ".log"))
	}
	return f, nil
}

func (f *Folder) listFile(file string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	for _, pattern := range []string{definitionFiles, checkpointFiles, instanceFiles, logFiles} {
		if ok, _ := path.Match(pattern, file); ok {
			f.files[pattern] = append(f.files[pattern], file)
		}
	}
	isOurs := file == definitionsDir || file == checkpointsDir
	switch {
	case isOurs && !entry.IsDir():
		f.strays[file] = errors.New("it is not a folder; links are not followed")
	case entry.IsDir() && path.Dir(file) == checkpointsDir:
		f.strays[file] = errors.New("it is a folder; only files directly in " + checkpointsDir + " are read")
		return fs.SkipDir
	case entry.IsDir() && file != "." && !isOurs:
		return fs.SkipDir
	}
	return nil
}

// Empty reports whether the folder has nothing to import.
func (f *Folder) Empty() bool { return len(f.files)+len(f.strays) == 0 }

// Definitions are the definitions of the folder, the older versions of a name first.
func (f *Folder) Definitions() []transfer.Definition {
	files := slices.Clone(f.files[definitionFiles])
	slices.SortFunc(files, func(a, b string) int {
		an, av := versionOf(a)
		bn, bv := versionOf(b)
		return cmp.Or(strings.Compare(an, bn), cmp.Compare(av, bv))
	})
	var out []transfer.Definition
	for _, file := range files {
		document, err := f.readFile(file, MaxDefinition)
		out = append(out, transfer.Definition{File: file, Document: document, Err: err})
	}
	return out
}

// Instances are the instances of the folder, then files that belong to no instance. An
// error is about the File beside it.
func (f *Folder) Instances() iter.Seq2[transfer.Instance, error] {
	return func(yield func(transfer.Instance, error) bool) {
		strays := maps.Clone(f.strays)
		for _, file := range f.files[instanceFiles] {
			in, err := f.readInstance(file)
			delete(strays, in.Log)
			for _, file := range f.checkpoints[in.ID] {
				delete(strays, file)
			}
			if !yield(in, err) {
				return
			}
		}
		for _, file := range slices.Sorted(maps.Keys(strays)) {
			if !yield(transfer.Instance{File: file}, strays[file]) {
				return
			}
		}
	}
}

// readFile returns a whole file, which has at most limit bytes.
func (f *Folder) readFile(name string, limit int64) ([]byte, error) {
	info, err := fs.Lstat(f.fsys, name)
	if err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file; links are not followed")
	}
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

func (f *Folder) readInstance(file string) (transfer.Instance, error) {
	stem := strings.TrimSuffix(file, ".json")
	in := transfer.Instance{File: file, Log: stem + ".log"}
	content, err := f.readFile(file, MaxFile)
	if err != nil {
		return in, err
	}
	if in, err = parseInstance(content, in); err != nil {
		return in, err
	}
	if in.ID = cmp.Or(in.ID, stem); !isStemOf(stem, in.ID) {
		return in, fmt.Errorf("its id is %.80q, which its name is not of", in.ID)
	}
	content, err = f.readFile(in.Log, MaxLog)
	switch {
	case err == nil:
		if in.Lines, in.Torn, err = ParseLog(in.Log, content); err != nil {
			return in, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return in, fmt.Errorf("%s: %w", in.Log, err)
	}
	bytes := 0
	for _, file := range f.checkpoints[in.ID] {
		cp, _, size, err := f.readCheckpoint(file)
		if err != nil {
			return in, fmt.Errorf("%s: %w", file, err)
		}
		if bytes += size; bytes > MaxLog || len(in.Checkpoints) == MaxCheckpoints {
			return in, fmt.Errorf("it has more than %d checkpoints, or %d bytes of them", MaxCheckpoints, MaxLog)
		}
		in.Checkpoints = append(in.Checkpoints, cp)
	}
	return in, nil
}

// readCheckpoint reads a checkpoint and returns the id of its instance and the size of its file.
func (f *Folder) readCheckpoint(file string) (transfer.Checkpoint, string, int, error) {
	content, err := f.readFile(file, MaxFile)
	if err != nil {
		return transfer.Checkpoint{}, "", 0, err
	}
	cp, owner, err := parseCheckpoint(file, content)
	return cp, owner, len(content), err
}
