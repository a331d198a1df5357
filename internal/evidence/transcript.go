package evidence

import (
	"context"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ReadTranscript returns the newest messages of an instance's user, oldest first, and how many older ones are left out.
type ReadTranscript func(ctx context.Context, instance string) (messages []string, omitted int, err error)

// transcript is what an instance's user said.
type transcript struct{ manager *Manager }

func (c *compiler) transcript(s Source) *transcript {
	c.rejectForeignKeys("addresses", s.addressKeys())
	c.rejectForeignKeys("commands", s.commandKeys())
	c.rejectForeignKeys("other sources", map[string]bool{"output": s.Output != ""})
	return &transcript{}
}

func (t *transcript) warnings() []string { return nil }

func (t *transcript) prepare(r judge.EvidenceRequest, _ document.JSON) (fetch, string) {
	return func(ctx context.Context) (judge.FetchResult, error) {
		switch {
		case r.Instance == "":
			return failedFetch(judge.FailureUnavailable, "only an instance has a user whose messages are known"), nil
		case t.manager.said == nil:
			return failedFetch(judge.FailureUnavailable, "this program has no user's messages"), nil
		}
		messages, omitted, err := t.manager.said(ctx, r.Instance)
		switch {
		case err != nil:
			return failedFetch(judge.FailureUnavailable, "the user's messages could not be read"), nil
		case len(messages) == 0:
			return failedFetch(judge.FailureUnavailable, "no message of the user was reported"), nil
		}
		var d objectWriter
		d.set("messages", messages)
		d.set("omitted", omitted)
		return judge.FetchResult{Content: d.end(), Truncated: omitted > 0}, nil
	}, ""
}
