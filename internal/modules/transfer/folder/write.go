package folder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
)

// Target receives the files of an export. Each file is written completely or not at all.
type Target interface {
	// Put writes a file. Its name is a slash-separated path within the target.
	Put(name string, content []byte) error
}

// Written counts the parts that an export wrote.
type Written struct {
	Definitions int `json:"definitions"`
	Instances   int `json:"instances"`
	Lines       int `json:"lines"`
	Checkpoints int `json:"checkpoints"`
}

// Write writes an export in the form of a folder: definitions first, and then for each instance its
// checkpoints, its log and its present state.
func Write(to Target, x portable.Exported) (Written, error) {
	var out Written
	w := &writer{to: to, usedNames: map[string]bool{}}
	for _, d := range x.Definitions {
		name := fileStem(d.Name)
		if !d.Newest {
			name += "@" + strconv.Itoa(d.Version)
		}
		w.putFile(path.Join(definitionsDir, name+".json"), d.Document)
		out.Definitions++
	}
	for in, err := range x.Instances {
		if err != nil || w.err != nil {
			return out, errors.Join(w.err, err)
		}
		stem := w.freeName("%s.json", instanceStems(in.ID))
		for _, cp := range in.Checkpoints {
			name := w.freeName(checkpointsDir+"/%s.json", checkpointNames(stem, cp.ID))
			w.putFile(path.Join(checkpointsDir, name+".json"), cp.Document)
		}
		w.putFile(stem+".log", in.Lines...)
		w.putFile(stem+".json", in.State)
		out.Instances++
		out.Lines += len(in.Lines)
		out.Checkpoints += len(in.Checkpoints)
	}
	return out, w.err
}

// versionOf splits the name of a definition's file into name and version; the newest version has no number.
func versionOf(file string) (string, int) {
	const newest = int(^uint(0) >> 1)
	name := strings.TrimSuffix(path.Base(file), ".json")
	at := strings.LastIndexByte(name, '@')
	if at < 0 {
		return name, newest
	}
	v, err := strconv.Atoi(name[at+1:])
	if err != nil || v < 1 {
		return name, newest
	}
	return name[:at], v
}

type writer struct {
	to        Target
	usedNames map[string]bool
	err       error // the first error; nothing is written after it
}

// freeName returns the first name that is not taken, or else the last one.
func (w *writer) freeName(file string, names []string) string {
	for _, name := range names {
		if !w.usedNames[fmt.Sprintf(file, name)] {
			return name
		}
	}
	return names[len(names)-1]
}

// validName matches valid file names, whatever ids and names they are made from.
var validName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((definitions|checkpoints)/)?[a-z0-9_!][a-z0-9._@!-]*$`)
})

func (w *writer) putFile(name string, documents ...json.RawMessage) {
	switch {
	case w.err != nil:
		return
	case !validName().MatchString(name) || !fs.ValidPath(name):
		w.err = fmt.Errorf("%q is not a valid file name; it was not written", name)
		return
	case w.usedNames[name]:
		w.err = fmt.Errorf("two parts of the export have the same file name %s", name)
		return
	}
	w.usedNames[name] = true
	var content bytes.Buffer
	for _, doc := range documents {
		content.Write(doc)
		content.WriteByte('\n')
	}
	if err := w.to.Put(name, content.Bytes()); err != nil {
		w.err = fmt.Errorf("write %s: %w", name, err)
	}
}

// marker is the file that identifies an export.
const marker = ".gavel-export"

// markerText is the content of the marker. Exports of form 1 used other file names, so that exporting over
// one would leave older files of the same definitions.
const markerText = "gavel export, form 2\n"

// ErrForeign is the error for a target with files that no export wrote.
var ErrForeign = errors.New("the folder is neither empty nor an earlier export of this form")

// Dir is a Target on disk.
type Dir struct {
	root *os.Root
	dirs map[string]bool // folders with written files
}

// OpenDir opens a folder for an export, and creates it if necessary. It returns ErrForeign if the folder
// has anything other than an earlier export: an export replaces files by name.
func OpenDir(dir string) (*Dir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder: %w", err)
	}
	d := &Dir{root: root, dirs: map[string]bool{".": true}}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err == nil && len(entries) > 0 {
		if form, merr := root.ReadFile(marker); merr != nil || string(form) != markerText {
			err = ErrForeign
		}
	}
	if err == nil {
		err = d.Put(marker, []byte(markerText))
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// Put writes a file under a temporary name, syncs it and renames it.
func (d *Dir) Put(name string, content []byte) error {
	dir := path.Dir(name)
	if !d.dirs[dir] {
		if err := d.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		d.dirs[dir] = true
	}
	temporary := path.Join(dir, ".gavel-tmp-"+strconv.Itoa(os.Getpid()))
	file, err := d.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.root.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, d.root.Remove(temporary))
	}
	return nil
}

// Close makes all new names durable and releases the folder.
func (d *Dir) Close() error {
	var errs []error
	for dir := range d.dirs {
		if runtime.GOOS == "windows" {
			break // a folder cannot be synced there
		}
		f, err := d.root.Open(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, f.Sync(), f.Close())
	}
	return errors.Join(append(errs, d.root.Close())...)
}
