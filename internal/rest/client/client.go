// Package client calls a gavel server over its REST API, with the engine's own types.
//
// Guarantees:
//   - An error of the server is returned as the original *engine.Error, with its code.
//   - Only requests that are safe to repeat are repeated: GET, PUT, and those with an idempotency key.
//   - The token is sent only to the configured server: never over plain HTTP to another machine unless the
//     configuration allows it, and never after a redirect.
//
// It must never decide anything, and never put a token into an error.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest"
)

// Config selects the server and the caller.
type Config struct {
	// Server is the server's address: https://gavel.example, http://127.0.0.1:4285.
	Server string
	// Token is the bearer token; "" for a server without authentication.
	Token string
	// CAFile holds PEM certificates to trust instead of the system's; "" selects the system's.
	CAFile string
	// PlainHTTP permits sending the token over http:// to a server on another machine.
	PlainHTTP bool
	// Tries limits the attempts for a request that is safe to repeat; 0 selects 3.
	Tries int
	// Timeout limits one attempt; 0 selects a minute.
	Timeout time.Duration
}

// Client is an operation.Caller for one server. The token identifies the caller.
type Client struct {
	base    *url.URL
	token   string
	http    *http.Client
	tries   int
	timeout time.Duration
}

// New returns a Client without connecting. The error describes an invalid configuration.
func New(cfg Config) (*Client, error) {
	base, err := ParseAddress(cfg.Server)
	if err != nil {
		return nil, err
	}
	if base.Scheme == "http" && cfg.Token != "" && !cfg.PlainHTTP && !isLoopback(base.Hostname()) {
		return nil, fmt.Errorf("a token would be sent over plain HTTP to %s and could be read in transit", base.Host)
	}
	c := &Client{base: base, token: cfg.Token, tries: cmp.Or(cfg.Tries, 3), timeout: cmp.Or(cfg.Timeout, time.Minute)}
	if c.http, err = NewHTTP(cfg.CAFile); err != nil {
		return nil, err
	}
	return c, nil
}

// ParseAddress parses and checks the address of a server.
func ParseAddress(server string) (*url.URL, error) {
	at, err := url.Parse(server)
	if err != nil || at.Host == "" || (at.Scheme != "http" && at.Scheme != "https") || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return nil, errors.New("the server's address must be like https://gavel.example or http://127.0.0.1:4285, without user, query and fragment")
	}
	return at, nil
}

// NewHTTP returns an HTTP client that trusts the PEM certificates in a file, or the system's if caFile is "". It
// follows no redirects, because they could lead to an unintended server.
func NewHTTP(caFile string) (*http.Client, error) {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute,
		DialContext:     (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if caFile != "" {
		var err error
		if transport.TLSClientConfig.RootCAs, err = egress.LoadRoots(caFile); err != nil {
			return nil, err //nolint:wrapcheck // the error is complete
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// maxAnswer limits a response, in bytes.
const maxAnswer = 64 << 20

// longestWait limits the wait before a retry. The caller must wait itself if the server asks for more.
const longestWait = 5 * time.Second

// Ask performs an operation on the server. It repeats the request if that is safe.
func (c *Client) Ask(ctx context.Context, op *operation.Operation, req any) (any, error) {
	for try := 1; ; try++ {
		res, safe, err := c.askOnce(ctx, op, req)
		if err == nil {
			return res, nil
		}
		var e *engine.Error
		if !safe || try >= c.tries || !errors.As(err, &e) || e.RetryAfter <= 0 || e.RetryAfter > longestWait {
			return nil, err
		}
		pause := time.NewTimer(e.RetryAfter)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil, err
		case <-pause.C:
		}
	}
}

// askOnce sends a request once. safe reports whether it may be repeated.
func (c *Client) askOnce(ctx context.Context, op *operation.Operation, req any) (res any, safe bool, err error) {
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := rest.NewRequest(within, c.base, op, req)
	if err != nil {
		return nil, false, err //nolint:wrapcheck // an *engine.Error
	}
	safe = r.Method == http.MethodGet || r.Method == http.MethodPut || r.Header.Get("Idempotency-Key") != ""
	resp, err := c.send(r)
	if err != nil {
		return nil, safe && ctx.Err() == nil, err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read, or is not needed
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, safe, unreachableError(c.base.Host, err)
	case len(body) > maxAnswer:
		return nil, false, &engine.Error{Code: engine.CodeTooLarge, Message: "The server's answer is too large.", Hint: "Request fewer entries."}
	case resp.StatusCode >= http.StatusMultipleChoices:
		return nil, safe, responseError(c.base.Host, resp, body)
	}
	out := reflect.New(op.Result)
	if err := json.Unmarshal(body, out.Interface()); err != nil {
		return nil, false, &engine.Error{
			Code: engine.CodeInternal, Message: fmt.Sprintf("The answer of %s is not from a gavel server.", c.base.Host), Hint: "Check the address.", Err: err,
		}
	}
	return out.Elem().Interface(), safe, nil
}

func (c *Client) send(r *http.Request) (*http.Response, error) {
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, unreachableError(c.base.Host, err)
	}
	return resp, nil
}

// defaultRetryWait is the wait before a retry after a failed connection.
const defaultRetryWait = 200 * time.Millisecond

func unreachableError(host string, err error) error {
	if errors.Is(err, context.Canceled) {
		return &engine.Error{Code: engine.CodeCancelled, Message: "The request was cancelled.", Hint: "Check the status before trying again.", Err: err}
	}
	var lasting *tls.CertificateVerificationError
	after := defaultRetryWait
	if errors.As(err, &lasting) {
		after = 0
	}
	var op *url.Error // its text contains the full address
	cause := err
	if errors.As(err, &op) {
		cause = op.Err
	}
	failed := &engine.Error{
		Code: engine.CodeUnavailable, Message: fmt.Sprintf("The server at %s could not be reached.", host),
		Hint: "Check that it runs, and check its address.", RetryAfter: after, Err: cause,
	}
	if hint := HintCertificate(err); hint != "" {
		failed.Message, failed.Hint = fmt.Sprintf("The certificate of %s is not trusted.", host), hint
	}
	return failed
}

// HintCertificate returns a hint if err concerns a server's certificate, or "".
func HintCertificate(err error) string {
	var failed *tls.CertificateVerificationError
	var unsigned x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unsigned):
		return "If it is yours, trust it with --ca-file FILE (the certificate, or the one that signed it)."
	case errors.As(err, &failed):
		return "Use a server name that is in its certificate, and check the certificate's dates."
	}
	return ""
}

// responseError converts an unsuccessful response to the server's error.
func responseError(host string, resp *http.Response, body []byte) error {
	var p rest.Problem
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != rest.ProblemType || json.Unmarshal(body, &p) != nil || p.Code == "" {
		code := engine.CodeInternal
		if resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusGatewayTimeout {
			code = engine.CodeUnavailable
		}
		return &engine.Error{
			Code: code, Message: fmt.Sprintf("%s answered %s, but not like a gavel server.", host, resp.Status),
			Hint: "Check the address, whether it is http:// or https://, and any proxy in between.", RetryAfter: retryAfter(resp),
		}
	}
	return &engine.Error{
		Code: p.Code, Message: p.Detail, Hint: p.Hint, Path: p.Path, Current: p.Current, Issues: p.Issues, RetryAfter: retryAfter(resp),
	}
}

func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// Post sends JSON once to a path below the server's address, and returns the response.
func (c *Client) Post(ctx context.Context, path string, body []byte) ([]byte, error) {
	at, err := c.base.Parse(strings.TrimSuffix(c.base.Path, "/") + path)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.send(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read, or is not needed
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, unreachableError(c.base.Host, err)
	case resp.StatusCode >= http.StatusMultipleChoices:
		return nil, responseError(c.base.Host, resp, answer)
	}
	return answer, nil
}
