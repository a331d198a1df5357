package evidence

import (
	"bytes"
	"fmt"
	"sync"
	"unicode/utf8"
)

// capture keeps the beginning and the end of what is written to it and counts the
// rest. It never refuses to be written to, so that a command can finish, and never
// holds more than its limit. The end gets two thirds: that is where programs say
// what came of it.
type capture struct {
	mu          sync.Mutex
	first, last int // how many bytes of each are kept
	head, tail  []byte
	next        int // where in a full tail the oldest byte is
	total       int64
}

func newCapture(limit int) *capture {
	return &capture{first: limit / 3, last: limit - limit/3}
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	c.total += int64(n)
	if room := min(c.first-len(c.head), len(p)); room > 0 {
		c.head = append(c.head, p[:room]...)
		p = p[room:]
	}
	if len(p) > c.last {
		p = p[len(p)-c.last:]
	}
	if room := min(c.last-len(c.tail), len(p)); room > 0 {
		c.tail = append(c.tail, p[:room]...)
		p = p[room:]
	}
	for len(p) > 0 {
		wrote := copy(c.tail[c.next:], p)
		c.next = (c.next + wrote) % c.last
		p = p[wrote:]
	}
	return n, nil
}

// complete is everything that was written, nil and false when that is more than is kept.
func (c *capture) complete() ([]byte, bool) {
	head, tail, left := c.snapshot()
	if left > 0 {
		return nil, false
	}
	return append(head, tail...), true
}

// text is what was written, as text, with a line where something was left out.
func (c *capture) text() (text string, truncated bool) {
	head, tail, left := c.snapshot()
	if left == 0 {
		return cleanOutput(append(head, tail...)), false
	}
	// No character is cut in two.
	for i := 1; i <= min(utf8.UTFMax, len(head)); i++ {
		if r := head[len(head)-i:]; utf8.RuneStart(r[0]) {
			if !utf8.FullRune(r) {
				head, left = head[:len(head)-i], left+int64(i)
			}
			break
		}
	}
	for i := 0; i < utf8.UTFMax && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail, left = tail[1:], left+1
	}
	start := cleanOutput(head)
	if start != "" && start[len(start)-1] != '\n' {
		start += "\n"
	}
	return fmt.Sprintf("%s[... %d bytes left out ...]\n%s", start, left, cleanOutput(tail)), true
}

// snapshot is a copy of what is held, in order, and how much is not.
func (c *capture) snapshot() (head, tail []byte, left int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	head = bytes.Clone(c.head)
	tail = append(bytes.Clone(c.tail[c.next:]), c.tail[:c.next]...)
	return head, tail, c.total - int64(len(head)+len(tail))
}
