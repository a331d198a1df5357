package llm

// Traits returns what follows from the class. One that is not known has the most
// careful ones: nothing is retried, and the case may be to blame.
func (c Class) Traits() Traits {
	if t, ok := traits[c]; ok {
		return t
	}
	return Traits{FromCase: true}
}

// The kinds of failure. What a class is not listed for does not apply to it.
var (
	// gone: the endpoint does not do its work.
	gone = Traits{Retry: true, Chain: true, Failure: true}
	// shut: it will not, until somebody changes something.
	shut = Traits{Chain: true}
	// unusable: it answered, and that was no judgement.
	unusable = Traits{Reask: true, Success: true, Poor: true, FromCase: true}
	// declined: it answered that it will not judge this.
	declined = Traits{Success: true, FromCase: true}
)

// traits has a row for every class.
var traits = map[Class]Traits{
	// What takes long may do so because of the case; see lateness.
	ClassTimeout:    {Retry: true, Chain: true, Busy: true},
	ClassNetwork:    gone,
	ClassUpstream:   gone,
	ClassOverloaded: {Retry: true, Chain: true},
	ClassNoChoices:  gone,

	ClassRateLimited: {Retry: true, Chain: true},
	ClassQuota:       shut,
	ClassAuth:        shut,
	ClassNotFound:    shut,
	ClassConfig:      shut,
	ClassCapability:  shut,

	ClassTooLong:      {FromCase: true},
	ClassFilter:       declined,
	ClassRefusal:      declined,
	ClassMalformed:    unusable,
	ClassEmpty:        unusable,
	ClassTruncated:    unusable,
	ClassAmbiguous:    unusable,
	ClassInconsistent: unusable,

	ClassBreakerOpen: shut,
	ClassNotBefore:   shut,
	// Whoever asks often enough fills the places, and whoever sends enough garbage
	// closes the quality latch: neither may open the gate, or have another model asked.
	ClassBusy:       {Busy: true},
	ClassShareSpent: {Busy: true},
	ClassQuality:    {FromCase: true},
}
