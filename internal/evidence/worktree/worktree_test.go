package worktree_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/internal/evidence/worktree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t testing.TB, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func git(t testing.TB, root string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

// repository returns a repository with a tracked, an untracked and an ignored file.
func repository(t testing.TB) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	git(t, root, "init", "-q")
	write(t, root, "a/tracked.go", "one")
	write(t, root, ".gitignore", "*.out\n")
	git(t, root, "add", ".")
	git(t, root, "commit", "-qm", "first")
	write(t, root, "b/new file.go", "two")
	write(t, root, "a/cover.out", "three")
	return root
}

func take(t testing.TB, root string, known *worktree.Cache, exclude ...string) worktree.Snapshot {
	t.Helper()
	s, err := worktree.Tree{Root: root, Exclude: exclude}.Take(t.Context(), known)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each case is a change, and whether it changes the digest. It runs in a new tree, with and without a cache of the
// earlier state, in a repository and without git.
func TestDigest(t *testing.T) {
	t.Parallel()
	const same, differs = false, true
	for _, c := range []struct {
		name           string
		change         func(t *testing.T, root string)
		inGit, without bool
	}{
		{"nothing", func(*testing.T, string) {}, same, same},
		{"a tracked file", func(t *testing.T, root string) { t.Helper(); write(t, root, "a/tracked.go", "uno") }, differs, differs},
		{"a tracked file, with its size and time put back", func(t *testing.T, root string) {
			t.Helper()
			path := filepath.Join(root, "a/tracked.go")
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, root, "a/tracked.go", "eno")
			if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
		}, differs, differs},
		{"a tracked file that git was told to overlook", func(t *testing.T, root string) {
			t.Helper()
			git(t, root, "update-index", "--assume-unchanged", "a/tracked.go")
			write(t, root, "a/tracked.go", "eno")
		}, differs, differs},
		{"an untracked file", func(t *testing.T, root string) { t.Helper(); write(t, root, "b/new file.go", "deux") }, differs, differs},
		{"an ignored file", func(t *testing.T, root string) { t.Helper(); write(t, root, "a/cover.out", "trois") }, same, differs},
		{"an ignored file that is new", func(t *testing.T, root string) { t.Helper(); write(t, root, "b/cover.out", "trois") }, same, differs},
		{"what is ignored", func(t *testing.T, root string) { t.Helper(); write(t, root, ".gitignore", "*.go\n") }, differs, differs},
		{"a new file", func(t *testing.T, root string) { t.Helper(); write(t, root, "c.go", "") }, differs, differs},
		{"a deleted file", func(t *testing.T, root string) {
			t.Helper()
			if err := os.Remove(filepath.Join(root, "a/tracked.go")); err != nil {
				t.Fatal(err)
			}
		}, differs, differs},
		{"a renamed file", func(t *testing.T, root string) {
			t.Helper()
			if err := os.Rename(filepath.Join(root, "a/tracked.go"), filepath.Join(root, "a/other.go")); err != nil {
				t.Fatal(err)
			}
		}, differs, differs},
		{"a new time", func(t *testing.T, root string) {
			t.Helper()
			if err := os.Chtimes(filepath.Join(root, "a/tracked.go"), time.Now(), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}, same, same},
		{"a commit of what is there", func(t *testing.T, root string) {
			t.Helper()
			git(t, root, "add", ".")
			git(t, root, "commit", "-qm", "second")
		}, same, same},
		{"the store within", func(t *testing.T, root string) { t.Helper(); write(t, root, ".workflows/gavel.db", "x") }, same, same},
		{"a repository within", func(t *testing.T, root string) {
			t.Helper()
			write(t, root, "within/c.go", "four")
			git(t, filepath.Join(root, "within"), "init", "-q")
		}, differs, differs},
	} {
		for mode, want := range map[string]bool{"git": c.inGit, "folder": c.without} {
			t.Run(c.name+" "+mode, func(t *testing.T) {
				t.Parallel()
				root := repository(t)
				hidden := filepath.Join(root, ".git")
				if mode == "folder" {
					hidden = filepath.Join(t.TempDir(), "git")
					if err := os.Rename(filepath.Join(root, ".git"), hidden); err != nil {
						t.Fatal(err)
					}
				}
				known := worktree.NewCache()
				exclude := filepath.Join(root, ".workflows", "gavel.db")
				before := take(t, root, known, exclude)
				known, err := known.Reopen()
				if err != nil {
					t.Fatal(err)
				}
				if mode == "folder" { // changes to git's state apply to the hidden folder
					if err := os.Rename(hidden, filepath.Join(root, ".git")); err != nil {
						t.Fatal(err)
					}
				}
				c.change(t, root)
				if mode == "folder" {
					if err := os.Rename(filepath.Join(root, ".git"), hidden); err != nil {
						t.Fatal(err)
					}
				}
				for name, after := range map[string]worktree.Snapshot{"without a cache": take(t, root, nil, exclude), "with a cache": take(t, root, known, exclude)} {
					if got := after.Digest != before.Digest; got != want {
						t.Errorf("%s the digest differs: %v, want %v; changed: %q", name, got, want, after.Changed(before))
					}
					if want && len(after.Changed(before)) == 0 {
						t.Errorf("%s nothing is named", name)
					}
				}
			})
		}
	}
}

// A file that was changed and restored within a moment has the same digest, but is still reported as changed.
func TestPutBack(t *testing.T) {
	t.Parallel()
	root := repository(t)
	before := take(t, root, nil)
	write(t, root, "a/tracked.go", "two")
	write(t, root, "a/tracked.go", "one")
	after := take(t, root, nil)
	if after.Digest != before.Digest || !slices.Equal(after.Changed(before), []string{filepath.FromSlash("a/tracked.go")}) {
		t.Errorf("digests %s and %s, changed %q", before.Digest, after.Digest, after.Changed(before))
	}
	if again := take(t, root, nil); len(again.Changed(after)) > 0 {
		t.Errorf("nothing was written, and %q changed", again.Changed(after))
	}
}

// A cache trusts a stamp only if the change is old: within one clock tick, two contents can share a stamp.
func TestCacheOfFreshFiles(t *testing.T) {
	t.Parallel()
	root := repository(t)
	fresh, err := worktree.UnmarshalCache(nil)
	if err != nil {
		t.Fatal(err)
	}
	take(t, root, fresh)
	if text := fresh.Marshal(); text != nil {
		t.Errorf("%d bytes about files of this moment", len(text))
	}
	known := worktree.NewCache()
	take(t, root, known)
	text := known.Marshal()
	if runtime.GOOS != "windows" && len(text) < 100 {
		t.Fatalf("%d bytes", len(text))
	}
	for _, damaged := range [][]byte{{9}, text[:len(text)-1], append(slices.Clone(text), 7)} {
		if c, err := worktree.UnmarshalCache(damaged); err == nil {
			t.Errorf("read a damaged cache: %v", c)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	root := repository(t)
	write(t, root, ".gitignore", "ignored/\n")
	write(t, root, "ignored/deep/a.go", "one")
	plain, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{
		root: root, filepath.Join(root, "a"): root, plain: plain,
		filepath.Join(root, "ignored", "deep"): filepath.Join(root, "ignored", "deep"),
	} {
		if got, err := worktree.Find(t.Context(), folder); err != nil || got != want {
			t.Errorf("the tree of %s is %s: %v", folder, got, err)
		}
	}
	ignored := filepath.Join(root, "ignored", "deep")
	before := take(t, ignored, nil)
	write(t, root, "ignored/deep/a.go", "two")
	if take(t, ignored, nil).Digest == before.Digest {
		t.Error("a tree that a repository around it ignores is not looked at")
	}
	if _, err := worktree.Find(t.Context(), filepath.Join(root, "gone")); err == nil {
		t.Error("found the tree of a folder that is not there")
	}
}

// The files of a submodule count, whether it is checked out or not.
func TestSubmodule(t *testing.T) {
	t.Parallel()
	other, root := repository(t), repository(t)
	git(t, root, "submodule", "-q", "add", other, "sub")
	before := take(t, root, nil)
	write(t, root, "sub/a/tracked.go", "two")
	after := take(t, root, nil)
	if changed := after.Changed(before); !slices.Equal(changed, []string{filepath.FromSlash("sub/a/tracked.go")}) {
		t.Errorf("changed: %q", changed)
	}
	git(t, root, "submodule", "-q", "deinit", "-f", "sub")
	empty := take(t, root, nil)
	write(t, root, "sub/a.go", "three")
	if take(t, root, nil).Digest == empty.Digest {
		t.Error("a file where no submodule is checked out does not count")
	}
}

// A file that cannot be read is an error, and never omitted from the digest.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("everything can be read here")
	}
	for _, path := range []string{"a/tracked.go", "b"} {
		root := repository(t)
		if err := os.Chmod(filepath.Join(root, path), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := (worktree.Tree{Root: root}).Take(t.Context(), nil); err == nil || strings.Contains(err.Error(), root) {
			t.Errorf("%s cannot be read: %v", path, err)
		}
		_ = os.Chmod(filepath.Join(root, path), 0o700) //nolint:gosec // allows removal
	}
}

// BenchmarkTake measures a tree of 10,000 files, for the first process and for the next one.
func BenchmarkTake(b *testing.B) {
	root := b.TempDir()
	git(b, root, "init", "-q")
	for i := range 10_000 {
		write(b, root, fmt.Sprintf("d%d/e%d/f%d.go", i/1000, i/50, i), strings.Repeat(fmt.Sprintf("line %d\n", i), 700))
	}
	git(b, root, "add", ".")
	git(b, root, "commit", "-qm", "all")
	known := worktree.NewCache()
	take(b, root, known)
	text := known.Marshal()
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			take(b, root, nil)
		}
	})
	b.Run("next", func(b *testing.B) {
		for b.Loop() {
			cache, err := worktree.UnmarshalCache(text)
			if err != nil {
				b.Fatal(err)
			}
			take(b, root, cache)
		}
	})
}
