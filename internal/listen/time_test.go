package listen_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/internal/listen"
)

// The defaults of the settings.
const (
	defaultReadHeaderTimeout = 10 * time.Second
	defaultBodyTimeout       = 30 * time.Second
	defaultWriteTimeout      = 30 * time.Second
	defaultIdleTimeout       = 2 * time.Minute
	defaultDrainTimeout      = 30 * time.Second
)

// reads is a handler that writes its own error for a bad body.
func reads(w http.ResponseWriter, r *http.Request) {
	if _, err := io.ReadAll(r.Body); err != nil {
		w.Header().Set("ETag", "1")
		http.Error(w, "my own words: "+err.Error(), http.StatusBadRequest)
		return
	}
	fine(w, r)
}

func TestSlowHeadersAreCutOff(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{}, fine, func(b *bench) {
		c := b.dial().send("GET / HTTP/1.1\r\nHost: loc")
		began := time.Now()
		if resp := c.answer(); resp != nil {
			t.Errorf("answered %s", resp.Status)
		}
		if took := time.Since(began); took != defaultReadHeaderTimeout {
			t.Errorf("cut off after %s, want %s", took, defaultReadHeaderTimeout)
		}
	})
}

func TestSlowBodiesAreRefused(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"length":  "Content-Length: 100\r\n\r\nabc",
		"chunked": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, listen.Config{}, reads, func(b *bench) {
				c := b.dial().send("POST / HTTP/1.1\r\nHost: localhost\r\n" + head)
				began := time.Now()
				resp := c.answer()
				if got := code(t, resp); resp.StatusCode != http.StatusRequestTimeout || got != "body_too_slow" || resp.Header.Get("ETag") != "" {
					t.Errorf("%s %s %v", resp.Status, got, resp.Header)
				}
				if took := time.Since(began); took != defaultBodyTimeout {
					t.Errorf("refused after %s, want %s", took, defaultBodyTimeout)
				}
			})
		})
	}
}

// TestRefusalDoesNotWaitForTheBody checks that a refusal does not wait for a body that is not read, and that the rest
// of the body does not hold the connection for long.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	inBubble(t, listen.Config{Handler: refuses}, nil, func(b *bench) {
		c := b.dial().send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc")
		began := time.Now()
		resp := c.answer()
		if resp == nil || resp.StatusCode != http.StatusUnauthorized || time.Since(began) != 0 {
			t.Fatalf("%v after %s", resp, time.Since(began))
		}
		if _, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("the connection goes on: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the connection was held for %s", took)
		}
	})
}

// TestLongAnswers checks that no time limit ends an answer once the body has been read.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	slow := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			<-time.After(time.Hour)
			if r.Context().Err() != nil {
				return
			}
			_, _ = io.WriteString(w, "data: x\n\n")
			<-time.After(time.Hour)
			w.(http.Flusher).Flush()
			<-time.After(time.Hour)
			_, _ = w.Write(make([]byte, 64<<10)) // more than is buffered
		}
		_, _ = io.WriteString(w, "data: y\n\n") // buffered until the handler has returned
		<-time.After(time.Hour)
	}
	inBubble(t, listen.Config{}, slow, func(b *bench) {
		for _, request := range []string{get("/"), "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"} {
			resp := b.dial().send(request).answer()
			if resp == nil {
				t.Fatal("no answer")
			}
			if all, err := io.ReadAll(resp.Body); err != nil || strings.Count(string(all), "data: x") != 3 || !strings.Contains(string(all), "data: y") {
				t.Errorf("%.4s: %d bytes, %v", request, len(all), err)
			}
		}
	})
}

// TestQuietStreamOverHTTP2 checks that a quiet stream is not taken for a stuck one.
func TestQuietStreamOverHTTP2(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.issue("server")
	quiet := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(time.Hour):
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, "data: y\n\n")
	}
	inBubble(t, listen.Config{CertFile: i.path("server.crt"), KeyFile: i.path("server.key")}, quiet, func(b *bench) {
		c := i.client("")
		c.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return b.dial().Conn, nil }
		defer c.CloseIdleConnections()
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			got, err := askWith(c, method, "https://localhost/", map[string]string{http.MethodPost: "abc"}[method])
			if err != nil || got.proto != 2 || strings.Count(got.text, "data: x") != 3 || !strings.Contains(got.text, "data: y") {
				t.Errorf("%s: %+v %v", method, got, err)
			}
		}
	})
}

// TestStuckReader checks that a client that does not read its answer loses the connection.
func TestStuckReader(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{}, nil, func(b *bench) {
		ended := make(chan error, 1)
		b.handle = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					ended <- err
					return
				}
				w.(http.Flusher).Flush()
			}
		}
		c := b.dial().send(get("/"))
		if c.answer() == nil {
			t.Fatal("no answer")
		}
		began := time.Now()
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(began); took != defaultWriteTimeout {
			t.Errorf("ended after %s, want %s", took, defaultWriteTimeout)
		}
	})
}

func TestIdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{}, fine, func(b *bench) {
		c := b.dial().send(get("/"))
		resp := c.answer()
		if resp == nil {
			t.Fatal("no answer")
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		began := time.Now()
		if _, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("read: %v", err)
		}
		if took := time.Since(began); took != defaultIdleTimeout {
			t.Errorf("closed after %s, want %s", took, defaultIdleTimeout)
		}
	})
}

// TestKeepAliveAfterLongPause checks that the deadlines of a request do not affect the next one.
func TestKeepAliveAfterLongPause(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{IdleTimeout: 24 * time.Hour}, reads, func(b *bench) {
		c := b.dial()
		for range 3 {
			c.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
			if resp := c.answer(); resp == nil || resp.StatusCode != http.StatusContinue {
				t.Fatalf("%v, want 100", resp)
			}
			resp := c.send("abc").answer()
			if resp == nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%v", resp)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			<-time.After(time.Hour)
		}
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{}, nil, func(b *bench) {
		goOn, told := make(chan struct{}), make(chan struct{})
		b.handle = func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/work":
				select {
				case <-goOn:
				case <-r.Context().Done():
					t.Error("work was cut off")
				}
				fine(w, r)
			case "/stream":
				w.Header().Set("Content-Type", "text/event-stream")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			case "/told": // a stream that answers a POST: notified, and not cut off
				w.Header().Set("Content-Type", "text/event-stream")
				w.(http.Flusher).Flush()
				<-listen.Draining(r.Context())
				if r.Context().Err() != nil {
					t.Error("a POST was cut off")
				}
				close(told)
			}
		}
		work, stream := b.dial().send(get("/work")), b.dial().send(get("/stream"))
		post := b.dial().send("POST /told HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
		streamed, posted := stream.answer(), post.answer()
		synctest.Wait()
		b.stop()
		if rest, err := io.ReadAll(streamed.Body); err != nil || len(rest) != 0 {
			t.Errorf("the stream ended with %q, %v", rest, err)
		}
		<-told
		_, _ = io.Copy(io.Discard, posted.Body)
		<-time.After(defaultDrainTimeout / 2)
		close(goOn)
		resp := work.answer()
		if resp == nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("work in flight was answered %v", resp)
		}
		if body, _ := io.ReadAll(resp.Body); string(body) != "fine" {
			t.Errorf("%q", body)
		}
		if !resp.Close {
			t.Error("the connection is kept although the server ends")
		}
	})
}

func TestDrainEndsInTime(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{}, nil, func(b *bench) {
		cut := make(chan struct{})
		b.handle = func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(cut)
		}
		b.dial().send(get("/"))
		synctest.Wait()
		began := time.Now()
		b.stop()
		<-cut
		if took := time.Since(began); took != defaultDrainTimeout {
			t.Errorf("cut off after %s, want %s", took, defaultDrainTimeout)
		}
	})
}
