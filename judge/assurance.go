package judge

// rank orders the levels, 0 for one that is unknown.
func (a Assurance) rank() int {
	switch a {
	case AssuranceNone:
		return 1
	case AssuranceStructural:
		return 2
	case AssuranceValidators:
		return 3
	case AssuranceLLM:
		return 4
	case AssuranceLLMCalibrated:
		return 5
	case AssuranceHuman:
		return 6
	}
	return 0
}

// AtLeast reports whether a is as strong as b. An unknown level is weaker than
// every known one.
func (a Assurance) AtLeast(b Assurance) bool { return a.rank() >= b.rank() }

// strongerAssurance returns the stronger of two levels.
func strongerAssurance(a, b Assurance) Assurance {
	if a.AtLeast(b) {
		return a
	}
	return b
}

// describe names what a level examined, for sentences.
func (a Assurance) describe() string {
	switch a {
	case AssuranceStructural:
		return "fields and schema"
	case AssuranceValidators:
		return "fields, schema and validators"
	case AssuranceLLM:
		return "a model"
	case AssuranceLLMCalibrated:
		return "a calibrated model"
	case AssuranceHuman:
		return "a person"
	case AssuranceNone:
	}
	return "only whether the action is legal"
}
