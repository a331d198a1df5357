package shell_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/costtest"
	"github.com/gavel-mcp/gavel/internal/shell"
)

// disk is what the texts of the tests may read.
var disk = map[string]string{
	"/work/run.sh":      "#!/bin/sh\ngit push\n",
	"/work/args.sh":     "\"$@\"\n",
	"/work/tool.py":     "#!/usr/bin/env python3\nimport os\n",
	"/work/program":     "\x7fELF\x00 git push",
	"/work/sub/run.sh":  "rm -r build\n",
	"/work/self.sh":     ". ./self.sh\n",
	"/work/env.txt":     "G=git\n",
	"/work/long":        strings.Repeat("echo a\n", 1<<16),
	"/work/binary":      "\x7fELF" + strings.Repeat("\x00", 1<<19),
	"/work/windows.sh":  "echo a\r\n",
	"/home/ann/.x/a.sh": "make all\n",
}

var options = shell.Options{Folder: "/work", Home: "/home/ann", ReadFile: func(name string, limit int) ([]byte, error) {
	text, ok := disk[name]
	if !ok {
		return nil, os.ErrNotExist
	}
	return []byte(text[:min(len(text), limit)]), nil
}}

// say is a script as a row: its commands, and U for each thing that is not known.
func say(s shell.Script) string {
	var rows []string
	for _, c := range s.Commands {
		rows = append(rows, sayCommand(c))
	}
	for range s.Unknown {
		rows = append(rows, "U")
	}
	return strings.Join(rows, "; ")
}

func sayCommand(c shell.Command) string {
	var words []string
	for _, w := range c.Words {
		words = append(words, sayWord(w))
	}
	row := strings.Join(words, " ")
	for _, w := range c.Writes {
		row += " >" + sayWord(w)
	}
	if c.Code != "" {
		row += fmt.Sprintf(" code=%q", c.Code)
	}
	return row
}

func sayWord(w shell.Word) string {
	if strings.ContainsAny(w.Text, " \n") || w.Text == "" && w.Known {
		w.Text = fmt.Sprintf("%q", w.Text)
	}
	if !w.Known {
		w.Text += "?"
	}
	return w.Text
}

func TestRead(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		// words
		{`g\it 'pu'"sh" $'\x6f'`, "git push o"},
		{`echo "a\$b \c" 'x\y' \*`, `echo "a$b \\c" x\y *`},
		{`git {push,-q}{,x}`, "git push pushx -q -qx"},
		{`ls *.go "*.go" a[bc] ?`, "ls *.go? *.go a[bc]? ??"},
		{`echo ~/a ~ann/b`, "echo /home/ann/a ~ann/b?"},
		{`a$x; "a$x"b c$y`, "a?; ab? c?; U; U"},
		{"git pu\\\nsh", "git push"},
		{`"$X/bin/git" push; $HOME/go/bin/x`, "git push; /home/ann/go/bin/x"},
		{`"a/$X" push`, "a/? push; U"},

		// structure
		{"a | b && c || d; e & f", "a; b; c; d; e; f"},
		{"(a; { b; }) ; ! c; time -p d", "a; b; c; d"},
		{"if a; then b; elif c; then d; else e; fi", "a; b; c; d; e"},
		{"while a; do b; done; until c; do d; done", "a; b; c; d"},
		{"for i in x y; do a $i; done", "a x; a y"},
		{"for i in $(ls); do a $i; done", "ls; a ?"},
		{"for ((i=0; i<$(n); i++)); do a; done", "n; a"},
		{"case $(w) in $(p)) a ;; *) b ;; esac", "w; p; a; b"},
		{"echo $(a `b`) <(c) >(d) $((1+$(e)))", "b; a ?; c; d; e; echo ? ? ? ?"},
		{"cat <<E\n$(a)\nE\ncat <<'E'\n$(b)\nE", "a; cat; cat"},
		{"f() { a $1; }; f x; f y", "f x; a x; f y; a y"},
		{"f() { a $1; }", "a ?"},
		{"coproc a; [[ -n $(b) ]]; ((x=$(c))); let x=$(d); declare x=$(e)", "a; b; c; d; e"},
		{"x[$(a)]=1; y=($(b)); z=$(c) d", "a; b; c; d"},
		{"a > x >> y 2> z >| w &> v < in", "a >x >y >z >w >v"},
		{"> x; { a; } > y", ": >x; : >y; a"},
		{"f() { f; }; f; g() { h; }; h() { g; }; g", "f; f; g; h; g"},

		// variables
		{"G=git P=push; $G $P", "git push"},
		{"G='git push'; $G; \"$G\"", `git push; "git push"`},
		{"if a; then G=git; fi; $G push", "a; ? push; U"},
		{"G=git; (G=ls); $G push", "git push"},
		{"G=ls; a && G=git; $G push", "a; ? push; U"},
		{"G=ls; a || G=git; $G push", "a; ? push; U"},
		{"a && G=git && $G push", "a; git push"},
		{"G=ls; while a; do $G push; G=git; done", "a; ? push; U"},
		{"G=ls; for i in 1; do G=git; break; G=ls; done; $G push", "break; ? push; U"},
		{"G=ls; f() { G=git; }; f; $G push", "f; ? push; U"},
		{"G=ls; sh -c '$G git push'; export G; sh -c '$G x'", "sh -c \"$G git push\"; ? git push; sh -c \"$G x\"; ls x; U"},
		{"G=ls sh -c '$G x'; $G", "sh -c \"$G x\"; ls x; ?; U"},
		{"a=(git push); \"${a[@]}\"; ${a[0]} log; ${a[1]}", "git push; git log; push"},
		{"set -- git push; \"$@\"; $1 $2; shift; $1", "set -- git push; git push; git push; shift; push"},
		{"x=gitter; ${x%ter} push; ${x/ter/} push; ${x:0:3} push", "git push; git push; ? push; U"},
		{"IFS=_; x=git_push; $x", "git push"},
		{"x=; ${x-echo} git push", "? git push; U"},
		{"readonly G=git; G=ls; $G push", "? push; U"},
		{"declare -n r=G; G=ls; r=git; $G push", "? push; U"},
		{"declare -l G=GIT; G=GIT; $G push", "? push; U"},
		{"set -- git; OPTARG=ls; getopts g: v; $OPTARG push; _=ls; $_ push", "set -- git; getopts g: v; ? push; ? push; U"},
		{"read G; $G push; unset H; $H", "read G; ? push; unset H; ?; U; U"},
		{"G=git; eval '$G push'; x='git push'; eval $x; eval \"$(cat f)\"", "eval \"$G push\"; git push; eval git push; git push; cat f; eval ?; U"},
		{"n=G; G=git; ${!n} push", "git push"},
		{"alias g='git push'\ng x\n\\g", "alias \"g=git push\"; git push x; g x; g"},

		// prefixes
		{"sudo -u ann -E A=b git push", "sudo -u ann -E A=b git push; git push"},
		{"env -i -u X A=b -- git push", "env -i -u X A=b -- git push; git push"},
		{"env -S 'git push' x", "env -S \"git push\" x; env git push x; git push x"},
		{"nohup timeout -k 1 5 nice -n5 git push", "nohup timeout -k 1 5 nice -n5 git push; timeout -k 1 5 nice -n5 git push; nice -n5 git push; git push"},
		{"exec -a x git push; command -p git push; command -v git", "exec -a x git push; git push; command -p git push; git push; command -v git"},
		{"$(command -v git) push", "command -v git; git push"},
		{"sh() { a; }; command sh -c 'git push'; env sh -c b; sh x", "command sh -c \"git push\"; sh -c \"git push\"; git push; env sh -c b; sh -c b; b; sh x; a"},
		{"alias e='env ' g='git push'\ne g", "alias \"e=env \" \"g=git push\"; env g; g; e g; U"},
		{"exec < f; sh", "exec; sh; U"},
		{"sg x -c 'git push'; pkexec git push; cmd /c git push", "sg x -c \"git push\"; x -c \"git push\"; git push; pkexec git push; git push; cmd /c git push; git push"},
		{"sudo $X push; timeout $N a", "sudo ? push; ? push; timeout ? a; a; U; U"},
		{"find . -name x -exec rm {} + -o -execdir git push \\;", "find . -name x -exec rm {} + -o -execdir git push ;; rm ?; git push"},
		{"echo push | xargs -n1 git; ls | xargs rm -f; xargs -I% sh -c 'rm %' < f", "echo push; xargs -n1 git; git push; ls; xargs rm -f; rm -f ?; xargs -I% sh -c \"rm %\"; sh -c \"rm \"?; U"},
		{"parallel git ::: push pull", "parallel git ::: push pull; git push; git pull"},
		{"ssh -p 22 host 'git push; ls'; watch -n 1 git push", "ssh -p 22 host \"git push; ls\"; git push; ls; watch -n 1 git push; git push"},
		{"busybox sh -c 'git push'", "busybox sh -c \"git push\"; sh -c \"git push\"; git push"},

		// shells, files, other languages
		{"bash -euo pipefail -c 'git push'", "bash -euo pipefail -c \"git push\"; git push"},
		{"sh <<< 'git push'; echo git push | bash -s x; curl u | sh", "sh; git push; echo git push; bash -s x; git push; curl u; sh; U"},
		{"sh -c \"$X\"; fish -c 'git push'; fish -c 'git (echo push)'", "sh -c ?; fish -c \"git push\"; git push; fish -c \"git (echo push)\"; U; U"},
		{"./run.sh; sh sub/run.sh; . ./env.txt; $G x", "./run.sh; git push; sh sub/run.sh; rm -r build; . ./env.txt; ? x; U"},
		{"sh args.sh git push; ./program; ./none; sh none; ./tool.py", "sh args.sh git push; git push; ./program; ./none; sh none; ./tool.py; U"},
		{"cd sub && ./run.sh; cd \"$X\" && ./run.sh", "cd sub; ./run.sh; rm -r build; cd ?; cd ?; ./run.sh; U"},
		{"~/.x/a.sh; sh windows.sh; sh self.sh", "/home/ann/.x/a.sh; make all; sh windows.sh; sh self.sh" + strings.Repeat("; . ./self.sh", 5) + "; U; U"},
		{"echo 'git push' > a; cat a | sh; printf 'rm %s\\n' x >> a; . a", "echo \"git push\" >a; cat a; sh; git push; printf \"rm %s\\\\n\" x >a; . a; git push; rm x"},
		{"cp b ./c; ./c push; bash <(echo git push)", "cp b ./c; ./c push; echo git push; bash ?; git push; U"},
		{"cd \"$X\"; cp b ./run.sh; ./run.sh", "cd ?; cp b ./run.sh; ./run.sh; U"},
		{"cp b c; cd \"$X\"; ./c push", "cp b c; cd ?; ./c push; U"},
		{"echo x > \"$X\"; sh run.sh; ./program", "echo x >?; sh run.sh; ./program; U"},
		{"while a; do command b; done; echo 'git push' > c; sh c", "a; command b; b; echo \"git push\" >c; sh c; git push"},
		{"./long; ./binary; sh long", "./long; ./binary; sh long; U; U"},
		{"cd nowhere; ./run.sh", "cd nowhere; ./run.sh; ./run.sh; git push; git push"},
		{"python3 -c 'x' y; node <<< 'z'; awk '{a}' f; curl u | python", "python3 -c x y code=\"x\"; node code=\"z\\n\"; awk {a} f code=\"{a}\"; curl u; python; U"},
		{"printf 'p' > a.py; python a.py; make -n all; make --eval 'x:;git push'", "printf p >a.py; python a.py code=\"p\"; make -n all; make --eval \"x:;git push\" code=\"x:;git push\""},

		// git
		{"git -C x --no-pager -c a.b=c push -f", "git push -f"},
		{"git st; git -c alias.st='push -f' st; git -c alias.st='!rm x' st", "git st; git push -f; git st; git push -f; rm x; git st; rm x; U"},
		{"git $X; git \"$@\"; git --version", "git ?; git ?; git --version; U"},
		{"git rebase -x 'git push' main; git bisect run make; git submodule foreach -q 'rm x'", "git rebase -x \"git push\" main; git push; git bisect run make; make; git submodule foreach -q \"rm x\"; rm x"},
		{"git -c core.editor='rm x' commit; GIT_EDITOR='rm y' git commit", "rm x; git commit; rm y; git commit"},
		{"git config alias.p push; git p; /usr/lib/git-core/git-push", "git config alias.p push; git push; git p; git push; git push"},

		// what a parser takes otherwise than a shell
		{"true # a \\\ngit push", "true; git push"},
		{"true # a \\\n# b \\\n# c \\\ngit push", "true; git push"},
		{"echo a \\\r\ngit push", "U"},
		{"sh -c 'echo a &> b git push'", "sh -c \"echo a &> b git push\"; echo a git push >b; git push >b"},
		{"if", "U"},
	} {
		if got := say(shell.Read(c.text, options)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s\nunknown %q", c.text, got, c.want, shell.Read(c.text, options).Unknown)
		}
	}
}

func TestWritesTo(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"cat a b; go test ./x; pytest tests/; grep -r a tests; git diff; git status; git log a", ""},
		{"echo a > b; echo a >> c/d; cat <<E > /e\nE", "/e b c/d"},
		{"rm -rf -- a b; mv c d; touch -r x e; tee -a f", "a b c d d/c e f"},
		{"cp a b; cp -t c d; ln -s e f; install -m 644 g h; dd if=i of=j", "b b/a c f f/e h h/g j"},
		{"sed -i s/a/b/ c; sed -i -e x d; sed -ni.bak p e; sed s/a/b/ f; perl -pi -e x g; perl -e x h", "c d e g"},
		{"truncate -s0 a; patch b c.diff; patch -p1 < d; rsync -a e/ f", "? a b f f/e"},
		{"find a -delete; find b -name c; tar -xf d -C e; tar -czf g.tgz h; sort -o i j", "a e g.tgz i"},
		{"git checkout -- a; git checkout b; git restore c; git rm d; git mv e f; git apply g; git stash; git stash list", ". . . a b c d e f"},
		{"git checkout -b x; git reset HEAD a; git clean -n; git commit -m x; git push; git rm --cached y", ""},
		{"cd a && rm b; cd .. && rm c; cd /d; rm e", "../c ../e /d/e a/b a/e c e"},
		{"cd a; rm b", "a/b b"},
		{"cd a || exit 1; rm b", "a/b"},
		{"cd a || { echo no; exit 1; }; rm b; (cd c); rm d", "a/b a/d"},
		{"if x; then cd a; fi; rm b; cd /; rm c", "/c a/b a/c b c"},
		{"cd \"$X\" && rm b; rm /c", "/c b?"},
		{"rm *.o a/b*/c \"$X\" a/*/../../d", ". ? a d?"},
		{"curl -o a u; wget -O b u; gofmt -w c; gofmt -l d; prettier --write e; chmod 600 f", "a b c e f"},
		{"env -C a rm b; git -C c rm d; sudo rm e; find . -exec sed -i x {} +", "? a/b c/d e"},
	} {
		var files []string
		for _, command := range shell.Read(c.text, shell.Options{}).Commands {
			for _, w := range command.WritesTo() {
				files = append(files, sayWord(w))
			}
		}
		slices.Sort(files)
		if got := strings.Join(files, " "); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// TestCost reads texts that repeat something that could cost more than its length.
func TestCost(t *testing.T) {
	for name, c := range map[string][3]string{
		"subshells":     {"", "(", ""},
		"blocks":        {"", "{ ", ""},
		"conditions":    {"", "if a; then ", ""},
		"not":           {"", "! ", "a"},
		"substitutions": {"echo ", "$(echo ", ""},
		"backquotes":    {"echo ", "`", ""},
		"closed":        {strings.Repeat("$(echo ", 200), "a", strings.Repeat(")", 200)},
		"quotes":        {"", "\"$(\"", ""},
		"arithmetic":    {"((", "-", "1))"},
		"arithmetic +":  {"((1", "+1", "))"},
		"parameters":    {"echo ", "${a:-", ""},
		"list":          {"a", " && a", ""},
		"pipe":          {"a", " | a", ""},
		"elif":          {"if a; then b", "\nelif a; then b", "\nfi"},
		"braces":        {"echo ", "{a,b}", ""},
		"sequence":      {"echo ", "{1..99999}", ""},
		"nested braces": {"echo ", "{a,", ""},
		"words":         {"echo", " a", ""},
		"doubling":      {"a=aaaaaaaaaaaaaaaa; ", "a=$a$a; ", "$a"},
		"functions":     {"a() { b; }; ", "a() { a; a; }; ", "a"},
		"exponential":   {"f0() { x; }; ", "", manyFunctions()},
		"loops":         {"", "for i in 1 2 3 4 5 6 7 8; do ", ""},
		"closed loops":  {strings.Repeat("for i in 1 2 3 4; do ", 100), "a; ", strings.Repeat("done;", 100)},
		"while":         {strings.Repeat("while a; do ", 150), "b=$b; ", strings.Repeat("done;", 150)},
		"scopes":        {"", "a$((1))=1; (b=1); ", ""},
		"variables":     {"", "if a; then b=1; sh -c x; fi; ", ""},
		"inner":         {"", "sh -c 'eval \"git push\"'; ", ""},
		"eval":          {"a='eval $a'; ", "eval \"$a\"; ", ""},
		"files":         {"echo a > f; ", "cat f f > g; cat g g > f; ", ". ./f"},
		"comments":      {"", "# \\\n", ""},
		"documents":     {"", "cat <<E\n$(a)\nE\n", ""},
		"format":        {"", "printf '%s%s%s' a b c d e f | sh; ", ""},
		"wide format":   {"printf '%99999999d' ", "1 ", "| sh"},
		"wrappers":      {"", "strace ", "git push"},
		"sudo":          {"", "sudo ", "git push"},
		"xargs":         {"echo ", "a ", "| xargs -n1 sh -c"},
		"globs":         {"a=", "*", "; ${a%%*a*b} ${a//*/x}"},
		"split":         {"IFS=a; b=", "a", "; echo $b $b $b"},
		"aliases":       {"", "alias a=a; a\n", ""},
		"git":           {"", "git -c alias.a=a a; ", ""},
		"zero":          {"", "\x00", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := string(costtest.Repeat([]byte(c[0]), []byte(c[1]), []byte(c[2]), 64<<10))
			costtest.Bound(t, len(text), func() { shell.Read(text, options) })
		})
	}
}

func manyFunctions() string {
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, "f%d() { f%d; f%d; }; ", i+1, i, i)
	}
	return b.String() + "f30"
}

func TestTextThatIsTooLong(t *testing.T) {
	s := shell.Read(strings.Repeat("a\n", 1<<18), options)
	if len(s.Unknown) != 1 || len(s.Commands) != 0 {
		t.Errorf("%d commands, unknown %q", len(s.Commands), s.Unknown)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{
		"git push", "a | b && (c; d) > e", "x=$(a `b`); ${x%y} \"$@\"", "cat <<E | sh\n$a\nE", "f() { f \"$@\"; }; f a",
		"for i in {1..3}; do eval \"$i\"; done", "find . -exec sh -c '{}' \\;", "git -c alias.a='!b' a", "a # \\\nb", "echo ${a:1:2} ${a/b/c} ${!a} ${a[@]}",
		"printf '%s\\n' a > f; . ./f", "xargs -I{} a {} < f", "env -S 'a b' c", "sed -i x f; tar -xf a; patch -p1", "parallel a ::: b", "while read a; do $a; done",
	} {
		f.Add("", s, "")
	}
	f.Add("((", "-", "1))")
	f.Fuzz(func(t *testing.T, head, unit, tail string) {
		if len(head)+len(unit)+len(tail) > 4096 {
			t.Skip()
		}
		for _, text := range []string{head + unit + tail, string(costtest.Repeat([]byte(head), []byte(unit), []byte(tail), 16<<10))} {
			costtest.Bound(t, len(text), func() {
				s := shell.Read(text, options)
				for _, u := range s.Unknown {
					if strings.Contains(u, "the text cannot be read:") {
						t.Fatalf("%q: %s", text, u)
					}
				}
				for _, c := range s.Commands {
					for _, w := range c.WritesTo() {
						if w.Known && w.Text != "" && !path.IsAbs(w.Text) {
							t.Fatalf("%q: writes to %q, which is not resolved", text, w.Text)
						}
					}
				}
			})
		}
	})
}

// TestHarmlessLines reads what agents run all day: a reader that knows nothing of it is in the way.
func TestHarmlessLines(t *testing.T) {
	for _, text := range []string{
		"cd /repo && git add -A && git commit -m \"$(cat <<'EOF'\nfix: a thing\n\nbody (x) `y` \"z\"\nEOF\n)\"",
		"export PATH=/tmp/bin:$PATH GOFLAGS=\"-trimpath\"; go test ./... 2>&1 | tail -20",
		"for f in $(git ls-files '*.go'); do echo \"== $f\"; grep -n foo \"$f\"; done",
		"while read -r line; do echo \"$line\"; printf '%s\\n' x; done < file.txt",
		"find . -name '*.go' -exec grep -l foo {} + | xargs grep -n bar | head",
		"cat > /tmp/x.py <<'EOF'\nprint(1)\nEOF\npython3 /tmp/x.py; python3 - <<'EOF'\nimport json\nEOF",
		"timeout 60 npm test -- --watch=false; npx eslint . --fix && npx prettier --write .",
		"curl -s http://localhost:8080/health | jq .status",
		"if [ -f go.mod ]; then go build ./...; else echo none; fi; (cd sub && make test) || exit 1",
		"x=$(git rev-parse HEAD); echo $x; git show --stat \"$x\"; git commit -am \"$MSG\"",
		"$HOME/go/bin/staticcheck ./...; $(go env GOPATH)/bin/foo; \"$GOPATH\"/bin/x; ./node_modules/.bin/tsc -p .",
		"set -euo pipefail; trap 'rm -rf \"$TMP\"' EXIT; TMP=$(mktemp -d); cp a \"$TMP/\"",
		"sed -n '1,50p' file.go; sed -i 's/a/b/' file.go; awk -F: '{print $1}' /etc/passwd | sort | uniq -c",
		"ps aux | grep node | awk '{print $2}' | xargs kill -9; sleep 5; kill %1; wait",
		"docker compose up -d && docker exec web sh -c 'ls /app'; kubectl get pods -n x",
		"git log --oneline -5 && git -c color.ui=never diff main...HEAD -- internal/; git stash list; git -C /x status",
		"[[ -f a && -d b ]] && echo yes; arr=(a b c); for i in \"${arr[@]}\"; do echo \"$i\"; done; echo ${#arr[@]}",
		"ls -la $(dirname $(which go)); NODE_ENV=test DEBUG=* node --test test/*.test.js",
		"tar xzf a.tgz -C /tmp && ./configure && make -j$(nproc) && sudo make install",
		"bash -lc 'go test ./...'; f() { \"$@\"; }; f go test; ssh host uptime; rsync -av -e ssh a/ host:b/",
		"(./server --port 80 > log 2>&1 &) ; sleep 1; tail log; echo a >> notes.md && cat notes.md | tee out.txt",
		"GIT_PAGER=cat git diff | cat; perl -pi -e 's/a/b/' f.txt; d=$(pwd); cd \"$d/sub\" && go run . -x $y",
		"x=1; y=$((x+1)); ((y++)); i=0; while [ $i -lt 3 ]; do i=$((i+1)); done; case $1 in start) echo s;; esac",
		"diff <(sort a) <(sort b); comm -12 <(ls x) <(ls y); gh pr create --title \"$T\" --body \"$(cat b.md)\"",
		"go build -o /tmp/x ./cmd && /tmp/x --help; rm -rf build/ && mkdir -p build && cd build && cmake .. && make",
		"jq -r '.a[] | \"x\"' f.json; psql -c 'select 1'; watch -n1 ls; nice -n 10 make; ./run.sh; . ./env.txt",
	} {
		if s := shell.Read(text, options); len(s.Unknown) > 0 {
			t.Errorf("%s\nunknown %q", text, s.Unknown)
		}
	}
}
