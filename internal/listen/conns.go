package listen

import (
	"context"
	"errors"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

// counted is a listener that bounds its connections. One more than MaxConns closes the
// connection that has been without a request longest, of the holder with most connections. Where
// all of them are in use, further ones are let in for health paths, and to be told that
// there are too many.
type counted struct {
	net.Listener
	conns *crowd
	spare *crowd // those beyond
}

// Accept implements net.Listener. It is called by one goroutine.
func (l *counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.conns.evictOne() // net/http tries again shortly
		}
		return nil, err
	}
	c := &countedConn{Conn: conn}
	from := addressKey(conn.RemoteAddr().String())
	var ok bool
	if c.place, ok = l.conns.join(from, 1, c.evict); !ok {
		c.over = true
		c.place, _ = l.spare.join(from, 1, c.evict) // nothing in it is ever pinned
	}
	return c, nil
}

type countedConn struct {
	net.Conn
	place *member
	over  bool   // one too many
	cut   func() // ends the contexts of its requests; nil until it is served
}

// evict is called by Accept alone, as everything that sets its fields.
func (c *countedConn) evict() {
	if c.cut != nil {
		c.cut()
	}
	_ = c.Conn.Close() // nobody is told
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.place.leave()
	if c.cut != nil {
		c.cut()
	}
	return c.Conn.Close()
}

// CloseWrite lets net/http finish its answer to a caller that is still sending.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type connKey struct{}

// withConn lets handlers know their connection, and ends with it.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		conn = secure.NetConn()
	}
	c, ok := conn.(*countedConn)
	if !ok {
		return ctx
	}
	ctx, c.cut = context.WithCancel(ctx)
	return context.WithValue(ctx, connKey{}, c)
}

// AddressOf is who counts as one caller before anybody is known: an IPv4 address, or the
// 64 bits of an IPv6 one that a single customer gets. It is the zero Prefix for what is
// no address with a port.
func AddressOf(remote string) netip.Prefix {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := ap.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// The keys of holders: they are never the same.
func addressKey(remote string) string { return "address " + AddressOf(remote).String() }

// AcceptQuality is how much a request's Accept likes a media type, 0 to 1: the quality of the
// most specific range that covers it, 0 when none does. Without the header all are as good.
func AcceptQuality(r *http.Request, media string) float64 {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return 1
	}
	kind, _, _ := strings.Cut(media, "/")
	best, like := 0, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		ranged, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		specific := 0
		switch ranged {
		case media:
			specific = 3
		case kind + "/*":
			specific = 2
		case "*/*":
			specific = 1
		}
		if specific <= best {
			continue
		}
		best, like = specific, 1
		if q, ok := params["q"]; ok {
			if like, err = strconv.ParseFloat(q, 64); err != nil {
				like = 0
			}
		}
	}
	return like
}
