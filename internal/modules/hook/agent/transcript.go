package agent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Said is what the user wrote in a session, as the client's transcript has it.
type Said struct {
	// Unread reports that the sender can read the transcript, and has not done so.
	Unread bool `json:"unread,omitempty"`
	// Messages are the newest messages, oldest first.
	Messages []string `json:"messages,omitempty"`
	// Problem is a sentence about why there are none, or "".
	Problem string `json:"problem,omitempty"`
}

// The limits of reading a transcript. Between a user's messages lie results of tools, so these may be far from the end.
const (
	maxTranscript = 64 << 20
	maxLine       = 8 << 20  // longer lines are skipped; pasted images make long ones
	maxMessage    = 16 << 10 // the middle of a longer message is left out
	maxMessages   = 40
	maxSaid       = 32 << 10 // of all messages
)

// transcriptForm is the format of a client's transcript. Each line with a user's message has one of the markers; read
// returns the message, or "".
type transcriptForm struct {
	markers []string
	read    func(line document.JSON) string
}

var transcriptForms = map[string]transcriptForm{
	claudeCode.Client: {[]string{`"promptSource":"`, `"queued_command"`, `command-name`}, readClaudeMessage},
	codex.Client:      {[]string{`"user.text"`}, readCodexMessage},
}

// OfferSaid returns a Said that is unread, or nil if gavel cannot tell the user's messages in the event's transcript.
func OfferSaid(e Event) *Said {
	if transcriptForms[e.Client].read == nil || e.Transcript == "" {
		return nil
	}
	return &Said{Unread: true}
}

// ReadSaid reads the user's messages from the end of the transcript that the client names. Only the command that a
// client starts may call it.
func ReadSaid(e Event) *Said {
	messages, err := readTranscript(e.Transcript, transcriptForms[e.Client])
	said := &Said{Messages: messages}
	if err != nil {
		said.Problem = fmt.Sprintf("The transcript of %s cannot be read: %v.", e.Client, err)
	} else if len(messages) == 0 {
		said.Problem = fmt.Sprintf("The transcript of %s has no message of the user in a form that gavel knows.", e.Client)
	}
	return said
}

func readTranscript(path string, form transcriptForm) ([]string, error) {
	info, err := os.Stat(path) // before it is opened, because opening a pipe waits
	if err == nil && (!info.Mode().IsRegular() || !filepath.IsAbs(path)) {
		return nil, errors.New("its path names no file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err) // without the path
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if _, err := file.Seek(max(0, info.Size()-maxTranscript), io.SeekStart); err != nil {
		return nil, err
	}
	return form.readMessages(file)
}

// readMessages returns the newest messages of a user.
func (form transcriptForm) readMessages(from io.Reader) (messages []string, err error) {
	lines, size := bufio.NewReaderSize(io.LimitReader(from, maxTranscript), maxLine), 0
	for err == nil {
		var line []byte
		line, err = lines.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			line = nil
			_, err = lines.ReadSlice('\n')
		}
		if !slices.ContainsFunc(form.markers, func(m string) bool { return bytes.Contains(line, []byte(m)) }) {
			continue
		}
		text := strings.TrimSpace(form.read(document.ReadTrusted(line)))
		if len(text) > maxMessage {
			text = strings.ToValidUTF8(text[:maxMessage/2]+text[len(text)-maxMessage/2:], "")
		}
		if text != "" {
			messages, size = append(messages, text), size+len(text)
		}
		for len(messages) > maxMessages || size > maxSaid {
			messages, size = messages[1:], size-len(messages[0])
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return messages, nil
}

// claudeForeign are the marks of lines that Claude Code writes in the user's place.
var claudeForeign = []string{
	"isMeta", "isSidechain", "isCompactSummary", "isVirtual", "isVisibleInTranscriptOnly", "carriedByCompaction", "fromAnotherSession",
	"fromConnector", "handedOff", "promptRewritten", "scheduledTaskId", "sourceToolUseID", "textNotTyped", "toolUseResult", "wakeupSource",
}

// claudeCommand is a slash command that the user typed, as Claude Code records it.
var claudeCommand = regexp.MustCompile(`(?s)^<command-message>[^<]*</command-message>\n<command-name>(/[^<\s]+)</command-name>(?:\n<command-args>(.*)</command-args>)?$`)

// claudeNote is an empty text, a note of Claude Code, or a command of the user's shell and its output.
var claudeNote = regexp.MustCompile(`^\s*(?:$|<bash-|<local-command-|<system-reminder>|<task-notification>)`)

// readClaudeMessage reads a line of Claude Code 2.1.330. Results of tools, notes of the client and the tasks of subagents
// have the role user, too. A suggestion that the user accepted is the model's text.
func readClaudeMessage(v document.JSON) string {
	said, content, turn := v, v.At("message", "content"), v.Get("turnOrigin")
	typed := isOneOf(v.Get("promptSource"), "typed", "queued", "sdk")
	if v.Get("type").Is("attachment") { // the user wrote while the agent worked
		said = v.Get("attachment")
		content, typed = said.Get("prompt"), said.Get("type").Is("queued_command") && said.Get("commandMode").Is("prompt")
	} else if !v.Get("type").Is("user") || !v.At("message", "role").Is("user") {
		return ""
	}
	for _, mark := range claudeForeign {
		if isSet(v.Get(mark)) || isSet(said.Get(mark)) {
			return ""
		}
	}
	if origin := said.At("origin", "kind"); isSet(origin) && !origin.Is("human") || isSet(turn) && !isOneOf(turn, "human", "sdk", "unknown") {
		return ""
	}
	if command := claudeCommand.FindStringSubmatch(content.Text()); command != nil && isSet(turn) {
		return command[1] + " " + command[2]
	}
	texts := []string{content.Text()}
	for _, part := range content.Elements() {
		typed = typed && !part.Get("type").Is("tool_result")
		texts = append(texts, part.Get("text").Text())
	}
	if !typed {
		return ""
	}
	return strings.Join(slices.DeleteFunc(texts, claudeNote.MatchString), "\n")
}

func isSet(v document.JSON) bool {
	return v.Kind() != 0 && v.Kind() != document.False && v.Kind() != document.Null
}

func isOneOf(v document.JSON, texts ...string) bool { return slices.ContainsFunc(texts, v.Is) }

// readCodexMessage reads a line of Codex 0.169. Messages with the role user also hold the environment and the project's
// instructions; Codex notes where each part is from.
func readCodexMessage(v document.JSON) string {
	p := v.Get("payload")
	if !v.Get("type").Is("response_item") || !p.Get("type").Is("message") || !p.Get("role").Is("user") {
		return ""
	}
	var texts []string
	for i, part := range p.Get("content").Elements() {
		notes, at := p.Get("internal_chat_message_metadata_passthrough"), strconv.Itoa(i)
		if notes.At("content_item_kinds", at).Is("user.text") && notes.At("content_item_metadata", at, "provenance", "type").Is("user") {
			texts = append(texts, part.Get("text").Text())
		}
	}
	return strings.Join(texts, "\n")
}
