package export

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is sent, fails and finishes in any order: only one event of an instance is in flight at a time, in order,
// and the position never passes an unfinished one.
func TestWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, now := newWindow(10), time.Unix(0, 0)
		var position int64 = 10
		finished, last := map[int64]bool{}, map[string]int64{}
		var flying []*delivery
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0: // positions have gaps because of filters and shortened histories
				position += int64(rapid.IntRange(1, 3).Draw(t, "gap"))
				w.read = position
				w.add(&delivery{position: position, instance: fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "instance"))})
			case 1:
				d, wait := w.pick(now)
				if d == nil {
					if wait < 0 {
						t.Fatalf("waits %v", wait)
					}
					now = now.Add(wait)
					continue
				}
				for _, other := range flying {
					if other.instance == d.instance {
						t.Fatalf("%d is sent beside %d of the same instance", d.position, other.position)
					}
				}
				if d.position < last[d.instance] || d.notBefore.After(now) {
					t.Fatalf("%d is sent after %d of its instance, at %v", d.position, last[d.instance], now)
				}
				d.sending, last[d.instance] = true, d.position
				flying = append(flying, d)
			default:
				if len(flying) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
				d := flying[i]
				flying = append(flying[:i], flying[i+1:]...)
				d.sending = false
				if rapid.Bool().Draw(t, "fails") {
					d.tries, d.notBefore = d.tries+1, now.Add(time.Second)
					continue
				}
				w.finish(d)
				finished[d.position] = true
			}
			passed := w.passed()
			for _, d := range w.open {
				if !d.finished && d.position <= passed {
					t.Fatalf("the place %d passes %d, which is open", passed, d.position)
				}
			}
			if len(w.open) == 0 && passed != w.read || len(w.open) > 0 && finished[w.open[0].position] {
				t.Fatalf("the place is %d with %d read and %d open", passed, w.read, len(w.open))
			}
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: maxPause, 1000: maxPause} {
		if got := backoff(failures); got < want/2 || got > want {
			t.Errorf("after %d failures %v, want %v to %v", failures, got, want/2, want)
		}
	}
}
