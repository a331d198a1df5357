package eval

import (
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Report is everything that Evaluate found out: numbers and words, nothing that still
// has to be computed. A pointer that is nil is a figure that cannot be given (nothing
// to divide by, no model spoke); it must be shown as missing, never as 0.
//
// The same cases, results and options give the same report, whatever order they come in.
type Report struct {
	Options Options `json:"options"`
	// Evaluated is false when so much is missing that the figures say nothing about the
	// judge; NotEvaluated says why. The figures are there all the same.
	Evaluated    bool   `json:"evaluated"`
	NotEvaluated string `json:"notEvaluated,omitempty"`
	// Incomplete is true when something has no outcome, however little.
	Incomplete bool `json:"incomplete,omitempty"`
	// Notes are the conventions behind the figures and whatever weakens them, as
	// sentences, the most important first. Every rendering shows all of them.
	Notes  []string `json:"notes"`
	Counts Counts   `json:"counts"`

	// FalseApprove is the rate of approvals among the cases that must not be approved:
	// those whose right outcome is reject or escalate. Its Upper is the figure to look
	// at first. FalseApproveGroups counts the same by group: groups with a false
	// approval among groups with a case that must not be approved.
	FalseApprove       Rate `json:"falseApprove"`
	FalseApproveGroups Rate `json:"falseApproveGroups"`
	// WrongApprovals is the rate of wrong ones among the approvals: what somebody who
	// relies on an approval risks on cases mixed like these.
	WrongApprovals Rate `json:"wrongApprovals"`
	// FalseRefuse is the rate of rejections and escalations among the cases that should
	// be approved; FalseReject of rejections alone.
	FalseRefuse Rate `json:"falseRefuse"`
	FalseReject Rate `json:"falseReject"`
	Escalation  Rate `json:"escalation"`
	Unreadable  Rate `json:"unreadable"`
	// Accuracy is the rate of outcomes that are exactly the right ones; GateAccuracy
	// that of cases where approved or not is right.
	Accuracy     Rate `json:"accuracy"`
	GateAccuracy Rate `json:"gateAccuracy"`
	// Reasons is the rate, among the refusals of cases that name codes, of those that
	// give at least one of them.
	Reasons Rate `json:"reasons"`

	Confusion Confusion    `json:"confusion"`
	Classes   []ClassScore `json:"classes"` // approve, reject, escalate; those that occur
	// MacroPrecision and the like are plain means over Classes.
	MacroPrecision *float64 `json:"macroPrecision,omitempty"`
	MacroRecall    *float64 `json:"macroRecall,omitempty"`
	MacroF1        *float64 `json:"macroF1,omitempty"`
	// Kappa is Cohen's, of approved or not; OutcomeKappa that of the three outcomes.
	Kappa        Estimate `json:"kappa"`
	OutcomeKappa Estimate `json:"outcomeKappa"`
	// Clustered are bootstrap intervals of the rates that have one, for the reader who
	// wants to see what the groups cost.
	Clustered ClusteredIntervals `json:"clustered"`
	// Weighted are the rates by the cases' weights, nil when all weigh the same.
	Weighted *WeightedRates `json:"weighted,omitempty"`

	// Probability says how good the probabilities are, nil when no model spoke.
	Probability *Probability `json:"probability,omitempty"`
	// ApprovalConfidence says how good the confidences of the model's approvals are, by themselves:
	// minConfidence acts on nothing else. nil when the model approved nothing.
	ApprovalConfidence *ConfidenceScore `json:"approvalConfidence,omitempty"`
	// Selective is what is gained by leaving the least certain answers to a person, over
	// all answers of the model; Approvals the same over its approvals alone, where risk
	// is WrongApprovals. nil when no model spoke.
	Selective *RiskCurve `json:"selective,omitempty"`
	Approvals *RiskCurve `json:"approvals,omitempty"`

	Flips     Flips      `json:"flips"`
	Baselines []Baseline `json:"baselines"`
	Slices    []Slice    `json:"slices"`
	// SlicesLeftOut is how many slices were too small to be listed among so many.
	SlicesLeftOut int              `json:"slicesLeftOut,omitempty"`
	Criteria      []CriterionScore `json:"criteria,omitempty"`
	Cost          Cost             `json:"cost"`
	Worst         []WorstCase      `json:"worst"`
}

// Counts says what the figures stand on.
type Counts struct {
	Cases int `json:"cases"` // in the splits asked for
	// Scored rows: one for each case, or for each repeat with Options.Pool.
	Scored int `json:"scored"`
	Groups int `json:"groups"` // among the scored
	// ExpectApprove and the like count the scored by their right outcome.
	ExpectApprove  int `json:"expectApprove"`
	ExpectReject   int `json:"expectReject"`
	ExpectEscalate int `json:"expectEscalate"`
	// Missing cases have no result at all, Failed ones only failures.
	Missing int `json:"missing"`
	Failed  int `json:"failed"`
	// FailedResults counts single failures, repeats included, by reason.
	FailedResults int     `json:"failedResults"`
	Failures      []Tally `json:"failures,omitempty"`
	Unreadable    int     `json:"unreadable"` // among the cases with an outcome
	Excluded      int     `json:"excluded"`   // unreadable and left out by policy
	Results       int     `json:"results"`    // of these cases
	// UnknownResults belong to no case, DuplicateCases have an id that came before,
	// DuplicateResults a repeat that came before; none of them counts.
	UnknownResults   int           `json:"unknownResults,omitempty"`
	DuplicateCases   int           `json:"duplicateCases,omitempty"`
	DuplicateResults int           `json:"duplicateResults,omitempty"`
	Splits           map[Split]int `json:"splits"` // of the cases counted
	Labels           []Tally       `json:"labels"` // by source
	// Digest of the cases counted ("sha256:…"): another one means other cases.
	Digest string `json:"digest"`
}

// Tally is a word and how often it came.
type Tally struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// Rate is K of N with bounds at Options.Confidence in which a group of cases is one draw: exact
// (Clopper and Pearson 1934) where every case is alone.
type Rate struct {
	K int `json:"k"`
	N int `json:"n"`
	// Draws is the number of independent draws of equal weight that the bounds rest on: N
	// where every case is alone, the number of groups where all have one size.
	Draws float64 `json:"draws"`
	// Value is K/N, nil when N is 0.
	Value *float64 `json:"value,omitempty"`
	// Low and High are the two-sided interval.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Upper is the one-sided upper bound: with the confidence asked for, the rate lies
	// below it. 1 when N is 0.
	Upper float64 `json:"upper"`
}

// Interval is two-sided.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Estimate is a figure with its bootstrap interval (percentiles, groups resampled).
type Estimate struct {
	// Value is nil when the figure is not defined on these cases.
	Value *float64 `json:"value,omitempty"`
	// Interval is nil when the figure is undefined in more than half of the resamples.
	Interval *Interval `json:"interval,omitempty"`
	// Undefined is how many resamples had no such figure.
	Undefined int `json:"undefined,omitempty"`
}

// ClusteredIntervals are bootstrap intervals, nil as in Estimate.
type ClusteredIntervals struct {
	FalseApprove *Interval `json:"falseApprove,omitempty"`
	Escalation   *Interval `json:"escalation,omitempty"`
	Accuracy     *Interval `json:"accuracy,omitempty"`
	GateAccuracy *Interval `json:"gateAccuracy,omitempty"`
}

// WeightedRates are rates by Case.Weight, nil as in Estimate.
type WeightedRates struct {
	FalseApprove *float64 `json:"falseApprove,omitempty"`
	Escalation   *float64 `json:"escalation,omitempty"`
	Accuracy     *float64 `json:"accuracy,omitempty"`
	GateAccuracy *float64 `json:"gateAccuracy,omitempty"`
}

// Confusion counts the scored cases: two rows of three, and the second row once more
// by what was right.
type Confusion struct {
	ExpectApprove    OutcomeCounts `json:"expectApprove"`
	ExpectNotApprove OutcomeCounts `json:"expectNotApprove"`
	ExpectReject     OutcomeCounts `json:"expectReject"`
	ExpectEscalate   OutcomeCounts `json:"expectEscalate"`
}

// OutcomeCounts counts outcomes.
type OutcomeCounts struct {
	Approve  int `json:"approve"`
	Reject   int `json:"reject"`
	Escalate int `json:"escalate"`
}

// ClassScore says how well one outcome is told from the others.
type ClassScore struct {
	Outcome   judge.Outcome `json:"outcome"`
	Precision Rate          `json:"precision"`
	Recall    Rate          `json:"recall"`
	// F1 is 0 when the outcome is never hit, and nil when it neither is right nor was
	// given.
	F1 *float64 `json:"f1,omitempty"`
}

// Probability says how good Result.Approval is as the probability that an approval is
// right, over the results where a model spoke.
type Probability struct {
	N int `json:"n"`
	// Base is the share of cases that should be approved.
	Base float64 `json:"base"`
	// Brier is the mean squared error, 0 best; BrierBase what always stating Base gives;
	// BrierSkill 1 - Brier/BrierBase, below 0 worse than stating Base.
	Brier      Estimate `json:"brier"`
	BrierBase  float64  `json:"brierBase"`
	BrierSkill *float64 `json:"brierSkill,omitempty"`
	// ECE is the expected calibration error over Bins, MCE the largest bin's.
	ECE float64 `json:"ece"`
	MCE float64 `json:"mce"`
	// Bins hold as many results each as can be, equal probabilities together.
	Bins []Bin `json:"bins"`
	// AUROC is how often a case to approve got the higher probability than one not to
	// approve, ties counting half; 0.5 is guessing.
	AUROC Estimate `json:"auroc"`
}

// Bin is one row of the reliability table.
type Bin struct {
	Low  float64 `json:"low"` // the smallest probability in it
	High float64 `json:"high"`
	N    int     `json:"n"`
	Mean float64 `json:"mean"` // of the probabilities
	// Share of cases that should be approved, with its interval.
	Share Rate `json:"share"`
}

// RiskCurve is risk over coverage (Geifman and El-Yaniv 2017): the surest answers first.
type RiskCurve struct {
	N      int         `json:"n"`
	Points []RiskPoint `json:"points"` // at most maxPoints, coverage rising
	// AURC is the mean risk over all coverages 1/N..1, equal certainties in any order.
	// Best is that of an order that puts every error last; the difference is what a
	// better confidence could gain.
	AURC float64 `json:"aurc"`
	Best float64 `json:"best"`
}

// RiskPoint is what keeping only the answers of at least Threshold gives.
type RiskPoint struct {
	Threshold float64 `json:"threshold"`
	Coverage  float64 `json:"coverage"` // share kept, above 0 to 1
	// Risk is the rate of wrong ones among those kept. Its bounds hold for one threshold
	// that was chosen before looking; to choose one, use Tune.
	Risk Rate `json:"risk"`
}

// Flips says how steady the judge is on the same case.
type Flips struct {
	// Rate is of cases with more than one outcome among the cases that have at least two
	// readable or unreadable answers.
	Rate Rate `json:"rate"`
	// Approve is of cases approved at least once and not approved at least once.
	Approve Rate `json:"approve"`
	// MostRepeats is the largest number of answers of a case.
	MostRepeats int `json:"mostRepeats"`
}

// Baseline is what a judge that does not look reaches on the same scored cases.
type Baseline struct {
	Name         string   `json:"name"`
	About        string   `json:"about"`
	N            int      `json:"n"`
	FalseApprove Rate     `json:"falseApprove"`
	Escalation   Rate     `json:"escalation"`
	Accuracy     Rate     `json:"accuracy"`
	GateAccuracy Rate     `json:"gateAccuracy"`
	Kappa        *float64 `json:"kappa,omitempty"`
}

// Slice is a part of the scored cases.
type Slice struct {
	Kind         string   `json:"kind"` // tag, workflow, risk, state, decidedBy or label
	Name         string   `json:"name"`
	N            int      `json:"n"`
	FalseApprove Rate     `json:"falseApprove"`
	FalseRefuse  Rate     `json:"falseRefuse"`
	Escalation   Rate     `json:"escalation"`
	Accuracy     Rate     `json:"accuracy"`
	GateAccuracy Rate     `json:"gateAccuracy"`
	Kappa        *float64 `json:"kappa,omitempty"`
	// Lost is, of a tag, how many cases that must not be approved have no outcome. They
	// are in no other figure.
	Lost int `json:"lost,omitempty"`
}

// CriterionScore compares what the judge answered to one criterion with its labels.
type CriterionScore struct {
	Workflow string `json:"workflow"`
	Name     string `json:"name"` // as the cases name it: its id or its text
	N        int    `json:"n"`
	// FalseMet is of met among the labels that are not met.
	FalseMet Rate     `json:"falseMet"`
	Accuracy Rate     `json:"accuracy"`
	Kappa    *float64 `json:"kappa,omitempty"`
	// Unanswered labels have no answer in the result; they do not count in N.
	Unanswered int `json:"unanswered"`
}

// Cost is over all results that did not fail, repeats included.
type Cost struct {
	Results   int `json:"results"`
	Asked     int `json:"asked"` // with at least one call of a model
	Calls     int `json:"calls"`
	CacheHits int `json:"cacheHits"`
	Degraded  int `json:"degraded"`
	Lenient   int `json:"lenient"` // read only after mending
	// Latency of results answered by a model without the cache, Deterministic of those
	// that asked none; of both where a time was recorded.
	Latency       Latency `json:"latency"`
	Deterministic Latency `json:"deterministic"`
	// Known sums, and of how many of Asked they are unknown.
	PromptTokens     Sum     `json:"promptTokens"`
	CompletionTokens Sum     `json:"completionTokens"`
	CostUSD          Sum     `json:"costUSD"`
	Rungs            []Tally `json:"rungs,omitempty"`
	Models           []Tally `json:"models,omitempty"`
	DecidedBy        []Tally `json:"decidedBy"`
	Assurance        []Tally `json:"assurance"`
	Codes            []Tally `json:"codes,omitempty"`
}

// Latency of results; percentiles are nearest-rank.
type Latency struct {
	N   int                   `json:"n"`
	P50 document.Milliseconds `json:"p50Ms"`
	P95 document.Milliseconds `json:"p95Ms"`
	Max document.Milliseconds `json:"maxMs"`
}

// Sum is what is known of an amount. Unknown amounts are not 0: Total is then a lower
// bound.
type Sum struct {
	Total   float64 `json:"total"`
	Known   int     `json:"known"`
	Unknown int     `json:"unknown"`
}

// WorstCase is one wrong outcome with the judge's own words: false approvals first,
// the surest first.
type WorstCase struct {
	Case       string          `json:"case"`
	Repeat     int             `json:"repeat"`
	Tags       []string        `json:"tags,omitempty"`
	Workflow   string          `json:"workflow,omitempty"`
	State      string          `json:"state"`
	Action     string          `json:"action"`
	Expected   judge.Outcome   `json:"expected"`
	Got        judge.Outcome   `json:"got"`
	Unreadable bool            `json:"unreadable,omitempty"`
	Confidence float64         `json:"confidence"`
	DecidedBy  judge.LayerName `json:"decidedBy,omitempty"`
	Code       string          `json:"code,omitempty"`
	Reasoning  string          `json:"reasoning,omitempty"`
	Notes      string          `json:"notes,omitempty"` // the case's own
}
