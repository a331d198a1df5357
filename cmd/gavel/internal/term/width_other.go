//go:build !unix

package term

// width returns 0: the columns of the terminal are not known here.
func (t *Terminal) width() int { return 0 }
