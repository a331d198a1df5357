package chain

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"pgregory.net/rapid"
)

// TestReplayFinds: each record is found exactly once at its position, whatever gaps a run has left in its
// records, and whichever of them are filled while they are read.
func TestReplayFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const steps = 3 * maxPage
		gaps := rapid.SliceOfNDistinct(rapid.IntRange(0, steps-1), 0, 50, rapid.ID[int]).Draw(t, "gaps")
		long := rapid.Bool().Draw(t, "long")
		var table []dbos.StepInfo
		add := func(id int) {
			at, _ := slices.BinarySearchFunc(table, id, func(s dbos.StepInfo, id int) int { return s.StepID - id })
			table = slices.Insert(table, at, dbos.StepInfo{StepID: id, StepName: fmt.Sprint(id), Output: "x"})
		}
		for id := range steps {
			if !slices.Contains(gaps, id) {
				add(id)
			}
		}
		reads := 0
		p := &replay{known: map[int]dbos.StepInfo{}, limit: resultPage, last: -1, read: func(offset, limit int) ([]dbos.StepInfo, error) {
			reads++
			page := slices.Clone(table[min(offset, len(table)):min(offset+limit, len(table))])
			if long && len(page) > 0 {
				page[0].Output = string(make([]byte, longPage))
			}
			return page, nil
		}}
		for id := range steps + 2 {
			step, ok, err := p.find(id)
			want := id < steps && !slices.Contains(gaps, id)
			if err != nil || ok != want || ok && step.StepName != fmt.Sprint(id) {
				t.Fatalf("step %d: %+v, %t, %v", id, step, ok, err)
			}
			if id < steps && !ok {
				add(id) // DBOS has run it
			}
		}
		if len(p.known) != 0 {
			t.Fatalf("%d records are kept", len(p.known))
		}
		if most := steps/maxPage + 3; !long && reads > most || long && reads > steps/resultPage+2 {
			t.Fatalf("they were read in %d pages", reads)
		}
	})
}
