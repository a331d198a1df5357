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

// How names of definitions and ids become names of files: also where a file system does not
// tell upper from lower case, and where it keeps names for devices. Two names never share a
// file. An upper-case letter is "!" and the lower-case one, any other character that cannot
// stand where it is "!" and two hex digits, of which the first is no letter. What is too
// long is "!00" and a digest.

// maxStem is the greatest length of an escaped name, so that two of them and what is around
// them are a name that every file system takes.
const maxStem = 110

// device is a name that Windows keeps for a device, whatever follows behind a dot.
var device = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`) })

// fileStem is the beginning of the name of a file for a name.
func fileStem(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case i == 0 && (c == '-' || c == '.' || device().MatchString(name)):
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

// instanceStems are what the names of an instance's files may begin with, the first one
// that is free: "1" and "wf-1" are two instances.
func instanceStems(id string) []string {
	return []string{"wf-" + idStem(strings.TrimPrefix(id, "wf-")), "wf-" + digestStem("id "+id)}
}

// checkpointNames are what a checkpoint's file may be called, the first one that is free:
// "c" of "a.b" and "b.c" of "a" are two checkpoints.
func checkpointNames(stem, id string) []string {
	id = idStem(id)
	return []string{stem + "." + id, strings.ReplaceAll(stem, ".", "!2e") + "." + strings.ReplaceAll(id, ".", "!2e")}
}

// isStemOf reports whether the files of an instance may begin with a stem. Other programs
// take the id as it is.
func isStemOf(stem, id string) bool {
	return stem == id || stem == "wf-"+id || slices.Contains(instanceStems(id), stem)
}
