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

// Config is what a Server is made of. Handler and Logger are required.
type Config struct {
	// Addr is host:port, or "" for 127.0.0.1:4285. Port 0 takes a free one: see Server.Addr.
	Addr string
	// Listener is served instead of one made for Addr. The Server closes it.
	Listener net.Listener
	Handler  http.Handler
	Logger   *slog.Logger
	// OnDrain is called when the end begins, before anything is waited for; nil is nothing.
	// Handlers that keep something open for its caller's sake end it then.
	OnDrain func()

	// Wrap returns what the answer to a request is written to: w, or something in front of it that
	// says the refusals of handlers and of the Server in another form. nil is w.
	Wrap func(w http.ResponseWriter, r *http.Request) http.ResponseWriter

	// CertFile and KeyFile (PEM) make it HTTPS; both or none. They are read again when
	// they change. ClientCAFile (PEM) demands a client's certificate that it signed.
	CertFile, KeyFile, ClientCAFile string

	// AllowedHosts are names, with or without a port, that a request may ask for beyond
	// those that are always right: loopback names, and the address that was connected to
	// when the listener is not a loopback one.
	AllowedHosts []string
	// AllowedOrigins (scheme://host[:port]) are those whose pages in a browser may call
	// and read the answers. Pages of the very host that is called may always call, and
	// of loopback ones when the listener is one; without being listed they read nothing.
	AllowedOrigins []string

	// MaxBody is in bytes; what is longer gets 413. A body is read by Admit.
	MaxBody int64
	// MaxHeader is all of a request's headers in bytes, at least 1 KiB; more gets 431.
	MaxHeader int
	// MaxConns is how many connections there may be. One more closes the one without a
	// request that has been idle longest, of the holder with most.
	MaxConns int
	// MaxRequests and MaxStreams are how many requests in flight and event streams (answers
	// to GET, and CountAsStream) there may be, half of them of one principal. More requests
	// wait in line, see Admit; more streams get 503.
	MaxRequests, MaxStreams int
	// Unlimited are paths that are answered however many connections and requests there
	// are: those that ask whether all is well. Their handlers do not use Admit.
	Unlimited []string

	// ReadHeaderTimeout is for the headers of a request; too slow ones are cut off.
	ReadHeaderTimeout time.Duration
	// BodyTimeout is for all of a body, from when the headers are there; too slow ones get 408.
	BodyTimeout time.Duration
	// WriteTimeout is for each write of an answer, not for the whole of it: an event stream
	// lasts as long as its reader reads.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection without a request stays open.
	IdleTimeout time.Duration
	// DrainTimeout is how long requests in flight may go on once the end was asked for.
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

// FieldError says what is wrong with a field of a Config.
type FieldError struct{ Field, Message string }

func (e *FieldError) Error() string { return "listen: " + e.Field + ": " + e.Message }

// Validate reports every mistake that can be seen without listening or reading a file, as
// FieldErrors.
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
	check(c.ClientCAFile == "" || c.CertFile != "", "ClientCAFile", "certificates of clients need TLS, so a certificate and a key")
	for _, limit := range []struct {
		field string
		value int64
	}{{"MaxBody", c.MaxBody}, {"MaxConns", int64(c.MaxConns)}, {"MaxRequests", int64(c.MaxRequests)}, {"MaxStreams", int64(c.MaxStreams)}} {
		check(limit.value > 0, limit.field, "limits are positive, not %d", limit.value)
	}
	check(c.MaxHeader >= 1<<10, "MaxHeader", "the limit of headers is at least 1024 bytes, not %d", c.MaxHeader)
	for _, limit := range []struct {
		field string
		value time.Duration
	}{{"ReadHeaderTimeout", c.ReadHeaderTimeout}, {"BodyTimeout", c.BodyTimeout}, {"WriteTimeout", c.WriteTimeout}, {"IdleTimeout", c.IdleTimeout}, {"DrainTimeout", c.DrainTimeout}} {
		check(limit.value > 0, limit.field, "time limits are positive, not %s", limit.value)
	}
	for _, h := range c.AllowedHosts {
		check(hostOf(h) != "", "AllowedHosts", "%q is no host: give a name or an address, with or without a port", h)
	}
	for _, o := range c.AllowedOrigins {
		check(validOrigin(o), "AllowedOrigins", "%q is no origin: give scheme://host or scheme://host:port", o)
	}
	return errors.Join(errs...)
}

func validOrigin(o string) bool {
	u, err := url.Parse(o)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Scheme+"://"+u.Host, o)
}
