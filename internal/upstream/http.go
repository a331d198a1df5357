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

// httpLink speaks streamable HTTP. It keeps no connection open between messages.
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
	none := func(string, string) {} // Open has checked the headers
	home, err := url.Parse(s.URL)
	if err != nil {
		panic(err) // Open has checked the URL
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

// close also ends the session on the server, if the server has assigned one.
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
	id := strconv.FormatInt(m.id, 10)
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode >= http.StatusMultipleChoices:
		return l.explainStatus(response, id)
	case m.id == 0:
		return nil
	case media == "text/event-stream":
		return l.readEvents(response.Body, id)
	case media == "application/json":
		return l.readAnswer(response.Body, id)
	}
	return &linkError{code: CodeProtocol, text: "the answer is neither JSON nor a stream of events", mayHaveRun: true}
}

// explainStatus returns the error for a response whose status is 300 or above, including the server's own message. If
// the body is the JSON-RPC response to the request, it counts as the answer, and explainStatus returns nil.
func (l *httpLink) explainStatus(response *http.Response, id string) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxFrame))
	f, parseErr := parseFrame(body)
	words := shortenText(string(body), l.server.secrets)
	if parseErr == nil && f.failure != nil {
		words = shortenText(readChecked(f.failure).Get("message").Text(), l.server.secrets)
	}
	status, hasSession := response.StatusCode, l.currentSession() != ""
	after, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	failure := &linkError{
		code: CodeUnavailable, text: fmt.Sprintf("the server answered with status %d%s", status, prefixWords(words)),
		mayHaveRun: status >= 500, retryAfter: min(time.Duration(max(after, 0))*time.Second, maxTimeout), err: err,
	}
	switch {
	case isUninitialized(f), status < 500 && strings.Contains(strings.ToLower(words), "session"),
		hasSession && (status == http.StatusNotFound || status == http.StatusGone):
		failure.forgotten, failure.mayHaveRun = true, false
	case parseErr == nil && f.isResponse() && f.id == id:
		l.session.receive(f)
		return nil
	case hasSession && (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity):
		failure.forgotten = true
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		failure.text = fmt.Sprintf("the server does not accept gavel's credentials (status %d)%s", status, prefixWords(words))
	}
	return failure
}

// prefixWords returns ": " and a server's message, to be appended to a message of gavel; "" if there is none.
func prefixWords(words string) string {
	if words == "" {
		return ""
	}
	return ": " + words
}

func (l *httpLink) readAnswer(from io.Reader, id string) error {
	body, err := io.ReadAll(io.LimitReader(from, maxFrame+1))
	if len(body) > maxFrame {
		return errAnswerTooLong
	}
	if err != nil {
		return &linkError{code: CodeLost, text: "the connection broke while the answer was read", mayHaveRun: true, err: err}
	}
	f, err := parseFrame(body)
	if wrong, ok := errors.AsType[*answerError](err); ok {
		return wrong.failure()
	}
	if issue, ok := errors.AsType[*document.Issue](err); ok {
		return newUnreadable(issue)
	}
	if err != nil || !f.isResponse() || f.id != id {
		return l.session.newUnmatched(body)
	}
	l.session.receive(f)
	return nil
}

// isForgotten reports whether an error means that the server no longer knows the session.
func isForgotten(f frame) bool {
	failure := readChecked(f.failure) // absent if the frame is not an error
	return string(failure.Get("code").Raw()) == "-32001" && strings.Contains(strings.ToLower(failure.Get("message").Text()), "session")
}

// isUninitialized reports whether an error means that the server was not initialised. Such a server has restarted, and
// has not acted on the request.
func isUninitialized(f frame) bool {
	text := strings.ToLower(readChecked(f.failure).Get("message").Text())
	return (strings.Contains(text, "initializ") || strings.Contains(text, "initialis")) && (strings.Contains(text, "not ") || strings.Contains(text, "before"))
}

// readEvents reads an event stream up to the response to a request.
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
		if failure == nil && f.isResponse() {
			of, failure = f.id, l.session.newUnmatched(data)
		}
		data = nil // the frame retains it
		switch {
		case failure != nil && !l.session.hasIssued(of), err != nil && of == id:
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

// redirectError is returned for a redirect that is not followed.
type redirectError struct{ text string }

func (e *redirectError) Error() string { return e.text }

// exchange sends one HTTP request and follows redirects itself. It checks each redirect, and sends the configured
// headers only to the configured host. wrote reports whether the server may have acted on the request; it is false for
// a redirect that is not followed.
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
			return nil, false, &redirectError{fmt.Sprintf("the server redirects with status %d, which would drop the request body; set its new url", response.StatusCode)}
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

// explain returns the failure for a request without a response. Errors of net/http contain the full URL, so they are
// only logged.
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
