package operation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Chains run steps across MCP servers. Each call names who asks; errors are the engine's.
type Chains interface {
	ListChains(context.Context, engine.Principal) ([]ChainView, error)
	ListRuns(context.Context, engine.Principal, RunsRequest) (RunList, error)
	StartRun(context.Context, engine.Principal, StartRunRequest) (RunView, error)
	ReadRun(context.Context, engine.Principal, RunRequest) (RunView, error)
	// WaitRun returns the run once it has ended; the error is ctx's where that is sooner.
	WaitRun(ctx context.Context, p engine.Principal, run string) (RunView, error)
	SignalRun(context.Context, engine.Principal, SignalRequest) (RunView, error)
	AnswerRun(context.Context, engine.Principal, AnswerRequest) (RunView, error)
	CancelRun(context.Context, engine.Principal, ChangeRunRequest) (RunView, error)
	PauseRun(context.Context, engine.Principal, ChangeRunRequest) (RunView, error)
	ResumeRun(context.Context, engine.Principal, ChangeRunRequest) (RunView, error)
	RedriveRun(context.Context, engine.Principal, ChangeRunRequest) (RunView, error)
	Schedules
}

// ChainView is a chain that may be run.
type ChainView struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Tags are for who selects chains, and not shown.
	Tags map[string]string `json:"-"`
	Hash string            `json:"hash"`
	// Steps is how many it has.
	Steps       int             `json:"steps"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
}

// ChainList lists chains by name.
type ChainList struct {
	Chains []ChainView `json:"chains"`
	Count  int         `json:"count"`
}

// RunStatus is where a run stands.
type RunStatus string

// The statuses.
const (
	RunQueued    RunStatus = "queued" // waits for its turn, or for a server that runs chains
	RunRunning   RunStatus = "running"
	RunPaused    RunStatus = "paused"
	RunDone      RunStatus = "done"
	RunFailed    RunStatus = "failed"
	RunCancelled RunStatus = "cancelled"
)

// HasEnded reports whether nothing more happens to a run.
func (s RunStatus) HasEnded() bool { return s == RunDone || s == RunFailed || s == RunCancelled }

// RunView is a run of a chain as it stands.
type RunView struct {
	Run    string    `json:"run"`
	Chain  string    `json:"chain"`
	Status RunStatus `json:"status"`
	// Principal owns it, and is whom it acts for unless ActsFor is another one.
	Principal string    `json:"principal"`
	ActsFor   string    `json:"actsFor,omitempty"`
	Instance  string    `json:"id,omitempty"` // that records it, in the store
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt,omitzero"`
	// Note is what a person last did to it.
	Note *RunNote `json:"note,omitempty"`
	// Waiting is what it waits for, UnderWay what its steps have been doing for a while.
	Waiting  []RunQuestion `json:"waiting,omitempty"`
	UnderWay []RunQuestion `json:"underWay,omitempty"`
	// Output is an object, the result of a run that is done.
	Output json.RawMessage `json:"output,omitempty"`
	Error  *RunError       `json:"error,omitempty"`
	// Steps are what has ended of the steps; lists leave them out.
	Steps []RunStep `json:"steps,omitempty"`
	// NextCursor continues behind Steps.
	NextCursor string `json:"nextCursor,omitempty"`
	// Swept says that its retention is over: the history of its instance has the steps.
	Swept bool `json:"swept,omitempty"`
}

// RunNote is what a person last did to a run.
type RunNote struct {
	Paused bool      `json:"paused,omitempty"`
	By     string    `json:"by"`
	Why    string    `json:"why,omitempty"`
	At     time.Time `json:"at"`
}

// RunQuestion is something that a run waits for, or that is under way in it.
type RunQuestion struct {
	// Kind of what it waits for: signal; step, a person's word on a call that may have run; input, what the
	// server of a call asks for; review, a person's decision; state, of another instance; sleep. Kind of
	// what is under way: call, complete, test or move.
	Kind string `json:"kind"`
	// Key is that of the answer; of a signal its name; of all else that of the step's execution.
	Key    string    `json:"key"`
	Step   string    `json:"step"`
	Server string    `json:"server,omitempty"`
	Name   string    `json:"name,omitempty"` // of a tool, a model or a workflow
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // when it ends at the latest
	Review string    `json:"reviewId,omitempty"`
	// Instance is waited for until it is in State.
	Instance string `json:"id,omitempty"`
	State    string `json:"state,omitempty"`
}

// Describe names what is waited for or under way.
func (q RunQuestion) Describe() string {
	called := strings.Trim(q.Server+"/"+q.Name, "/")
	switch q.Kind {
	case "signal":
		return "the signal " + q.Key
	case "step":
		return "a person's word on " + called
	case "input":
		return "a person's input for " + called
	case "review":
		return "a person's decision"
	case "state":
		return fmt.Sprintf("%s to be in state %s", q.Instance, q.State)
	case "sleep":
		return "its time, " + q.Until.Format(time.RFC3339)
	case "complete":
		return "an answer of the model " + q.Name
	case "test":
		return "a script"
	case "move":
		return strings.TrimSpace("a move of a workflow " + q.Name)
	default:
		return "a call of " + called
	}
}

// RunError is why a step failed, and with it perhaps the run.
type RunError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Step    string `json:"step,omitempty"`
	Key     string `json:"key,omitempty"`
	// MayHaveRun says that what was asked for may have been done.
	MayHaveRun bool `json:"mayHaveRun,omitempty"`
}

// Why is the message, or what there is where it may not be shown.
func (e RunError) Why() string { return cmp.Or(e.Message, e.Code, "the reason is not recorded") }

// Describe names the step that failed, and why.
func (e RunError) Describe() string {
	if e.Step == "" {
		return e.Why()
	}
	return e.Step + ": " + e.Why()
}

// RunStep is one execution of a step: an attempt, in an iteration.
type RunStep struct {
	Key       string    `json:"key"`
	Op        string    `json:"op"`
	Status    RunStatus `json:"status"` // done or failed
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt"`
	Error     *RunError `json:"error,omitempty"`
}

// RunList is one page of runs, newest first.
type RunList struct {
	Runs       []RunView `json:"runs"`
	Count      int       `json:"count"`
	NextCursor string    `json:"nextCursor,omitempty"`
}

// RunsRequest asks for runs.
type RunsRequest struct {
	Chain  string
	Status RunStatus
	Limit  int
	Cursor string
}

// StartRunRequest asks for a run.
type StartRunRequest struct {
	Chain string
	Run   string // its id; "" for a new one
	Input json.RawMessage
}

// RunRequest names a run. With the cursor that a run returned, only later steps come, and perhaps some of
// those before.
type RunRequest struct{ Run, Cursor string }

// RunResultRequest asks what came of a run, and waits for it so many seconds.
type RunResultRequest struct {
	Run  string
	Wait *int64 // nil is waitUsual
}

// SignalRequest gives a value to a run.
type SignalRequest struct {
	Run, Name string
	Value     json.RawMessage
}

// AnswerRequest says what became of a call that may have run.
type AnswerRequest struct {
	Run, Key, Answer string
	Output           json.RawMessage
}

// ChangeRunRequest asks to cancel, pause, resume or redrive a run.
type ChangeRunRequest struct{ Run, Reason string }

// askChains is a run of an operation that is one method of the chains.
func askChains[Req, Res any](method func(Chains, context.Context, engine.Principal, Req) (Res, error)) func(context.Context, Call, Req) (Res, error) {
	return func(ctx context.Context, c Call, req Req) (res Res, err error) {
		if c.Chains == nil {
			return res, &engine.Error{Code: engine.CodeUnknownWorkflow, Message: "There are no chains here.", Hint: "An operator declares them in the section chains of the configuration file."}
		}
		return method(c.Chains, ctx, c.Caller.Principal, req)
	}
}

// waitUsual is how many seconds a caller waits for the end of a run who does not say, and waitMost how
// many one may.
const waitUsual, waitMost = 30, 300

// waitResult returns a run once it has ended, or the time is over.
func waitResult(chains Chains, ctx context.Context, p engine.Principal, req RunResultRequest) (RunView, error) {
	wait := time.Duration(waitUsual) * time.Second
	if req.Wait != nil {
		wait = time.Duration(*req.Wait) * time.Second
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if v, err := chains.WaitRun(within, p, req.Run); err == nil || within.Err() == nil || ctx.Err() != nil {
		return v, err
	}
	return chains.ReadRun(ctx, p, RunRequest{Run: req.Run})
}

var (
	fieldRun    = Field{Name: "run", Required: true, Help: "The run's id."}
	fieldReason = Field{Name: "reason", Help: "Why, for the record."}
)

// The operations on chains.
var (
	Chain = addOperation(Operation{
		ID: "listChains", Group: "chains", Title: "List chains", Right: engine.RightRead,
		Description: "List the chains that you may run, with the schema of their input. A chain is a procedure of the operator's: steps across MCP servers.",
		Tool:        Tool{Name: "chain.list", ReadOnly: true},
		Routes:      []Route{{At: "GET /v1/chains"}},
		Show:        adapt(showChains),
	}, askChains(func(chains Chains, ctx context.Context, p engine.Principal, _ Empty) (ChainList, error) {
		all, err := chains.ListChains(ctx, p)
		return ChainList{Chains: all, Count: len(all)}, err
	}))
	StartRun = addOperation(Operation{
		ID: "startRun", Group: "chains", Title: "Run a chain", Right: engine.RightStart,
		Description: "Start a run of a chain. It goes on by itself, and acts for you: its steps may do what you may.",
		Fields: []Field{
			{Name: "chain", Required: true, Help: "The chain's name."},
			{Name: "input", Open: true, Help: "Its input: a JSON object, as inputSchema says."},
			{Name: "run", Help: "An id of your own for the run: the same request with the same id returns that run, another one is refused."},
		},
		Tool:     Tool{Name: "chain.start", Note: "Returns the run's id; chain.result waits for the end."},
		Routes:   []Route{{At: "POST /v1/runs", Created: true}},
		Show:     adapt(showRun),
		Location: adapt(func(r RunView) string { return "/v1/runs/" + url.PathEscape(r.Run) }),
	}, askChains(Chains.StartRun))
	Runs = addOperation(Operation{
		ID: "listRuns", Group: "chains", Title: "List runs", Right: engine.RightRead,
		Description: "List your runs, newest first.",
		Fields: []Field{
			{Name: "chain", Help: "Only of this chain."},
			{Name: "status", Enum: []string{string(RunQueued), string(RunRunning), string(RunPaused), string(RunDone), string(RunFailed), string(RunCancelled)}, Help: "Only of this status."},
			fieldCursor, pageLimit("runs", 500),
		},
		Routes: []Route{{At: "GET /v1/runs", Note: "Reviewers, operators and auditors see those of all callers."}},
	}, askChains(Chains.ListRuns))
	Run = addOperation(Operation{
		ID: "getRun", Group: "chains", Title: "Show a run", Right: engine.RightRead,
		Description: "Show where a run is: its status, the steps that have ended, what it waits for, and what is under way.",
		Fields:      []Field{fieldRun, {Name: "cursor", HTTPOnly: true, Help: "nextCursor of an earlier answer: only steps that have ended since, and perhaps some of those before."}},
		Tool:        Tool{Name: "chain.status", ReadOnly: true},
		Routes:      []Route{{At: "GET /v1/runs/{run}"}},
		Show:        adapt(showSteps),
	}, askChains(Chains.ReadRun))
	RunResult = addOperation(Operation{
		ID: "getRunResult", Group: "chains", Title: "Wait for the result of a run", Right: engine.RightRead,
		Description: "Wait for the end of a run, and return its output, or why it failed. A run that takes longer is returned as it is, and goes on.",
		Fields:      []Field{fieldRun, {Name: "wait", Range: &Range{0, waitMost}, Help: fmt.Sprintf("How many seconds to wait at most, 0 to %d; %d when left out.", waitMost, waitUsual)}},
		Tool:        Tool{Name: "chain.result", ReadOnly: true},
		Routes:      []Route{{At: "GET /v1/runs/{run}/result"}},
		Show:        adapt(showResult),
		Refused:     adapt(func(r RunView) bool { return r.Status == RunFailed || r.Status == RunCancelled }),
	}, askChains(waitResult))
	SignalRun = addOperation(Operation{
		ID: "signalRun", Group: "chains", Title: "Signal a run", Right: engine.RightAdvance,
		Description: "Give a value to the next step of a run that waits for a signal of that name, also where the run has not come to it yet.",
		Fields: []Field{
			fieldRun,
			{Name: "name", Required: true, Help: "The signal's name."},
			{Name: "value", Kind: Any, Help: "The signal's value: any JSON; null when left out."},
		},
		Routes: []Route{{At: "POST /v1/runs/{run}/signal"}},
	}, askChains(Chains.SignalRun))
	AnswerRun = addOperation(Operation{
		ID: "answerRun", Group: "chains", Title: "Say what became of a call", Right: engine.RightResolve,
		Description: "Say what became of a step's call that may have been done, because gavel was stopped while it was under way. By a reviewer or an operator for whom the run does not act.",
		Fields: []Field{
			fieldRun,
			{Name: "key", Required: true, Help: "The key of what the run waits for."},
			{Name: "answer", Required: true, Enum: []string{"happened", "again", "give-up"}, Help: "happened: it was done, and gave output. again: it was not done, and is to be made. give-up: the run ends."},
			{Name: "output", Kind: Any, Help: "What the call gave, where it happened: any JSON, null for nothing."},
		},
		Routes: []Route{{At: "POST /v1/runs/{run}/answer"}},
	}, askChains(Chains.AnswerRun))
	CancelRun = addOperation(Operation{
		ID: "cancelRun", Group: "chains", Title: "Cancel a run", Right: engine.RightCancel,
		Description: "End a run for good. A call that is under way may still be done; what its steps did stays done.",
		Fields:      []Field{fieldRun, fieldReason},
		Tool:        Tool{Name: "chain.cancel", Destructive: true},
		Routes:      []Route{{At: "POST /v1/runs/{run}/cancel"}},
		Show:        adapt(showRun),
	}, askChains(Chains.CancelRun))
	PauseRun = addOperation(Operation{
		ID: "pauseRun", Group: "chains", Title: "Pause a run", Right: engine.RightOperate,
		Description: "Stop a run before its next step; what is under way ends first.",
		Fields:      []Field{fieldRun, fieldReason},
		Routes:      []Route{{At: "POST /v1/runs/{run}/pause"}},
	}, askChains(Chains.PauseRun))
	ResumeRun = addOperation(Operation{
		ID: "resumeRun", Group: "chains", Title: "Resume a run", Right: engine.RightOperate,
		Description: "Let a paused run go on.",
		Fields:      []Field{fieldRun, fieldReason},
		Routes:      []Route{{At: "POST /v1/runs/{run}/resume"}},
	}, askChains(Chains.ResumeRun))
	RedriveRun = addOperation(Operation{
		ID: "redriveRun", Group: "chains", Title: "Redrive a run", Right: engine.RightOperate,
		Description: "Run a failed run again from the step that failed, as a new run, which is returned; a repeated request returns the same run. What ended before keeps its outcome. Of a call that may have been done and may not run twice a person is asked first.",
		Fields:      []Field{fieldRun, fieldReason},
		Routes:      []Route{{At: "POST /v1/runs/{run}/redrive"}},
	}, askChains(Chains.RedriveRun))
)

// ListedChain is one chain of chain.list.
type ListedChain struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
}

// ListChainsAnswer answers chain.list.
type ListChainsAnswer struct {
	Chains []ListedChain `json:"chains"`
	Count  int           `json:"count"`
}

func showChains(r ChainList) any {
	shown := ListChainsAnswer{Chains: []ListedChain{}, Count: r.Count}
	for _, v := range r.Chains {
		shown.Chains = append(shown.Chains, ListedChain{Name: v.Name, Description: v.Description, InputSchema: v.InputSchema})
	}
	return shown
}

// RunAnswer is a run as tools show it.
type RunAnswer struct {
	Run      string          `json:"run"`
	Chain    string          `json:"chain"`
	Status   RunStatus       `json:"status"`
	Waiting  []RunQuestion   `json:"waiting,omitempty"`
	UnderWay []RunQuestion   `json:"underWay,omitempty"`
	Steps    []RunStepAnswer `json:"steps,omitempty"`
	Output   json.RawMessage `json:"output,omitempty"`
	// Failure is why the run failed: an error is that nothing was done.
	Failure *RunError `json:"failure,omitempty"`
}

// RunStepAnswer is an execution of a step as tools show it.
type RunStepAnswer struct {
	Key     string    `json:"key"`
	Status  RunStatus `json:"status"`
	Failure *RunError `json:"failure,omitempty"`
}

func showRun(r RunView) any {
	return RunAnswer{Run: r.Run, Chain: r.Chain, Status: r.Status, Waiting: r.Waiting, UnderWay: r.UnderWay, Failure: r.Error}
}

func showSteps(r RunView) any {
	a, _ := showRun(r).(RunAnswer)
	for _, s := range r.Steps {
		a.Steps = append(a.Steps, RunStepAnswer{s.Key, s.Status, s.Error})
	}
	return a
}

func showResult(r RunView) any {
	a, _ := showRun(r).(RunAnswer)
	a.Output = r.Output
	return a
}
