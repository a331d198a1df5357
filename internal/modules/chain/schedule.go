package chain

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
)

// Schedule defines when a chain runs. A tick is a time at which it runs, in whole seconds. Ticks depend on
// the schedule alone, so every process computes the same ones at any time.
type Schedule struct {
	Type       string // cron, interval or once
	Expression string
	Timezone   *time.Location
	Interval   time.Duration
	At         time.Time
	// Missed and Overlap are words of the grammar; "" means the default.
	Missed, Overlap      string
	MissedWithin, Jitter time.Duration

	cron cronExpression
}

// The values of missed and overlap.
const (
	missedSkip, missedLatest, missedAll                     = "skip", "latest", "all"
	overlapSkip, overlapQueue, overlapReplace, overlapAllow = "skip", "queue", "replace", "allow"
)

// String returns the part of the schedule that determines its ticks, in readable form.
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

// Next returns the first tick after a time, or false if there is none.
//
// Ticks of an interval are its multiples since 1970 UTC, so they do not depend on when the definition was
// changed. Ticks of cron follow the wall clock of the zone. A time that occurs twice is a tick at its first
// occurrence. A time that is skipped is a tick at the end of the skipped period.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	switch s.Type {
	case "interval":
		seconds := int64(s.Interval / time.Second)
		tick := (floorDivide(after.Unix(), seconds) + 1) * seconds
		return time.Unix(tick, 0).UTC(), true
	case "once":
		return s.At.UTC(), s.At.After(after)
	}
	// Ticks are in the order of their wall-clock times. A wall-clock time up to that of after therefore gives
	// no tick later than after, and the search begins after it.
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

// readWall returns the wall-clock time, stored as UTC.
func readWall(t time.Time) time.Time {
	_, offset := t.Zone()
	return time.Unix(t.Unix()+int64(offset), 0).UTC()
}

// findInstant returns when the wall clock of a zone first shows wall. If it never does, it returns the
// moment at which the clock skips past it.
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
		case !wall.Before(before) && wall.Before(after): // skipped
			return change
		case !wall.Before(after) && wall.Before(before): // occurs twice
			found = change.Add(wall.Sub(before))
		}
	}
	return found
}

// startOf returns when the run of a tick starts: the tick plus its jitter, before the following tick.
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

// TickRun returns the id of the run of a tick. It is derived from the chain and the tick, so a tick has
// only one run, no matter how often or by which process it is started.
func TickRun(chain string, tick time.Time) string {
	h := hashTick(chain, tick)
	id := binary.BigEndian.AppendUint64(nil, uint64(tick.UnixMilli())<<16) //nolint:gosec // any bits will do
	id = append(id[:6], h[8:18]...)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8, ordered by time
	text := hex.EncodeToString(id)
	return "run-" + text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

var tickRun = regexp.MustCompile(`^run-[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// IsTickRun reports whether an id has the form of a TickRun id. Runs of ticks have it, and so do runs that
// redrive them.
func IsTickRun(run string) bool { return tickRun.MatchString(run) }

func hashTick(chain string, tick time.Time) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s\n%d", chain, tick.Unix()))
}
