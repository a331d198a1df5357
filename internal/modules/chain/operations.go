package chain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// ServiceName is the key of the Source in operation.Call.Services.
const ServiceName = "chain"

// Source returns the chains. The methods about runs work only if runs is set.
type Source func(ctx context.Context, runs bool) (Chains, error)

// Chains lists and runs chains, which are steps across MCP servers, on request and on schedules. Each call names
// the calling principal; errors are those of package engine.
type Chains interface {
	ListChains(context.Context, engine.Principal) ([]ChainView, error)
	ListRuns(context.Context, engine.Principal, ListRuns) (RunList, error)
	StartRun(context.Context, engine.Principal, StartRun) (RunView, error)
	ReadNewSteps(ctx context.Context, p engine.Principal, run, cursor string) (RunView, error)
	WaitRun(ctx context.Context, p engine.Principal, run string) (RunView, error)
	SignalRun(ctx context.Context, p engine.Principal, run, name string, value json.RawMessage) (RunView, error)
	AnswerRun(ctx context.Context, p engine.Principal, run, key, answer string, output json.RawMessage) (RunView, error)
	CancelRun(ctx context.Context, p engine.Principal, run, why string) (RunView, error)
	PauseRun(ctx context.Context, p engine.Principal, run, why string) (RunView, error)
	ResumeRun(ctx context.Context, p engine.Principal, run, why string) (RunView, error)
	RedriveRun(ctx context.Context, p engine.Principal, run, why string) (RunView, error)
	ListSchedules(context.Context, engine.Principal) ([]ScheduleView, error)
	PauseSchedule(ctx context.Context, p engine.Principal, chain, why string) (ScheduleView, error)
	ResumeSchedule(ctx context.Context, p engine.Principal, chain, why string) (ScheduleView, error)
	TriggerSchedule(ctx context.Context, p engine.Principal, chain, why string) (Tick, error)
}

// ChainList lists chains by name.
type ChainList struct { //nolint:revive // the name of the schema in the OpenAPI document
	Chains []ChainView `json:"chains"`
	Count  int         `json:"count"`
}

// ScheduleList lists schedules by the names of their chains.
type ScheduleList struct {
	Schedules []ScheduleView `json:"schedules"`
	Count     int            `json:"count"`
}

// RunRequest selects a run. With the cursor of an earlier answer, the result has only steps that have ended since,
// and possibly some earlier ones.
type RunRequest struct{ Run, Cursor string }

// RunResultRequest asks for the result of a run, and waits for it up to Wait seconds.
type RunResultRequest struct {
	Run  string
	Wait *int64 // nil means defaultWait
}

// SignalRequest sends a value to a run.
type SignalRequest struct {
	Run, Name string
	Value     json.RawMessage
}

// AnswerRequest states what happened to a call that may have run.
type AnswerRequest struct {
	Run, Key, Answer string
	Output           json.RawMessage
}

// ChangeRunRequest asks to cancel, pause, resume or redrive a run.
type ChangeRunRequest struct{ Run, Reason string }

// ChangeScheduleRequest asks to pause, resume or trigger the schedule of a chain.
type ChangeScheduleRequest struct{ Chain, Reason string }

// add registers an operation on chains. runs reports whether the operation needs the methods about runs.
func add[Req, Res any](o operation.Operation, runs bool, ask func(Chains, context.Context, engine.Principal, Req) (Res, error)) operation.Typed[Req, Res] {
	o.Group, o.Service = "chains", ServiceName
	return operation.Add(o, func(ctx context.Context, c operation.Call, req Req) (res Res, err error) {
		chains, err := findChains(ctx, c, runs)
		if err != nil {
			return res, err
		}
		return ask(chains, ctx, c.Caller.Principal, req)
	})
}

// findChains returns the chains that a call operates on.
func findChains(ctx context.Context, c operation.Call, runs bool) (Chains, error) {
	source, ok := c.Services[ServiceName].(Source)
	if !ok {
		return nil, &engine.Error{Code: engine.CodeUnknownWorkflow, Message: "No chains are configured.", Hint: "Ask an operator to declare them in the section chains of the configuration file."}
	}
	return source(ctx, runs)
}

// addChange registers an operation that changes a run, with a reason for the record.
func addChange(o operation.Operation, change func(s Chains, ctx context.Context, p engine.Principal, run, why string) (RunView, error)) operation.Typed[ChangeRunRequest, RunView] {
	verb, _, _ := strings.Cut(o.ID, "Run")
	o.Fields, o.Routes = []operation.Field{fieldRun, fieldReason}, []operation.Route{{At: "POST /v1/runs/{run}/" + verb}}
	return add(o, true, func(s Chains, ctx context.Context, p engine.Principal, req ChangeRunRequest) (RunView, error) {
		return change(s, ctx, p, req.Run, req.Reason)
	})
}

// addScheduleChange registers an operation that changes a schedule, with a reason for the record.
func addScheduleChange[Res any](o operation.Operation, change func(s Chains, ctx context.Context, p engine.Principal, chain, why string) (Res, error)) operation.Typed[ChangeScheduleRequest, Res] {
	verb, _, _ := strings.Cut(o.ID, "Schedule")
	o.Right, o.Routes = engine.RightOperate, []operation.Route{{At: "POST /v1/schedules/{chain}/" + verb}}
	o.Fields = []operation.Field{{Name: "chain", Required: true, Help: "The name of a chain that has a schedule."}, fieldReason}
	return add(o, false, func(s Chains, ctx context.Context, p engine.Principal, req ChangeScheduleRequest) (Res, error) {
		return change(s, ctx, p, req.Chain, req.Reason)
	})
}

// defaultWait is the default number of seconds to wait for the end of a run, and maxWait the maximum.
const defaultWait, maxWait = 30, 300

// waitResult returns a run once it has ended, or in its current state when the wait times out.
func waitResult(chains Chains, ctx context.Context, p engine.Principal, req RunResultRequest) (RunView, error) {
	wait := time.Duration(defaultWait) * time.Second
	if req.Wait != nil {
		wait = time.Duration(*req.Wait) * time.Second
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if v, err := chains.WaitRun(within, p, req.Run); err == nil || within.Err() == nil || ctx.Err() != nil {
		return v, err //nolint:wrapcheck // an *engine.Error
	}
	return chains.ReadNewSteps(ctx, p, req.Run, "") //nolint:wrapcheck // also an *engine.Error
}

// watchResult reports the number of ended steps to a caller that waits for the end of a run.
func watchResult(c operation.Call, req RunResultRequest) func(context.Context) (string, error) {
	ended, cursor := map[string]bool{}, ""
	return func(ctx context.Context) (string, error) {
		chains, err := findChains(ctx, c, true)
		if err != nil {
			return "", err
		}
		now, err := chains.ReadNewSteps(ctx, c.Caller.Principal, req.Run, cursor)
		if err != nil {
			return "", err //nolint:wrapcheck // an *engine.Error
		}
		cursor = now.NextCursor
		for _, s := range now.Steps {
			ended[s.Op+" "+s.Key] = true
		}
		return fmt.Sprintf("%s of %s is %s; ended steps: %d.", now.Run, now.Chain, now.Status, len(ended)), nil
	}
}

var (
	fieldRun    = operation.Field{Name: "run", Required: true, Help: "The run's id.", Complete: completeRun}
	fieldReason = operation.Field{Name: "reason", Help: "The reason, for the record."}
)

// The operations on chains.
var (
	AskChains = add(operation.Operation{
		ID: "listChains", Title: "List chains", Right: engine.RightRead,
		Description: "List the chains that you may run, with their input schemas. A chain is a procedure of the operator: steps across MCP servers.",
		Tool:        operation.Tool{Name: "chain.list", ReadOnly: true},
		Routes:      []operation.Route{{At: "GET /v1/chains"}},
		Show:        operation.Adapt(showChains),
	}, false, func(chains Chains, ctx context.Context, p engine.Principal, _ operation.Empty) (ChainList, error) {
		all, err := chains.ListChains(ctx, p)
		return ChainList{Chains: all, Count: len(all)}, err
	})
	AskStart = add(operation.Operation{
		ID: "startRun", Title: "Run a chain", Right: engine.RightStart,
		Description: "Start a run of a chain. It runs on its own, with your rights.",
		Fields: []operation.Field{
			{Name: "chain", Required: true, Help: "The chain's name."},
			{Name: "input", Open: true, Help: "Its input: a JSON object that matches inputSchema."},
			{Name: "run", Help: "Your own id for the run: repeating the request returns that run; another request with this id is refused."},
		},
		Tool:     operation.Tool{Name: "chain.start", Note: "Returns the run's id; chain.result waits for the end."},
		Routes:   []operation.Route{{At: "POST /v1/runs", Created: true}},
		Show:     operation.Adapt(showRun),
		Location: operation.Adapt(func(r RunView) string { return "/v1/runs/" + url.PathEscape(r.Run) }),
	}, true, Chains.StartRun)
	AskRuns = add(operation.Operation{
		ID: "listRuns", Title: "List runs", Right: engine.RightRead,
		Description: "List your runs, newest first.",
		Fields: []operation.Field{
			{Name: "chain", Help: "Only runs of this chain."},
			{Name: "status", Enum: []string{string(StatusQueued), string(StatusRunning), string(StatusPaused), string(StatusDone), string(StatusFailed), string(StatusCancelled)}, Help: "Only runs with this status."},
			operation.FieldCursor, operation.PageLimit("runs", 500),
		},
		Routes: []operation.Route{{At: "GET /v1/runs", Note: "Reviewers, operators and auditors see the runs of all callers."}},
	}, true, Chains.ListRuns)
	AskRun = add(operation.Operation{
		ID: "getRun", Title: "Show a run", Right: engine.RightRead,
		Description: "Show a run: its status, ended steps, waits, and steps under way.",
		Fields:      []operation.Field{fieldRun, {Name: "cursor", HTTPOnly: true, Help: "nextCursor of an earlier answer: only steps that have ended since, and perhaps some earlier ones."}},
		Tool:        operation.Tool{Name: "chain.status", ReadOnly: true},
		Routes:      []operation.Route{{At: "GET /v1/runs/{run}"}},
		Show:        operation.Adapt(showSteps),
	}, true, func(chains Chains, ctx context.Context, p engine.Principal, req RunRequest) (RunView, error) {
		return chains.ReadNewSteps(ctx, p, req.Run, req.Cursor)
	})
	AskResult = add(operation.Operation{
		ID: "getRunResult", Title: "Wait for the result of a run", Right: engine.RightRead,
		Description: "Wait for a run to end, and return its output or failure. A run that takes longer continues, and is returned in its current state.",
		Fields:      []operation.Field{fieldRun, {Name: "wait", Range: &operation.Range{Min: 0, Max: maxWait}, Help: fmt.Sprintf("Maximum seconds to wait, 0 to %d (default %d).", maxWait, defaultWait)}},
		Tool:        operation.Tool{Name: "chain.result", ReadOnly: true},
		Routes:      []operation.Route{{At: "GET /v1/runs/{run}/result"}},
		Show:        operation.Adapt(showResult),
		Refused:     operation.Adapt(func(r RunView) bool { return r.Status == StatusFailed || r.Status == StatusCancelled }),
		Watch: func(c operation.Call, req any) func(context.Context) (string, error) {
			return watchResult(c, *req.(*RunResultRequest)) //nolint:forcetypeassert // its request
		},
	}, true, waitResult)
	AskSignal = add(operation.Operation{
		ID: "signalRun", Title: "Signal a run", Right: engine.RightAdvance,
		Description: "Send a signal to a run. It is kept until a step waits for it.",
		Fields: []operation.Field{
			fieldRun,
			{Name: "name", Required: true, Help: "The signal's name."},
			{Name: "value", Kind: operation.Any, Help: "The signal's value: any JSON (default null)."},
		},
		Routes: []operation.Route{{At: "POST /v1/runs/{run}/signal"}},
	}, true, func(chains Chains, ctx context.Context, p engine.Principal, req SignalRequest) (RunView, error) {
		return chains.SignalRun(ctx, p, req.Run, req.Name, req.Value)
	})
	_ = add(operation.Operation{
		ID: "answerRun", Title: "Report the outcome of a call", Right: engine.RightResolve,
		Description: "Report the outcome of a step's call that was interrupted when gavel was stopped, and may have been done. The caller must be a reviewer or an operator, but not the principal that the run acts for.",
		Fields: []operation.Field{
			fieldRun,
			{Name: "key", Required: true, Help: "The key of the call in the run's waiting list."},
			{Name: "answer", Required: true, Enum: []string{AnswerHappened, AnswerAgain, AnswerGiveUp}, Help: "happened: it was done, and returned output. again: it was not done; make it again. give-up: end the run."},
			{Name: "output", Kind: operation.Any, Help: "The output of a call that happened: any JSON, or null."},
		},
		Routes: []operation.Route{{At: "POST /v1/runs/{run}/answer"}},
	}, true, func(chains Chains, ctx context.Context, p engine.Principal, req AnswerRequest) (RunView, error) {
		return chains.AnswerRun(ctx, p, req.Run, req.Key, req.Answer, req.Output)
	})
	AskCancel = addChange(operation.Operation{
		ID: "cancelRun", Title: "Cancel a run", Right: engine.RightCancel,
		Description: "End a run permanently. A call that is under way may still complete; completed steps are not undone.",
		Tool:        operation.Tool{Name: "chain.cancel", Destructive: true},
		Show:        operation.Adapt(showRun),
	}, Chains.CancelRun)
	AskPause = addChange(operation.Operation{
		ID: "pauseRun", Title: "Pause a run", Right: engine.RightOperate,
		Description: "Stop a run before its next step; steps under way end first.",
	}, Chains.PauseRun)
	AskResume = addChange(operation.Operation{
		ID: "resumeRun", Title: "Resume a run", Right: engine.RightOperate,
		Description: "Continue a paused run.",
	}, Chains.ResumeRun)
	AskRedrive = addChange(operation.Operation{
		ID: "redriveRun", Title: "Redrive a run", Right: engine.RightOperate,
		Description: "Run a failed run again from the step that failed, as a new run, and return it; a repeated request returns the same run. Earlier steps keep their outcomes. A person is asked first about a call that may have been done and may not run twice.",
	}, Chains.RedriveRun)
	AskSchedules = add(operation.Operation{
		ID: "listSchedules", Title: "List schedules", Right: engine.RightRead,
		Description: "List the schedules of chains, with the next run, the outcome of the last tick, and who paused it. Agents see none.",
		Routes:      []operation.Route{{At: "GET /v1/schedules"}},
	}, false, func(chains Chains, ctx context.Context, p engine.Principal, _ operation.Empty) (ScheduleList, error) {
		all, err := chains.ListSchedules(ctx, p)
		return ScheduleList{Schedules: all, Count: len(all)}, err
	})
	AskPauseSchedule = addScheduleChange(operation.Operation{
		ID: "pauseSchedule", Title: "Pause a schedule",
		Description: "Pause a schedule: its ticks start no runs until it is resumed. Runs under way continue.",
	}, Chains.PauseSchedule)
	AskResumeSchedule = addScheduleChange(operation.Operation{
		ID: "resumeSchedule", Title: "Resume a schedule",
		Description: "Resume a paused schedule from now on. Ticks that passed during the pause are skipped.",
	}, Chains.ResumeSchedule)
	AskTrigger = addScheduleChange(operation.Operation{
		ID: "triggerSchedule", Title: "Trigger a schedule",
		Description: "Request a run now, with the rules of the schedule, even while it is paused. A server that runs chains starts it within seconds; run is the id that it will have.",
	}, Chains.TriggerSchedule)
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

// RunAnswer is the view of a run that tools return.
type RunAnswer struct {
	Run      string          `json:"run"`
	Chain    string          `json:"chain"`
	Status   RunStatus       `json:"status"`
	Waiting  []RunQuestion   `json:"waiting,omitempty"`
	UnderWay []RunQuestion   `json:"underWay,omitempty"`
	Steps    []RunStepAnswer `json:"steps,omitempty"`
	Output   json.RawMessage `json:"output,omitempty"`
	// Failure says why the run failed. If the call itself fails, an error is returned instead, and nothing was done.
	Failure *RunError `json:"failure,omitempty"`
}

// RunStepAnswer is the view of a step's execution that tools return.
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

// RunError describes why a step or a run failed.
type RunError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Step    string `json:"step,omitempty"`
	Key     string `json:"key,omitempty"`
	// MayHaveRun reports that the operation may have been done.
	MayHaveRun bool `json:"mayHaveRun,omitempty"`
}

// View returns the error as it is shown to callers.
func (e *StepError) View() *RunError {
	if e == nil {
		return nil
	}
	return &RunError{Code: e.Code, Message: e.Message, Step: e.Step, Key: e.Key, MayHaveRun: e.MayHaveRun}
}

// withoutMessage returns the error without its message, for callers that may not see it.
func (e *RunError) withoutMessage() *RunError {
	if e == nil {
		return nil
	}
	return &RunError{Code: e.Code, Step: e.Step, Key: e.Key}
}

// Why returns the message, or the code if there is no message.
func (e RunError) Why() string { return cmp.Or(e.Message, e.Code, "the reason is not recorded") }

// Describe names the failed step and the reason.
func (e RunError) Describe() string {
	if e.Step == "" {
		return e.Why()
	}
	return e.Step + ": " + e.Why()
}

// Describe names what the run waits for or does.
func (q RunQuestion) Describe() string {
	called := strings.Trim(q.Server+"/"+q.Name, "/")
	switch q.Kind {
	case QuestionSignal:
		return "the signal " + q.Key
	case QuestionStep:
		return "a person's answer about " + called
	case QuestionInput:
		return "a person's input for " + called
	case QuestionReview:
		return "a person's decision"
	case QuestionState:
		return fmt.Sprintf("%s to be in state %s", q.Instance, q.State)
	case QuestionSleep:
		return "its time, " + q.Until.Format(time.RFC3339)
	case string(OpComplete):
		return "an answer from the model " + q.Name
	case string(OpTest):
		return "a script"
	case string(OpMove):
		return strings.TrimSpace("a move of a workflow " + q.Name)
	default:
		return "a call of " + called
	}
}
