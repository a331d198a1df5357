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
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// Models read the answers of tools, and every word costs tokens. So tools return the engine's results without
// repetitions and without default values. REST returns the complete results. workflow.status and workflow.judge.history
// show what is omitted here.

// The fields that tools omit from results with a position: see BriefPosition.
var (
	omitPosition = []string{"workflow", "version", "seq"}
	omitFrom     = append([]string{"from"}, omitPosition...)
	omitMove     = append([]string{"action"}, omitFrom...)
)

// BriefPosition returns a position as tools show it. It omits the workflow, which the caller knows, the parts of
// progress that nextActions and nextTools repeat, and a status that complete implies.
func BriefPosition(p engine.Position) engine.Position {
	p.Workflow, p.Version, p.Seq = "", 0, 0
	p.Progress = strings.TrimSuffix(p.Progress, " Next: "+strings.Join(p.NextActions, ", ")+".")
	p.Progress = strings.TrimSuffix(p.Progress, " Tools: "+strings.Join(p.NextTools, ", ")+".")
	if p.DefinitionOwner == engine.OwnedByCaller {
		p.DefinitionOwner = ""
	}
	if p.Status != record.Cancelled {
		p.Status = ""
	}
	return p
}

// BriefDecision returns a decision as tools show it. Absent values are the usual ones: proposed equals the outcome,
// the mode is enforce, the code of a finding is the decision's, and the findings contain the whole reasoning.
func BriefDecision(d engine.Decision) engine.Decision {
	d.Reasoning, d.Suggestions = extraReasoning(d), extraSuggestions(d)
	d.ID, d.Target, d.Violations, d.Sandbox = "", "", nil, nil
	if d.Proposed == d.Outcome {
		d.Proposed = ""
	}
	if d.Mode == judge.Enforce {
		d.Mode = ""
	}
	d.Findings = slices.Clone(d.Findings)
	for i := range d.Findings {
		if f := &d.Findings[i]; f.Code == d.Code {
			f.Code = ""
		}
	}
	return d
}

// maxRepeated is the maximum number of findings that a reasoning repeats.
const maxRepeated = 3

// extraReasoning returns the reasoning if it adds anything to the findings. It returns "" for an approval, and if the
// reasoning only repeats the findings.
func extraReasoning(d engine.Decision) string {
	if d.Outcome == judge.Approve {
		return ""
	}
	for _, f := range d.Findings[:min(len(d.Findings), maxRepeated)] {
		if !strings.Contains(d.Reasoning, strings.TrimRight(f.Message, ".")) {
			return d.Reasoning
		}
	}
	if len(d.Findings) == 0 || d.DecidedBy == judge.LayerModel && addsWords(d) {
		return d.Reasoning
	}
	return ""
}

// addsWords reports whether a reasoning has words that no finding has.
func addsWords(d engine.Decision) bool {
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

// extraSuggestions returns the suggestions that are neither generic nor the hint of a finding.
func extraSuggestions(d engine.Decision) (own []string) {
	for _, s := range d.Suggestions {
		if !engine.IsUsualSuggestion(s) && !slices.ContainsFunc(d.Findings, func(f validators.Finding) bool { return f.Hint == s }) {
			own = append(own, s)
		}
	}
	return own
}

func briefStart(r engine.StartResult) any {
	workflow, version := r.Workflow, r.Version
	r.Position, r.Decision = BriefPosition(r.Position), BriefDecision(r.Decision)
	r.Workflow, r.Version = workflow, version
	return r
}

func briefAdvance(r engine.AdvanceResult) any {
	r.Position, r.Decision, r.From, r.Action = BriefPosition(r.Position), BriefDecision(r.Decision), "", ""
	if v := r.Review; v != nil { // review of the requested move
		r.Review = &engine.ReviewSummary{
			ID: v.ID, Status: v.Status, Priority: v.Priority, ExpiresAt: v.ExpiresAt, Decision: v.Decision, By: v.By, Channel: v.Channel, Reason: v.Reason, Next: v.Next,
		}
	}
	return r
}

// Prechecked is the answer of the tool workflow.judge.validate. The top level has the fields of the Generic DFA
// server, and decision has the rest. The findings locate the violations, in the same order.
type Prechecked struct {
	Confidence  float64  `json:"confidence"`
	Reasoning   string   `json:"reasoning"`
	Violations  []string `json:"violations"`
	Suggestions []string `json:"suggestions"`
	engine.ValidateResult
}

func briefValidate(r engine.ValidateResult) any {
	d := r.Decision
	out := Prechecked{ValidateResult: r, Confidence: d.Confidence, Reasoning: d.Reasoning, Violations: d.Violations, Suggestions: d.Suggestions}
	if !r.Approved && extraReasoning(d) == "" {
		out.Reasoning = fmt.Sprintf("The %s layer objects; the violations name the problems.", d.DecidedBy)
	}
	out.Position, out.Decision, out.Action = BriefPosition(r.Position), BriefDecision(d), ""
	v := &out.Decision
	v.Target, v.Reasoning, v.Suggestions = d.Target, "", nil // the texts are at the top level
	for i := range v.Findings {
		v.Findings[i].Message, v.Findings[i].Hint = "", ""
	}
	if !slices.ContainsFunc(v.Findings, func(f validators.Finding) bool { return f != validators.Finding{} }) {
		v.Findings = nil
	}
	return out
}

func briefMoved(r engine.MovedResult) any {
	r.Position, r.From = BriefPosition(r.Position), ""
	return r
}

func briefCanExecute(r engine.CanExecuteResult) any {
	r.Position = BriefPosition(r.Position)
	return r
}

func briefResolve(r engine.ResolveResult) any {
	r.Position, r.Decision = BriefPosition(r.Position), BriefDecision(r.Decision)
	return r
}

// CheckpointAnswer answers workflow.checkpoint. This tool, workflow.listCheckpoints and workflow.judge.history call
// the instance workflowId, as the Generic DFA server does.
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

func briefList(r DefinitionList) any {
	r.Workflows = slices.Clone(r.Workflows)
	for i := range r.Workflows {
		d := &r.Workflows[i]
		d.Hash, d.Owner, d.CreatedAt = "", "", time.Time{}
	}
	return r
}

// HistoryAnswer answers workflow.judge.history.
type HistoryAnswer struct {
	Instance string `json:"workflowId"`
	engine.HistoryResult
}

func briefHistory(r engine.HistoryResult) any {
	out := HistoryAnswer{r.Instance, r}
	out.HistoryResult.Instance, out.Decisions = "", slices.Clone(r.Decisions)
	for i := range out.Decisions {
		briefEntry(&out.Decisions[i])
	}
	return out
}

func briefDecisions(r engine.DecisionsResult) any {
	r.Decisions = slices.Clone(r.Decisions)
	for i := range r.Decisions {
		briefEntry(&r.Decisions[i].HistoryEntry)
	}
	return r
}

// briefEntry shortens an entry like BriefDecision, but keeps the fields that readers of records need.
func briefEntry(h *engine.HistoryEntry) {
	full := h.Decision
	h.Decision = BriefDecision(full)
	h.ID, h.Target, h.Sandbox, h.Took, h.CostUSD, h.Tool = full.ID, full.Target, full.Sandbox, 0, nil, ""
	if full.Outcome == judge.Approve { // an approval's reasoning is the record that others relied on
		h.Reasoning = full.Reasoning
	}
	all := h.Opinions
	h.Opinions = nil
	for _, o := range all { // without the texts that the decision already has
		if strings.Contains(full.Reasoning, o.Reasoning) {
			o.Reasoning = ""
		}
		o.Findings = slices.DeleteFunc(slices.Clone(o.Findings), func(f validators.Finding) bool { return slices.Contains(full.Findings, f) })
		o.Suggestions = slices.DeleteFunc(slices.Clone(o.Suggestions), func(s string) bool { return slices.Contains(full.Suggestions, s) })
		o.Sandbox = nil
		h.Opinions = append(h.Opinions, o)
	}
}
