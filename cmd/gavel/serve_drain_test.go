package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// mover moves one instance of ping-pong back and forth.
type mover struct {
	id       string
	revision int  // from the last answer
	unsure   bool // the last request got no answer
}

// run makes moves until the server accepts no more requests. acked is called for every answer.
func (m *mover) run(s *served, acked func()) {
	for {
		action := []string{"back", "go"}[m.revision%2]
		status, answer, err := s.try(s.agent, http.MethodPost, "/v1/instances/"+m.id+"/advance", fmt.Sprintf(`{"action":%q,"data":{"n":%d}}`, action, m.revision))
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return
		case err != nil: // closed while the request was in transit
			m.unsure = true
			return
		case status != http.StatusOK:
			s.t.Errorf("%s: %d %v", m.id, status, answer)
			return
		}
		m.revision++
		acked()
	}
}

// TestTermInTheMiddle ends a server while many moves are in progress. Every answered move is recorded, and no move
// that was not requested.
func TestTermInTheMiddle(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	s.must(s.owner, http.MethodPost, "/v1/definitions", pingPong)
	movers := make([]*mover, 16)
	for i := range movers {
		movers[i] = &mover{id: s.begin(s.agent, "ping-pong"), revision: 1}
	}
	stream := s.connect("GET /v1/events HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\nAuthorization: Bearer " + s.agent + "\r\n\r\n")
	half := s.begin(s.agent, "ping-pong")
	const body = `{"action":"go"}`
	pending := s.beginRequest("/v1/instances/"+half+"/advance", len(body), body[:5])

	enough := make(chan struct{})
	var mu sync.Mutex
	var all sync.WaitGroup
	total := 0
	for _, m := range movers {
		all.Go(func() {
			m.run(s, func() {
				mu.Lock()
				defer mu.Unlock()
				if total++; total == 100 {
					close(enough)
				}
			})
		})
	}
	select {
	case <-enough:
	case <-time.After(4 * patience):
		t.Fatal("no moves")
	}
	s.term()
	all.Wait()
	if _, err := io.ReadAll(stream); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream does not end: %v", err)
	}
	finish(t, pending, body[5:])
	s.stop()
	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://")); err == nil {
		t.Error("somebody still listens")
	}
	verifies(t, s.store)
	after := serveStore(t, s.store)
	after.agent = s.agent
	for _, m := range movers {
		got := after.revisionOf(m.id)
		if got != m.revision && !(m.unsure && got == m.revision+1) {
			t.Errorf("%s is at revision %d; %d was acknowledged (unsure: %v)", m.id, got, m.revision, m.unsure)
		}
	}
	if got := after.revisionOf(half); got != 2 {
		t.Errorf("what was begun is at revision %d, not 2", got)
	}
}

// beginRequest sends the head of a request and a part of its body. It returns once the server has begun to read it
// and asks for the body.
func (s *served) beginRequest(path string, length int, part string) net.Conn {
	s.t.Helper()
	conn := s.connect(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", path, s.agent, length))
	const asks = "HTTP/1.1 100 Continue\r\n\r\n"
	answer := make([]byte, len(asks))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != asks {
		s.t.Fatalf("the server does not ask for the body: %q %v", answer, err)
	}
	if _, err := io.WriteString(conn, part); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// finish sends the rest of a request that was begun before the shutdown, and requires an answer.
func finish(t *testing.T, conn net.Conn, rest string) {
	t.Helper()
	if _, err := io.WriteString(conn, rest); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("what was begun is not answered: %v", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("what was begun: %s %s %v", resp.Status, answer, err)
	}
}

func (s *served) revisionOf(id string) int {
	s.t.Helper()
	var revision int
	if _, err := fmt.Sscan(fmt.Sprint(s.must(s.agent, http.MethodGet, "/v1/instances/"+id, "")["revision"]), &revision); err != nil {
		s.t.Fatal(err)
	}
	return revision
}

// stuck returns a server that was told to shut down and has a request in flight that never ends.
func stuck(t *testing.T, args ...string) *served {
	t.Helper()
	s := serveGavel(t, append([]string{"--body-timeout", "1h"}, args...)...)
	s.beginRequest("/v1/instances", 10, "{")
	s.term()
	return s
}

// TestDrainTimeout: requests that do not end are cut off, and the exit code is 0.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	stuck(t, "--drain-timeout", "1s").stop()
}

// TestSecondSignal ends a server immediately, whatever is in flight.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := stuck(t, "--drain-timeout", "24h")
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for limit := time.After(2 * patience); ; {
		select {
		case <-s.ended:
			if s.problem == nil || !strings.Contains(s.problem.Error(), "terminated") {
				t.Errorf("ended with %v", s.problem)
			}
			return
		case <-again.C:
			_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		case <-limit:
			t.Fatal("the second signal does nothing")
		}
	}
}
