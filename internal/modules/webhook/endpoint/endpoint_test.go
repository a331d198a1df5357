package endpoint

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// The standard test vector for receivers of such webhooks.
func TestSignature(t *testing.T) {
	t.Parallel()
	key, err := parseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	sign := func(keys ...[]byte) string {
		h := http.Header{}
		signMessage(h, keys, Message{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", Body: []byte(`{"test": 2432232314}`)}, time.Unix(1614265330, 0))
		return h.Get("Webhook-Signature")
	}
	if got := sign(key); got != want {
		t.Errorf("signed %s", got)
	}
	if got := sign(); got != "" {
		t.Errorf("without a key signed %s", got)
	}
	other := strings.Fields(sign([]byte("another key of twenty-four"), key))
	if len(other) != 2 || other[0] == want || other[1] != want {
		t.Errorf("two keys signed %q", other)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_!", "whsec_c2hvcnQ=", "whsec_" + strings.Repeat("AAAA", 30), ""} {
		if _, err := New("https://example.org", false, nil, secret, bad); err == nil || strings.Contains(err.Error(), "c2hvcnQ=") {
			t.Errorf("the secret %q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "example.org", "ftp://example.org/T0P-SECRET", "https:///T0P-SECRET", "https://%zz/T0P-SECRET"} {
		if _, err := New(bad, false, nil); err == nil || strings.Contains(err.Error(), "T0P-SECRET") {
			t.Errorf("the address %q: %v", bad, err)
		}
	}
}

func TestSend(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, fmt.Sprintf("%s %s %s %q %s %t", r.Method, r.URL.Path, r.Header.Get("Webhook-Id"), r.Header.Get("X-Team"), body, strings.HasPrefix(r.Header.Get("Webhook-Signature"), "v1,")))
		switch r.URL.Path {
		case "/T0P-SECRET/moved":
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusTemporaryRedirect)
		case "/T0P-SECRET/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	send := func(path string, private bool) error {
		e, err := New(server.URL+path, private, http.Header{"X-Team": {"a"}}, secret)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		err = e.Send(t.Context(), Message{ID: "wf-1_2", Body: []byte(`{}`)})
		if err != nil && strings.Contains(err.Error(), "T0P-SECRET") {
			t.Errorf("the error has the address: %v", err)
		}
		return err
	}
	if err := send("/T0P-SECRET/hook", true); err != nil {
		t.Error(err)
	}
	if answer, ok := errors.AsType[*AnswerError](send("/T0P-SECRET/moved", true)); !ok || answer.Status != http.StatusTemporaryRedirect {
		t.Errorf("a redirect: %v", answer)
	}
	if answer, ok := errors.AsType[*AnswerError](send("/T0P-SECRET/busy", true)); !ok || answer.RetryAfter != 7*time.Second {
		t.Errorf("a busy receiver: %v", answer)
	}
	if err := send("/T0P-SECRET/hook", false); !errors.Is(err, egress.ErrBlocked) {
		t.Errorf("a private address: %v", err)
	}
	server.Close()
	if err := send("/T0P-SECRET/hook", true); err == nil {
		t.Error("nobody listens, and it arrived")
	}
	if len(asked) != 3 || asked[0] != `POST /T0P-SECRET/hook wf-1_2 "a" {} true` {
		t.Errorf("asked %q", asked)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0).UTC()
	for text, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-3": 0, "soon": 0, "99999999999999999999": 0,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got := parseRetryAfter(text, now); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}
