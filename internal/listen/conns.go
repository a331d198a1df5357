package listen

import (
	"context"
	"net"
	"sync/atomic"
)

// counted is a listener that knows how many of its connections are open. Those over the
// limit are let in to be told so; twice the limit are closed without a word.
type counted struct {
	net.Listener
	limit int64
	open  atomic.Int64
}

// Accept implements net.Listener.
func (l *counted) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		n := l.open.Add(1)
		if n > 2*l.limit {
			l.open.Add(-1)
			_ = conn.Close() // nothing was said on it
			continue
		}
		return &countedConn{Conn: conn, over: n > l.limit, listener: l}, nil
	}
}

type countedConn struct {
	net.Conn
	over     bool
	closed   atomic.Bool
	listener *counted
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		c.listener.open.Add(-1)
	}
	return c.Conn.Close()
}

// CloseWrite lets net/http say its last word to a caller who is still sending.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type overKey struct{}

// markOver tells handlers that their connection is one too many.
func markOver(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		conn = secure.NetConn()
	}
	if c, ok := conn.(*countedConn); ok && c.over {
		return context.WithValue(ctx, overKey{}, true)
	}
	return ctx
}
