package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/term"
)

// storeFolder is the folder of the default store, in the working directory.
const (
	storeFolder = ".workflows"
)

// StoreFlag holds the flags of a command that opens a store.
type StoreFlag struct {
	ConfigFlag
	Store    string `name:"store" placeholder:"PATH" help:"Store file, the URL of a PostgreSQL database, or \"memory\" for none. Default: ./.workflows/gavel.db, or in your data directory if the working directory is not writable."`
	StoreKey string `name:"store-key" placeholder:"FILE" help:"The key that seals a database's secrets, from gavel store init. The variable may hold the key itself."`
}

// StoreLocation is a store's location and key.
type StoreLocation struct {
	Path string // a file, gavel.Memory, or the URL of a database
	Key  []byte // of a database; nil if none was given
}

// String returns the location without a password.
func (l StoreLocation) String() string { return RedactStore(l.Path) }

// IsDatabase reports whether the store is a database, not a file.
func (l StoreLocation) IsDatabase() bool { return gavel.IsDatabase(l.Path) }

// MissingKey returns the path of the missing key file of a file store; "" if it exists. It is "" for a database.
func (l StoreLocation) MissingKey() string {
	if file := gavel.KeyPath(l.Path); !l.IsDatabase() && !IsFile(file) {
		return file
	}
	return ""
}

// MakeFolder creates the local folder of a database; "" if that fails.
func (l StoreLocation) MakeFolder(log *slog.Logger) string {
	user, err := userStore()
	sum := sha256.Sum256([]byte(l.String()))
	folder := filepath.Join(filepath.Dir(user), hex.EncodeToString(sum[:8]))
	if err == nil {
		err = createWritable(folder)
	}
	if err != nil {
		log.Warn("no writable folder for results of background commands: they run while their callers wait", "cause", err)
		return ""
	}
	return folder
}

// RedactStore returns a --store value without its password.
func RedactStore(store string) string {
	if d := driver.Find(store); d != nil {
		return d.Describe(store)
	}
	return store
}

// Locate is FindPath plus the key of a database.
func (f StoreFlag) Locate(log *slog.Logger, create bool) (StoreLocation, error) {
	path, err := f.FindPath(log, create)
	if err != nil {
		return StoreLocation{}, err
	}
	return f.LocateAt(path)
}

// LocateAt returns the location of a store with this path or URL.
func (f StoreFlag) LocateAt(path string) (StoreLocation, error) {
	at := StoreLocation{Path: path}
	if !at.IsDatabase() {
		return at, nil
	}
	var err error
	at.Key, err = ReadStoreKey(f.StoreKey)
	return at, err
}

// FilePath is FindPath for a command that needs a file. instead describes the alternative for a database.
func (f StoreFlag) FilePath(log *slog.Logger, create bool, instead string) (string, error) {
	if gavel.IsDatabase(f.Store) {
		return "", term.UsageErrorf(instead, "this command needs a store file, and %s is a database", RedactStore(f.Store))
	}
	return f.FindPath(log, create)
}

// storeKeyVariable may contain a database's key, or the path of its file.
const storeKeyVariable = "GAVEL_STORE_KEY"

var storeKeyText = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// ReadStoreKey reads a database's key from a file or from the variable's value; nil for none.
func ReadStoreKey(value string) ([]byte, error) {
	switch {
	case value == "":
		return nil, nil
	case storeKeyText.MatchString(value):
		if value != os.Getenv(storeKeyVariable) {
			return nil, term.UsageErrorf("put it into a file, or into "+storeKeyVariable, "do not pass the key as an argument: other users of this machine can read it")
		}
		return hex.DecodeString(value)
	}
	if err := checkKeyFile(value, "give the file that gavel store init wrote"); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(value)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot read the key: %w", err)
	}
	if !storeKeyText.Match(bytes.TrimSpace(text)) {
		return nil, term.UsageErrorf("give the file that gavel store init wrote", "%s does not hold 64 hex digits", value)
	}
	return hex.DecodeString(string(bytes.TrimSpace(text)))
}

// FindPath locates the store. With create, it creates the store's folder if necessary and checks that it is
// writable. Without create, the store file must exist.
func (f StoreFlag) FindPath(log *slog.Logger, create bool) (string, error) {
	return f.FindStore(log, create, hintLegacy)
}

// FindStore is FindPath with a callback: found is called with the default folder before a store is created in it.
func (f StoreFlag) FindStore(log *slog.Logger, create bool, found func(*slog.Logger, string)) (string, error) {
	if f.Store != "" {
		return ExplicitStore(f.Store, create)
	}
	local := filepath.Join(storeFolder, gavel.StoreFile)
	user, userErr := userStore()
	if !create {
		for _, path := range f.Candidates() {
			if err := checkNotLost(path); err != nil {
				return "", err
			}
			if IsFile(path) {
				return path, nil
			}
		}
		return "", term.UsageErrorf("start your MCP client here, or give another store with --store or --config", "nothing has been recorded yet: there is no store at %s", local)
	}
	if IsFile(local) {
		return local, nil
	}
	cause := createWritable(storeFolder)
	if cause == nil {
		found(log, storeFolder)
		return local, nil
	}
	if userErr != nil {
		return "", term.UsageErrorf("choose a path with --store PATH", "the working directory cannot hold a store (%w), and %w", cause, userErr)
	}
	if err := createWritable(filepath.Dir(user)); err != nil {
		return "", term.UsageErrorf("choose a path with --store PATH", "no place for a store: %w", err)
	}
	log.Warn("the working directory is not writable; the store is in your data directory", "store", user, "cause", cause)
	return user, nil
}

// storeScheme matches the beginning of a database address, as a URL or as key=value settings. A single letter
// before a colon is a drive.
var storeScheme = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9+.-]+:|:memory:|(host|hostaddr|port|user|password|dbname|service|sslmode)\s*=)`)

// CheckStore rejects an unsupported address. Used as a path, it would create a local file of that name.
func CheckStore(path string) error {
	scheme := storeScheme.FindString(path)
	if scheme == "" || gavel.IsDatabase(path) {
		return nil
	}
	return term.UsageErrorf("give the path of a file, starting with ./ if its name looks like an address, a postgres:// URL, or \"memory\"",
		"--store must be a file or a PostgreSQL database; %q is another kind of address", scheme)
}

// ExplicitStore returns the path of a store that the user named.
func ExplicitStore(path string, create bool) (string, error) {
	if path == gavel.Memory {
		if create {
			return path, nil
		}
		return "", term.UsageErrorf("give the path of a store file", "a store in memory exists only in its server; there is nothing to open")
	}
	if gavel.IsDatabase(path) {
		return path, nil
	}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return "", term.UsageErrorf("give the file in it, such as "+filepath.Join(path, gavel.StoreFile), "--store %s is a folder", path)
		}
		return path, nil
	}
	if err := checkNotLost(path); err != nil && !create {
		return "", err
	}
	if !create {
		return "", term.UsageErrorf("start a server with it first: gavel mcp --store "+path, "there is no store at %s", path)
	}
	if err := createWritable(filepath.Dir(path)); err != nil {
		return "", term.UsageErrorf("give another --store", "cannot create the store: %w", err)
	}
	return path, nil
}

// checkNotLost returns an error if the database at a path is missing but its key or log is present.
func checkNotLost(path string) error {
	if IsFile(path) {
		return nil // opening it checks more
	}
	const hint = "put the database back, or restore a backup: gavel restore FILE"
	if sqlite.IsOnlyLogLeft(path) {
		return term.UnknownErrorf("put the database back, or replay the log: gavel repair --store "+path+" --out FILE", "cannot read the store %s: %w", path, sqlite.ErrLostFile)
	}
	if key := filepath.Join(filepath.Dir(path), gavel.KeyFile); IsFile(key) && filepath.Base(path) == gavel.StoreFile {
		return term.UnknownErrorf(hint, "there is no store at %s, but its key %s is there: the store was moved or deleted", path, key)
	}
	return nil
}

// FindLost returns the store of which only the write-ahead log is left.
func (f StoreFlag) FindLost() (path string, ok bool) {
	for _, path := range f.Candidates() {
		if sqlite.IsOnlyLogLeft(path) {
			return path, true
		}
		if IsFile(path) {
			break
		}
	}
	return "", false
}

// Candidates returns the paths where an existing store is looked for, in order.
func (f StoreFlag) Candidates() []string {
	switch {
	case gavel.IsDatabase(f.Store):
		return nil
	case f.Store != "":
		return []string{f.Store}
	}
	places := []string{filepath.Join(storeFolder, gavel.StoreFile)}
	if user, err := userStore(); err == nil {
		places = append(places, user)
	}
	return places
}

// createWritable creates the folder and a test file in it. This detects missing permissions, read-only mounts and
// full disks.
func createWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	probe, err := os.CreateTemp(dir, ".gavel-probe-*")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func userStore() (string, error) {
	dir, err := dataDir()
	if err != nil {
		return "", fmt.Errorf("cannot find your data directory: %w", err)
	}
	return filepath.Join(dir, "gavel", gavel.StoreFile), nil
}

func dataDir() (string, error) {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if runtime.GOOS == "windows" {
		return os.UserCacheDir() // %LocalAppData%
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support"), nil
	}
	return filepath.Join(home, ".local", "share"), nil
}

// hintLegacy logs that the folder contains another program's workflows. It does not read or change them.
func hintLegacy(log *slog.Logger, dir string) {
	instances, _ := filepath.Glob(filepath.Join(dir, "wf-*.json"))
	definitions := filepath.Join(dir, "definitions")
	info, err := os.Stat(definitions)
	hasDefinitions := err == nil && info.IsDir()
	if len(instances) == 0 && !hasDefinitions {
		return
	}
	log.Warn("the folder has workflows of another program; gavel does not touch them", "folder", dir, "instances", len(instances),
		"hint", "see what importing them would do: gavel import "+dir+" --dry-run")
}

// IsFile reports whether path is a regular file.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
