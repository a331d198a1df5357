package chain

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cronExpression holds the minutes, hours, days, months and weekdays of a cron expression as bit sets.
type cronExpression struct {
	minutes, hours, days, months, weekdays uint64
	// If both days and weekdays are restricted, a match of either suffices, as in every cron.
	anyDay, anyWeekday bool
}

type cronField struct {
	name     string
	min, max int
	names    []string // names of the values, starting at min
}

var cronFields = []cronField{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of the month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of the week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// parseCron parses an expression of five fields.
func parseCron(text string) (cronExpression, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "@") {
		return cronExpression{}, fmt.Errorf("%s is not a cron expression of five fields; write it as one, such as \"0 9 * * *\" for every day at nine", quoteName(text))
	}
	fields := strings.Fields(text)
	if len(fields) != len(cronFields) {
		hint := ""
		if len(fields) == len(cronFields)+1 {
			hint = "; remove the field of seconds"
		}
		return cronExpression{}, fmt.Errorf("a cron expression has five fields (minute, hour, day of the month, month, day of the week), and %s has %d%s", quoteName(text), len(fields), hint)
	}
	var set [5]uint64
	for i, f := range cronFields {
		var err error
		if set[i], err = f.parse(fields[i]); err != nil {
			return cronExpression{}, err
		}
	}
	if set[4]&(1<<7) != 0 {
		set[4] = set[4]&^(1<<7) | 1
	}
	c := cronExpression{set[0], set[1], set[2], set[3], set[4], strings.HasPrefix(fields[2], "*"), strings.HasPrefix(fields[4], "*")}
	if last := c.lastDay(); c.anyWeekday && bits.TrailingZeros64(c.days) > last {
		return cronExpression{}, fmt.Errorf("no month of %s has such a day: %s never fires; write a day from 1 to %d", quoteName(fields[3]), quoteName(text), last)
	}
	return c, nil
}

// lastDay returns the last day of the longest month in the expression.
func (c cronExpression) lastDay() (last int) {
	for month, days := range []int{1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31} {
		if c.months&(1<<month) != 0 {
			last = max(last, days)
		}
	}
	return last
}

func (f cronField) parse(text string) (uint64, error) {
	var set uint64
	for part := range strings.SplitSeq(text, ",") {
		span, step, stepped := strings.Cut(part, "/")
		every := 1
		if stepped {
			n, err := strconv.Atoi(step)
			if err != nil || n < 1 || n > f.max || step[0] == '+' {
				return 0, fmt.Errorf("%s is not a step of the %s: 1 to %d", quoteName(step), f.name, f.max)
			}
			every = n
		}
		from, to := f.min, f.max
		if span != "*" {
			low, high, ranged := strings.Cut(span, "-")
			var err error
			if from, err = f.parseValue(low); err != nil {
				return 0, err
			}
			if !stepped {
				to = from
			}
			if ranged {
				if to, err = f.parseValue(high); err != nil {
					return 0, err
				}
			}
			if from > to {
				return 0, fmt.Errorf("%s is not a range of the %s: it ends before it begins; write it as two, %s",
					quoteName(span), f.name, quoteName(fmt.Sprintf("%s-%d,%d-%s", low, f.max, f.min, high)))
			}
		}
		for v := from; v <= to; v += every {
			set |= 1 << v
		}
	}
	return set, nil
}

func (f cronField) parseValue(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max || text[0] == '+' {
		return 0, fmt.Errorf("%s is not a value of the %s: %d to %d", quoteName(text), f.name, f.min, f.max)
	}
	return n, nil
}

// lastYear ends the search for a tick: the calendar repeats itself after 400 years.
const lastYear = 2800

// next returns the first matching minute after w, or false if there is none. Both are wall-clock times,
// stored as UTC.
func (c cronExpression) next(w time.Time) (time.Time, bool) {
	w = w.Truncate(time.Minute).Add(time.Minute)
	for w.Year() < lastYear {
		year, month, day := w.Date()
		switch {
		case c.months&(1<<month) == 0:
			w = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.isDay(w):
			w = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case c.hours&(1<<w.Hour()) == 0:
			w = time.Date(year, month, day, w.Hour()+1, 0, 0, 0, time.UTC)
		default:
			if later := c.minutes >> w.Minute(); later != 0 {
				return w.Add(time.Duration(bits.TrailingZeros64(later)) * time.Minute), true
			}
			w = time.Date(year, month, day, w.Hour()+1, 0, 0, 0, time.UTC)
		}
	}
	return time.Time{}, false
}

func (c cronExpression) isDay(w time.Time) bool {
	day, weekday := c.days&(1<<w.Day()) != 0, c.weekdays&(1<<w.Weekday()) != 0
	if c.anyDay || c.anyWeekday {
		return day && weekday
	}
	return day || weekday
}
