// Package endpoint posts signed messages to an address of the operator's, in the form of Standard
// Webhooks: the headers webhook-id, webhook-timestamp and webhook-signature, an HMAC-SHA256 over
// all three parts (id, time, body) for each secret.
//
// It promises that an address is looked at when it is dialled, that no redirect is followed, and
// that no error holds the address, which may be a secret. It tries once: when to try again is for
// who has the message.
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

// Message is what an endpoint gets. Its ID is the same in every try.
type Message struct {
	ID   string
	Body []byte
}

// AnswerError is an answer that does not accept a message.
type AnswerError struct {
	Status int
	// RetryAfter is how long the receiver asks to be left alone, 0 where it does not say.
	RetryAfter time.Duration
}

func (e *AnswerError) Error() string { return fmt.Sprintf("the answer was %d", e.Status) }

// Endpoint is an address with the secrets that sign what it gets.
type Endpoint struct {
	url     string
	headers http.Header
	keys    [][]byte
	client  *http.Client
}

// New returns an endpoint, or what is wrong with its address or a secret. private lets the
// address lead into private networks. No secrets leave messages unsigned; several sign each of them
// several times, so that a receiver may know the old or the new one.
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

// Close ends the connections that nothing uses.
func (e *Endpoint) Close() { e.client.CloseIdleConnections() }

// CheckAddress says what is wrong with the form of an address.
func CheckAddress(address string) error {
	at, err := url.Parse(address)
	if err != nil || at.Host == "" || (at.Scheme != "https" && at.Scheme != "http") {
		return errors.New("the address is to be like https://hooks.example.org/gavel")
	}
	return nil
}

// Host is what may be shown of an address that parses.
func Host(address string) string {
	at, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return at.Host
}

// answerRead is how much of an answer is read, so that its connection can be used again.
const answerRead = 4 << 10

// Send posts a message once. The error is an *AnswerError where the receiver answered anything
// but 2xx.
func (e *Endpoint) Send(ctx context.Context, m Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(m.Body))
	if err != nil {
		return errors.New("the address cannot be asked")
	}
	maps.Copy(req.Header, e.headers)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "gavel")
	signMessage(req.Header, e.keys, m, time.Now())
	resp, err := e.client.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err // it does not hold the address
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

// parseRetryAfter reads seconds or a date, 0 for neither.
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

// parseSecret returns the key of a secret as Standard Webhooks writes them.
func parseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("the secret is %s and 24 to 64 bytes in base64 (openssl rand -base64 32)", secretPrefix)
	}
	return key, nil
}

// signMessage sets the headers of Standard Webhooks: which message it is, when it was sent, and for
// each key the signature of both with the body.
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
