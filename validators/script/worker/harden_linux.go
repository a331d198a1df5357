package worker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gavel-mcp/gavel/validators/script"
)

// Order matters: the memory limit reads a file, landlock creates a descriptor, and both need system calls that
// seccomp then blocks.
var hardening = []protection{
	{protectMemory, limitMemory}, {protectLandlock, applyLandlock}, {protectFiles, denyFiles}, {protectSeccomp, filterSystemCalls},
}

// restrictedArg is the first argument of a worker that has restricted and re-executed itself (see
// restrictAndExec).
const restrictedArg = "restricted"

// statm is the descriptor through which a re-executed worker, which cannot open files, reads its size. It is
// high to avoid conflicts.
const statm = 63

// prepareProcess must be called before the worker reads any input.
func prepareProcess() {
	if len(os.Args) > 1 && os.Args[1] == restrictedArg {
		return
	}
	closeInherited()
	if isCgoLinked() {
		restrictAndExec()
	}
}

// isCgoLinked reports whether C code is linked. C code may have started threads that Go does not know, so system
// calls cannot be made on all threads.
func isCgoLinked() bool {
	_, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0)
	return e == syscall.ENOTSUP
}

// applyLandlock denies access to all files and TCP, for all threads.
func applyLandlock(script.Setup) error {
	if len(os.Args) > 1 && os.Args[1] == restrictedArg {
		return nil // restricted before the exec
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return e
	}
	ruleset, err := newRuleset()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(ruleset) }()
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); e != 0 {
		return e
	}
	return nil
}

// newRuleset creates a landlock ruleset that restricts everything that this kernel can restrict, except
// signals.
func newRuleset() (fd int, err error) {
	version, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return -1, e
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: 1<<13 - 1} // all rights of version 1
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if version >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size += unsafe.Sizeof(attr.Handled_access_net)
	}
	if version >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if version >= 6 {
		// Signals are not scoped: kernels before 6.15 then block signals between threads that restricted
		// themselves separately, and the Go scheduler needs them. Seccomp keeps signals within the process.
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size += unsafe.Sizeof(attr.Scoped)
	}
	r, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return -1, e
	}
	return int(r), nil
}

// restrictAndExec restricts one thread and re-executes this program from it, so that all threads of the new
// image are restricted from the start. The ruleset must allow loading the image and the C library that it
// links; reading those remains allowed until seccomp blocks opening files. The function returns only on
// failure; the worker then runs without landlock and reports that.
func restrictAndExec() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ruleset, err := newRuleset()
	if err != nil {
		return
	}
	for _, path := range []string{"/proc/self/exe", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path"} {
		allowReading(ruleset, path)
	}
	size, err := unix.Open("/proc/self/statm", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	if err := unix.Dup3(size, statm, 0); err != nil { // the copy survives exec
		return
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return
	}
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); e != 0 {
		return
	}
	_ = unix.Exec("/proc/self/exe", []string{os.Args[0], restrictedArg}, os.Environ())
	// Only this thread is restricted, so landlock counts as missing.
}

// allowReading allows reading and executing files under path, if it exists.
func allowReading(ruleset int, path string) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	rule := unix.LandlockPathBeneathAttr{Allowed_access: unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE, Parent_fd: int32(fd)} //nolint:gosec // a descriptor
	_, _, _ = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
}

// limitMemory limits the process's writable memory and its address space to the current sizes plus the limit.
// Both are needed: the kernel does not count a mapping that replaces a reserved one as new data. Because the
// Go runtime reserves address space before it maps it, only the second limit stops a single giant allocation.
// Beyond either limit, the Go runtime ends the process.
func limitMemory(setup script.Setup) error {
	if hasRaceDetector() {
		return errors.New("the race detector maps far more than it uses")
	}
	size, data, err := readStatm()
	if err != nil {
		return err
	}
	limit := uint64(setup.WorkerMemory) //nolint:gosec // positive by validation
	// The heap reserves 64 MiB at a time. Threads of the C library reserve more.
	reserve := uint64(64 << 20)
	if len(os.Args) > 1 && os.Args[1] == restrictedArg {
		reserve += limit
	}
	return errors.Join(
		unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: data + limit, Max: data + limit}),
		unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: size + limit + reserve, Max: size + limit + reserve}))
}

func hasRaceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// readStatm returns the size of this process's address space and of its data, in bytes.
func readStatm() (size, data uint64, err error) {
	var text []byte
	if len(os.Args) > 1 && os.Args[1] == restrictedArg {
		buf := make([]byte, 256)
		n, err := unix.Pread(statm, buf, 0)
		_ = unix.Close(statm)
		if err != nil {
			return 0, 0, err
		}
		text = buf[:n]
	} else if text, err = os.ReadFile("/proc/self/statm"); err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 6 {
		return 0, 0, fmt.Errorf("statm has %d fields", len(fields))
	}
	page := uint64(os.Getpagesize()) //nolint:gosec // positive
	size, err1 := strconv.ParseUint(fields[0], 10, 40)
	data, err2 := strconv.ParseUint(fields[5], 10, 40)
	return size * page, data * page, errors.Join(err1, err2)
}
