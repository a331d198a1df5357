package clientstate_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/clientstate"
)

// shared returns the States of n replicas.
func shared(n int) []*clientstate.States {
	counters, all := memory.New(), make([]*clientstate.States, n)
	for i := range all {
		all[i] = clientstate.New()
		all[i].Share(make([]byte, 32), counters)
	}
	return all
}

func TestSeal(t *testing.T) {
	replicas, other := shared(2), clientstate.New()
	sealed := replicas[0].Seal("the state", []byte("to"))
	if got, err := replicas[1].Open(sealed, []byte("to")); err != nil || got != "the state" {
		t.Errorf("at another replica: %q, %v", got, err)
	}
	for name, c := range map[string]struct {
		states  *clientstate.States
		sealed  string
		binding string
	}{
		"none":            {replicas[0], "", "to"},
		"another binding": {replicas[0], sealed, "too"},
		"no binding":      {replicas[0], sealed, ""},
		"another key":     {other, sealed, "to"},
		"cut short":       {replicas[0], sealed[:len(sealed)-2], "to"},
		"another letter":  {replicas[0], strings.ToLower(sealed), "to"},
		"garbage":         {replicas[0], "the state", "to"},
	} {
		if got, err := c.states.Open(c.sealed, []byte(c.binding)); !errors.Is(err, clientstate.ErrState) || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if strings.Contains(sealed, "state") || sealed == replicas[0].Seal("the state", []byte("to")) {
		t.Error("it can be read, or compared")
	}
}

// A single-use state is accepted once across replicas, and only within its lifetime.
func TestUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := shared(2)
		allow := func() string {
			name, err := replicas[0].AllowUse(t.Context(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return name
		}
		name := allow()
		var taken atomic.Int64
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				left, err := replicas[i%2].Use(t.Context(), name)
				switch {
				case err == nil && left == time.Hour:
					taken.Add(1)
				case !errors.Is(err, clientstate.ErrState):
					t.Error(left, err)
				}
			})
		}
		group.Wait()
		if taken.Load() != 1 {
			t.Errorf("taken up %d times", taken.Load())
		}
		late, never := allow(), "ABC"
		time.Sleep(time.Hour) //nolint:forbidigo // synctest clock
		for _, name := range []string{late, name, never} {
			for range 5 {
				if _, err := replicas[1].Use(t.Context(), name); !errors.Is(err, clientstate.ErrState) {
					t.Errorf("too late, or never allowed: %v", err)
				}
				time.Sleep(25 * time.Second) //nolint:forbidigo // synctest clock
			}
		}
	})
}

func TestCountUpTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := shared(2)
		for _, hour := range []int{1, 2} {
			counted := 0
			for i := range 9 {
				if ok, err := replicas[i%2].CountUpTo(t.Context(), "a", 3, time.Hour); err != nil {
					t.Error(err)
				} else if ok {
					counted++
				}
			}
			if counted != 3 {
				t.Errorf("counted %d in hour %d", counted, hour)
			}
			time.Sleep(time.Hour) //nolint:forbidigo // synctest clock
		}
	})
}
