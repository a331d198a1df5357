package workflow_test

import (
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

const gated = `{"name":"gated","initialState":"draft","states":{
	"draft":{"transitions":{"submit":"legal","note":"draft"}},
	"legal":{"transitions":{"pass":"signing"}},
	"signing":{"transitions":{"sign":"signed","drop":"dropped"}},
	"signed":{"final":true},"dropped":{"final":true}},
	"mustPassThrough":{"signed":["legal"],"dropped":["draft"]},
	"stateValidators":{"signing":{"requiredFields":["by"]}}}`

func TestEntryAndBlocked(t *testing.T) {
	d, err := workflow.Parse("gated", []byte(gated))
	if err != nil {
		t.Fatal(err)
	}
	if got := d.EntryCandidate("signing", workflow.Facts{}); !slices.Equal(got.Entry.RequiredFields, []string{"by"}) || len(got.Unmet) != 0 {
		t.Errorf("entry of signing: %+v", got)
	}
	if got := d.EntryCandidate("signed", workflow.Facts{Visited: []string{"signing"}}); len(got.Unmet) != 1 {
		t.Errorf("entry of signed without legal: %+v", got)
	}
	for _, tt := range []struct {
		state   string
		visited []string
		want    []string
	}{
		{"draft", nil, nil},                 // legal lies ahead, draft is here
		{"legal", nil, []string{"dropped"}}, // draft was never visited
		{"signing", []string{"draft"}, []string{"signed"}},
		{"signing", []string{"draft", "legal"}, nil},
		{"signed", nil, nil}, // nothing is ahead
	} {
		if got := d.BlockedStates(tt.state, workflow.Facts{Visited: tt.visited}); !slices.Equal(got, tt.want) {
			t.Errorf("%s after %v: %v, want %v", tt.state, tt.visited, got, tt.want)
		}
	}
}
