//go:build unix

package term

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// blockingFile reads and writes a file that another process sharing the pipe or socket may make non-blocking at any
// time, as Node does. It then waits until the file is ready instead of failing.
type blockingFile struct{ file *os.File }

// BlockingReader returns in. If it is a file, Read waits for input.
func BlockingReader(in io.Reader) io.Reader {
	if f, ok := in.(*os.File); ok {
		return blockingFile{f}
	}
	return in
}

// BlockingWriter returns out. If it is a file, Write waits until it accepts output.
func BlockingWriter(out io.Writer) io.Writer {
	if f, ok := out.(*os.File); ok {
		return blockingFile{f}
	}
	return out
}

func (f blockingFile) Read(b []byte) (int, error) {
	for {
		n, err := f.file.Read(b)
		if n > 0 || !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		if err := f.await(unix.POLLIN); err != nil {
			return 0, err
		}
	}
}

func (f blockingFile) Write(b []byte) (int, error) {
	written := 0
	for {
		n, err := f.file.Write(b[written:])
		written += n
		if !errors.Is(err, unix.EAGAIN) {
			return written, err
		}
		if err := f.await(unix.POLLOUT); err != nil {
			return written, err
		}
	}
}

// await returns when the file is ready, closed at the other end, or broken. The next call determines which.
func (f blockingFile) await(events int16) error {
	conn, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { // unlike Fd, it does not change the mode
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}} //nolint:gosec // descriptors are small numbers
		for {
			if _, failed = unix.Poll(fds, -1); !errors.Is(failed, unix.EINTR) {
				break
			}
		}
		if failed == nil && fds[0].Revents&unix.POLLNVAL != 0 {
			failed = unix.EBADF
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("wait for %s: %w", f.file.Name(), err)
	}
	return nil
}

// width returns the terminal's columns, or 0 if it is not a terminal or the width is unknown.
func (t *Terminal) width() int {
	if t.file == nil {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(t.file.Fd()), unix.TIOCGWINSZ) //nolint:gosec // descriptors are small numbers
	if err != nil {
		return 0
	}
	return int(size.Col)
}
