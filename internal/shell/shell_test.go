package shell_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/shell"
)

// say formats a script as a row: its commands, U for a part in which any program may run, and u[...] for a part that
// may mention a program.
func say(s shell.Script) string {
	var rows []string
	for i, c := range s.Commands {
		row := sayCommand(c)
		if i == s.Whole {
			row = "W:" + row
		}
		rows = append(rows, row)
	}
	for _, u := range s.Unknown {
		if u.Program {
			rows = append(rows, "U")
		} else {
			rows = append(rows, "u["+strings.Join(strings.Fields(u.Text), " ")+"]")
		}
	}
	return strings.Join(rows, "; ")
}

func sayCommand(c shell.Command) string {
	words := make([]string, len(c.Words))
	for i, w := range c.Words {
		words[i] = sayWord(w)
	}
	row := strings.Join(words, " ")
	for _, w := range c.Writes {
		row += " >" + sayWord(w)
	}
	for _, w := range c.Reads {
		row += " <" + sayWord(w)
	}
	if !c.Folder.Known {
		row += " @?"
	} else if c.Folder.Text != "" {
		row += " @" + c.Folder.Text
	}
	return row
}

func sayWord(w shell.Word) string {
	if strings.ContainsAny(w.Text, " \n") || w.Text == "" && w.Known {
		w.Text = fmt.Sprintf("%q", w.Text)
	}
	switch {
	case w.Pattern:
		w.Text += "~"
	case !w.Known:
		w.Text += "?"
	}
	return w.Text
}

func TestRead(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		// words
		{`g\it 'pu'"sh" $'\x6f'`, "W:git push o"},
		{`echo "a\$b \c" 'x\y' \*`, `W:echo "a$b \\c" x\y *`},
		{`git {push,-q}{,x}`, "git **~; u[git **]"},
		{`echo {1..9} {a,{b,c}d} a{b`, "echo {1..9}? **~ a{b"},
		{`ls *.go "*.go" a[bc] ?`, "ls *.go~ *.go a[bc]~ ?~"},
		{`echo ~/a ~ann/b $HOME/c "$HOME" a$HOME ${HOME}x "${HOME:-y}"`, "echo ~/a ~ann/b? ~/c ~ a? x? ?"},
		{"git pu\\\nsh", "W:git push"},
		{`a$x; "a$x"b c$y`, "a?; ab? c?; U; U"},

		// structure
		{"a | b && c || d; e & f", "a; b; c; d; e; f"},
		{"(a; { b; }) ; ! c; time -p d", "a; b; c; d"},
		{"if a; then b; elif c; then d; else e; fi", "a; b; c; d; e"},
		{"while a; do b; done; until c; do d; done", "a; b; c; d"},
		{"for i in x $(ls); do a $i; done", "ls; a ?"},
		{"for ((i=0; i<$(n); i++)); do a; done", "n; a"},
		{"case $(w) in $(p)) a ;; *) b ;; esac", "w; p; a; b"},
		{"echo $(a `b`) <(c) >(d) $((1+$(e)))", "b; a ?; c; d; e; echo ? ? ? ?"},
		{"cat <<E\n$(a)\nE\ncat <<'E'\n$(b)\nE", "a; cat; cat"},
		{"f() { a $1; }; f x; f y", "a ?; f x; f y"},
		{"coproc a; [[ -n $(b) ]]; ((x=$(c))); let x=$(d); declare x=$(e)", "a; b; c; d; e"},
		{"x[$(a)]=1; y=($(b)); z=$(c) d", "a; b; c; d"},
		{"a > x >> y 2> z >| w &> v < in 2>&1", "W:a >x >y >z >w >v <in"},
		{"> x; { a; } > y", ": >x; : >y; a"},
		{"eval a 'b;c'; trap 'd' EXIT; trap - INT", "eval a b;c; a b; c; trap d EXIT; d; trap - INT"},
		{`eval "$x"; trap "$y" EXIT`, "eval ?; trap ? EXIT; U; U"},

		// wrappers
		{"sudo -u ann -E A=b git push", "W:sudo -u ann -E A=b git push; git push"},
		{"sudo --user=ann -nH git push", "W:sudo --user=ann -nH git push; git push"},
		{"nohup timeout -k 1 5 nice -n5 nice -5 git push", "W:nohup timeout -k 1 5 nice -n5 nice -5 git push; timeout -k 1 5 nice -n5 nice -5 git push; nice -n5 nice -5 git push; nice -5 git push; git push"},
		{"env -i -u X A=b git push", "W:env -i -u X A=b git push; git push"},
		{"exec -a x git push; command -p git push; command -v git", "exec -a x git push; git push; command -p git push; git push; command -v git"},
		{"stdbuf -oL setsid -w ionice -c 3 time -p a", "W:stdbuf -oL setsid -w ionice -c 3 time -p a; setsid -w ionice -c 3 time -p a; ionice -c 3 time -p a; time -p a; a"},
		{"xargs -0 -n 1 a b; xargs; xargs -I% a x% y; xargs -i -l a {}", "xargs -0 -n 1 a b; a b ?; xargs; xargs -I% a x% y; a x%? y; xargs -i -l a {}; U"},
		{"find a b -name x -exec rm {} + -o -execdir c \\; -delete", "W:find a b -name x -exec rm {} + -o -execdir c ; -delete; rm {}?; c @?"},
		{"env A=$x a; sudo -u$x a; env A=\"$x\" a; sudo -u\"$x\" b", "env A=? a; sudo -u? a; env A=? a; a; sudo -u? b; U; U; U"},
		{"sudo $x a; timeout $n a; sudo --new a; sudo -s", "sudo ? a; timeout ? a; sudo --new a; sudo -s; U; U; U; U"},
		{"bash -euo pipefail -c 'a; b' x; busybox sh -c c", "bash -euo pipefail -c \"a; b\" x; a; b; busybox sh -c c; sh -c c; c"},
		{"sh a.sh; . ./b; bash; sh -c \"$x\"; bash \"$y\"; source <(c)", "sh a.sh; . ./b; bash; sh -c ?; bash ?; c; source ?; U; U; U; U"},
		{"bash -s x <<'E'\na\nE\nsh <<< b", "bash -s x; a; sh; b"},
		{"curl u | sh 3<<< a", "curl u; sh; U"},
		{"curl u | sh; sh < a; bash <<E\n$x\nE", "curl u; sh; sh <a; bash; U; U; U"},

		// git
		{"git -C x --no-pager -c color.ui=never push -f", "W:git push -f @x"},
		{"git --version; git; git status", "git; git; git status"},
		{"git st; git $x; git -c a.b=c log", "git st; git ?; git log; u[git st]; u[git]; u[git -c a.b=c log]"},
		{"/usr/lib/git-core/git-push a; git-lfs pull", "git push a; git lfs pull"},
		{"git config a.b c; git config user.name d; git config --get a.b; git config a.b", "git config a.b c; git config user.name d; git config --get a.b; git config a.b; u[git config a.b c]"},
		{"GIT_SSH_COMMAND=a git fetch; GIT_AUTHOR_NAME=b git commit; XDG_CONFIG_HOME=c d", "git fetch; git commit; d; u[git GIT_SSH_COMMAND=a]; u[git XDG_CONFIG_HOME=c]"},
		{"HOME=/x make", "make"},
	} {
		if got := say(shell.Read(c.line)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
		}
	}
}

func TestWhole(t *testing.T) {
	whole := func(line string) string {
		s := shell.Read(line)
		if s.Whole < 0 {
			return ""
		}
		return sayCommand(s.Commands[s.Whole])
	}
	for _, line := range []string{
		"make test", "make test > log 2>&1", "cd . && make test", "time make test", "set -e; make test", "set -euo pipefail && cd . && time make test | tee log | tail -5",
		"set -o pipefail; make test 2>&1 | tail -20", "  make test  # all", "set -o pipefail && make test | { cat; }", "make test < /dev/null;",
	} {
		if got := whole(line); !strings.HasPrefix(got, "make test") {
			t.Errorf("%s: %q", line, got)
		}
	}
	for _, line := range []string{
		"make test || true", "make test; true", "false && make test; true", "if false; then make test; fi", "make test -q || :", "make test 2>&1 | tail -5",
		"(make test &) ; sleep 0", "f(){ make test; }; true", "true || make test", "case x in y) make test;; esac", "cat <<E | true\nmake test\nE", "! make test", "make test &",
		"{ make test; }", "echo \"$(make test)\"", "PATH=. make test", "A=b make test", "make() { :; }; make test", "make test | tail", "set -n; make test", "set -o noexec; make test",
		"set +e; make test", "set -o pipefail; cd a; make test", "make test && true", "cd a && cd b && make test", "cd \"$x\" && make test", "make \"$x\"", "make $(echo test)", "git -c a.b=c status",
		"set -o pipefail && ! make test | tail", "true | make test", "cd a || make test", "exec > x; make test", "", "A=b", "[[ a ]]", "time (make test)", "set -e; set -e; make test", "eval \"$x\"; make test",
		"set -e && make test &", "cd a && make test &", "set -o pipefail; make test | exit 0", "set -o pipefail; make test | { exit 0; }", "set -o pipefail; make test | trap 'exit 0' EXIT",
	} {
		if got := whole(line); got != "" {
			t.Errorf("%s: %q", line, got)
		}
	}
	for _, line := range []string{"timeout 1 make test", "env true make test", "sh -c 'exit 0; make test'", "nice make test"} {
		if got := whole(line); strings.HasPrefix(got, "make") || got == "" {
			t.Errorf("%s: %q is not the wrapper", line, got)
		}
	}
}

// A command may run in both folders if an earlier cd may have failed, and in an unknown one if that cannot be
// determined.
func TestFolders(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"cd a && rm b; cd .. && rm c; cd /d; rm e", "../c ../e /d/e a/b a/e c e"},
		{"cd a; rm b", "a/b b"},
		{"cd a || exit 1; rm b", "a/b b"},
		{"cd a || { echo no; exit 1; }; rm b; (cd c); rm d", "a/b a/d b d"},
		{"if x; then cd a; fi; rm b", "a/b b"},
		{"x && cd a; rm b", "a/b b"},
		{"cd \"$x\" && rm b; rm /c ~/d", "/c b? ~/d"},
		{"cd && rm a; cd - && rm b", "b? ~/a"},
		{"cd a | x; (cd b); cd c & rm d", "d"},
		{"for x in 1 2; do rm a; cd b; done", "a?"},
		{"f() { rm a; }; cd b && f", "a?"},
		{"trap 'rm a' EXIT; cd b", "a?"},
		{"CDPATH=/x; cd a && rm b", "b?"},
		{"pushd a && rm b; popd; rm c", "a/b c?"},
		{"cd -P a && rm b; cd a b && rm c", "a/b c?"},
		{"env -C a rm b; sudo -D /c rm d; git -C e rm f; git -C \"$x\" rm g; rm h", "/c/d a/b e/f g? h"},
		{"cd a && git -C .. -C b rm c", "b/c"},
		{"cd a; cd b; cd c; rm d", "d?"},
	} {
		var files []string
		for _, command := range shell.Read(c.line).Commands {
			if path.Base(command.Words[0].Text) == "rm" || command.Words[0].Text == "git" {
				for _, w := range command.WritesTo() {
					files = append(files, sayWord(w))
				}
			}
		}
		slices.Sort(files)
		if got := strings.Join(files, " "); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
		}
	}
}

func TestRepository(t *testing.T) {
	for line, want := range map[string]string{
		"git push": `""`, "git --git-dir=a/.git push": "a/.git", "git --work-tree a push": "a", "git --git-dir a --work-tree b push": "a",
		"GIT_DIR=/a git push": "/a", "GIT_WORK_TREE=a git push": "a", "cd x && git --git-dir=a push": "x/a", "env GIT_DIR=a git push": "a", "git --git-dir=\"$x\" push": "?",
	} {
		s := shell.Read(line)
		if got := sayWord(s.Commands[len(s.Commands)-1].Repository); got != want && !(want == `""` && got == "?") {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
		if len(s.Unknown) > 0 {
			t.Errorf("%s: %+v", line, s.Unknown)
		}
	}
}

func TestWritesTo(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"cat a b; go test ./x; pytest tests/; grep -r a tests; git diff; git status; git stash; black .; tar -xf a; patch a b", ""},
		{"echo a > b; echo a >> c/d; cat <<E > /e\nE", "/e b c/d"},
		{"rm -rf -- a b; mv c d; touch -r x e; tee -a f", "a b c d d/c e f x"},
		{"cp a b; cp -t c d; ln -s e f; ln -s x/y; install -m 644 g h; dd if=i of=j", "644 b b/a c d f f/e g h j y"},
		{"sed -i s/a/b/ c; sed -i -e x d; sed -ni.bak p e; sed s/a/b/ f; perl -pi -e x g; perl -e x h", "c d e g p s/a/b x x"},
		{"truncate -s0 a; rsync -a e/ f; scp -P 1 g h:i; chmod 600 j; chown a k; shred -n 1 l; unlink m", "1 a f f/e h:i h:i/1 h:i/g j k l m"},
		{"find a -delete; find b -name c; find -fprint d; sort -o i j; curl -so a u; wget -O b u", "a a b d i"},
		{"git checkout -- a; git checkout b; git restore c; git rm d; git mv e f; git restore --staged g; git rm --cached h", "a c d e f"},
		{"git checkout -b x; git reset HEAD a; git clean -n; git commit -m x; git push", ""},
		{"rm *.o src/*.o a/b*/c \"$X\" a/*/../../d", "*.o~ ? a/*/../../d? a/b*/c~ src/*.o~"},
		{"cd a && rm *.o b/", "a/*.o~ a/b"},
		{"find a -exec sed -i x {} +", "x {}?"},
	} {
		var files []string
		for _, command := range shell.Read(c.line).Commands {
			for _, w := range command.WritesTo() {
				files = append(files, sayWord(w))
			}
		}
		slices.Sort(files)
		if got := strings.Join(files, " "); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
		}
	}
}

func TestReadsFrom(t *testing.T) {
	for line, want := range map[string]string{
		"cat .env":                       ".env",
		"cat .env* .en?":                 ".en?~ .env*~",
		"cat < .env":                     ".env",
		"cd a && cat .env \"$x\"":        "? a/.env",
		"git show HEAD:.env":             ".env HEAD:.env show",
		"cp .env a; tar cf x.tar .env":   ".env .env a cf x.tar",
		"curl -d @.env u":                "-d .env @.env u",
		"grep -f.env --file=b x":         "--file=b -f.env .env b x",
		"dd if=.env of=x":                ".env if=.env of=x x",
		"git -C b show HEAD:a/.env":      "b/HEAD:a/.env b/a/.env b/show",
		"while read x; do a; done <.env": ".env x",
	} {
		var files []string
		for _, command := range shell.Read(line).Commands {
			for _, w := range command.ReadsFrom() {
				files = append(files, sayWord(w))
			}
		}
		slices.Sort(files)
		if got := strings.Join(slices.DeleteFunc(files, func(f string) bool { return f == "a" && strings.HasPrefix(line, "cd") }), " "); got != want {
			t.Errorf("%s\n got %s\nwant %s", line, got, want)
		}
	}
}

func TestMentionsProgram(t *testing.T) {
	for _, c := range []struct {
		text, name string
		want       bool
	}{
		{"git", "git", true},
		{"exec git push", "git", true},
		{"GIT push", "git", true},
		{"/usr/bin/git", "git", true},
		{`system("git","push")`, "git", true},
		{`a\ngit push`, "git", true},
		{"-cgit push", "git", true},
		{"-qcgit push", "git", true},
		{"x=git", "git", true},
		{"git.exe", "git", true},
		{"/usr/lib/git-core/git-push", "git", true},
		{"git@", "git", true},
		{"", "git", false},
		{"git", "", false},
		{"gitk legit git-lfs .git git.go a-git", "git", false},
		{"git@github.com:a/b git+ssh://x git://y", "git", false},
		{"--rm", "rm", false},
		{"form rm2 rm.txt", "rm", false},
		{"unlink x", "un*", true},
		{"sun x", "un*", false},
	} {
		if got := shell.MentionsProgram(c.text, c.name); got != c.want {
			t.Errorf("%q in %q: %v", c.name, c.text, got)
		}
	}
}

// Text that the line passes on may be run by another program.
func TestPassed(t *testing.T) {
	for line, want := range map[string]string{
		"echo a b | x":                            "a b",
		"echo a | tr b c | x":                     "a b c",
		"x <<< a":                                 "a",
		"x <<E\na $(echo b)\nE":                   "b a",
		"{ x; } <<< a":                            "a",
		"while x; do :; done < <(echo a)":         "a",
		"x $(echo a)":                             "a",
		"echo a | sudo x":                         "a",
		"git log a | x":                           "log a",
		"sudo git log a | x":                      "log a",
		"x; echo a":                               "",
		"(echo a; echo b) | x":                    "a b",
		"x \"${y:-a b}\"":                         "a b",
		"find . -exec echo a \\; | x":             ". -exec echo a ; a",
		"y=a x; export z=b":                       "a b",
		"printf -v y a; read b; set -- c":         "-v y a b -- c",
		"echo a > f; { echo b; } > g; echo c >&2": "a b",
		"echo {a,b}":                              "{a,b}",
		"f() { echo a; }; exec > g; echo b":       "a b",
	} {
		if got := strings.Join(strings.Fields(shell.Read(line).Passed), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// A plain program runs nothing from its words. A function or an alias of the same name may.
func TestPlain(t *testing.T) {
	for line, want := range map[string]bool{
		"ls": true, "/bin/ls": true, "./ls": false, "echo a": true, "cat": true, "awk x": false, "sed x": false, "make": false, "git status": true, "git commit -m x": true,
		"git push": true, "git rebase -x a": false, "git rebase --exec=a": false, "git rebase main": true, "git fetch --upload-pack=a": false, "git clone -u a b": false, "git push -u a b": true,
		"git fetch ext::a": false, "git grep -Oa b": false, "git submodule foreach a": false, "git bisect run a": false, "git difftool": false, "git clone git@a:b": true,
		"sort a": true, "sort --compress-program=a b": false, "rg a": true, "rg --pre a b": false, "rg $x": false, "find . -name a": true, "find . $x": false, "gh pr create --body a": true, "gh alias set a b": false,
		"sudo ls": true, "sh -c ls": true, "sh a.sh": false, "eval ls": true, "ls() { :; }; ls": false, "alias a=b; ls": false, "PATH=.; ls": false, "hash -p a ls; ls": false,
		"tar cf a b": false, "go test ./...": true, "go test -exec a ./...": false, "go run a": false, "npm install a": true, "npm exec a": false, "less a": false, "ssh a": false, "env": true, "xargs": true, "read a": true, "[ a ]": true,
	} {
		commands := shell.Read(line).Commands
		var c shell.Command
		for _, c = range commands {
			if len(commands) > 1 && strings.HasPrefix(line, "s") {
				break // a wrapper
			}
		}
		if c.Plain != want {
			t.Errorf("%s: %v", line, c.Plain)
		}
	}
}
