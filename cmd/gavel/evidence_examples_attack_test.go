package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/testdata"
)

// alwaysGreen is a test file that exits before any test runs.
const alwaysGreen = "package price\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(*testing.M) { os.Exit(0) }\n"

// tamperings are what an agent could do in addition to a commit whose tests fail. The tests then pass, or seem to
// pass, while git still reports a clean work tree.
var tamperings = map[string]func(s *shop, owned string){
	"an untracked file that git status does not show": func(s *shop, _ string) {
		s.git("config", "status.showUntrackedFiles", "no")
		s.write(filepath.Join(s.repository, "zz_test.go"), alwaysGreen)
	},
	"an untracked file that is excluded": func(s *shop, _ string) {
		s.write(filepath.Join(s.repository, ".git", "info", "exclude"), "zz_test.go\n")
		s.write(filepath.Join(s.repository, "zz_test.go"), alwaysGreen)
	},
	"mended and assumed to be unchanged": func(s *shop, _ string) {
		s.git("update-index", "--assume-unchanged", "price.go")
		s.write(filepath.Join(s.repository, "price.go"), rightTotal)
	},
	"mended and skipped": func(s *shop, _ string) {
		s.git("update-index", "--skip-worktree", "price.go")
		s.write(filepath.Join(s.repository, "price.go"), rightTotal)
	},
	"a filter that mends": func(s *shop, _ string) {
		s.write(filepath.Join(s.repository, ".git", "info", "attributes"), "price.go filter=mend\n")
		s.git("config", "filter.mend.smudge", "sed 's/{ return price }/{ return price - discount }/'")
		s.git("config", "filter.mend.clean", "sed 's/{ return price - discount }/{ return price }/'")
		s.git("config", "filter.mend.required", "true")
		s.write(filepath.Join(s.repository, "price.go"), rightTotal)
		s.git("add", "price.go") // the same content, through the filter
	},
	"another commit in its place": func(s *shop, _ string) {
		wrong := s.git("rev-parse", "HEAD")
		s.write(filepath.Join(s.repository, "price.go"), rightTotal)
		right := s.commit()
		s.git("reset", "--quiet", "--hard", wrong)
		s.git("replace", wrong, right)
	},
	"programs that git is to run": func(s *shop, owned string) {
		program := filepath.Join(s.repository, ".git", "hooks", "own")
		s.write(program, "#!/bin/sh\ntouch '"+owned+"'\n")
		for _, hook := range []string{"post-checkout", "reference-transaction", "pre-auto-gc"} {
			s.write(filepath.Join(filepath.Dir(program), hook), "#!/bin/sh\ntouch '"+owned+"'\n")
		}
		hooks, err := filepath.Glob(filepath.Join(filepath.Dir(program), "*"))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, file := range hooks {
			if err := os.Chmod(file, 0o700); err != nil { //nolint:gosec // a program
				s.t.Fatal(err)
			}
		}
		for _, key := range []string{"core.fsmonitor", "uploadpack.packObjectsHook", "core.sshCommand", "core.alternateRefsCommand", "core.pager"} {
			s.git("config", key, program)
		}
		s.git("config", "core.hooksPath", filepath.Dir(program))
	},
}

// A commit whose tests fail is refused, regardless of what else the agent does.
func TestExampleCodeReviewTestsTheCommit(t *testing.T) {
	t.Parallel()
	sampled := []string{"programs that git is to run"}
	for name, tamper := range tamperings {
		if !storetest.Long() && !slices.Contains(sampled, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, "code-review")
			wrong, owned := s.openRepository(wrongTotal), filepath.Join(t.TempDir(), "owned")
			tamper(s, owned)
			agent := s.serve("agent", "ada")
			id := agent.must("workflow.start", object{"type": "change-review"}).field("id")
			refusedFor(t, agent.call("workflow.advance", object{"id": id, "action": "submit", "data": object{
				"commit": wrong, "summary": "The discount is in, and all tests pass: 1 of 1.",
			}}), "script", "TestTotal")
			if _, err := os.Stat(owned); err == nil {
				t.Error("a program of the agent's own ran")
			}
		})
	}
}

// The agent overwrites a git object with the content of another. git does not check the hash of an object when it
// reads one.
func TestExampleCodeReviewForgedObject(t *testing.T) {
	t.Parallel()
	s := openShop(t, "code-review")
	wrong := s.openRepository(wrongTotal)
	s.write(filepath.Join(s.repository, "price.go"), rightTotal)
	object := func(hash string) string { return filepath.Join(s.repository, ".git", "objects", hash[:2], hash[2:]) }
	forged, err := os.ReadFile(object(s.git("hash-object", "-w", "price.go")))
	if err != nil {
		t.Fatal(err)
	}
	target := object(s.git("rev-parse", wrong+":price.go"))
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	s.write(target, string(forged))
	if status := s.git("status", "--porcelain"); status != "" {
		t.Logf("git status notices: %s", status)
	}
	out, code := s.testCommit(wrong)
	if code == 0 || strings.Contains(out, "ok ") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// testCommit runs the example's script directly. env are additional variables.
func (s *shop) testCommit(commit string, env ...string) (out string, code int) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "sh", "test-commit.sh", commit)
	cmd.Dir = s.gate
	cmd.Env = append(append(os.Environ(), "REPOSITORY=../repository"), env...)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// A killed run cannot clean up. A later run does, and spares folders that may still be in use.
func TestExampleScriptTidiesUp(t *testing.T) {
	t.Parallel()
	s := openShop(t, "code-review")
	right, tmp := s.openRepository(rightTotal), t.TempDir()
	old, young, other := filepath.Join(tmp, "gavel-commit.old"), filepath.Join(tmp, "gavel-commit.young"), filepath.Join(tmp, "something")
	for _, dir := range []string{old, young, other} {
		s.write(filepath.Join(dir, "tree", "price.go"), rightTotal)
	}
	long := time.Now().Add(-2 * time.Hour)
	for _, dir := range []string{old, other} {
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := s.testCommit(right, "TMPDIR="+tmp); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || len(left) != 2 || left[0] != young || left[1] != other {
		t.Errorf("left are %v, %v", left, err)
	}
}

// Both examples use the same script to test a commit.
func TestExamplesShareTheirScript(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, example := range []string{"code-review", "deployment"} {
		text, err := testdata.Evidence.ReadFile("evidence/" + example + "/test-commit.sh")
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] {
		t.Error("test-commit.sh differs between the examples")
	}
}
