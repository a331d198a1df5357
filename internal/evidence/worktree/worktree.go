// Package worktree computes the state of a folder as one digest. It covers every file that git tracks or does not
// ignore. In a folder outside of git, it covers every file.
//
// Guarantees:
//   - A file with another name, content, type or executable bit yields another digest, whatever its times are.
//   - Two snapshots reveal which files were written in between, even if the old content was restored.
//   - It opens only regular files and follows no links.
//
// It uses git only to list names. Git's index and filters do not affect the content, and no program that a repository
// configures is run.
package worktree

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Tree is a folder whose state is computed.
type Tree struct {
	Root string
	// Exclude lists files and folders to ignore, as full paths.
	Exclude []string
}

// Snapshot is the state of a Tree at one time.
type Snapshot struct {
	// Digest is "sha256:" followed by hex digits.
	Digest string
	files  []file // by path
}

type file struct {
	path  string // relative to the root
	kind  fs.FileMode
	sum   [sha256.Size]byte
	stamp stamp
}

// Find returns the tree that a folder belongs to, without symbolic links in its path. It is the top level of the
// folder's git repository, or the folder itself if there is none or git ignores it.
func Find(ctx context.Context, folder string) (string, error) {
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return "", dropPath(err)
	}
	top := repositoryOf(folder)
	if top == "" || top == folder {
		return folder, nil
	}
	ignored, err := isIgnored(ctx, folder)
	if ignored || err != nil {
		return folder, err
	}
	return top, nil
}

// Take computes the state of the tree. It does not read a file again if known has it with the same stamp.
func (t Tree) Take(ctx context.Context, known *Cache) (Snapshot, error) {
	began := time.Now()
	l := lister{root: t.Root}
	for _, path := range t.Exclude {
		if rel, err := filepath.Rel(t.Root, path); err == nil && filepath.IsLocal(rel) {
			l.exclude = append(l.exclude, rel)
		}
	}
	var s Snapshot
	for folders := []string{""}; len(folders) > 0; {
		folder := folders[len(folders)-1]
		folders = folders[:len(folders)-1]
		paths, err := l.list(ctx, folder)
		if err != nil {
			return Snapshot{}, err
		}
		files, err := t.readFiles(ctx, paths, known)
		if err != nil {
			return Snapshot{}, err
		}
		for _, f := range files {
			switch {
			case f.path == "": // tracked but deleted
			case f.kind.IsDir(): // a submodule, or a nested repository
				folders = append(folders, f.path)
			default:
				s.files = append(s.files, f)
			}
		}
	}
	slices.SortFunc(s.files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	s.files = slices.CompactFunc(s.files, func(a, b file) bool { return a.path == b.path }) // git lists a conflicted file three times
	s.Digest = s.digest()
	known.add(s.files, began)
	return s, nil
}

// readFiles reads files concurrently. A missing file yields the zero file.
func (t Tree) readFiles(ctx context.Context, paths []string, known *Cache) ([]file, error) {
	files := make([]file, len(paths))
	workers := 2 * runtime.GOMAXPROCS(0)
	group, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		group.Go(func() (err error) {
			buffer := make([]byte, 128<<10)
			for i := w; i < len(paths); i += workers {
				if err := ctx.Err(); err != nil {
					return err
				}
				if files[i], err = t.readFile(paths[i], known, buffer); err != nil {
					return fmt.Errorf("cannot read %s: %w", paths[i], dropPath(err))
				}
			}
			return nil
		})
	}
	return files, group.Wait()
}

func (s Snapshot) digest() string {
	h := sha256.New()
	line := []byte("gavel/tree/v1\n")
	for _, f := range s.files {
		line = binary.AppendUvarint(line, uint64(len(f.path)))
		line = append(line, f.path...)
		line = binary.BigEndian.AppendUint32(line, uint32(f.kind))
		line = append(line, f.sum[:]...)
		h.Write(line)
		line = line[:0]
	}
	return "sha256:" + hex.EncodeToString(h.Sum(line[:0]))
}

// Changed returns the paths that were written since an earlier snapshot of the tree: files that differ, were added or
// removed, or were only rewritten.
func (s Snapshot) Changed(earlier Snapshot) []string {
	before := map[string]file{}
	for _, f := range earlier.files {
		before[f.path] = f
	}
	var out []string
	for _, f := range s.files {
		if before[f.path] != f {
			out = append(out, f.path)
		}
		delete(before, f.path)
	}
	for path := range before {
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}

// lister lists the files of a tree. Its paths are relative to the root.
type lister struct {
	root    string
	exclude []string
}

// list lists the files of a folder. A nested repository, whose files git does not list, appears as a folder.
func (l lister) list(ctx context.Context, folder string) (paths []string, err error) {
	whole := filepath.Join(l.root, folder)
	top := repositoryOf(whole)
	useGit := top == whole
	if top != "" && folder == "" && !useGit {
		ignored, err := isIgnored(ctx, whole)
		if err != nil {
			return nil, err
		}
		useGit = !ignored // git does not list the files of an ignored folder
	}
	if !useGit { // nor those of a submodule that is not checked out
		return l.walk(ctx, folder)
	}
	listed, err := runGit(ctx, whole, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(listed, "\x00"), "\x00") {
		path := filepath.FromSlash(strings.TrimSuffix(name, "/"))
		if folder != "" {
			path = filepath.Join(folder, path)
		}
		if name != "" && !l.isExcluded(path) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func (l lister) walk(ctx context.Context, folder string) (paths []string, err error) {
	err = filepath.WalkDir(filepath.Join(l.root, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return dropPath(err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		path, err = filepath.Rel(l.root, path)
		switch {
		case err != nil:
			return err
		case (l.isExcluded(path) || d.Name() == ".git") && d.IsDir():
			return fs.SkipDir
		case !d.IsDir() && !l.isExcluded(path):
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

func (l lister) isExcluded(path string) bool {
	for _, e := range l.exclude {
		if rest, ok := strings.CutPrefix(path, e); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
			return true
		}
	}
	return false
}

func (t Tree) readFile(path string, known *Cache, buffer []byte) (file, error) {
	whole := filepath.Join(t.Root, path)
	f := file{path: path}
	var err error
	if f.kind, f.stamp, err = readStamp(whole); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return file{}, nil
		}
		return file{}, err
	}
	switch {
	case f.kind&fs.ModeSymlink != 0:
		target, err := os.Readlink(whole)
		f.sum = sha256.Sum256([]byte(target))
		return f, err
	case !f.kind.IsRegular(): // a pipe or a device has no content to read
		return f, nil
	}
	if sum, ok := known.find(f); ok {
		f.sum = sum
		return f, nil
	}
	f.sum, err = hashFile(whole, buffer)
	return f, err
}

func hashFile(path string, buffer []byte) (sum [sha256.Size]byte, err error) {
	f, err := openRegular(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.CopyBuffer(h, struct{ io.Reader }{f}, buffer) // hides WriteTo, so that the buffer is used
	h.Sum(sum[:0])
	return sum, err
}

// repositoryOf returns the nearest folder, from this one upwards, that is a git repository, or "".
func repositoryOf(folder string) string {
	for {
		if _, err := os.Lstat(filepath.Join(folder, ".git")); err == nil {
			return folder
		}
		up := filepath.Dir(folder)
		if up == folder {
			return ""
		}
		folder = up
	}
}

func isIgnored(ctx context.Context, folder string) (bool, error) {
	_, err := runGit(ctx, filepath.Dir(folder), "check-ignore", "-q", "--", folder)
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// runGit runs git without environment variables that could select another repository.
func runGit(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", folder, "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"}, args...)...) //nolint:gosec // an operator named the folder
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") }), "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	var warned bytes.Buffer
	cmd.Stderr = &warned
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("the files are in a git repository, and git is not installed")
	case warned.Len() > 0: // git also warns about a folder that it skips
		first, _, _ := strings.Cut(warned.String(), "\n")
		return "", fmt.Errorf("git cannot list the files: %s", first)
	}
	return string(out), err
}

// dropPath returns the underlying error of a PathError.
func dropPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
