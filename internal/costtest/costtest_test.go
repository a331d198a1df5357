package costtest

import (
	"fmt"
	"runtime"
	"testing"
)

type failures []string

func (*failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func TestCheckBoundIgnoresGarbage(t *testing.T) {
	const many = 4 << 10 // blocks of 8 KiB: twice what a text of 16 KiB may hold
	for name, c := range map[string]struct {
		held int
		fail bool
	}{"held": {many, true}, "dropped": {1, false}} {
		t.Run(name, func(t *testing.T) {
			var got failures
			CheckBound(&got, unit/4, func() {
				held := make([][]byte, c.held)
				for i := range many {
					held[i%c.held] = make([]byte, 8<<10)
				}
				for range 3 {
					runtime.GC()
				}
				runtime.KeepAlive(held)
			})
			if (len(got) > 0) != c.fail {
				t.Errorf("told %q", got)
			}
		})
	}
}
