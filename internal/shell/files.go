package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// writtenWords selects the words of a program that are files it writes, moves or removes. An option's value among
// them is harmless: no path is 0644.
type writtenWords byte

const (
	allWords   writtenWords = iota + 1 // rm a b
	lastWord                           // cp a b
	afterFirst                         // chmod 600 a b
)

var writers = map[string]writtenWords{
	"rm": allWords, "rmdir": allWords, "unlink": allWords, "shred": allWords, "mkdir": allWords, "mkfifo": allWords, "touch": allWords,
	"truncate": allWords, "tee": allWords, "mv": allWords, "install": allWords,
	"cp": lastWord, "ln": lastWord, "rsync": lastWord, "scp": lastWord,
	"chmod": afterFirst, "chown": afterFirst, "chgrp": afterFirst,
}

// writingOptions lists options whose value is a file that the program writes.
var writingOptions = map[string]string{
	"cp": "-t --target-directory", "mv": "-t --target-directory", "ln": "-t --target-directory", "install": "-t --target-directory",
	"curl": "-o --output -D --dump-header -c --cookie-jar", "wget": "-O --output-document -o --output-file", "sort": "-o --output",
	"find": "-fprint -fprint0 -fls -fprintf",
}

// WritesTo returns the files that the command writes, moves or removes, resolved: through redirections, or through
// its program. A folder includes everything in it. Programs that choose their own files (formatters, compilers, git
// stash) are not covered.
func (c Command) WritesTo() []Word { return c.resolveAll(slices.Concat(c.Writes, c.writtenFiles())) }

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

// from returns the word from the given byte on.
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

// inPlace matches the options of sed and perl that edit files in place.
var inPlace = regexp.MustCompile(`^(-[^-efIMm]*i|--in-place)`)

func (c Command) writtenFiles() []Word {
	if len(c.Words) == 0 {
		return nil
	}
	name, args := path.Base(c.Words[0].Text), c.Words[1:]
	plain, named := splitOptions(args, writingOptions[name])
	has := func(matches func(string) bool) bool {
		return slices.ContainsFunc(args, func(w Word) bool { return matches(w.Text) })
	}
	switch {
	case name == "git":
		return gitWrites(args)
	case name == "dd":
		for _, a := range args {
			if strings.HasPrefix(a.Text, "of=") {
				named = append(named, a.from(len("of=")))
			}
		}
	case name == "find" && has(func(s string) bool { return s == "-delete" }), (name == "sed" || name == "perl") && has(inPlace.MatchString):
		return append(named, plain...)
	}
	switch writers[name] {
	case allWords:
		if name == "mv" && len(plain) > 1 {
			named = append(named, intoFolder(plain)[1:]...)
		}
		named = append(named, plain...)
	case lastWord:
		if len(plain) > 1 && len(named) == 0 {
			named = intoFolder(plain)
		} else if len(plain) == 1 { // ln -s a/b makes b
			named = append(named, Word{Text: path.Base(plain[0].Text), Known: plain[0].Known})
		}
	case afterFirst:
		named = append(named, plain[min(1, len(plain)):]...)
	}
	return named
}

// intoFolder returns the target of a copy, followed by the paths that the copies get if the target is a folder.
func intoFolder(plain []Word) []Word {
	target := plain[len(plain)-1]
	files := []Word{target}
	for _, w := range plain[:len(plain)-1] {
		files = append(files, Word{Text: path.Join(target.Text, path.Base(w.Text)), Known: target.Known && w.Known, Pattern: target.Known && w.Pattern})
	}
	return files
}

// splitOptions separates arguments into words that are not options, and the values of the listed options.
func splitOptions(args []Word, options string) (plain, values []Word) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, value, attached := strings.Cut(a.Text, "=")
		switch {
		case a.Text == "--" && a.Known:
			return append(plain, args[i+1:]...), values
		case len(a.Text) < 2 || a.Text[0] != '-':
			plain = append(plain, a)
			continue
		}
		for at := 1; at < len(a.Text) && a.Text[1] != '-' && !hasWord(options, name); at++ { // -abVALUE
			name, value, attached = "-"+a.Text[at:at+1], a.Text[at+1:], at+1 < len(a.Text)
		}
		switch {
		case !hasWord(options, name):
		case attached:
			values = append(values, Word{Text: value, Known: a.Known})
		case i+1 < len(args):
			i++
			values = append(values, args[i])
		}
	}
	return plain, values
}

// gitWrites returns the files among the words of a git command that it writes, moves or removes.
func gitWrites(args []Word) []Word {
	if len(args) == 0 {
		return nil
	}
	_, outputs := splitOptions(args[1:], "--output")
	has := func(options string) bool {
		return slices.ContainsFunc(args, func(w Word) bool { return hasWord(options, w.Text) })
	}
	plain, _ := splitOptions(args[1:], "-s --source --pathspec-from-file")
	switch command := args[0].Text; {
	case command == "rm" && !has("--cached"), command == "mv", command == "restore" && (!has("--staged -S") || has("--worktree -W")):
		return plain
	case command == "checkout":
		if i := slices.IndexFunc(args, func(w Word) bool { return w.Text == "--" && w.Known }); i >= 0 {
			return args[i+1:]
		}
	}
	return outputs
}
