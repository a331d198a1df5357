package evidence

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// runner is a kind of program that runs one of its arguments as code.
type runner struct {
	names *regexp.Regexp // names of the program
	says  *regexp.Regexp // an option after which code follows
	glued *regexp.Regexp // the beginning of an argument that contains both the option and code
	// file reports whether the first argument that is not an option names a file to run, to which all later arguments
	// belong.
	file bool
}

// No list of programs and their options can be complete. This one has the common ones, to catch an operator's mistakes.
var runners = sync.OnceValue(func() []runner {
	return []runner{
		{
			names: regexp.MustCompile(`^(ba|da|z|k|mk|a|c|tc|fi|rba|tcl)?sh$|^(pwsh|powershell|osascript)$|^(python|pypy|perl|ruby|php|lua|luajit|r|rscript|julia|elixir|erl|groovy|octave)[0-9.]*$`),
			says:  regexp.MustCompile(`^-[A-Za-z]*[cerE]$|^--?(eval|command|execute|exec)$|(?i)^-(enc|command|encodedcommand)[a-z]*$`),
			glued: regexp.MustCompile(`^-[A-Za-z]*[cerE]|^--?(eval|command|execute|exec)=`),
			file:  true,
		},
		{
			names: regexp.MustCompile(`^(node|nodejs)[0-9.]*$`),
			says:  regexp.MustCompile(`^-[A-Za-z]*[epr]$|^--(eval|print)$`),
			glued: regexp.MustCompile(`^-[A-Za-z]*[epr]|^--(eval|print)=`),
			file:  true,
		},
		{names: regexp.MustCompile(`^(deno|bun)$`), says: regexp.MustCompile(`^eval$|^-[ep]$|^--(eval|print)$`), glued: regexp.MustCompile(`^-[ep]|^--(eval|print)=`)},
		{names: regexp.MustCompile(`^cmd$`), says: regexp.MustCompile(`(?i)^/[ckr]$`), glued: regexp.MustCompile(`(?i)^/[ckr]`)},
		{names: regexp.MustCompile(`^(su|runuser|script|flock)$`), says: regexp.MustCompile(`^-[A-Za-z]*c$|^--(session-)?command$`), glued: regexp.MustCompile(`^-[A-Za-z]*c|^--(session-)?command=`)},
		{names: regexp.MustCompile(`^env$`), says: regexp.MustCompile(`^-[A-Za-z0]*S$|^--split-string$`), glued: regexp.MustCompile(`^-[A-Za-z0]*S|^--split-string=`)},
	}
})

// relays are programs that join their arguments for a shell to parse.
var relays = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(ssh|rsh|remsh|mosh|plink|dbclient|watch|parallel)$`)
})

// explainCode returns why an argument must not follow words, or "" if no problem is known. The program need not be the
// first word, because of env, timeout and docker exec. patterned reports whether the argument has a pattern.
func explainCode(words []string, t template, patterned bool) string {
	for at, word := range words {
		name := programName(word)
		if relays().MatchString(name) && !patterned {
			return fmt.Sprintf("%q passes its arguments to a shell; declare a pattern that excludes shell syntax", name)
		}
		i := slices.IndexFunc(runners(), func(r runner) bool { return r.names.MatchString(name) })
		if i < 0 {
			continue
		}
		r, between := runners()[i], words[at+1:]
		if r.file && len(between) > 0 && !isOption(between[0]) {
			continue // a file to run, with its arguments
		}
		leads, has := r.readsCode(between)
		if leads || r.glued.MatchString(t[0].text) {
			return fmt.Sprintf(`an argument must not be part of code that %q runs; pass it as a separate argument, such as "$1"`, name)
		}
		if has {
			return "" // later words are arguments of the code
		}
		if r.file && !patterned && !isOption(t[0].text) && skipOptions(between) == len(between) {
			return fmt.Sprintf("%q would run the file or module that an argument names; declare a pattern that matches only permitted files or modules", name)
		}
	}
	return ""
}

// readsCode reports whether the next word after words would be code, because a code option is followed only by
// options (leads), and whether words already contain code (has).
func (r runner) readsCode(words []string) (leads, has bool) {
	for i, word := range words {
		if r.says.MatchString(word) {
			rest := words[i+1:]
			leads = skipOptions(rest) == len(rest)
			has = has || !leads
		}
	}
	return leads, has
}

func isOption(word string) bool {
	return strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+")
}

// skipOptions returns the number of leading options, including the values of those shell options that take one.
func skipOptions(words []string) int {
	i := 0
	for i < len(words) && isOption(words[i]) {
		if slices.Contains([]string{"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}, words[i]) {
			i++
		}
		i++
	}
	return min(i, len(words))
}

// programName returns the name of a program without its folder.
func programName(program string) string {
	name := strings.ToLower(program[strings.LastIndexAny(program, `/\`)+1:])
	return strings.TrimSuffix(name, ".exe")
}
