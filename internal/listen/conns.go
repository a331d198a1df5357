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

// limitedListener is a listener that limits its connections. A connection beyond MaxConns closes the one that has been without
// a request longest, of the holder with the most connections. If all are in use, further connections are accepted only
// for the paths in Config.Unlimited, and to refuse other requests with an error.
type limitedListener struct {
	net.Listener
	conns *evictionPool
	spare *evictionPool // connections beyond the limit
}

// Accept implements net.Listener. It must be called from a single goroutine.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.conns.evictOne() // net/http retries shortly
		}
		return nil, err
	}
	c := &limitedConn{Conn: conn}
	from := addressKey(conn.RemoteAddr().String())
	var ok bool
	if c.member, ok = l.conns.join(from, 1, c.evict); !ok {
		c.over = true
		c.member, _ = l.spare.join(from, 1, c.evict) // its members are never pinned
	}
	return c, nil
}

type limitedConn struct {
	net.Conn
	member *member
	over   bool   // beyond the limit
	cut    func() // ends the contexts of its requests; nil until it is served
}

// evict is called only by Accept, which also sets the fields.
func (c *limitedConn) evict() {
	if c.cut != nil {
		c.cut()
	}
	_ = c.Conn.Close() // there is no one to report an error to
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.member.leave()
	if c.cut != nil {
		c.cut()
	}
	return c.Conn.Close()
}

// CloseWrite lets net/http finish an answer while its client is still sending.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type connKey struct{}

// withConn adds the connection to the context, and ends the context with it.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		conn = secure.NetConn()
	}
	c, ok := conn.(*limitedConn)
	if !ok {
		return ctx
	}
	ctx, c.cut = context.WithCancel(ctx)
	return context.WithValue(ctx, connKey{}, c)
}

// AddressOf returns the address range that counts as one caller before authentication: an IPv4 address, or the /64
// prefix of an IPv6 address, which a single customer gets. It returns the zero Prefix if remote is not an address
// with a port.
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

// addressKey returns the key of an unauthenticated holder. It never equals the key of a principal.
func addressKey(remote string) string { return "address " + AddressOf(remote).String() }

// AcceptQuality returns the quality, from 0 to 1, that a request's Accept header gives to a media type. The most
// specific matching range counts; without a match it is 0. Without the header it is 1.
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
