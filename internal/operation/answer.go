package operation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// The answers of tools are read by models, which pay for every word: they say a thing once
// and leave out what is as nearly always. REST answers with the whole result, and
// workflow.status and workflow.judge.history show what is left out here.

// PositionView is where an instance is.
type PositionView struct {
	ID string `json:"id,omitempty"`
	// DefinitionOwner is absent where the definition is the caller's own.
	DefinitionOwner engine.DefinitionOwner `json:"definitionOwner,omitempty"`
	State           string                 `json:"state"`
	NextActions     []string               `json:"nextActions"`
	NextTools       []string               `json:"nextTools,omitempty"`
	Next            []workflow.NextAction  `json:"next,omitempty"`
	MoreActions     int                    `json:"moreActions,omitempty"`
	Progress        string                 `json:"progress,omitempty"` // without what nextActions and nextTools say
	Complete        bool                   `json:"complete"`
	Status          record.Status          `json:"status,omitempty"` // where it is cancelled
	Outcome         string                 `json:"outcome,omitempty"`
	Revision        int64                  `json:"revision,omitempty"`
}

// ViewPosition is a position as tools show it.
func ViewPosition(p engine.Position) PositionView {
	v := PositionView{
		ID: p.ID, DefinitionOwner: p.DefinitionOwner, State: p.State, NextActions: p.NextActions, NextTools: p.NextTools, Next: p.Next, MoreActions: p.MoreActions,
		Progress: strings.TrimSuffix(strings.TrimSuffix(p.Progress, " Next: "+strings.Join(p.NextActions, ", ")+"."), " Tools: "+strings.Join(p.NextTools, ", ")+"."), Complete: p.Complete, Outcome: p.Outcome, Revision: p.Revision,
	}
	if p.DefinitionOwner == engine.OwnedByCaller {
		v.DefinitionOwner = ""
	}
	if p.Status == record.Cancelled {
		v.Status = p.Status
	}
	return v
}

// DecisionView is a decision. What is absent is false, empty, or as usual: proposed is the
// outcome, the mode is enforce, and the findings say all of the reasoning.
type DecisionView struct {
	Outcome     judge.Outcome     `json:"outcome"`
	Proposed    judge.Outcome     `json:"proposed,omitempty"`
	Applied     bool              `json:"applied"`
	Code        string            `json:"code,omitempty"`
	Target      string            `json:"target,omitempty"`
	Confidence  *float64          `json:"confidence,omitempty"` // not where the answer has it beside
	Assurance   judge.Assurance   `json:"assurance"`
	DecidedBy   judge.LayerName   `json:"decidedBy"`
	Degraded    bool              `json:"degraded,omitempty"`
	Fault       bool              `json:"fault,omitempty"`
	Mode        judge.Mode        `json:"mode,omitempty"`
	Reasoning   string            `json:"reasoning,omitempty"`
	Findings    []FindingView     `json:"findings,omitempty"`
	Suggestions []string          `json:"suggestions,omitempty"`
	Warnings    []string          `json:"warnings,omitempty"`
	RetryAfter  int64             `json:"retryAfterMs,omitempty"`
	Evidence    []engine.Evidence `json:"evidence,omitempty"`
}

// FindingView is a finding. The code is absent where it is the decision's; the message where
// the answer has it among its violations, in the same place.
type FindingView struct {
	Code    string `json:"code,omitempty"`
	Path    string `json:"path,omitempty"`
	Keyword string `json:"keyword,omitempty"`
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// ViewDecision is a decision as tools show it.
func ViewDecision(d engine.Decision) DecisionView {
	v := DecisionView{
		Outcome: d.Outcome, Applied: d.Applied, Code: d.Code, Confidence: &d.Confidence, Assurance: d.Assurance,
		DecidedBy: d.DecidedBy, Degraded: d.Degraded, Fault: d.Fault, Reasoning: ownReasoning(d), Suggestions: ownSuggestions(d),
		Warnings: d.Warnings, RetryAfter: d.RetryAfterMs, Evidence: d.Evidence,
	}
	if d.Proposed != d.Outcome {
		v.Proposed = d.Proposed
	}
	if d.Mode != judge.Enforce {
		v.Mode = d.Mode
	}
	for _, f := range d.Findings {
		v.Findings = append(v.Findings, viewFinding(f, d.Code))
	}
	return v
}

func viewFinding(f validators.Finding, usual string) FindingView {
	v := FindingView{Code: f.Code, Path: f.Path, Keyword: f.Keyword, Message: f.Message, Hint: f.Hint}
	if v.Code == usual {
		v.Code = ""
	}
	return v
}

// mostRepeated is how many findings a reasoning repeats at most.
const mostRepeated = 3

// ownReasoning is what a reasoning says beyond the findings: nothing of an approval, and
// nothing where it only repeats them.
func ownReasoning(d engine.Decision) string {
	if d.Outcome == judge.Approve {
		return ""
	}
	for _, f := range d.Findings[:min(len(d.Findings), mostRepeated)] {
		if !strings.Contains(d.Reasoning, strings.TrimRight(f.Message, ".")) {
			return d.Reasoning
		}
	}
	if len(d.Findings) == 0 || d.DecidedBy == judge.LayerModel && saysMore(d) {
		return d.Reasoning
	}
	return ""
}

// saysMore reports whether a reasoning has words that are in no finding.
func saysMore(d engine.Decision) bool {
	rest := d.Reasoning
	for _, f := range append(slices.Clone(d.Findings), validators.Finding{Message: judge.TryAgain, Hint: judge.AwaitsPerson}) {
		for _, text := range []string{f.Message, f.Hint} {
			if text = strings.TrimRight(text, "."); text != "" {
				rest = strings.ReplaceAll(rest, text, "")
			}
		}
	}
	return strings.ContainsFunc(rest, unicode.IsLetter)
}

// ownSuggestions are the suggestions that are no finding's hint. What always helps is left out.
func ownSuggestions(d engine.Decision) []string {
	return slices.DeleteFunc(slices.Clone(d.Suggestions), func(s string) bool {
		return engine.IsUsualSuggestion(s) || slices.ContainsFunc(d.Findings, func(f validators.Finding) bool { return f.Hint == s })
	})
}

// StartAnswer answers workflow.start.
type StartAnswer struct {
	PositionView
	Workflow string       `json:"workflow,omitempty"`
	Version  int          `json:"version"`
	Decision DecisionView `json:"decision"`
	Replayed bool         `json:"replayed,omitempty"`
}

func showStart(r engine.StartResult) any {
	return StartAnswer{PositionView: ViewPosition(r.Position), Workflow: r.Workflow, Version: r.Version, Decision: ViewDecision(r.Decision), Replayed: r.Replayed}
}

// AdvanceAnswer answers workflow.advance.
type AdvanceAnswer struct {
	PositionView
	Decision DecisionView `json:"decision"`
	Review   *ParkedView  `json:"review,omitempty"`
	// Note says what became of a question to a person.
	Note     string `json:"note,omitempty"`
	Replayed bool   `json:"replayed,omitempty"`
}

// ParkedView is the review of the move that was asked for.
type ParkedView struct {
	ID        string              `json:"reviewId"`
	Status    record.ReviewStatus `json:"status"`
	Priority  record.Priority     `json:"priority"`
	ExpiresAt time.Time           `json:"expiresAt,omitzero"`
	Decision  judge.Outcome       `json:"decision,omitempty"`
	By        string              `json:"by,omitempty"`
	Channel   record.Channel      `json:"channel,omitempty"`
	Reason    string              `json:"reason,omitempty"`
	Next      string              `json:"next"`
}

// ShowAdvance is what workflow.advance answers.
func ShowAdvance(r engine.AdvanceResult) AdvanceAnswer {
	a := AdvanceAnswer{PositionView: ViewPosition(r.Position), Decision: ViewDecision(r.Decision), Replayed: r.Replayed}
	if v := r.Review; v != nil {
		a.Review = &ParkedView{
			ID: v.ID, Status: v.Status, Priority: v.Priority, ExpiresAt: v.ExpiresAt, Decision: v.Decision, By: v.By, Channel: v.Channel, Reason: v.Reason, Next: v.Next,
		}
	}
	return a
}

// Prechecked is what the tool workflow.judge.validate answers: what the Generic DFA
// server answers at the top, and what else the decision says beside it. The findings say
// where the violations are, in the same order.
type Prechecked struct {
	Approved    bool     `json:"approved"`
	Confidence  float64  `json:"confidence"`
	Reasoning   string   `json:"reasoning"`
	Violations  []string `json:"violations"`
	Suggestions []string `json:"suggestions"`
	PositionView
	Decision DecisionView `json:"decision"`
}

func showValidate(r engine.ValidateResult) any {
	d := r.Decision
	out := Prechecked{
		Approved: r.Approved, Confidence: d.Confidence, Reasoning: d.Reasoning, Violations: d.Violations, Suggestions: d.Suggestions,
		PositionView: ViewPosition(r.Position), Decision: ViewDecision(d),
	}
	v := &out.Decision
	if !r.Approved && v.Reasoning == "" {
		out.Reasoning = fmt.Sprintf("The %s layer objects; the violations say to what.", d.DecidedBy)
	}
	*v = v.withoutWords()
	v.Confidence, v.Target, v.Warnings = nil, d.Target, d.Warnings
	return out
}

// withoutWords is a decision whose words stand elsewhere in the answer, in the same order.
func (v DecisionView) withoutWords() DecisionView {
	v.Reasoning, v.Suggestions, v.Warnings, v.Findings = "", nil, nil, slices.Clone(v.Findings)
	for i := range v.Findings {
		v.Findings[i].Message, v.Findings[i].Hint = "", ""
	}
	if !slices.ContainsFunc(v.Findings, func(f FindingView) bool { return f != FindingView{} }) {
		v.Findings = nil
	}
	return v
}

// MovedAnswer answers what puts an instance into another state without judging it:
// workflow.rollback, workflow.undo, workflow.redo and workflow.cancel.
type MovedAnswer struct {
	PositionView
	Action   string          `json:"action,omitempty"`
	Context  json.RawMessage `json:"context,omitempty"`
	Message  string          `json:"message"`
	Replayed bool            `json:"replayed,omitempty"`
}

func showMoved(r engine.MovedResult) any {
	return MovedAnswer{PositionView: ViewPosition(r.Position), Action: r.Action, Context: r.Context, Message: r.Message, Replayed: r.Replayed}
}

// CheckpointAnswer answers workflow.checkpoint. This tool, workflow.listCheckpoints and
// workflow.judge.history name the instance as those of the Generic DFA server do.
type CheckpointAnswer struct {
	CheckpointID string          `json:"checkpointId"`
	Instance     string          `json:"workflowId"`
	State        string          `json:"state"`
	Revision     int64           `json:"revision"`
	Timestamp    time.Time       `json:"timestamp"`
	Description  string          `json:"description"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Replayed     bool            `json:"replayed,omitempty"`
}

func showCheckpoint(r engine.CheckpointResult) any { return CheckpointAnswer(r) }

// CheckpointsAnswer answers workflow.listCheckpoints.
type CheckpointsAnswer struct {
	Instance    string             `json:"workflowId"`
	Checkpoints []CheckpointAnswer `json:"checkpoints"`
	Count       int                `json:"count"`
}

func showCheckpoints(r engine.CheckpointsResult) any {
	out := CheckpointsAnswer{Instance: r.Instance, Checkpoints: make([]CheckpointAnswer, len(r.Checkpoints)), Count: r.Count}
	for i, c := range r.Checkpoints {
		out.Checkpoints[i] = CheckpointAnswer(c)
	}
	return out
}

// CanExecuteAnswer answers workflow.canExecute.
type CanExecuteAnswer struct {
	Allowed  bool     `json:"allowed"`
	Required []string `json:"requiredStates"`
	Reason   string   `json:"reason"`
	PositionView
}

// ResolveAnswer answers workflow.review.resolve.
type ResolveAnswer struct {
	PositionView
	Review   engine.ReviewSummary `json:"review"`
	Applied  bool                 `json:"applied"`
	Decision DecisionView         `json:"decision"`
	Message  string               `json:"message"`
	Replayed bool                 `json:"replayed,omitempty"`
}

// ListedDefinition is one workflow of workflow.list.
type ListedDefinition struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     int    `json:"version"`
	Operator    bool   `json:"operatorOwned,omitempty"`
	Shared      bool   `json:"shared,omitempty"`
	// StartRequires are the fields that a start context must have.
	StartRequires []string `json:"startRequires,omitempty"`
	States        int      `json:"states"`
}

// ListAnswer answers workflow.list.
type ListAnswer struct {
	Workflows []ListedDefinition `json:"workflows"`
	Count     int                `json:"count"`
}

func showList(r DefinitionList) any {
	out := ListAnswer{Workflows: []ListedDefinition{}, Count: r.Count}
	for _, d := range r.Workflows {
		out.Workflows = append(out.Workflows, ListedDefinition{
			Name: d.Name, Description: d.Description, Version: d.Version, Operator: d.Operator, Shared: d.Shared, StartRequires: d.StartRequires, States: d.States,
		})
	}
	return out
}

// HistoryAnswer answers workflow.judge.history.
type HistoryAnswer struct {
	Instance  string        `json:"workflowId"`
	Decisions []HistoryView `json:"decisions"`
	Count     int           `json:"count"`
	Total     *int          `json:"total,omitempty"`
	NextAfter int64         `json:"nextAfter,omitempty"`
}

// HistoryView is one decision of a history.
type HistoryView struct {
	Seq       int64           `json:"seq"`
	Time      time.Time       `json:"time"`
	Kind      record.Kind     `json:"kind"`
	Precheck  bool            `json:"precheck,omitempty"`
	Principal string          `json:"principal"`
	Role      string          `json:"role"`
	Action    string          `json:"action,omitempty"`
	From      string          `json:"from,omitempty"`
	To        string          `json:"to,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	ID        string          `json:"decisionId,omitempty"`
	DecisionView
	Opinions []engine.Opinion `json:"opinions,omitempty"`
	Sandbox  []string         `json:"sandbox,omitempty"`
	ReviewID string           `json:"reviewId,omitempty"`
	Hash     string           `json:"hash"`
}

func showHistory(r engine.HistoryResult) any {
	out := HistoryAnswer{Instance: r.Instance, Decisions: []HistoryView{}, Count: r.Count, Total: r.Total, NextAfter: r.NextAfter}
	for i := range r.Decisions {
		out.Decisions = append(out.Decisions, viewEntry(&r.Decisions[i]))
	}
	return out
}

// FoundAnswer answers a search with workflow.judge.history.
type FoundAnswer struct {
	Decisions  []FoundView `json:"decisions"`
	Count      int         `json:"count"`
	NextCursor string      `json:"nextCursor,omitempty"`
}

// FoundView is one decision that a search found.
type FoundView struct {
	Instance string `json:"id"`
	Workflow string `json:"workflow"`
	Version  int    `json:"version"`
	HistoryView
}

func showDecisions(r engine.DecisionsResult) any {
	out := FoundAnswer{Decisions: []FoundView{}, Count: r.Count, NextCursor: r.NextCursor}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		out.Decisions = append(out.Decisions, FoundView{d.Instance, d.Workflow, d.Version, viewEntry(&d.HistoryEntry)})
	}
	return out
}

func viewEntry(h *engine.HistoryEntry) HistoryView {
	v := HistoryView{
		Seq: h.Seq, Time: h.Time, Kind: h.Kind, Precheck: h.Precheck, Principal: h.Principal, Role: h.Role, Action: h.Action, From: h.From, To: h.To,
		Data: h.Data, ID: h.Decision.ID, DecisionView: ViewDecision(h.Decision), Opinions: slices.Clone(h.Opinions), Sandbox: h.Sandbox, ReviewID: h.ReviewID, Hash: h.Hash,
	}
	v.Target = h.Target
	if h.Outcome == judge.Approve { // the record of what somebody relied on
		v.Reasoning = h.Reasoning
	}
	for i := range v.Opinions { // what the decision says for them all
		o := &v.Opinions[i]
		if strings.Contains(h.Reasoning, o.Reasoning) {
			o.Reasoning = ""
		}
		o.Findings = slices.DeleteFunc(slices.Clone(o.Findings), func(f validators.Finding) bool { return slices.Contains(h.Findings, f) })
		o.Suggestions = slices.DeleteFunc(slices.Clone(o.Suggestions), func(s string) bool { return slices.Contains(h.Suggestions, s) })
		o.Sandbox = nil
	}
	return v
}
