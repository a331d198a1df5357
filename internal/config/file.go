// Package config reads gavel's configuration file.
//
// A file is one document and is parsed strictly: every section must be known by name, and a mistake is reported with
// its line and a suggestion. The package knows the names of sections but not their contents, which each service
// parses itself.
//
// It must never read the environment, fill in a default, or put a value from the file into a message, because it may
// be a secret.
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

// MaxBytes is the maximum size of a configuration file.
const MaxBytes = 1 << 20

// The sections. Each is parsed by the service that it configures.
const (
	SectionAnchors = "anchors" // signing of the recorded history
	SectionAuth    = "auth"    // authentication of callers
	SectionGates   = "gates"   // states in which tools of other servers may be called
	SectionMCP     = "mcp"     // gavel mcp
	SectionModel   = "model"   // the model that judges
	SectionQuotas  = "quotas"  // limits for one principal
	SectionServe   = "serve"   // gavel serve
)

// The top-level keys that hold a single setting each.
const (
	KeyDefinitions = "definitions"
	KeyLogFormat   = "logFormat"
	KeyLogLevel    = "logLevel"
	KeySchema      = "$schema" // for editors; gavel ignores it
	KeyStore       = "store"
	KeyStoreKey    = "storeKey"
)

// moduleSections are the sections that modules add.
var moduleSections []string

// AddSection adds an allowed section. It must be called before the first file is read.
func AddSection(name string) { moduleSections = append(moduleSections, name) }

// sectionNames returns the allowed top-level keys.
func sectionNames() []string {
	return append([]string{
		KeyStore, KeyStoreKey, KeyDefinitions, KeyLogLevel, KeyLogFormat,
		SectionServe, SectionMCP, SectionAuth, SectionQuotas, SectionModel, SectionGates, SectionAnchors, KeySchema,
	}, moduleSections...)
}

// File is a parsed configuration file.
type File struct {
	path string
	root *document.Node
}

// Load reads a YAML or JSON file, depending on its extension (see document.Parse). Values checks its keys. Load
// reports all syntax errors together, each as "gavel.yaml:7:3: ...". It rejects a file that is not regular or exceeds
// MaxBytes. An error of the system is wrapped.
func Load(path string) (*File, error) {
	text, err := readPinned(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Parse is like Load, for a file at path with the given text.
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

// Path returns the argument of Load.
func (f *File) Path() string { return f.path }

// Dir returns the file's folder, which is the base of relative paths in it. For a nil File it returns "".
func (f *File) Dir() string {
	if f == nil {
		return ""
	}
	return filepath.Dir(f.path)
}

// Section returns the value of a top-level key, or nil if it is absent. A nil File has no sections.
func (f *File) Section(name string) *document.Node {
	if f == nil {
		return nil
	}
	return f.root.Get(name)
}

// Text returns the string at a top-level key. It returns "" if the key is absent or not a string.
func (f *File) Text(key string) string {
	if n := f.Section(key); n != nil && n.Kind == document.String {
		return n.Text
	}
	return ""
}

// pinned maps absolute paths to texts that Load uses instead of the files.
var pinned sync.Map

// Pin makes Load use text for the file at path until unpin is called, so that all parts of this process see the same
// text.
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

// Read returns the content of the file at path, ignoring pins. It checks the type of the file before it opens it,
// because opening a pipe without a writer blocks forever.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: a configuration file must be a regular file, not %s", path, describeMode(info.Mode()))
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
		return nil, fmt.Errorf("%s: the configuration file has more than %d bytes", path, MaxBytes)
	}
	return text, nil
}

// fileError names the path once; the system's errors contain it too.
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

// CheckReadable returns why a file cannot be read, or nil. It does not open pipes, since that may block.
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
