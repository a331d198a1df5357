package evidence

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence/worktree"
	"github.com/gavel-mcp/gavel/internal/filelock"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// RunnerName is the name (argv[0]) under which Options.Watcher is started to run a background command. Its main must
// then call Run and exit.
const RunnerName = "gavel-evidence"

// request is everything that a result depends on, except the tree. Another configuration, program or environment
// makes another request.
type request struct {
	Source    string
	Program   string // resolved path
	Argv, Env []string
	Directory string
	Root      string // root of the tree
	Limit     int
	Output    Output
	Timeout   time.Duration
}

// identify returns a name for a request that reveals nothing about its content.
func (r results) identify(q request) (string, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, r.Key)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil)[:16]), nil
}

// job is the input of a runner.
type job struct {
	results
	request
	ID      string
	MaxAge  time.Duration
	Watcher string
}

// Run performs the job that it reads: it runs a command and saves the outcome, unless a valid one was just saved. It
// writes an error to out.
func Run(in io.Reader, out io.Writer) {
	var j job
	if json.NewDecoder(in).Decode(&j) != nil {
		return // the caller was killed
	}
	if err := j.run(context.Background()); err != nil {
		fmt.Fprint(out, withoutPath(err)) //nolint:errcheck // the caller has gone
	}
}

// run runs the command while holding the request's lease. If the tree changed during the run, it runs once more, for
// the new tree, and because the first run may have created files that remain.
func (j job) run(ctx context.Context) error {
	lease, err := filelock.Acquire(j.lease(j.ID))
	if err != nil {
		return err
	}
	defer lease.Remove()
	defer j.sweep(time.Now())
	watcher := process.NewWatcher(j.Watcher)
	defer watcher.Close()
	c := &command{program: j.Program, folder: j.Directory, env: j.Env, limit: j.Limit, output: j.Output, watcher: watcher}
	tree := worktree.Tree{Root: j.Root, Exclude: j.Exclude}
	before, err := tree.Take(ctx, nil)
	if err != nil {
		return err
	}
	if j.load(j.ID).isValid(before.Digest, j.MaxAge, time.Now()) {
		return nil
	}
	for isLast := false; ; isLast = true {
		began := time.Now()
		if err := lease.Note([]byte(began.UTC().Format(time.RFC3339Nano))); err != nil {
			return err
		}
		found := j.runOnce(ctx, c)
		took := time.Since(began)
		after, err := tree.Take(ctx, nil)
		if err != nil {
			return err
		}
		changed := after.Changed(before)
		if len(changed) > 0 && !isLast {
			before = after
			continue
		}
		if len(changed) > 0 {
			found = failedFetch(judge.FailureChanged, "files changed while it ran: %s; change no files during the run, and let git ignore the files that it writes", listFew(changed))
		}
		return j.save(j.ID, outcome{
			Tree: after.Digest, Ended: time.Now(), Took: document.Milliseconds(took),
			Content: found.Content, Truncated: found.Truncated, Failure: found.Failure, Detail: found.Detail,
		})
	}
}

func (j job) runOnce(ctx context.Context, c *command) judge.FetchResult {
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	defer cancel()
	return c.run(ctx, j.Argv)
}

func listFew(paths []string) string {
	const few = 3
	if len(paths) <= few {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:few], ", "), len(paths)-few)
}

// digestTree returns the digest of the current tree.
func (j job) digestTree(ctx context.Context) (string, error) {
	known, keep := j.openCache(j.Root)
	s, err := worktree.Tree{Root: j.Root, Exclude: j.Exclude}.Take(ctx, known)
	if err == nil {
		keep()
	}
	return s.Digest, err
}
