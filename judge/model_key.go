package judge

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// newSecrets are the marker and the nonce of one question. Nothing in the case may be
// able to imitate them, so they are random; only for cassettes are they derived from
// what the model is shown.
func (m *modelLayer) newSecrets(c Case, sample int) (marker, nonce string) {
	if !m.Stable {
		return m.Random(), m.Random()
	}
	shown, err := json.Marshal(struct {
		Workflow, State, Action string
		About                   About
		Operation               Operation
		Candidates              []shownCandidate
		Passed                  []LayerName
		Data, Context, Merged   document.JSON
		Evidence                json.RawMessage `json:",omitempty"`
		Rubric                  Rubric
		Sample                  int
	}{
		c.Workflow, c.State, c.Action, c.About, c.Operation, shownCandidates(c.Candidates), c.Passed,
		c.MaskedData, c.MaskedContext, c.MaskedMerged, shownEvidence(c.Fetched), c.Rubric, sample,
	})
	if err != nil {
		return m.Random(), m.Random() // a document that is no JSON has no stable form
	}
	derive := func(purpose string) string {
		h := sha256.New()
		hashPart(h, purpose)
		hashPart(h, string(shown))
		return base32.StdEncoding.EncodeToString(h.Sum(nil))[:26]
	}
	return derive("marker"), derive("nonce")
}

type shownCandidate struct{ Target, About string }

func shownCandidates(all []Candidate) []shownCandidate {
	out := make([]shownCandidate, 0, len(all))
	for _, c := range all {
		out = append(out, shownCandidate{c.Target, c.About})
	}
	return out
}

// cacheKey is the identity of a question: what is asked, but for marker and nonce,
// and for whom it may be answered from the cache. "" when nothing may be.
func (m *modelLayer) cacheKey(c Case, q question, sample int) string {
	if c.Instance == "" || c.Identity == "" {
		return ""
	}
	h := sha256.New()
	for _, text := range []string{q.prompt.ID, q.prompt.Digest, q.prompt.System, q.prompt.User, q.prompt.Shape, string(q.prompt.Schema)} {
		hashPart(h, q.withoutSecrets(text))
	}
	for _, text := range []string{
		c.Instance, c.Principal, c.Identity, c.DefinitionHash, c.JudgeConfigHash,
		m.Calibrations.Hash(), c.Rubric.Model, strconv.Itoa(sample),
	} {
		hashPart(h, text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// withoutSecrets is a text without what is random in it.
func (q question) withoutSecrets(text string) string {
	return strings.NewReplacer(q.marker, "\x00marker", q.nonce, "\x00nonce").Replace(text)
}

// hashPart writes a text with its length, so that no two lists of texts give the same.
func hashPart(h hash.Hash, text string) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(text)))
	h.Write(size[:])
	h.Write([]byte(text))
}
