package workflow

// The codes of the findings that Case gives.
const (
	CodeIllegalAction   = "illegal_action"
	CodeInstanceEnded   = "instance_ended"
	CodeRoleNotAllowed  = "role_not_allowed"
	CodeNotBy           = "not_by"
	CodeMustPassThrough = "must_pass_through"
	CodeWriteNotAllowed = "write_not_allowed"
	CodeFrozenField     = "frozen_field"
	CodeReservedKey     = "reserved_key"
)

// CodeInfo documents one code of a finding.
type CodeInfo struct {
	Code string
	// Meaning is one sentence; Do says what the caller should do next.
	Meaning, Do string
}

// Codes lists the codes of the findings that Case gives, in the order of the
// reference page.
var Codes = []CodeInfo{
	{CodeIllegalAction, "The current state has no such action.", "Perform one of the actions that the finding names."},
	{CodeInstanceEnded, "The instance has reached a final state or was cancelled.", "Start a new instance."},
	{CodeRoleNotAllowed, "The action is reserved for other roles.", "Leave it to a principal in one of the roles that the finding names."},
	{CodeNotBy, "The same principal performed an earlier action that notBy separates from this one.", "Leave it to another principal."},
	{CodeMustPassThrough, "The state may only be entered after others that were not visited.", "Go through the states that the finding names first."},
	{CodeWriteNotAllowed, "The data sets a key that the transition may not set.", "Leave the key out, or send it with an action that may set it."},
	{CodeFrozenField, "The data would change a field that an earlier transition froze.", "Leave the field out, or send its current value."},
	{CodeReservedKey, "The data sets a key that is reserved for the gate.", "Use another name for the key."},
}

// ReservedKeys are the top-level keys of context that only the gate may set.
var ReservedKeys = []string{"evidence", "review", "gavel"}
