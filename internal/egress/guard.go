// Package egress is the door out of the house: the one transport that fetches from
// addresses which somebody else may have a say in.
//
// It promises that what a name resolves to is looked at when it is dialled, at every
// redirect anew, so that neither a name that changes its mind nor a redirect leads to
// this machine, to a private network, or to where clouds hand out secrets.
//
// It must never ask the environment for a proxy: behind one it would see the proxy
// only.
package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"
)

// maxResponseHeaders bounds the headers of an answer in bytes.
const maxResponseHeaders = 64 << 10

// dialTimeout bounds one connection, and one handshake.
const dialTimeout = 10 * time.Second

// ErrBlocked is why a dial ended.
var ErrBlocked = errors.New("the address may not be dialled: it belongs to a private or special network")

// Guard decides which addresses are dialled. It sees what a name resolved to, at the
// moment of the dial: there is no time between check and use, and no way around it
// for a redirect.
type Guard struct {
	private   bool
	transport *http.Transport // whose dials it watches
	// Exempt may be dialled whatever they are, and Resolver is asked instead of the
	// system's: tests have servers and names of their own. Neither may change while the
	// guard is used.
	Exempt   map[netip.AddrPort]bool
	Resolver *net.Resolver
}

// NewGuard makes a guard with a transport. With private, private networks and this
// machine may be dialled; where clouds keep their secrets never.
func NewGuard(private bool) *Guard {
	g := &Guard{private: private}
	g.transport = &http.Transport{
		Proxy:                  nil,
		DialContext:            g.dial,
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true, // limits are for what is read
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxResponseHeaders,
	}
	return g
}

// Transport is the one whose dials the guard watches.
func (g *Guard) Transport() *http.Transport { return g.transport }

func (g *Guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, Control: g.checkAddress, Resolver: g.Resolver}
	return d.DialContext(ctx, network, address)
}

// checkAddress is a net.Dialer's.
func (g *Guard) checkAddress(network, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return ErrBlocked
	}
	if g.Exempt[ap] {
		return nil
	}
	if a := ap.Addr(); Never(a) || !g.private && !Public(a) {
		return ErrBlocked
	}
	return nil
}

// LoadRoots reads the certificates (PEM) that are trusted instead of the system's.
func LoadRoots(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", file)
	}
	return pool, nil
}

// The ranges of IPv6 addresses that embed an IPv4 address, and where it begins.
var embedded = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // SIIT, IPv4-translated
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible, long gone
}

// plainAddr is the address that a packet reaches in the end.
func plainAddr(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if a == netip.IPv6Loopback() || a == netip.IPv6Unspecified() {
		return a
	}
	for _, e := range embedded {
		if e.prefix.Contains(a) {
			b := a.As16()
			return netip.AddrFrom4([4]byte(b[e.at : e.at+4]))
		}
	}
	return a
}

func parsePrefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// metadata is where clouds hand out secrets to any request from inside. No
// private network is asked for there.
var metadata = parsePrefixes(
	"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "169.254.42.42/32", "169.254.0.23/32",
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
	"fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128", "fd00:a9fe:a9fe::/48",
)

// inner are the ranges of which clouds and translators make addresses that end with an
// IPv4 address, such as fe80::a9fe:a9fe; or hold it around bits 64 to 71 (RFC 6052).
var inner = parsePrefixes("fe80::/10", "fc00::/7", "64:ff9b:1::/48")

// special is every range that is not the public internet and that netip has no
// question for (IANA special-purpose registries).
var special = parsePrefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
)

func isWithin(a netip.Addr, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Never reports whether an address is never dialled, whatever is configured.
func Never(a netip.Addr) bool { return isNeverAllowed(plainAddr(a)) }

// Public reports whether an address belongs to the public internet.
func Public(a netip.Addr) bool { return isPublic(plainAddr(a)) && !Never(a) }

func isNeverAllowed(a netip.Addr) bool {
	if isWithin(a, inner) {
		b := a.As16()
		for _, v4 := range [][4]byte{{b[12], b[13], b[14], b[15]}, {b[6], b[7], b[9], b[10]}} {
			if isWithin(netip.AddrFrom4(v4), metadata) {
				return true
			}
		}
	}
	return a.IsUnspecified() || a.IsMulticast() || isWithin(a, metadata)
}

func isPublic(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !isWithin(a, special)
}
