package judge

import (
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// failureMessage says why a model that was asked gave no judgement, without what only
// an operator can use.
func failureMessage(t Trouble, class llm.Class) string {
	switch class {
	case llm.ClassRateLimited, llm.ClassOverloaded:
		return "The model that has to judge this move has too much to do at the moment."
	case llm.ClassQuota:
		return "What may be spent on the model that has to judge this move is used up."
	case llm.ClassAuth, llm.ClassNotFound, llm.ClassConfig, llm.ClassCapability:
		return "The model that has to judge this move is not set up right."
	case llm.ClassBreakerOpen, llm.ClassNotBefore:
		return "The model that has to judge this move failed lately and is left alone for a while."
	case llm.ClassTooLong:
		return "This move is too long for the model that has to judge it."
	case llm.ClassFilter, llm.ClassRefusal:
		return "The model refused to judge this move."
	case llm.ClassTruncated:
		return "The model's answer broke off before its judgement."
	case llm.ClassInconsistent:
		return "The model's answer contradicts itself."
	case llm.ClassQuality:
		return "The model's answers to what this principal sends were mostly unusable lately; it is not asked for a while."
	default:
		return troubleMessage(t)
	}
}

// busyMessage says why a model cannot be asked now.
func busyMessage(e *llm.Error) string {
	switch e.Class {
	case llm.ClassTimeout:
		return "The model that has to judge this move did not answer in time."
	case llm.ClassShareSpent:
		return "You have asked the model that has to judge this move as much as one principal may in a minute."
	case llm.ClassBusy:
		return "Too many questions wait for the model that has to judge this move."
	case llm.ClassQuota:
		return "What may be spent on the model that has to judge this move is used up; your requests are among those that it was spent on."
	default:
		return "The model that has to judge this move takes no more questions for now; yours are among those that it has had too many of."
	}
}

func unknownModel(name string) string {
	return fmt.Sprintf("This move asks for the judgement of the model %.80q, and no such model is configured.", name)
}

func budgetSpent(principal string, frees time.Duration) string {
	return fmt.Sprintf("The principal %.80q has asked the model as often as it may for now; ask again in %s.", principal, roundUp(frees))
}
