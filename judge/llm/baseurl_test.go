package llm_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/judge/llm"
)

func ExampleNormalizeBaseURL() {
	for _, written := range []string{
		"https://api.openai.com",
		"localhost:11434/v1/chat/completions",
		"openrouter.ai",
		"https://key@api.openai.com",
	} {
		base, err := llm.NormalizeBaseURL(written, false)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(base)
	}
	// Output:
	// https://api.openai.com/v1
	// http://localhost:11434/v1
	// https://openrouter.ai/api/v1
	// base URL: it contains a user or password (before @); remove it, and put the key into the setting for the key
}

func TestNormalizeBaseURL(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, raw, want string }{
		{"without /v1", "https://api.openai.com", "https://api.openai.com/v1"},
		{"with a slash", "https://api.openai.com/", "https://api.openai.com/v1"},
		{"with /v1", "https://api.openai.com/v1", "https://api.openai.com/v1"},
		{"with /v1 and slashes", " https://api.openai.com/v1// \n", "https://api.openai.com/v1"},
		{"the whole call", "https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1"},
		{"the whole call, slash", "https://api.openai.com/v1/chat/completions/", "https://api.openai.com/v1"},
		{"the call without /v1", "https://api.openai.com/chat/completions", "https://api.openai.com/v1"},
		{"the call of an API without /v1", "https://x.example/chat/completions/", "https://x.example/chat/completions"},
		{"the call twice", "https://x.example/v1/chat/completions/chat/completions", "https://x.example/v1"},
		{"regional", "https://eu.api.openai.com", "https://eu.api.openai.com/v1"},
		{"no scheme", "api.openai.com", "https://api.openai.com/v1"},
		{"capitals", "HTTPS://API.OpenAI.com/V1", "https://api.openai.com/V1"},
		{"final dot", "https://api.groq.com.", "https://api.groq.com./openai/v1"},
		{"OpenRouter", "https://openrouter.ai", "https://openrouter.ai/api/v1"},
		{"OpenRouter, its own way", "https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1"},
		{"Groq", "https://api.groq.com/", "https://api.groq.com/openai/v1"},
		{"Gemini", "https://generativelanguage.googleapis.com", "https://generativelanguage.googleapis.com/v1beta/openai"},
		{"Gemini, its own way", "https://generativelanguage.googleapis.com/v1beta/openai/", "https://generativelanguage.googleapis.com/v1beta/openai"},
		{"Azure", "https://res.openai.azure.com", "https://res.openai.azure.com/openai/v1"},
		{"Azure, not its end alone", "https://evil-openai.azure.com", "https://evil-openai.azure.com/v1"},
		{"Azure, its own way", "https://res.openai.azure.com/openai/v1/", "https://res.openai.azure.com/openai/v1"},
		{"DeepSeek", "https://api.deepseek.com", "https://api.deepseek.com"},
		{"DeepSeek with /v1", "https://api.deepseek.com/v1", "https://api.deepseek.com/v1"},
		{"Anthropic", "https://api.anthropic.com", "https://api.anthropic.com/v1"},
		{"another path is left alone", "https://gw.example/llm/openai", "https://gw.example/llm/openai"},
		{"an escaped path", "https://gw.example/a%2Fb/", "https://gw.example/a%2Fb"},
		{"an @ in the path", "https://gw.example/@team", "https://gw.example/@team"},
		{"own port", "https://api.openai.com:443", "https://api.openai.com/v1"},
		{"other port", "https://api.openai.com:08443", "https://api.openai.com:8443/v1"},
		{"empty port", "https://api.openai.com:", "https://api.openai.com/v1"},
		{"localhost", "localhost:1234", "http://localhost:1234/v1"},
		{"localhost, bare", "localhost", "http://localhost/v1"},
		{"loopback", "127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"},
		{"loopback 6", "[::1]:8080", "http://[::1]:8080/v1"},
		{"loopback 4 in 6", "http://[::ffff:127.0.0.1]:8080", "http://[::ffff:127.0.0.1]:8080/v1"},
		{"as servers print it", "0.0.0.0:8000", "http://0.0.0.0:8000/v1"},
		{"as servers print it, 4 in 6", "[::ffff:0.0.0.0]:8000", "http://[::ffff:0.0.0.0]:8000/v1"},
		{"localhost with TLS", "https://localhost:1234", "https://localhost:1234/v1"},
		{"private, no scheme", "192.168.1.5:1234", "https://192.168.1.5:1234/v1"},
		{"private", "http://192.168.1.5:1234", "http://192.168.1.5:1234/v1"},
		{"private 6", "http://[fd00::1]:80", "http://[fd00::1]/v1"},
		{"container", "http://ollama:11434", "http://ollama:11434/v1"},
		{"of the house", "http://gpu.local:8000", "http://gpu.local:8000/v1"},
		{"of the engine", "http://host.docker.internal:1234/v1", "http://host.docker.internal:1234/v1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := llm.NormalizeBaseURL(c.raw, false)
			if err != nil || got != c.want {
				t.Errorf("NormalizeBaseURL(%q) = %q, %v; want %q", c.raw, got, err, c.want)
			}
		})
	}
}

func TestNormalizeBaseURLRefuses(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, raw, want string }{
		{"nothing", "", "is empty"},
		{"spaces", " \t", "is empty"},
		{"user", "https://hunter2@api.openai.com", "user or password"},
		{"password", "https://me:hunter2@api.openai.com/v1", "user or password"},
		{"user without scheme", "me:hunter2@api.openai.com", "user or password"},
		{"query", "https://api.openai.com/v1?api-key=hunter2", "a query"},
		{"empty query", "https://api.openai.com/v1?", "a query"},
		{"fragment", "https://api.openai.com/v1#hunter2", "a fragment"},
		{"empty fragment", "https://api.openai.com/v1#", "a fragment"},
		{"another scheme", "ftp://api.openai.com", `"ftp"`},
		{"file", "file:///etc/passwd", `"file"`},
		{"no host", "https:///v1", "no host"},
		{"port only", "https://:8080", "no host"},
		{"relative", "//api.openai.com/v1", "no host"},
		{"a word of the port", "https://api.openai.com:hunter2", "not a URL"},
		{"port 0", "https://api.openai.com:0", "port"},
		{"port too great", "https://api.openai.com:65536", "port"},
		{"space", "https://api.openai .com", "a space"},
		{"line break", "https://api.openai.com\r\nX: hunter2", "a space or a control"},
		{"zone", "http://[fe80::1%25eth0]:80", "%"},
		{"bad escape", "https://api.openai.com/%zz", "not a URL"},
		{"http to the world", "http://api.openai.com", "use https"},
		{"http to an address of the world", "http://8.8.8.8", "use https"},
		{"http to an address in another spelling", "http://134744072", "use https"},
		{"http, the world in 6", "http://[::ffff:8.8.8.8]", "use https"},
		{"http to a lookalike", "http://localhost.example.com", "use https"},
		{"http to a private lookalike", "http://192.168.1.5.example.com", "use https"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := llm.NormalizeBaseURL(c.raw, false)
			if err == nil || !strings.Contains(err.Error(), c.want) || got != "" {
				t.Fatalf("NormalizeBaseURL(%q) = %q, %v; want an error with %q", c.raw, got, err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error repeats the secret: %v", err)
			}
		})
	}
}

func TestNormalizeBaseURLPrivate(t *testing.T) {
	t.Parallel()
	got, err := llm.NormalizeBaseURL("http://llm.example.com", true)
	if err != nil || got != "http://llm.example.com/v1" {
		t.Errorf("= %q, %v; want http to be allowed", got, err)
	}
	if got, err := llm.NormalizeBaseURL("llm.example.com", true); err != nil || got != "https://llm.example.com/v1" {
		t.Errorf("= %q, %v; want https where nothing is said", got, err)
	}
}

// Normalizing the result again does not change it, and it is a URL without hidden parts.
func checkNormal(t interface {
	Errorf(format string, args ...any)
}, raw string, private bool,
) {
	got, err := llm.NormalizeBaseURL(raw, private)
	if err != nil {
		return
	}
	if again, err := llm.NormalizeBaseURL(got, private); err != nil || again != got {
		t.Errorf("%q became %q, and that became %q, %v", raw, got, again, err)
	}
	u, err := url.Parse(got)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		t.Errorf("%q became %q, parsed %#v, %v", raw, got, u, err)
		return
	}
	// A host may be called chat, so only the path is checked.
	if path := u.EscapedPath(); strings.HasSuffix(path, "/") || len(path) > len("/chat/completions") && strings.HasSuffix(path, "/chat/completions") {
		t.Errorf("%q became %q, which has something to drop", raw, got)
	}
}

func TestNormalizeBaseURLIdempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SampledFrom([]string{"", "http://", "https://", "HTTP://", "//", "x:"}).Draw(t, "scheme") +
			rapid.SampledFrom([]string{
				"api.openai.com", "API.deepseek.com", "openrouter.ai.", "localhost", "127.0.0.1", "[::1]", "gpu", "a.b.openai.azure.com",
				"10.0.0.1", "8.8.8.8", "ünï.example", "a%41b",
			}).Draw(t, "host") +
			rapid.SampledFrom([]string{"", ":", ":80", ":443", ":0080", ":11434"}).Draw(t, "port") +
			strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
				"/", "/v1", "/chat/completions", "//", "/%20", "/api", "chat/completions", "/.", "/..", ":", "é", "/@",
			}), 0, 5).Draw(t, "path"), "")
		checkNormal(t, raw, rapid.Bool().Draw(t, "private"))
	})
}

func FuzzNormalizeBaseURL(f *testing.F) {
	for _, s := range []string{
		"https://api.openai.com", "localhost:11434/v1/", "http://[::1]:80", "openrouter.ai", "https://a%zz", "a:b@c", "x/chat/completions/",
		"https://host:065535/%2f/..", "http://a.local", "//x", ":::", "[", "https://[::1%25x]", "a\x00b", "http://\u0130", "ChAt/completions",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, raw string, private bool) { checkNormal(t, raw, private) })
}
