package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// reconnect is how long a client should wait before it resumes a stream.
const reconnect = time.Second

// stream is one event stream. It pulls events: those that it has not sent yet stay in the feed or the store, so a slow
// reader costs no memory.
type stream struct {
	h        *Handler
	w        http.ResponseWriter
	out      *http.ResponseController
	identity auth.Identity
	req      engine.TailRequest
	lastSent time.Time // time of the last write

	feed     *engine.Feed
	follower *engine.Follower
}

// stream sends events until the caller disconnects, its credential or the stream's lifetime expires, or the server
// drains. It returns an error only while an error response can still be sent.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, who auth.Identity, req engine.TailRequest) error {
	if req.Limit != 0 {
		return operation.NewArgumentError("limit", "A stream has no pages, so limit does not apply.", "Omit it.")
	}
	select {
	case <-listen.Draining(r.Context()):
		return &engine.Error{Code: CodeDraining, Message: "The server is shutting down.", Hint: "Connect again shortly."}
	default:
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.maxStreamLife(who))
	defer cancel()
	probe := req // checks the right to read, and finds the end of the feed
	probe.After = -1
	end, err := h.cfg.Engine.Tail(ctx, who.Principal, probe)
	if err != nil {
		return err //nolint:wrapcheck // an *engine.Error
	}
	if req.After < 0 {
		req.After = end.Next
	}
	leave, ok := h.AcquireStream(who.ID)
	if !ok {
		return &engine.Error{
			Code: engine.CodeTooManyStreams, Message: "You have reached your limit of open event streams.",
			Hint: "Close one, or read events as pages.",
		}
	}
	defer leave()
	feed := h.cfg.Engine.Feed()
	following := feed.Follow(req.After)
	defer following.Unfollow()
	s := &stream{h: h, w: w, out: http.NewResponseController(w), identity: who, req: req, feed: feed, follower: following}
	s.open()
	s.run(ctx)
	return nil
}

// maxStreamLife returns the maximum lifetime of a stream. The revocation of a credential is detected only when the client
// resumes the stream.
func (h *Handler) maxStreamLife(who auth.Identity) time.Duration {
	life := h.cfg.StreamLife
	if !who.Expires.IsZero() {
		life = min(life, time.Until(who.Expires))
	}
	return life
}

// AcquireStream takes one of a principal's event streams, for streams of others that count together with those of this
// API. ok is false if it has too many.
func (h *Handler) AcquireStream(principal string) (leave func(), ok bool) {
	return h.streams.TryAcquire(principal)
}

// OpenStreams returns the number of open event streams.
func (h *Handler) OpenStreams() int { return h.streams.Stats().Held }

func (s *stream) open() {
	// The read deadline of ordinary requests must not end a stream. A writer that supports no deadlines has none to remove.
	_ = s.out.SetReadDeadline(time.Time{})
	s.w.Header().Set("Content-Type", eventStream)
	s.w.Header().Set("X-Accel-Buffering", "no") // otherwise proxies buffer events
	s.w.WriteHeader(http.StatusOK)
}

func (s *stream) run(ctx context.Context) {
	if s.send("retry: "+strconv.FormatInt(reconnect.Milliseconds(), 10)+"\n"+s.idLine()+"\n") != nil {
		return
	}
	for {
		changed := s.follower.Changed()
		page, err := s.feed.Page(ctx, s.identity.Principal, s.req)
		if err != nil {
			s.fail(ctx, err)
			return
		}
		if s.sendPage(page) != nil {
			return
		}
		s.req.After = page.Next
		s.follower.MarkSent(page.Next)
		if !page.More && !s.wait(ctx, changed) {
			return
		}
	}
}

// idLine returns an "id:" line, which gives the reader its position when no event does.
func (s *stream) idLine() string { return "id: " + strconv.FormatInt(s.req.After, 10) + "\n" }

func (s *stream) sendPage(page engine.FeedPage) error {
	if len(page.Items) == 0 {
		return nil
	}
	s.begin()
	for _, item := range page.Items {
		if _, err := fmt.Fprintf(s.w, "id: %d\nevent: %s\ndata: ", item.Position, item.Kind); err != nil {
			return fmt.Errorf("write to the stream: %w", err)
		}
		if _, err := s.w.Write(item.JSON); err != nil {
			return fmt.Errorf("write to the stream: %w", err)
		}
		if _, err := io.WriteString(s.w, "\n\n"); err != nil {
			return fmt.Errorf("write to the stream: %w", err)
		}
	}
	return s.flush()
}

// wait returns true when there may be more events, and sends keep-alive comments until then. It returns false if the
// stream must end.
func (s *stream) wait(ctx context.Context, changed <-chan struct{}) bool {
	for {
		quiet := time.NewTimer(time.Until(s.lastSent.Add(s.h.cfg.Heartbeat)))
		select {
		case <-ctx.Done():
			quiet.Stop()
			return false
		case <-listen.Draining(ctx):
			quiet.Stop()
			_ = s.send(": the server is shutting down\n\n") // the stream ends in any case
			return false
		case <-changed:
			quiet.Stop()
			return true
		case <-quiet.C:
		}
		if s.send(": still here\n"+s.idLine()+"\n") != nil {
			return false
		}
	}
}

func (s *stream) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	p := newProblem(ctx, s.h.explain(ctx, "events", err))
	if data, err := document.Marshal(p); err == nil {
		_ = s.send("event: problem\ndata: " + string(data) + "\n\n") // the stream ends in any case
	}
}

// send writes text and flushes it.
func (s *stream) send(text string) error {
	s.begin()
	if _, err := io.WriteString(s.w, text); err != nil {
		return fmt.Errorf("write to the stream: %w", err)
	}
	return s.flush()
}

// begin sets the deadline for the next writes.
func (s *stream) begin() {
	_ = s.out.SetWriteDeadline(time.Now().Add(s.h.cfg.WriteTimeout)) // not every writer supports deadlines
}

func (s *stream) flush() error {
	s.lastSent = time.Now()
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("write to the stream: %w", err)
	}
	return nil
}
