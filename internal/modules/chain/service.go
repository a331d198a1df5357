package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/fairshare"
	"github.com/gavel-mcp/gavel/judge"
)

// WorkflowPrefix is the prefix of the workflows that gavel creates for chains. A principal's rights to a
// chain are its rights to the workflow with this prefix and the chain's name.
const WorkflowPrefix = "chain."

// ServiceConfig configures a Service.
type ServiceConfig struct {
	Runs   *Runs
	Engine *engine.Engine
	// Chains are the operator's definitions by name.
	Chains func() map[string]*Definition
	// ActsFor returns the principal that the runs of a chain act for; nil or false means their starter.
	ActsFor func(chain string) (engine.Principal, bool)
	// OpenRuns returns how many runs a principal may have open at the same time; nil means DefaultOpenRuns.
	OpenRuns func() int
}

// Service gives principals access to chains according to their rights. Every call names the principal. What
// the principal may not see is reported as nonexistent. Errors are those of package engine.
type Service struct {
	config   ServiceConfig
	starting *fairshare.Queue // one start at a time per principal, so that the next start counts this one
}

// NewService returns a Service with the given settings.
func NewService(c ServiceConfig) *Service {
	return &Service{config: c, starting: fairshare.New(fairshare.Config{Permits: maxStarting, PerCaller: 1, Waiting: 16 * maxStarting})}
}

// maxStarting limits how many starts are processed at the same time.
const maxStarting = 64

// ChainView is a chain that the principal may run.
type ChainView struct { //nolint:revive // the name of the schema in the OpenAPI document
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Tags        map[string]string `json:"-"`
	Hash        string            `json:"hash"`
	Steps       int               `json:"steps"`
	InputSchema json.RawMessage   `json:"inputSchema,omitempty"`
}

// RunView is the current state of a run.
type RunView struct {
	Run       string    `json:"run"`
	Chain     string    `json:"chain"`
	Status    RunStatus `json:"status"`
	Principal string    `json:"principal"`
	// ActsFor is set if the run acts for a principal other than Principal.
	ActsFor string `json:"actsFor,omitempty"`
	// Instance is the id of the run's instance in the store.
	Instance string    `json:"id,omitempty"`
	Started  time.Time `json:"startedAt"`
	Ended    time.Time `json:"endedAt,omitzero"`
	// Note records what someone last did to the run.
	Note RunNote `json:"note,omitzero"`
	// Waiting is what the run waits for; UnderWay is what its steps are doing.
	Waiting  []RunQuestion `json:"waiting,omitempty"`
	UnderWay []RunQuestion `json:"underWay,omitempty"`
	// Output is the result of a run that is done, an object.
	Output json.RawMessage `json:"output,omitempty"`
	Error  *RunError       `json:"error,omitempty"`
	// Steps are the ended executions of steps; lists, starts and changes omit them.
	Steps []RunStep `json:"steps,omitempty"`
	// NextCursor continues after Steps, with ReadNewSteps.
	NextCursor string `json:"nextCursor,omitempty"`
	// Swept reports that the run's retention is over: its steps remain only in the history of its instance.
	Swept bool `json:"swept,omitempty"`
}

// HasEnded reports whether the run is done, failed or cancelled.
func (v RunView) HasEnded() bool { return v.Status.HasEnded() }

// HasEnded reports whether the status is final.
func (s RunStatus) HasEnded() bool {
	return s == StatusDone || s == StatusFailed || s == StatusCancelled
}

// StartRun describes a run to start.
type StartRun struct {
	Chain string
	// Run is the id of the run, or "" for a new one. The same id starts a run only once.
	Run   string
	Input json.RawMessage
}

// ListRuns selects runs, newest first.
type ListRuns struct {
	Chain  string
	Status RunStatus
	Limit  int    // 0 means 50; at most 500
	Cursor string // NextCursor of the previous page
}

// RunList is one page of runs.
type RunList struct {
	Runs       []RunView `json:"runs"` // never nil
	Count      int       `json:"count"`
	NextCursor string    `json:"nextCursor,omitempty"`
}

// ListChains returns the chains that the principal may run, by name.
func (s *Service) ListChains(_ context.Context, p engine.Principal) ([]ChainView, error) {
	if err := engine.Authorize(p, engine.RightRead); err != nil {
		return nil, err
	}
	chains := s.config.Chains()
	out := []ChainView{}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		if p.InScope(WorkflowPrefix + name) {
			d := chains[name]
			out = append(out, ChainView{Name: name, Description: d.Description, Tags: d.Tags, Hash: d.Hash, Steps: len(d.ListSteps()), InputSchema: d.DescribeInput()})
		}
	}
	return out, nil
}

var runID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

// StartRun starts a run for the principal. The id must not have the form that schedules or entries use.
func (s *Service) StartRun(ctx context.Context, p engine.Principal, req StartRun) (RunView, error) {
	if req.Run != "" {
		if err := checkRunID(req.Run); err != nil {
			return RunView{}, err
		}
	}
	d, err := s.findChain(p, req.Chain)
	if err != nil {
		return RunView{}, err
	}
	leave, err := s.starting.Acquire(ctx, p.ID)
	if errors.Is(err, fairshare.ErrBusy) {
		return RunView{}, &engine.Error{Code: engine.CodeBusy, Message: "Too many of your chain starts are waiting.", Hint: "Try again later.", RetryAfter: time.Second}
	} else if err != nil {
		return RunView{}, engine.StoreError("start the run", err)
	}
	defer leave()
	begin := StartRequest{Definition: d, Input: req.Input, Principal: p}
	if s.config.ActsFor != nil {
		if actor, acts := s.config.ActsFor(d.Name); acts {
			begin.ActsFor = &actor
		}
	}
	if req.Run == "" {
		return s.start(ctx, begin, s.checkOpen)
	}
	for _, begin.Run = range candidateRuns(p, req.Run) {
		switch known, err := s.findStarted(ctx, begin); {
		case err != nil && !errors.Is(err, errOtherOwner):
			return RunView{}, err
		case known != nil:
			return s.outline(ctx, p, *known)
		}
	}
	begin.Run = ScopeRun(p.ID, req.Run)
	return s.start(ctx, begin, s.checkOpen)
}

// checkRunID rejects ids that a principal may not choose for a run.
func checkRunID(run string) error {
	refuse := func(hint, format string, a ...any) error {
		return &engine.Error{Code: engine.CodeInvalidArgument, Path: "/run", Message: fmt.Sprintf(format, a...), Hint: hint}
	}
	switch {
	case IsTickRun(run):
		return refuse("Use another id.", "The id %q has the form reserved for scheduled runs.", run)
	case strings.HasPrefix(run, entryPrefix):
		return refuse("Use another id.", "Ids that begin with %s are reserved for runs that workflow states start.", entryPrefix)
	case !runID.MatchString(run):
		return refuse("Use up to 128 letters, digits and . _ : @ -, beginning with a letter or digit.", "%.80q is not a valid run id.", run)
	}
	return nil
}

// StartTick implements Starter. It uses the id of the tick, and no quota applies.
func (s *Service) StartTick(ctx context.Context, p engine.Principal, req StartRun) (RunView, error) {
	d, err := s.findChain(p, req.Chain)
	if err != nil {
		return RunView{}, err
	}
	begin := StartRequest{Run: req.Run, Definition: d, Input: req.Input, Principal: p}
	if known, err := s.findStarted(ctx, begin); err != nil {
		return RunView{}, err
	} else if known != nil {
		return s.outline(ctx, p, *known)
	}
	return s.start(ctx, begin, nil)
}

// findChain returns a chain that the principal may run.
func (s *Service) findChain(p engine.Principal, name string) (*Definition, error) {
	if err := engine.Authorize(p, engine.RightStart); err != nil {
		return nil, err
	}
	if name == "" {
		return nil, engine.MissingField("chain", "The name of a chain from the list of chains.")
	}
	d := s.config.Chains()[name]
	if d == nil || !p.InScope(WorkflowPrefix+name) {
		return nil, unknownChain(name)
	}
	return d, nil
}

// start starts a run that does not exist yet, subject to quota, which may be nil.
func (s *Service) start(ctx context.Context, begin StartRequest, quota func(context.Context, engine.Principal) error) (RunView, error) {
	if _, err := begin.Definition.CheckInput(begin.Input); err != nil {
		return RunView{}, &engine.Error{Code: engine.CodeInvalidData, Path: "/input", Message: sentence(err), Hint: "Check the input against the chain's inputSchema."}
	}
	if quota != nil {
		if err := quota(ctx, begin.Principal); err != nil {
			return RunView{}, err
		}
	}
	run, err := s.config.Runs.Start(ctx, begin)
	if err != nil {
		return RunView{}, engine.StoreError("start the run", err)
	}
	return s.ReadStatus(ctx, begin.Principal, run)
}

// checkOpen rejects a run above the quota of its principal.
func (s *Service) checkOpen(ctx context.Context, p engine.Principal) error {
	most, owners := DefaultOpenRuns, []string{}
	if s.config.OpenRuns != nil {
		most = s.config.OpenRuns()
	}
	for name := range s.config.Chains() {
		owners = append(owners, chainOwner(name, p.ID))
	}
	filters := []dbos.ListWorkflowsOption{dbos.WithFilterName(runName), dbos.WithFilterUser(owners...), dbos.WithFilterLimit(most)}
	open, err := s.config.Runs.listRows(ctx, append(filters, dbos.WithFilterStatus(openInTables...))...)
	if err != nil {
		return engine.StoreError("count the open runs", err)
	}
	suspended, err := s.config.Runs.listSuspended(ctx, filters...)
	if err != nil {
		return engine.StoreError("count the open runs", err)
	}
	if len(open)+len(suspended) < most {
		return nil
	}
	return &engine.Error{Code: engine.CodeTooManyInstances, Message: fmt.Sprintf("You have %d open runs, which is the quota.", most), Hint: "Wait until runs have ended, or cancel some; an operator can raise chains.openRuns."}
}

func unknownChain(name string) *engine.Error {
	return &engine.Error{Code: engine.CodeUnknownWorkflow, Path: "/chain", Message: fmt.Sprintf("There is no chain %.80q.", name), Hint: "List the chains."}
}

// findStarted returns the run that the same request started before, or nil if the id is unused. It fails
// with CodeKeyReused if a different request started the run.
func (s *Service) findStarted(ctx context.Context, req StartRequest) (*RunState, error) {
	switch known, err := s.config.Runs.Get(ctx, req.Run); {
	case err == nil:
		if err := s.config.Runs.checkReuse(ctx, req); err != nil {
			return nil, engine.StoreError("compare the run", err)
		}
		return &known, nil
	case !errors.Is(err, ErrUnknownRun):
		return nil, engine.StoreError("read the run", err)
	}
	v, record, err := s.readRecord(ctx, systemPrincipal, req.Run)
	switch {
	case isCode(err, engine.CodeUnknownInstance): // a new one
		return nil, nil //nolint:nilnil // an unused id is not an error
	case err != nil:
		return nil, err
	}
	if err := s.config.Runs.checkRecord(req, v.Chain, v.Principal, record); err != nil {
		return nil, engine.StoreError("compare the run", err)
	}
	return &RunState{RunView: v, swept: true}, nil
}

// ReadRun returns a run with its steps. For a swept run it returns the store's record.
func (s *Service) ReadRun(ctx context.Context, p engine.Principal, run string) (RunView, error) {
	return s.ReadNewSteps(ctx, p, run, "")
}

// ReadNewSteps is like ReadRun, but returns only the steps that have ended since the cursor was returned.
// It may repeat steps that ended while an earlier one was in progress. An empty cursor starts at the
// beginning.
func (s *Service) ReadNewSteps(ctx context.Context, p engine.Principal, run, cursor string) (RunView, error) {
	known, err := s.find(ctx, p, engine.RightRead, run)
	if err != nil {
		return RunView{}, err
	}
	first := 0
	if cursor != "" {
		if first, err = strconv.Atoi(cursor); err != nil || first < 0 {
			return RunView{}, wrongCursor("not one that a run returned", "Leave it out to begin with the first step.")
		}
	}
	return s.view(ctx, p, known, first)
}

func wrongCursor(what, hint string) *engine.Error {
	return &engine.Error{Code: engine.CodeInvalidArgument, Path: "/cursor", Message: "The cursor is " + what + ".", Hint: hint}
}

// ReadStatus is like ReadRun, but omits the steps, because a run may have very many.
func (s *Service) ReadStatus(ctx context.Context, p engine.Principal, run string) (RunView, error) {
	known, err := s.find(ctx, p, engine.RightRead, run)
	if err != nil {
		return RunView{}, err
	}
	return s.outline(ctx, p, known)
}

// WaitRun waits until a run has ended, and returns it.
func (s *Service) WaitRun(ctx context.Context, p engine.Principal, run string) (RunView, error) {
	known, err := s.find(ctx, p, engine.RightRead, run)
	if err != nil {
		return RunView{}, err
	}
	if _, err := s.config.Runs.Wait(ctx, known.Run); err != nil && ctx.Err() != nil {
		return RunView{}, engine.StoreError("wait for the run", err)
	}
	return s.ReadRun(ctx, p, known.Run)
}

// ListRuns returns the runs that the principal may see.
func (s *Service) ListRuns(ctx context.Context, p engine.Principal, req ListRuns) (RunList, error) {
	if err := engine.Authorize(p, engine.RightRead); err != nil {
		return RunList{}, err
	}
	if req.Limit < 0 || req.Limit > 500 {
		return RunList{}, &engine.Error{Code: engine.CodeInvalidArgument, Path: "/limit", Message: "The limit is not between 1 and 500.", Hint: "Leave it out for 50."}
	}
	isOpen := slices.Contains([]RunStatus{StatusRunning, StatusPaused, StatusQueued}, req.Status)
	q := pageQuery{until: time.UnixMilli(time.Now().UnixMilli() + 1), limit: 100, statuses: statusesOf(req.Status), open: isOpen, mayMatch: func(known RunState) bool {
		return canSee(p, known) && (req.Chain == "" || known.Chain == req.Chain) && (req.Status == "" || req.Status == StatusDone || req.Status == known.Status)
	}}
	if req.Cursor != "" {
		var err error
		if q.until, q.offset, err = readCursor(req.Cursor); err != nil {
			return RunList{}, err
		}
	}
	if none, err := s.narrow(ctx, p, req, &q); none || err != nil {
		return RunList{Runs: []RunView{}}, err
	}
	limit := req.Limit
	if limit == 0 {
		limit = 50
	}
	out := RunList{Runs: []RunView{}}
	for {
		list, err := s.config.Runs.page(ctx, q)
		if err != nil {
			return RunList{}, engine.StoreError("list the runs", err)
		}
		waiting, err := s.listQuestions(ctx, list)
		if err != nil {
			return RunList{}, err
		}
		for _, known := range list {
			if len(out.Runs) == limit {
				out.NextCursor = fmt.Sprintf("%d.%d", q.until.UnixMilli(), q.offset)
				return out, nil
			}
			q.pass(known)
			if !q.mayMatch(known) || req.Status != "" && known.Status != req.Status {
				continue
			}
			v := summarize(p, known)
			v.note(waiting[known.Run])
			out.Runs = append(out.Runs, v)
			out.Count++
		}
		if len(list) < q.limit {
			return out, nil
		}
		q.limit = 1000 // most rows will not match
	}
}

// narrow adds filters to the query where the tables support them; none reports that nothing can match.
func (s *Service) narrow(ctx context.Context, p engine.Principal, req ListRuns, q *pageQuery) (none bool, err error) {
	switch {
	case p.Role == engine.RoleAgent && req.Chain != "":
		q.owners = []string{chainOwner(req.Chain, p.ID)}
	case p.Role == engine.RoleAgent:
		for name := range s.config.Chains() {
			q.owners = append(q.owners, chainOwner(name, p.ID))
		}
		return len(q.owners) == 0, nil
	case req.Chain != "" && s.config.Runs.config.Database != nil:
		q.chain = req.Chain
	case req.Chain != "":
		owners, err := s.config.Runs.listOwners(ctx, req.Chain)
		if err != nil {
			return false, engine.StoreError("list the runs", err)
		}
		if len(owners) <= maxOwners {
			q.owners = owners
		}
		return len(owners) == 0, nil
	}
	return false, nil
}

func readCursor(cursor string) (until time.Time, offset int, err error) {
	at, after, _ := strings.Cut(cursor, ".")
	milliseconds, wrong := strconv.ParseInt(at, 10, 64)
	offset, wrong2 := strconv.Atoi(after)
	if wrong != nil || wrong2 != nil || offset < 0 {
		return time.Time{}, 0, wrongCursor("not one that a list returned", "Leave it out to begin with the newest run.")
	}
	return time.UnixMilli(milliseconds), offset, nil
}

// SignalRun sends a value to a run's next wait for a signal of that name.
func (s *Service) SignalRun(ctx context.Context, p engine.Principal, run, name string, value json.RawMessage) (RunView, error) {
	if name == "" || strings.Contains(name, "/") {
		return RunView{}, engine.MissingField("name", "The name of the signal that a step of the chain waits for.")
	}
	decoded, err := readValue("/value", value)
	if err != nil {
		return RunView{}, err
	}
	return s.change(ctx, p, engine.RightAdvance, run, "", func(run string) error { return s.config.Runs.Signal(ctx, run, name, p.ID, decoded) })
}

// AnswerRun states what happened to a call that may have run. The principal that the run acts for may not
// answer.
func (s *Service) AnswerRun(ctx context.Context, p engine.Principal, run, key, answer string, output json.RawMessage) (RunView, error) {
	if !slices.Contains([]string{AnswerHappened, AnswerAgain, AnswerGiveUp}, answer) {
		return RunView{}, &engine.Error{
			Code: engine.CodeInvalidArgument, Path: "/answer", Message: fmt.Sprintf("%.80q is not a valid answer.", answer),
			Hint: fmt.Sprintf("Answer %s, %s or %s.", AnswerHappened, AnswerAgain, AnswerGiveUp),
		}
	}
	decoded, err := readValue("/output", output)
	if err != nil {
		return RunView{}, err
	}
	known, err := s.find(ctx, p, engine.RightResolve, run)
	if err != nil {
		return RunView{}, err
	}
	if p.ID == known.Principal || p.ID == known.ActsFor {
		return RunView{}, &engine.Error{Code: engine.CodeForbidden, Message: "The run acts for you, so you may not report the outcome of its call.", Hint: "Leave the answer to another reviewer."}
	}
	return s.change(ctx, p, engine.RightResolve, known.Run, "", func(run string) error {
		all, err := s.config.Runs.questions(ctx, run)
		if err != nil {
			return err
		}
		asked := all[run]
		at := slices.IndexFunc(asked, func(q RunQuestion) bool { return q.isAboutCall() && q.Key == key })
		switch {
		case at < 0:
			return &engine.Error{Code: engine.CodeReviewClosed, Path: "/key", Message: fmt.Sprintf("The run does not wait for an answer about %.80q.", key), Hint: "Use a key from the run's waiting list."}
		case asked[at].Review == "":
			return s.config.Runs.Answer(ctx, run, key, answer, decoded)
		}
		_, err = s.config.Engine.Resolve(ctx, p, engine.ResolveRequest{
			ID: asked[at].Review, Decision: decisions[answer], Output: output, Reason: "Answered: " + answer + ".",
		})
		return err
	})
}

// decisions maps an answer to the decision that resolves the review of the step.
var decisions = map[string]judge.Outcome{AnswerHappened: judge.Approve, AnswerAgain: judge.Reject, AnswerGiveUp: engine.GiveUp}

// CancelRun ends a run. A call in progress may still complete.
func (s *Service) CancelRun(ctx context.Context, p engine.Principal, run, why string) (RunView, error) {
	return s.change(ctx, p, engine.RightCancel, run, why, func(run string) error { return s.config.Runs.Cancel(ctx, run, p.ID, why) })
}

// PauseRun stops a run before its next step.
func (s *Service) PauseRun(ctx context.Context, p engine.Principal, run, why string) (RunView, error) {
	return s.change(ctx, p, engine.RightOperate, run, why, func(run string) error { return s.config.Runs.Pause(ctx, run, p.ID, why) })
}

// ResumeRun continues a paused run.
func (s *Service) ResumeRun(ctx context.Context, p engine.Principal, run, why string) (RunView, error) {
	return s.change(ctx, p, engine.RightOperate, run, why, func(run string) error { return s.config.Runs.Resume(ctx, run, p.ID, why) })
}

// RedriveRun runs a failed run again from the failed step, as a new run, and returns the new run.
func (s *Service) RedriveRun(ctx context.Context, p engine.Principal, run, why string) (RunView, error) {
	known, err := s.find(ctx, p, engine.RightOperate, run)
	if err == nil {
		err = s.config.Engine.CheckText("why", why)
	}
	if err != nil {
		return RunView{}, err
	}
	if known.Status != StatusFailed {
		return RunView{}, &engine.Error{Code: engine.CodeConflict, Message: fmt.Sprintf("The run %s is %s.", run, known.Status), Hint: "Only a failed run can be run again."}
	}
	again, err := s.config.Runs.Redrive(ctx, known.Run, p.ID, why)
	if err != nil {
		return RunView{}, &engine.Error{Code: engine.CodeConflict, Message: sentence(err), Err: err}
	}
	return s.ReadStatus(ctx, p, again)
}

// change applies do to a run that has not ended, and returns the run. why is the reason for the record.
func (s *Service) change(ctx context.Context, p engine.Principal, right engine.Right, run, why string, do func(run string) error) (RunView, error) {
	known, err := s.find(ctx, p, right, run)
	if err == nil {
		err = s.config.Engine.CheckText("why", why)
	}
	if err != nil {
		return RunView{}, err
	}
	if known.Status.HasEnded() {
		return RunView{}, &engine.Error{Code: engine.CodeInstanceEnded, Message: fmt.Sprintf("The run %s has ended: it is %s.", known.Run, known.Status), Hint: "Start a new run."}
	}
	if err := do(known.Run); err != nil {
		return RunView{}, engine.StoreError("change the run", err)
	}
	return s.ReadStatus(ctx, p, known.Run)
}

func unknownRun(run string) *engine.Error {
	return &engine.Error{Code: engine.CodeUnknownInstance, Path: "/run", Message: fmt.Sprintf("There is no run %.80q that you may see.", run), Hint: "Use the id that the start of the run returned."}
}

func canSee(p engine.Principal, known RunState) bool {
	return p.InScope(WorkflowPrefix+known.Chain) && (p.Role != engine.RoleAgent || known.Principal == p.ID)
}

// note adds each question to Waiting or UnderWay.
func (v *RunView) note(all []RunQuestion) {
	for _, q := range all {
		switch {
		case !q.isUnderWay():
			v.Waiting = append(v.Waiting, q)
		case v.Status != StatusQueued: // in a queued run, the entry is from its last execution
			v.UnderWay = append(v.UnderWay, q)
		}
	}
}

// summarize returns a run as lists show it.
func summarize(p engine.Principal, known RunState) RunView {
	v := known.RunView
	v.Run = displayRunID(p, v.Principal, v.Run)
	if known.Result != nil && known.Result.Err != nil {
		v.Error = known.Result.Err.View().withoutMessage()
	}
	return v
}

// listQuestions returns what the open runs in list wait for or do.
func (s *Service) listQuestions(ctx context.Context, list []RunState) (map[string][]RunQuestion, error) {
	var under []string
	for _, known := range list {
		if !known.Status.HasEnded() {
			under = append(under, known.Run)
		}
	}
	waiting, err := s.config.Runs.questions(ctx, under...)
	if err != nil {
		return nil, engine.StoreError("read what runs wait for", err)
	}
	return waiting, nil
}

// view returns a run with its steps, from record first on.
func (s *Service) view(ctx context.Context, p engine.Principal, known RunState, first int) (RunView, error) {
	v, err := s.outline(ctx, p, known)
	if err != nil || known.swept {
		return v, err
	}
	steps, next, err := s.config.Runs.steps(ctx, known.Run, first)
	if err != nil {
		return RunView{}, engine.StoreError("read the steps of the run", err)
	}
	v.Steps, v.NextCursor = steps, strconv.Itoa(next)
	if !isMaskedFor(p, v) {
		return v, nil
	}
	for i, step := range v.Steps {
		v.Steps[i].Error = step.Error.withoutMessage() // the history of the instance has the message, masked
	}
	return v, nil
}

// outline returns a run without its steps.
func (s *Service) outline(ctx context.Context, p engine.Principal, known RunState) (RunView, error) {
	v := summarize(p, known)
	if known.swept {
		return v, nil
	}
	if known.Result != nil {
		v.Output, v.Error = encodeOutput(known.Result.Output), known.Result.Err.View()
	}
	waiting, err := s.listQuestions(ctx, []RunState{known})
	if err != nil {
		return RunView{}, err
	}
	v.note(waiting[known.Run])
	if !isMaskedFor(p, v) {
		return v, nil
	}
	return v, s.mask(ctx, p, &v)
}

// isMaskedFor reports whether a principal gets only the masked values of the run's record.
func isMaskedFor(p engine.Principal, v RunView) bool {
	return v.Instance != "" && p.Role != engine.RoleOperator && p.ID != v.Principal
}

// encodeOutput encodes the output of a run; nil stays nil.
func encodeOutput(output map[string]any) json.RawMessage {
	if output == nil {
		return nil
	}
	raw, _ := json.Marshal(output) // it was read from JSON
	return raw
}

// mask replaces the output and error of a run by what its record shows to the principal.
func (s *Service) mask(ctx context.Context, p engine.Principal, v *RunView) error {
	v.Output, v.Error = nil, nil
	inst, err := s.config.Engine.Status(ctx, p, v.Instance)
	if err != nil || !v.HasEnded() {
		return err
	}
	var shown struct {
		Output json.RawMessage
		Error  *RunError
	}
	if err := json.Unmarshal(inst.Context, &shown); err != nil {
		return engine.InternalError("read the record of the run", err)
	}
	v.Output, v.Error = shown.Output, shown.Error
	return nil
}

// readValue decodes a JSON value from a caller; an empty one is null.
func readValue(path string, raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // null is a value
	}
	if len(raw) > MaxOutput {
		return nil, &engine.Error{Code: engine.CodeTooLarge, Path: path, Message: fmt.Sprintf("The value has %d bytes; the limit is %d.", len(raw), MaxOutput)}
	}
	if !json.Valid(raw) {
		return nil, &engine.Error{Code: engine.CodeInvalidData, Path: path, Message: "The value is not JSON.", Hint: "Send JSON; quote text."}
	}
	return decodeJSON(raw), nil
}

// sentence formats an error as a sentence.
func sentence(err error) string {
	text := upperFirst(err.Error())
	if strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

func upperFirst(sentence string) string { return strings.ToUpper(sentence[:1]) + sentence[1:] }
