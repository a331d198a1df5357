package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/validators/document"
)

const maxRedirects = 3

// httpLink speaks streamable HTTP. It holds no connection between messages.
type httpLink struct {
	server  *server
	session *session
	guard   *egress.Guard
	home    *url.URL
	headers http.Header
	hosts   []string
	done    chan struct{}
	closed  sync.Once

	mu        sync.Mutex
	sessionID string
}

func newHTTPLink(s *server, ses *session) *httpLink {
	none := func(string, string) {} // Open has checked them
	home, err := url.Parse(s.URL)
	if err != nil {
		panic(err) // Open has parsed it
	}
	return &httpLink{
		server: s, session: ses, guard: s.manager.guards[s.PrivateNetwork], home: home,
		headers: egress.Headers(s.Headers, s.manager.opts.LookupEnv, none),
		hosts:   egress.RedirectHosts(home.Host, home.Scheme, s.Hosts, func(int, string) {}),
		done:    make(chan struct{}),
	}
}

func (l *httpLink) gone() <-chan struct{} { return l.done }

func (l *httpLink) cause() *linkError { return errClosing }

// close ends the session on the server too, where it has one.
func (l *httpLink) close() {
	l.closed.Do(func() {
		close(l.done)
		if id := l.currentSession(); id != "" {
			ctx, cancel := context.WithTimeout(context.Background(), pipeGrace)
			defer cancel()
			if response, _, err := l.exchange(ctx, http.MethodDelete, nil, nil); err == nil {
				response.Body.Close()
			}
		}
	})
}

func (l *httpLink) currentSession() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessionID
}

func (l *httpLink) reply(ctx context.Context, line []byte) error {
	response, _, err := l.exchange(ctx, http.MethodPost, line, nil)
	if err == nil {
		response.Body.Close()
	}
	return err
}

func (l *httpLink) send(ctx context.Context, m message) error {
	response, wrote, err := l.exchange(ctx, http.MethodPost, m.encode(), m.headers)
	if err != nil {
		return l.explain(err, wrote)
	}
	defer response.Body.Close()
	if m.method == string(mcp.MethodInitialize) && response.StatusCode == http.StatusOK {
		if id := response.Header.Get(mcp.HeaderSessionID); len(id) <= maxName {
			l.mu.Lock()
			l.sessionID = id
			l.mu.Unlock()
		}
	}
	failed := l.statusError(response)
	if m.id == 0 {
		if failed != nil {
			return failed
		}
		return nil
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case media == "text/event-stream" && response.StatusCode == http.StatusOK:
		return l.readEvents(response.Body, strconv.FormatInt(m.id, 10))
	case media == "application/json":
		return l.readAnswer(response, failed, strconv.FormatInt(m.id, 10))
	case failed != nil:
		return failed
	}
	return &linkError{code: CodeProtocol, text: "the answer is neither JSON nor a stream of events", mayHaveRun: true}
}

// statusError is why a status is not a success; nil of one that is.
func (l *httpLink) statusError(response *http.Response) *linkError {
	status := response.StatusCode
	after, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	failure := &linkError{
		code: CodeUnavailable, text: fmt.Sprintf("the server answered with status %d", status),
		mayHaveRun: status >= 500, retryAfter: min(time.Duration(max(after, 0))*time.Second, maxTimeout),
	}
	switch {
	case status < 300:
		return nil
	case status == http.StatusNotFound && l.currentSession() != "":
		failure.forgotten = true
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		failure.text = fmt.Sprintf("the server does not accept gavel's credentials (status %d)", status)
	}
	return failure
}

func (l *httpLink) readAnswer(response *http.Response, failed *linkError, id string) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxFrame+1))
	if len(body) > maxFrame {
		return errAnswerTooLong
	}
	f, parseErr := parseFrame(body)
	issue, unreadable := errors.AsType[*document.Issue](parseErr)
	switch {
	case err != nil:
		return &linkError{code: CodeLost, text: "the connection broke in the answer", mayHaveRun: true, err: err}
	case failed != nil && (failed.forgotten || parseErr == nil && isForgotten(f)):
		return &linkError{code: CodeUnavailable, text: "the server no longer knows the session", forgotten: true}
	case parseErr == nil && f.isResponse() && f.id == id:
		l.session.receive(f)
		return nil
	case failed != nil:
		return failed
	case unreadable:
		return newUnreadable(issue)
	}
	return &linkError{code: CodeProtocol, text: "the answer is not one to the request", mayHaveRun: true, err: parseErr}
}

// isForgotten reports whether an error says that the session is not known any more.
func isForgotten(f frame) bool {
	failure := readChecked(f.failure) // absent in another frame
	return string(failure.Get("code").Raw()) == "-32001" && strings.Contains(strings.ToLower(failure.Get("message").Text()), "session")
}

// readEvents reads a stream up to the response to a request.
func (l *httpLink) readEvents(body io.Reader, id string) error {
	lines := lineReader{bufio.NewReader(body)}
	var buf, data []byte
	for {
		line, err := lines.next(buf)
		switch {
		case errors.Is(err, errTooLong), len(data)+len(line) > maxFrame:
			return errAnswerTooLong
		case err != nil:
			return &linkError{code: CodeLost, text: "the connection ended before the answer", mayHaveRun: true, err: err}
		}
		buf = line
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(text, []byte(" "))...)
			continue
		}
		if len(line) > 0 || len(data) == 0 {
			continue
		}
		f, err := parseFrame(data)
		of, failure := explainUnreadable(data, err)
		data = nil // the frame keeps it
		switch {
		case failure != nil && (of == id || of == ""):
			return failure
		case err != nil:
			continue
		}
		l.session.receive(f)
		if f.isResponse() && f.id == id {
			return nil
		}
	}
}

// redirectError is of a redirect that is not followed.
type redirectError struct{ text string }

func (e *redirectError) Error() string { return e.text }

// exchange sends one HTTP request, and follows redirects by hand: each is checked, and what was
// configured for the first host is for that host alone. wrote says that something was sent.
func (l *httpLink) exchange(ctx context.Context, method string, body []byte, headers map[string]string) (response *http.Response, wrote bool, err error) {
	at, home := l.home, true
	for range maxRedirects + 1 {
		var sent atomic.Bool
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
		request, err := http.NewRequestWithContext(traced, method, at.String(), bytes.NewReader(body))
		if err != nil {
			return nil, false, err
		}
		if home {
			request.Header = l.headers.Clone()
		}
		l.setHeaders(request.Header, method, headers)
		response, err := l.guard.Transport().RoundTrip(request)
		if err != nil {
			return nil, sent.Load(), err
		}
		location := response.Header.Get("Location")
		if response.StatusCode/100 != 3 || location == "" {
			return response, true, nil
		}
		response.Body.Close()
		next, err := at.Parse(location)
		switch {
		case response.StatusCode != http.StatusTemporaryRedirect && response.StatusCode != http.StatusPermanentRedirect:
			return nil, false, &redirectError{fmt.Sprintf("the server redirects with status %d, which would lose the request; set its new url", response.StatusCode)}
		case err != nil || next.User != nil || next.Scheme != "https" && next.Scheme != "http":
			return nil, false, &redirectError{"the server redirects to an address that is not allowed"}
		case at.Scheme == "https" && next.Scheme == "http":
			return nil, false, &redirectError{"the server redirects from https to http"}
		case !slices.Contains(l.hosts, egress.HostPort(next)):
			return nil, false, &redirectError{`the server redirects to a host that is not in its "hosts"`}
		}
		home = home && next.Scheme == l.home.Scheme && egress.HostPort(next) == egress.HostPort(l.home)
		at = next
	}
	return nil, false, &redirectError{fmt.Sprintf("the server redirects more than %d times", maxRedirects)}
}

func (l *httpLink) setHeaders(h http.Header, method string, headers map[string]string) {
	h.Set("User-Agent", cmp.Or(h.Get("User-Agent"), "gavel"))
	if method == http.MethodPost {
		h.Set("Content-Type", "application/json")
		h.Set("Accept", "application/json, text/event-stream")
	}
	if version := l.session.version; version != "" {
		h.Set(mcp.HeaderProtocolVersion, version)
	}
	if id := l.currentSession(); id != "" && !l.session.isModern() {
		h.Set(mcp.HeaderSessionID, id)
	}
	for name, value := range headers {
		h.Set(name, value)
	}
}

// explain says why there was no answer. The errors of net/http hold the whole address and are
// for the log only.
func (l *httpLink) explain(err error, wrote bool) error {
	failure := &linkError{code: CodeUnavailable, text: "the server cannot be reached or does not speak HTTP", mayHaveRun: wrote, err: err}
	redirect, redirected := errors.AsType[*redirectError](err)
	_, unresolved := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case redirected:
		failure.text = redirect.text
	case errors.Is(err, egress.ErrBlocked):
		failure.text = "the address is in a private or special network; set privateNetwork: true if that is meant"
	case unresolved:
		failure.text = "the name of the server cannot be resolved"
	case untrusted:
		failure.text = "the certificate of the server is not accepted"
	case wrote:
		failure.code, failure.text = CodeLost, "the connection broke before the answer"
	}
	return failure
}
