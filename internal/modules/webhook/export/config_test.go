package export

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func parse(t *testing.T, text string) ([]Webhook, error) {
	t.Helper()
	root, err := document.Parse("/etc/gavel.yaml", []byte(text), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return ParseConfig(root.Get("webhooks"), root.Get("notify"))
}

func TestParseConfig(t *testing.T) {
	t.Parallel()
	all, err := parse(t, `
webhooks:
  audit: {url: "https://hooks.example.org/gavel", secretFiles: a.secret}
  ops-2:
    url: http://10.0.0.1/x
    privateNetwork: true
    secretFiles: [/run/new, old]
    headers: {Authorization: "Bearer ${TOKEN}"}
    from: start
    parallel: 8
    tries: 3
    timeout: 5s
    filter: {workflows: [release], kinds: [advanced, refused], outcomes: [reject]}
`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].node = nil
	}
	want := []Webhook{
		{Name: "audit", URL: "https://hooks.example.org/gavel", SecretFiles: []string{"/etc/a.secret"}, Parallel: 4, Tries: 10, Timeout: 10 * time.Second},
		{
			Name: "ops-2", URL: "http://10.0.0.1/x", PrivateNetwork: true, SecretFiles: []string{"/run/new", "/etc/old"}, Headers: map[string]string{"Authorization": "Bearer ${TOKEN}"},
			FromStart: true, Parallel: 8, Tries: 3, Timeout: 5 * time.Second,
			Filter: Filter{Workflows: []string{"release"}, Kinds: []record.Kind{record.Advanced, record.Refused}, Outcomes: []judge.Outcome{judge.Reject}},
		},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got %+v", all)
	}
	if got := all[1].Filter.String(); got != `{"workflows":["release"],"kinds":["advanced","refused"],"outcomes":["reject"]}` || all[0].Filter.String() != "" {
		t.Errorf("the filter is noted as %s", got)
	}
	if none, err := parse(t, "store: memory"); none != nil || err != nil {
		t.Errorf("without the section: %v, %v", none, err)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	t.Parallel()
	const good = `url: "https://example.org", secretFiles: s`
	for text, want := range map[string]string{
		`{A: {` + good + `}}`: "lower-case letters and digits",
		`{a-very-long-name-of-a-webhook-that-nobody-types: {` + good + `}}`: "1 to 32",
		`{a: {secretFiles: s}}`:                                   `"url"`,
		`{a: {url: "https://example.org"}}`:                       `"secretFiles"`,
		`{a: {url: "https://example.org", secretFiles: []}}`:      "one file, or two",
		`{a: {url: "https://example.org", secretFiles: [a,b,c]}}`: "one file, or two",
		`{a: {url: "ftp://T0P/SECRET", secretFiles: s}}`:          "like https://",
		`{a: {url: "http://T0P/SECRET", secretFiles: s}}`:         "privateNetwork",
		`{a: {` + good + `, parallel: 0}}`:                        "from 1 to 64",
		`{a: {` + good + `, tries: 1000}}`:                        "from 1 to 100",
		`{a: {` + good + `, timeout: 1ms}}`:                       "from 1s to 1m",
		`{a: {` + good + `, from: yesterday}}`:                    `start`,
		`{a: {` + good + `, filter: {kinds: [advance]}}}`:         "advanced",
		`{a: {` + good + `, filter: {outcomes: [no]}}}`:           "approve, reject, escalate",
		`{a: {` + good + `, filter: {state: x}}}`:                 `"state"`,
		`{a: {` + good + `, headers: {"Content Type": x}}}`:       "not a header name",
		`{a: {` + good + `, retries: 3}}`:                         `"tries"`,
		`{a: here}`:                                               "expected an object",
		`[a]`:                                                     "expected an object",
	} {
		_, err := parse(t, "webhooks: "+text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestParseNotify(t *testing.T) {
	t.Parallel()
	all, err := parse(t, `notify: {url: "http://10.0.0.1/T0P-SECRET", secretFile: n.secret, command: [page-me, --channel, ops]}`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].node = nil
	}
	want := []Webhook{
		{Name: "notify.url", URL: "http://10.0.0.1/T0P-SECRET", SecretFiles: []string{"/etc/n.secret"}, PrivateNetwork: true, Reviews: true, Parallel: 4, Tries: 10, Timeout: 10 * time.Second},
		{Name: "notify.command", Command: []string{"page-me", "--channel", "ops"}, Reviews: true, Parallel: 1, Tries: 10, Timeout: 10 * time.Second},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got %+v", all)
	}
	if to := []string{all[0].To(), all[1].To()}; !reflect.DeepEqual(to, []string{"10.0.0.1", "page-me"}) {
		t.Errorf("they lead to %v", to)
	}
	both := "webhooks:\n  audit: {url: \"ftp://example.org\", secretFiles: s}\n"
	for text, wants := range map[string][]string{
		both + `notify: {url: "ftp://example.org/T0P-SECRET"}`: {"gavel.yaml:2:", "gavel.yaml:3:", "https://hooks.example.org/gavel"},
		`notify: {secretFile: s}`:                              {`"secretFile" needs "url"`},
		`notify: {command: [" "]}`:                             {"begin it with a program"},
		`notify: {comand: x}`:                                  {`did you mean "command"`},
		`notify: 7`:                                            {"expected an object"},
	} {
		_, err := parse(t, text)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "T0P-SECRET") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"good": secret + "\n", "bad": "hunter2", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GAVEL_TEST_SET", "x")
	for file, want := range map[string]string{"good": "", "bad": "whsec_", "empty": "whsec_", "none": "no such file"} {
		root, err := document.Parse("gavel.json", json.RawMessage(`{"webhooks":{"a":{"url":"https://example.org","headers":{"X":"${GAVEL_TEST_SET}"},"secretFiles":`+mustQuote(t, filepath.Join(dir, file))+`}}}`), document.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		all, err := ParseConfig(root.Get("webhooks"), nil)
		if err != nil {
			t.Fatal(err)
		}
		end, err := all[0].Open()
		if want == "" && err == nil {
			end.Close()
			continue
		}
		if want == "" || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func mustQuote(t *testing.T, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(quoted)
}
