package workflow

// Severity of an Issue.
type Severity string

// Errors block define and load; warnings are returned with the definition.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Issue is one thing that Parse or Lint found wrong.
type Issue struct {
	// Rule is a stable id such as "unknown-target".
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// Path is a JSON pointer into the definition, Line 1-based (0 when unknown).
	Path    string `json:"path"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}
