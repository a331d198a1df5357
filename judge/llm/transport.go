package llm

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// contextError returns the *Error of the time limit that ended the context, or else the context's own
// error. So a caller that cancelled is not mistaken for a slow endpoint.
func contextError(ctx context.Context) error {
	if ours, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return ours
	}
	return ctx.Err()
}

// transportError classifies a failure without an answer. Its message never quotes the failure, which may
// contain URLs, headers, or proxies with passwords.
func transportError(ctx context.Context, err error, host string) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if ours, ok := errors.AsType[*Error](err); ok {
		return ours // from the cassette
	}
	fail := &Error{Class: ClassNetwork, Err: safeCause(err)}
	fail.Message, fail.Advice = describeTransport(err, host)
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		// The transport's own time limits apply only until a connection exists, so the question cannot be
		// the cause of the delay.
		fail.Message, fail.Advice = "no connection to "+host+" in time", "check that the endpoint runs and can be reached from here"
	}
	return fail
}

// safeCause returns the cause to unwrap. It hides a context's error, because only the caller's own context
// error may be visible through an *Error.
func safeCause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // it repeats method and URL
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// adviseCompression is for answers that cannot be decompressed.
const adviseCompression = "check the compression at the server or at a proxy before it; answers need not be compressed"

func describeTransport(err error, host string) (message, advice string) {
	var (
		op      *net.OpError
		dns     *net.DNSError
		verify  *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		deflate flate.CorruptInputError
	)
	switch {
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return "the proxy on the way to " + host + " failed", "check HTTPS_PROXY and NO_PROXY"
	case errors.As(err, &dns):
		return "the host " + host + " cannot be found", "check the base URL and the DNS of this machine"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return host + " does not speak TLS", "write http:// in the base URL if no encryption is intended"
	case errors.As(err, &name):
		return "the certificate of " + host + " is for another name", "use the certificate's name in LLM_BASE_URL"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate of " + host + " has expired, or is not valid yet", "renew it, or set the clock of this machine"
	case errors.As(err, &unknown):
		return "the certificate of " + host + " is not trusted: this machine does not know the authority that signed it",
			"name the authority's certificate (a PEM file) in SSL_CERT_FILE (Linux), or add it to the machine's"
	case errors.As(err, &verify), errors.As(err, &invalid):
		return "the certificate of " + host + " is not trusted", "check the certificate, and the certificate authorities of this machine"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &deflate):
		return host + " declares a gzip answer, but the answer is not gzip or is damaged", adviseCompression
	case errors.As(err, &alert):
		return "TLS with " + host + " failed", "check that the base URL leads to the right server"
	case errors.Is(err, syscall.ECONNREFUSED):
		return host + " refuses connections", "check that the endpoint runs and listens on this port"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no route to " + host, "check the network of this machine"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return host + " closed the connection", ""
	}
	return "the connection to " + host + " failed", "check that the endpoint runs and can be reached from here"
}

// NewHTTPDoer returns the default Doer of a Config: an HTTP client that follows no redirects, because they
// would turn the question into a GET and might carry the key elsewhere. It connects within 5 s, reads at most
// 64 KiB of headers and keeps idle connections open. It uses the environment's proxies. It does not limit the
// whole call; the request's context does.
func NewHTTPDoer() Doer {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    5 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
