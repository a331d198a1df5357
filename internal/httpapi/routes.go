package httpapi

// operations is the table: the router, the OpenAPI document, the reference page and the
// client are all made from it.
func operations() []operation {
	return []operation{
		Define, ListDefinitions, GetDefinition, PutDefinition, DefinitionDiagram, GetJudge, PatchJudge,
		Start, ListInstances, GetInstance, InstanceDefinition, InstanceDiagram, CanExecute,
		Advance, Validate, Cancel, Undo, Redo, Checkpoint, ListCheckpoints, Rollback,
		History, Timeline, Events, InstanceEvents, Decisions, Statistics,
		Decide, ListReviews, GetReview, Resolve,
		ListSources, Who,
	}
}
