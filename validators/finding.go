package validators

// Finding is one objection: what is wrong, where, and what to do about it. A
// decision's violations are its findings' messages.
type Finding struct {
	// Code is a stable machine code such as "required_field" or "schema".
	Code string `json:"code"`
	// Path is a JSON pointer (RFC 6901) into the document examined, "" for the whole.
	Path string `json:"path,omitempty"`
	// Keyword is the JSON Schema keyword that failed, for Code "schema".
	Keyword string `json:"keyword,omitempty"`
	// Message is one sentence that a model can act on. It never holds the value
	// of a sensitive field.
	Message string `json:"message"`
	// Hint says what to do next, "" when the message already does.
	Hint string `json:"hint,omitempty"`
}
