package evidence

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"

	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

const maxRedirects = 3

type address struct {
	template *addressTemplate
	headers  http.Header
	hosts    []string // with ports
	accept   []int
	limit    int
	output   Output
	guard    *egress.Guard
}

func (a *address) warnings() []string { return nil }

func (a *address) prepare(_ judge.EvidenceRequest, given document.JSON) (fetch, string) {
	values, problem := templateValues(given)
	if problem != "" {
		return nil, problem
	}
	u, problem := a.template.expand(values)
	if problem != "" {
		return nil, problem
	}
	return func(ctx context.Context) (judge.FetchResult, error) { return a.fetch(ctx, u), nil }, ""
}

// fetch follows redirects itself. It checks each one, and sends the configured headers only to the first host.
func (a *address) fetch(ctx context.Context, u *url.URL) judge.FetchResult {
	at, home := u, true
	for range maxRedirects + 1 {
		response, err := a.get(ctx, at, home)
		if err != nil {
			return requestFailure(ctx, err)
		}
		location := response.Header.Get("Location")
		if !slices.Contains([]int{301, 302, 303, 307, 308}, response.StatusCode) || location == "" {
			defer response.Body.Close()
			return a.read(ctx, response)
		}
		response.Body.Close()
		next, err := at.Parse(location)
		switch {
		case err != nil || next.User != nil || next.Scheme != "https" && next.Scheme != "http":
			return failedFetch(judge.FailureRefused, "the server redirects to an address that is not allowed")
		case at.Scheme == "https" && next.Scheme == "http":
			return failedFetch(judge.FailureRefused, "the server redirects from https to http")
		case !slices.Contains(a.hosts, egress.HostPort(next)):
			return failedFetch(judge.FailureRefused, "the server redirects to a host that is not in the list of hosts")
		}
		home = home && next.Scheme == u.Scheme && egress.HostPort(next) == egress.HostPort(u)
		at = next
	}
	return failedFetch(judge.FailureRefused, "the server redirects more than %d times", maxRedirects)
}

// get sends one request. home reports whether u is on the declared host, the only one that receives the declared
// headers.
func (a *address) get(ctx context.Context, u *url.URL, home bool) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if home {
		request.Header = a.headers.Clone()
	}
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "gavel")
	}
	return a.guard.Transport().RoundTrip(request)
}

func (a *address) read(ctx context.Context, response *http.Response) judge.FetchResult {
	status := response.StatusCode
	if accepted := slices.Contains(a.accept, status); !accepted && (len(a.accept) > 0 || status < 200 || status > 299) {
		return failedFetch(judge.FailureRefused, "the server answered with status %d", status)
	}
	var d objectWriter
	d.set("status", status)
	if a.output == OutputNone {
		return judge.FetchResult{Content: d.end()}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(a.limit)+1))
	switch {
	case ctx.Err() != nil && err != nil:
		return failedFetch(judge.FailureTimeout, "")
	case err != nil:
		return failedFetch(judge.FailureUnavailable, "the connection broke while reading the answer")
	}
	truncated := len(body) > a.limit
	if a.output == OutputText {
		body = body[:min(len(body), a.limit)]
		d.set("body", cleanOutput(body))
		return judge.FetchResult{Content: d.end(), Truncated: truncated}
	}
	if truncated {
		return failedFetch(judge.FailureTooLarge, "the answer has more than %d bytes", a.limit)
	}
	if problem := checkJSON(body, a.limit); problem != "" {
		return failedFetch(judge.FailureMalformed, "the answer %s", problem)
	}
	d.set("body", json.RawMessage(body))
	return judge.FetchResult{Content: d.end()}
}

// requestFailure explains why there was no response. Errors of net/http contain the full address, so they are never
// passed on.
func requestFailure(ctx context.Context, err error) judge.FetchResult {
	_, unresolved := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, egress.ErrBlocked):
		return failedFetch(judge.FailureRefused, "the source does not allow this address: it is in a private or special network")
	case ctx.Err() != nil:
		return failedFetch(judge.FailureTimeout, "")
	case unresolved:
		return failedFetch(judge.FailureUnavailable, "the server's name cannot be resolved")
	case untrusted:
		return failedFetch(judge.FailureUnavailable, "the server's certificate is not trusted")
	default:
		return failedFetch(judge.FailureUnavailable, "the server cannot be reached or does not speak HTTP")
	}
}
