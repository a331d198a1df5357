package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/llm"
)

type judgeDecodeCmd struct {
	File string `arg:"" name:"file" help:"A recorded exchange, as JSON; - reads stdin."`
}

// Help shows the format.
func (judgeDecodeCmd) Help() string {
	return `The file holds what an endpoint answered: {"status": 200, "headers": {...}, "body":
"..."}, with "nonce" where the request carried one. Printed is the verdict that was
read, or the class of the failure with what to do about it; always JSON.

Examples:

    gavel judge decode exchange.json
    jq '{status: .res.status, headers: .res.headers, body: .res.body}' cassette.jsonl | gavel judge decode -

Exit codes: 0 a verdict, 1 no usable verdict, 2 the file is no exchange.`
}

// Run decodes one exchange.
func (c *judgeDecodeCmd) Run(_ context.Context, con *console) error {
	raw, err := readSource(con, c.File)
	if err != nil {
		return err
	}
	x, err := parseExchange(raw)
	if err != nil {
		return term.UsageErrorf(`it is {"status": 200, "headers": {...}, "body": "..."}`, "%s is no recorded exchange: %w", c.File, err)
	}
	answer, lenient, err := llm.Decode(x)
	var failed *llm.Error
	if errors.As(err, &failed) {
		out := decodeFailure{Error: failed.Class, Status: failed.Status, Message: failed.Message, Advice: failed.Advice, Parameter: failed.Param}
		if failed.RetryAfter > 0 {
			out.RetryAfterMs = failed.RetryAfter.Milliseconds()
		}
		return errors.Join(con.out.JSON(out), term.ErrBad)
	}
	if err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	return con.out.JSON(decodeVerdict{Answer: answer, Lenient: lenient})
}

type decodeVerdict struct {
	llm.Answer
	Lenient bool `json:"lenient"`
}

type decodeFailure struct {
	Error        llm.Class `json:"error"`
	Status       int       `json:"status,omitempty"`
	Message      string    `json:"message,omitempty"`
	Advice       string    `json:"advice,omitempty"`
	Parameter    string    `json:"parameter,omitempty"`
	RetryAfterMs int64     `json:"retryAfterMs,omitempty"`
}

// parseExchange reads an exchange leniently: recordings of other tools have more
// keys, headers in any case, and header values in lists.
func parseExchange(raw []byte) (llm.Exchange, error) {
	var in struct {
		Status  int                        `json:"status"`
		Headers map[string]json.RawMessage `json:"headers"`
		Body    *json.RawMessage           `json:"body"`
		Nonce   string                     `json:"nonce"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&in); err != nil {
		return llm.Exchange{}, err
	}
	if dec.More() {
		return llm.Exchange{}, errors.New("it holds more than one document; give one exchange")
	}
	if in.Status < 100 || in.Status > 599 {
		return llm.Exchange{}, fmt.Errorf("status %d is no HTTP status", in.Status)
	}
	if in.Body == nil {
		return llm.Exchange{}, errors.New("it has no body")
	}
	x := llm.Exchange{Status: in.Status, Headers: make(map[string]string, len(in.Headers)), Nonce: in.Nonce}
	if json.Unmarshal(*in.Body, &x.Body) != nil {
		x.Body = string(*in.Body) // the body as JSON instead of as a string
	}
	for name, value := range in.Headers {
		var one string
		var many []string
		switch {
		case json.Unmarshal(value, &one) == nil:
		case json.Unmarshal(value, &many) == nil && len(many) > 0:
			one = many[0]
		default:
			return llm.Exchange{}, fmt.Errorf("the header %q is no text", name)
		}
		x.Headers[strings.ToLower(name)] = one
	}
	return x, nil
}
