package record_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
)

func TestFoldTruncatedHistory(t *testing.T) {
	h := sample(t)
	for cut := 1; cut < len(h.events); cut++ {
		floor, rest := h.after[cut-1], h.events[cut:]
		chain := record.NewChainFrom(floor)
		for _, e := range rest {
			if err := chain.Add(e); err != nil {
				t.Fatalf("cut behind %d: %v", cut, err)
			}
		}
		if chain.Head() != h.last().Head {
			t.Errorf("cut behind %d: the chain ends elsewhere", cut)
		}
		if len(rest) > 1 {
			torn := record.NewChainFrom(floor)
			if err := torn.Add(rest[1]); !errors.Is(err, record.ErrBroken) {
				t.Errorf("cut behind %d, one more is missing: %v", cut, err)
			}
		}
		other := floor
		other.Head = strings.Repeat("0", 64)
		wrong := record.NewChainFrom(other)
		if err := wrong.Add(rest[0]); !errors.Is(err, record.ErrBroken) {
			t.Errorf("cut behind %d, another floor: %v", cut, err)
		}
		folded, err := record.FoldFrom(floor, each(rest), 0)
		switch below := floor.Revision > 2 && cut < 7; {
		case below && !errors.Is(err, record.ErrNoRevision):
			t.Errorf("cut behind %d: a rollback below the floor folds: %v", cut, err)
		case !below && err != nil:
			t.Errorf("cut behind %d: %v", cut, err)
		case !below && !reflect.DeepEqual(folded, h.last()):
			t.Errorf("cut behind %d: got %+v, want %+v", cut, folded, h.last())
		}
	}
	if _, err := record.FoldFrom(h.after[2], each(h.events[3:]), 1); !errors.Is(err, record.ErrNoRevision) {
		t.Errorf("a revision below the floor: %v", err)
	}
}

func TestCoveredLooksAtOneEvent(t *testing.T) {
	for i, e := range sample(t).events {
		if err := record.VerifyEvent(e); err != nil {
			t.Errorf("event %d: %v", i+1, err)
		}
		e.Principal += "x"
		if err := record.VerifyEvent(e); !errors.Is(err, record.ErrBroken) {
			t.Errorf("event %d, changed: %v", i+1, err)
		}
	}
	if err := record.VerifyEvent(record.Event{}); !errors.Is(err, record.ErrBroken) {
		t.Errorf("no event at all: %v", err)
	}
}
