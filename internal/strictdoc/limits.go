package strictdoc

import "fmt"

// The defaults of Limits.
const (
	// DefaultBytes is what a workflow definition may weigh.
	DefaultBytes = 256 << 10
	// DefaultDepth is how deep objects and arrays may nest.
	DefaultDepth = 64
)

// Limits bound a document before it costs anything. A zero field means its default.
type Limits struct {
	// Bytes is the greatest length.
	Bytes int
	// Depth is how many objects and arrays may lie inside one another; a scalar
	// has depth 0, {} has 1.
	Depth int
}

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = DefaultBytes
	}
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	return l
}

func (l Limits) tooLong(n int) *Issue {
	return &Issue{Rule: RuleSize, Message: fmt.Sprintf("the document has %d bytes; at most %d are allowed", n, l.Bytes)}
}

func depthMessage(limit int) string {
	return fmt.Sprintf("objects and arrays are nested more than %d deep", limit)
}
