// Package endpoint posts signed messages to an operator's address, in the format of Standard Webhooks: the headers
// webhook-id, webhook-timestamp and webhook-signature. The signature contains, for each secret, an HMAC-SHA256 over
// id, time and body.
//
// It guarantees:
//
//   - The address is checked when it is dialled.
//   - Redirects are not followed.
//   - Errors never contain the address, which may be secret.
//
// It tries only once; the caller decides about retries.
package endpoint

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/egress"
)

// Message is sent to an endpoint. Its ID is the same in every try.
type Message struct {
	ID   string
	Body []byte
}

// AnswerError is an answer that does not accept a message.
type AnswerError struct {
	Status int
	// RetryAfter is the pause that the receiver asks for; 0 if it does not ask.
	RetryAfter time.Duration
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the receiver answered with status %d", e.Status)
}

// Endpoint is an address with the secrets that sign its messages.
type Endpoint struct {
	url     string
	headers http.Header
	keys    [][]byte
	client  *http.Client
}

// New returns an endpoint, or an error if its address or a secret is invalid. private allows the address to resolve
// to private networks. Without secrets, messages are unsigned. With several, each message has several signatures, so
// that a receiver may know either the old or the new secret.
func New(address string, private bool, headers http.Header, secrets ...string) (*Endpoint, error) {
	if err := CheckAddress(address); err != nil {
		return nil, err
	}
	e := &Endpoint{url: address, headers: headers}
	for _, secret := range secrets {
		key, err := parseSecret(secret)
		if err != nil {
			return nil, err
		}
		e.keys = append(e.keys, key)
	}
	e.client = &http.Client{
		Transport:     egress.NewGuard(private).Transport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e, nil
}

// Close closes idle connections.
func (e *Endpoint) Close() { e.client.CloseIdleConnections() }

// CheckAddress returns an error if an address is malformed.
func CheckAddress(address string) error {
	at, err := url.Parse(address)
	if err != nil || at.Host == "" || (at.Scheme != "https" && at.Scheme != "http") {
		return errors.New("invalid address; write it like https://hooks.example.org/gavel")
	}
	return nil
}

// Host returns the part of a valid address that may be shown.
func Host(address string) string {
	at, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return at.Host
}

// answerRead is how much of an answer is read, so that its connection can be reused.
const answerRead = 4 << 10

// Send posts a message once. The error is an *AnswerError if the receiver answered with a status other than 2xx.
func (e *Endpoint) Send(ctx context.Context, m Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(m.Body))
	if err != nil {
		return errors.New("invalid address")
	}
	maps.Copy(req.Header, e.headers)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "gavel")
	signMessage(req.Header, e.keys, m, time.Now())
	resp, err := e.client.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err // does not contain the address
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, answerRead)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return &AnswerError{Status: resp.StatusCode, RetryAfter: parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())}
	}
	return nil
}

// parseRetryAfter parses seconds or a date; anything else is 0.
func parseRetryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second //nolint:gosec // below 2^31
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

const secretPrefix = "whsec_"

// parseSecret returns the key of a secret in the format of Standard Webhooks.
func parseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("invalid secret; it must be %s and 24 to 64 bytes in base64 (openssl rand -base64 32)", secretPrefix)
	}
	return key, nil
}

// signMessage sets the headers of Standard Webhooks: the message's id, the time of sending, and for each key a
// signature of both with the body.
func signMessage(h http.Header, keys [][]byte, m Message, now time.Time) {
	at := strconv.FormatInt(now.Unix(), 10)
	h.Set("Webhook-Id", m.ID)
	h.Set("Webhook-Timestamp", at)
	var signatures []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(m.ID + "." + at + "."))
		mac.Write(m.Body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if signatures != nil {
		h.Set("Webhook-Signature", strings.Join(signatures, " "))
	}
}
