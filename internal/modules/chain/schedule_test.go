package chain

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func parseSchedule(t testing.TB, text string) *Schedule {
	t.Helper()
	d, err := Parse("chain.yaml", []byte(withSchedule(text)))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d.Schedule
}

func listTicks(s *Schedule, from, until time.Time) (ticks []int64) {
	for tick, ok := s.Next(from.Add(-time.Second)); ok && tick.Before(until); tick, ok = s.Next(tick) {
		ticks = append(ticks, tick.Unix())
	}
	return ticks
}

// minute is one minute of real time: its start, and the wall-clock times that it shows for the first time,
// including times that the clock skipped just before.
type minute struct {
	at    int64
	shows []time.Time
}

// watchClock lists the minutes of a zone.
func watchClock(zone *time.Location, from, until time.Time) (all []minute) {
	shown := map[int64]bool{}
	var last time.Time
	for at := from.Add(-49 * time.Hour); at.Before(until); at = at.Add(time.Minute) {
		c := at.In(zone)
		wall := time.Date(c.Year(), c.Month(), c.Day(), c.Hour(), c.Minute(), 0, 0, time.UTC)
		m := minute{at: at.Unix()}
		for w := last.Add(time.Minute); !last.IsZero() && w.Before(wall); w = w.Add(time.Minute) {
			m.shows = append(m.shows, w)
		}
		if !shown[wall.Unix()] {
			shown[wall.Unix()] = true
			m.shows = append(m.shows, wall)
		}
		if last = wall; !at.Before(from) {
			all = append(all, m)
		}
	}
	return all
}

// listFieldValues is an independent parser for a field of a cron expression.
func listFieldValues(field string, first int) (set [60]bool) {
	for part := range strings.SplitSeq(field, ",") {
		low, high, step := 0, 0, 1
		switch {
		case part == "*":
			low, high = 0, 59
		case scan(part, "*/%d", &step):
			low, high = first, 59
		case scan(part, "%d-%d", &low, &high):
		case scan(part, "%d", &low):
			high = low
		default:
			panic(part)
		}
		for v := low; v <= high; v += step {
			set[v] = true
		}
	}
	return set
}

func scan(text, format string, into ...any) bool {
	n, err := fmt.Sscanf(text+"$", format+"$", into...)
	return err == nil && n == len(into)
}

// bruteTicks finds the ticks of a cron expression by checking every minute.
func bruteTicks(expression string, clock []minute) (ticks []int64) {
	f := strings.Fields(expression)
	minutes, hours, days, months, weekdays := listFieldValues(f[0], 0), listFieldValues(f[1], 0), listFieldValues(f[2], 1), listFieldValues(f[3], 1), listFieldValues(f[4], 0)
	either := f[2][0] != '*' && f[4][0] != '*'
	fits := func(w time.Time) bool {
		if !minutes[w.Minute()] || !hours[w.Hour()] || !months[w.Month()] {
			return false
		}
		day, week := days[w.Day()], weekdays[w.Weekday()] || w.Weekday() == time.Sunday && weekdays[7]
		return day && week || either && (day || week)
	}
	for _, m := range clock {
		if slices.ContainsFunc(m.shows, fits) {
			ticks = append(ticks, m.at)
		}
	}
	return ticks
}

// TestScheduleOverAYear: over a year, both implementations find the same ticks, in zones that change by an
// hour or half an hour, and on both hemispheres.
func TestScheduleOverAYear(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Africa/Cairo", "UTC"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			where, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			until := from.AddDate(1, 0, 0)
			clock := watchClock(where, from, until)
			for _, expression := range []string{
				"*/15 * * * *", "30 2 * * *", "0 3 * * *", "45 1 * * 0", "15,45 0-3 * 3,4,10,11 *", "0 0 * * *", "0 9 * * 1-5", "10 2 29 3 0", "7 */5 13 * 5", "0 12 31 * *", "1 0 */7 * */2",
			} {
				got := listTicks(parseSchedule(t, fmt.Sprintf(`{type: cron, expression: %q, timezone: %s}`, expression, zone)), from, until)
				want := bruteTicks(expression, clock)
				if !slices.Equal(got, want) {
					at := 0
					for at < min(len(got), len(want)) && got[at] == want[at] {
						at++
					}
					t.Errorf("%q: %d ticks and not %d; from the %d-th on %v and not %v", expression, len(got), len(want), at, showTicks(got[at:], where), showTicks(want[at:], where))
				}
			}
		})
	}
}

func showTicks(ticks []int64, zone *time.Location) (out []string) {
	for _, tick := range ticks[:min(len(ticks), 3)] {
		out = append(out, time.Unix(tick, 0).In(zone).Format(time.RFC3339))
	}
	return out
}

func TestScheduleTicks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ schedule, after, want string }{
		// docs/chains.md shows these two changes.
		{`{type: cron, expression: "30 2 * * *", timezone: Europe/Berlin}`, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		{`{type: cron, expression: "*/15 2 * * *", timezone: Europe/Berlin}`, "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		{`{type: cron, expression: "30 2 * * *", timezone: Europe/Berlin}`, "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"},
		{`{type: cron, expression: "30 2 * * *", timezone: Europe/Berlin}`, "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{`{type: cron, expression: "*/30 * * * *", timezone: Europe/Berlin}`, "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"},
		{`{type: cron, expression: "*/30 * * * *", timezone: Australia/Lord_Howe}`, "2026-10-03T15:00:00Z", "2026-10-03T15:30:00Z"},
		// Apia skipped a whole day.
		{`{type: cron, expression: "0 12 30 12 *", timezone: Pacific/Apia}`, "2011-12-01T00:00:00Z", "2011-12-30T10:00:00Z"},
		{`{type: cron, expression: "0 0 29 2 *"}`, "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{`{type: cron, expression: "0 0 29 2 */7"}`, "2026-01-01T00:00:00Z", "2032-02-29T00:00:00Z"},
		{`{type: cron, expression: "0 9 * * 7"}`, "2026-11-24T00:00:00Z", "2026-11-29T09:00:00Z"},
		{`{type: interval, seconds: 3600}`, "2026-11-24T00:20:00Z", "2026-11-24T01:00:00Z"},
		{`{type: interval, seconds: 3600}`, "2026-11-24T01:00:00Z", "2026-11-24T02:00:00Z"},
		{`{type: interval, seconds: 5400}`, "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"},
		{`{type: interval, seconds: 5400}`, "1969-12-31T21:00:00Z", "1969-12-31T22:30:00Z"},
		{`{type: once, at: "2026-02-04T14:30:00+01:00"}`, "2026-02-04T13:29:59Z", "2026-02-04T13:30:00Z"},
		{`{type: once, at: "2026-02-04T14:30:00+01:00"}`, "2026-02-04T13:30:00Z", ""},
	} {
		after, err := time.Parse(time.RFC3339, tt.after)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if tick, ok := parseSchedule(t, tt.schedule).Next(after); ok {
			got = tick.Format(time.RFC3339)
		}
		if got != tt.want {
			t.Errorf("%s after %s: %s and not %s", tt.schedule, tt.after, got, tt.want)
		}
	}
}

// drawSchedule generates a repeating schedule.
func drawSchedule(t *rapid.T) *Schedule {
	zone := rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca"}).Draw(t, "zone")
	where, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	s := &Schedule{Type: "interval", Timezone: where, MissedWithin: 24 * time.Hour}
	s.Interval = time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "seconds")) * time.Second
	if rapid.Bool().Draw(t, "cron") {
		s.Type = "cron"
		s.Expression = fmt.Sprintf("%d,%d %s * * %s", rapid.IntRange(0, 59).Draw(t, "minute"), rapid.IntRange(0, 59).Draw(t, "minute"),
			rapid.SampledFrom([]string{"*", "0-3", "2", "*/5"}).Draw(t, "hour"), rapid.SampledFrom([]string{"*", "0", "1-5"}).Draw(t, "weekday"))
		if s.cron, err = parseCron(s.Expression); err != nil {
			t.Fatal(err)
		}
	}
	s.Jitter = time.Duration(rapid.Int64Range(0, 7200).Draw(t, "jitter")) * time.Second
	return s
}

func drawTime(t *rapid.T) time.Time {
	// Near the clock changes of 2026 on both hemispheres, or anywhere.
	base := rapid.SampledFrom([]int64{1774742400, 1792886400, 1775314800, 1791039600, 1772953200, 1793509200, 0, 4102444800}).Draw(t, "near")
	return time.Unix(base+rapid.Int64Range(-200_000, 200_000).Draw(t, "offset"), 0).UTC()
}

// TestScheduleProperties: ticks do not depend on the time from which they are computed, ticks and their
// starts are in the same order, and ids are unique per tick.
func TestScheduleProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, after := drawSchedule(t), drawTime(t)
		tick, ok := s.Next(after)
		if !ok || !tick.After(after) {
			t.Fatalf("after %s comes %s, %v", after, tick, ok)
		}
		between := after.Add(time.Duration(rapid.Int64Range(0, int64(tick.Sub(after))-1).Draw(t, "between")))
		if again, _ := s.Next(between); !again.Equal(tick) {
			t.Fatalf("after %s comes %s, but after %s %s", after, tick, between, again)
		}
		following, _ := s.Next(tick)
		start := s.startOf("c", tick)
		if start.Before(tick) || start.Sub(tick) > s.Jitter || !start.Before(following) || !start.Equal(s.startOf("c", tick)) {
			t.Fatalf("%s starts at %s, before %s", tick, start, following)
		}
		if a, b := TickRun("c", tick), TickRun("c", following); a >= b && tick.Unix() >= 0 || a == b || a == TickRun("d", tick) {
			t.Fatalf("the runs %s and %s", a, b)
		}
		if s.Type == "cron" {
			shown := readWall(tick.In(s.Timezone))
			if before := readWall(tick.Add(-time.Second).In(s.Timezone)); before.Add(time.Second).Equal(shown) && bits.OnesCount64(s.cron.minutes&(1<<shown.Minute())) == 0 {
				t.Fatalf("%s is no minute of %q", shown, s.Expression)
			}
		}
	})
}

// TestJitterSpreads: jitter spreads the ticks of many schedules.
func TestJitterSpreads(t *testing.T) {
	t.Parallel()
	s := parseSchedule(t, `{type: cron, expression: "0 9 * * *", jitter: 10m}`)
	tick := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	minutes := map[int]int{}
	for i := range 1000 {
		minutes[s.startOf(fmt.Sprint("chain-", i), tick).Minute()]++
	}
	for minute := range 10 {
		if n := minutes[minute]; n < 50 || n > 150 {
			t.Errorf("%d of 1000 start in the minute %d", n, minute)
		}
	}
}
