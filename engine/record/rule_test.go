package record_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
)

func TestRuleSealCoversEverything(t *testing.T) {
	master := bytes.Repeat([]byte{1}, 32)
	s := record.NewRuleSealer(master)
	first := s.Seal(1, "", "definition", "pay", "1")
	seal := s.Seal(2, first.Hash, "definition", "pay", "2")
	if err := s.Check(seal, "definition", "pay", "2"); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*record.RuleSeal)
		parts  string
	}{
		"another place":   {func(r *record.RuleSeal) { r.Position = 3 }, "definition pay 2"},
		"another before":  {func(r *record.RuleSeal) { r.Prev = "" }, "definition pay 2"},
		"another hash":    {func(r *record.RuleSeal) { r.Hash = first.Hash }, "definition pay 2"},
		"another MAC":     {func(r *record.RuleSeal) { r.MAC = first.MAC }, "definition pay 2"},
		"no MAC":          {func(r *record.RuleSeal) { r.MAC = "" }, "definition pay 2"},
		"no hex":          {func(r *record.RuleSeal) { r.MAC = "zz" }, "definition pay 2"},
		"no seal":         {func(r *record.RuleSeal) { *r = record.RuleSeal{} }, "definition pay 2"},
		"another rule":    {func(*record.RuleSeal) {}, "definition pay 3"},
		"one part more":   {func(*record.RuleSeal) {}, "definition pay 2 x"},
		"parts elsewhere": {func(*record.RuleSeal) {}, "definitionpay 2"},
		"another's key": {func(r *record.RuleSeal) {
			*r = record.NewRuleSealer(bytes.Repeat([]byte{2}, 32)).Seal(2, first.Hash, "definition", "pay", "2")
		}, "definition pay 2"},
	} {
		changed := seal
		tt.change(&changed)
		if err := s.Check(changed, strings.Split(tt.parts, " ")...); !errors.Is(err, record.ErrRule) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	unkeyed := record.NewRuleSealer(nil)
	for _, seal := range []record.RuleSeal{seal, unkeyed.Seal(2, first.Hash, "definition", "pay", "2")} {
		if err := unkeyed.Check(seal, "definition", "pay", "2"); err != nil {
			t.Error(err)
		}
		if err := unkeyed.Check(seal, "definition", "pay", "3"); !errors.Is(err, record.ErrRule) {
			t.Errorf("another rule: got %v", err)
		}
	}
	if err := s.Check(unkeyed.Seal(2, first.Hash, "definition", "pay", "2"), "definition", "pay", "2"); !errors.Is(err, record.ErrRule) {
		t.Errorf("sealed without a key: got %v", err)
	}
}
