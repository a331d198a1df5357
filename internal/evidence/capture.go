package evidence

import (
	"bytes"
	"fmt"
	"sync"
	"unicode/utf8"
)

// capture keeps the beginning and the end of its input and counts the rest. Writes never fail, so a command can
// finish, and it never holds more than its limit. The end gets two thirds, since programs print their results last.
type capture struct {
	mu          sync.Mutex
	first, last int // bytes kept of the beginning and the end
	head, tail  []byte
	next        int // index of the oldest byte in a full tail
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

// complete returns all input, or nil and false if more was written than is kept.
func (c *capture) complete() ([]byte, bool) {
	head, tail, left := c.snapshot()
	if left > 0 {
		return nil, false
	}
	return append(head, tail...), true
}

// text returns the input as text, with a line that marks the omitted part.
func (c *capture) text() (text string, truncated bool) {
	head, tail, left := c.snapshot()
	if left == 0 {
		return cleanOutput(append(head, tail...)), false
	}
	// Do not cut a character in two.
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

// snapshot returns copies of the kept parts, in order, and the number of omitted bytes.
func (c *capture) snapshot() (head, tail []byte, left int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	head = bytes.Clone(c.head)
	tail = append(bytes.Clone(c.tail[c.next:]), c.tail[:c.next]...)
	return head, tail, c.total - int64(len(head)+len(tail))
}
