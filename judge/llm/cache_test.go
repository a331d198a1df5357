package llm

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCache(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		asked string // model/key; a dot is a minute; capitals fail; x must not be cached
		calls int
	}{
		{"the same question", "m/a m/a m/a", 1},
		{"the first model by name and without", "/a m/a", 1},
		{"of another model", "m/a n/a", 2},
		{"without identity", "m/ m/", 2},
		{"a failure is not kept", "m/A m/A", 2},
		{"an answer that is not to be kept", "m/x m/x", 2},
		{"within its time", "m/a .............. m/a", 1},
		{"after its time", "m/a ............... m/a", 2},
		{"being asked for does not make it younger", "m/a .......... m/a ..... m/a", 2},
		{"the one not asked for longest goes", "m/a m/b m/a m/c m/a m/b", 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				c := withCache(CompleterFunc(func(_ context.Context, req Request) (Reply, error) {
					calls++
					if strings.ToLower(req.Key) != req.Key {
						return Reply{}, &Error{Class: ClassMalformed}
					}
					return Reply{Calls: 2}, nil
				}), "m", 15*time.Minute, 2)
				for word := range strings.FieldsSeq(tc.asked) {
					model, key, ok := strings.Cut(word, "/")
					if !ok {
						pass(time.Duration(len(word)) * time.Minute)
						continue
					}
					before := calls
					reply, err := c.Complete(t.Context(), Request{Model: model, Key: key, Keep: func(Answer) bool { return key != "x" }})
					if err == nil && (reply.CacheHit != (calls == before) || reply.CacheHit != (reply.Calls == 0)) {
						t.Errorf("%s: %+v after %d calls", word, reply, calls-before)
					}
				}
				if calls != tc.calls {
					t.Errorf("%d calls, want %d", calls, tc.calls)
				}
			})
		})
	}
}

func TestNoCache(t *testing.T) {
	t.Parallel()
	f := &fake{do: answering}
	c := clientOver(t, Config{CacheTTL: -1}, f)
	for range 2 {
		if reply, err := c.Complete(t.Context(), Request{Key: "k"}); err != nil || reply.CacheHit {
			t.Errorf("%+v, %v", reply, err)
		}
	}
	if f.calls.Load() != 2 {
		t.Errorf("%d calls", f.calls.Load())
	}
}

// Changes that one caller makes to a reply are invisible to the next.
func TestRepliesShareNothing(t *testing.T) {
	t.Parallel()
	c := clientOver(t, Config{}, &fake{do: func(context.Context, int, Request) (Reply, error) {
		return Reply{Answer: Answer{Violations: []string{"v"}, Suggestions: []string{"s"}, Criteria: []Criterion{{ID: "c"}}}}, nil
	}})
	for range 3 {
		reply, err := c.Complete(t.Context(), Request{Key: "k"})
		a := reply.Answer
		if err != nil || !slices.Equal(a.Violations, []string{"v"}) || !slices.Equal(a.Suggestions, []string{"s"}) || a.Criteria[0].ID != "c" {
			t.Fatalf("%+v, %v", a, err)
		}
		a.Violations[0], a.Suggestions[0], a.Criteria[0].ID = "", "", ""
	}
}
