package export_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/endpoint"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/export"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

var operator = engine.Principal{ID: "op", Role: engine.RoleOperator}

// bench is an engine over an in-memory store, with a workflow that allows every kind of event.
type bench struct {
	*engine.Engine
	t  *testing.T
	db *memory.Store
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, db: memory.New()}
	b.Engine = enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store = b.db })
	if _, err := b.Define(t.Context(), operator, engine.DefineRequest{Name: "flow", Document: []byte(`{"name":"flow","sensitive":["/pin"],"initialState":"a","states":{"a":{"transitions":{"go":"a"}}}}`)}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) start() string {
	b.t.Helper()
	r, err := b.Start(b.t.Context(), operator, engine.StartRequest{Type: "flow", Context: []byte(`{"pin":"hunter2-4711"}`)})
	if err != nil {
		b.t.Fatal(err)
	}
	return r.ID
}

func (b *bench) move(id string, times int) {
	b.t.Helper()
	for range times {
		if _, err := b.Advance(b.t.Context(), operator, engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{"said":"hunter2-4711"}`))}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) place(h export.Webhook) int64 {
	b.t.Helper()
	all, err := b.db.Cursors(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range all {
		if c.Name == h.Cursor() {
			return c.Position
		}
	}
	return store.NoCursor
}

func (b *bench) letters(h export.Webhook) (all []store.DeadLetter) {
	b.t.Helper()
	for l, err := range b.db.DeadLetters(b.t.Context(), h.Cursor()) {
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// receiver accepts or rejects messages as answer decides, which gets the number of the try, from 1.
type receiver struct {
	mu       sync.Mutex
	answer   func(ctx context.Context, id string, try int) error
	tries    map[string]int
	accepted []string
	asked    []time.Time
	bodies   []string
	flying   int
	most     int
}

func (r *receiver) Send(ctx context.Context, m endpoint.Message) error {
	r.mu.Lock()
	if r.tries == nil {
		r.tries = map[string]int{}
	}
	r.tries[m.ID]++
	try := r.tries[m.ID]
	r.asked, r.bodies = append(r.asked, time.Now()), append(r.bodies, string(m.Body))
	r.flying++
	r.most = max(r.most, r.flying)
	r.mu.Unlock()
	var err error
	if r.answer != nil {
		err = r.answer(ctx, m.ID, try)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flying--
	if err == nil {
		r.accepted = append(r.accepted, m.ID)
	}
	return err
}

func (*receiver) Close() {}

func (r *receiver) countTries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

// countMost returns the maximum number of messages in flight.
func (r *receiver) countMost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

func (r *receiver) listAccepted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.accepted)
}

// of returns the accepted seqs of an instance.
func (r *receiver) of(instance string) (seqs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.accepted {
		if seq, ok := strings.CutPrefix(id, instance+"_"); ok {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

var hook = export.Webhook{Name: "audit", URL: "https://hooks.example.org/T0P-SECRET", FromStart: true, Parallel: 4, Tries: 5, Timeout: 10 * time.Second}

// sendTo runs a webhook with a receiver, as a process would.
func (b *bench) sendTo(h export.Webhook, to export.Receiver) (stop func()) {
	return export.New(b.Engine, b.db, slog.New(slog.DiscardHandler)).RunTo(context.Background(), h, to) //nolint:usetesting // it ends with stop
}

func wait(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's clock
	synctest.Wait()
}

func wantSeqs(t *testing.T, what string, got []string, last int) {
	t.Helper()
	var want []string
	for seq := 1; seq <= last; seq++ {
		want = append(want, fmt.Sprint(seq))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestEveryEventArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newBench(t), &receiver{}
		one, two := b.start(), b.start()
		b.move(one, 3)
		stop := b.sendTo(hook, r)
		wait(time.Second)
		b.move(two, 4)
		b.move(one, 2)
		wait(5 * time.Second)
		stop()
		wantSeqs(t, "one", r.of(one), 6)
		wantSeqs(t, "two", r.of(two), 5)
		if at := b.place(hook); at != 11 {
			t.Errorf("the cursor is at %d", at)
		}
		slices.Sort(r.bodies)
		if got := strings.Join(r.bodies, "\n"); !strings.Contains(got, `{"type":"workflow.started","timestamp":"2000-01-01T00:00:00Z","data":{"position":1,"id":"`+one+`","workflow":"flow"`) {
			t.Errorf("the messages are %s", got)
		}
		for _, body := range r.bodies {
			if strings.Contains(body, "hunter2") {
				t.Errorf("a sensitive value is sent: %s", body)
			}
		}
		b.move(one, 1)
		stop = b.sendTo(hook, r) // another process
		wait(5 * time.Second)
		stop()
		if got := len(r.listAccepted()); got != 12 || b.place(hook) != 12 {
			t.Errorf("%d messages after another start", got)
		}
	})
}

func TestANewWebhookBeginsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r, h := newBench(t), &receiver{}, hook
		h.FromStart, h.Filter = false, export.Filter{Kinds: []record.Kind{record.Advanced}}
		one := b.start()
		b.move(one, 3)
		stop := b.sendTo(h, r)
		wait(time.Second)
		if at := b.place(h); at != 4 {
			t.Errorf("the cursor begins at %d", at)
		}
		two := b.start()
		b.move(two, 1)
		wait(5 * time.Second)
		stop()
		if !slices.Equal(r.listAccepted(), []string{two + "_2"}) || b.place(h) != 6 {
			t.Errorf("got %v, at %d", r.listAccepted(), b.place(h))
		}
	})
}

// For a receiver that accepts nothing, the sender waits: nothing is lost, and it is not tried often.
func TestAReceiverThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		r := &receiver{}
		r.answer = func(context.Context, string, int) error {
			if down.Load() {
				return &endpoint.AnswerError{Status: http.StatusInternalServerError}
			}
			return nil
		}
		b := newBench(t)
		var ids []string
		for range 10 {
			id := b.start()
			b.move(id, 3)
			ids = append(ids, id)
		}
		stop := b.sendTo(hook, r)
		wait(24 * time.Hour)
		if n := r.countTries(); n < 24*12 || n > 24*25 {
			t.Errorf("it was asked %d times in a day", n)
		}
		if at := b.place(hook); at != 0 || len(b.letters(hook)) > 0 {
			t.Errorf("the cursor is at %d, and there are %d dead letters", at, len(b.letters(hook)))
		}
		down.Store(false)
		wait(export.MaxPause + time.Minute)
		stop()
		for _, id := range ids {
			wantSeqs(t, id, r.of(id), 4)
		}
		if at := b.place(hook); at != 40 || r.countMost() > hook.Parallel {
			t.Errorf("the cursor is at %d, and %d were sent at once", at, r.countMost())
		}
	})
}

// A message that keeps failing finally becomes a dead letter. It does not hold up other instances, and the following
// events of its own instance continue.
func TestDeadLetters(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(ctx context.Context) error
		// alone means that the receiver rejects the message itself, so that no other message has to be accepted.
		alone bool
		cause string
	}{
		"refused":     {func(context.Context) error { return &endpoint.AnswerError{Status: http.StatusUnprocessableEntity} }, true, "the receiver answered with status 422"},
		"answers 500": {func(context.Context) error { return &endpoint.AnswerError{Status: http.StatusInternalServerError} }, false, "the receiver answered with status 500"},
		"hangs":       {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, false, "context deadline exceeded"},
		"dies":        {func(context.Context) error { return errors.New("connection reset") }, false, "connection reset"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, r := newBench(t), &receiver{}
				bad := b.start()
				b.move(bad, 2)
				r.answer = func(ctx context.Context, id string, _ int) error {
					if id == bad+"_2" {
						return c.fail(ctx)
					}
					return nil
				}
				stop := b.sendTo(hook, r)
				wait(30 * time.Minute)
				if got := len(b.letters(hook)) > 0; got != c.alone {
					t.Errorf("with nothing else to accept: a dead letter %v, want %v", got, c.alone)
				}
				good := b.start()
				b.move(good, 2)
				wait(time.Minute)
				wantSeqs(t, "another instance", r.of(good), 3)
				wait(10 * time.Minute)
				stop()
				if got := r.of(bad); !slices.Equal(got, []string{"1", "3"}) {
					t.Errorf("of its own instance arrived %v", got)
				}
				letters := b.letters(hook)
				if len(letters) != 1 {
					t.Fatalf("dead letters: %+v", letters)
				}
				if l := letters[0]; l.Position != 2 || l.Instance != bad || l.Seq != 2 || l.Tries < hook.Tries || l.Cause != c.cause {
					t.Errorf("the dead letter: %+v", l)
				}
				if at := b.place(hook); at != 6 {
					t.Errorf("the cursor is at %d", at)
				}
			})
		})
	}
}

func TestGoneReceiverIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := &receiver{answer: func(_ context.Context, id string, _ int) error {
			if strings.HasSuffix(id, "_2") {
				return &endpoint.AnswerError{Status: http.StatusGone}
			}
			return nil
		}}
		b.move(b.start(), 3)
		stop := b.sendTo(hook, r)
		wait(time.Hour)
		stop()
		if r.countTries() != 2 || b.place(hook) != 1 || len(b.letters(hook)) > 0 {
			t.Errorf("it was asked %d times, the cursor is at %d", r.countTries(), b.place(hook))
		}
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := &receiver{answer: func(_ context.Context, _ string, try int) error {
			if try == 1 {
				return &endpoint.AnswerError{Status: http.StatusTooManyRequests, RetryAfter: 20 * time.Minute}
			}
			return nil
		}}
		one := b.start()
		stop := b.sendTo(hook, r)
		wait(time.Second)
		b.move(one, 2)
		b.start()
		wait(19 * time.Minute)
		if r.countTries() != 1 {
			t.Errorf("it was asked %d times", r.countTries())
		}
		wait(2 * time.Minute)
		stop()
		if len(r.listAccepted()) == 0 {
			t.Error("nothing arrives afterwards")
		}
	})
}

// Of two processes only one sends. When it is gone, the other continues from the cursor.
func TestOneProcessSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, first, second := newBench(t), &receiver{}, &receiver{}
		one := b.start()
		stopFirst := b.sendTo(hook, first)
		wait(time.Second)
		stopSecond := b.sendTo(hook, second)
		for range 10 {
			b.move(one, 1)
			wait(10 * time.Second)
		}
		if len(first.listAccepted()) != 11 || second.countTries() > 0 {
			t.Fatalf("the first sent %d, the second %d", len(first.listAccepted()), second.countTries())
		}
		stopFirst()
		b.move(one, 1)
		wait(export.RetryEvery + time.Second)
		stopSecond()
		if !slices.Equal(second.listAccepted(), []string{one + "_12"}) {
			t.Errorf("the second sent %v", second.listAccepted())
		}
	})
}

// A killed process keeps the lease until it ends. Deliveries that it did not store are sent again, with the same id.
func TestAKilledProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newBench(t), &receiver{}
		one := b.start()
		b.move(one, 2)
		if _, err := b.db.TakeLease(t.Context(), hook.Cursor(), "killed", export.LeaseTime); err != nil {
			t.Fatal(err)
		}
		if err := b.db.MoveCursor(t.Context(), store.Cursor{Name: hook.Cursor(), Position: 1}, store.NoCursor, nil); err != nil {
			t.Fatal(err)
		}
		stop := b.sendTo(hook, r)
		wait(export.LeaseTime - time.Second)
		if r.countTries() > 0 {
			t.Error("two processes may send")
		}
		wait(export.RetryEvery + 2*time.Second)
		stop()
		if !slices.Equal(r.listAccepted(), []string{one + "_2", one + "_3"}) {
			t.Errorf("sent %v", r.listAccepted())
		}
	})
}

// A cursor that is moved while its reader works takes effect: events are sent again, with the same ids.
func TestMovedCursorIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newBench(t), &receiver{}
		one := b.start()
		b.move(one, 3)
		stop := b.sendTo(hook, r)
		wait(2 * time.Second)
		if err := b.db.MoveCursor(t.Context(), store.Cursor{Name: hook.Cursor(), Position: 2}, 4, nil); err != nil {
			t.Fatal(err)
		}
		b.move(one, 1)
		wait(10 * time.Second)
		stop()
		if got := r.of(one); !slices.Equal(got, []string{"1", "2", "3", "4", "5", "3", "4", "5"}) || b.place(hook) != 5 {
			t.Errorf("sent %v, at %d", got, b.place(hook))
		}
	})
}

// slowCursors is a store in which the first move of a cursor takes a second.
type slowCursors struct {
	*memory.Store
	moving func() // called once, when the move begins
}

func (s *slowCursors) MoveCursor(ctx context.Context, c store.Cursor, from int64, lease *store.Lease) error {
	if moving := s.moving; moving != nil && from != store.NoCursor {
		s.moving = nil
		moving()
		wait(time.Second)
	}
	return s.Store.MoveCursor(ctx, c, from, lease) //nolint:wrapcheck // the store's own answer
}

// An event that is announced while the sender waits for the store is sent, even if no other event follows.
func TestAnEventDuringAMoveOfTheCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newBench(t), &receiver{}
		one := b.start()
		db := &slowCursors{Store: b.db, moving: func() { b.move(one, 1) }}
		stop := export.New(b.Engine, db, slog.New(slog.DiscardHandler)).RunTo(context.Background(), hook, r) //nolint:usetesting // it ends with stop
		wait(10 * time.Second)
		wantSeqs(t, "before the end", r.of(one), 2)
		if at := b.place(hook); at != 2 {
			t.Errorf("the cursor is at %d", at)
		}
		stop()
	})
}

// When the sender ends, messages in flight may arrive for a while.
func TestEndingSenderWaitsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		one, two := b.start(), b.start()
		r := &receiver{answer: func(ctx context.Context, id string, _ int) error {
			delay := time.Second
			if strings.HasPrefix(id, two) {
				delay = time.Hour
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(delay):
				return nil
			}
		}}
		b.move(one, 5)
		stop := b.sendTo(hook, r)
		wait(time.Millisecond)
		began := time.Now()
		stop()
		if took := time.Since(began); took != export.CloseTime {
			t.Errorf("the end took %v", took)
		}
		if got := r.of(one); !slices.Equal(got, []string{"1"}) || b.place(hook) != 1 {
			t.Errorf("arrived %v, at %d", got, b.place(hook))
		}
	})
}

// Reviews are announced with ids, names and codes: when they are opened, when they become urgent, and when they are
// closed. Other events are skipped.
func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newBench(t), &receiver{}
		b.Engine = enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store, c.ReviewPath = b.db, true })
		definition := `{"name":"release","initialState":"ready","states":{"shipped":{"final":true},"ready":{"transitions":{
			"ship":{"target":"shipped","requireAssurance":"human","review":{"priority":"high","expiresAfter":"1h"}},
			"hurry":{"target":"shipped","requireAssurance":"human","review":{"expiresAfter":"1h","onExpire":"raise"}}}}}}`
		if _, err := b.Define(t.Context(), operator, engine.DefineRequest{Name: "release", Document: []byte(definition)}); err != nil {
			t.Fatal(err)
		}
		h := hook
		h.Name, h.Reviews, h.FromStart = "notify.url", true, false
		h.ReviewBase = "https://gavel.example/console/reviews/"
		stop := b.sendTo(h, r)
		b.move(b.start(), 2)
		release, err := b.Start(t.Context(), operator, engine.StartRequest{Type: "release"})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, action := range []string{"ship", "hurry"} {
			parked, err := b.Advance(t.Context(), operator, engine.AdvanceRequest{ID: release.ID, Action: action, Data: document.ReadTrusted([]byte(`{"password":"hunter2"}`))})
			if err != nil || parked.Review == nil {
				t.Fatalf("%+v, %v", parked, err)
			}
			ids = append(ids, parked.Review.ID)
		}
		wait(2 * time.Hour)
		if _, err := b.ExpireReviews(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		stop()
		got := r.listAccepted()
		slices.Sort(got)
		want := []string{ids[0] + ".expired", ids[0] + ".opened", ids[1] + ".opened", ids[1] + ".raised"}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		all := strings.Join(r.bodies, "\n")
		opened := `{"type":"review.opened","timestamp":"2000-01-01T00:00:00Z","data":{"reviewId":"` + ids[0] + `","id":"` + release.ID + `","workflow":"release","version":1,` +
			`"state":"ready","action":"ship","requestedBy":"op","reason":"assurance_too_low","priority":"high","expiresAt":"2000-01-01T01:00:00Z","url":"https://gavel.example/console/reviews/` + ids[0] + `"}}`
		if !strings.Contains(all, opened) || strings.Contains(all, "hunter2") {
			t.Errorf("the messages are\n%s\nwithout\n%s", all, opened)
		}
	})
}

// A server that ends right after a commit first sends its event.
func TestTheLastEventOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newBench(t), &receiver{}
		stop := b.sendTo(hook, r)
		wait(time.Second)
		id := b.start()
		stop()
		wantSeqs(t, "the instance", r.of(id), 1)
	})
}

// A program reads each message from its input, and is retried when it fails.
func TestAProgramIsAReceiver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := dir + "/told"
	root, err := document.Parse(dir+"/gavel.json", fmt.Appendf(nil, `{"command":["sh","-c","cat >> %s"]}`, file), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := export.ParseConfig(nil, root)
	if err != nil {
		t.Fatal(err)
	}
	if err := export.Test(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	if told, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(told), `{"type":"gavel.test"`) || !strings.HasSuffix(string(told), "}\n") {
		t.Errorf("%q, %v", told, err)
	}
	all[0].Command = []string{"sh", "-c", "exit 3"}
	if err := export.Test(t.Context(), all[0]); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a program that fails: %v", err)
	}
}
