package packaging_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// installed is what a package puts on a system, by the path without the first slash, and the scripts that it runs.
type installed struct {
	files   map[string]file
	scripts []string // after the installation, before the removal, after the removal
	config  []string // what an upgrade does not replace, as far as the format says
}

type file struct {
	sum  string
	mode os.FileMode
}

// The packages of every format and platform install the same files, with the program of the archive, and run the scripts of
// the folder system.
func TestReleasePackages(t *testing.T) {
	r := openRelease(t)
	text := func(name string) string { return sum([]byte(read(t, name))) }
	scripts := []string{read(t, "system/postinstall.sh"), read(t, "system/preremove.sh"), read(t, "system/postremove.sh")}
	for arch, other := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		archive := r.archives["linux_"+arch]
		want := map[string]file{
			"usr/bin/gavel":                        {sum(archive["gavel"].data), 0o755},
			"etc/gavel/gavel.yaml":                 {text("system/gavel.yaml"), 0o644},
			"etc/gavel/flows":                      {"", os.ModeDir | 0o755},
			"usr/lib/systemd/system/gavel.service": {text("system/gavel.service"), 0o644},
			"usr/lib/sysusers.d/gavel.conf":        {text("system/sysusers.conf"), 0o644},
			"usr/share/doc/gavel/copyright":        {text("../LICENSE"), 0o644},
		}
		for name, e := range archive {
			if strings.HasPrefix(name, "licenses/") && !e.mode.IsDir() {
				want["usr/share/doc/gavel/"+name] = file{sum(e.data), 0o644}
			}
		}
		for pattern, open := range map[string]func(*testing.T, []byte) installed{
			"*_" + arch + ".deb": openDeb, "*." + other + ".rpm": openRPM, "*_" + other + ".apk": openAPK,
		} {
			found, err := filepath.Glob(filepath.Join(r.dir, pattern))
			if err != nil || len(found) != 1 {
				t.Fatalf("%s: %v, %v", pattern, found, err)
			}
			p := open(t, []byte(read(t, found[0])))
			maps.DeleteFunc(p.files, func(name string, f file) bool { return f.mode.IsDir() && name != "etc/gavel/flows" })
			for name, f := range want {
				if p.files[name] != f {
					t.Errorf("%s: %s is %v, and should be %v", pattern, name, p.files[name], f)
				}
			}
			for name := range p.files {
				if _, ok := want[name]; !ok {
					t.Errorf("%s installs %s", pattern, name)
				}
			}
			if !slices.Equal(p.scripts, scripts) {
				t.Errorf("%s runs\n%s", pattern, strings.Join(p.scripts, "\n"))
			}
			if !strings.HasSuffix(pattern, ".apk") && !slices.Equal(p.config, []string{"etc/gavel/gavel.yaml"}) { // apk asks about all of /etc
				t.Errorf("%s: an upgrade keeps only %v", pattern, p.config)
			}
		}
	}
}

// files turns an archive's entries, which root must own, into those of a package.
func files(t *testing.T, archive map[string]entry) map[string]file {
	t.Helper()
	out := map[string]file{}
	for name, e := range archive {
		f := file{sum(e.data), e.mode}
		if e.mode.IsDir() {
			f.sum = ""
		}
		if e.uid != 0 || e.gid != 0 {
			t.Errorf("%s is owned by %d:%d", name, e.uid, e.gid)
		}
		out[strings.Trim(strings.TrimPrefix(name, "."), "/")] = f
	}
	return out
}

// openDeb reads an ar with two archives.
func openDeb(t *testing.T, data []byte) (out installed) {
	t.Helper()
	rest, ok := bytes.CutPrefix(data, []byte("!<arch>\n"))
	if !ok {
		t.Fatal("no ar")
	}
	members := map[string][]byte{}
	for len(rest) >= 60 {
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil {
			t.Fatal(err)
		}
		members[strings.Trim(string(rest[:16]), " /")] = rest[60 : 60+size]
		rest = rest[min(len(rest), 60+size+size%2):]
	}
	control := map[string]string{}
	for name, e := range untar(t, gunzip(t, members["control.tar.gz"])) {
		control[strings.TrimPrefix(name, "./")] = string(e.data)
	}
	for line := range strings.FieldsSeq(control["conffiles"]) {
		out.config = append(out.config, strings.TrimPrefix(line, "/"))
	}
	out.scripts = []string{control["postinst"], control["prerm"], control["postrm"]}
	out.files = files(t, untar(t, gunzip(t, members["data.tar.gz"])))
	return out
}

// openAPK reads compressed archives one behind the other, which together are one.
func openAPK(t *testing.T, data []byte) (out installed) {
	t.Helper()
	in := untar(t, gunzip(t, data))
	for _, name := range []string{".post-install", ".pre-deinstall", ".post-deinstall"} {
		out.scripts = append(out.scripts, string(in[name].data))
	}
	maps.DeleteFunc(in, func(name string, _ entry) bool { return strings.HasPrefix(name, ".") })
	out.files = files(t, in)
	return out
}

// openRPM reads two headers, of which the second describes the files, and the files as a cpio.
func openRPM(t *testing.T, data []byte) (out installed) {
	t.Helper()
	signature := rpmHeader(data[96:]) // behind the lead
	header := signature[(signature.size()+7)&^7:]
	out.files = files(t, uncpio(t, gunzip(t, header[header.size():])))
	names, folders, at := header.texts(1117), header.texts(1118), header.numbers(1116)
	flags, digests, owners := header.numbers(1037), header.texts(1035), header.texts(1039)
	for i, name := range names {
		name = strings.TrimPrefix(folders[at[i]]+name, "/")
		if out.files[name].sum != digests[i] || owners[i] != "root" {
			t.Errorf("%s is of %s, with the digest %s", name, owners[i], digests[i])
		}
		if flags[i] == 1|16 { // a configuration file, not to be replaced
			out.config = append(out.config, name)
		}
	}
	if len(names) != len(out.files) {
		t.Errorf("%d files, and described are %d", len(out.files), len(names))
	}
	for _, script := range []uint32{1024, 1025, 1026} {
		out.scripts = append(out.scripts, strings.Join(header.texts(script), ""))
	}
	return out
}

// rpmHeader starts with a table of tags, types, offsets and counts; their values follow.
type rpmHeader []byte

func (h rpmHeader) table() int { return 16 + 16*int(binary.BigEndian.Uint32(h[8:])) }

func (h rpmHeader) size() int { return h.table() + int(binary.BigEndian.Uint32(h[12:])) }

func (h rpmHeader) find(tag uint32) (count int, values []byte) {
	for at := 16; at < h.table(); at += 16 {
		if e := h[at:]; binary.BigEndian.Uint32(e) == tag {
			values = h[h.table()+int(binary.BigEndian.Uint32(e[8:])):]
			return int(binary.BigEndian.Uint32(e[12:])), values
		}
	}
	return 0, nil
}

func (h rpmHeader) texts(tag uint32) (out []string) {
	count, values := h.find(tag)
	for range count {
		text, rest, _ := bytes.Cut(values, []byte{0})
		out, values = append(out, string(text)), rest
	}
	return out
}

func (h rpmHeader) numbers(tag uint32) (out []int) {
	count, values := h.find(tag)
	for i := range count { // all that are asked for have 32 bits
		out = append(out, int(binary.BigEndian.Uint32(values[4*i:])))
	}
	return out
}

// uncpio reads the format newc: a header of hexadecimal numbers, the name and the content, each filled up to four bytes.
func uncpio(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	out := map[string]entry{}
	for {
		number := func(i int) int {
			n, err := strconv.ParseUint(string(data[6+8*i:14+8*i]), 16, 32)
			if err != nil || string(data[:6]) != "070701" {
				t.Fatalf("no cpio: %v", err)
			}
			return int(n)
		}
		mode, uid, gid, size, length := number(1), number(2), number(3), number(6), number(11)
		name := string(data[110 : 110+length-1])
		if name == "TRAILER!!!" {
			return out
		}
		e := entry{mode: os.FileMode(mode & 0o777), uid: uid, gid: gid}
		if mode&0o170000 == 0o040000 {
			e.mode |= os.ModeDir
		}
		data = data[(110+length+3)&^3:]
		e.data = data[:size]
		out[name] = e
		data = data[(size+3)&^3:]
	}
}
