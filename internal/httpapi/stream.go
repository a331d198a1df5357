package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
)

// reconnect is how long a client should wait before it takes a stream up again.
const reconnect = time.Second

// feed is one stream of events. It pulls: what a reader has not taken yet stays in the
// store, so a slow one costs no memory.
type feed struct {
	h    *Handler
	w    http.ResponseWriter
	out  *http.ResponseController
	who  auth.Identity
	req  engine.TailRequest
	said time.Time // when something was sent last
}

// stream sends events as they happen, until the caller goes, its credential or the
// stream's time ends, or the server drains. An error is returned while it can still be
// answered.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, who auth.Identity, req engine.TailRequest) error {
	if req.Limit != 0 {
		return wrong("limit", "A stream has no pages, so it has no limit.", "Leave it out.")
	}
	select {
	case <-listen.Draining(r.Context()):
		return &engine.Error{Code: CodeDraining, Message: "The server is about to end.", Hint: "Connect again shortly."}
	default:
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.life(who))
	defer cancel()
	first, err := h.cfg.Engine.Tail(ctx, who.Principal, req)
	if err != nil {
		return err //nolint:wrapcheck // an *engine.Error
	}
	leave, err := h.streams.enter(who.ID)
	if err != nil {
		return err
	}
	defer leave()
	f := &feed{h: h, w: w, out: http.NewResponseController(w), who: who, req: req}
	f.open()
	f.run(ctx, first)
	return nil
}

// life is how long a stream may live: a credential that was revoked meanwhile is found out
// when the stream is taken up again.
func (h *Handler) life(who auth.Identity) time.Duration {
	life := h.cfg.StreamLife
	if !who.Expires.IsZero() {
		life = min(life, time.Until(who.Expires))
	}
	return life
}

func (f *feed) open() {
	// The limits of time of ordinary requests are not a stream's. A writer that knows none
	// needs none.
	_ = f.out.SetReadDeadline(time.Time{})
	f.w.Header().Set("Content-Type", eventStream)
	f.w.Header().Set("X-Accel-Buffering", "no") // proxies that would collect it
	f.w.WriteHeader(http.StatusOK)
}

func (f *feed) run(ctx context.Context, page engine.TailResult) {
	if f.send([]byte("retry: "+strconv.FormatInt(reconnect.Milliseconds(), 10)+"\n"+idLine(page.Next, len(page.Events) == 0)+"\n")) != nil {
		return
	}
	for {
		if f.page(page) != nil {
			return
		}
		f.req.After = page.Next
		if !page.More && !f.wait(ctx) {
			return
		}
		var err error
		if page, err = f.h.cfg.Engine.Tail(ctx, f.who.Principal, f.req); err != nil {
			f.failed(ctx, err)
			return
		}
	}
}

// idLine tells the reader where it is, when no event does.
func idLine(position int64, quiet bool) string {
	if !quiet {
		return ""
	}
	return "id: " + strconv.FormatInt(position, 10) + "\n"
}

// page sends events.
func (f *feed) page(page engine.TailResult) error {
	if len(page.Events) == 0 {
		return nil
	}
	var b bytes.Buffer
	for _, ev := range page.Events {
		data, err := encode(ev)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", ev.Position, ev.Kind, bytes.TrimSpace(data))
	}
	return f.send(b.Bytes())
}

// wait returns true when there may be more, and says now and then that the stream lives.
// False ends the stream.
func (f *feed) wait(ctx context.Context) bool {
	tick := time.NewTicker(f.h.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-listen.Draining(ctx):
			_ = f.send([]byte(": the server is about to end\n\n")) // it ends either way
			return false
		case <-tick.C:
		}
		last, err := f.h.pulse.position(ctx, f.h, f.who.Principal)
		if err != nil || last > f.req.After {
			return true // an error will show again, and be told
		}
		if time.Since(f.said) >= f.h.cfg.Heartbeat && f.send([]byte(": still here\n"+idLine(f.req.After, true)+"\n")) != nil {
			return false
		}
	}
}

// failed tells why the stream ends.
func (f *feed) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	e := f.h.explain(ctx, "events", err)
	known := info(e.Code)
	p := Problem{
		Type: problemType + string(e.Code), Title: known.Meaning, Status: status(e.Code), Detail: e.Message, Code: e.Code, Hint: e.Hint,
		Retryable: known.Retryable, RequestID: requestID(ctx),
	}
	if data, err := encode(p); err == nil {
		_ = f.send(fmt.Appendf(nil, "event: problem\ndata: %s\n\n", bytes.TrimSpace(data))) // the stream ends either way
	}
}

// send writes through to the reader, who has so long to take it.
func (f *feed) send(text []byte) error {
	_ = f.out.SetWriteDeadline(time.Now().Add(f.h.cfg.WriteTimeout)) // not every writer has deadlines
	if _, err := f.w.Write(text); err != nil {
		return fmt.Errorf("write to the stream: %w", err)
	}
	f.said = time.Now()
	if err := f.out.Flush(); err != nil {
		return fmt.Errorf("write to the stream: %w", err)
	}
	return nil
}

// pulse asks the store for its last position, once for all streams that ask at about the
// same time.
type pulse struct {
	mu   sync.Mutex
	at   time.Time
	last int64
}

func (p *pulse) position(ctx context.Context, h *Handler, who engine.Principal) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) < h.cfg.Poll/2 {
		return p.last, nil
	}
	end, err := h.cfg.Engine.Tail(ctx, who, engine.TailRequest{After: -1})
	if err != nil {
		return 0, err //nolint:wrapcheck // an *engine.Error
	}
	p.at, p.last = time.Now(), end.Next
	return p.last, nil
}
