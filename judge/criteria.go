package judge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

// criterion is one question to the model.
type criterion struct {
	id   string // c1, c2, …
	text string
}

// defaultCriteria are asked where a definition gives none: what an auditor would
// want of any step.
var defaultCriteria = []string{
	"The data are about this action and give what somebody who performs it would have to give",
	"The data do not contradict the context or themselves",
	"The data are specific enough that a third person could check them: they name things, places, numbers or results, and do more than assert that the work was done",
}

// criteriaOf are the rubric's criteria with their ids, or the default ones.
func criteriaOf(r Rubric) []criterion {
	texts := r.Criteria
	if len(texts) == 0 {
		texts = defaultCriteria
	}
	out := make([]criterion, len(texts))
	for i, text := range texts {
		out[i] = criterion{id: "c" + strconv.Itoa(i+1), text: text}
	}
	return out
}

// CriteriaDigest names the criteria that a rubric asks, in their order: "sha256:"
// and hex. A calibration is bound to it.
func CriteriaDigest(r Rubric) string {
	h := sha256.New()
	for _, c := range criteriaOf(r) {
		fmt.Fprintf(h, "%d:%s", len(c.text), c.text)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
