package serve

import (
	"errors"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/internal/term"
)

// TestJoinMistakes: duplicate messages are removed, even within one error.
func TestJoinMistakes(t *testing.T) {
	t.Parallel()
	one, twice := errors.New("a"), &term.ExitError{Err: errors.New("b"), Lines: []string{"a", "a"}}
	for _, c := range []struct {
		found []error
		want  []string
	}{
		{[]error{nil, nil}, []string{}},
		{[]error{nil, one}, []string{"a"}},
		{[]error{twice}, []string{"a"}},
		{[]error{twice, one}, []string{"a"}},
		{[]error{errors.Join(one, nil, errors.New("c")), twice}, []string{"a", "c"}},
	} {
		if got := term.ListLines(joinMistakes(c.found)); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q", c.found, got)
		}
	}
}
