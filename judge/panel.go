package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Panel is a set of models that all judge the same move, independently. They are not fallbacks for each other.
type Panel struct {
	// Models are 2 to MaxSamples different models.
	Models []string  `json:"models"`
	Rule   PanelRule `json:"rule,omitempty"`
	// Weights are used with RuleWeighted: one above zero for each model.
	Weights []float64 `json:"weights,omitempty"`
}

// PanelRule determines how many approvals a panel needs to approve. Rejections by more than half (of the
// models, or of their weights) always reject; any other split goes to a person. A model without an answer
// counts toward the total, but for neither side.
type PanelRule string

// The rules: all models must approve (also the meaning of ""), more than half of the models, or models with
// more than half of the total weight.
const (
	RuleAll      PanelRule = "all"
	RuleMajority PanelRule = "majority"
	RuleWeighted PanelRule = "weighted"
)

// Stage is a model that is asked before the others. It decides only if it approves with a
// calibrated confidence of at least AcceptAbove; otherwise its answer is ignored.
type Stage struct {
	Model       string  `json:"model"`
	AcceptAbove float64 `json:"acceptAbove"`
}

// MaxStages is the maximum length of a cascade.
const MaxStages = 3

func (s Stage) accepts(op Opinion) bool {
	return op.Outcome == Approve && op.Assurance == AssuranceLLMCalibrated && op.Confidence >= s.AcceptAbove
}

// Vote is the result of one model of a panel or cascade.
type Vote struct {
	Model string `json:"model"`
	// Stage is true for a model of the cascade: it decided alone, or was ignored.
	Stage      bool      `json:"stage,omitempty"`
	Outcome    Outcome   `json:"outcome"`
	Confidence float64   `json:"confidence"`
	Assurance  Assurance `json:"assurance"`
	// Trouble says why there is no judgement. Failure is the class of the failure.
	Trouble Trouble               `json:"trouble,omitempty"`
	Failure string                `json:"failure,omitempty"`
	Calls   int                   `json:"calls"`
	CostUSD *float64              `json:"costUSD,omitempty"`
	Took    document.Milliseconds `json:"tookMs"`
}

func voteOf(name string, stage bool, op Opinion) Vote {
	return Vote{
		Model: name, Stage: stage, Outcome: op.Outcome, Confidence: op.Confidence, Assurance: op.Assurance, Trouble: op.Trouble,
		Failure: op.Model.Failure, Calls: op.Model.Calls, CostUSD: op.Model.CostUSD, Took: op.Took,
	}
}

// Models returns all models that may be asked about a case; "" is the default model.
func (r Rubric) Models() []string {
	var names []string
	for _, s := range r.Cascade {
		names = append(names, s.Model)
	}
	if r.Panel != nil {
		return append(names, r.Panel.Models...)
	}
	return append(names, r.Model)
}

// votes returns the models to ask if no stage of the cascade decides, one entry for each answer.
func (r Rubric) votes() []string {
	if r.Panel != nil {
		return r.Panel.Models
	}
	return slices.Repeat([]string{r.Model}, max(r.Samples, 1))
}

// Answers returns the number of answers that are requested if no stage of the cascade decides.
func (r Rubric) Answers() int { return len(r.votes()) }

// BestTogether returns the highest confidence that the answers can reach if all agree.
func (r Rubric) BestTogether() float64 {
	if n := r.Answers(); n > 1 {
		return sharedConfidence(n, n)
	}
	return 1
}

// sharedConfidence returns the confidence of k agreeing answers out of n (Laplace's rule of succession).
func sharedConfidence(k, n int) float64 { return roundConfidence(float64(k+1) / float64(n+2)) }

// weights returns the weight of each answer.
func (r Rubric) weights(n int) []float64 {
	if r.Panel != nil && r.Panel.Rule == RuleWeighted && len(r.Panel.Weights) == n {
		return r.Panel.Weights
	}
	return slices.Repeat([]float64{1}, n)
}

// Validate reports all problems of a panel; a nil panel is valid.
func (p *Panel) Validate() error {
	if p == nil {
		return nil
	}
	var errs []error
	if n := len(p.Models); n < 2 || n > MaxSamples {
		errs = append(errs, fmt.Errorf("panel.models names %d models; name 2 to %d", n, MaxSamples))
	}
	if i := findRepeated(p.Models); i >= 0 {
		errs = append(errs, fmt.Errorf("panel.models names %.80q twice; to ask one model several times, use samples", p.Models[i]))
	}
	if slices.Contains(p.Models, "") {
		errs = append(errs, errors.New("panel.models has an empty name"))
	}
	switch p.Rule {
	case "", RuleAll, RuleMajority, RuleWeighted:
	default:
		errs = append(errs, fmt.Errorf("panel.rule %.40q is unknown; use %q, %q or %q", p.Rule, RuleAll, RuleMajority, RuleWeighted))
	}
	switch {
	case p.Rule != RuleWeighted && p.Weights != nil:
		errs = append(errs, fmt.Errorf("panel.weights apply only with rule %q; remove them or set that rule", RuleWeighted))
	case p.Rule == RuleWeighted && len(p.Weights) != len(p.Models):
		errs = append(errs, fmt.Errorf("panel.weights has %d numbers for %d models; give one for each", len(p.Weights), len(p.Models)))
	}
	for _, w := range p.Weights {
		if !(w > 0 && w <= maxWeight) {
			errs = append(errs, fmt.Errorf("panel.weights has %v; a weight must be above 0 and at most %d", w, maxWeight))
		}
	}
	return errors.Join(errs...)
}

const maxWeight = 1000

// ValidateCascade reports all problems of a cascade.
func ValidateCascade(stages []Stage) error {
	var errs []error
	if len(stages) > MaxStages {
		errs = append(errs, fmt.Errorf("cascade has %d stages; use at most %d", len(stages), MaxStages))
	}
	for i, s := range stages {
		if s.Model == "" {
			errs = append(errs, fmt.Errorf("cascade[%d].model is empty", i))
		}
		if !(s.AcceptAbove > 0.5 && s.AcceptAbove <= 1) {
			errs = append(errs, fmt.Errorf("cascade[%d].acceptAbove is %v, must be above 0.5 and at most 1", i, s.AcceptAbove))
		}
	}
	return errors.Join(errs...)
}

func findRepeated(names []string) int {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return i
		}
	}
	return -1
}

// modelQuestion selects how one model is asked.
type modelQuestion struct {
	model  string
	sample int
	// alone prevents asking another model if this one is unavailable.
	alone bool
	// began is the time of the decision's first question. share is the number of questions, including
	// this one, among which the remaining time is divided.
	began time.Time
	share int
}

// askCascade asks the stages in order until one decides. It returns all opinions; accepted reports that the
// last one decides. The error is the context's, or reports a bug.
func (m *modelLayer) askCascade(ctx context.Context, c Case, began time.Time) (ops []Opinion, accepted bool, err error) {
	for i, s := range c.Rubric.Cascade {
		op, err := m.askMember(ctx, c, modelQuestion{s.Model, 0, true, began, len(c.Rubric.Cascade) - i + 1})
		if _, busy := errors.AsType[*BusyError](err); err != nil && !busy {
			return nil, false, err
		}
		ops = append(ops, op)
		if s.accepts(op) {
			return ops, true, nil
		}
	}
	return ops, false, nil
}

// askMember asks one model, ignoring panel and cascade.
func (m *modelLayer) askMember(ctx context.Context, c Case, of modelQuestion) (Opinion, error) {
	c.Rubric.Model, c.Rubric.Panel, c.Rubric.Cascade = of.model, nil, nil
	asked := time.Now()
	op, err := m.askModel(ctx, c, of)
	op.Took = document.Milliseconds(time.Since(asked))
	return op, err
}

// settleVotes returns the opinion that follows from the answers. It records each vote and the total cost.
// stages are the opinions of the cascade; if accepted, the last one decides.
func settleVotes(r Rubric, stages []Opinion, accepted bool, ops []Opinion) Opinion {
	var op Opinion
	if accepted {
		op = stages[len(stages)-1]
	} else {
		op = combineVotes(r, ops)
	}
	if r.Panel == nil && len(r.Cascade) == 0 {
		return op
	}
	model := *op.Model
	for i, s := range stages {
		model.Votes = append(model.Votes, voteOf(r.Cascade[i].Model, true, s))
	}
	for i, o := range ops {
		model.Votes = append(model.Votes, voteOf(cmp.Or(r.votes()[i], o.Model.Model), false, o))
	}
	model.addCosts(slices.Concat(stages, ops))
	if r.Panel != nil && !accepted {
		model.Model = strings.Join(r.Panel.Models, " + ")
	}
	op.Model = &model
	return op
}
