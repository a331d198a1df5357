// Package egress contains the only transport that fetches from addresses which others may influence.
//
// It guarantees that the addresses to which a name resolves are checked when they are dialled, and again at every
// redirect. Neither a name that later resolves differently nor a redirect can lead to this machine, to a private
// network, or to a metadata service of a cloud.
//
// It must never use a proxy from the environment: it would then only see the address of the proxy.
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

// maxResponseHeaders limits the headers of a response, in bytes.
const maxResponseHeaders = 64 << 10

// dialTimeout limits a connection attempt and a TLS handshake.
const dialTimeout = 10 * time.Second

// ErrBlocked is returned if the guard rejects an address.
var ErrBlocked = errors.New("the address must not be dialled: it is in a private or special network")

// Guard decides which addresses may be dialled. It checks the resolved address at the moment of the dial, so that no
// time passes between check and use, and redirects cannot bypass it.
type Guard struct {
	private   bool
	transport *http.Transport // the guard checks its dials
	// Exempt addresses may always be dialled, and Resolver replaces the system's resolver. Both are for tests, which
	// have their own servers and names. Neither may change while the guard is in use.
	Exempt   map[netip.AddrPort]bool
	Resolver *net.Resolver
}

// NewGuard creates a guard with a transport. If private is set, private networks and this machine may be dialled.
// Metadata services of clouds may never be dialled.
func NewGuard(private bool) *Guard {
	g := &Guard{private: private}
	g.transport = &http.Transport{
		Proxy:                  nil,
		DialContext:            g.dial,
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true, // limits apply to the bytes that are read
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxResponseHeaders,
	}
	return g
}

// Transport returns the transport whose dials the guard checks.
func (g *Guard) Transport() *http.Transport { return g.transport }

func (g *Guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, Control: g.checkAddress, Resolver: g.Resolver}
	return d.DialContext(ctx, network, address)
}

// checkAddress is the Control function of a net.Dialer.
func (g *Guard) checkAddress(network, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return ErrBlocked
	}
	if g.Exempt[ap] {
		return nil
	}
	if a := ap.Addr(); IsNeverAllowed(a) || !g.private && !IsPublic(a) {
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
		return nil, fmt.Errorf("%s contains no PEM certificate", file)
	}
	return pool, nil
}

// The ranges of IPv6 addresses that embed an IPv4 address, and its offset in bytes.
var embeddedPrefixes = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // SIIT, IPv4-translated
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible, long deprecated
}

// effectiveAddr returns the address that a packet finally reaches.
func effectiveAddr(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if a == netip.IPv6Loopback() || a == netip.IPv6Unspecified() {
		return a
	}
	for _, e := range embeddedPrefixes {
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

// metadataAddrs contains the addresses at which clouds give secrets to any request from inside. No legitimate service of a
// private network uses them.
var metadataAddrs = parsePrefixes(
	"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "169.254.42.42/32", "169.254.0.23/32",
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
	"fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128", "fd00:a9fe:a9fe::/48",
)

// embeddedRanges contains ranges in which clouds and translators form addresses with an embedded IPv4 address: at the end,
// such as fe80::a9fe:a9fe, or around bits 64 to 71 (RFC 6052).
var embeddedRanges = parsePrefixes("fe80::/10", "fc00::/7", "64:ff9b:1::/48")

// specialRanges contains every range that is not part of the public internet and for which netip has no method (IANA
// special-purpose registries).
var specialRanges = parsePrefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
)

func isWithin(a netip.Addr, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// IsNeverAllowed reports whether an address may never be dialled, whatever is configured.
func IsNeverAllowed(a netip.Addr) bool { return isNeverAllowed(effectiveAddr(a)) }

// IsPublic reports whether an address belongs to the public internet.
func IsPublic(a netip.Addr) bool { return isPublic(effectiveAddr(a)) && !IsNeverAllowed(a) }

func isNeverAllowed(a netip.Addr) bool {
	if isWithin(a, embeddedRanges) {
		b := a.As16()
		for _, v4 := range [][4]byte{{b[12], b[13], b[14], b[15]}, {b[6], b[7], b[9], b[10]}} {
			if isWithin(netip.AddrFrom4(v4), metadataAddrs) {
				return true
			}
		}
	}
	return a.IsUnspecified() || a.IsMulticast() || isWithin(a, metadataAddrs)
}

func isPublic(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !isWithin(a, specialRanges)
}
