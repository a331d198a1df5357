package chain

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
)

// Schedule says when a chain runs. A tick is a time at which it does, in whole seconds; it follows from the schedule
// alone, so that every process finds the same ticks, whenever it looks.
type Schedule struct {
	Type       string // cron, interval or once
	Expression string
	Timezone   *time.Location
	Interval   time.Duration
	At         time.Time
	// Missed and Overlap are words of the grammar, "" for the default.
	Missed, Overlap      string
	MissedWithin, Jitter time.Duration

	cron cronExpression
}

// The words of missed and overlap.
const (
	missedSkip, missedLatest, missedAll                     = "skip", "latest", "all"
	overlapSkip, overlapQueue, overlapReplace, overlapAllow = "skip", "queue", "replace", "allow"
)

// String is what the ticks follow from, as people write it.
func (s *Schedule) String() string {
	switch s.Type {
	case "cron":
		return s.Expression + " " + s.Timezone.String()
	case "interval":
		return "every " + s.Interval.String()
	default:
		return "once at " + s.At.UTC().Format(time.RFC3339)
	}
}

// Next is the first tick behind a time; false where there is none.
//
// Those of an interval are its multiples since 1970, UTC, so that no change of a definition moves them by the time of
// the change. Those of cron are times of a clock on the wall: one that this clock shows twice is a tick when it is
// shown first, one that it leaves out is a tick at the end of what is left out.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	switch s.Type {
	case "interval":
		seconds := int64(s.Interval / time.Second)
		tick := (floorDivide(after.Unix(), seconds) + 1) * seconds
		return time.Unix(tick, 0).UTC(), true
	case "once":
		return s.At.UTC(), s.At.After(after)
	}
	// Times on the wall and their ticks have the same order: what the clock showed at after, or
	// before that, is no tick behind it.
	wall := readWall(after.In(s.Timezone))
	for {
		next, ok := s.cron.next(wall)
		if !ok {
			return time.Time{}, false
		}
		if tick := findInstant(next, s.Timezone); tick.After(after) {
			return tick.UTC(), true
		}
		wall = next
	}
}

func floorDivide(a, b int64) int64 {
	if a < 0 && a%b != 0 {
		return a/b - 1
	}
	return a / b
}

// readWall is what a clock shows, as a time in UTC.
func readWall(t time.Time) time.Time {
	_, offset := t.Zone()
	return time.Unix(t.Unix()+int64(offset), 0).UTC()
}

// findInstant is when a clock on the wall of a zone shows wall first, or, where it never does, the moment at which it
// is put beyond it.
func findInstant(wall time.Time, zone *time.Location) time.Time {
	near := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	from, to := near.ZoneBounds()
	found := near
	for _, change := range []time.Time{from, to} {
		if change.IsZero() {
			continue
		}
		before, after := readWall(change.Add(-time.Second)).Add(time.Second), readWall(change)
		switch {
		case !wall.Before(before) && wall.Before(after): // left out
			return change
		case !wall.Before(after) && wall.Before(before): // shown twice
			found = change.Add(wall.Sub(before))
		}
	}
	return found
}

// startOf is when the run of a tick starts: the tick and its jitter, before the tick that follows.
func (s *Schedule) startOf(chain string, tick time.Time) time.Time {
	spread := s.Jitter
	if next, ok := s.Next(tick); ok {
		spread = min(spread, next.Sub(tick))
	}
	if spread <= 0 {
		return tick
	}
	h := hashTick(chain, tick)
	return tick.Add(time.Duration(binary.BigEndian.Uint64(h[:8]) % uint64(spread))) //nolint:gosec // positive
}

// TickRun is the id of the run of a tick. It follows from both, so that a tick has one run, whichever process starts
// it, and however often.
func TickRun(chain string, tick time.Time) string {
	h := hashTick(chain, tick)
	id := binary.BigEndian.AppendUint64(nil, uint64(tick.UnixMilli())<<16) //nolint:gosec // any bits will do
	id = append(id[:6], h[8:18]...)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8, in the order of time
	text := hex.EncodeToString(id)
	return "run-" + text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

var tickRun = regexp.MustCompile(`^run-[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// IsTickRun reports whether an id has the form of those of TickRun: the runs of ticks have it, and those that run
// one of them again.
func IsTickRun(run string) bool { return tickRun.MatchString(run) }

func hashTick(chain string, tick time.Time) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s\n%d", chain, tick.Unix()))
}
