package eval

import (
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Report holds all results of Evaluate: numbers and texts, nothing that still has to be computed. A nil pointer is a
// figure that is unavailable (nothing to divide by, no model answered). It must be shown as missing, never as 0.
//
// The same cases, results and options give the same report, whatever their order.
type Report struct {
	Options Options `json:"options"`
	// Evaluated is false if too many outcomes are missing for the figures to be meaningful; NotEvaluated gives the
	// reason. The figures are present either way.
	Evaluated    bool   `json:"evaluated"`
	NotEvaluated string `json:"notEvaluated,omitempty"`
	// Incomplete is true if even one case or repeat has no outcome.
	Incomplete bool `json:"incomplete,omitempty"`
	// Notes are sentences about the conventions of the figures and about anything that weakens them, the most
	// important first. Every rendering shows all of them.
	Notes  []string `json:"notes"`
	Counts Counts   `json:"counts"`

	// FalseApprove is the rate of approvals among the cases that must not be approved: those whose right outcome is
	// reject or escalate. Its Upper is the most important figure.
	FalseApprove Rate `json:"falseApprove"`
	// WrongApprovals is the rate of wrong approvals among all approvals. It is the risk of relying on an approval, for
	// a similar mix of cases.
	WrongApprovals Rate `json:"wrongApprovals"`
	// FalseRefuse is the rate of rejections and escalations among the cases that should be approved; FalseReject
	// counts rejections alone.
	FalseRefuse Rate `json:"falseRefuse"`
	FalseReject Rate `json:"falseReject"`
	Escalation  Rate `json:"escalation"`
	Unreadable  Rate `json:"unreadable"`
	// Accuracy is the rate of outcomes that are exactly right. GateAccuracy is the rate of outcomes that are right if
	// reject and escalate count as the same.
	Accuracy     Rate `json:"accuracy"`
	GateAccuracy Rate `json:"gateAccuracy"`
	// Reasons covers the refusals of cases that name codes: the rate of refusals that give at least one of those codes.
	Reasons Rate `json:"reasons"`

	Confusion Confusion `json:"confusion"`
	// Kappa is Cohen's kappa with reject and escalate as one category; OutcomeKappa is for all three outcomes.
	Kappa        Estimate `json:"kappa"`
	OutcomeKappa Estimate `json:"outcomeKappa"`

	// Probability measures the quality of the probabilities; nil if no model answered.
	Probability *Probability `json:"probability,omitempty"`
	// ApprovalConfidence measures the quality of the confidences of the model's approvals alone: minConfidence applies
	// to nothing else. It is nil if the model approved nothing.
	ApprovalConfidence *ConfidenceScore `json:"approvalConfidence,omitempty"`
	// Approvals shows the gain from leaving the model's least certain approvals to a person, with WrongApprovals as the
	// risk. It is nil if there are none.
	Approvals *RiskCurve `json:"approvals,omitempty"`

	Flips     Flips      `json:"flips"`
	Baselines []Baseline `json:"baselines"`
	Slices    []Slice    `json:"slices"`
	// SlicesLeftOut is the number of slices omitted in favour of larger ones.
	SlicesLeftOut int              `json:"slicesLeftOut,omitempty"`
	Criteria      []CriterionScore `json:"criteria,omitempty"`
	Cost          Cost             `json:"cost"`
	Worst         []WorstCase      `json:"worst"`
}

// Counts holds the numbers that the figures are based on.
type Counts struct {
	Cases  int `json:"cases"`  // in the splits asked for
	Scored int `json:"scored"` // cases with an outcome that counts
	Groups int `json:"groups"` // among the scored rows
	// ExpectApprove, ExpectReject and ExpectEscalate count the scored rows by their right outcome.
	ExpectApprove  int `json:"expectApprove"`
	ExpectReject   int `json:"expectReject"`
	ExpectEscalate int `json:"expectEscalate"`
	// Missing cases have no result; Failed cases have only failures.
	Missing int `json:"missing"`
	Failed  int `json:"failed"`
	// FailedResults counts failed results, including repeats; Failures counts them by reason.
	FailedResults int     `json:"failedResults"`
	Failures      []Tally `json:"failures,omitempty"`
	Unreadable    int     `json:"unreadable"` // among the cases with an outcome
	Excluded      int     `json:"excluded"`   // unreadable and excluded by policy
	Results       int     `json:"results"`    // of these cases
	// UnknownResults belong to no case. DuplicateCases repeat the id of an earlier case, DuplicateResults an earlier
	// repeat. None of them is scored.
	UnknownResults   int           `json:"unknownResults,omitempty"`
	DuplicateCases   int           `json:"duplicateCases,omitempty"`
	DuplicateResults int           `json:"duplicateResults,omitempty"`
	Splits           map[Split]int `json:"splits"` // of the cases counted
	Labels           []Tally       `json:"labels"` // by source
	// Digest identifies the cases counted ("sha256:…"): a different digest means different cases.
	Digest string `json:"digest"`
}

// Tally is a name and how often it occurred.
type Tally struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// Rate is K of N, with bounds at Options.Confidence that count each group of cases as one draw. They are exact
// (Clopper and Pearson 1934) if each group has one case.
type Rate struct {
	K int `json:"k"`
	N int `json:"n"`
	// Draws is the number of independent draws of equal weight that the bounds are based on: N if each group has one
	// case, the number of groups if all have the same size.
	Draws float64 `json:"draws"`
	// Value is K/N; nil if N is 0.
	Value *float64 `json:"value,omitempty"`
	// Low and High are the two-sided interval.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Upper is the one-sided upper bound: the rate is below it with the requested confidence. 1 if N is 0.
	Upper float64 `json:"upper"`
}

// Interval is a two-sided interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Estimate is a figure with its bootstrap interval (percentiles, groups resampled).
type Estimate struct {
	// Value is nil if the figure is undefined for these cases.
	Value *float64 `json:"value,omitempty"`
	// Interval is nil if the figure is undefined in more than half of the resamples.
	Interval *Interval `json:"interval,omitempty"`
	// Undefined is the number of resamples in which the figure is undefined.
	Undefined int `json:"undefined,omitempty"`
}

// Confusion counts the scored rows by right outcome and given outcome. ExpectNotApprove is the sum of ExpectReject and
// ExpectEscalate.
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

// Probability measures how good Result.Approval is as the probability that an approval is right, over the results
// with an answer of a model.
type Probability struct {
	N int `json:"n"`
	// Base is the share of cases that should be approved.
	Base float64 `json:"base"`
	// Brier is the mean squared error; 0 is best. BrierBase is the error of always stating Base.
	Brier     Estimate `json:"brier"`
	BrierBase float64  `json:"brierBase"`
	// ECE is the expected calibration error over Bins.
	ECE float64 `json:"ece"`
	// Bins hold equally many results as far as possible; equal probabilities stay together.
	Bins []Bin `json:"bins"`
	// AUROC is how often a case that should be approved got a higher probability than one that should not; ties count
	// half. A value of 0.5 is no better than guessing.
	AUROC Estimate `json:"auroc"`
}

// Bin is one row of the reliability table.
type Bin struct {
	Low  float64 `json:"low"` // the smallest probability in it
	High float64 `json:"high"`
	N    int     `json:"n"`
	Mean float64 `json:"mean"` // of the probabilities
	// Share is the rate of cases that should be approved.
	Share Rate `json:"share"`
}

// RiskCurve is risk over coverage (Geifman and El-Yaniv 2017), with the most certain answers first.
type RiskCurve struct {
	N      int         `json:"n"`
	Points []RiskPoint `json:"points"` // at most maxPoints, in ascending order of coverage
}

// RiskPoint is the result of keeping only the answers with a confidence of at least Threshold.
type RiskPoint struct {
	Threshold float64 `json:"threshold"`
	Coverage  float64 `json:"coverage"` // share kept, above 0 to 1
	// Risk is the rate of wrong answers among those kept. Its bounds hold for one threshold chosen in advance, not for
	// one chosen from the results.
	Risk Rate `json:"risk"`
}

// Flips measures how consistent the judge is on the same case.
type Flips struct {
	// Rate is the rate of cases with more than one outcome, among the cases with at least two answers. Unreadable
	// answers count.
	Rate Rate `json:"rate"`
	// MostRepeats is the largest number of answers to a case.
	MostRepeats int `json:"mostRepeats"`
}

// Baseline is the result of a trivial judge on the same scored cases.
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

// Slice is a subset of the scored cases.
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
	// Lost is the number of cases that must not be approved and have no outcome; it is set only for tags. No other
	// figure counts these cases.
	Lost int `json:"lost,omitempty"`
}

// CriterionScore compares the judge's answers to one criterion with its labels.
type CriterionScore struct {
	Workflow string `json:"workflow"`
	Name     string `json:"name"` // as the cases name it: its id or its text
	N        int    `json:"n"`
	// FalseMet is the rate of criteria judged met among those with another label.
	FalseMet Rate     `json:"falseMet"`
	Accuracy Rate     `json:"accuracy"`
	Kappa    *float64 `json:"kappa,omitempty"`
	// Unanswered counts labels without an answer in the result; N does not include them.
	Unanswered int `json:"unanswered"`
}

// Cost covers all results that did not fail, including repeats.
type Cost struct {
	Results   int `json:"results"`
	Asked     int `json:"asked"` // results with at least one call of a model
	Calls     int `json:"calls"`
	CacheHits int `json:"cacheHits"`
	Degraded  int `json:"degraded"`
	Lenient   int `json:"lenient"` // readable only after a repair
	// Latency covers results answered by a model without the cache, Deterministic those for which no model was asked.
	// Both ignore results without a recorded time.
	Latency       Latency `json:"latency"`
	Deterministic Latency `json:"deterministic"`
	// Each Sum adds up the known amounts, and counts the results among Asked whose amount is unknown.
	PromptTokens     Sum     `json:"promptTokens"`
	CompletionTokens Sum     `json:"completionTokens"`
	CostUSD          Sum     `json:"costUSD"`
	Rungs            []Tally `json:"rungs,omitempty"`
	Models           []Tally `json:"models,omitempty"`
	DecidedBy        []Tally `json:"decidedBy"`
	Assurance        []Tally `json:"assurance"`
	Codes            []Tally `json:"codes,omitempty"`
}

// Latency holds durations of results; percentiles are nearest-rank.
type Latency struct {
	N   int                   `json:"n"`
	P50 document.Milliseconds `json:"p50Ms"`
	P95 document.Milliseconds `json:"p95Ms"`
	Max document.Milliseconds `json:"maxMs"`
}

// Sum is the known part of an amount. Unknown amounts do not count as 0: if there are any, Total is a lower bound.
type Sum struct {
	Total   float64 `json:"total"`
	Known   int     `json:"known"`
	Unknown int     `json:"unknown"`
}

// WorstCase is one wrong outcome with the judge's reasoning. A list has false approvals first; within each kind, the
// highest confidence comes first.
type WorstCase struct {
	Case       string          `json:"case"`
	Expected   judge.Outcome   `json:"expected"`
	Got        judge.Outcome   `json:"got"`
	Unreadable bool            `json:"unreadable,omitempty"`
	Confidence float64         `json:"confidence"`
	DecidedBy  judge.LayerName `json:"decidedBy,omitempty"`
	Code       string          `json:"code,omitempty"`
	Reasoning  string          `json:"reasoning,omitempty"`
}
