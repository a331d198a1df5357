package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/author"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// ailment is a typical faulty endpoint with a model.
type ailment struct {
	what        string
	personality llmtest.Personality
	brain       llmtest.Brain
	tls         bool
	// url derives LLM_BASE_URL from the endpoint's address; nil means the address itself.
	url func(string) string
	// ok is set if the model judges well in spite of the fault.
	ok bool
}

func ailments(t *testing.T) []ailment {
	t.Helper()
	well := llmtest.OpenAI()
	// discerning distinguishes the good sample from the bad one.
	discerning := func(q llmtest.Question) llmtest.Thought {
		if strings.Contains(q.Documents["data"], "sections") {
			return llmtest.Approver(q)
		}
		return llmtest.Rejecter(q)
	}
	modest := func(q llmtest.Question) llmtest.Thought {
		thought := discerning(q)
		thought.Answer.Confidence = 0.85
		return thought
	}
	fault := func(name string) llmtest.Personality {
		all := llmtest.Faults()
		at := slices.IndexFunc(all, func(f llmtest.Fault) bool { return f.Name == name })
		if at < 0 {
			t.Fatalf("there is no fault %q", name)
		}
		return all[at].Personality
	}
	encoded := func(coding, body string) llmtest.Personality {
		return llmtest.Always(llmtest.Response{Status: 200, Header: map[string]string{"Content-Type": "application/json", "Content-Encoding": coding}, Body: body})
	}
	under := func(path string) llmtest.Personality {
		return func(q llmtest.Question, think func() llmtest.Thought) llmtest.Response {
			if q.Path != path {
				return llmtest.Response{Status: 404, Header: map[string]string{"Content-Type": "application/json"}, Body: `{"detail":"Not Found"}`}
			}
			return well(q, think)
		}
	}
	with := func(suffix string) func(string) string { return func(url string) string { return url + suffix } }
	named := func(url string) string { return strings.Replace(url, "127.0.0.1", "localhost", 1) }
	return []ailment{
		{what: "writes what it thinks before its JSON", personality: llmtest.VLLM(), brain: discerning, ok: true},
		{what: "puts its verdict into `reasoning_content` alone", personality: fault("only thoughts")},
		{what: "thinks until its answer is cut off", personality: fault("cut off")},
		{what: "states a confidence that reaches no threshold", personality: well, brain: modest},
		{what: "quotes what is nowhere", personality: well, brain: llmtest.Liar},
		{what: "approves everything", personality: well, brain: llmtest.Gullible},
		{what: "approves nothing", personality: well, brain: llmtest.Rejecter},
		{what: "can assess nothing", personality: well, brain: llmtest.Unsure},
		{what: "contradicts itself", personality: well, brain: llmtest.Contradicting},
		{what: "answers in prose", personality: fault("prose")},
		{what: "states its confidence in percent", personality: fault("confidence out of range")},
		{what: "declines", personality: fault("refusal")},
		{what: "damages its gzip", personality: encoded("gzip", "\x1f\x8b\x08\x00{\"choices\":[]}")},
		{what: "says gzip and sends none", personality: encoded("gzip", `{"choices":[]}`)},
		{what: "compresses unasked", personality: encoded("zstd", "(\xb5/\xfd")},
		{what: "429 with a long `Retry-After`", personality: fault("429, Retry-After 5 min")},
		{what: "429 with a short `Retry-After`, once", personality: llmtest.Then(1, fault("429, Retry-After-Ms"), well), brain: discerning, ok: true},
		{what: "429 without `Retry-After`", personality: fault("429")},
		{what: "API without `/v1`", personality: under("/chat/completions")},
		{what: "API without `/v1`, as advised", personality: under("/chat/completions"), brain: discerning, url: with("/chat/completions"), ok: true},
		{what: "API in `/api/v1`, base URL ends in `/api`", personality: under("/api/v1/chat/completions"), url: with("/api")},
		{what: "certificate of a private authority", personality: well, tls: true},
		{what: "certificate for another name", personality: well, tls: true, url: named},
		{what: "wrong key", personality: fault("401")},
		{what: "unknown model", personality: fault("404 model")},
		{what: "no credit", personality: fault("429 quota")},
		{what: "a web page", personality: fault("200 with a page")},
		{what: "never answers", personality: fault("never answers")},
	}
}

// start serves the endpoint and returns LLM_BASE_URL and the file with its certificate.
func (a ailment) start(t *testing.T) (url, certificate string) {
	t.Helper()
	brain := a.brain
	if brain == nil {
		brain = llmtest.Approver
	}
	s := httptest.NewUnstartedServer(llmtest.New(a.personality, brain))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	t.Cleanup(s.Close)
	if a.tls {
		s.StartTLS()
		certificate = filepath.Join(t.TempDir(), "authority.pem")
		if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		s.Start()
	}
	if url = s.URL; a.url != nil {
		url = a.url(url)
	}
	return url, certificate
}

// TestDoctorNamesTheCause writes the doctor's output for each endpoint to a page.
func TestDoctorNamesTheCause(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	all := ailments(t)
	rows := make([]string, len(all))
	var wait sync.WaitGroup
	for i, a := range all {
		url, _ := a.start(t)
		wait.Go(func() { rows[i] = a.row(t, url) })
	}
	wait.Wait()
	page := "<!-- Generated by: go test ./cmd/gavel -run TestDoctorNamesTheCause -update -->\n\n" +
		"# What gavel judge doctor says\n\n" +
		"`gavel judge doctor` puts the cause and what to do into one line, `cause; what to do`. Here are the lines for endpoints as people run into them.\n" +
		"`works` means that gavel copes (exit code 0, the line is a note); everything else exits with 1. HOST is the endpoint, the deadline four seconds.\n\n" +
		"| the endpoint or its model | cause | what to do |\n|---|---|---|\n" + strings.Join(rows, "")
	path := filepath.Join("..", "..", "docs", "reference", "judge-doctor.md")
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != page {
		t.Errorf("%s is stale (%v); run: go test ./cmd/gavel -run TestDoctorNamesTheCause -update\n%s", path, err, page)
	}
}

func (a ailment) row(t *testing.T, url string) string {
	t.Helper()
	code, out := doctor(t, url, nil, "--json")
	var found struct{ Models []author.Diagnosis }
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found.Models) != 1 {
		t.Errorf("%s: %v\n%s", a.what, err, out)
		return ""
	}
	d := found.Models[0]
	if d.OK != a.ok || (code == term.ExitOK) != a.ok || len(d.Problems)+len(d.Notes) > 1 {
		t.Errorf("%s: exit code %d\n%s", a.what, code, out)
	}
	cause, remedy, _ := strings.Cut(strings.Join(append(d.Problems, d.Notes...), ""), "; ")
	if d.OK {
		cause = strings.TrimSuffix("works: "+cause, ": ")
	}
	_, host, _ := strings.Cut(url, "://")
	host, _, _ = strings.Cut(host, "/")
	return strings.ReplaceAll(fmt.Sprintf("| %s | %s | %s |\n", a.what, cause, remedy), host, "HOST")
}

// The doctor's advice to name the authority's certificate works.
func TestDoctorTrustsTheNamedAuthority(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems have a store of their own")
	}
	all := ailments(t)
	a := all[slices.IndexFunc(all, func(a ailment) bool { return a.tls })]
	a.brain = all[0].brain
	url, certificate := a.start(t)
	if code, out := doctor(t, url, []string{"SSL_CERT_FILE=" + certificate}); code != term.ExitOK {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// The doctor can replay its own recording without the endpoint, for each model.
func TestDoctorPlaysACassette(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(llmtest.New(llmtest.OpenAI(), llmtest.Gullible))
	tape := filepath.Join(t.TempDir(), "tape")
	flags := []string{"--llm-also", "other", "--llm-cassette", tape, "--llm-cassette-mode"}
	_, recorded := doctor(t, s.URL, nil, append(flags, "record")...)
	s.Close()
	code, played := doctor(t, s.URL, nil, append(flags, "replay")...)
	if code != term.ExitBad || strings.Count(recorded, "it approves a review without details") != 2 || !strings.Contains(recorded, "(also)") {
		t.Errorf("exit code %d\n%s", code, recorded)
	}
	took := regexp.MustCompile(`\d+ ms`)
	if a, b := took.ReplaceAllString(recorded, "ms"), took.ReplaceAllString(played, "ms"); a != b {
		t.Errorf("recorded\n%s\nplayed\n%s", a, b)
	}
}

// doctor runs the command against an endpoint and returns its findings.
func doctor(t *testing.T, url string, env []string, args ...string) (code int, stdout string) {
	t.Helper()
	needsProgram(t)
	cmd := exec.Command("gavel", append([]string{"judge", "doctor"}, args...)...)
	cmd.Env = append(cli.WithoutSettings(os.Environ()), "LLM_BASE_URL="+url, "LLM_JUDGE_MODEL=scripted", "LLM_API_KEY=sk-secretsecretsecret", "GAVEL_LLM_DEADLINE=4s")
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if strings.Contains(out.String()+errs.String(), "secretsecret") {
		t.Error("the key is shown")
	}
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}
