package shell

import (
	"strings"
)

// wrapper is a program that runs the command in its words. With an option that is not listed, it is treated like any
// other program, whose words may mention another one.
type wrapper struct {
	flags   string // options without a value
	values  string // options with a value
	folder  string // the value options that name the command's working folder
	assigns bool   // VAR=value may come before the command
	skip    int    // number of words before the command
}

var wrappers = map[string]wrapper{
	"sudo": {
		flags:  "-A -b -E -H -n -k -K -P -S -i -s --askpass --background --preserve-env --set-home --non-interactive --reset-timestamp --remove-timestamp --preserve-groups --stdin --login --shell",
		values: "-u -g -h -p -C -T -U -r -t -D -R --user --group --host --prompt --close-from --command-timeout --other-user --role --type --chdir --chroot",
		folder: "-D --chdir -R --chroot", assigns: true,
	},
	"doas":    {flags: "-n -L", values: "-u -C"},
	"env":     {flags: "-i -0 -v - --ignore-environment --null --debug", values: "-u -C --unset --chdir", folder: "-C --chdir", assigns: true},
	"time":    {flags: "-p -v -a -q --portability --verbose --append --quiet", values: "-f -o --format --output"},
	"timeout": {flags: "-f -p -v --foreground --preserve-status --verbose", values: "-k -s --kill-after --signal", skip: 1},
	"nice":    {values: "-n --adjustment"},
	"ionice":  {flags: "-t --ignore", values: "-c -n --class --classdata"},
	"nohup":   {},
	"setsid":  {flags: "-c -f -w --ctty --fork --wait"},
	"stdbuf":  {values: "-i -o -e --input --output --error"},
	"xargs": {
		flags:  "-0 -o -p -r -t -x --null --open-tty --interactive --no-run-if-empty --verbose --exit",
		values: "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-args --max-procs --max-chars",
	},
	"command": {flags: "-p -v -V"},
	"builtin": {},
	"exec":    {flags: "-c -l", values: "-a"},
	"busybox": {},
}

// option is one option of a wrapper in the line.
type option struct {
	name  string
	value Word
}

// parseOptions separates options from the remaining words. ok is false if an option is not listed or not a literal
// word.
func parseOptions(words []Word, flags, values string) (options []option, rest []Word, ok bool) {
	for rest = words; len(rest) > 0; {
		w := rest[0]
		if !w.Known && w.lead == 0 {
			return options, rest, !w.split && w.Text != "" && w.Pattern
		}
		if !strings.HasPrefix(w.Text, "-") || w.Text == "-" && !hasWord(flags, "-") {
			return options, rest, true
		}
		rest = rest[1:]
		if w.Text == "--" {
			return options, rest, true
		}
		if w.split {
			return options, rest, false
		}
		name, value, attached := strings.Cut(w.Text, "=")
		if !strings.HasPrefix(w.Text, "--") { // -abVALUE
			name = w.Text[:min(2, len(w.Text))]
			for hasWord(flags, name) && len(w.Text) > 2 {
				options = append(options, option{name: name})
				w.Text, w.lead = "-"+w.Text[2:], w.lead-1
				name = w.Text[:2]
			}
			value, attached = w.Text[len(name):], len(w.Text) > len(name)
		}
		given := Word{Text: value, Known: w.Known}
		switch {
		case hasWord(flags, name) && w.Known && (!attached || strings.HasPrefix(name, "--")):
		case !hasWord(values, name) || !w.Known && w.lead <= len(name): // -u"$x"
			return options, rest, false
		case !attached:
			if len(rest) == 0 || rest[0].split {
				return options, rest, false
			}
			given, rest = rest[0], rest[1:]
		}
		options = append(options, option{name, given})
	}
	return options, nil, true
}

// runWrapper reads a wrapper and the command that it runs.
func (r *reader) runWrapper(name string, w wrapper, words []Word, p execContext) {
	args := words[1:]
	for name == "nice" && len(args) > 0 && len(args[0].Text) > 1 && args[0].Text[0] == '-' && strings.Trim(args[0].Text[1:], "0123456789") == "" { // -5
		args = args[1:]
	}
	options, rest, ok := parseOptions(args, w.flags, w.values)
	folder := Word{Known: true}
	replaced := ""
	shell := false
	for _, o := range options {
		switch {
		case w.folder != "" && hasWord(w.folder, o.name):
			folder = o.value
		case name == "command" && (o.name == "-v" || o.name == "-V"):
			r.emit(words, p, false)
			return
		case name == "xargs" && o.name == "-I":
			replaced = o.value.Text
			ok = ok && o.value.Known && replaced != ""
		case name == "time":
			r.recordPassed(o.value.Text) // time may write its format to a file
		case name == "sudo" && (o.name == "-i" || o.name == "-s" || o.name == "--login" || o.name == "--shell"):
			shell = true
		}
	}
	for ok && w.assigns && len(rest) > 0 && isAssignment(rest[0]) {
		ok = !rest[0].split
		r.assignText(rest[0], p.at, &p)
		rest = rest[1:]
	}
	for range w.skip {
		if len(rest) > 0 {
			ok = ok && !rest[0].split
			rest = rest[1:]
		}
	}
	if !ok {
		r.emit(words, p, false)
		r.unknown(p.at, "", "the options of %s are not known: `%s`; run the command without it", name, quoteWords(words))
		return
	}
	if len(rest) == 0 {
		r.emit(words, p, name != "exec")
		r.redirected = r.redirected || name == "exec" && len(p.writes) > 0
		if shell {
			r.unknown(p.at, "", "%s opens a shell that runs its input; write the commands into the line", name)
		}
		return
	}
	r.emit(words, p, true)
	if folder.Text != "" || !folder.Known {
		defer r.keepFolders()()
		r.changeFolder(folder)
		r.failed = nil
	}
	if name == "xargs" {
		if rest = append(rest[:len(rest):len(rest)], Word{split: true}); replaced != "" {
			rest = replaceWords(rest[:len(rest)-1], replaced)
		}
	}
	r.runWords(append([]Word(nil), rest...), p)
}

// isAssignment reports whether a word has the form VAR=value.
func isAssignment(w Word) bool {
	name, _, ok := strings.Cut(w.Text, "=")
	return ok && name != "" && len(name) < w.lead && !strings.HasPrefix(name, "-")
}

// replaceWords returns words in which any text may replace the given placeholder.
func replaceWords(words []Word, replaced string) []Word {
	out := make([]Word, len(words))
	for i, w := range words {
		if at := strings.Index(w.Text, replaced); at >= 0 {
			w.Known, w.Pattern, w.lead = false, false, min(at, w.lead)
		}
		out[i] = w
	}
	return out
}

// runFind reads find and the commands that it runs for each file.
func (r *reader) runFind(words []Word, p execContext) {
	r.emit(words, p, false)
	for i := 1; i < len(words); i++ {
		action := words[i].Text
		if !hasWord("-exec -execdir -ok -okdir", action) {
			continue
		}
		var inner []Word
		for i++; i < len(words) && words[i].Text != ";" && words[i].Text != "+"; i++ {
			inner = append(inner, words[i])
		}
		keep := r.keepFolders()
		if strings.HasSuffix(action, "dir") {
			r.changeFolder(Word{})
		}
		r.runWords(replaceWords(inner, "{}"), p)
		keep()
	}
}
