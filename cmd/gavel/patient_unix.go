//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// patientFile reads and writes a file that may turn non-blocking at any time: whoever
// shares a pipe or socket with this process can do that, and Node does. What is not there
// yet, or does not fit yet, is then waited for, and is no failure.
type patientFile struct{ file *os.File }

// patientReader is in, patient where it is a file.
func patientReader(in io.Reader) io.Reader {
	if f, ok := in.(*os.File); ok {
		return patientFile{f}
	}
	return in
}

// patientWriter is out, patient where it is a file.
func patientWriter(out io.Writer) io.Writer {
	if f, ok := out.(*os.File); ok {
		return patientFile{f}
	}
	return out
}

func (p patientFile) Read(b []byte) (int, error) {
	for {
		n, err := p.file.Read(b)
		if n > 0 || !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		if err := p.await(unix.POLLIN); err != nil {
			return 0, err
		}
	}
}

func (p patientFile) Write(b []byte) (int, error) {
	written := 0
	for {
		n, err := p.file.Write(b[written:])
		written += n
		if !errors.Is(err, unix.EAGAIN) {
			return written, err
		}
		if err := p.await(unix.POLLOUT); err != nil {
			return written, err
		}
	}
}

// await returns when the file is ready, or closed at its other end, or broken: the next
// call finds out.
func (p patientFile) await(events int16) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { // unlike Fd, it leaves the mode as it is
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
		return fmt.Errorf("wait for %s: %w", p.file.Name(), err)
	}
	return nil
}
