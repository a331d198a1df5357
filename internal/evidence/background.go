package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/internal/worktree"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// patience is how long a caller without a deadline waits for a run.
var patience = 20 * time.Second

const (
	// reserve is what is left of a caller's time when it stops waiting.
	reserve = 500 * time.Millisecond
	// pollEvery is how often a caller looks whether a run that another one started has ended.
	pollEvery = 50 * time.Millisecond
)

// background is a command that runs in a process of its own, which outlives whoever asks: one for a
// request, however many ask. What it finds is the result until the tree changes, which is looked at
// whenever somebody asks.
type background struct {
	*command
	name    string
	tree    string // as declared, absolute; "" is the one that the command's folder is in
	runner  string // a program whose main serves IsRunner; "" for none
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

// fetch finds the result of a run for the tree as it is now, or has one begun, and waits for it as
// long as the caller can.
func (b *background) fetch(ctx context.Context, kept results, r judge.EvidenceRequest, argv []string) (judge.FetchResult, error) {
	asked, expired := time.Now(), time.NewTimer(waitFor(ctx))
	defer expired.Stop()
	j, err := b.newJob(ctx, kept, r, argv)
	if err != nil {
		return startFailure(err), nil
	}
	for died := false; ; {
		tree, err := j.look(ctx)
		if err != nil {
			return failUnlessEnded(ctx, "the state of its files cannot be told: %v", err)
		}
		last := j.load(j.ID)
		maxAge := r.MaxAge
		if maxAge > 0 {
			maxAge = max(maxAge, time.Since(asked)) // what ended since then is never too old
		}
		if last.counts(tree, maxAge, time.Now()) {
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
			return failedFetch(judge.FailureStopped, "the process that ran it in the background was killed"), nil
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

// waitFor is how long a caller can wait.
func waitFor(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline) - reserve
	}
	return patience
}

// newJob is what a runner has to know. The error is process.Command's.
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

// start starts a runner of the job.
func (j job) start(runner string, lookup func(string) (string, bool)) (<-chan process.Detached, error) {
	input, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return process.StartDetached(runner, RunnerName, process.Environment(nil, nil, lookup), input)
}

// wait waits until a run has ended, its own or, with nil, that of another caller. false is that time
// is up.
func (j job) wait(ctx context.Context, own <-chan process.Detached, expired <-chan time.Time) (end process.Detached, ended bool) {
	poll := time.NewTicker(pollEvery)
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

// busy says when to try again: when a run would end that takes as long as the last one.
func (j job) busy(source string, took time.Duration) error {
	now := time.Now()
	since, _ := j.runningSince(j.ID)
	if since.IsZero() || since.After(now) { // it is being started, or the clock was set back
		since = now
	}
	ran := now.Sub(since)
	left := min(max(took-ran, ran/4, 2*time.Second), time.Minute).Round(time.Second)
	return &judge.BusyError{
		Message: fmt.Sprintf("%s is running, try again in %d s.", source, left/time.Second), RetryAfter: left,
		Err: fmt.Errorf("it runs since %s", since.UTC().Format(time.RFC3339)),
	}
}
