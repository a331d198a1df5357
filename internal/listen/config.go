package listen

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config configures a Server. Handler and Logger are required.
type Config struct {
	// Addr is host:port, or "" for 127.0.0.1:4285. Port 0 selects a free port: see Server.Addr.
	Addr string
	// Listener is used instead of a new one for Addr. The Server closes it.
	Listener net.Listener
	Handler  http.Handler
	Logger   *slog.Logger
	// OnDrain is called when shutdown begins, before waiting for requests; nil does nothing. Handlers that keep
	// something open only for their caller must then end it.
	OnDrain func()

	// Wrap returns the writer for the answer to a request: w, or a wrapper that writes refusals of handlers and of
	// the Server in another format. nil means w.
	Wrap func(w http.ResponseWriter, r *http.Request) http.ResponseWriter

	// CertFile and KeyFile (PEM) enable HTTPS; either both are set or neither. They are reloaded when they change.
	// ClientCAFile (PEM) requires clients to present a certificate signed by it.
	CertFile, KeyFile, ClientCAFile string

	// AllowedHosts are additional host names, with or without a port, that requests may name. Loopback names are
	// always allowed, and so is the address that was connected to, unless the listener is a loopback one.
	AllowedHosts []string
	// AllowedOrigins (scheme://host[:port]) are the origins whose browser pages may call and read the answers. Pages of
	// the called host may always call, and so may loopback pages if the listener is a loopback one; unless listed, they
	// get no permission to read the answers.
	AllowedOrigins []string

	// MaxBody limits a body in bytes; a longer one gets 413. Admit reads the body.
	MaxBody int64
	// MaxHeader limits all headers of a request in bytes, and is at least 1 KiB; larger ones get 431.
	MaxHeader int
	// MaxConns limits the connections. A further one closes the connection that has been idle longest, of the holder
	// with the most connections.
	MaxConns int
	// MaxRequests limits the requests in flight, MaxStreams the event streams (answers to GET, and CountAsStream). A
	// principal may have half of them. Further requests wait in line, see Admit; further streams get 503.
	MaxRequests, MaxStreams int
	// Unlimited are paths that are answered regardless of the number of connections and requests, such as health
	// checks. Their handlers must not use Admit.
	Unlimited []string

	// ReadHeaderTimeout limits the time to read a request's headers; slower ones are cut off.
	ReadHeaderTimeout time.Duration
	// BodyTimeout limits the time to read a body, starting after the headers; slower ones get 408.
	BodyTimeout time.Duration
	// WriteTimeout limits each write of an answer, not the whole answer: an event stream lasts as long as its client
	// reads.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection without a request stays open.
	IdleTimeout time.Duration
	// DrainTimeout is how long requests in flight may continue after shutdown begins.
	DrainTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Addr = cmp.Or(c.Addr, "127.0.0.1:4285")
	c.MaxBody = cmp.Or(c.MaxBody, 4<<20)
	c.MaxHeader = cmp.Or(c.MaxHeader, 32<<10)
	c.MaxConns = cmp.Or(c.MaxConns, 4096)
	c.MaxRequests = cmp.Or(c.MaxRequests, 2048)
	c.MaxStreams = cmp.Or(c.MaxStreams, 2048)
	c.ReadHeaderTimeout = cmp.Or(c.ReadHeaderTimeout, 10*time.Second)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, 30*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 2*time.Minute)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	return c
}

// FieldError describes an invalid field of a Config.
type FieldError struct{ Field, Message string }

func (e *FieldError) Error() string { return "listen: " + e.Field + ": " + e.Message }

// Validate returns, as FieldErrors, every mistake that is visible without listening or reading a file.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			errs = append(errs, &FieldError{field, fmt.Sprintf(format, args...)})
		}
	}
	check(c.CertFile == "" || c.KeyFile != "", "CertFile", "a certificate needs its key")
	check(c.KeyFile == "" || c.CertFile != "", "KeyFile", "a key needs its certificate")
	check(c.ClientCAFile == "" || c.CertFile != "", "ClientCAFile", "client certificates need TLS: set a certificate and a key")
	for _, limit := range []struct {
		field string
		value int64
	}{{"MaxBody", c.MaxBody}, {"MaxConns", int64(c.MaxConns)}, {"MaxRequests", int64(c.MaxRequests)}, {"MaxStreams", int64(c.MaxStreams)}} {
		check(limit.value > 0, limit.field, "limits must be positive, not %d", limit.value)
	}
	check(c.MaxHeader >= 1<<10, "MaxHeader", "the limit of headers must be at least 1024 bytes, not %d", c.MaxHeader)
	for _, limit := range []struct {
		field string
		value time.Duration
	}{{"ReadHeaderTimeout", c.ReadHeaderTimeout}, {"BodyTimeout", c.BodyTimeout}, {"WriteTimeout", c.WriteTimeout}, {"IdleTimeout", c.IdleTimeout}, {"DrainTimeout", c.DrainTimeout}} {
		check(limit.value > 0, limit.field, "time limits must be positive, not %s", limit.value)
	}
	for _, h := range c.AllowedHosts {
		check(hostOf(h) != "", "AllowedHosts", "%q is not a host: give a name or an address, with or without a port", h)
	}
	for _, o := range c.AllowedOrigins {
		check(validOrigin(o), "AllowedOrigins", "%q is not an origin: give scheme://host or scheme://host:port", o)
	}
	return errors.Join(errs...)
}

func validOrigin(o string) bool {
	u, err := url.Parse(o)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Scheme+"://"+u.Host, o)
}
