package replay

import (
	"time"

	"github.com/gavel-mcp/gavel/judge"
)

// Report is what came of judging recorded decisions again.
type Report struct {
	Counts
	// AskedOnly counts the decisions that were pre-checks.
	AskedOnly int64 `json:"askedOnly"`
	// Failed of those in NotReplayed failed now (ReasonModel, ReasonUndecided): another run
	// may judge them.
	Failed int64 `json:"failed"`
	// RemovedEvents are no longer there: decisions among them are in no other figure.
	RemovedEvents int64 `json:"removedEvents"`

	// OtherReason of Same were decided by another layer or with other codes.
	OtherReason int64 `json:"otherReason"`
	// Flips have another outcome, or are approvals that lead to another state.
	Flips int64 `json:"flips"`

	// Answers says where the model's answers came from.
	Answers Answers `json:"answers"`

	// Listed flips: new approvals first, then Rerouted, NewRefusals and OtherRefusals.
	Listed        []Flip `json:"listed"`
	ListedLeftOut int64  `json:"listedLeftOut"`
	// Changes counts flips by workflow, action and both reasons, new approvals first.
	Changes []ChangeCount `json:"changes"`
	// Workflows are sorted by name, NotReplayed by workflow, then the most frequent first.
	Workflows   []WorkflowCount `json:"workflows"`
	NotReplayed []Unreplayed    `json:"notReplayed"`

	// Shadow sums up what was decided in shadow mode.
	Shadow Shadow `json:"shadow"`

	// Regression: a limit on flips is broken. Evaluated is false when limits were given
	// and too little was judged again to say whether they hold.
	Gates        []GateResult `json:"gates"`
	Regression   bool         `json:"regression"`
	Evaluated    bool         `json:"evaluated"`
	NotEvaluated string       `json:"notEvaluated,omitempty"`
	Notes        []string     `json:"notes"`
}

// Counts are the figures of a report, and of each workflow in it.
type Counts struct {
	// Decisions were selected: Replayed of them judged again, the others are in NotReplayed.
	Decisions int64 `json:"decisions"`
	Replayed  int64 `json:"replayed"`
	// Same have the same outcome and lead to the same state. The flips are NewApprovals (not
	// approved then, approved now), Rerouted, NewRefusals (approved then, not now) and
	// OtherRefusals (rejected then and escalated now, or the other way).
	Same          int64 `json:"same"`
	NewApprovals  int64 `json:"newApprovals"`
	Rerouted      int64 `json:"rerouted"`
	NewRefusals   int64 `json:"newRefusals"`
	OtherRefusals int64 `json:"otherRefusals"`
}

func (c *Counts) flips(how direction) *int64 {
	return [...]*int64{newApproval: &c.NewApprovals, rerouted: &c.Rerouted, newRefusal: &c.NewRefusals, otherRefusal: &c.OtherRefusals}[how]
}

// Answers counts decisions on which a model spoke.
type Answers struct {
	// Recorded answers counted again; before OtherChecks of them other checks had passed,
	// of which the model was told.
	Recorded    int64 `json:"recorded"`
	OtherChecks int64 `json:"otherChecks"`
	// Asked counts decisions on which a model was asked now.
	Asked int64 `json:"asked"`
}

// Side is one of the two judgements of a case.
type Side struct {
	Outcome   judge.Outcome   `json:"outcome"`
	DecidedBy judge.LayerName `json:"decidedBy"`
	// Codes are those of the findings, each once; empty for an approval.
	Codes []string `json:"codes,omitempty"`
	// Target is the state that the action leads to, "" when none was determined.
	Target     string  `json:"target,omitempty"`
	Confidence float64 `json:"confidence"`
	Reasoning  string  `json:"reasoning,omitempty"`
}

// Flip is a decision that comes out otherwise.
type Flip struct {
	Instance string    `json:"id"`
	Seq      int64     `json:"seq"`
	Time     time.Time `json:"time"`
	Workflow string    `json:"workflow"`
	Version  int       `json:"version"`
	State    string    `json:"state,omitempty"`  // "" for a start
	Action   string    `json:"action,omitempty"` // "" for a start
	// Precheck: nothing was asked to move. Applied: the move was made then.
	Precheck bool `json:"precheck,omitempty"`
	Applied  bool `json:"applied"`
	Before   Side `json:"before"`
	After    Side `json:"after"`
}

// ChangeCount counts flips that are alike. Reasons are who decided and the codes, such
// as "schema: schema_required".
type ChangeCount struct {
	Workflow     string        `json:"workflow"`
	Action       string        `json:"action,omitempty"`
	Before       judge.Outcome `json:"before"`
	BeforeReason string        `json:"beforeReason"`
	After        judge.Outcome `json:"after"`
	AfterReason  string        `json:"afterReason"`
	Count        int64         `json:"count"`
}

// WorkflowCount is the report of one workflow.
type WorkflowCount struct {
	Workflow string `json:"workflow"`
	Counts
}

// Unreplayed counts what was not judged again, by reason.
type Unreplayed struct {
	Workflow string `json:"workflow"`
	Reason   string `json:"reason"`
	Count    int64  `json:"count"`
	// Says explains the reason, First names one such decision, Detail what was said of it.
	Says   string `json:"says"`
	First  string `json:"first"`
	Detail string `json:"detail,omitempty"`
}

// Shadow sums up decisions of shadow mode: what would have been decided, while the moves
// happened.
type Shadow struct {
	Decisions     int64 `json:"decisions"`
	WouldApprove  int64 `json:"wouldApprove"`
	WouldReject   int64 `json:"wouldReject"`
	WouldEscalate int64 `json:"wouldEscalate"`
	// AppliedAnyway are moves that were made although they would not have been approved.
	AppliedAnyway int64         `json:"appliedAnyway"`
	Rows          []ShadowCount `json:"rows"`
}

// ShadowCount counts shadow decisions that are alike.
type ShadowCount struct {
	Workflow string        `json:"workflow"`
	Action   string        `json:"action,omitempty"`
	Outcome  judge.Outcome `json:"outcome"`
	Reason   string        `json:"reason"`
	Count    int64         `json:"count"`
	Applied  int64         `json:"applied"`
}
