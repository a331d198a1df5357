package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence/worktree"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// backgroundWait is how long a caller without a deadline waits for a run.
var backgroundWait = 20 * time.Second

const (
	// reserve is the time that a caller has left when it stops waiting.
	reserve = 500 * time.Millisecond
	// pollInterval is how often a caller checks whether a run that another caller started has ended.
	pollInterval = 50 * time.Millisecond
)

// background is a command that runs in a separate process, which outlives its callers. Concurrent callers share one
// run of a request. Its result is valid until the tree changes; every call checks the tree.
type background struct {
	*command
	name    string
	tree    string // as declared, absolute; "" is the tree that contains the command's folder
	runner  string // a program whose main handles RunnerName; "" for none
	lookup  func(string) (string, bool)
	results *atomic.Pointer[results]
}

func (b *background) prepare(r judge.EvidenceRequest, given document.JSON) (fetch, string) {
	argv, problem := b.expand(given)
	if problem != "" {
		return nil, problem
	}
	return func(ctx context.Context) (judge.FetchResult, error) {
		if kept := b.results.Load(); kept != nil && b.runner != "" {
			return b.fetch(ctx, *kept, r, argv)
		}
		ctx, cancel := context.WithTimeout(ctx, r.Timeout)
		defer cancel()
		return b.run(ctx, argv), nil
	}, ""
}

// fetch returns a run's result for the current tree. If there is none, it starts a run and waits as long as the
// caller can.
func (b *background) fetch(ctx context.Context, kept results, r judge.EvidenceRequest, argv []string) (judge.FetchResult, error) {
	asked, expired := time.Now(), time.NewTimer(waitFor(ctx))
	defer expired.Stop()
	j, err := b.newJob(ctx, kept, r, argv)
	if err != nil {
		return startFailure(err), nil
	}
	for died := false; ; {
		tree, err := j.digestTree(ctx)
		if err != nil {
			return failUnlessEnded(ctx, "the state of its files cannot be determined: %v", err)
		}
		last := j.load(j.ID)
		maxAge := r.MaxAge
		if maxAge > 0 {
			maxAge = max(maxAge, time.Since(asked)) // a run that ended after the call began is never too old
		}
		if last.isValid(tree, maxAge, time.Now()) {
			return last.result(), nil
		}
		var own <-chan process.Detached
		if _, running := j.runningSince(j.ID); !running {
			if own, err = j.start(b.runner, b.lookup); err != nil {
				return failUnlessEnded(ctx, "it cannot be run in the background: %v", err)
			}
		}
		end, ended := j.wait(ctx, own, expired.C)
		switch {
		case !ended && ctx.Err() != nil:
			return judge.FetchResult{}, ctx.Err()
		case !ended:
			return judge.FetchResult{}, j.busy(b.name, last.Took.Duration())
		case end.Output != "":
			return failedFetch(judge.FailureUnavailable, "it cannot be run in the background: %s", end.Output), nil
		case end.Err != nil && died:
			return failedFetch(judge.FailureStopped, "its background process was killed"), nil
		}
		died = end.Err != nil
	}
}

func failUnlessEnded(ctx context.Context, format string, err error) (judge.FetchResult, error) {
	if ctx.Err() != nil {
		return judge.FetchResult{}, ctx.Err()
	}
	return failedFetch(judge.FailureUnavailable, format, withoutPath(err)), nil
}

// waitFor returns how long a caller can wait.
func waitFor(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline) - reserve
	}
	return backgroundWait
}

// newJob builds the job for a runner. The caller reports an error as a failure to start the command.
func (b *background) newJob(ctx context.Context, kept results, r judge.EvidenceRequest, argv []string) (job, error) {
	found, err := process.Command(ctx, b.program, argv, b.env)
	if err != nil {
		return job{}, err
	}
	root := b.tree
	if root == "" {
		root, err = worktree.Find(ctx, b.folder)
	} else {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return job{}, err
	}
	if err := os.MkdirAll(kept.Folder, 0o700); err != nil {
		return job{}, err
	}
	j := job{
		results: kept, MaxAge: r.MaxAge, Watcher: b.runner,
		request: request{
			Source: b.name, Program: found.Path, Argv: argv, Env: b.env, Directory: b.folder, Root: root,
			Limit: b.limit, Output: b.output, Timeout: r.Timeout,
		},
	}
	j.ID, err = kept.identify(j.request)
	return j, err
}

// start starts a runner for the job.
func (j job) start(runner string, lookup func(string) (string, bool)) (<-chan process.Detached, error) {
	input, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return process.StartDetached(runner, RunnerName, process.Environment(nil, nil, lookup), input)
}

// wait waits until a run has ended: the caller's own, or another caller's if own is nil. It returns false if the time
// expires first.
func (j job) wait(ctx context.Context, own <-chan process.Detached, expired <-chan time.Time) (end process.Detached, ended bool) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case end := <-own:
			return end, true
		case <-poll.C:
			if _, running := j.runningSince(j.ID); !running && own == nil {
				return end, true
			}
		case <-expired:
			return end, false
		case <-ctx.Done():
			return end, false
		}
	}
}

// busy returns an error that suggests when to retry, estimated from the duration of the last run.
func (j job) busy(source string, took time.Duration) error {
	now := time.Now()
	since, _ := j.runningSince(j.ID)
	if since.IsZero() || since.After(now) { // the run is just starting, or the clock was set back
		since = now
	}
	ran := now.Sub(since)
	left := min(max(took-ran, ran/4, 2*time.Second), time.Minute).Round(time.Second)
	return &judge.BusyError{
		Message: fmt.Sprintf("%s is still running; try again in %d s.", source, left/time.Second), RetryAfter: left,
		Err: fmt.Errorf("it has been running since %s", since.UTC().Format(time.RFC3339)),
	}
}
