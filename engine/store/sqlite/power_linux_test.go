package sqlite_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

var powerRounds = flag.Int("power.rounds", 0, "how often TestPowerCut cuts (make power)")

// TestPowerCut simulates power cuts of a store under load. The store is on its own file system, in an image on a loop
// device. The process is stopped, and a copy of the image contains what had reached the disk at that moment, without
// the page cache. Mounting the copy replays the file system's journal; it must contain everything that was
// acknowledged. Disks that lie about their own cache are not simulated.
func TestPowerCut(t *testing.T) {
	if *powerRounds == 0 {
		t.Skip("mounts file systems: make power, as the superuser")
	}
	needLoopDevices(t)
	total := 0
	for range *powerRounds {
		d := newDisk(t)
		acks, _ := d.cut(t, "load")
		d.restart(t)
		checkLogAlone(t, d.store(), acks)
		checkAcks(t, d.store(), acks)
		checkVerifies(t, d.store(), len(acks))
		for _, list := range acks {
			total += len(list)
		}
		d.drop(t)
	}
	t.Logf("%d cuts, %d acknowledged writes, none lost", *powerRounds, total)
}

// checkLogAlone replays the log without its database. It must count as whole only if it contains everything that was
// acknowledged.
func checkLogAlone(t *testing.T, path string, acks map[string][]acked) {
	t.Helper()
	if logBytes(t, path) == 0 {
		return
	}
	out := filepath.Join(t.TempDir(), "out.db")
	if r, err := sqlite.Salvage(t.Context(), logAlone(t, path), out); err == nil && r.Whole() {
		checkAcks(t, out, acks)
	} else if err != nil && !errors.Is(err, sqlite.ErrCorrupt) {
		t.Error(err)
	}
}

// When the store rejects the next write after its log was deleted under load, the log's contents are durable in the
// database: a power cut after that loses nothing.
func TestPowerCutAfterTheLogIsDeleted(t *testing.T) {
	if *powerRounds == 0 {
		t.Skip("mounts file systems: make power, as the superuser")
	}
	needLoopDevices(t)
	for range *powerRounds {
		d := newDisk(t)
		p := spawn(t, "load", d.store(), "")
		acks, total, after := map[string][]acked{}, 0, 500+rand.IntN(2000)
		err := p.read(func(a acked) { // until it finds the log gone and panics
			acks[a.id] = append(acks[a.id], a)
			if total++; total == after {
				if err := os.Remove(d.store() + "-wal"); err != nil {
					t.Error(err)
				}
			}
		})
		if err == nil || !strings.Contains(p.stderr.String(), sqlite.ErrGone.Error()) {
			t.Fatalf("the process went on without a log: %v\n%s", err, p.stderr)
		}
		if err := copyFile(d.image, d.image+".cut"); err != nil {
			t.Fatal(err)
		}
		d.restart(t)
		checkAcks(t, d.store(), acks)
		d.drop(t)
		t.Logf("%d acknowledged writes, none lost", total)
	}
}

// checkVerifies verifies the store with the engine, as gavel verify does.
func checkVerifies(t *testing.T, path string, instances int) {
	t.Helper()
	s := openAt(t, path)
	defer s.Close()
	idle := struct {
		engine.Judge
		workflow.Compiler
	}{} // nothing is judged
	e, err := engine.New(engine.Config{Store: s, Judge: idle, Compiler: idle, Digester: record.NewDigester(make([]byte, 32))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Definition(t.Context(), "doc", 1); err != nil {
		t.Error(err)
	}
	auditor, err := audit.New(audit.Config{Engine: e, Store: s})
	if err != nil {
		t.Fatal(err)
	}
	r, err := auditor.Verify(t.Context(), engine.Principal{ID: "local:cli", Role: engine.RoleOperator}, audit.VerifyRequest{})
	if err != nil || !r.Clean() || r.Instances < int64(instances) {
		t.Errorf("%d instances were acknowledged: %+v, %v", instances, r, err)
	}
}

// A store that does not sync must lose something; otherwise the test above proves nothing. The kernel sometimes
// writes on its own or on request of another process, and a cut right after that loses nothing.
func TestPowerCutCanTell(t *testing.T) {
	if *powerRounds == 0 {
		t.Skip("mounts file systems: make power, as the superuser")
	}
	needLoopDevices(t)
	for range 5 {
		if lost, total := lostWithoutSync(t); lost > 0 {
			t.Logf("%d of %d acknowledged writes lost", lost, total)
			return
		}
	}
	t.Error("a store that does not sync lost nothing in five cuts: a cut proves nothing")
}

// lostWithoutSync cuts the power of a store that does not sync.
func lostWithoutSync(t *testing.T) (lost, total int) {
	t.Helper()
	d := newDisk(t)
	acks, total := d.cut(t, "load without sync")
	d.restart(t)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: d.store()})
	if err != nil {
		return total, total
	}
	defer s.Close()
	for id, list := range acks {
		there := map[int64]bool{}
		for e, err := range s.Events(t.Context(), store.EventQuery{Instance: id}) {
			there[e.Seq] = err == nil
		}
		for _, a := range list {
			if !there[a.seq] {
				lost++
			}
		}
	}
	return lost, total
}

func needLoopDevices(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only the superuser can mount a loop device")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing", tool)
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("there are no loop devices here")
	}
	image := filepath.Join(t.TempDir(), "image")
	d := &disk{image: image, at: t.TempDir()}
	if err := d.make(); err != nil {
		t.Skipf("a loop device cannot be mounted here: %v", err)
	}
	d.drop(t)
}

// disk is an ext4 file system in a file.
type disk struct {
	image, at string
	mounted   bool
}

const diskBytes = 192 << 20

func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{image: filepath.Join(t.TempDir(), "image"), at: t.TempDir()}
	if err := d.make(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.drop(t) })
	return d
}

func (d *disk) store() string { return filepath.Join(d.at, "gavel.db") }

func (d *disk) make() error {
	f, err := os.Create(d.image)
	if err == nil {
		err = errors.Join(f.Truncate(diskBytes), f.Close())
	}
	if err != nil {
		return err
	}
	if err := tool("mkfs.ext4", "-q", "-F", d.image); err != nil {
		return err
	}
	return d.mount()
}

func (d *disk) mount() error {
	err := tool("mount", "-o", "loop", d.image, d.at)
	d.mounted = err == nil
	return err
}

// drop unmounts, which frees the loop device.
func (d *disk) drop(t *testing.T) {
	t.Helper()
	if !d.mounted {
		return
	}
	if err := tool("umount", d.at); err != nil {
		t.Error(err)
	}
	d.mounted = false
}

func tool(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// cut puts the store under load for a while, copies the image while the process is stopped, and returns what had been
// acknowledged.
func (d *disk) cut(t *testing.T, role string) (acks map[string][]acked, total int) {
	t.Helper()
	p := spawn(t, role, d.store(), "")
	acks = map[string][]acked{}
	enough, after := make(chan struct{}), 2000+rand.IntN(4000)
	var ended sync.WaitGroup
	var err error
	ended.Go(func() {
		err = p.read(func(a acked) {
			acks[a.id] = append(acks[a.id], a)
			if total++; total == after {
				close(enough)
			}
		})
	})
	select {
	case <-enough:
	case <-time.After(time.Minute):
		t.Error("the process writes nothing")
	}
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitStopped(t, p.Process.Pid)
	if err := copyFile(d.image, d.image+".cut"); err != nil {
		t.Error(err)
	}
	if err := p.Process.Kill(); err != nil {
		t.Error(err)
	}
	ended.Wait() // acknowledgements from before the stop are still in the pipe
	if total < after {
		t.Fatalf("the process ended by itself: %v\n%s", err, p.stderr)
	}
	return acks, total
}

// waitStopped waits until all threads of a process are stopped.
func waitStopped(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-time.After(time.Millisecond) { // there is no event for this
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(stats) == 0 {
			t.Fatalf("no threads of %d: %v", pid, err)
		}
		stopped := 0
		for _, name := range stats {
			stat, _ := os.ReadFile(name)
			if _, rest, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(rest, "T") {
				stopped++
			}
		}
		if stopped == len(stats) {
			return
		}
	}
	t.Fatal("the process did not stop")
}

// copyFile copies the image as it is now.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// restart mounts the copied image in place of the original.
func (d *disk) restart(t *testing.T) {
	t.Helper()
	d.drop(t)
	if err := os.Rename(d.image+".cut", d.image); err != nil {
		t.Fatal(err)
	}
	if err := d.mount(); err != nil {
		t.Fatal(err)
	}
}
