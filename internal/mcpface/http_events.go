package mcpface

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/server"
)

const (
	// mostEvents and mostEventBytes are what is kept for one session to ask for again.
	mostEvents     = 1000
	mostEventBytes = 1 << 20
	// mostStored is what is kept for all.
	mostStored = 64 << 20
)

// events keeps the last messages of each session's streams, for clients that come back
// after their connection broke. Unlike the library's own it forgets the oldest. With any
// store at all the library loses no message between a call and its answer.
type events struct {
	mu    sync.Mutex
	n     int64
	bytes int
	of    map[string]*eventLog
}

type eventLog struct {
	list  []event
	bytes int
}

type event struct {
	n       int64
	stream  string
	message json.RawMessage
}

func newEvents() *events { return &events{of: map[string]*eventLog{}} }

var errEventsFull = errors.New("too many events are kept already")

// StoreEvent keeps a message and names it.
func (e *events) StoreEvent(_ context.Context, session, stream string, message json.RawMessage) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bytes+len(message) > mostStored {
		return "", errEventsFull // it is sent all the same
	}
	l := e.of[session]
	if l == nil {
		l = &eventLog{}
		e.of[session] = l
	}
	e.n++
	l.list = append(l.list, event{e.n, stream, append(json.RawMessage(nil), message...)})
	l.bytes += len(message)
	e.bytes += len(message)
	drop := 0
	for len(l.list)-drop > mostEvents || l.bytes > mostEventBytes && len(l.list)-drop > 1 {
		l.bytes -= len(l.list[drop].message)
		e.bytes -= len(l.list[drop].message)
		drop++
	}
	l.list = slices.Delete(l.list, 0, drop)
	return strconv.FormatInt(e.n, 10), nil
}

// ReplayEventsAfter sends what followed an event on its stream.
func (e *events) ReplayEventsAfter(_ context.Context, session, last string, send func(id string, message json.RawMessage) error) (string, error) {
	stream, tail, err := e.after(session, last)
	if err != nil {
		return "", err
	}
	for _, ev := range tail {
		if err := send(strconv.FormatInt(ev.n, 10), ev.message); err != nil {
			return "", err
		}
	}
	return stream, nil
}

func (e *events) after(session, last string) (stream string, tail []event, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, perr := strconv.ParseInt(last, 10, 64)
	l := e.of[session]
	if perr != nil || l == nil {
		return "", nil, fmt.Errorf("%w: %.40q", server.ErrUnknownEventID, last)
	}
	for _, ev := range l.list {
		switch {
		case ev.n == n:
			stream = ev.stream
		case ev.n > n && stream != "" && ev.stream == stream:
			tail = append(tail, ev)
		}
	}
	if stream == "" {
		return "", nil, fmt.Errorf("%w: %.40q", server.ErrUnknownEventID, last)
	}
	return stream, tail, nil
}

// PurgeSession forgets a session's.
func (e *events) PurgeSession(_ context.Context, session string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.of[session]; l != nil {
		e.bytes -= l.bytes
		delete(e.of, session)
	}
	return nil
}

var _ server.EventStore = (*events)(nil)
