package shell

import (
	"path"
	"slices"
	"strings"
)

// writer says which words of a program are files that it writes, moves or removes.
type writer struct {
	values string // options with a value that is no such file
	files  string // options whose value is one
	which  which
}

type which byte

const (
	noWords    which = iota // only the values of options
	allWords                // rm a b
	lastWord                // cp a b
	afterFirst              // chmod 600 a b
)

var writers = map[string]writer{
	"rm": {which: allWords}, "rmdir": {which: allWords}, "unlink": {which: allWords},
	"shred":    {which: allWords, values: "-n -s --iterations --size --random-source"},
	"mkdir":    {which: allWords, values: "-m --mode"},
	"mkfifo":   {which: allWords, values: "-m --mode"},
	"touch":    {which: allWords, values: "-d -t -r --date --reference --time"},
	"truncate": {which: allWords, values: "-s -r --size --reference"},
	"tee":      {which: allWords},
	"cp":       {which: lastWord, values: "-S --suffix", files: "-t --target-directory"},
	"mv":       {which: allWords, values: "-S --suffix", files: "-t --target-directory"},
	"ln":       {which: lastWord, values: "-S --suffix", files: "-t --target-directory"},
	"install":  {which: lastWord, values: "-m -o -g -S --mode --owner --group --suffix", files: "-t --target-directory"},
	"rsync": {
		which: lastWord, files: "--log-file --backup-dir",
		values: "-e -f --rsh --exclude --include --filter --exclude-from --include-from --files-from --chmod --chown --port --bwlimit --timeout",
	},
	"scp":   {which: lastWord, values: "-c -F -i -J -l -o -P -S -D -X"},
	"chmod": {which: afterFirst}, "chown": {which: afterFirst}, "chgrp": {which: afterFirst},
	"curl": {files: "-o --output -D --dump-header -c --cookie-jar"},
	"wget": {files: "-O --output-document -o --output-file"},
	"sort": {files: "-o --output"},
}

// WritesTo returns the files that the command writes, moves or removes, by redirection or by what its
// program does, resolved. A folder stands for what is in it. Programs that write of their own accord
// (formatters, compilers, git stash) are left out.
func (c Command) WritesTo() []Word { return c.resolveAll(slices.Concat(c.Writes, c.writtenWords())) }

// ReadsFrom returns the words that may name files that the command reads, resolved.
func (c Command) ReadsFrom() []Word {
	files := slices.Clone(c.Reads)
	if len(c.Words) == 0 {
		return c.resolveAll(files)
	}
	program := path.Base(c.Words[0].Text)
	for _, w := range c.Words[1:] {
		files = append(files, w)
		if at := strings.LastIndexAny(w.Text, "=@"); at >= 0 && at+1 < len(w.Text) { // --file=F, @F, if=F
			files = append(files, w.from(at+1))
		}
		if len(w.Text) > 2 && w.Text[0] == '-' && w.Text[1] != '-' { // -fF
			files = append(files, w.from(2))
		}
		if at := strings.IndexByte(w.Text, ':'); at >= 0 && at+1 < len(w.Text) && program == "git" { // git show REVISION:PATH
			files = append(files, w.from(at+1))
		}
	}
	return c.resolveAll(files)
}

// from returns the word from a byte on.
func (w Word) from(at int) Word {
	return Word{Text: w.Text[at:], Known: w.Known, Pattern: w.Pattern, split: w.split, lead: max(w.lead-at, 0)}
}

func (c Command) resolveAll(words []Word) []Word {
	var files []Word
	for _, w := range words {
		if w.Text != "" || !w.Known {
			files = append(files, c.Resolve(w))
		}
	}
	return files
}

func (c Command) writtenWords() []Word {
	if len(c.Words) == 0 {
		return nil
	}
	name, args := path.Base(c.Words[0].Text), c.Words[1:]
	switch name {
	case "git":
		return gitWrites(args)
	case "dd":
		var files []Word
		for _, a := range args {
			if strings.HasPrefix(a.Text, "of=") {
				files = append(files, a.from(len("of=")))
			}
		}
		return files
	case "sed", "perl":
		return editedInPlace(name, args)
	case "find":
		return findWrites(args)
	}
	w, ok := writers[name]
	if !ok {
		return nil
	}
	plain, files := w.split(args)
	switch w.which {
	case noWords:
	case allWords:
		files = append(files, plain...)
		if name == "mv" && len(plain) > 1 {
			files = append(files, intoFolder(plain)[1:]...)
		}
	case lastWord:
		if len(plain) > 1 && len(files) == 0 {
			files = intoFolder(plain)
		} else if name == "ln" && len(plain) == 1 {
			files = append(files, Word{Text: path.Base(plain[0].Text), Known: plain[0].Known})
		}
		if name == "install" && hasOption(args, "-d --directory") {
			files = append(files, plain...)
		}
	case afterFirst:
		if len(plain) > 1 {
			files = append(files, plain[1:]...)
		}
	}
	return files
}

// intoFolder returns the target of a copy, and the names of the copies if it is a folder.
func intoFolder(plain []Word) []Word {
	target := plain[len(plain)-1]
	files := []Word{target}
	for _, w := range plain[:len(plain)-1] {
		files = append(files, Word{Text: path.Join(target.Text, path.Base(w.Text)), Known: target.Known && w.Known, Pattern: target.Known && w.Pattern})
	}
	return files
}

// split parts the arguments into plain words and the values of options that are files.
func (w writer) split(args []Word) (plain, files []Word) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a.Text == "--" && a.Known {
			return append(plain, args[i+1:]...), files
		}
		if len(a.Text) < 2 || a.Text[0] != '-' {
			plain = append(plain, a)
			continue
		}
		name, value, attached := strings.Cut(a.Text, "=")
		if a.Text[1] != '-' { // -abVALUE
			name = a.Text[:2]
			for at := 1; at < len(a.Text); at++ {
				if o := "-" + a.Text[at:at+1]; hasWord(w.values+" "+w.files, o) {
					name, value, attached = o, a.Text[at+1:], at+1 < len(a.Text)
					break
				}
			}
		}
		given := Word{Text: value, Known: a.Known}
		if !hasWord(w.values+" "+w.files, name) {
			continue
		}
		if !attached {
			if i++; i == len(args) {
				break
			}
			given = args[i]
		}
		if hasWord(w.files, name) {
			files = append(files, given)
		}
	}
	return plain, files
}

// hasOption reports whether one of the options is among the words.
func hasOption(args []Word, options string) bool {
	for _, a := range args {
		name, _, _ := strings.Cut(a.Text, "=")
		for o := range strings.FieldsSeq(options) {
			if name == o || len(o) == 2 && len(name) > 1 && name[0] == '-' && name[1] != '-' && strings.Contains(name, o[1:]) {
				return true
			}
		}
	}
	return false
}

// editedInPlace returns the files of sed -i and perl -i.
func editedInPlace(name string, args []Word) []Word {
	w := writer{values: "-e -f -l --expression --file --line-length"}
	if name == "perl" {
		w.values = "-e -E -I -M -m"
	}
	inPlace, program := false, false
	for _, a := range args {
		for at := 1; at < len(a.Text) && a.Text[0] == '-' && a.Text[1] != '-'; at++ { // -ni.bak, -pie
			o := a.Text[at : at+1]
			inPlace = inPlace || o == "i"
			program = program || strings.Contains("eEf", o)
			if strings.Contains("iIeEfMm", o) && !(name == "perl" && o == "i") {
				break
			}
		}
		inPlace = inPlace || strings.HasPrefix(a.Text, "--in-place")
		program = program || strings.HasPrefix(a.Text, "--expression") || strings.HasPrefix(a.Text, "--file")
	}
	if !inPlace {
		return nil
	}
	plain, _ := w.split(args)
	if !program && len(plain) > 0 {
		plain = plain[1:]
	}
	return plain
}

// findWrites returns the folders in which find -delete removes, and the files that it prints to.
func findWrites(args []Word) (files []Word) {
	for i, a := range args {
		switch {
		case a.Text == "-delete":
			files = append(files, findStarts(args)...)
		case hasWord("-fprint -fprint0 -fls -fprintf", a.Text) && i+1 < len(args):
			files = append(files, args[i+1])
		}
	}
	return files
}

// gitWrites returns the files that the words of git name, and that it writes, moves or removes.
func gitWrites(args []Word) []Word {
	if len(args) == 0 {
		return nil
	}
	rest := args[1:]
	plain, _ := writer{values: "-s -b -B --source --conflict --pathspec-from-file"}.split(rest)
	switch args[0].Text {
	case "rm", "mv", "restore":
		if args[0].Text == "rm" && hasOption(rest, "--cached") || args[0].Text == "restore" && hasOption(rest, "--staged -S") && !hasOption(rest, "--worktree -W") {
			return nil
		}
		return plain
	case "checkout":
		if i := slices.IndexFunc(rest, func(w Word) bool { return w.Text == "--" && w.Known }); i >= 0 {
			return rest[i+1:]
		}
	}
	return nil
}
