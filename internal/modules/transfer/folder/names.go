package folder

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// The names of definitions and ids become file names that are also valid on file systems that ignore
// case or reserve device names. Two names never share a file:
//
//   - An upper-case letter becomes "!" and the lower-case letter.
//   - Any other character that is not allowed at its position becomes "!" and two hex digits, the first
//     of which is not a letter.
//   - A name that is too long becomes "!00" and a digest.

// maxStem is the maximum length of an escaped name, chosen so that a file name made of two of them is
// valid on every file system.
const maxStem = 110

// deviceName matches a name that Windows reserves for a device, regardless of any extension.
var deviceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`) })

// fileStem returns the beginning of the file name for a name.
func fileStem(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case i == 0 && (c == '-' || c == '.' || deviceName().MatchString(name)):
			fmt.Fprintf(&b, "!%02x", c)
		case c >= 'A' && c <= 'Z':
			b.WriteByte('!')
			b.WriteByte(c + 'a' - 'A')
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// idStem is fileStem for an id, which may be longer than a name.
func idStem(id string) string {
	if stem := fileStem(id); len(stem) <= maxStem {
		return stem
	}
	return digestStem(id)
}

func digestStem(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "!00" + hex.EncodeToString(sum[:])
}

// instanceStems returns the possible beginnings of an instance's file names, of which the first free
// one is used: "1" and "wf-1" are two instances.
func instanceStems(id string) []string {
	return []string{"wf-" + idStem(strings.TrimPrefix(id, "wf-")), "wf-" + digestStem("id "+id)}
}

// checkpointNames returns the possible names of a checkpoint's file, of which the first free one is
// used: "c" of "a.b" and "b.c" of "a" are two checkpoints.
func checkpointNames(stem, id string) []string {
	id = idStem(id)
	return []string{stem + "." + id, strings.ReplaceAll(stem, ".", "!2e") + "." + strings.ReplaceAll(id, ".", "!2e")}
}

// isStemOf reports whether the files of an instance may begin with a stem. Other programs
// use the id unchanged.
func isStemOf(stem, id string) bool {
	return stem == id || stem == "wf-"+id || slices.Contains(instanceStems(id), stem)
}
