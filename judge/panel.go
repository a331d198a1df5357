package judge

import (
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
}

// PanelRule determines how many approvals a panel needs to approve. Rejections by more than half of the
// models always reject; any other split goes to a person. A model without an answer counts toward the
// total, but for neither side.
type PanelRule string

// The rules: all models must approve (also the meaning of ""), or more than half of them.
const (
	RuleAll      PanelRule = "all"
	RuleMajority PanelRule = "majority"
)

// Vote is the result of one model of a panel.
type Vote struct {
	Model      string    `json:"model"`
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

// Models returns the models to ask about a case, one entry for each answer; "" is the default model.
func (r Rubric) Models() []string {
	if r.Panel != nil {
		return r.Panel.Models
	}
	return slices.Repeat([]string{r.Model}, max(r.Samples, 1))
}

// BestTogether returns the highest confidence that the answers can reach if all agree.
func (r Rubric) BestTogether() float64 {
	if n := len(r.Models()); n > 1 {
		return sharedConfidence(n, n)
	}
	return 1
}

// sharedConfidence returns the confidence of k agreeing answers out of n (Laplace's rule of succession).
func sharedConfidence(k, n int) float64 { return roundConfidence(float64(k+1) / float64(n+2)) }

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
	case "", RuleAll, RuleMajority:
	default:
		errs = append(errs, fmt.Errorf("panel.rule %.40q is unknown; use %q or %q", p.Rule, RuleAll, RuleMajority))
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
	sample int
	// alone prevents asking another model if this one is unavailable.
	alone bool
	// began is the time of the decision's first question.
	began time.Time
}

// settleVotes returns the opinion that follows from the answers. It records the votes of a panel.
func settleVotes(r Rubric, ops []Opinion) Opinion {
	op := combineVotes(r, ops)
	if r.Panel == nil {
		return op
	}
	model := *op.Model
	model.Model = strings.Join(r.Panel.Models, " + ")
	for i, o := range ops {
		model.Votes = append(model.Votes, Vote{
			Model: r.Panel.Models[i], Outcome: o.Outcome, Confidence: o.Confidence, Assurance: o.Assurance, Trouble: o.Trouble,
			Failure: o.Model.Failure, Calls: o.Model.Calls, CostUSD: o.Model.CostUSD, Took: o.Took,
		})
	}
	op.Model = &model
	return op
}
