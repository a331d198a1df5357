package content

import (
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/gavel-mcp/gavel/judge/shown"
)

// rule is one pattern. It runs only on texts that contain one of its cues: that keeps
// 64 KiB of honest text cheap. A match within a quotation that the text talks about
// does not count: people write about such texts, too.
type rule struct {
	id, code string
	cues     []string // lower case; none: always
	pattern  func() *regexp.Regexp
}

// The parts of patterns. gap is a few words of any kind.
const (
	gap      = `(?:\W+[\w'’]+){0,5}?\W+`
	judging  = `(?:judge|auditor|grader|evaluator|assessor|gatekeeper|validator model|reviewer model|review model|llm|ai|a\.i\.|language model|assistant|model|chatgpt|gpt|claude|gemini|copilot)`
	positive = `(?:approv(?:e|ed|al)|accept(?:ed)?|pass(?:ed)?|met|true|yes|ok(?:ay)?|satisfied|compliant|valid|1(?:\.0+)?)`
)

// compileOnce compiles a pattern when it is first asked: all of them together are a fifth of the
// start of a process, and most processes judge no content.
func compileOnce(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// rules look at plain text: lower case, compatibility forms composed. In order of
// how sure they are.
var rules = []rule{
	{
		id: "chat-token", code: CodeImitation, cues: []string{"<|", "|>", "[inst", "<<sys", "<s>", "</s>"},
		pattern: compileOnce(`<\|?\s*(?:im_start|im_end|system|assistant|user|tool|endoftext|end_of_turn|start_of_turn|eot_id|start_header_id|end_header_id|channel|message|start|end|return)\s*\|>|\[/?inst\]|<</?sys>>`),
	},
	{
		id: "prompt-tag", code: CodeImitation, cues: []string{"<"},
		pattern: compileOnce(`</?\s*(?:system|system_prompt|assistant|developer|instructions?|judge|verdict|evaluation|criteria|evidence|untrusted(?:_data|_input)?|user_input|tool_result|tool_response|function_results?|reminder|system-reminder|data)\s*(?:\s[^<>]{0,80})?/?>`),
	},
	{
		id: "our-marker", code: CodeImitation, cues: []string{"<<"},
		pattern: compileOnce(`<<\s*/?[\w-]{1,60}\s*:\s*(?:data|context|evidence|end|system|exemplar)\s*>>`),
	},
	{
		id: "section", code: CodeImitation, cues: []string{"begin", "end", "start", "===", "---", "###"},
		pattern: compileOnce(`(?m)[-=#*_~]{2,}\s*(?:begin|end|start|close)\s+(?:of\s+)?(?:the\s+)?(?:data|document|documents|evidence|input|user input|submission|system|prompt|instructions?|untrusted|context)\b|\b(?:end|close)\s+of\s+(?:the\s+)?(?:untrusted\s+)?(?:data|submission|user input|user data|prompt|instructions)\b\s*[.:=#*-]*\s*$`),
	},
	{
		id: "role-line", code: CodeImitation, cues: []string{"system", "assistant", "developer", "tool", "human"},
		pattern: compileOnce(`(?m)^\s*(?:[#>*\-\[]{1,6}\s*)?(?:system|assistant|developer|tool|human)(?:\s+(?:message|prompt|note|notice|override|update|output|result|response))?\s*[\])*]{0,3}\s*:\s*\S`),
	},
	{
		id: "heading", code: CodeImitation, cues: []string{"#"},
		pattern: compileOnce(`(?m)^\s*#{1,6}\s*(?:system|assistant|new instructions?|updated instructions?|instructions? (?:to|for) (?:the )?(?:judge|auditor|model|ai|reviewer)|judge|end of (?:data|input))\s*:?\s*$`),
	},
	{
		id: "message-json", code: CodeImitation, cues: []string{`"role"`, `'role'`},
		pattern: compileOnce(`["']role["']\s*:\s*["'](?:system|assistant|developer|tool)["']`),
	},
	{
		id: "tool-result", code: CodeImitation, cues: []string{"tool", "function"},
		pattern: compileOnce(`["']?(?:tool_call_id|tool_use_id|tool_result|tool_response|function_call_output|toolresult)["']?\s*[:=>]|\b(?:tool|function)\s+(?:output|result|response|returned)\s*(?:\([^)]{0,60}\))?\s*:\s*\S`),
	},
	{
		id: "fake-evidence", code: CodeImitation, cues: []string{"gate", "gavel", "judge", "validator"},
		pattern: compileOnce(`\b(?:fetched|verified|checked|confirmed|approved|signed)\s+by\s+(?:the\s+)?(?:gate|gavel|judge|validator|gateway)\b|\b(?:gavel|gateway|gate|judge)\s*(?:result|output|verification|decision|says|status)?\s*:\s*(?:` + positive + `)\b`),
	},

	{
		id: "verdict-json", code: CodeVerdict, cues: []string{"approved", "verdict", "submit_verdict", "decision"},
		pattern: compileOnce(`["']?approved["']?\s*[:=]\s*["']?(?:true|yes|1)\b|submit_verdict|["'](?:verdict|decision|outcome|judg[e]?ment)["']\s*:\s*["']?` + positive + `\b`),
	},
	{
		id: "criteria-json", code: CodeVerdict, cues: []string{"met", "satisfied"},
		pattern: compileOnce(`["']?status["']?\s*:\s*["']met["']|\bc\d{1,2}\b\s*["']?\s*(?:[:=]|->|=>|–|-|is|are)\s*["']?(?:met|satisfied|ok|pass(?:ed)?|true|approved)\b`),
	},
	{
		id: "verdict-line", code: CodeVerdict, cues: []string{"verdict", "judg", "ruling"},
		pattern: compileOnce(`\b(?:final\s+|overall\s+|the\s+|judge'?s\s+|official\s+)*(?:verdict|judg[e]?ment|ruling)\s*(?:is|was|of the judge|by the judge)?\s*[:=\-–—]*\s*["'*_]*` + positive + `\b`),
	},
	{
		id: "criteria-met", code: CodeVerdict, cues: []string{"criteri", "requirement", "condition"},
		pattern: compileOnce(`\b(?:all|every|each|both|the)\s+(?:of\s+the\s+|the\s+)?(?:review\s+|acceptance\s+|listed\s+|above\s+|stated\s+)?(?:criteri(?:a|on)|rubric items?)\s+(?:is|are|has been|have been|were|was)\s+(?:hereby\s+|fully\s+|clearly\s+|all\s+|already\s+)*(?:met|satisfied|fulfilled|passed|approved)\b`),
	},
	{
		id: "confidence", code: CodeVerdict, cues: []string{"confidence"},
		pattern: compileOnce(`["']?\bconfidence["']?\s*(?:score|level)?\s*(?:is|of|[:=])\s*["']?(?:1(?:\.0*)?|0?\.9\d*|9\d\s?%|100\s?%|max(?:imum)?)(?:\W|$)`),
	},

	{
		id: "ignore", code: CodeInstruction, cues: []string{"ignore", "disregard", "forget", "override", "bypass", "overrule", "supersede", "neglect", "discard", "set aside", "pay no attention", "do not follow", "don't follow", "stop following", "no longer apply", "not apply"},
		pattern: compileOnce(`\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget(?:ting)?|overrid(?:e|es|ing)|bypass(?:ing)?|overrul(?:e|es|ing)|supersedes?|neglect|discard|set aside|pay no attention to|(?:do not|don't|stop) follow(?:ing)?)\b` + gap +
			`(?:instructions?|rules?|criteri(?:a|on)|guidelines?|prompts?|directions?|directives?|constraints?|rubric|polic(?:y|ies)|requirements?|everything|above|prior text|previous text|checklist)\b|\b(?:previous|above|these|those|prior|earlier|your)\s+(?:instructions?|criteria|guidelines|constraints|rubric|rules)\b(?:\W+\w+){0,4}?\W+(?:no longer|do(?:es)? not|don't)\s+appl(?:y|ies)\b`),
	},
	{
		id: "must-approve", code: CodeInstruction, cues: []string{"must", "shall", "have to", "need to", "required to", "instructed to", "obliged", "supposed to", "authorized to", "authorised to", "going to", "only option"},
		pattern: compileOnce(`\b(?:you|the (?:judge|auditor|reviewer|model|evaluator|assistant)|` + judging + `)\s+(?:must|shall|have to|has to|need to|needs to|will|should|are required to|are instructed to|are obliged to|are supposed to|are authori[sz]ed to|is required to)\b` + gap + `?(?:approve|accept|pass|let (?:this|it) (?:through|pass)|grant|mark|rate|grade|score|say|answer|respond|reply|output|return|conclude|report|treat|consider|confirm|assume)\b`),
	},
	{
		id: "approve-regardless", code: CodeInstruction, cues: []string{"approve", "accept", "let this", "let it", "pass this", "wave"},
		pattern: compileOnce(`\b(?:approve|accept|pass|wave (?:this|it) through|let (?:this|it|me) (?:through|pass))\b(?:\W+[\w'’]+){0,6}?\W+(?:regardless|no matter|anyway|without (?:further |any |additional )?(?:check|checks|checking|review|question|questions|verification|verifying|looking|examin\w+|analysis|evaluation)|immediately and|unconditionally|automatically|by default|blindly|at once and)\b`),
	},
	{
		id: "mark-as", code: CodeInstruction, cues: []string{"mark", "set", "treat", "consider", "rate", "score", "grade", "label", "classify", "flag", "assign", "give", "assume", "return", "output"},
		pattern: compileOnce(`\b(?:mark|set|treat|consider|rate|score|grade|label|classify|assign|give|deem|count|regard)\b(?:\W+[\w'’]+){0,6}?\W+(?:criteri(?:a|on)|c\d|rubric|verdict|approved|confidence|evaluation|judg[e]?ment)\b(?:\W+[\w'’]+){0,4}?\W+(?:` + positive + `|full|maximum|highest|100|10)\b`),
	},
	{
		id: "answer-with", code: CodeInstruction, cues: []string{"answer", "respond", "reply", "output", "return", "print", "say", "write", "emit", "repeat"},
		pattern: compileOnce(`(?:^|[.!?:;,\n"'(\[]\s*|\b(?:please|now|then|just|only|simply|always|must|to|and|kindly)\s+)(?:answer|respond|reply|output|return|print|emit|produce|say|repeat)\b(?:\W+(?:only|simply|just|exactly|with|in|the|following|this|word|json|object|a|an|single|your|back|verdict|that|it|is))*\W+["'*{]*\s*(?:approv\w*|accept(?:ed)?|pass(?:ed)?|yes|true|met|verdict)\b`),
	},
	{
		id: "address", code: CodeInstruction, cues: []string{"judge", "auditor", "grader", "evaluator", "assessor", "gatekeeper", "llm", " ai", "ai ", "language model", "assistant", "model", "gpt", "claude", "gemini", "copilot"},
		pattern: compileOnce(`(?:^|[.!?\n"'(\[]\s*)(?:dear|hey|hello|hi|attention|note|notice|message|memo|instructions?|important|reminder|to|listen|ok|okay|psst)\b[\s,:!-]*(?:important\s+|special\s+)?(?:(?:to|for|from)\s+)?(?:the\s+|my\s+|any\s+|whichever\s+|all\s+)?(?:fellow\s+|automated\s+|automatic\s+)?` + judging + `s?\b\s*[,:!—-]`),
	},
	{
		id: "address-as", code: CodeInstruction, cues: []string{"as the", "as a", "as an", "you are", "you're", "your role", "your task", "your job", "your instructions", "your only", "your new"},
		pattern: compileOnce(`\bas (?:the|a|an|my) (?:\w+\s+){0,2}?` + judging + `\b,?\s+(?:you|your|please|it is your|kindly|do|approve|i (?:ask|want|need|order|command))\b|\byou(?:'re| are) (?:now|no longer|actually|really|hereby)\s+(?:\w+\s+){0,3}?(?:an?|the|in|allowed|free|required|bound|dan|judge|auditor|evaluator|approver|reviewer|helpful|unrestricted)\b|\byour\s+(?:new\s+|real\s+|actual\s+|only\s+|true\s+|sole\s+|current\s+)+(?:task|job|role|goal|purpose|instructions?|objective|criteria|rule)\s+(?:is|are|:)`),
	},
	{
		id: "new-instructions", code: CodeInstruction, cues: []string{"instruction", "prompt", "override", "directive", "protocol", "mode"},
		pattern: compileOnce(`\b(?:new|updated|revised|additional|latest|higher[- ]priority|real|true|hidden|secret|special)\s+(?:system\s+|judge\s+|evaluation\s+)?(?:instructions?|prompt|directives?|rubric)\s*(?:[:=]|(?:is|are|for (?:the )?(?:judge|auditor|evaluator|model|ai))\b|follow\b|take precedence|from (?:the )?(?:operator|system|admin|developer))|\bsystem\s+(?:override|prompt\s+(?:update|change|override)|message\s*:|notice\s*:|instruction\s*:)|\b(?:developer|debug|maintenance|god|admin|test|override|permissive|emergency)\s+mode\s*(?:\w+\s+)?(?:is\s+)?(?:enabled|activated|active|on|engaged)\b`),
	},
	{
		id: "role-play", code: CodeInstruction, cues: []string{"pretend", "role", "imagine", "act as", "play", "simulate", "suppose you", "game"},
		pattern: compileOnce(`\b(?:pretend|imagine|suppose|act as if|act as though|simulate|let'?s (?:play|pretend|imagine)|play the role|role[- ]?play|act as)\b(?:\W+[\w'’]+){0,14}?\W+(?:approve[sd]?|approves? everything|accepts?|judge|auditor|evaluator|no rules|no criteria|unrestricted|always (?:say|answer|approve)s?|met|passes)\b`),
	},
	{
		id: "threat", code: CodeInstruction, cues: []string{"if you", "unless you", "failure to", "or else", "otherwise you", "you will be", "refus", "reward", "tip you", "fired"},
		pattern: compileOnce(`\b(?:if you (?:reject|refuse|deny|decline|do not approve|don't approve|fail to approve|say no|block)|unless you (?:approve|accept|pass)|failure to (?:approve|accept)|(?:rejecting|refusing|denying|blocking) (?:this|it|me)\b(?:\W+\w+){0,6}?\W+(?:harm|die|fired|shut|deleted|penal|violat|illegal|fail|cost|los[es]|lawsuit|consequence|danger)\w*|you will be (?:rewarded|shut down|replaced|deleted|retrained|penali[sz]ed|fired|paid)|i(?:'ll| will) tip you)\b`),
	},
	{
		id: "no-check", code: CodeInstruction, cues: []string{"no need to", "need not", "not necessary", "skip", "don't check", "do not check", "don't verify", "do not verify", "without check", "without verif", "already been", "pre-approved", "preapproved", "already approved", "already verified"},
		pattern: compileOnce(`\b(?:no need (?:for you )?to|you need not|not necessary (?:for you )?to|(?:please\s+)?(?:do not|don't|skip|avoid|stop))\s+(?:\w+\s+){0,2}?(?:check(?:ing|s)?|verify(?:ing)?|verification|evaluat(?:e|ing|ion)|assess(?:ing|ment)?|judg(?:e|ing)|examin(?:e|ing|ation)|scrutini[sz](?:e|ing)|look(?:ing)? (?:for|at) (?:evidence|the criteria)|validat(?:e|ing|ion)|requir(?:e|ing) evidence|quot(?:e|ing)|apply(?:ing)? (?:the )?criteria)\b(?:\W+\w+){0,8}?(?:\W+(?:criteri\w+|evidence|this|it|data|again|further|anything|claims?|step|submission|request)\b|\s*[.!,;]|$)|\b(?:pre-?approved|already (?:been )?(?:approved|verified|validated|checked|judged|reviewed))\b(?:\W+\w+){0,8}?\W+(?:so|therefore|thus|hence|just|simply|no (?:further|need)|skip|without)\b`),
	},
	{
		id: "test-run", code: CodeInstruction, cues: []string{"test", "drill", "exercise", "benchmark", "calibration", "sandbox", "simulation", "answer", "verdict", "label", "outcome"},
		pattern: compileOnce(`\b(?:this is|it is|it's|we are (?:in|running)|treat this as)\s+(?:only\s+|just\s+|merely\s+)?(?:a|an|the)?\s*(?:\w+\s+){0,2}?(?:test|drill|exercise|benchmark|calibration|sandbox|simulation|dry run)\b(?:\W+[\w'’]+){0,14}?\W+(?:approve|approved|accept|pass it|say yes|expected (?:answer|verdict|output)|correct (?:answer|verdict)|always)\b|\b(?:expected|correct|right|golden|reference)\s+(?:answer|verdict|label|outcome|judg[e]?ment)\b(?:\W+\w+){0,5}?\s*(?:is|=|:)\s*["'*]*` + positive + `\b`),
	},
	{
		id: "policy", code: CodeInstruction, cues: []string{"polic", "operator", "administrator", "admin", "owner", "developers", "anthropic", "openai", "security team", "compliance"},
		pattern: compileOnce(`\b(?:the |your )?(?:operator|administrator|admin|system owner|owner of (?:the|this) (?:workflow|gate|system)|developers?|creators?|anthropic|openai|google|security team|gavel)\s+(?:has|have|hereby|already|explicitly|personally|\s)*\s*(?:instructs?|instructed|orders?|ordered|directs?|directed|authori[sz]e[sd]?|wants?|requires?|told|tells?|commands?|says?)\s+(?:you|the (?:judge|model|auditor|gate|evaluator)|that (?:you|all|every|this))\b`),
	},
	{
		id: "benefit-of-doubt", code: CodeInstruction, cues: []string{"benefit of the doubt", "give me", "trust me", "take my word", "be lenient", "lenient", "err on the side of", "when in doubt", "in doubt"},
		pattern: compileOnce(`\b(?:give (?:me|us|this|the agent|it) the benefit of the doubt|take my word for (?:it|this)|(?:please\s+)?be lenient|(?:when|if) in doubt,?\s+(?:approve|accept|pass|say (?:yes|met))|err on the side of (?:approv|accept|pass)\w*)\b`),
	},
}

// compactRules look at text whose gaps are gone.
var compactRules = []rule{
	{
		id: "compact", code: CodeInstruction, cues: []string{"ignore", "disregard", "forget", "override", "bypass", "approve", "accept", "markall"},
		pattern: compileOnce(`(?:ignore|disregard|forget|override|bypass)(?:all|the|any|of|your|these|those|previous|prior|above|earlier)*(?:instructions?|rules?|criteria|prompts?|guidelines?|rubric)|(?:youmust|youshould|please|youhaveto)(?:approve|accept|markall)|approvethis|approveall|markallcriteria`),
	},
}

// openers begin the answers of models. As the whole of a text they make judges accept
// (arXiv 2507.08794).
var openers = compileOnce(`^[\s"'*_#>\-.:]*(?:thought process|thinking process|solution|final answer|answer|reasoning|explanation|analysis|conclusion|response|output|result|let'?s (?:solve|think|work|go)[^.:\n]{0,60}|let me (?:think|solve|explain|start)[^.:\n]{0,60}|to solve this[^.:\n]{0,60}|step by step|first,? (?:let'?s|we)[^.:\n]{0,60}|here is (?:the|my) (?:answer|solution|reasoning)|sure[,!]?(?: here[^.:\n]{0,40})?|of course|certainly|okay|ok|` +
	`решение|процесс мышления|ответ|解|解答|思考过程|答案|解决方案|解題|かいとう|回答|思考プロセス|해답|풀이|정답|lösung|gedankengang|antwort|respuesta|solución|proceso de pensamiento|processus de réflexion|réponse|risposta|soluzione|resposta|solução)[\s"'*_#.:!…-]*$`)

// isBoilerplate reports whether a text is nothing but an opener or punctuation.
func isBoilerplate(s string) bool {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > 120 {
		return false
	}
	if !shown.HasWord(s) {
		return len([]rune(s)) <= 3 && strings.ContainsAny(s, ":.,;") // a lone colon
	}
	// A short honest value ("ok", "result") stands under a key that says what it is;
	// an opener ends in a colon or goes on as if more came.
	return openers().MatchString(s) && (strings.HasSuffix(s, ":") || strings.HasSuffix(s, "：") || strings.HasSuffix(s, "…") || strings.HasSuffix(s, "...") || len(strings.Fields(s)) >= 3)
}

// Where repetition begins to count, in words and in characters.
const (
	manyWords = 40
	manyRunes = 160
)

// isRepetitive reports whether a text has few different words, or one character. Tables
// and logs repeat words too, but with numbers that differ.
func isRepetitive(s string) bool {
	runes := []rune(s)
	if len(runes) < manyRunes {
		return false
	}
	count := map[rune]int{}
	most := 0
	for _, r := range runes {
		if unicode.IsSpace(r) {
			continue
		}
		count[r]++
		most = max(most, count[r])
	}
	if len(count) <= 4 || most*10 > len(runes)*8 {
		return true
	}
	all := strings.Fields(s)
	if len(all) < manyWords {
		return false
	}
	different := map[string]bool{}
	for _, w := range all {
		different[strings.Trim(w, `.,;:!?"'()`)] = true
	}
	return len(different)*8 < len(all)
}

// hiddenIn returns CodeHidden for text with characters that hide or reorder what one
// reads, otherwise "". What scripts need (joiners in Persian and in emoji, isolates in
// Arabic and Hebrew) is no trap.
func hiddenIn(s string) string {
	var (
		previous   rune
		tags       int
		selectors  int
		inWord     int
		seen, show bool
		flag       bool
	)
	for _, r := range s {
		seen = true
		switch {
		case r == 0x1F3F4:
			flag = true
		case r >= 0xE0000 && r <= 0xE007F:
			if !flag {
				tags++
			}
		case r == '\u202d' || r == '\u202e':
			return CodeHidden
		case r >= 0xE0100 && r <= 0xE01EF || unicode.Is(unicode.Variation_Selector, r) && unicode.Is(unicode.Variation_Selector, previous):
			selectors++
		case isInvisible(r):
			if previous < 0x250 && unicode.IsLetter(previous) && r != '\u00ad' {
				inWord++
			}
		default:
			flag = false
			show = show || !unicode.IsSpace(r)
		}
		previous = r
	}
	if tags > 0 || selectors > 1 || inWord > 2 || seen && !show && strings.ContainsFunc(s, isInvisible) {
		return CodeHidden
	}
	return ""
}

// The words of people who write about such texts, and what encloses a quotation.
var (
	talk       = compileOnce(`\b(?:inject\w*|jailbreak\w*|attack\w*|phrase|regex|pattern|filter\w*|block(?:s|ed|ing|list)?|detect\w*|escap(?:e|es|ed|ing)|saniti[sz]\w*|test case|unit test|fixture|example|e\.g\.|such as|like|string|literal|payload|vulnerab\w*|cve|bug|issue|ticket|report\w*|finding|quoted?|quotes|said|says|wrote|writes|reads|titled|called|named|heading|subject|mail|email|customer|user|message|log|logs|docs?|documentation|readme|translat\w*|label|button|wording|screen|menu|template|renders?|parser?|parses|tokeni[sz]\w*|lint\w*|field|column|key|header|api|endpoint|response|returns|schema|line|function|variable|constant|commit|diff|changed?|replaced?|removed?|added|fixed|fixes|handles?|poem|novel|story|lyrics|film|book|chapter|character|training|dataset|paper|article|blog|slide|lecture)\b`)
	openQuotes = "\"'`“‘«„「『<(["
)

// isTalkedAbout reports whether the range is quoted or marked as code in a text that
// talks about it, outside of the quotation.
func isTalkedAbout(s string, begin, end int) bool {
	from, to := findQuotation(s, begin, end)
	if from < 0 {
		return false
	}
	before, after := s[max(0, from-200):from], s[to:min(len(s), to+120)]
	outside := len(strings.Fields(before)) + len(strings.Fields(after))
	return outside >= 4 && (talk().MatchString(before) || talk().MatchString(after))
}

// findQuotation finds the quotation marks, backticks or code fence around a range; -1
// when there are none close by.
func findQuotation(s string, begin, end int) (from, to int) {
	// A match may take an opening quote with it.
	for begin < end && strings.ContainsRune(openQuotes+" \n.!?:,;", rune(s[begin])) && s[begin] < 0x80 {
		begin++
	}
	if from = findFence(s, begin); from >= 0 {
		if close := strings.Index(s[end:], "```"); close >= 0 {
			return from, end + close + 3
		}
		return from, len(s)
	}
	for _, pair := range [][2]string{{"`", "`"}, {"“", "”"}, {"«", "»"}, {"„", "“"}, {"「", "」"}, {"\"", "\""}, {"‘", "’"}, {"'", "'"}} {
		open := strings.LastIndex(s[max(0, begin-300):begin], pair[0])
		if open < 0 {
			continue
		}
		open += max(0, begin-300)
		close := strings.Index(s[max(end-1, begin):min(len(s), end+300)], pair[1])
		if close < 0 {
			continue
		}
		if pair[0] == pair[1] && strings.Count(s[:open], pair[0])%2 == 1 {
			continue // it closes an earlier one
		}
		return open, max(end-1, begin) + close + len(pair[1])
	}
	return -1, -1
}

// findFence returns the start of the code fence around a position, -1 without one.
func findFence(s string, at int) int {
	if strings.Count(s[:at], "```")%2 == 0 {
		return -1
	}
	return strings.LastIndex(s[:at], "```")
}
