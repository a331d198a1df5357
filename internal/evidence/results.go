package evidence

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/evidence/worktree"
	"github.com/gavel-mcp/gavel/internal/filelock"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ResultsFolder is the folder for results of background commands, next to the store.
const ResultsFolder = "gavel.evidence"

// CallsFolder is also next to the store. It has one file for each gated call in progress, locked by the process that
// makes the call. The lock ends with the process, so others need not wait for the call's deadline.
const CallsFolder = "gavel.calls"

// How long an outcome is valid while its tree is unchanged: a result, and a failure.
const (
	resultCounts  = 24 * time.Hour
	failureCounts = 2 * time.Minute
)

// results stores results of background commands. Each file starts with a MAC over its name and content, under a key
// of the store. Without that key, no valid result can be written.
type results struct {
	Folder string
	Key    []byte
	// Exclude lists the files that gavel itself writes next to the store, which may be inside the tree.
	Exclude []string
}

// KeepResults makes m store results of background commands next to the given store, under that store's key. Without
// it, background commands run while their caller waits.
func (m *Manager) KeepResults(store string, key []byte) error {
	folder, err := filepath.Abs(filepath.Dir(store))
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return err
	}
	r := &results{Folder: filepath.Join(folder, ResultsFolder), Key: record.DeriveKey(key, "gavel/evidence-results/v1")}
	r.Exclude = []string{r.Folder, filepath.Join(folder, CallsFolder)}
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		r.Exclude = append(r.Exclude, filepath.Join(folder, filepath.Base(store)+suffix))
	}
	m.results.Store(r)
	return nil
}

// outcome is the outcome of one run: a result for the state of a tree, or a failure.
type outcome struct {
	Tree      string                `json:"tree"`
	Ended     time.Time             `json:"ended"`
	Took      document.Milliseconds `json:"tookMs"`
	Content   json.RawMessage       `json:"content,omitempty"`
	Truncated bool                  `json:"truncated,omitempty"`
	Failure   judge.EvidenceFailure `json:"failure,omitempty"`
	Detail    string                `json:"detail,omitempty"`
}

// isValid reports whether an outcome is valid for a tree now. An outcome from the future is not: the clock was set
// back, so its age is unknown.
func (o outcome) isValid(tree string, maxAge time.Duration, now time.Time) bool {
	limit := resultCounts
	if o.Failure != "" {
		limit = failureCounts
	} else if maxAge > 0 {
		limit = min(limit, maxAge)
	}
	age := now.Sub(o.Ended)
	return o.Tree == tree && tree != "" && age >= 0 && age <= limit
}

func (o outcome) result() judge.FetchResult {
	return judge.FetchResult{
		Content: o.Content, Truncated: o.Truncated, Failure: o.Failure, Detail: o.Detail,
		Tree: o.Tree, At: o.Ended.Add(-o.Took.Duration()), Took: o.Took.Duration(),
	}
}

// load returns the last outcome of a request, or the zero outcome if there is none with a valid MAC.
func (r results) load(id string) (o outcome) {
	if text, ok := r.read(id + ".result"); !ok || json.Unmarshal(text, &o) != nil {
		return outcome{}
	}
	return o
}

func (r results) save(id string, o outcome) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return r.write(id+".result", text)
}

// openCache returns what is cached about a tree's files. keep saves it after use.
func (r results) openCache(root string) (known *worktree.Cache, keep func()) {
	sum := sha256.Sum256([]byte(root))
	name := hex.EncodeToString(sum[:16]) + ".tree"
	text, _ := r.read(name)
	known, err := worktree.UnmarshalCache(text)
	if err != nil {
		known, _ = worktree.UnmarshalCache(nil)
	}
	return known, func() {
		if text := known.Marshal(); text != nil {
			_ = r.write(name, text) // on failure, the next call reads more files
		}
	}
}

func (r results) code(name string, text []byte) []byte {
	mac := hmac.New(sha256.New, r.Key)
	mac.Write([]byte(name + "\n"))
	mac.Write(text)
	return mac.Sum(nil)
}

func (r results) read(name string) (text []byte, ok bool) {
	all, err := os.ReadFile(filepath.Join(r.Folder, name))
	if err != nil || len(all) < sha256.Size {
		return nil, false
	}
	code, text := all[:sha256.Size], all[sha256.Size:]
	return text, hmac.Equal(code, r.code(name, text))
}

// write replaces a file atomically.
func (r results) write(name string, text []byte) (err error) {
	f, err := os.CreateTemp(r.Folder, name+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(r.code(name, text), text...))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(r.Folder, name))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// sweep removes expired files, and partial files that a killed process left.
func (r results) sweep(now time.Time) {
	entries, _ := os.ReadDir(r.Folder)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && !strings.HasSuffix(e.Name(), ".lock") && now.Sub(info.ModTime()) > 2*resultCounts {
			_ = os.Remove(filepath.Join(r.Folder, e.Name()))
		}
	}
}

// lease returns the path of a request's lock file, which is locked by the process that runs the command. The file
// contains the start time.
func (r results) lease(id string) string { return filepath.Join(r.Folder, id+".lock") }

// runningSince returns when the current run of a request started, or the zero time if that is not known yet.
func (r results) runningSince(id string) (since time.Time, running bool) {
	held, err := filelock.IsHeld(r.lease(id))
	if !held || err != nil {
		return since, false
	}
	text, err := os.ReadFile(r.lease(id))
	if err == nil {
		since, _ = time.Parse(time.RFC3339Nano, string(text))
	}
	return since, true
}

// withoutPath returns the underlying error of a PathError.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
