package chain

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	html "html/template"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

//go:embed runs.html
var runsTemplates string

// Limits of the pages.
const (
	runsOnPage   = 50
	maxBars      = 200
	maxRevisions = 200 // revisions of an instance of which the runs are looked up
	maxRunsOf    = 10  // runs of an instance
	maxChainSVG  = 512 << 10
)

// statuses are those by which the page filters.
var statuses = []RunStatus{StatusRunning, StatusQueued, StatusPaused, StatusFailed, StatusDone, StatusCancelled}

// hasPages reports whether the console has pages about runs: chains are declared, or runs are next to the store.
func hasPages(setup module.Setup) bool {
	if isDeclared(setup.File) {
		return true
	}
	_, err := os.Stat(filepath.Join(setup.Folder, chainsFile))
	return setup.OnDemand && setup.Folder != "" && err == nil
}

// pages are the console's pages about runs.
func (c *chains) pages() []module.Page {
	change := func(ask operation.Typed[ChangeRunRequest, RunView], done string) func(context.Context, module.Visit) (string, string, error) {
		return func(ctx context.Context, v module.Visit) (next, message string, err error) {
			run, err := ask.Do(ctx, v.Call, ChangeRunRequest{Run: v.Path("id"), Reason: strings.TrimSpace(v.Values.Get("reason"))})
			if run.Run != v.Path("id") && err == nil {
				next = "runs/" + url.PathEscape(run.Run)
			}
			return next, done, err
		}
	}
	return []module.Page{
		{
			Path: "runs", Title: "Runs", Place: module.InMenu, Order: 55, Needs: engine.RightRead,
			Templates: runsTemplates, Regions: []string{"runs"},
			Load: func(ctx context.Context, v module.Visit) (any, error) { return loadRuns(ctx, v) },
		},
		{
			Path: "runs/{id}", Title: "Run", Needs: engine.RightRead,
			Templates: runsTemplates, Regions: []string{"run", "run-waits", "run-steps", "run-chain"},
			Load: func(ctx context.Context, v module.Visit) (any, error) { return c.loadRun(ctx, v) },
			Follow: func(v module.Visit) engine.TailRequest {
				return engine.TailRequest{Instance: engine.RunInstance(v.Path("id"))}
			},
			Actions: map[string]func(context.Context, module.Visit) (string, string, error){
				"cancel": change(AskCancel, "The run was cancelled."), "pause": change(AskPause, "The run stops before its next step."),
				"resume": change(AskResume, "The run continues."), "redrive": change(AskRedrive, "The run was redriven, as this run."),
				"signal": func(ctx context.Context, v module.Visit) (string, string, error) {
					value := bytes.TrimSpace([]byte(v.Values.Get("value")))
					if len(value) > 0 && !json.Valid(value) {
						return "", "", &engine.Error{Code: engine.CodeInvalidData, Path: "/value", Message: "The value is not JSON.", Hint: `Write text in double quotes: "yes".`}
					}
					_, err := AskSignal.Do(ctx, v.Call, SignalRequest{Run: v.Path("id"), Name: v.Values.Get("name"), Value: value})
					return "", "The signal was sent.", err
				},
			},
		},
		{
			Path: "instances/{id}/runs", Title: "Runs of chains", Place: module.InInstance, Order: 50, Needs: engine.RightRead,
			Templates: runsTemplates, Regions: []string{"instance-runs"},
			Load: func(ctx context.Context, v module.Visit) (any, error) { return c.loadRunsOf(ctx, v) },
		},
	}
}

// runsData is what the list of runs shows.
type runsData struct {
	Status   RunStatus
	Statuses []RunStatus
	RunList
	Chains []ChainView
	Cursor string
}

func loadRuns(ctx context.Context, v module.Visit) (d runsData, err error) {
	d.Status, d.Statuses, d.Cursor = RunStatus(v.Values.Get("status")), statuses, v.Values.Get("cursor")
	if d.Status != "" && !slices.Contains(statuses, d.Status) {
		return d, &engine.Error{Code: engine.CodeInvalidArgument, Path: "/status", Message: "There is no such status of a run.", Hint: "Choose one of the page."}
	}
	if d.RunList, err = AskRuns.Do(ctx, v.Call, ListRuns{Status: d.Status, Limit: runsOnPage, Cursor: d.Cursor}); err != nil {
		return d, err
	}
	all, err := AskChains.Do(ctx, v.Call, operation.Empty{})
	d.Chains = all.Chains[:min(len(all.Chains), runsOnPage)]
	return d, err
}

// runData is what a page shows of a run.
type runData struct {
	RunView
	// Took is how long the run has taken, until now if it has not ended.
	Took      string
	Bars      []bar
	MoreSteps int
	Diagram   html.HTML
}

// PageTitle names the page.
func (d runData) PageTitle() string { return "Run of " + d.Chain }

// bar is a step on the time line of its run, in percent of the run.
type bar struct {
	RunStep
	At, Width float64
	Class     string
	Took      string
}

func newRunData(run RunView, now time.Time) runData {
	end := now
	if run.HasEnded() && !run.Ended.IsZero() {
		end = run.Ended
	}
	for _, s := range run.Steps { // clocks of processes differ
		if s.Ended.After(end) {
			end = s.Ended
		}
	}
	total := max(end.Sub(run.Started), time.Millisecond)
	d := runData{RunView: run, Took: term.ShortDuration(total)}
	share := func(t time.Duration) float64 { return min(100, max(0, 100*float64(t)/float64(total))) }
	for _, s := range run.Steps[:min(len(run.Steps), maxBars)] {
		b := bar{RunStep: s, At: share(s.Started.Sub(run.Started)), Width: max(0.6, share(s.Ended.Sub(s.Started))), Class: "yes", Took: term.ShortDuration(max(0, s.Ended.Sub(s.Started)))}
		if s.Status != StatusDone {
			b.Class = "no"
		}
		b.At = min(b.At, 100-b.Width)
		d.Bars = append(d.Bars, b)
	}
	for _, q := range slices.Concat(run.UnderWay, run.Waiting) {
		if len(d.Bars) < maxBars {
			at := share(q.Since.Sub(run.Started))
			d.Bars = append(d.Bars, bar{RunStep: RunStep{Key: q.Key, Op: q.Describe(), Status: StatusRunning, Started: q.Since}, At: min(at, 99.4), Width: max(0.6, 100-at), Class: "wait", Took: term.Roughly(max(0, now.Sub(q.Since)))})
		}
	}
	d.MoreSteps = len(run.Steps) - min(len(run.Steps), maxBars)
	return d
}

func (c *chains) loadRun(ctx context.Context, v module.Visit) (runData, error) {
	run, err := AskRun.Do(ctx, v.Call, RunRequest{Run: v.Path("id")})
	if err != nil {
		return runData{}, err
	}
	d := newRunData(run, time.Now())
	visible, err := AskChains.Do(ctx, v.Call, operation.Empty{})
	if err != nil || !slices.ContainsFunc(visible.Chains, func(one ChainView) bool { return one.Name == run.Chain }) {
		return d, err
	}
	var svg strings.Builder
	if def := c.list()[run.Chain]; def != nil && def.WriteSVG(&svg) == nil && svg.Len() <= maxChainSVG {
		d.Diagram = html.HTML(svg.String()) //nolint:gosec // the renderer escapes every text
	}
	return d, nil
}

// runsOf are the runs of an instance. Problem says why they are not shown.
type runsOf struct {
	Runs    []runData
	Problem string
}

// loadRunsOf returns the runs of an instance: the one that it records, or those that its states started.
func (c *chains) loadRunsOf(ctx context.Context, v module.Visit) (any, error) {
	at, err := operation.Status.Do(ctx, v.Call, operation.StatusRequest{ID: v.Path("id")})
	if err != nil {
		return nil, err
	}
	ids := []string{strings.TrimPrefix(at.ID, engine.RunInstance(""))}
	if !strings.HasPrefix(at.Workflow, WorkflowPrefix) {
		ids = nil
		for r := at.Revision; r > 0 && len(ids) < maxRevisions; r-- {
			ids = append(ids, EntryRun(at.ID, r))
		}
		if ids, err = c.findRuns(ctx, ids); err != nil {
			e, _ := operation.Explain(err)
			return runsOf{Problem: e.Message}, nil
		}
	}
	var all runsOf
	for _, id := range ids {
		run, err := AskRun.Do(ctx, v.Call, RunRequest{Run: id})
		switch {
		case err == nil:
			all.Runs = append(all.Runs, newRunData(run, time.Now()))
		case !isCode(err, engine.CodeUnknownInstance) && !isCode(err, engine.CodeForbidden): // hides runs that this visitor may not see
			e, _ := operation.Explain(err)
			all.Problem = e.Message
		}
	}
	if len(all.Runs) == 0 && all.Problem == "" {
		return nil, nil //nolint:nilnil // hides the part
	}
	return all, nil
}

// findRuns returns those of the given runs that exist, newest first.
func (c *chains) findRuns(ctx context.Context, ids []string) ([]string, error) {
	if _, err := c.openRemote(ctx, true); err != nil {
		return nil, err
	}
	service := c.service.Load()
	if service == nil || len(ids) == 0 {
		return nil, nil
	}
	rows, err := service.config.Runs.listRows(ctx, dbos.WithFilterWorkflowIDs(ids...), dbos.WithFilterName(runName))
	if err != nil {
		return nil, engine.StoreError("list the runs", fmt.Errorf("of an instance: %w", err))
	}
	found := map[string]time.Time{}
	for _, w := range rows {
		found[w.ID] = w.CreatedAt
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b string) int { return cmp.Or(found[b].Compare(found[a]), cmp.Compare(a, b)) })[:min(len(found), maxRunsOf)], nil
}
