package script

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

func any2(string) int { return 2 }

func TestQueueServesOwnersInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, 100, any2)
		if err := q.acquire(context.Background(), "first"); err != nil {
			t.Fatal(err)
		}
		served := make(chan string, 10)
		wait := func(owner string) {
			go func() {
				if err := q.acquire(context.Background(), owner); err != nil {
					t.Error(err)
				}
				served <- owner
			}()
			synctest.Wait()
		}
		for range 3 {
			wait("greedy")
		}
		wait("modest")
		wait("other")
		owner, order := "first", ""
		for range 5 {
			q.release(owner)
			owner = <-served
			order += owner[:1]
		}
		if order != "gmogg" {
			t.Errorf("served in the order %s", order)
		}
		q.release(owner)
	})
}

func TestQueueLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, 4, any2)
		if err := q.acquire(context.Background(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		errs := make(chan error, 10)
		for range 3 {
			go func() { errs <- q.acquire(ctx, "a") }()
			synctest.Wait()
		}
		if err := <-errs; !errors.Is(err, errBusy) {
			t.Errorf("a third call of one owner: %v", err)
		}
		for i := range 2 {
			go func() { errs <- q.acquire(ctx, fmt.Sprint("b", i)) }()
			synctest.Wait()
		}
		if err := q.acquire(ctx, "c"); !errors.Is(err, errBusy) {
			t.Errorf("a fifth call: %v", err)
		}
		cancel()
		for range 4 {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
		}
		if q.depth() != 0 {
			t.Errorf("%d still wait", q.depth())
		}
		go func() { errs <- q.acquire(context.Background(), "d") }()
		synctest.Wait()
		q.close()
		if err := <-errs; !errors.Is(err, errClosed) {
			t.Errorf("waiting at close: %v", err)
		}
		if err := q.acquire(context.Background(), "e"); !errors.Is(err, errClosed) {
			t.Errorf("after close: %v", err)
		}
		q.release("a")
	})
}

func TestQueueCapsAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(2, 10, func(owner string) int {
			if owner == "suspect" {
				return 1
			}
			return 2
		})
		_ = q.acquire(context.Background(), "suspect")
		got := make(chan error, 1)
		go func() { got <- q.acquire(context.Background(), "suspect") }()
		synctest.Wait()
		if err := q.acquire(context.Background(), "honest"); err != nil { // the free one is for others
			t.Fatal(err)
		}
		q.release("honest")
		synctest.Wait()
		select {
		case <-got:
			t.Error("a second permit beyond the cap")
		default:
		}
		q.release("suspect")
		if err := <-got; err != nil {
			t.Error(err)
		}
		q.release("suspect")
	})
}

// TestQueueModel walks at random and compares with what must always hold.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			permits := rapid.IntRange(1, 3).Draw(rt, "permits")
			q := newQueue(permits, 8, any2)
			held := map[string]int{}
			type call struct {
				owner  string
				done   chan error
				cancel context.CancelFunc
			}
			var waiting []call
			settle := func() {
				synctest.Wait()
				rest := waiting[:0]
				for _, c := range waiting {
					select {
					case err := <-c.done:
						c.cancel()
						if err == nil {
							held[c.owner]++
						}
					default:
						rest = append(rest, c)
					}
				}
				waiting = rest
			}
			total := func() (n int) {
				for _, h := range held {
					n += h
				}
				return n
			}
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				owner := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "owner")
				switch rapid.IntRange(0, 2).Draw(rt, "action") {
				case 0:
					ctx, cancel := context.WithCancel(context.Background())
					c := call{owner, make(chan error, 1), cancel}
					go func() { c.done <- q.acquire(ctx, owner) }()
					waiting = append(waiting, c)
				case 1:
					if held[owner] > 0 {
						held[owner]--
						q.release(owner)
					}
				case 2:
					if len(waiting) > 0 {
						waiting[rapid.IntRange(0, len(waiting)-1).Draw(rt, "which")].cancel()
					}
				}
				settle()
				if total() > permits || q.depth() != len(waiting) {
					rt.Fatalf("%v held of %d, %d wait, depth %d", held, permits, len(waiting), q.depth())
				}
				for _, c := range waiting { // nobody waits for what is free
					if total() < permits && held[c.owner] < 2 {
						rt.Fatalf("%s waits, held %v of %d", c.owner, held, permits)
					}
				}
			}
			for _, c := range waiting {
				c.cancel()
			}
			settle()
			if len(waiting) > 0 || q.depth() != 0 {
				rt.Fatalf("%d left behind", len(waiting))
			}
		})
	})
}
