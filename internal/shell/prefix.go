package shell

import (
	"strings"
)

// prefix is a program that runs another one: the words after its own.
type prefix struct {
	values  string // options with a value in the next word
	texts   string // options whose value is a text for a shell
	folder  string // options whose value is the folder
	skip    int    // words before the program that are not options
	assigns bool   // NAME=value words stand before the program
	joins   bool   // the words are joined to a text for a shell
	loose   bool   // options are not known exactly: the program may begin at any word
	remote  bool   // it runs elsewhere, in another folder
}

var prefixes = map[string]prefix{
	"sudo":              {values: "-u -g -h -p -C -r -t -T -U -R --user --group --host --prompt --close-from --role --type --command-timeout --other-user --chroot", folder: "-D --chdir", assigns: true},
	"doas":              {values: "-u -C", assigns: true},
	"env":               {values: "-u --unset -P -a --argv0", texts: "-S --split-string", folder: "-C --chdir", assigns: true},
	"nohup":             {},
	"time":              {values: "-f -o --format --output"},
	"timeout":           {values: "-k -s --kill-after --signal", skip: 1},
	"gtimeout":          {values: "-k -s --kill-after --signal", skip: 1},
	"nice":              {values: "-n --adjustment"},
	"ionice":            {values: "-c -n -p -P -u --class --classdata"},
	"stdbuf":            {values: "-i -o -e --input --output --error"},
	"setsid":            {},
	"command":           {},
	"builtin":           {},
	"exec":              {values: "-a"},
	"noglob":            {},
	"nocorrect":         {},
	"-":                 {},
	"busybox":           {},
	"toybox":            {},
	"chrt":              {values: "-T -P -D", skip: 1},
	"taskset":           {skip: 1},
	"chroot":            {values: "--userspec --groups", skip: 1, remote: true},
	"flock":             {values: "-w -E --timeout --conflict-exit-code", texts: "-c --command", skip: 1},
	"script":            {values: "-E -T -B -I -O -m -o --echo --log-timing --log-io --log-in --log-out --logging-format --output-limit", texts: "-c --command", loose: true},
	"su":                {values: "-s -g -G -w --shell --group --supp-group --whitelist-environment", texts: "-c --command --session-command", loose: true},
	"runuser":           {values: "-u -s -g -G --user --shell", texts: "-c --command", loose: true},
	"ssh":               {values: "-o -p -i -l -F -L -R -D -W -J -b -c -E -e -I -m -O -Q -S -w -B -P", skip: 1, joins: true, remote: true},
	"watch":             {values: "-n -q -s --interval --equexit --shotsdir", joins: true},
	"hyperfine":         {values: "-w -m -M -r -i -L -P -S -n --warmup --runs --shell --export-json --export-markdown", texts: "-p -c -s --prepare --cleanup --setup", joins: true},
	"pkexec":            {values: "-u --user"},
	"run0":              {loose: true},
	"gosu":              {skip: 1},
	"su-exec":           {skip: 1},
	"sg":                {texts: "-c", loose: true},
	"chpst":             {loose: true},
	"envdir":            {skip: 1},
	"tini":              {loose: true},
	"dumb-init":         {loose: true},
	"gtime":             {values: "-f -o --format --output"},
	"eatmydata":         {},
	"cgexec":            {values: "-g"},
	"schroot":           {loose: true, remote: true},
	"toolbox":           {loose: true, remote: true},
	"distrobox":         {loose: true, remote: true},
	"flatpak-spawn":     {loose: true},
	"entr":              {},
	"unbuffer":          {},
	"chronic":           {},
	"caffeinate":        {values: "-t -w"},
	"catchsegv":         {},
	"coproc":            {},
	"winpty":            {},
	"tsocks":            {},
	"torsocks":          {},
	"proxychains":       {values: "-f"},
	"proxychains4":      {values: "-f"},
	"fakeroot":          {values: "-l -s -i -u -b --lib --faked"},
	"faketime":          {skip: 1},
	"dbus-run-session":  {values: "--config-file --dbus-daemon"},
	"xvfb-run":          {values: "-e -f -n -p -s -w --error-file --auth-file --server-num --server-args"},
	"rlwrap":            {loose: true},
	"strace":            {values: "-a -b -e -E -I -o -O -p -P -s -S -u -U -X --trace --output", loose: true},
	"ltrace":            {loose: true},
	"valgrind":          {},
	"perf":              {loose: true},
	"numactl":           {loose: true},
	"prlimit":           {loose: true},
	"cpulimit":          {loose: true},
	"setpriv":           {loose: true},
	"capsh":             {loose: true},
	"unshare":           {loose: true},
	"nsenter":           {loose: true},
	"bwrap":             {loose: true},
	"firejail":          {loose: true},
	"systemd-run":       {loose: true},
	"start-stop-daemon": {loose: true},
	"daemonize":         {loose: true},
	"direnv":            {loose: true},
	"nix":               {texts: "--command", loose: true},
	"nix-shell":         {texts: "--run --command", loose: true},
	"devbox":            {loose: true},
	"mise":              {loose: true},
	"asdf":              {loose: true},
	"pixi":              {loose: true},
	"conda":             {loose: true},
	"mamba":             {loose: true},
	"uv":                {loose: true},
	"uvx":               {loose: true},
	"poetry":            {loose: true},
	"pipenv":            {loose: true},
	"pdm":               {loose: true},
	"hatch":             {loose: true},
	"rye":               {loose: true},
	"bundle":            {loose: true},
	"npx":               {texts: "-c --call", loose: true},
	"npm":               {texts: "-c --call", loose: true},
	"pnpm":              {texts: "-c --shell-mode", loose: true},
	"yarn":              {loose: true},
	"bunx":              {loose: true},
	"dotenv":            {loose: true},
	"dotenvx":           {loose: true},
	"op":                {loose: true},
	"doppler":           {texts: "--command", loose: true},
	"aws-vault":         {loose: true},
	"infisical":         {texts: "--command", loose: true},
	"watchexec":         {loose: true},
	"nodemon":           {texts: "-x --exec", loose: true},
	"tmux":              {loose: true},
	"screen":            {loose: true},
	"zellij":            {loose: true},
	"xterm":             {loose: true},
	"gnome-terminal":    {loose: true},
	"concurrently":      {loose: true},
	"docker":            {loose: true, remote: true},
	"podman":            {loose: true, remote: true},
	"nerdctl":           {loose: true, remote: true},
	"kubectl":           {loose: true, remote: true},
	"vagrant":           {texts: "-c --command", loose: true, remote: true},
	"wsl":               {loose: true, remote: true},
}

// needsVerb are loose prefixes that run another program only after one of these words.
var needsVerb = map[string]map[string]bool{
	"docker": makeSet("exec run compose"), "podman": makeSet("exec run compose"), "nerdctl": makeSet("exec run compose"),
	"kubectl": makeSet("exec run debug"), "npm": makeSet("exec x"), "pnpm": makeSet("exec dlx"), "yarn": makeSet("exec dlx run"),
	"uv": makeSet("run tool"), "poetry": makeSet("run"), "pipenv": makeSet("run"), "pdm": makeSet("run"), "hatch": makeSet("run"),
	"rye": makeSet("run"), "bundle": makeSet("exec"), "nix": makeSet("develop shell run"), "conda": makeSet("run"), "mamba": makeSet("run"),
	"pixi": makeSet("run exec"), "mise": makeSet("exec x"), "asdf": makeSet("exec"), "direnv": makeSet("exec"), "devbox": makeSet("run"),
	"op": makeSet("run"), "doppler": makeSet("run"), "infisical": makeSet("run"), "aws-vault": makeSet("exec"), "perf": makeSet("stat record trace"),
	"vagrant": makeSet("ssh"),
}

// splitOption splits a word into the option that takes a value and the value in the same word. takes
// reports that the value is the next word.
func splitOption(word, valued string) (name, value string, takes bool) {
	all := " " + valued + " "
	has := func(o string) bool { return strings.Contains(all, " "+o+" ") }
	if strings.HasPrefix(word, "--") {
		name, value, ok := strings.Cut(word, "=")
		return name, value, !ok && has(name)
	}
	for i := 1; i < len(word); i++ {
		if o := "-" + word[i:i+1]; has(o) {
			return o, word[i+1:], i+1 == len(word)
		}
	}
	return word, "", false
}

// runPrefix reads a command that runs the one of its later words.
func (r *reader) runPrefix(name string, p prefix, words []Word, at place) stream {
	r.emit(words, at, "")
	scope := r.mark()
	defer func() {
		if name != "exec" && name != "command" && name != "builtin" {
			r.undo(scope)
		}
	}()
	if p.remote {
		r.set(key{kindFolder, ""}, nil)
	}
	if name == "exec" && len(words) == 1 && (!at.in.known || at.in.text != "") && at.in.file.Text != "/dev/null" {
		r.unknown("exec changes what the shell reads")
	}
	verbs, verb := needsVerb[name], needsVerb[name] == nil
	rest, skip := words[1:], p.skip
	for len(rest) > 0 {
		w := rest[0]
		isOption := strings.HasPrefix(w.Text, "-") && w.Text != "-"
		switch {
		case w.Text == "--" && w.Known:
			rest = rest[1:]
			if skip == 0 && verb {
				return r.runRest(name, p, rest, at)
			}
			continue
		case isOption && !w.Known:
			r.unknown("%s may run a program that is not known: %s", name, sayWords(words))
		case isOption:
			if (name == "command") && (w.Text == "-v" || w.Text == "-V") {
				if len(rest) == 2 && rest[1].Known {
					return stream{text: rest[1].Text + "\n", known: true}
				}
				return stream{}
			}
			o, value, takes := splitOption(w.Text, p.values+" "+p.texts+" "+p.folder)
			given := Word{Text: value, Known: true}
			if takes {
				if rest = rest[1:]; len(rest) == 0 {
					return stream{}
				}
				given = rest[0]
			}
			rest = rest[1:]
			switch {
			case strings.Contains(" "+p.texts+" ", " "+o+" "):
				if name == "env" { // splits the text and adds what follows
					return r.splitEnv(given, rest, at)
				}
				r.readCommandText(given, name+" "+o)
			case strings.Contains(" "+p.folder+" ", " "+o+" "):
				r.changeFolder(given, false)
			case name == "ssh" && o == "-o":
				r.checkSSHOption(given)
			}
			continue
		case p.assigns && isAssignment(w.Text):
			if w.Known {
				r.assignText(w.Text, true)
			} else {
				n, _, _ := strings.Cut(w.Text, "=")
				r.checkVariable(n, Word{})
				r.set(key{kindVariable, n}, nil)
			}
		case skip > 0:
			if w.split {
				r.unknown("%s may run a program that is not known: %s", name, sayWords(words))
			}
			if skip--; p.loose {
				skip = 0
			}
		case !verb:
			verb = verbs[w.Text] || !w.Known
		default:
			return r.runRest(name, p, rest, at)
		}
		rest = rest[1:]
	}
	return stream{}
}

// runRest reads the words after a prefix's own.
func (r *reader) runRest(name string, p prefix, rest []Word, at place) stream {
	inner := place{in: at.in, writes: at.writes, external: name != "noglob" && name != "nocorrect" && name != "-" && name != "coproc"}
	if p.joins {
		if len(rest) == 0 {
			return stream{}
		}
		return r.readCommandText(r.joined(rest), name)
	}
	if !p.loose {
		return r.runWords(rest, inner)
	}
	for i := 0; i < min(len(rest), 12); i++ {
		w := rest[i]
		switch {
		case w.Known && strings.HasPrefix(w.Text, "-"):
			if o, value, _ := splitOption(w.Text, p.texts); strings.Contains(" "+p.texts+" ", " "+o+" ") && value == "" && i+1 < len(rest) {
				i++
				r.readCommandText(rest[i], name+" "+o)
			}
		case w.Known && strings.ContainsAny(w.Text, " \t\n;&|"):
			r.readInner(w.Text, nil, stream{})
		case w.Known && w.Text != ".":
			r.runWords(rest[i:], inner)
		case i == 0 && !w.Known:
			r.unknown("%s runs a program that is not known before it runs", name)
		}
	}
	return stream{}
}

func isAssignment(text string) bool {
	name, _, ok := strings.Cut(text, "=")
	return ok && name != "" && !strings.ContainsAny(name, " /-")
}

// splitEnv reads env -S: the text's words, then those that follow.
func (r *reader) splitEnv(text Word, rest []Word, at place) stream {
	if !text.Known || strings.ContainsAny(text.Text, "\\$'\"") {
		return r.readCommandText(r.joined(append([]Word{text}, rest...)), "env -S")
	}
	words := []Word{{Text: "env", Known: true}}
	for f := range strings.FieldsSeq(text.Text) {
		words = append(words, Word{Text: f, Known: true})
	}
	return r.runWords(append(words, rest...), place{in: at.in, writes: at.writes, external: true})
}

// checkSSHOption reads options of ssh that run a command here.
func (r *reader) checkSSHOption(w Word) {
	i := strings.IndexAny(w.Text, "= ")
	if i < 0 {
		return
	}
	switch name := w.Text[:i]; strings.ToLower(name) {
	case "proxycommand", "localcommand", "knownhostscommand":
		r.readCommandText(Word{Text: w.Text[i+1:], Known: w.Known}, "ssh -o "+name)
	}
}

// optionTexts are options of programs that are no prefixes otherwise, whose value a shell runs.
var optionTexts = map[string]string{
	"tar":   "--to-command --use-compress-program -I --rsh-command --checkpoint-action --info-script --new-volume-script -F",
	"split": "--filter",
	"rsync": "-e --rsh --rsync-path",
	"scp":   "-S",
	"sftp":  "-S",
	"sort":  "--compress-program",
	"man":   "-P --pager",
	"zip":   "-TT --unzip-command",
	"less":  "",
	"rg":    "--pre",
	"fd":    "-x -X --exec --exec-batch",
	"socat": "",
	"nc":    "-e -c",
	"ncat":  "-e -c --exec --sh-exec",
}

// checkOptions reads options whose value is a command.
func (r *reader) checkOptions(name string, words []Word) {
	valued, ok := optionTexts[name]
	if !ok {
		return
	}
	for i, w := range words[1:] {
		if name == "socat" {
			for _, kind := range []string{"EXEC:", "SYSTEM:", "exec:", "system:"} {
				if _, text, ok := strings.Cut(w.Text, kind); ok {
					text, _, _ = strings.Cut(text, ",")
					r.readCommandText(Word{Text: text, Known: w.Known}, "socat")
				}
			}
			continue
		}
		if !strings.HasPrefix(w.Text, "-") {
			continue
		}
		o, value, takes := splitOption(w.Text, valued)
		if !strings.Contains(" "+valued+" ", " "+o+" ") {
			continue
		}
		given := Word{Text: value, Known: w.Known}
		if takes {
			if i+2 >= len(words) {
				return
			}
			given = words[i+2]
			if name == "fd" {
				r.runWords(words[i+2:], place{external: true})
				return
			}
		}
		if o == "--checkpoint-action" {
			var runs bool
			if given.Text, runs = strings.CutPrefix(given.Text, "exec="); !runs && given.Known {
				continue
			}
		}
		r.readCommandText(given, name+" "+o)
	}
}

// runXargs reads xargs: the words that it reads follow those of the command, or stand in them.
func runXargs(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	const valued = "-I -n -P -L -s -d -E -a --max-args --max-procs --max-lines --max-chars --delimiter --arg-file --replace --process-slot-var"
	in, rest, replace := r.contents(at.in), words[1:], ""
	for len(rest) > 0 && strings.HasPrefix(rest[0].Text, "-") {
		w := rest[0]
		rest = rest[1:]
		if w.Text == "--" {
			break
		}
		o, value, takes := splitOption(w.Text, valued)
		if takes && len(rest) > 0 {
			value, rest = rest[0].Text, rest[1:]
		}
		switch o {
		case "-I", "--replace":
			replace = value
			if value == "" {
				replace = "{}"
			}
		case "-a", "--arg-file", "-d", "--delimiter", "-E":
			in = stream{}
		}
		if !w.Known || strings.HasPrefix(w.Text, "-i") {
			in, replace = stream{}, "{}"
		}
	}
	inner := place{writes: at.writes, in: stream{known: true}, external: true}
	if len(rest) == 0 {
		return stream{}
	}
	plain := in.known && !strings.ContainsAny(in.text, "'\"\\")
	if replace == "" {
		given := []Word{{split: true}}
		if plain {
			given = nil
			for f := range strings.FieldsSeq(in.text) {
				given = append(given, Word{Text: f, Known: true})
			}
		}
		if len(given) > maxUnroll*4 {
			given = []Word{{split: true}}
		}
		return r.inSubshell(func() stream { return r.runWords(append(append([]Word{}, rest...), given...), inner) })
	}
	lines := strings.Split(strings.TrimSuffix(in.text, "\n"), "\n")
	if !plain || len(lines) > maxUnroll {
		lines = []string{""}
		plain = false
	}
	for _, line := range lines {
		r.inSubshell(func() stream {
			return r.runWords(replaceIn(rest, replace, Word{Text: strings.TrimSpace(line), Known: plain}), inner)
		})
	}
	return stream{}
}

// replaceIn puts a word where a mark stands in words.
func replaceIn(words []Word, mark string, w Word) []Word {
	out := make([]Word, len(words))
	for i, o := range words {
		if strings.Contains(o.Text, mark) {
			o.Text = strings.ReplaceAll(o.Text, mark, w.Text)
			o.Known = o.Known && w.Known
			if !w.Known && len(o.Text) == 0 {
				o.base = false
			}
		}
		if len(o.Text) > maxValue {
			o = Word{}
		}
		out[i] = o
	}
	return out
}

// runFind reads find: what -exec and its like run, with a name of a file in the place of {}.
func runFind(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	for i := 1; i < len(words); i++ {
		switch words[i].Text {
		case "-exec", "-execdir", "-ok", "-okdir":
		default:
			continue
		}
		end := i + 1
		for end < len(words) && words[end].Text != ";" && (words[end].Text != "+" || words[end-1].Text != "{}") {
			end++
		}
		inside := words[i+1 : end]
		r.inSubshell(func() stream {
			if strings.HasSuffix(words[i].Text, "dir") {
				r.set(key{kindFolder, ""}, nil)
			}
			return r.runWords(replaceIn(inside, "{}", Word{}), place{in: at.in, external: true})
		})
		i = end
	}
	return stream{}
}

// runParallel reads GNU parallel: a text of a shell for each argument.
func runParallel(r *reader, words []Word, at place) stream {
	r.emit(words, at, "")
	const valued = "-j -n -N -L -S -I -a --jobs --colsep --results --joblog --delay --timeout --retries --workdir --tmpdir --arg-file --sshlogin"
	rest := words[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0].Text, "-") {
		_, _, takes := splitOption(rest[0].Text, valued)
		if rest = rest[1:]; takes && len(rest) > 0 {
			rest = rest[1:]
		}
	}
	given, command := []Word{{}}, rest
	for i, w := range rest {
		if strings.HasPrefix(w.Text, ":::") {
			command, given = rest[:i], rest[i+1:]
			if w.Text != ":::" {
				given = []Word{{}}
			}
			break
		}
		if in := r.contents(at.in); i == len(rest)-1 && in.known {
			given = nil
			for l := range strings.SplitSeq(strings.TrimSuffix(in.text, "\n"), "\n") {
				given = append(given, Word{Text: l, Known: true})
			}
		}
	}
	if len(given) > maxUnroll {
		given = []Word{{}}
	}
	for _, w := range given {
		if !w.Known && len(command) > 0 && !strings.Contains(joinWords(command), "{") {
			r.runWords(append(append([]Word{}, command...), Word{split: true}), place{external: true})
			continue
		}
		text := r.joined(append(append([]Word{}, command...), w))
		if strings.Contains(joinWords(command), "{}") {
			text = r.joined(replaceIn(command, "{}", w))
		}
		r.readCommandText(text, "parallel")
	}
	return stream{}
}
