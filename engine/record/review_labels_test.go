package record_test

import (
	"maps"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// A person's approval says nothing of a criterion that was advice, or was not asked.
func TestReviewLabelsWhatWasAsked(t *testing.T) {
	t.Parallel()
	reviewed := record.Decision{Rubric: judge.Rubric{Criteria: []string{"one", "two", "three"}, Terms: map[string]judge.Terms{"two": {Advisory: true}}}}
	reviewed.Opinions = []judge.Opinion{{Layer: judge.LayerScript, NotAsked: []string{"c3"}}}
	for _, tt := range []struct {
		review record.Review
		want   map[string]string
	}{
		{record.Review{Resolution: judge.Approve}, map[string]string{"c1": "met"}},
		{record.Review{Resolution: judge.Reject, Reason: "C1, c9: no"}, map[string]string{"c1": "not_met"}},
		{record.Review{Resolution: judge.Reject, Reason: "No."}, map[string]string{}},
	} {
		if got := tt.review.Criteria(reviewed); !maps.Equal(got, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.review, got, tt.want)
		}
	}
}
