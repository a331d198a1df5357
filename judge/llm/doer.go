package llm

import (
	"net"
	"net/http"
	"time"
)

// NewHTTPDoer returns the Doer of a Config without one: an HTTP client that follows
// no redirect (it would turn the question into a GET and might carry the key
// elsewhere), connects within 5 s, reads at most 64 KiB of headers and keeps idle
// connections for the next question. Proxies are those of the environment. It sets
// no bound to a whole call: that is what the request's context is for.
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
