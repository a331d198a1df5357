package listen

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// methods are the HTTP methods that handlers may receive.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

var methodList = strings.Join(methods, ", ")

// Limits for the address and the number of header fields. No gavel client comes near them.
const (
	maxAddress = 8 << 10
	maxFields  = 100
)

// checkRequest checks a request before anything else is done with it. If the request is refused, it returns the reason
// and false.
func (s *Server) checkRequest(r *http.Request) (problem, bool) {
	switch {
	case !slices.Contains(methods, r.Method):
		p := badMethod
		p.closing = true // CONNECT and PRI would continue with another protocol
		return p, false
	case r.TLS == nil && r.ProtoMajor != 1:
		return badVersion, false
	case len(r.RequestURI) > maxAddress:
		return longAddress, false
	case !s.checkHeaders(r):
		return bigHeader, false
	case !s.hostAllowed(r):
		return badHost, false
	case !s.originAllowed(r):
		return badOrigin, false
	case !plainPath(r):
		return badPath, false
	case r.ContentLength > s.cfg.MaxBody:
		return bigBody, false
	case r.Header.Get("Content-Encoding") != "":
		return badEncoding, false
	}
	return problem{}, true
}

// checkHeaders checks the total size and the number of headers. net/http also has a coarser limit, which bounds their
// memory.
func (s *Server) checkHeaders(r *http.Request) bool {
	size, fields := len(r.RequestURI)+len(r.Host), 0
	for name, values := range r.Header {
		fields += len(values)
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
	}
	return size <= s.cfg.MaxHeader && fields <= maxFields
}

// plainPath rejects every path that other software could interpret differently: a proxy's rule, a file system, a
// router that cleans paths. Paths are never rewritten.
func plainPath(r *http.Request) bool {
	if r.URL.Path == "*" && r.Method == http.MethodOptions {
		return true
	}
	if !strings.HasPrefix(r.URL.Path, "/") || strings.ContainsFunc(r.URL.Path, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }) {
		return false
	}
	raw := strings.ToLower(r.URL.EscapedPath())
	if strings.Contains(raw, "%2f") || strings.Contains(raw, "%5c") || strings.Contains(raw, "%25") || strings.Contains(raw, ";") {
		return false
	}
	segments := strings.Split(r.URL.Path[1:], "/")
	for i, segment := range segments {
		if segment == "." || segment == ".." || (segment == "" && i < len(segments)-1) {
			return false
		}
	}
	return true
}

// hostOf returns the host of host[:port] in lower case, without brackets and without a final dot. It returns "" if
// the host is invalid.
func hostOf(hostport string) string {
	host := hostport
	if h, port, err := net.SplitHostPort(hostport); err == nil {
		if !isDigits(port) {
			return ""
		}
		host = h
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	if strings.HasPrefix(hostport, "[") && !strings.Contains(host, ":") {
		return "" // only IPv6 addresses have brackets (RFC 3986, 3.2.2)
	}
	host = strings.ToLower(host)
	if !strings.Contains(host, ":") {
		host = strings.TrimSuffix(host, ".") // of a name; an IPv6 address has none
	}
	if strings.ContainsAny(host, "/@?#\\ \t%[]") || (strings.Contains(host, ":") && !isAddress(host)) {
		return ""
	}
	return host
}

func isDigits(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// loopbackName reports whether a host can only be this machine. Such a host is never looked up in a name service, so it
// cannot be rebound.
func loopbackName(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// hostAllowed blocks web pages that reach this address by DNS rebinding: their browser still sends the page's own host.
func (s *Server) hostAllowed(r *http.Request) bool {
	host := hostOf(r.Host)
	switch {
	case host == "":
		return false
	case loopbackName(host) || s.hosts[strings.ToLower(r.Host)] || s.hosts[host]:
		return true
	case s.loopback:
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	asked, err := netip.ParseAddr(host)
	return err == nil && asked.Unmap() == local.AddrPort().Addr().Unmap().WithZone("")
}

// originAllowed checks the origin of the calling page. Clients other than browsers send no Origin. For why
// http.CrossOriginProtection is not used, see docs/decisions/0041.
func (s *Server) originAllowed(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	if len(origins) > 1 || !validOrigin(origins[0]) {
		return false // also "null": sandboxed frames and files
	}
	origin := strings.ToLower(origins[0])
	if s.origins[origin] {
		return true
	}
	_, hostport, _ := strings.Cut(origin, "://")
	if strings.EqualFold(hostport, r.Host) {
		return true
	}
	return s.loopback && loopbackName(hostOf(hostport))
}

// handleCORS lets pages of listed origins read the answers. It reports whether the request was a preflight, which it
// has then answered.
func (s *Server) handleCORS(w http.ResponseWriter, r *http.Request) (answered bool) {
	origin := r.Header.Get("Origin")
	if origin == "" || !s.origins[strings.ToLower(origin)] {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "ETag, Location, Mcp-Session-Id, Retry-After, WWW-Authenticate")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", methodList)
	h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// LoopbackOnly admits only requests of this machine by a loopback name, and none from pages of other sites. It gives
// handlers on other servers the protection of a Server on a loopback address.
func LoopbackOnly(next http.Handler) http.Handler {
	local := &Server{loopback: true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		switch {
		case err != nil || !from.Addr().Unmap().IsLoopback() || !local.hostAllowed(r):
			WriteProblem(w, http.StatusForbidden, badHost.Code, "Only this machine may call this server, and only by a loopback name.")
		case !local.originAllowed(r):
			WriteProblem(w, http.StatusForbidden, badOrigin.Code, "This web page may not call this server.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}
