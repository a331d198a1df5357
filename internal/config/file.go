// Package config reads gavel's configuration file.
//
// It promises that a file means what it says: one document, strict, every section
// known by name, a slip of the pen named with its line and with what was probably
// meant. It knows the names of sections and nothing of what is in them: each
// service reads its own.
//
// It must never read the environment, fill in a default, or put a value of the
// file into a message: it may be a secret.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

// MaxBytes is how long a configuration file may be.
const MaxBytes = 1 << 20

// The sections. What stands in them is read by whoever it is for.
const (
	SectionAnchors  = "anchors"  // signs what was recorded
	SectionAuth     = "auth"     // whose callers are known
	SectionEvidence = "evidence" // where evidence is fetched from
	SectionGates    = "gates"    // which tools of other servers may be called in which states
	SectionMCP      = "mcp"      // gavel mcp
	SectionModel    = "model"    // the model that judges
	SectionQuotas   = "quotas"   // what one principal may take
	SectionServe    = "serve"    // gavel serve
)

// The keys at the top of the file that hold one setting each.
const (
	KeyDefinitions = "definitions"
	KeyLogFormat   = "logFormat"
	KeyLogLevel    = "logLevel"
	KeySchema      = "$schema" // for editors; nothing reads it
	KeyStore       = "store"
	KeyStoreKey    = "storeKey"
)

// moduleSections are the sections that modules add.
var moduleSections []string

// AddSection adds a section to those that a file may have. Call it before the first file is read.
func AddSection(name string) { moduleSections = append(moduleSections, name) }

// sectionNames are all that may stand at the top of the file.
func sectionNames() []string {
	return append([]string{
		KeyStore, KeyStoreKey, KeyDefinitions, KeyLogLevel, KeyLogFormat,
		SectionServe, SectionMCP, SectionAuth, SectionQuotas, SectionModel, SectionEvidence, SectionGates, SectionAnchors, KeySchema,
	}, moduleSections...)
}

// File is a configuration file that was read.
type File struct {
	path string
	root *document.Node
}

// Load reads a YAML or JSON file, whose keys Values checks. The extension says which it is (see
// document.Parse). What is wrong with the document is said as
// "gavel.yaml:7:3: ..." for every line at once. A file that is not regular or
// longer than MaxBytes is refused; one that cannot be opened is the system's
// error, wrapped.
func Load(path string) (*File, error) {
	text, err := readPinned(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Parse is Load with the text that the file at path holds, or is to hold.
func Parse(path string, text []byte) (*File, error) {
	root, err := document.Parse(path, text, document.Limits{Bytes: MaxBytes})
	if err != nil {
		return nil, err
	}
	if err := document.NewObject(root).Err(); err != nil {
		return nil, err
	}
	return &File{path: path, root: root}, nil
}

// Path is what Load was given.
func (f *File) Path() string { return f.path }

// Dir is the folder that the file lies in: relative paths in the file begin there. That of a
// nil File is "".
func (f *File) Dir() string {
	if f == nil {
		return ""
	}
	return filepath.Dir(f.path)
}

// Section is what the file says under a name, nil when it says nothing. A nil File
// has no sections.
func (f *File) Section(name string) *document.Node {
	if f == nil {
		return nil
	}
	return f.root.Get(name)
}

// Text is the text of a key at the top of the file, "" for none and for anything but a text.
func (f *File) Text(key string) string {
	if n := f.Section(key); n != nil && n.Kind == document.String {
		return n.Text
	}
	return ""
}

// pinned maps absolute paths to the texts that Load takes for them.
var pinned sync.Map

// Pin makes Load take text for the file at path, whatever is there, until unpin is called: every part of this process
// reads the same text.
func Pin(path string, text []byte) (unpin func(), err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	pinned.Store(path, &text)
	return func() { pinned.CompareAndDelete(path, &text) }, nil
}

func readPinned(path string) ([]byte, error) {
	if abs, err := filepath.Abs(path); err == nil {
		if text, ok := pinned.Load(abs); ok {
			return *text.(*[]byte), nil
		}
	}
	return Read(path)
}

// Read returns what the file at path holds, pinned or not. It asks what the file is before it opens it: opening a pipe
// that nobody writes to would wait forever.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: a configuration file is a regular file, and this is %s", path, describeMode(info.Mode()))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fileError(path, err)
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%s: a configuration file has at most %d bytes, and this one has more", path, MaxBytes)
	}
	return text, nil
}

// fileError names the file once; the system's errors name it too.
func fileError(path string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return fmt.Errorf("%s: the configuration file cannot be read: %w", path, err)
}

func describeMode(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	default:
		return "something else"
	}
}

// CheckReadable says why a file cannot be read. A pipe is not opened: its reader might wait.
func CheckReadable(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&fs.ModeNamedPipe != 0 {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a folder", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}
