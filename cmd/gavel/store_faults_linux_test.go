package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/validators/document"
)

// storeFaultOf is a fault of a running server's store.
type storeFaultOf struct {
	name string
	// small puts the store on a file system of a few megabytes.
	small bool
	// before damages the closed store, bring the open one. lift ends the fault if that is possible.
	before, bring func(f *faultBench) error
	lift          func(f *faultBench) error
}

var storeFaults = []storeFaultOf{
	{
		name: "the disk is full", small: true,
		bring: func(f *faultBench) error { return f.fill() },
		lift:  func(f *faultBench) error { return os.Remove(f.path + ".filler") },
	},
	{
		name:  "the disk refuses to write (a quota, a limit of file sizes, a failing disk)",
		bring: func(*faultBench) error { return limitFiles(1) },
		lift:  func(*faultBench) error { return limitFiles(1 << 40) },
	},
	{
		name:  "another process holds the lock",
		bring: func(f *faultBench) error { return f.hold() },
		lift:  func(f *faultBench) error { return f.release() },
	},
	{
		name:  "too many files are open (those that the store has stay open)",
		bring: func(*faultBench) error { return limitOpenFiles(3) },
		lift:  func(*faultBench) error { return limitOpenFiles(1 << 20) },
	},
	{
		name:   "the disk cannot read the database (EIO)",
		before: func(*faultBench) error { return nil }, // so that the log is checkpointed and nothing is cached
		bring:  func(f *faultBench) error { return replaceOpenFiles(f.path, "/proc/self/mem", os.O_RDONLY) },
		lift:   func(f *faultBench) error { return replaceOpenFiles("/proc/self/mem", f.path, os.O_RDWR) },
	},
	{
		name:  "the log is deleted",
		bring: func(f *faultBench) error { return os.Remove(f.path + "-wal") },
	},
	{
		name:  "the database is deleted",
		bring: func(f *faultBench) error { return os.Remove(f.path) },
	},
	{
		name:  "the database is moved away",
		bring: func(f *faultBench) error { return os.Rename(f.path, f.path+".away") },
		lift:  func(f *faultBench) error { return os.Rename(f.path+".away", f.path) },
	},
	{
		name:  "the database is replaced by an empty file",
		bring: func(f *faultBench) error { return replaceByEmpty(f.path) },
	},
	{
		name:   "a page of the contexts is damaged",
		before: func(f *faultBench) error { return damageTable(f.path, "contexts") },
	},
	{
		name:   "a page of the index of events is damaged",
		before: func(f *faultBench) error { return damageTable(f.path, "events_seq") },
	},
}

// faultResult is a row of the table.
type faultResult struct {
	Ready   int    `json:"ready"`   // the status of /readyz
	Classes string `json:"classes"` // error classes counted by the metric
	Answer  string `json:"answer"`  // the error code of a move
	Read    string `json:"read"`    // the error code of a status request
	Lost    int    `json:"lost"`    // acknowledged moves missing on disk if the process is killed
	How     string `json:"how"`     // how the moves were read
	After   string `json:"after"`   // the result of a move after the fault is lifted
	Log     string `json:"log"`
	Skip    string `json:"skip"`
}

// faultBench is a store under a fault in its own process.
type faultBench struct {
	path   string
	holder *exec.Cmd
	gate   io.Closer
}

func init() { programs["storefault"] = storeFault }

// storeFault is the program "storefault" of the tests. It causes one fault and prints the result, or holds a
// store's lock until its standard input ends.
func storeFault() {
	if os.Args[1] == "hold" {
		db, err := rawStore(os.Args[2])
		if err == nil {
			_, err = db.ExecContext(context.Background(), "BEGIN IMMEDIATE")
		}
		if err != nil {
			fail(err)
		}
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	at := slices.IndexFunc(storeFaults, func(f storeFaultOf) bool { return f.name == os.Args[1] })
	f := &faultBench{path: filepath.Join(os.Args[2], gavel.StoreFile)}
	r, err := f.run(storeFaults[at])
	if err != nil {
		fail(err)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		fail(err)
	}
	fmt.Printf("%s\n", raw)
}

func (f *faultBench) run(fault storeFaultOf) (r faultResult, err error) {
	ctx := context.Background()
	if fault.small {
		if err := syscall.Mount("tmpfs", filepath.Dir(f.path), "tmpfs", 0, "size=4m"); err != nil {
			return faultResult{Skip: err.Error()}, nil
		}
	}
	var log bytes.Buffer
	defer func() {
		if err != nil {
			for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(cause) { // including causes not shown to users
				fmt.Fprintln(&log, cause)
			}
			err = fmt.Errorf("%w\n%s", err, log.String())
		}
	}()
	sys, err := cli.OpenSystem(ctx, slog.New(slog.NewTextHandler(&log, nil)), cli.StoreLocation{Path: f.path}, cli.SystemOptions{})
	if err != nil {
		return r, err
	}
	if _, err := sys.Engine.Define(ctx, gavel.Operator, engine.DefineRequest{Document: []byte(faultFlow)}); err != nil {
		return r, err
	}
	started, err := sys.Engine.Start(ctx, gavel.Operator, engine.StartRequest{Type: "turn", Context: json.RawMessage(`{}`)})
	if err != nil {
		return r, err
	}
	move := func(n int) error {
		_, err := sys.Engine.Advance(ctx, gavel.Operator, engine.AdvanceRequest{ID: started.ID, Action: "turn", Data: document.ReadTrusted([]byte(fmt.Sprintf(`{"n":%d,"pad":%q}`, n, strings.Repeat("x", 5000))))})
		return err
	}
	const moves = 20
	for n := range moves {
		if err := move(n); err != nil {
			return r, err
		}
	}
	if fault.before != nil {
		if err := sys.Store.Close(); err != nil {
			return r, err
		}
		if err := fault.before(f); err != nil {
			return r, err
		}
		if sys, err = cli.OpenSystem(ctx, slog.New(slog.NewTextHandler(&log, nil)), cli.StoreLocation{Path: f.path}, cli.SystemOptions{}); err != nil {
			return r, err
		}
	}
	if fault.bring != nil {
		if err := fault.bring(f); err != nil {
			return r, err
		}
	}
	acknowledged, err := moves, move(moves)
	for fault.small && err == nil && acknowledged < 1000 { // into the space that the log file still has
		acknowledged++
		err = move(acknowledged)
	}
	r.Answer = answerCode(err)
	_, err = sys.Engine.Status(ctx, gavel.Operator, started.ID)
	r.Read = answerCode(err)
	answer := httptest.NewRecorder()
	serve.NewHealth(slog.New(slog.NewTextHandler(&log, nil)), sys, func() error { return nil }).Ready(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody))
	r.Ready = http.StatusOK
	if strings.Contains(answer.Body.String(), `"name":"store","ok":false`) {
		r.Ready = http.StatusServiceUnavailable
	}
	r.Classes = countedClasses(cli.StoreStats(sys.Store).Failures)
	if r.Answer == "ok" {
		acknowledged++
	}
	if r.Lost, r.How, err = f.lost(ctx, started.ID, acknowledged); err != nil {
		return r, err
	}
	r.After = "restart"
	if fault.lift != nil {
		if err := fault.lift(f); err != nil {
			return r, err
		}
		if err := move(acknowledged); err != nil {
			return r, fmt.Errorf("once it was lifted: %w", err)
		}
		r.After = "goes on"
	}
	r.Log = log.String()
	return r, nil
}

const faultFlow = `{"name":"turn","initialState":"a","states":{"a":{"transitions":{"turn":"a"}}}}`

func answerCode(err error) string {
	if err == nil {
		return "ok"
	}
	return string(engine.CodeOf(err))
}

func countedClasses(counts map[string]uint64) string {
	var out []string
	for class, n := range counts {
		if n > 0 {
			out = append(out, class)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// lost counts the acknowledged moves that would be missing if the process were killed now. It looks in the named
// files on disk, or in what repair recovers from them.
func (f *faultBench) lost(ctx context.Context, id string, moves int) (lost int, how string, err error) {
	if err := errors.Join(limitFiles(1<<40), limitOpenFiles(1<<20)); err != nil { // limits are for the server, not for this check
		return 0, "", err
	}
	dir, err := os.MkdirTemp("", "left-*")
	if err != nil {
		return 0, "", err
	}
	defer os.RemoveAll(dir)
	left := filepath.Join(dir, gavel.StoreFile)
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(f.path + suffix)
		if errors.Is(err, os.ErrNotExist) && suffix == "" {
			content, err = os.ReadFile(f.path + ".away")
		}
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err = errors.Join(err, os.WriteFile(left+suffix, content, 0o600)); err != nil {
			return 0, "", err
		}
	}
	how = "as it is"
	count := func(path string) (int, error) {
		db, err := sqlite.OpenToRead(ctx, path)
		if err != nil {
			return 0, err
		}
		defer db.Close()
		inst, err := db.Load(ctx, id)
		if err != nil {
			return 0, err
		}
		for _, err := range db.Events(ctx, store.EventQuery{Instance: id}) {
			if err != nil {
				return 0, err
			}
		}
		return moves + 1 - int(inst.Seq), nil
	}
	if lost, err = count(left); err == nil {
		return lost, how, nil
	}
	repaired := filepath.Join(dir, "repaired.db")
	if _, err := sqlite.Salvage(ctx, left, repaired); err != nil {
		return 0, "", err
	}
	lost, err = count(repaired)
	return lost, "after `gavel repair`", err
}

func (f *faultBench) fill() error {
	filler, err := os.OpenFile(f.path+".filler", os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for err == nil {
			_, err = filler.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		err = nil
	}
	return filler.Close()
}

// limitFiles limits the size of files that this process writes.
func limitFiles(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = min(size, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// limitOpenFiles limits the number of open files of this process.
func limitOpenFiles(n uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = min(n, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// replaceOpenFiles redirects every descriptor of this process from one file to another. Reading /proc/self/mem at
// an unmapped address, such as the first megabytes, returns EIO.
func replaceOpenFiles(from, to string, mode int) error {
	if from == "/proc/self/mem" {
		from = fmt.Sprintf("/proc/%d/mem", os.Getpid())
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	replaced := 0
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			return err
		}
		if at, err := os.Readlink("/proc/self/fd/" + entry.Name()); err != nil || at != from {
			continue // the descriptor of the directory listing is closed by now
		}
		file, err := os.OpenFile(to, mode, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(syscall.Dup3(int(file.Fd()), fd, syscall.O_CLOEXEC), file.Close()); err != nil {
			return err
		}
		replaced++
	}
	if replaced == 0 {
		return fmt.Errorf("%s is not open", from)
	}
	return nil
}

func (f *faultBench) hold() error {
	f.holder = exec.CommandContext(context.Background(), os.Args[0], "hold", f.path)
	out, err := f.holder.StdoutPipe()
	if err != nil {
		return err
	}
	if f.gate, err = f.holder.StdinPipe(); err != nil {
		return err
	}
	if err := f.holder.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

func (f *faultBench) release() error { return errors.Join(f.gate.Close(), f.holder.Wait()) }

func rawStore(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(10000)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func replaceByEmpty(path string) error {
	return errors.Join(os.WriteFile(path+".empty", nil, 0o600), os.Rename(path+".empty", path))
}

// damageTable overwrites the root page of a table or an index.
func damageTable(path, name string) error {
	db, err := rawStore(path)
	if err != nil {
		return err
	}
	var page int64
	err = db.QueryRowContext(context.Background(), "SELECT rootpage FROM sqlite_schema WHERE name = ?", name).Scan(&page)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return overwrite(path, (page-1)*4096)
}

func overwrite(path string, at int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(bytes.Repeat([]byte{0xff}, 64), at)
	return errors.Join(err, file.Close())
}

// TestStoreFaultTable causes every fault under an engine with its store, and writes the results to
// docs/reference/store-faults.md (with -update). No acknowledged move is lost, and a server that cannot write is
// not ready.
func TestStoreFaultTable(t *testing.T) {
	storetest.SkipUnlessLong(t)
	needsProgram(t)
	t.Parallel()
	results, codes := make([]faultResult, len(storeFaults)), make([]string, len(restingFaults))
	t.Run("faults", func(t *testing.T) {
		for i, fault := range storeFaults {
			t.Run(fault.name, func(t *testing.T) {
				t.Parallel()
				results[i].Skip = "not brought about"
				results[i] = bringFault(t, fault.name)
			})
		}
		for i, fault := range restingFaults {
			t.Run(strings.ReplaceAll(fault.name, ",", ""), func(t *testing.T) { // the folder is in a comma-separated flag
				t.Parallel()
				codes[i] = restingCodes(t, fault)
			})
		}
	})
	const file = "../../docs/reference/store-faults.md"
	before, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString(faultPageHead)
	for i, fault := range storeFaults {
		r := results[i]
		if r.Skip != "" {
			if *update {
				t.Fatalf("%s: %s; with GAVEL_LONG=1 nothing is left out", fault.name, r.Skip)
			}
			for row := range strings.Lines(string(before)) { // kept
				if strings.HasPrefix(row, "| "+fault.name+" |") {
					page.WriteString(row)
				}
			}
			continue
		}
		switch {
		case r.Lost != 0:
			t.Errorf("%s: %d acknowledged moves are lost", fault.name, r.Lost)
		case r.Answer != "ok" && r.Read == "ok" && r.Ready != http.StatusServiceUnavailable:
			t.Errorf("%s: a move is answered %s, and the server is ready\n%s", fault.name, r.Answer, r.Log)
		case r.Answer != "ok" && r.Classes == "":
			t.Errorf("%s: nothing is counted", fault.name)
		}
		fmt.Fprintf(&page, "| %s | %d | `%s` | `%s` | %s | nothing (%s) | %s |\n", fault.name, r.Ready, r.Classes, r.Answer, readAs(r.Read), r.How, r.After)
	}
	page.WriteString(faultPageRest)
	for i, fault := range restingFaults {
		fmt.Fprintf(&page, "| %s | %s | %s |\n", fault.name, codes[i], fault.loss)
	}
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil { //nolint:gosec // a public page
			t.Fatal(err)
		}
	}
	if !*update && string(before) != page.String() {
		t.Errorf("%s is stale; run: GAVEL_LONG=1 go test ./cmd/gavel -run TestStoreFaultTable -update\n%s", file, page.String())
	}
}

func readAs(code string) string {
	if code == "ok" {
		return "yes"
	}
	return "`" + code + "`"
}

const faultPageHead = `<!-- Generated by: GAVEL_LONG=1 go test ./cmd/gavel -run TestStoreFaultTable -update -->

# Faults of the store

## While a server runs

Each fault is brought about under an engine with twenty acknowledged moves; then a move is asked for, a status, /readyz and /metrics. "Lost"
is what a kill -9 at that moment would lose of what was acknowledged. The test that writes this page fails if anything is lost, or if
a server that can record no move is ready or counts nothing.

| fault | /readyz | gavel_store_failures_total | a move | status is read | lost | when it is lifted |
|---|---|---|---|---|---|---|
`

const faultPageRest = `
A page that only some instances need leaves a server ready when it is damaged: the others go on. SQLite does not tell a page that the
disk cannot read from a damaged one: look at the system's log before you repair. "restart" means that a server has to be started again, after what [recovery](../records.md#backup-and-restore) says.

## When a command starts

| fault | a server | gavel verify | lost |
|---|---|---|---|
`

// namespacedChild gives a child its own user and mount namespaces, so that it can mount.
func namespacedChild(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

func bringFault(t *testing.T, name string) (r faultResult) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "storefault", name, t.TempDir())
	namespacedChild(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("user namespaces cannot be had here: %v", err)
	}
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", name, err, out, stderr.Bytes())
	}
	return r
}

// restingFault is a fault of a store that no process has open.
type restingFault struct {
	name, loss string
	harm       func(path string) error
}

const (
	notOnDisk  = "what was in it only, unless the file is found again"
	inDatabase = "what was in the database only; `gavel repair` replays the log"
)

var restingFaults = []restingFault{
	{"nothing", "nothing", func(string) error { return nil }},
	{"the database is missing, its log is there", inDatabase, os.Remove},
	{"the database is empty, its log is there", inDatabase, replaceByEmpty},
	{"the log is missing", notOnDisk + "; only anchors that are kept elsewhere show it", func(path string) error { return os.Remove(path + "-wal") }},
	{"both are missing, the key is there", notOnDisk, func(path string) error { return errors.Join(os.Remove(path), os.Remove(path+"-wal")) }},
	{"the database is empty, there is no log, the key is there", notOnDisk, func(path string) error {
		return errors.Join(replaceByEmpty(path), os.Remove(path+"-wal"))
	}},
	{"the schema is of another version", "nothing: use the gavel that wrote it", func(path string) error {
		db, err := rawStore(path)
		if err == nil {
			_, err = db.ExecContext(context.Background(), "PRAGMA user_version = 99")
			err = errors.Join(err, db.Close())
		}
		return err
	}},
	{"the first page is damaged", "everything that no backup has", func(path string) error {
		db, err := rawStore(path)
		if err == nil { // the last process to close the store checkpoints the log
			err = errors.Join(db.QueryRowContext(context.Background(), "SELECT count(*) FROM events").Scan(new(int)), db.Close())
		}
		return errors.Join(err, overwrite(path, 0))
	}},
	{"the file is another program's", "nothing of the store", func(path string) error {
		return errors.Join(os.WriteFile(path, bytes.Repeat([]byte("some notes "), 100), 0o600), os.Remove(path+"-wal"))
	}},
}

// restingCodes returns the exit codes of a server and of verify for a store whose server was killed and which was
// then damaged.
func restingCodes(t *testing.T, fault restingFault) string {
	t.Helper()
	needsProgram(t)
	dir := t.TempDir()
	path := filepath.Join(dir, gavel.StoreFile)
	file, before := filepath.Join(dir, "work"), filepath.Join(dir, "before")
	definition := filepath.Join(dir, "turn.json")
	if err := errors.Join(os.WriteFile(definition, []byte(faultFlow), 0o600),
		os.WriteFile(before, []byte("workflow.start {\"type\":\"turn\"}\n"), 0o600),
		os.WriteFile(file, []byte("workflow.start {\"type\":\"turn\"}\nkill\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{before, file} { // the first is in the database file, the second in the log
		play := exec.CommandContext(t.Context(), "play", file, "--store", path, "--definitions", definition)
		if out, err := play.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := fault.harm(path); err != nil {
		t.Fatalf("%s: %v", fault.name, err)
	}
	code := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "gavel", args...)
		cmd.Env = cli.WithoutSettings(os.Environ())
		err := cmd.Run()
		var failed *exec.ExitError
		if err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return fmt.Sprintf("exit code %d", cmd.ProcessState.ExitCode())
	}
	verified := code("verify", "--store", path)
	served := code("mcp", "--store", path)
	if served == "exit code 0" {
		served = "starts"
	}
	return served + " | " + verified
}
