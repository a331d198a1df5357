package engine

import (
	"crypto/sha256"
	"encoding/json"
	"sort"
	"time"
)

// spot is a state with the digest of a context.
type spot struct {
	state   string
	context [sha256.Size]byte
}

// spots are where steps led to, by digests: what goes back to one, or names one, is found
// without the contexts and without looking at every step. Positions are in order.
type spots struct {
	wanted bool     // somebody will ask
	salts  []string // of the digests in the folder
	// plain are by the context, masked by the one that an export shows where that differs.
	plain, masked map[spot][]int
	states        map[string][]int
	last          digests // of the position before
	of            json.RawMessage
}

type digests struct {
	plain  [sha256.Size]byte
	masked [][sha256.Size]byte // by salt
}

func digestOf(doc json.RawMessage) [sha256.Size]byte {
	return sha256.Sum256([]byte(canonical(orEmptyObject(doc))))
}

// look prepares the looking up of checkpoints and of earlier steps.
func (pl *plan) look(lines []ImportLine) error {
	pl.restored = make(map[string]*ImportCheckpoint, len(pl.in.Checkpoints))
	for i := range pl.in.Checkpoints {
		cp := &pl.in.Checkpoints[i]
		if _, taken := pl.restored[cp.ID]; !taken {
			pl.restored[cp.ID] = cp
		}
	}
	pl.backs = map[int]int{}
	pl.spots = spots{plain: map[spot][]int{}, masked: map[spot][]int{}, states: map[string][]int{}, wanted: len(pl.in.Checkpoints) > 0}
	for i := 0; pl.im.req.Counts && !pl.spots.wanted && i < len(lines); i++ {
		pl.spots.wanted = backward(lines[i])
	}
	if len(pl.l.def.Sensitive) > 0 {
		docs := []json.RawMessage{pl.in.Context}
		for _, cp := range pl.in.Checkpoints {
			docs = append(docs, cp.Context)
		}
		pl.spots.salts = saltsIn(docs...)
	}
	if pl.here.inst.Seq == 0 {
		return nil
	}
	return pl.spot(atBase)
}

// spot remembers where the plan is as a position.
func (pl *plan) spot(at int) error {
	s := &pl.spots
	if !s.wanted {
		return nil
	}
	if s.of == nil || string(s.of) != string(pl.context) {
		s.of, s.last = pl.context, digests{plain: digestOf(pl.context)}
		for _, salt := range s.salts {
			masked, err := pl.masked(salt, pl.context)
			if err != nil {
				return err
			}
			s.last.masked = append(s.last.masked, digestOf(masked))
		}
	}
	state := pl.at.state
	s.states[state] = append(s.states[state], at)
	plain := spot{state, s.last.plain}
	s.plain[plain] = append(s.plain[plain], at)
	for _, context := range s.last.masked {
		if context != s.last.plain {
			masked := spot{state, context}
			s.masked[masked] = append(s.masked[masked], at)
		}
	}
	return nil
}

// uncount takes back that the steps count which a line goes back behind. It is false
// where those are not in the plan.
func (pl *plan) uncount(state string, context json.RawMessage) bool {
	to := atBase
	if at := pl.spots.plain[spot{state, digestOf(context)}]; len(at) > 0 {
		to = at[len(at)-1]
	} else if pl.here.inst.Seq > 0 {
		return false
	}
	last := len(pl.steps) - 1
	if first, ok := pl.backs[last]; !ok || to+1 < first {
		pl.backs[last] = to + 1
	}
	return true
}

// settle does for all steps at once what uncount was told.
func (pl *plan) settle() {
	first := len(pl.steps)
	for i := len(pl.steps) - 1; i >= 0; i-- {
		if back, ok := pl.backs[i]; ok {
			first = min(first, back)
		}
		if i >= first {
			pl.steps[i].ev.Import.Counts = false
		}
	}
}

// restores is the checkpoint that a line goes back to, nil for none that is known.
func (pl *plan) restores(line ImportLine) *ImportCheckpoint {
	if line.CheckpointID == "" {
		return nil
	}
	return pl.restored[line.CheckpointID]
}

// named is the position of the step that a checkpoint names: the last one with its state
// and context that is not later, else the first.
func (pl *plan) named(cp ImportCheckpoint) int {
	if _, known := pl.l.def.States[cp.State]; !known {
		return nowhere // from an unknown state nothing could go on
	}
	lists := [][]int{pl.spots.states[cp.State]}
	if cp.Context != nil {
		at := spot{cp.State, digestOf(cp.Context)}
		lists = [][]int{pl.spots.plain[at], pl.spots.masked[at]}
	}
	first, last := nowhere, nowhere
	for _, list := range lists {
		if pl.here.native && len(list) > 0 && list[0] == atBase {
			list = list[1:] // what went on here is not what the checkpoint is about
		}
		if len(list) == 0 {
			continue
		}
		if first == nowhere || list[0] < first {
			first = list[0]
		}
		// Times grow along the steps.
		n := len(list)
		if !cp.Time.IsZero() {
			n = sort.Search(n, func(i int) bool { return pl.timeOf(list[i]).After(cp.Time) })
		}
		if n > 0 {
			last = max(last, list[n-1])
		}
	}
	if last == nowhere {
		return first
	}
	return last
}

// Positions of steps: from 0 on they are indexes.
const (
	atBase  = -1
	nowhere = -2
)

func (pl *plan) step(at int) *step {
	if at == atBase {
		return &pl.base
	}
	return &pl.steps[at]
}

func (pl *plan) timeOf(at int) time.Time {
	if at == atBase {
		return pl.here.inst.UpdatedAt
	}
	return pl.steps[at].ev.Time
}
