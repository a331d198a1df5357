//go:build unix

package term

import "golang.org/x/sys/unix"

// width returns the columns of the terminal, 0 where it is none or does not say.
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
